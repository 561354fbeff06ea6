"""The setting ``reproducible``, and :func:`default_reproducible`, which sets it for a block of code.

A reproducible product has the same bits on every device: each sum is one chain of fused multiply-adds over K,
in order (docs/reproducibility.md).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar

import numpy as np

from ..errors import ArgumentError, DTypeError
from .precision import having

# Activations of comparisons and multiplications alone. The others use builtins (exp, erf, tanh), whose last
# bits differ between drivers.
EXACT_ACTIVATIONS = ("none", "relu", "leaky_relu")
_default: ContextVar[bool] = ContextVar("pyclmm.default_reproducible", default=False)


def default_reproducible(enabled: bool = True) -> AbstractContextManager[None]:
    """Make products in a ``with`` block reproducible that are not told otherwise.

    >>> with default_reproducible():
    ...     is_reproducible(None), is_reproducible(False)
    (True, False)

    Blocks nest; the end of a block restores the setting before it. The setting belongs to the context, as
    that of :func:`pyclmm.default_precision` does: a generator that yields within a block leaves it set for
    its caller until it goes on. A :class:`pyclmm.Matmul` reads it when it is made, not when it is called.

    Raises DTypeError if *enabled* is not True or False.
    """
    return having(_default, _checked(enabled))


def _checked(enabled: object) -> bool:
    if not isinstance(enabled, bool | np.bool_):
        raise DTypeError(f"reproducible is {enabled!r}; pass True or False")
    return bool(enabled)


def is_reproducible(enabled: bool | None) -> bool:
    """The setting that a call was given, or the default of its context. Raises DTypeError for others."""
    return _default.get() if enabled is None else _checked(enabled)


def check_activation(activation: str) -> None:
    """Raise ArgumentError for an activation whose bits differ between devices."""
    if activation not in EXACT_ACTIVATIONS:
        raise ArgumentError(
            f"activation {activation!r} uses a builtin whose last bits differ between devices, so it cannot "
            f"be reproducible; pass one of {', '.join(EXACT_ACTIVATIONS)}, or apply it to the result"
        )
