"""Functions into which torch.compile does not look. It would trace them piece by piece, NumPy's calls too."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import CodeType
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_codes: list[CodeType] = []


def tell() -> None:
    """Tell PyTorch, which is imported, to run the code of these functions, and what it calls, as it is."""
    try:
        frames = import_module("torch._C._dynamo.eval_frame")
        skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
        for code in _codes:
            frames.set_code_exec_strategy(code, skip)
    except Exception:  # it is PyTorch's own, and may change: 2.6 has none of this
        return


class _Told:
    """Is true. PyTorch asks when it comes to a call of such a function."""

    def __bool__(self) -> bool:
        tell()
        return True


def untraced(function: Function) -> Function:
    """A decorator: torch.compile calls *function* as it is, as it does what torch.compiler.disable made."""
    marks: Any = function
    marks._torchdynamo_disable = _Told()
    marks._torchdynamo_disable_msg = (
        "it is no operator of PyTorch's; pyclmm.torch.matmul, gemm and ragged_matmul are"
    )
    _codes.append(marks.__code__)
    return function
