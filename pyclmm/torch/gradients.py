"""The gradients of the operator: two products of the same precision, by the operator, so they have gradients.

With ``z = alpha a b + beta c + bias`` and g the gradient of z, that of a is ``conj(alpha) g b^H`` and that
of b is ``conj(alpha) a^H g``. What was repeated is summed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import DTypeError

_SLOPE = 0.01  # of leaky_relu
# Activation -> the gradient of what it is given, by the gradient g of its result y.
_BACK: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "none": lambda g, y: g,
    "relu": lambda g, y: torch.where(y <= 0, 0, g),  # as PyTorch: 0 for an infinite g too, g where y is NaN
    "leaky_relu": lambda g, y: torch.where(y > 0, g, _SLOPE * g),
    "sigmoid": lambda g, y: g * (y * (1 - y)),
    "tanh": lambda g, y: g * (1 - y * y),
}


def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Save what :func:`backward` reads. Raises DTypeError for an activation without a gradient here."""
    a, b, _, bias, ctx.alpha, ctx.beta, ctx.activation, *ctx.ways = inputs
    if ctx.activation not in _BACK:
        raise DTypeError(f"activation {ctx.activation!r} has no gradient here; call pyclmm.torch.gemm")
    for_a, for_b = ctx.needs_input_grad[:2]
    result = None if ctx.activation == "none" else output
    ctx.save_for_backward(a if for_b else None, b if for_a else None, result)
    ctx.shapes = a.shape, b.shape
    ctx.turned = [x.ndim > 1 and x.stride(-2) == 1 < x.stride(-1) for x in (a, b)]
    ctx.bias_shape = None if bias is None else bias.shape


def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
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
    result: Tensor = torch.ops.pyclmm.gemm.default(left, right, *rest)
    return result.sum_to_size(shape)


def _conj(x: complex) -> complex:
    return x.conjugate() if isinstance(x, complex) else x
