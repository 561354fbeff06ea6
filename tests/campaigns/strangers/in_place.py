"""`a @= b` of foreign test modules by pyclmm.

Python asks the array itself, so the statement is replaced when the module is compiled. `a @ b` stays NumPy's:
the tests of `@=` compare with it.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
from collections.abc import Sequence
from types import CodeType, ModuleType

from .products import matmul_in_place

_NAME = "_pyclmm_matmul_in_place"


class _Statements(ast.NodeTransformer):
    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        if not (isinstance(node.op, ast.MatMult) and isinstance(node.target, ast.Name)):
            return node
        target = ast.Name(node.target.id, ast.Load())
        value = ast.Call(ast.Name(_NAME, ast.Load()), [target, node.value], [])
        return ast.fix_missing_locations(ast.copy_location(ast.Assign([node.target], value), node))


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        tree = _Statements().visit(ast.parse(self.get_data(path), path))
        code: CodeType = compile(tree, path, "exec", dont_inherit=True)
        return code

    def exec_module(self, module: ModuleType) -> None:
        setattr(module, _NAME, matmul_in_place)
        super().exec_module(module)


class Finder(importlib.abc.MetaPathFinder):
    """Finds test modules (``test_*``) and gives them the loader above."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.rpartition(".")[2].startswith("test_"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return None
        spec.loader = _Loader(fullname, spec.loader.path)
        return spec
