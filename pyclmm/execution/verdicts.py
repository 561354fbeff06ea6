"""What becomes of a wrong result: the error that names it, the count of them, and the wait for what runs."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import numpy as np

from ..errors import ArgumentError, VerificationError, VerificationWarning, warn_caller
from ..kernels.device import DeviceInfo
from ..kernels.verification import size_dtype
from ..opencl import forks
from ..opencl.watch import Range, named, own_lock
from ..problem.gemm import Gemm, GemmProblem, Ragged

# Words of cl/verify/sums.h.
_WRONG, _FIRST_ROW, _FIRST_CALL, _ERROR, _LIMIT = 2, 4, 5, 6, 8

_lock = threading.RLock()
_watches: weakref.WeakSet[Any] = weakref.WeakSet()
_left: deque[Any] = deque(maxlen=256)  # those of plans that have ended, which nobody else holds
_counts = {"wrong": 0, "repaired": 0}
# What the product that is computed is a part of, in words behind its name.
_part: ContextVar[str] = ContextVar("part", default="")


@contextmanager
def part_of(words: str) -> Iterator[None]:
    """Errors and warnings of products within this block name the part that *words* do."""
    token = _part.set(words)
    try:
        yield
    finally:
        _part.reset(token)


def watch_over(binding: Any, gemm: Gemm, device: DeviceInfo, kernel: str, pairs: Sequence[int] = ()) -> None:
    """Raise VerificationError from *binding*'s watch when a product was wrong, which *kernel* computed; of
    ragged products ArgumentError for wrong sizes. *pairs*: those of a list's products."""
    watch = binding.watch

    def alarm() -> None:
        words, problem = watch.taken(), gemm.problem
        if problem.ragged is not None and not words[_WRONG]:
            raise _sizes_error(problem, problem.ragged)
        error = _error(gemm, device, kernel, words, pairs)
        raise error if watch.repairs else counted(error)

    watch.on_alarm = alarm
    with _lock:
        _watches.add(watch)
    weakref.finalize(binding, _leave, watch).atexit = False


def _leave(watch: Any) -> None:
    """Keep the watch of a binding that is gone, if nobody has heard yet of its last products."""
    if watch.is_open:
        _left.append(watch)


def _error(
    gemm: Gemm, device: DeviceInfo, kernel: str, words: Any, pairs: Sequence[int]
) -> VerificationError:
    problem = gemm.problem
    error, limit = (float(words[at : at + 2].view(size_dtype(problem))[0]) for at in (_ERROR, _LIMIT))
    columns, rows, stack = named(words)
    if columns[1] == 0:  # errors below the limit of an element, which is less than that of the row
        columns = (0, max(x.n for x in problem.products[slice(*stack)] or (problem,)))
    seed, line = int(words[_FIRST_CALL]), f"row {int(words[_FIRST_ROW])}"
    if gemm.swapped:  # the transposed product was computed
        rows, columns, problem, line = columns, rows, problem.transposed, line.replace("row", "column")
    if pairs:
        wrong = pairs[slice(*stack)]
        stack = min(wrong), max(wrong) + 1
    where = _place(problem, rows, columns, stack, is_listed=bool(pairs))
    how = f"The sum of {line} with signs of seed {seed} is off"
    if error == np.inf:
        how = f"In {line} an element is NaN or infinite and should not be, or should be and is not"
    elif limit:
        how += f" by {error:.3g}, where {limit:.3g} is allowed"
    return VerificationError(
        f"a result is wrong: {where} of {problem}{_part.get()}, computed by {kernel!r} on {device.name!r}. "
        f'{how}. Compute it again, or pass verify="repair"; if it comes back, test the device: '
        "pyclmm selftest",
        device=device.name, kernel=kernel, rows=rows, columns=columns, stack=stack, seed=seed,
        error=error, limit=limit,
    )  # fmt: skip


def _place(problem: GemmProblem, rows: Range, columns: Range, stack: Range, is_listed: bool) -> str:
    """What is wrong, in words. Of a list *stack* are pairs."""
    where = f"{_range('row', rows)}, {_range('column', columns)}"
    if is_listed:
        first, last = stack[0], stack[1] - 1
        return f"pairs[{first}]{f' to pairs[{last}]' * (first != last)}, {where}"
    if problem.ragged is not None:
        return f"{where}, {_range('group', stack)}"
    return f"{where}, {_range('product', stack)} of the stack" if problem.batch_shape else where


def _sizes_error(problem: GemmProblem, ragged: Ragged) -> ArgumentError:
    length = problem.m if ragged.axis == "m" else problem.k
    return ArgumentError(
        f"group_sizes of an earlier call, {ragged.groups} sizes on the device, had a negative one, or more "
        f"than {length} rows in all; its groups were cut to these rows. Pass sizes that add up to at most "
        f"{length}"
    )


def _range(name: str, found: Range) -> str:
    first, last = found[0], found[1] - 1
    return f"{name} {first}" if first == last else f"{name}s {first} to {last}"


def counted(error: VerificationError) -> VerificationError:
    """*error*, which :func:`health` counts."""
    with _lock:
        _counts["wrong"] += 1
    return error


def repaired(error: VerificationError, how: str) -> None:
    """The wrong part that *error* names is right now: count it, and warn."""
    with _lock:
        _counts["repaired"] += 1
    warn_caller(f"{str(error).split('. ')[0]}; it was {how}", VerificationWarning)


def health() -> dict[str, int]:
    """How many checked products of this process were wrong, and how many of these were repaired.

    ``{"wrong": 0, "repaired": 0}`` is what a sound machine gives. See ``verify=`` of :func:`pyclmm.matmul`.
    """
    with _lock:
        return dict(_counts)


def _after_fork() -> None:
    """To drop an event is to wait for it, and a driver's other objects may end a forked process: keep all.
    Another thread of the parent may hold the lock."""
    global _lock  # noqa: PLW0603
    _lock = threading.RLock()
    for watch in tuple(_watches):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(watch))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def finish() -> None:
    """Wait for the checked products on Arrays, tensors and others that all threads have enqueued so far.

    Raises VerificationError if one of them was wrong; the next call tells of the next one. Of plans that have
    ended it knows the last 256.
    """
    _hear(lambda _: True)


def finish_own() -> None:
    """The same of this thread's products alone. It has held :func:`own_lock` since the first of them."""
    own = own_lock()
    _hear(lambda watch: watch.lock is own)


def _hear(is_asked: Callable[[Any], bool]) -> None:
    if forks.is_forked():  # no product of its parent's ends
        return
    with _lock:
        watches = list(filter(is_asked, _watches))
    for watch in watches:
        watch.finish()
        with _lock, suppress(ValueError):  # its plan has not ended
            _left.remove(watch)
