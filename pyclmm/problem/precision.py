"""The values of `precision`, and :func:`default_precision`, which sets it for a block of code.

=========  ==========================================================================================
"highest"  float32 products are IEEE float32 fused multiply-adds
"high"     matrix units on operands split into parts; errors like float32's
"medium"   matrix units on operands rounded to TF32
=========  ==========================================================================================

The setting is a lower bound: if no kernel that uses a lower precision supports the product, the product is
computed in float32. It applies to products of two float32 or complex64 operands. Operands of any other type
are multiplied as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import get_args

from ..errors import DTypeError, unknown_name
from .words import Precision

PRECISIONS = get_args(Precision)
_default: ContextVar[str] = ContextVar("pyclmm.default_precision", default="highest")


def default_precision(precision: Precision) -> AbstractContextManager[None]:
    """Set the precision of products in a ``with`` block that are not given one.

    >>> import numpy as np, pyclmm
    >>> a = np.eye(2, dtype=np.float32)
    >>> with pyclmm.default_precision("medium"):
    ...     plan = pyclmm.Matmul(a, a)
    ...     exact = pyclmm.Matmul(a, a, precision="highest")
    >>> plan.precision, exact.precision
    ('medium', 'highest')

    Blocks nest; the end of a block restores the setting before it. The setting belongs to the context
    (:mod:`contextvars`): other threads and asyncio tasks do not see it, and a task that was created inside
    a block keeps it. A :class:`pyclmm.Matmul` reads it when it is made, not when it is called.

    Raises ArgumentError for an unknown value and DTypeError if *precision* is not a string.
    """
    return _entered(checked(precision))


@contextmanager
def _entered(precision: str) -> Iterator[None]:
    token = _default.set(precision)
    try:
        yield
    finally:
        _default.reset(token)


def checked(precision: str) -> str:
    """*precision*, checked. Raises ArgumentError for an unknown value and DTypeError for no string."""
    if not isinstance(precision, str):
        raise DTypeError(f"precision is {precision!r}; pass a string")
    if precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)
    return precision


def chosen(precision: str | None) -> str:
    """The precision that a call was given, or the default of its context. Raises as :func:`checked` does."""
    return _default.get() if precision is None else checked(precision)
