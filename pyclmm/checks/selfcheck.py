"""Self-check: a kernel is used on a device only after it gave right answers there (docs/design.md).

The check runs the product's own programs on small operands (small_problems.py). The verdict is kept, in the
process and on disk, under a digest of version, checks, device, driver, sources and macros; one against a
kernel only if a second check, in a child process, fails too, and for a day if one of the two came to no end
in its time. The programs that check results (cl/verify/) have a self-check too (checked_results.py).
``PYCLMM_SELFCHECK=off`` skips the check. Nothing then notices a driver that gives wrong products.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from .. import environment, fields, store
from ..errors import BuildError, DeviceLostError, UnsupportedError
from ..kernels.config import TileConfig
from ..kernels.device import DeviceInfo
from ..kernels.interface import Kernel, Program, Work
from ..kernels.verification import transfer_sums, verified
from ..opencl import crash_marks, queues
from ..opencl.launcher import info_of, launcher_of
from ..opencl.pocl import pocl_fault
from ..opencl.program import source_hash
from ..opencl.single_flight import SingleFlight
from ..problem.gemm import GemmProblem
from ..version import __version__
from . import isolation, worker
from .checked_results import wrong_check, wrong_sums
from .lists import in_short
from .small_problems import first_wrong_result, wrong_copy

_log = logging.getLogger(__name__)

_SCHEMA = 7
_LONGEST = 300  # characters of a reason
_UNIX_TIME = fields.number(0, 1e11)
_CHECKS = {"reason": fields.optional(fields.text(_LONGEST)), "timed_out": fields.optional(_UNIX_TIME)}
_DAY = 86_400.0  # seconds
_now = time.time


@dataclass(frozen=True)
class _Verdict:
    """Why a kernel must not be used, or None. *timed_out*: when a time limit led to it, in Unix time."""

    reason: str | None
    timed_out: float | None = None

    def holds(self) -> bool:
        return self.timed_out is None or 0 <= _now() - self.timed_out < _DAY


_Find = Callable[[Any], str | None]
_verdicts: SingleFlight[str, _Verdict] = SingleFlight()
_run_here: set[str] = set()  # digests of checks that this process has run
_runs: ContextVar[bool] = ContextVar("_runs", default=False)


def verdict(queue: Any, problem: GemmProblem, kernel: Kernel, config: TileConfig, work: Work) -> str | None:
    """Why *kernel* must not compute *problem* by *work* on this device; None if its results are right."""
    return _reason(_KernelCheck(queue, problem, kernel, config, work))


def require_right_checks(queue: Any, problem: GemmProblem) -> None:
    """Raise UnsupportedError if the programs that check results of *problem* are wrong here, or rejected."""
    work, small = verified(problem, Work(()), info_of(queue)), in_short(problem)
    _require(_CheckOfChecks(queue, "verify", work, lambda own: wrong_check(own, small, work)))


def require_right_sums(queue: Any) -> None:
    """The same for the program that adds up what a device sends to the host."""
    work = Work((transfer_sums(0, info_of(queue)),))
    _require(_CheckOfChecks(queue, "verify", work, wrong_sums))


def _require(check: _CheckOfChecks) -> None:
    cause = None
    try:
        reason = _reason(check)
    except BuildError as error:
        reason, cause = f"it {error.complaint}", error
    if reason is not None:
        raise UnsupportedError(
            f"verify: the driver of {check.device.name!r} computes the check itself wrongly: {reason}. Right "
            "results would be called wrong, or wrong ones right. Pass verify=False, or use another driver or "
            "device, and please report this message"
        ) from cause


def _reason(check: _SelfCheck) -> str | None:
    """What *check* has against its programs."""
    must_run = _runs.get() and check.digest not in _run_here
    if environment.SELFCHECK.is_off:
        if must_run:
            check.own_result()
        return None
    if must_run:
        check.forget()
    found = _verdicts.get(check.digest, check.kept_or_new)
    if not found.holds():
        check.forget()
        found = _verdicts.get(check.digest, check.kept_or_new)
    return found.reason


@contextlib.contextmanager
def run_all() -> Iterator[None]:
    """Inside the block every check is run if this process has not run it, though a right verdict is kept.
    Then each program has run once. Some drivers compile a kernel only when it is launched.
    """
    before = _runs.set(True)
    try:
        yield
    finally:
        _runs.reset(before)


def _prepare() -> None:
    """Start a child for the trial that will come if no check has ever run here."""
    if environment.SELFCHECK.is_off or environment.TRIAL.is_off:
        return
    try:
        has_run = any(store.folder("selfcheck").iterdir())
    except OSError:
        has_run = False
    if not has_run:
        worker.start_waiting()


queues.meanwhile(_prepare)


def copies_verdict(queue: Any, programs: Iterable[Program]) -> str | None:
    """What is wrong on this device with the first wrong one of *programs*, which copy operands, or None. A
    process runs each once. The verdict is kept nowhere else: the check takes a millisecond.
    """
    if environment.SELFCHECK.is_off:
        return None
    device, launcher = info_of(queue), launcher_of(queue)
    avoid_the_deadly(device, programs)

    def new(program: Program) -> _Verdict:
        return _Verdict(wrong_copy(launcher.queue_of_its_own(queue), program))

    for program in programs:
        digest = store.digest_of((str(device.identity), launcher.way, source_hash(program)))
        found = _verdicts.get(digest, functools.partial(new, program))
        if found.reason is not None:
            return found.reason
    return None


def avoid_the_deadly(device: DeviceInfo, programs: Iterable[Program]) -> None:
    """Take a detour if a process died while one of *programs*, which no trial runs, was in doubt."""
    digests = {source_hash(program) for program in programs}
    if crash_marks.of_the_dead(device, digests):
        _go_round(device, "a copy of an operand")
        crash_marks.forget_the_dead(device, digests)


def _go_round(device: DeviceInfo, what: str) -> None:
    crash_marks.warn(device, f"a process ended while it built or first ran {what}")
    crash_marks.take_detour(device, crash_marks.detour(device) + 1, keep=True)


class _SelfCheck(ABC):
    """The self-check of the programs of *work* on the device of a queue. *name*: of whose they are. *find*:
    what is wrong with them on a queue, or None.
    """

    is_risky = False  # whether a child process tries the programs first
    has_trials = False  # whether one tries them if a process died with them

    def __init__(self, queue: Any, name: str, work: Work, find: _Find) -> None:
        self.queue, self.device = queue, info_of(queue)
        self.name, self.work, self.find = name, work, find
        self.way = launcher_of(queue).way
        self.digest = _digest(self.device, work, self.way)

    @abstractmethod
    def new(self, tried_first: bool, apart: bool) -> _Verdict:
        """A new verdict. *tried_first*: a child process tries the programs first, one of its own with
        *apart*.
        """

    def forget(self) -> None:
        """Forget the verdict that this process has."""
        _verdicts.forget(lambda digest: digest == self.digest)

    def kept_or_new(self) -> _Verdict:
        """The verdict that is kept on disk, or a new one if none holds or a process died since."""
        device = self.device
        kept = self._kept()
        programs = {source_hash(launch.program) for launch in self.work.launches}
        dead = crash_marks.of_the_dead(device, programs)
        if kept is not None and not dead:
            reason = kept.reason
            _log.debug("self-check of %s on %s, from disk: %s", self.name, device.name, reason or "right")
            run = reason is None and _runs.get()
            return self.new(tried_first=False, apart=False) if run else kept
        if dead and (environment.TRIAL.is_off or not self.has_trials):
            _go_round(device, self.name)
        new = self.new(self.is_risky or bool(dead), apart=bool(dead))
        crash_marks.forget_the_dead(device, programs)  # those of children too
        return new

    def _kept(self) -> _Verdict | None:
        """The verdict on disk, if there is one that holds."""
        record = self._file.read()
        kept = None if record is None else _Verdict(record["reason"], record["timed_out"])
        return kept if kept is not None and kept.holds() else None

    def own_result(self) -> str | None:
        """What is wrong with results in this process, or None. The check has a queue of its own.
        The caller's may be out of order, or full of commands that wait.
        """
        queue = launcher_of(self.queue).queue_of_its_own(self.queue)
        try:
            reason = _plain(self.find(queue))
            _run_here.add(self.digest)
            return reason
        except DeviceLostError as error:  # not kept on disk: the cause may not be the kernel
            lost = _plain(f"the device was lost in the self-check: {error}")
            _verdicts.put(self.digest, _Verdict(lost))
            raise

    def _keep(self, verdict: _Verdict) -> _Verdict:
        """Keep *verdict* on disk."""
        self._file.write(reason=verdict.reason, timed_out=verdict.timed_out)
        return self._note(verdict)

    @property
    def _file(self) -> store.KeptFile:
        names = {"version": __version__, "device": self.device.name, "kernel": self.name}
        return store.KeptFile("selfcheck", self.digest, _SCHEMA, {"key": self.digest, **names}, _CHECKS)

    def _note(self, verdict: _Verdict) -> _Verdict:
        _log.info("self-check of %s on %s: %s", self.name, self.device.name, verdict.reason or "right")
        return verdict


class _KernelCheck(_SelfCheck):
    """That of one kernel and configuration, for *problem*."""

    has_trials = True

    def __init__(
        self, queue: Any, problem: GemmProblem, kernel: Kernel, config: TileConfig, work: Work
    ) -> None:
        small = in_short(problem)
        super().__init__(
            queue, kernel.name, work, lambda own: first_wrong_result(own, small, kernel, config, work)
        )
        self.problem, self.kernel, self.config, self.is_risky = small, kernel, config, kernel.risky

    def new(self, tried_first: bool, apart: bool) -> _Verdict:
        """It is kept against the kernel only if a child process comes to it too."""
        first = self._opinion(tried_first, apart)
        if first.reason is None:
            return self._keep(_Verdict(None))
        if not (first.lasting and not environment.TRIAL.is_off):
            return self._note(_Verdict(first.reason))
        return self._second_opinion(first)

    def _second_opinion(self, first: isolation.TrialResult) -> _Verdict:
        """The verdict after a *first* opinion against the kernel.

        The second opinion takes a detour around the driver's caches (see crash_marks.py), except after a
        time-out, because no damaged file is known to make a driver hang. The device stays on it if that
        helped.
        """
        before = crash_marks.detour(self.device)
        past = before if first.timed_out else before + 1
        crash_marks.take_detour(self.device, past)
        second = self._trial(apart=True)
        own = self.own_result() if second.reason is None else None
        if second.reason is None and own is None:
            if past != before:
                crash_marks.take_detour(self.device, past, keep=True)
                crash_marks.warn(self.device, f"{self.name}: {first.reason}")
            return self._keep(_Verdict(None))
        crash_marks.take_detour(self.device, before)
        if second.reason is None:
            return self._note(_Verdict(own))
        verdict = _Verdict(second.reason, _now() if first.timed_out or second.timed_out else None)
        # PoCL ends the process on a full disk too, which is not the kernel's fault.
        lasting = second.lasting and pocl_fault([self.queue.device.platform]) is None
        return self._keep(verdict) if lasting else self._note(verdict)

    def _opinion(self, tried_first: bool, apart: bool) -> isolation.TrialResult:
        if tried_first and not environment.TRIAL.is_off:
            tried = self._trial(apart)
            if tried.reason is not None:
                return tried
        return isolation.TrialResult(self.own_result())

    def _trial(self, apart: bool) -> isolation.TrialResult:
        tried = isolation.trial(
            self.device, self.problem, self.kernel, self.config, self.work, self.way, apart
        )
        return replace(tried, reason=_plain(tried.reason))


class _CheckOfChecks(_SelfCheck):
    """That of programs that check results. What it finds against them is kept in the process alone, as
    nobody gives a second opinion.
    """

    def new(self, tried_first: bool, apart: bool) -> _Verdict:
        verdict = _Verdict(self.own_result())
        return self._keep(verdict) if verdict.reason is None else self._note(verdict)


def _digest(device: DeviceInfo, work: Work, way: str) -> str:
    """A digest of everything that a verdict depends on, work-group sizes and the *way* of launching too."""
    texts = [str(_SCHEMA), __version__, _code(), *device.identity.values(), device.platform_version]
    texts += [environment.BUILD_OPTIONS.value, way]
    # Once each: the number of equal launches follows from the size of the product.
    texts += dict.fromkeys(f"{source_hash(x.program)} {x.kernel} {x.local_size}" for x in work.launches)
    return store.digest_of(texts)


@functools.cache
def _code() -> str:
    """A digest of the checks' own code: what others found says nothing of these."""
    own = sorted(resources.files(__package__).iterdir(), key=lambda file: file.name)
    return store.digest_of(x.read_text("utf-8") for x in own if x.name.endswith((".py", ".json")))


def _plain(reason: str | None) -> str | None:
    """*reason* as one line of printable ASCII, which is how a verdict is kept."""
    return None if reason is None else re.sub(r"[^ -~]+", " ", reason)[:_LONGEST]
