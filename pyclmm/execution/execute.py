"""Executable: a checked product with its kernel chosen, built and found right on one device.

What is written during a call (kernel objects, workspace) belongs to one thread and queue, so an
executable may be shared between threads without a lock.
"""

from __future__ import annotations

import itertools
import logging
import threading
import warnings

import pyopencl as cl

from ..checks import selfcheck
from ..errors import BuildError, KernelWarning, LaunchError, UnsupportedError, in_short
from ..kernels.device import DeviceInfo
from ..kernels.interface import Work
from ..opencl import status
from ..opencl.binding import Binding
from ..opencl.devices import device_info
from ..opencl.launches import complete
from ..problem.gemm import Gemm, GemmProblem
from ..selection import select

_log = logging.getLogger(__name__)

_BINDINGS_KEPT = 8  # queues a thread may use one executable on before workspace is given back


def _finish(queue: cl.CommandQueue, device: DeviceInfo) -> None:
    """Wait for all that is in *queue*."""
    try:
        queue.finish()
    except cl.Error as error:
        raise status.lost(device, error) from error


class Executable:
    """A checked product with its kernel built for one device and context."""

    def __init__(
        self,
        queue: cl.CommandQueue,
        gemm: Gemm,
        kernel: select.KernelChoice = "auto",
        workspace_limit: int | None = None,
    ) -> None:
        self.device = device_info(queue.device)
        self.gemm = gemm
        self.workspace_limit = workspace_limit
        self._requested = kernel
        self._bound = threading.local()
        self._falling_back = threading.Lock()
        self.failed: list[str]
        self._first = self.choice, self.work = self._choose(queue)

    @property
    def problem(self) -> GemmProblem:
        return self.gemm.problem

    def _choose(
        self, queue: cl.CommandQueue, after: select.Choice | None = None, reason: str | None = None
    ) -> tuple[select.Choice | None, Work]:
        """The first choice that builds; steps down the ladder with one warning for those that fail.

        Only those *below* one, where it was left for that *reason*.
        """
        failures = self.failed = []  # "name: reason" of each kernel that was tried and left
        if self.gemm.is_empty:
            return None, Work(())
        last: Exception | None = None
        choices = select.candidates(self.problem, self.device, self._requested)
        if after is not None:
            failures.append(f"{after.kernel.name}: {reason}")
            _log.info("%s on %s: without %s", self.problem, self.device.name, failures[-1])
            choices = itertools.islice(itertools.dropwhile(lambda choice: choice != after, choices), 1, None)
        for choice in choices:
            product = choice.kernel.launches(self.problem, choice.config, self.device)
            work = complete(self.gemm, product)
            reason = self._over_limit(work)
            try:
                if reason is None:
                    reason = selfcheck.verdict(queue, self.problem, choice.kernel, choice.config, product)
                if reason is None:
                    self._bind(queue, work)
                    if failures:
                        self._warn(failures, choice)
                    what = f"{choice.kernel.name} ({choice.config})"
                    _log.debug("%s on %s: %s", self.problem, self.device.name, what)
                    return choice, work
            except (BuildError, LaunchError) as error:
                if self._requested != "auto":
                    raise
                last, reason = error, in_short(error)
            failures.append(f"{choice.kernel.name}: {reason}")
            _log.info("%s on %s: without %s", self.problem, self.device.name, failures[-1])
        raise UnsupportedError(
            f"no kernel could be used for {self.problem} on {self.device.name!r}: {'; '.join(failures)}"
        ) from last

    def fall_back(self, left: select.Choice | None, queue: cl.CommandQueue, error: LaunchError) -> None:
        """Take the next kernel of the ladder, because the driver refused to launch the one *left* in a call.

        Raises *error* where the kernel was asked for by name, where none is left (the next call begins at
        the top again), and where what ran before it may have overwritten C.
        """
        if self._requested != "auto" or left is None or (error.begun and self.problem.has_c):
            raise error
        if error.begun:
            _finish(queue, self.device)
        with self._falling_back:
            if self.choice != left:  # another thread has stepped down
                return
            try:
                self._use(self._choose(queue, left, in_short(error)))
            except UnsupportedError:
                self._use(self._first)
                raise error from None

    def _use(self, chosen: tuple[select.Choice | None, Work]) -> None:
        """Use that from now on, in every thread. The choice last: who sees it runs it."""
        choice, self.work = chosen
        self._bound = threading.local()
        self.choice = choice

    def _warn(self, failures: list[str], choice: select.Choice) -> None:
        warnings.warn(
            f"device {self.device.name!r}: {'; '.join(failures)}; {choice.kernel.name!r} is used instead",
            KernelWarning,
            stacklevel=2,
        )

    def _over_limit(self, work: Work) -> str | None:
        limit = self.workspace_limit
        if limit is None or work.workspace_nbytes <= limit:
            return None
        return f"needs {work.workspace_nbytes} bytes of workspace, workspace_limit is {limit}"

    def binding(self, queue: cl.CommandQueue) -> Binding:
        """This thread's kernels and workspace for *queue*."""
        bindings = getattr(self._bound, "by_queue", None)
        if bindings is None:
            bindings = self._bound.by_queue = {}
        found: Binding | None = bindings.get(queue)
        return found if found is not None else self._bind(queue, self.work)

    def _bind(self, queue: cl.CommandQueue, work: Work) -> Binding:
        bindings = self._bound.__dict__.setdefault("by_queue", {})
        while len(bindings) >= _BINDINGS_KEPT:
            bindings.pop(next(iter(bindings)))
        binding = Binding(queue, self.device, work, self.gemm.unread)
        bindings[queue] = binding
        return binding

    def release(self) -> None:
        """Give back the kernels and the workspace of every thread."""
        self._bound = threading.local()
