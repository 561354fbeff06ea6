"""How operators of PyTorch's are made, ``pyclmm::gemm`` and ``pyclmm::ragged``, with all derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import UnsupportedError
from ..execution.torch_tensors import may_have_tangents

Rule = Callable[..., Any]

_library = torch.library.Library("pyclmm", "FRAGMENT")  # by torch.library.custom_op a call costs 2 us more


def defined(schema: str, keep: Rule, backward: Rule, tangent: Rule) -> Rule:
    """A new operator with these derivatives, as a function. :func:`implement` says what it computes.

    *keep* takes the ctx, the arguments, the result and whether each argument needs a derivative. It gives the
    tensors that *backward* and *tangent* find in the ctx. What PyTorch makes of an operator and its backward
    has no rules for torch.func and tangents. So a call that these follow goes by an autograd.Function.
    """

    def save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*keep(ctx, inputs, output, ctx.needs_input_grad))

    name = schema.partition("(")[0]
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    torch.library.register_autograd(f"pyclmm::{name}", backward, setup_context=save, lib=_library)
    operator = getattr(torch.ops.pyclmm, name).default

    class Followed(torch.autograd.Function):  # type: ignore[misc]
        generate_vmap_rule = True
        jvp = staticmethod(tangent)

        @staticmethod
        def forward(*arguments: Any) -> Tensor:
            made: Tensor = operator(*arguments)
            return made

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
            ctx.set_materialize_grads(False)  # no product of zeros
            kept = keep(ctx, inputs, output, (True,) * len(inputs))
            ctx.save_for_backward(*kept)
            ctx.save_for_forward(*kept)

        @staticmethod
        def backward(ctx: Any, g: Tensor | None) -> Any:
            return (None,) * len(ctx.needs_input_grad) if g is None else backward(ctx, g)

    def call(*arguments: Any) -> Any:
        return Followed.apply(*arguments) if is_followed() else operator(*arguments)

    return call


def implement(name: str, real: Rule, fake: Rule) -> None:
    """Make *real* what the operator computes, and *fake* what it is while PyTorch traces."""
    for key in ("CPU", "CUDA"):
        _library.impl(name, real, key)
    torch.library.register_fake(f"pyclmm::{name}", fake, lib=_library)


def is_followed() -> bool:
    """Whether forward derivatives, or torch.func.grad or one made of it, may follow what is computed now.

    torch.compile differentiates its graphs itself, but for tangents. Raises UnsupportedError for these: it
    calls what it cannot trace.
    """
    has_tangents = may_have_tangents()
    if torch.compiler.is_compiling():
        if has_tangents:
            raise UnsupportedError("torch.compile cannot trace this with tangents; pass fullgraph=False")
        return False
    functorch = torch._C._functorch
    levels = functorch.get_interpreter_stack() or ()
    return has_tangents or any(level.key() == functorch.TransformType.Grad for level in levels)
