"""Executable: a checked product whose kernel is chosen, built and self-checked on one device.

A call writes only to objects of its own thread and queue (kernel objects, borrowed workspace), so threads can
share an executable without a lock.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pyopencl as cl

from ..checks import selfcheck
from ..errors import (
    REFUSED,
    BuildError,
    KernelWarning,
    Refused,
    UnsupportedError,
    VerificationError,
    in_short,
    warn_caller,
)
from ..kernels.device import DeviceInfo
from ..kernels.interface import Work, fitted
from ..kernels.launches import COPY, complete
from ..kernels.verification import checked_problem, seconds, verified
from ..opencl import status
from ..opencl.launcher import info_of, launcher_of
from ..opencl.queues import OwnThreadQueue, PerThread
from ..opencl.watch import own_lock
from ..problem.gemm import Gemm, GemmProblem
from ..problem.settings import REPAIR
from ..selection import select
from ..selection.explanation import Elsewhere, Explanation, explain
from . import repair
from .options import Options
from .repair import Run
from .verdicts import watch_over

T = TypeVar("T")
_log = logging.getLogger(__name__)

_BINDINGS_KEPT = 8  # bindings that a thread keeps for one executable; the oldest is dropped


def _on(device: DeviceInfo, gemm: Gemm) -> Gemm:
    """*gemm* with the arithmetic that *device* lacks: FMAs of reproducible products, and float64.

    Raises UnsupportedError if an operand or the result must be converted and float64 is missing.
    """
    for name, copy in (*gemm.copies, *([("out", gemm.out_copy)] if gemm.out_copy else [])):
        if not device.has_fp64 and copy.source_type != copy.target_type and name not in gemm.unread:
            why = device.missing_type((copy.source_type, copy.target_type))
            if why:
                types = f"from {copy.source_type} to {copy.target_type}"
                raise UnsupportedError(f"{name} must be converted {types}, but {why}; convert it on the host")
    problem = fitted(gemm.problem, device)
    return gemm if problem is gemm.problem else replace(gemm, problem=problem)


class Executable:
    """A checked product with its kernel built for one device and context."""

    def __init__(self, queue: Any, gemm: Gemm, options: Options) -> None:
        self.device = info_of(queue)
        # Where the caller's thread computes all, macro-tiles are others, the kernel and so the bits the same.
        self._runs_on = self.device.alone if isinstance(queue, OwnThreadQueue) else self.device
        self._asked = _on(self.device, gemm)
        self.verify: bool | str = options.verify
        self.gemm = self._asked
        if self.verify and not gemm.is_empty:
            self.gemm = replace(gemm, problem=checked_problem(self._asked.problem))
            selfcheck.require_right_checks(queue, self.problem)
        self._options, self._requested, self.pairs = options, options.kernel, options.pairs
        self._launcher = launcher_of(queue)
        self._packs_once = options.constant_b and self._launcher.packs_once
        self._bound: PerThread[Any] = PerThread(_BINDINGS_KEPT)
        self._falling_back = threading.RLock()
        self.failed: list[str]
        self._first = self.choice, self.work = self._choose(queue)

    @property
    def problem(self) -> GemmProblem:
        return self.gemm.problem

    def _choose(
        self, queue: Any, after: select.Choice | None = None, reason: str | None = None
    ) -> tuple[select.Choice | None, Work]:
        """The first choice that builds and passes the self-check. One warning names the kernels that failed.

        With *after*, only the choices after that one, which failed for *reason*.
        """
        failures = self.failed = []  # "name: reason" for each kernel that failed
        if self.gemm.is_empty:
            return None, Work(())
        last: Exception | None = None
        choices = select.candidates(self.problem, self.device, self._requested, has_constant=self._packs_once)
        if after is not None:
            self._skip(after, reason)
            choices = itertools.islice(itertools.dropwhile(lambda choice: choice != after, choices), 1, None)
        for choice in choices:
            # Without split_k a family divides K by compute units, and that decides the bits.
            device = self._runs_on if choice.config.split_k else self.device
            work = choice.work if device is self.device else None
            product = work or choice.kernel.launches(self.problem, choice.config, device)
            whole = product
            if self.verify:
                whole = verified(self._asked.problem, product, self.device)
            work = complete(self.gemm, whole, self.device)
            copies = {x.program for x in work.launches if x.program.source == COPY}
            try:
                reason = (
                    self._over_limit(work)
                    or selfcheck.verdict(queue, self.problem, choice.kernel, choice.config, product)
                    or (selfcheck.copies_verdict(queue, copies) if copies else None)
                )
                if reason is None:
                    self._bound.get(
                        self._launcher.home(queue), partial(self._new_binding, queue, work, choice)
                    )
                    if failures:
                        self._warn(failures, choice)
                    name, config = choice.kernel.name, choice.config
                    _log.debug("%s on %s: %s (%s)", self.problem, self.device.name, name, config)
                    return choice, work
            except (BuildError, *REFUSED) as error:
                if self._requested != "auto":
                    raise
                last, reason = error, in_short(error)
            self._skip(choice, reason)
        raise UnsupportedError(
            f"no kernel could be used for {self.problem} on {self.device.name!r}: {'; '.join(failures)}"
        ) from last

    def _skip(self, choice: select.Choice, reason: str | None) -> None:
        self.failed.append(f"{choice.kernel.name}: {reason}")
        _log.info("%s on %s: skipping %s", self.problem, self.device.name, self.failed[-1])

    def fall_back(self, rejected: select.Choice | None, queue: Any, error: Refused) -> None:
        """Use the next kernel, because a launch of choice *rejected* was refused in a call, or its workspace.

        Raises *error* if the kernel was asked for by name, if an earlier launch may have overwritten C, and
        if no kernel is left; in the last case the next call begins with the first choice again.
        """
        if self._requested != "auto" or rejected is None or (error.begun and self.problem.has_c):
            raise error
        if error.begun:
            try:
                queue.finish()
            except cl.Error as failure:
                raise status.lost(self.device, failure) from failure
        with self._falling_back:
            if self.choice != rejected:  # another thread has fallen back already
                return
            self.release()  # the next kernel may need the memory
            try:
                self._use(self._choose(queue, rejected, in_short(error)))
            except UnsupportedError:
                self._use(self._first)
                raise error from None

    def launched(self, queue: Any, launch: Callable[[], T]) -> T:
        """What *launch* gives, by the next kernel if one is refused. Raises as :meth:`fall_back` does."""
        with own_lock() if self.verify else nullcontext():
            while True:
                choice = self.choice
                try:
                    return launch()
                except REFUSED as error:
                    self.fall_back(choice, queue, error)

    def _use(self, chosen: tuple[select.Choice | None, Work]) -> None:
        """Use *chosen* in every thread. ``choice`` is set last: a thread that sees it runs ``work``."""
        choice, self.work = chosen
        self._bound.clear()
        self.choice = choice

    def _warn(self, failures: list[str], choice: select.Choice) -> None:
        warn_caller(
            f"device {self.device.name!r}: {'; '.join(failures)}; {choice.kernel.name!r} is used instead",
            KernelWarning,
        )

    def _over_limit(self, work: Work) -> str | None:
        limit = self._options.workspace_limit
        if limit is None or work.workspace_nbytes <= limit:
            return None
        return f"needs {work.workspace_nbytes} bytes of workspace, workspace_limit is {limit}"

    def binding(self, queue: Any) -> Any:
        """This thread's kernel objects for *queue*, made if there are none."""
        return self._bound.get(self._launcher.home(queue), partial(self.spare_binding, queue))

    def spare_binding(self, queue: Any) -> Any:
        """A binding that nobody keeps, for a call within a call."""
        return self._new_binding(queue, self.work, self.choice)

    def idle_binding(self, queue: Any) -> Any:
        """This thread's binding, or a spare one: a signal handler or a finalizer may run within its call."""
        found = self.binding(queue)
        return self.spare_binding(queue) if found.is_busy else found

    def latest_binding(self) -> Any:
        """The binding that this thread's last call used, if it is still there."""
        return self._bound.mine.latest

    def _new_binding(self, queue: Any, work: Work, choice: select.Choice | None) -> Any:
        keeps = self._packs_once  # what is packed must stay
        made = self._launcher.binding(queue, self.device, work, self.gemm.unread, keeps)
        if made.watch is not None and choice is not None:
            watch_over(made, self.gemm, self.device, choice.kernel.name, self.pairs)
        return made

    @property
    def check_seconds(self) -> float:
        """Estimated seconds of what ``verify=`` adds to a call."""
        return seconds(self._asked.problem, self.device) if self.verify and self.choice else 0.0

    @property
    def repairs(self) -> bool:
        """Whether a wrong result is computed again, for which a call waits."""
        return bool(self.verify == REPAIR)

    def remade(self, gemm: Gemm, kernel: str, verify: bool, queue: Any) -> Any:
        """A binding of another product of the same options, by *kernel*."""
        options = replace(self._options, kernel=kernel, verify=verify, constant_b=False)
        return Executable(queue, gemm, options).binding(queue)

    def conclude(self, binding: Any, queue: Any, run: Run, overwritten: bool) -> None:
        """Wait for a checked product of *binding*, which must be right, or become so by :mod:`.repair`.

        *overwritten*: an operand was, by the result. Raises VerificationError.
        """
        try:
            binding.watch.finish()
        except VerificationError as error:
            if not self.repairs or overwritten:
                raise
            repair.repair(self, self._asked.problem, error, queue, run)

    def explained(self, requested: select.KernelChoice, elsewhere: Elsewhere | None = None) -> Explanation:
        """Why it has its kernel."""
        return explain(
            self.problem, self.device, self.choice, requested=requested,
            launches=[launch.kernel for launch in self.work.launches],
            workspace_nbytes=self.work.workspace_nbytes, failed=self.failed,
            check_seconds=self.check_seconds, elsewhere=elsewhere, runs_on=self._runs_on,
        )  # fmt: skip

    def release(self) -> None:
        """Free the kernel objects of every thread, and workspace that no other plan shares."""
        self._bound.clear()
