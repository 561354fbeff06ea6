"""Calls of all functions of pyclmm.linalg, each for NumPy too: a name, the shapes of operands, the call."""

from typing import Any

import numpy as np
import pytest

CALLS: dict[str, tuple[Any, Any]] = {
    "dot": ([(3, 4), (2, 4, 5)], lambda m, a, b, **k: m.dot(a, b, **k)),
    "dot of vectors": ([(4,), (4,)], lambda m, a, b, **k: m.dot(a, b, **k)),
    "inner": ([(3, 4), (2, 4)], lambda m, a, b, **k: m.inner(a, b, **k)),
    "outer": ([(2, 3), (4,)], lambda m, a, b, **k: m.outer(a, b, **k)),
    "vdot": ([(2, 3), (2, 3)], lambda m, a, b, **k: m.vdot(a, b, **k)),
    "vdot of two shapes": ([(2, 3), (3, 2)], lambda m, a, b, **k: m.vdot(a, b, **k)),
    "vecdot": ([(2, 3), (3,)], lambda m, a, b, **k: m.vecdot(a, b, **k)),
    "vecdot that keeps its axis": (
        [(3, 2), (3, 2)],
        lambda m, a, b, **k: m.vecdot(a, b, axis=0, keepdims=True, **k),
    ),
    "matvec": ([(2, 3, 4), (4,)], lambda m, a, b, **k: m.matvec(a, b, **k)),
    "vecmat": ([(3,), (2, 3, 4)], lambda m, a, b, **k: m.vecmat(a, b, **k)),
    "tensordot": ([(2, 3, 4), (3, 4, 5)], lambda m, a, b, **k: m.tensordot(a, b, 2, **k)),
    "tensordot of all axes": ([(2, 3), (2, 3)], lambda m, a, b, **k: m.tensordot(a, b, 2, **k)),
    "multi_dot": ([(2, 3), (3, 4), (4,)], lambda m, *xs, **k: _linalg(m).multi_dot(xs, **k)),
    "matrix_power": ([(2, 3, 3)], lambda m, a, **k: _linalg(m).matrix_power(a, 5, **k)),
    "matrix_power 1": ([(3, 3)], lambda m, a, **k: _linalg(m).matrix_power(a, 1, **k)),
    "matrix_power 0": ([(2, 3, 3)], lambda m, a, **k: _linalg(m).matrix_power(a, 0, **k)),
    "matrix_power 0 of nothing": ([(0, 3, 3)], lambda m, a, **k: _linalg(m).matrix_power(a, 0, **k)),
    "einsum": ([(2, 3, 4), (2, 4, 5)], lambda m, a, b, **k: m.einsum("bij,bjk->kbi", a, b, **k)),
    "einsum element by element": ([(3, 4), (3, 4)], lambda m, a, b, **k: m.einsum("ij,ij->ij", a, b, **k)),
    "einsum of three": ([(3, 4), (4, 5), (5, 2)], lambda m, *xs, **k: m.einsum("ij,jk,kl->il", *xs, **k)),
    "einsum by sublists": (
        [(3, 4), (4, 5)],
        lambda m, a, b, **k: m.einsum(a, [0, 1], b, [1, 2], [2, 0], **k),
    ),
    "a sum": ([(3, 4)], lambda m, a, **k: m.einsum("ij->i", a, **k)),
    "the sum of all": ([(3, 4)], lambda m, a, **k: m.einsum("ij->", a, **k)),
    "a trace": ([(3, 3)], lambda m, a, **k: m.einsum("ii", a, **k)),
    "a diagonal": ([(3, 3)], lambda m, a, **k: m.einsum("ii->i", a, **k)),
    "a transpose": ([(3, 4)], lambda m, a, **k: m.einsum("ij->ji", a, **k)),
    "nothing": ([(0, 4), (4, 5)], lambda m, a, b, **k: m.dot(a, b, **k)),
    "a sum over nothing": ([(3, 0), (0, 5)], lambda m, a, b, **k: m.dot(a, b, **k)),
}
_UFUNCS = {"vecdot", "vecdot that keeps its axis", "matvec", "vecmat"}  # of NumPy 2.2 on
every_call = pytest.mark.parametrize("name", [x for x in CALLS if x not in _UFUNCS or hasattr(np, "matvec")])
NAIVE = {"kernel": "naive"}  # one kernel, so that few programs are compiled


def _linalg(module):
    return np.linalg if module is np else module
