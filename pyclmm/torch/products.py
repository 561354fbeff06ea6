"""matmul and gemm of tensors, by one custom operator of PyTorch's, ``pyclmm::gemm``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from .. import api
from ..errors import ArgumentError, DTypeError, ShapeError
from ..execution.options import beta_of, check_name, plain_number
from ..execution.torch_tensors import check_plain, unfit_dtype
from ..problem import dtypes
from ..problem.canonical import Epilogue, checked_gemm
from ..problem.extras import EXTRAS
from ..problem.gemm import ACTIVATIONS, Operand
from ..problem.literals import Activation, Precision, Trans, Verify
from ..problem.matrices import promoted, result_shape
from ..problem.settings import REPAIR, check_activation, chosen, is_reproducible, is_verified
from . import gradients
from .custom_ops import implement, is_followed

_TYPES = {getattr(torch, name) for name in dtypes.ELEMENT_TYPES}
# Their derivatives need what the activation was given. The others' follow from what it gave.
_OF_INPUT: dict[str | None, Callable[[Tensor], Tensor]] = {
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda z: torch.nn.functional.gelu(z, approximate="tanh"),
    "silu": torch.nn.functional.silu,
}
VERIFY: dict[str, Any] = {"False": False, "True": True, REPAIR: REPAIR}  # by the operator's word
# By trans: op of matrices, and of vectors, which equal their transposes.
_OPS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "N": (lambda x: x, lambda x: x),
    "T": (lambda x: x.mT, lambda x: x),
    "C": (lambda x: x.mH, lambda x: x.conj()),
}


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    precision: Precision | None = None,
    reproducible: bool | None = None,
    verify: Verify | None = None,
) -> Tensor:
    """The matrix product of two tensors, as :func:`torch.matmul` defines it, with gradients.

    Parameters
    ----------
    a, b
        Two strided tensors of one dtype, both on the CPU or both on one CUDA device. 1-D operands are
        promoted, stacks broadcast. Dtypes: bool, integers, float16, bfloat16, float32, float64, complex64,
        complex128. Under autocast for their device, as for torch.matmul, float32, float16 and bfloat16
        operands are converted to autocast's dtype.
    precision, reproducible, verify
        As for :func:`pyclmm.matmul`. The products of the gradient have the same.

    Returns
    -------
    A new tensor of that dtype and device. On CUDA it is computed on PyTorch's current stream.

    Raises
    ------
    DTypeError (a TypeError) for other operands, ShapeError (a ValueError) for shapes that do not multiply,
    ArgumentError (a ValueError), and as :func:`pyclmm.matmul`.

    It is one operator, which ``torch.compile`` keeps in the graph. For another default precision
    (:func:`pyclmm.default_precision`) it compiles again.
    """
    return gemm(a, b, precision=precision, reproducible=reproducible, verify=verify)


def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: complex = 1.0,
    beta: complex | None = None,
    trans_a: Trans = "N",
    trans_b: Trans = "N",
    bias: Tensor | None = None,
    activation: Activation | None = None,
    precision: Precision | None = None,
    reproducible: bool | None = None,
    verify: Verify | None = None,
) -> Tensor:
    """``act(alpha op(a) op(b) + beta c + bias)`` of tensors, with gradients of a, b, c and bias.

    Parameters as for :func:`pyclmm.gemm`; tensors, *precision*, *reproducible* and *verify* as for
    :func:`matmul`. c has the result's shape; bias has the shape (N,), (1, N) or (M, 1). alpha and beta are
    numbers, which have no gradient. Where a gradient is recorded, "gelu", "gelu_tanh" and "silu" are
    PyTorch's own, applied to the product, because their derivatives need it; all other activations are part
    of the product.

    Returns and raises as :func:`matmul` does.
    """
    rest = (_number("alpha", alpha), _number("beta", beta_of(beta, c)))
    ways = (chosen(precision), is_reproducible(reproducible), str(is_verified(verify)))
    act = "none" if activation is None else activation
    check_name("activation", act, ACTIVATIONS)
    if ways[1]:
        check_activation(act)
    a, b, c, bias = _operands({"a": a, "b": b, "c": c, "bias": bias})
    after = None
    if act in _OF_INPUT and a.is_floating_point() and _may_record(a, b, c, bias):
        act, after = "none", _OF_INPUT[act]
    z = _folded(_op("a", a, trans_a), _op("b", b, trans_b), c, bias, *rest, act, *ways)
    return z if after is None else after(z)


def _number(name: str, value: Any) -> complex:
    """alpha or beta as PyTorch's operators take it. Raises DTypeError, ArgumentError."""
    is_symbol = isinstance(value, torch.SymInt | torch.SymFloat)  # of lengths, while PyTorch exports
    number: complex = value if is_symbol else plain_number(name, value)
    if isinstance(number, int) and not -(2**63) <= number < 2**63:
        raise ArgumentError(
            f"{name} is an integer beyond int64, which PyTorch's operators take; pass a float"
        )
    return number


def _wants_gradient(x: Tensor | None) -> bool:
    return x is not None and x.requires_grad


def _may_record(*xs: Tensor | None) -> bool:
    """Whether a derivative may be recorded of a product of *xs*. What vmap wraps says that it requires none,
    and what torch.jit.trace makes is run with and without gradients."""
    if torch.jit.is_tracing() or is_followed():
        return True
    is_wrapped = torch._C._are_functorch_transforms_active()
    return torch.is_grad_enabled() and (is_wrapped or any(map(_wants_gradient, xs)))


def _folded(a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, *rest: Any) -> Tensor:
    """The product of stacks of matrices: one product where b is one matrix, and so is the gradient of b."""
    folds = a.ndim > 2 and b.ndim == 2 and c is None and a.is_contiguous()
    if folds and (bias is None or bias.ndim < 2 or (bias.ndim == 2 and bias.shape[0] == 1)):
        try:  # without a question of lengths, which a compiled graph may learn late
            folded: Tensor = gradients.gemm(a.flatten(0, -2), b, c, bias, *rest)
            return folded.view(*a.shape[:-1], b.shape[-1])
        except ShapeError:  # it tells folded shapes: the next tells those that were passed
            pass
    made: Tensor = gradients.gemm(a, b, c, bias, *rest)
    return made


def _op(name: str, x: Tensor, trans: str) -> Tensor:
    check_name(f"trans_{name}", trans, tuple(_OPS))
    if x.ndim == 0:
        raise ShapeError(f"{name} has shape (); a product needs one dimension or more: multiply by `*`")
    return _OPS[trans][x.ndim < 2](x)


def _operands(given: dict[str, Any]) -> tuple[Any, ...]:
    """The tensors of a call, checked, and converted as autocast has it. Raises DTypeError."""
    for name, x in given.items():
        if x is not None or name in "ab":
            _check(name, x)
    kind = given["a"].device.type
    if kind != "meta" and torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        fit = (torch.float16, torch.bfloat16, torch.float32)
        given = {k: x.to(dtype) if x is not None and x.dtype in fit else x for k, x in given.items()}
    a = given["a"]
    for name, x in given.items():
        if x is not None and x.device != a.device:
            raise DTypeError(f"a is on {a.device} and {name} on {x.device}; pass {name}.to(a.device)")
        if x is not None and x.dtype != a.dtype:
            raise DTypeError(f"a has dtype {a.dtype} and {name} {x.dtype}; pass {name}.to(a.dtype)")
    return tuple(given.values())


def _check(name: str, x: Any) -> None:
    if not isinstance(x, Tensor):
        raise DTypeError(f"{name} is a {type(x).__name__}; pass a torch.Tensor, or call pyclmm's function")
    check_plain(name, x)
    if x.dtype not in _TYPES:
        raise unfit_dtype(name, x)
    if x.device.type not in ("cpu", "cuda", "meta"):
        raise DTypeError(f"{name} is on {x.device}; pyclmm multiplies on cpu and cuda: pass {name}.cpu()")


# ---- the operator


def product(a: Tensor, b: Tensor, c: Any = None, bias: Any = None, **keywords: Any) -> Tensor:
    """``pyclmm.gemm`` of tensors whose gradients are somebody else's matter."""
    plain: list[Any] = [x.detach() if _wants_gradient(x) else x for x in (a, b, c, bias)]
    result: Tensor = api.gemm(*plain[:3], bias=plain[3], **keywords)
    return result


def _real(
    a: Tensor,
    b: Tensor,
    c: Any,
    bias: Any,
    alpha: complex,
    beta: complex,
    act: str,
    precision: str,
    exact: bool,
    verify: str,
) -> Tensor:
    # PyTorch makes new strings for each call. gemm takes a call for like its last one by the objects.
    words = {"activation": sys.intern(act), "precision": sys.intern(precision)}
    ways: dict[str, Any] = {"reproducible": exact, "verify": VERIFY[verify]}
    return product(a, b, c, bias, alpha=alpha, beta=beta, **ways, **words)


def _fake(a: Tensor, b: Tensor, c: Any, bias: Any, *rest: Any) -> Tensor:
    _, _, act, precision, exact, _ = rest
    layouts = {name: layout(x) for name, x in zip(EXTRAS, (c, bias), strict=True) if x is not None}
    if all(map(is_known, (a, b, c, bias))):
        ways: dict[str, Any] = {"precision": precision, "reproducible": exact, "dtype": layout(a).dtype}
        shape = checked_gemm(layout(a), layout(b), epilogue=Epilogue(layouts, act), **ways).shape
    else:
        shape = _symbolic_shape(layout(a), layout(b), layouts)
    return a.new_empty(shape)


def _symbolic_shape(a: Operand, b: Operand, extras: Mapping[str, Operand]) -> tuple[int, ...]:
    """The shape of a product whose lengths may be PyTorch's symbols."""
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode  # noqa: PLC0415 - takes long

    (*of_a, m, k), (*of_b, depth, n) = (x.shape for x in promoted(a, b))
    torch._check(k == depth, lambda: f"a {a.shape} by b {b.shape} do not multiply")
    result = result_shape((*torch.broadcast_shapes(of_a, of_b), m, n), a, b)
    for name, x in extras.items():
        with suppress(GuardOnDataDependentSymNode):  # the product itself will see its lengths
            EXTRAS[name].fitted(x.shape, x.strides, result)
    return result.shape


def layout(x: Tensor) -> Operand:
    """Where the elements of *x* lie."""
    size, dtype = x.element_size(), dtypes.dtype_of(str(x.dtype).removeprefix("torch."))
    return Operand(tuple(x.shape), tuple(stride * size for stride in x.stride()), dtype)


def is_known(x: Tensor | None) -> bool:
    """Whether the shape of *x* is of numbers, not of PyTorch's symbols."""
    return x is None or all(isinstance(length, int) for length in x.shape)


implement("gemm", _real, _fake)
