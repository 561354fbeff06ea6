"""The settings `precision` and `reproducible`, and the functions that set them for a block of code.

=========  ==========================================================================================
"highest"  products are fused multiply-adds of the type, float32 or float64
"high"     matrix units: float32 split into parts, float64 by residues; errors like the type's
"medium"   matrix units on float32 rounded to TF32; float64 as "high"
=========  ==========================================================================================

`precision` is a lower bound: if no kernel that uses a lower precision supports the product, the product is
computed with "highest". It applies to products of two float32, complex64, float64 or complex128 operands.
Operands of any other type are multiplied as they are. docs/precision.md has the bounds.

A reproducible product has the same bits on every device: each sum is one chain of fused multiply-adds over K,
in order (docs/reproducibility.md).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar, get_args

import numpy as np

from ..errors import ArgumentError, DTypeError, brief, unknown_name
from .literals import Precision, Verify

T = TypeVar("T")
P = ParamSpec("P")
PRECISIONS = get_args(Precision)
# Activations of comparisons and multiplications alone. The others use builtins (exp, erf, tanh), whose last
# bits differ between drivers.
EXACT_ACTIVATIONS = ("none", "relu", "leaky_relu")
_precision: ContextVar[str] = ContextVar("pyclmm.default_precision", default="highest")
REPAIR = "repair"
_verify: ContextVar[bool | str] = ContextVar("pyclmm.verified", default=False)
_reproducible: ContextVar[bool] = ContextVar("pyclmm.default_reproducible", default=False)
_RUN_LATER = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
# The blocks that the context is in. A task begins with those of the one that made it, which may have ended.
_entered: ContextVar[tuple[tuple[SettingBlock, AbstractContextManager[None]], ...]]
_entered = ContextVar("pyclmm.blocks", default=())


def _still_open() -> tuple[tuple[SettingBlock, AbstractContextManager[None]], ...]:
    return tuple((of, block) for of, block in _entered.get() if block in of._open)


class SettingBlock(AbstractContextManager[None]):
    """A block that *begin* begins, and a decorator of functions whose calls are such blocks. It may be
    entered again: later, within itself, by several threads.
    """

    def __init__(self, begin: Callable[[], AbstractContextManager[None]]) -> None:
        self._begin, self._open = begin, list[AbstractContextManager[None]]()

    def __enter__(self) -> None:
        block = self._begin()
        block.__enter__()
        self._open.append(block)
        _entered.set((*_still_open(), (self, block)))

    def __exit__(self, *raised: Any) -> None:
        own = [block for of, block in _still_open() if of is self]
        if not (own or self._open):
            raise ArgumentError("this block is not open")
        block = (own or self._open)[-1]  # what is the process's may end in another thread
        block.__exit__(*raised)
        self._open.remove(block)
        _entered.set(_still_open())

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Raises DTypeError for a generator or coroutine function, whose body runs after its call."""
        bodies = function, getattr(function, "__func__", None), type(function).__call__
        if any(is_later(body) for is_later in _RUN_LATER for body in bodies):
            raise DTypeError(
                f"{function!r} is a generator or coroutine function, whose body runs after its call; "
                "write the `with` block in its body"
            )

        @wraps(function)
        def decorated(*given: P.args, **named: P.kwargs) -> T:
            with self._begin():
                return function(*given, **named)

        return decorated


class _Having(AbstractContextManager[None]):
    """*setting* has *value* in the context that enters it."""

    def __init__(self, setting: ContextVar[T], value: T) -> None:
        self._setting, self._value = setting, value

    def __enter__(self) -> None:
        self._token = self._setting.set(self._value)

    def __exit__(self, *_: object) -> None:
        try:
            self._setting.reset(self._token)
        except ValueError:
            raise ArgumentError(
                f"the block of {self._setting.name} ends in another thread or task than it began in; begin "
                "and end it in one"
            ) from None


def block(begin: Callable[P, Iterator[None]]) -> Callable[P, SettingBlock]:
    """As :func:`contextlib.contextmanager`, with a :class:`SettingBlock`."""
    return wraps(begin)(lambda *given, **named: SettingBlock(partial(contextmanager(begin), *given, **named)))


def default_precision(precision: Precision) -> SettingBlock:
    """Set the precision of products in a ``with`` block that are not given one.

    >>> import numpy as np, pyclmm
    >>> a = np.eye(2, dtype=np.float32)
    >>> with pyclmm.default_precision("medium"):
    ...     plan = pyclmm.Matmul(a, a)
    ...     exact = pyclmm.Matmul(a, a, precision="highest")
    >>> plan.precision, exact.precision
    ('medium', 'highest')

    Blocks nest, and may be entered again; the end of one restores the setting before it. The setting belongs
    to the context (:mod:`contextvars`): other threads and asyncio tasks do not see it, and a task that was
    created inside a block keeps it. A generator that yields within a block leaves it set for its caller until
    it goes on, as a generator has no context of its own. A :class:`pyclmm.Matmul` reads it when it is made,
    not when it is called. It decorates functions too, but no generators and coroutines, whose
    bodies run after the call.

    Raises ArgumentError for an unknown value and DTypeError if *precision* is not a string.
    """
    return having(_precision, checked(precision))


def having(setting: ContextVar[T], value: T) -> SettingBlock:
    """In this block *setting* has *value*."""
    return SettingBlock(partial(_Having, setting, value))


def checked(precision: str) -> str:
    """*precision*, checked. Raises ArgumentError for an unknown value and DTypeError for no string."""
    if not isinstance(precision, str):
        raise DTypeError(f"precision is {brief(precision)}; pass a string")
    if precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)
    return precision


def chosen(precision: str | None) -> str:
    """The precision that a call was given, or the default of its context. Raises as :func:`checked` does."""
    return _precision.get() if precision is None else checked(precision)


def default_reproducible(enabled: bool = True) -> SettingBlock:
    """Make products in a ``with`` block reproducible that are not told otherwise.

    >>> with default_reproducible():
    ...     is_reproducible(None), is_reproducible(False)
    (True, False)

    Blocks nest; the end of a block restores the setting before it. The setting belongs to the context, as
    that of :func:`pyclmm.default_precision` does: a generator that yields within a block leaves it set for
    its caller until it goes on. A :class:`pyclmm.Matmul` reads it when it is made, not when it is called.

    Raises DTypeError if *enabled* is not True or False.
    """
    return having(_reproducible, _switch(enabled))


def _switch(enabled: object) -> bool:
    if not isinstance(enabled, bool | np.bool_):
        raise DTypeError(f"reproducible is {brief(enabled)}; pass True or False")
    return bool(enabled)


def is_reproducible(enabled: bool | None) -> bool:
    """The setting that a call was given, or the default of its context. Raises DTypeError for others."""
    return _reproducible.get() if enabled is None else _switch(enabled)


def verified(how: Verify = True) -> SettingBlock:
    """Check the result of each product in a ``with`` block that is not told otherwise (docs/verification.md).

    *how* is True, "repair" or False, as ``verify=`` of :func:`pyclmm.matmul`. Blocks nest; the setting
    belongs to the context, as that of :func:`pyclmm.default_precision` does. A :class:`pyclmm.Matmul` reads
    it when it is made.

    Raises ArgumentError for another text, and DTypeError if *how* is neither a bool nor a text.
    """
    return having(_verify, _way(how))


def _way(verify: object) -> bool | str:
    if isinstance(verify, bool | np.bool_):
        return bool(verify)
    if isinstance(verify, str) and verify == REPAIR:
        return REPAIR
    kind = ArgumentError if isinstance(verify, str) else DTypeError
    raise kind(f"verify is {brief(verify)}; pass True, False or {REPAIR!r}")


def is_verified(verify: Verify | None) -> bool | str:
    """The setting that a call was given, or the default of its context. Raises as :func:`verified` does."""
    return _verify.get() if verify is None else _way(verify)


def in_context() -> tuple[str, bool, bool | str]:
    """precision, reproducible and verify of a call that is given none of them."""
    return _precision.get(), _reproducible.get(), _verify.get()


def check_activation(activation: str) -> None:
    """Raise ArgumentError for an activation whose bits differ between devices."""
    if activation not in EXACT_ACTIVATIONS:
        raise ArgumentError(
            f"activation {activation!r} uses a builtin whose last bits differ between devices, so it cannot "
            f"be reproducible; pass one of {', '.join(EXACT_ACTIVATIONS)}, or apply it to the result"
        )
