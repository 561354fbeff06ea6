"""What `precision` means, and :func:`default_precision`, which sets it for a block of code.

=========  ==========================================================================================
"highest"  float32 products are IEEE float32 fused multiply-adds
"high"     matrix units on operands split into parts; errors like float32's
"medium"   matrix units on operands rounded to TF32
=========  ==========================================================================================

The words speak of products summed in float32 whose operands are float32, and of complex64's. Every other
type is multiplied as it is, whatever the word.
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
    """Let products in a ``with`` block have this precision where they are not given one.

    >>> with default_precision("medium"):
    ...     chosen(None), chosen("highest")
    ('medium', 'highest')

    Blocks nest, and each ends by what was before it. The setting belongs to the context
    (:mod:`contextvars`): other threads and asyncio tasks do not see it, and a task that was created inside
    a block keeps it. A :class:`pyclmm.Matmul` takes it when it is made, not when it is called.

    Raises ArgumentError for an unknown word, DTypeError for what is no string.
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
    """*precision*, if it is one."""
    if not isinstance(precision, str):
        raise DTypeError(f"precision is {precision!r}; pass a string")
    if precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)
    return precision


def chosen(precision: str | None) -> str:
    """The precision that a call was given, or the default where it is here."""
    return _default.get() if precision is None else checked(precision)
