"""PyTorch's own samples (OpInfo) of its operators that multiply, computed by pyclmm from tensors on the CPU.

Each sample is given as it is, not contiguous, and as views that PyTorch has not resolved: negative, and
conjugated where it is complex. The result of PyTorch in the widest dtype is the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map

import pyclmm
from pyclmm import linalg
from tests.campaigns.strangers.products import counted  # the plugin's own, by its whole name

THRESHOLD = 16.0  # that of level 3 of Netlib, of the ratio of an error to eps times the sum of magnitudes

matmul, gemm, einsum, outer = map(counted, (pyclmm.matmul, pyclmm.gemm, linalg.einsum, linalg.outer))


def is_inexact(dtype: Any) -> bool:
    return bool(dtype.is_floating_point or dtype.is_complex)


def added(c: Any, a: Any, b: Any, *, alpha: Any = 1, beta: Any = 1) -> Any:
    shape = (*a.shape[:-1], *b.shape[-1:]) if b.ndim > 1 else a.shape[:-1]
    if not is_inexact(c.dtype):  # then PyTorch drops the fraction
        alpha, beta = int(alpha), int(beta)
    return gemm(a, b, c.expand(shape), alpha=alpha, beta=beta)


def addbmm(c: Any, a: Any, b: Any, **scalars: Any) -> Any:
    """The sum over a stack is the sum over K of all its columns."""
    side, stand = a.transpose(0, 1).reshape(a.shape[1], -1), b.reshape(-1, b.shape[2])
    return added(c, side, stand, **scalars)


def kron(a: Any, b: Any) -> Any:
    n = max(a.ndim, b.ndim)
    a, b = (x.reshape((1,) * (n - x.ndim) + tuple(x.shape)) for x in (a, b))
    product = outer(a, b).reshape(*a.shape, *b.shape)
    shape = [i * j for i, j in zip(a.shape, b.shape, strict=True)]
    return product.transpose([i + n * side for i in range(n) for side in (0, 1)]).reshape(shape)


def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    return gemm(x, weight, trans_b="T", bias=bias) if weight.ndim > 1 else matmul(x, weight)


def bilinear(x: Any, y: Any, weight: Any, bias: Any = None) -> Any:
    product = einsum("...i,oij,...j->...o", x, weight, y)
    if bias is None:
        return product
    return product + np.asarray(wide(bias).resolve_conj().resolve_neg()).astype(product.dtype)


OPERATORS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("mm", "bmm", "matmul", "mv"), matmul),
    "__rmatmul__": lambda a, b: matmul(b, a),
    **{name: counted(getattr(linalg, name)) for name in ("dot", "vdot", "inner")},
    "tensordot": lambda a, b, dims=2: counted(linalg.tensordot)(a, b, dims),
    "linalg.vecdot": lambda a, b, dim=-1: counted(linalg.vecdot)(a, b, axis=dim),
    "linalg.multi_dot": counted(linalg.multi_dot),
    "linalg.matrix_power": counted(linalg.matrix_power),
    "outer": outer,
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), added),
    "addr": lambda c, a, b, **scalars: added(c, a[:, None], b[None, :], **scalars),
    "addbmm": addbmm,
    "einsum": lambda operands, subscripts: einsum(subscripts, *operands),
    "nn.functional.linear": linear,
    "nn.functional.bilinear": bilinear,
    "kron": kron,
}
INFOS = [info for info in op_db if info.name in OPERATORS]
FORMS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda x: x,
    "not contiguous": lambda x: x.repeat_interleave(2, -1)[..., ::2] if x.ndim else x,
    "negative": lambda x: torch._neg_view(-x),
    "conjugated": lambda x: torch.conj(x.conj().resolve_conj()),
}


def forms(dtype: Any) -> list[str]:
    has = {"negative": dtype != torch.bool, "conjugated": dtype.is_complex}
    return [form for form in FORMS if has.get(form, True)]


def wide(x: Any) -> Any:
    """In the widest dtype of its kind; integers stay, as sums in them are exact."""
    if not isinstance(x, torch.Tensor) or not is_inexact(x.dtype):
        return x
    return x.to(torch.complex128 if x.dtype.is_complex else torch.float64)


def magnitudes(x: Any) -> Any:
    is_number = is_inexact(x.dtype) if isinstance(x, torch.Tensor) else isinstance(x, complex)
    return abs(wide(x)) if is_number else x


def called(function: Callable[..., Any], sample: Any, form: Callable[[Any], Any]) -> Any:
    """*function* of a sample, of which *form* makes each tensor and each complex number."""
    operands, args, keywords = tree_map(form, (sample.input, sample.args, sample.kwargs))
    result = function(operands, *args, **keywords)
    return result.resolve_conj().numpy() if isinstance(result, torch.Tensor) else np.asarray(result)


def is_ours(info: Any, sample: Any) -> bool:
    """Left out: inverses, which are NumPy's; sums over an ellipsis or over axes of lengths that differ,
    which NumPy refuses; an alpha of 0 times NaN, where BLAS does not read the operands.
    """
    if sample.kwargs.get("alpha", 1) == 0 or (info.name == "tensordot" and sample.input.numel() == 1):
        return False
    if info.name == "linalg.matrix_power":
        return bool(sample.args[0] >= 0)
    left, _, right = sample.args[0].partition("->") if info.name == "einsum" else ("", "", "")
    return "..." in right or "..." not in left


@pytest.mark.parametrize(
    ("info", "dtype", "form"),
    [
        pytest.param(info, dtype, form, id=f"{info.formatted_name}-{str(dtype)[6:]}-{form}")
        for info in INFOS
        for dtype in sorted(info.dtypes, key=str)
        for form in forms(dtype)
    ],
)
def test_forward(info: Any, dtype: Any, form: str) -> None:
    def formed(x: Any) -> Any:
        return FORMS[form](x) if isinstance(x, torch.Tensor) else x

    given = info.sample_inputs("cpu", dtype, requires_grad=False)
    for sample in (each for each in given if is_ours(info, each)):
        with torch.no_grad():
            expected = called(info.op, sample, wide)
            bound = called(info.op, sample, magnitudes)
            got = called(OPERATORS[info.name], sample, formed)
        said = str(sample.summary())
        assert got.shape == expected.shape, said
        if is_inexact(dtype):
            eps = THRESHOLD * torch.finfo(dtype).eps
            got_wide = got.astype(expected.dtype)
            near = abs(got_wide - expected) <= eps * bound + torch.finfo(dtype).tiny
            assert np.all(near | (np.isnan(got_wide) & np.isnan(expected))), said
        else:
            assert np.array_equal(got, expected), said
        if dtype != torch.bfloat16:  # which NumPy does not have; a result is float32 unless dtype= is given
            assert got.dtype == torch.empty(0, dtype=dtype).numpy().dtype, said
