"""How public functions raise: without pyclmm's own frames, and pyclmm's error for what the system refuses."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn, ParamSpec, TypeVar

from .environment import SHORT_TRACEBACKS
from .errors import ArgumentError, DeviceMemoryError, DTypeError, PyclmmError, ThreadError, UnsupportedError
from .untraced import untraced

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")

OF_CALLER = (ArgumentError, DTypeError, UnsupportedError)  # what arguments can cause: the message says it all


def briefly(error: PyclmmError) -> PyclmmError:
    """*error* without inner frames, to be raised; ``PYCLMM_SHORT_TRACEBACKS=off`` keeps them."""
    return error if SHORT_TRACEBACKS.is_off else error.with_traceback(None)


def guarded(asked: str) -> Callable[[Callable[Parameters, Returned]], Callable[Parameters, Returned]]:
    """A decorator of functions that begin a call; *asked* is the function's name.

    They raise errors as :func:`briefly` does, and pyclmm's error for what the system refuses.

    A warm call of matmul, gemm or a plan has no time for it.
    """

    def decorator(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
        @functools.wraps(function)
        def call(*args: Parameters.args, **keywords: Parameters.kwargs) -> Returned:
            try:
                return function(*args, **keywords)
            except OF_CALLER as error:
                raise briefly(error) from error.__cause__
            except (MemoryError, RuntimeError) as error:
                raise_of_system(error, asked, *args, *keywords.values())
                raise

        untraced(function)
        return untraced(call)

    return decorator


class OfProcess:
    """What is neither pickled nor copied, as it holds what the driver made for this process."""

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise DTypeError(
            f"a {type(self).__name__} belongs to its process and devices and cannot be pickled or copied; in "
            "another process make one there"
        )


def raise_of_system(error: MemoryError | RuntimeError, asked: str, *operands: object) -> None:
    """Raise pyclmm's error if *error* is Python's own for what the system refuses: memory, or a thread. It
    says that this was *asked* of *operands*, among which may be anything, a plan that is called first.
    """
    if isinstance(error, PyclmmError):
        return
    if isinstance(error, MemoryError):
        operands = operands[1:] if operands and type(operands[0]).__name__ == asked else operands
        raise DeviceMemoryError(
            f"{asked} of {_described(operands)}: the host has no memory ({str(error) or 'MemoryError'}); "
            "for NumPy arrays pass out=np.memmap(...), or a dataset, and memory_limit=; else free some, "
            "raise the limit of this process, or multiply smaller matrices"
        ) from error
    said = str(error)
    if "new thread" in said or "new futures" in said:  # the latter where the interpreter ends
        cure = "raise the limit of processes and threads (`ulimit -u`, the container's pids)"
        if "shutdown" in said:
            cure = "multiply before the interpreter ends"
        raise ThreadError(
            f"a product in tiles needs threads ({error}): {cure}, or multiply without tiles"
        ) from error


def _described(operands: Iterable[object]) -> str:
    """Type, shape and dtype of the arrays among *operands*, and the types of lists."""
    flat = [x for each in operands for x in (each.values() if isinstance(each, Mapping) else (each,))]
    arrays = (x for x in flat if isinstance(x, list | tuple) or (hasattr(x, "shape") and hasattr(x, "dtype")))
    return ", ".join(
        type(x).__name__ + (f" {x.shape} {x.dtype}" if hasattr(x, "shape") else "") for x in arrays
    )
