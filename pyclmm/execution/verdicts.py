"""What becomes of a wrong result: the error that names it, the count of them, and the wait for what runs."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np

from ..errors import VerificationError, VerificationWarning, warn_caller
from ..kernels.device import DeviceInfo
from ..problem.gemm import GemmProblem

# Words of cl/verify/sums.h.
_FIRST_ROW, _FIRST_CALL, _ERROR, _LIMIT, _RANGES = 4, 5, 6, 8, 10

_lock = threading.Lock()
_watches: weakref.WeakSet[Any] = weakref.WeakSet()
_counts = {"wrong": 0, "repaired": 0}


def watch_over(watch: Any, problem: GemmProblem, device: DeviceInfo, kernel: str) -> None:
    """Raise VerificationError from *watch* when a product was wrong, which *kernel* computed."""

    def alarm() -> None:
        error = _error(problem, device, kernel, watch.taken())
        with _lock:
            _counts["wrong"] += 1
        raise error

    watch.on_alarm = alarm
    with _lock:
        _watches.add(watch)


def _error(problem: GemmProblem, device: DeviceInfo, kernel: str, words: Any) -> VerificationError:
    size = np.float64 if problem.acc_type in ("float64", "complex128") else np.float32
    error, limit = (float(words[at : at + 2].view(size)[0]) for at in (_ERROR, _LIMIT))
    sizes = problem.n, problem.m, max(1, problem.batch)
    low_high = words[_RANGES : _RANGES + 6].reshape(3, 2)
    columns, rows, stack = (
        (whole - int(low), int(high)) for whole, (low, high) in zip(sizes, low_high, strict=True)
    )
    if columns[1] == 0:  # errors below the limit of an element, which is less than that of the row
        columns = (0, problem.n)
    where = f"rows {rows[0]} to {rows[1] - 1}, columns {columns[0]} to {columns[1] - 1}"
    if problem.batch_shape:
        where += f", products {stack[0]} to {stack[1] - 1} of the stack"
    seed = int(words[_FIRST_CALL])
    size_of_error = f" by {error:.3g}, where {limit:.3g} is allowed" if limit else ""
    return VerificationError(
        f"a result is wrong: {where} of {problem}, computed by {kernel!r} on {device.name!r}. The sum of row "
        f"{int(words[_FIRST_ROW])} with signs of seed {seed} is off{size_of_error}. Compute it again, or "
        'pass verify="repair"; if it comes back, test the device: pyclmm selftest',
        device=device.name,
        kernel=kernel,
        rows=rows,
        columns=columns,
        stack=stack,
        seed=seed,
        error=error,
        limit=limit,
    )


def repaired(error: VerificationError, kernel: str) -> None:
    """The wrong part that *error* names was computed again by *kernel*: count it, and warn."""
    with _lock:
        _counts["repaired"] += 1
    warn_caller(f"{str(error).split('. ')[0]}; it was computed again by {kernel!r}", VerificationWarning)


def health() -> dict[str, int]:
    """How many checked products of this process were wrong, and how many of these were repaired.

    ``{"wrong": 0, "repaired": 0}`` is what a sound machine gives. See ``verify=`` of :func:`pyclmm.matmul`.
    """
    with _lock:
        return dict(_counts)


def finish() -> None:
    """Wait for the checked products on Arrays, tensors and others that all threads have enqueued so far.

    Raises VerificationError if one of them was wrong; the next call tells of the next one.
    """
    with _lock:
        watches = list(_watches)
    for watch in watches:
        watch.finish()
