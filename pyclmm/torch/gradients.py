"""The operator ``pyclmm::gemm`` and its derivatives: two products of the same precision, by that operator.

With ``z = alpha a b + beta c + bias`` and g the gradient of z, that of a is ``conj(alpha) g b^H`` and that
of b is ``conj(alpha) a^H g``. What was repeated is summed. The tangent of z is
``alpha (da b + a db) + beta dc + dbias``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import DTypeError
from .custom_ops import defined

_SLOPE = 0.01  # of leaky_relu
# Activation -> the gradient of what it is given, by the gradient g of its result y.
_BACK: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "none": lambda g, y: g,
    "relu": lambda g, y: torch.where(y <= 0, 0, g),  # as PyTorch: 0 for an infinite g too, g where y is NaN
    "leaky_relu": lambda g, y: torch.where(y > 0, g, _SLOPE * g),
    "sigmoid": lambda g, y: g * (y * (1 - y)),
    "tanh": lambda g, y: g * (1 - y * y),
}


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor, needed: tuple[bool, ...]) -> tuple[Any, ...]:
    """What derivatives read. Raises DTypeError for an activation without one here."""
    a, b, _, bias, ctx.alpha, ctx.beta, ctx.activation, *ctx.ways = inputs
    if ctx.activation not in _BACK:
        raise DTypeError(f"activation {ctx.activation!r} has no gradient here; call pyclmm.torch.gemm")
    ctx.shapes = a.shape, b.shape
    ctx.turned = [x.ndim > 1 and x.stride(-2) == 1 < x.stride(-1) for x in (a, b)]
    ctx.bias_shape = None if bias is None else bias.shape
    for_a, for_b = needed[:2]
    return a if for_b else None, b if for_a else None, None if ctx.activation == "none" else output


def _backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    """The gradients of the operator's arguments."""
    a, b, y = ctx.saved_tensors
    for_a, for_b, for_c, for_bias = ctx.needs_input_grad[:4]
    z = _BACK[ctx.activation](g, y)
    of_c = _conj(ctx.beta) * z if for_c else None
    a_shape, b_shape = ctx.shapes
    if len(b_shape) == 1:
        b_shape, z = (*b_shape, 1), z.unsqueeze(-1)
    if len(a_shape) == 1:
        a_shape, z = (1, *a_shape), z.unsqueeze(-2)
    of_a = of_b = None
    if for_a:
        of_a = _product(ctx, z, b.reshape(b_shape).mH, a_shape, ctx.turned[0]).reshape(ctx.shapes[0])
    if for_b:
        of_b = _product(ctx, a.reshape(a_shape).mH, z, b_shape, ctx.turned[1]).reshape(ctx.shapes[1])
    return of_a, of_b, of_c, _of_bias(ctx, z) if for_bias else None, *(None,) * 6


def _of_bias(ctx: Any, z: Tensor) -> Tensor:
    """The sum of *z* over what the bias was added to."""
    shape = ctx.bias_shape
    if len(shape) == 1 == len(ctx.shapes[1]):  # a value for each row
        return z.sum_to_size((*shape, 1)).view(shape)
    return z.sum_to_size(shape)


def _product(ctx: Any, left: Tensor, right: Tensor, shape: tuple[int, ...], turned: bool) -> Tensor:
    """conj(alpha) left right, summed to *shape*, an operand's. *turned*: that lies column by column, and so
    does this, because a parameter's gradient is copied if it lies otherwise than the parameter."""
    if turned:
        return _product(ctx, right.mT, left.mT, (*shape[:-2], shape[-1], shape[-2]), False).mT
    rest = (None, None, _conj(ctx.alpha), 0.0, "none", *ctx.ways)
    result: Tensor = gemm(left, right, *rest)
    return result.sum_to_size(shape)


def _tangent(ctx: Any, da: Any, db: Any, dc: Any, dbias: Any, *_: None) -> Tensor:
    """The tangent of the result by those of the arguments: None of one without."""
    a, b, y = ctx.saved_tensors
    left, alpha = (a, 0.0) if da is None else (da, ctx.alpha)  # by 0 nothing is read
    dz = gemm(left, b, dc, dbias, alpha, 0.0 if dc is None else ctx.beta, "none", *ctx.ways)
    if db is not None:
        dz = dz + gemm(a, db, None, None, ctx.alpha, 0.0, "none", *ctx.ways)
    return _BACK[ctx.activation](dz, y)


def _conj(x: complex) -> complex:
    return x.conjugate() if isinstance(x, complex) else x


gemm = defined(
    "gemm(Tensor a, Tensor b, Tensor? c, Tensor? bias, Scalar alpha, Scalar beta, str activation, "
    "str precision, bool reproducible, str verify) -> Tensor",
    *(_keep, _backward, _tangent),
)
