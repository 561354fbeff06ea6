"""What a plan tells: why its product gets its kernel, in words and numbers, and what it computes and moves.

Times are estimates from the device's rates (kernels/rates.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..kernels import KERNELS, Kernel
from ..kernels.config import TileConfig
from ..kernels.device import DeviceInfo
from ..problem.gemm import GemmProblem
from ..repr_tables import aligned
from . import select
from .select import Choice, KernelChoice
from .tables import Entry

_FLOAT32 = ("float32", "complex64")  # the types that `precision` applies to
_INTEGER_SUMS = {"uint32": "32-bit integers", "uint64": "64-bit integers"}
_REAL_TYPES = {"complex64": "float32", "complex128": "float64"}


@dataclass(frozen=True)
class Estimate:
    """The operations of a product, the fewest bytes it must move, and its plan's workspace in bytes."""

    flops: int
    nbytes: int
    workspace_nbytes: int

    @property
    def intensity(self) -> float:
        """Operations per byte moved."""
        return self.flops / max(1, self.nbytes)


@dataclass(frozen=True)
class Alternative:
    """Another kernel family: its best configuration and estimate, and the *reason* why it was not chosen.

    ``seconds`` and ``config`` are None if the family cannot compute the product; ``unsuited``: nor any other
    on this device.
    """

    kernel: str
    config: TileConfig | None = None
    seconds: float | None = None
    reason: str | None = None
    unsuited: bool = False

    def __str__(self) -> str:
        if self.config is None:
            return f"no: {self.reason}"
        note = f"; {self.reason}" if self.reason else ""
        return f"possible: {self.config}, {_estimate(self.seconds)}{note}"


@dataclass(frozen=True)
class Elsewhere:
    """The device that a product of NumPy arrays could have gone to, and the estimate there, with the time to
    wake its threads; None if it cannot compute it.
    """

    device: str
    seconds: float | None


@dataclass(frozen=True, repr=False)
class Explanation:
    """Why a plan uses its kernel; ``str()`` and ``repr()`` of it are for people.

    Times are in seconds, or None if they are not known: ``seconds`` is the model's estimate for the choice
    with the ``check_seconds`` that ``verify=`` adds to that of each kernel;
    ``memory_seconds`` and ``arithmetic_seconds`` are the least times that the bytes and the operations of the
    product take on the device. ``entry`` is the entry of a measured table that made the choice, or None.
    ``kernel`` is None if the result is empty. ``elsewhere`` is the other device if there was a choice between
    one with threads and one without; else None. Where the caller's thread computes on a device with threads,
    ``others`` have the estimates of all threads, by which the kernel was chosen.
    """

    problem: str
    device: str
    kernel: str | None
    config: TileConfig | None
    because: str
    arithmetic: str
    seconds: float | None
    check_seconds: float
    memory_seconds: float | None
    arithmetic_seconds: float | None
    rates_source: str
    flops: int
    nbytes: int
    workspace_nbytes: int
    launches: tuple[str, ...]
    entry: Entry | None
    others: tuple[Alternative, ...]
    elsewhere: Elsewhere | None = None

    @property
    def least_seconds(self) -> float | None:
        """The longer of the two least times; None if neither is known."""
        return max((s for s in (self.memory_seconds, self.arithmetic_seconds) if s is not None), default=None)

    def __str__(self) -> str:
        lines = {
            "kernel": f"{self.kernel} ({self.config})" if self.kernel else "none",
            "because": self.because,
            **({"device": self._device()} if self.elsewhere else {}),
            "arithmetic": self.arithmetic,
            "estimate": f"{_estimate(self.seconds)}{self._check()} (rates: {self.rates_source})",
            "least time": self._least(),
            "operations": f"{self.flops}, and {self.nbytes} bytes",
            "launches": self._listed_launches(),
            "workspace": f"{self.workspace_nbytes} bytes",
        }
        text = [f"{self.problem} on {self.device}", *aligned(list(lines.items()), indent=2)]
        text += ["other kernels:"] if self.others else []
        listed = [(other.kernel, other) for other in self.others if not other.unsuited]
        text += aligned(listed, indent=2)
        if absent := len(self.others) - len(listed):
            text.append(f"  {absent} more cannot run on this device: .others has the reason of each")
        return "\n".join(text)

    __repr__ = __str__

    def _device(self) -> str:
        other = self.elsewhere
        return f"as none was asked for; {other.device}: {_estimate(other.seconds)}" if other else ""

    def _listed_launches(self) -> str:
        """Their number and names; a kernel that is launched several times is named once."""
        if not self.launches:
            return "none"
        times = Counter(self.launches)
        names = (name if count == 1 else f"{name} ({count} times)" for name, count in times.items())
        return f"{len(self.launches)}: {', '.join(names)}"

    def _check(self) -> str:
        check = self.check_seconds
        return f", {_microseconds(check)} of it to check the result" if check else ""

    def _least(self) -> str:
        if self.least_seconds is None:
            return "not known"
        times = {"memory": self.memory_seconds, "arithmetic": self.arithmetic_seconds}
        known = (f"{name} {_microseconds(s)}" if s else f"{name} not known" for name, s in times.items())
        return f"{_microseconds(self.least_seconds)} ({', '.join(known)})"


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.4g} us"


def _estimate(seconds: float | None) -> str:
    return "no estimate in seconds" if seconds is None else _microseconds(seconds)


def explain(
    problem: GemmProblem,
    device: DeviceInfo,
    choice: Choice | None,
    *,
    requested: KernelChoice,
    launches: Sequence[str],
    workspace_nbytes: int,
    failed: Sequence[str] = (),
    check_seconds: float = 0.0,
    elsewhere: Elsewhere | None = None,
    runs_on: DeviceInfo | None = None,
) -> Explanation:
    """The explanation of *choice* for *problem*.

    *requested*: the ``kernel=`` of the call. *failed*: "name: reason" for each kernel that was tried and
    failed. *check_seconds*: what ``verify=`` adds to each estimate. *elsewhere*: the other device that there
    was. *runs_on*: the part of *device* that computes it, where that is not all; the choice was made for all.
    """
    runs_on = runs_on or device
    memory, arithmetic = _least_seconds(problem, runs_on)
    on_matrix_units = choice is not None and choice.kernel.matrix_units
    reasons = dict(text.split(": ", 1) for text in failed)
    others = [k for k in KERNELS if choice is not None and k.name != choice.kernel.name]
    return Explanation(
        problem=str(problem), device=device.name,
        kernel=choice.kernel.name if choice else None, config=choice.config if choice else None,
        because=_because(choice, requested, failed),
        arithmetic=_arithmetic(problem, device, choice),
        seconds=choice.kernel.estimate(problem, choice.config, runs_on) + check_seconds if choice else None,
        check_seconds=check_seconds, memory_seconds=memory,
        arithmetic_seconds=None if on_matrix_units else arithmetic,
        rates_source=runs_on.rates.source, flops=problem.flops, nbytes=problem.nbytes,
        workspace_nbytes=workspace_nbytes, launches=tuple(launches),
        entry=choice.entry if choice else None,
        others=tuple(_alternative(k, problem, device, reasons.get(k.name), check_seconds) for k in others),
        elsewhere=elsewhere,
    )  # fmt: skip


def _least_seconds(problem: GemmProblem, device: DeviceInfo) -> tuple[float, float | None]:
    """The least seconds for the product's bytes, and for its multiply-adds without matrix units, if known."""
    rate = device.rates.multiply_adds(problem.acc_type)
    products = problem.m * problem.n * problem.k * problem.batch
    return device.rates.moved(problem.nbytes), products / rate if rate else None


def _because(choice: Choice | None, requested: KernelChoice, failed: Sequence[str]) -> str:
    if choice is None:
        return "the result has no element"
    if not isinstance(requested, str):
        return "kernel= asked for it and its configuration"
    if requested != "auto":
        return f"kernel={requested!r} was asked for"
    if entry := choice.entry:
        shape = f"{entry.m} x {entry.n} x {entry.k}"
        return f"measured as the fastest: {_microseconds(entry.seconds)} for {shape}, {entry.date}"
    tried = f", after {'; '.join(failed)}" if failed else ""
    return f"lowest estimated time{tried}"


def _arithmetic(problem: GemmProblem, device: DeviceInfo, choice: Choice | None) -> str:
    """The arithmetic that the kernel uses, in words."""
    if choice is None or problem.k == 0:
        return "none: nothing is multiplied"
    a, b, kernel = problem.a_type, problem.b_type, choice.kernel
    if own := kernel.arithmetic(choice.config):
        return own
    if kernel.matrix_units:
        if kernel.in_parts(problem):
            return f"{a} split into parts, multiplied on matrix units"
        sums = _INTEGER_SUMS.get(problem.acc_type, problem.acc_type)
        return f"{kernel.multiplied_as(problem, device)} on matrix units, summed in {sums}"
    work = kernel.launches(problem, choice.config, device)
    acc = str(work.launches[-1].program.define("ACC_TYPE") or problem.acc_type)  # it may be a wider type
    if acc in _INTEGER_SUMS:
        return _INTEGER_SUMS[acc]
    real = _REAL_TYPES.get(acc, acc)
    converted = "" if {a, b} == {real} else f" of {a if a == b else f'{a} and {b}'}"
    unused = f'precision="{problem.precision}" allows a lower precision, which this kernel does not use'
    is_lower = a in _FLOAT32 and b in _FLOAT32 and problem.precision != "highest"
    return f"{real} FMA{converted}" + (f" ({unused})" if is_lower else "")


def _alternative(
    kernel: Kernel, problem: GemmProblem, device: DeviceInfo, failure: str | None, check_seconds: float
) -> Alternative:
    found = failure or select.best(kernel, problem, device)
    if isinstance(found, str):
        return Alternative(kernel.name, reason=found, unsuited=kernel.unsuited(device) is not None)
    note = None if kernel.automatic else "on request only"
    return Alternative(kernel.name, found.config, found.seconds + check_seconds, note)
