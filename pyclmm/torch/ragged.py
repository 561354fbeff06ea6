"""ragged_matmul of tensors, by one custom operator of PyTorch's, ``pyclmm::ragged``, with gradients."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from .. import many
from ..errors import DTypeError
from ..execution.torch_tensors import check_plain
from ..problem.gemm import MAX_ALIGN
from ..problem.literals import Precision, Verify
from ..problem.ragged import SIZES, ragged_gemm, ragged_shape
from ..problem.settings import chosen, is_reproducible, is_verified
from .custom_ops import defined, implement
from .products import VERIFY, _operands, _wants_gradient, is_known, layout


def ragged_matmul(
    a: Tensor,
    b: Tensor,
    group_sizes: Tensor,
    *,
    precision: Precision | None = None,
    reproducible: bool | None = None,
    verify: Verify | None = None,
) -> Tensor:
    """:func:`pyclmm.ragged_matmul` of tensors, with gradients of a and b.

    Parameters
    ----------
    a, b
        (rows, K) and (groups, K, N), or (M, K) and (K, N) of which K is divided; tensors as for
        :func:`matmul`.
    group_sizes
        int32 or int64, on the device of a. On CUDA nothing waits for it.
    precision, reproducible, verify
        As for :func:`matmul`.

    Returns and raises as :func:`pyclmm.ragged_matmul` does, DTypeError as :func:`matmul`. The rows of no
    group are zeros, and so are their gradients. It is one operator, which ``torch.compile`` keeps in the
    graph.
    """
    a, b = _operands({"a": a, "b": b})
    if not isinstance(group_sizes, Tensor):
        kind = type(group_sizes).__name__
        raise DTypeError(f"group_sizes is a {kind}; pass torch.as_tensor(group_sizes, device=a.device)")
    check_plain(SIZES, group_sizes)
    if group_sizes.dtype not in (torch.int32, torch.int64):
        raise DTypeError(
            f"group_sizes has dtype {group_sizes.dtype}; pass whole numbers, group_sizes.to(torch.int32)"
        )
    if group_sizes.device != a.device:
        raise DTypeError(
            f"group_sizes is on {group_sizes.device} and a on {a.device}; pass group_sizes.to(a.device)"
        )
    ways = (chosen(precision), is_reproducible(reproducible), str(is_verified(verify)))
    result: Tensor = _ragged(a, b, group_sizes, *ways)
    return result


def _real(a: Tensor, b: Tensor, sizes: Tensor, precision: str, exact: bool, verify: str) -> Tensor:
    a, b = (x.detach() if _wants_gradient(x) else x for x in (a, b))
    ways: dict[str, Any] = {"precision": sys.intern(precision), "reproducible": exact}
    result: Tensor = many.ragged_matmul(a, b, sizes, **ways, verify=VERIFY[verify])
    return result


def _fake(a: Tensor, b: Tensor, sizes: Tensor, precision: str, exact: bool, _: str) -> Tensor:
    layouts = {name: layout(x) for name, x in (("a", a), ("b", b), (SIZES, sizes))}
    if all(map(is_known, (a, b, sizes))):
        ways: dict[str, Any] = {"precision": precision, "reproducible": exact, "dtype": layouts["a"].dtype}
        host_align = None if a.is_cuda else MAX_ALIGN
        return a.new_empty(ragged_gemm(layouts, False, host_align=host_align, **ways).shape)
    shape = ragged_shape(layouts["a"], layouts["b"], layouts[SIZES])
    torch._check(a.shape[1] == b.shape[-2], lambda: f"a {a.shape} by b {b.shape} do not multiply")
    return a.new_empty(shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor, needed: tuple[bool, ...]) -> tuple[Any, ...]:
    ctx.ways = inputs[3:]
    return inputs[:3]


def _backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    a, b, sizes = ctx.saved_tensors
    for_a, for_b = ctx.needs_input_grad[:2]
    of_a = None
    if for_a and b.ndim == 3:
        of_a = _ragged(g, b.mH, sizes, *ctx.ways)
    elif for_a:  # g has a matrix for each group
        of_a = _ragged(b.conj(), g.mT, sizes, *ctx.ways).mT
    of_b = _ragged(a.mH, g, sizes, *ctx.ways) if for_b else None
    return of_a, of_b, None, None, None, None


def _tangent(ctx: Any, da: Any, db: Any, *_: None) -> Tensor:
    a, b, sizes = ctx.saved_tensors
    if da is None:
        found: Tensor = _ragged(a, db, sizes, *ctx.ways)
        return found
    of_a: Tensor = _ragged(da, b, sizes, *ctx.ways)
    return of_a if db is None else of_a + _ragged(a, db, sizes, *ctx.ways)


_ragged = defined(
    "ragged(Tensor a, Tensor b, Tensor group_sizes, str precision, bool reproducible, str verify) -> Tensor",
    *(_keep, _backward, _tangent),
)
implement("ragged", _real, _fake)
