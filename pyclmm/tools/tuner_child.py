"""The tuner's child process: checks candidates and times each in turn with the incumbent."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl

from ..checks import child, isolation
from ..checks.known_answers import operands_error
from ..checks.small_problems import first_wrong_result
from ..errors import BuildError, DeviceLostError, DeviceMemoryError, LaunchError
from ..kernels import Work, kernel_named
from ..kernels.launches import complete
from ..opencl import clock, queues
from ..opencl.binding import Binding
from ..opencl.devices import device_info
from ..opencl.steps import scalars_of
from ..problem.dtypes import dtype_of
from ..problem.gemm import Gemm, GemmProblem
from ..selection import schema
from ..selection.select import Choice
from .timing import Board, Expected, Size, Terms, random_pair
from .tuner import beats

_ROUNDS = (5, 25)  # the fewest and the most
_SECONDS = 0.3  # for the rounds of one candidate, if that is enough for the fewest rounds
_HOPELESS = 2.0  # times the incumbent's time: no further runs
_OUTCLASSED = 5.0  # times the incumbent's time: the family's other configurations are skipped too


def answers(request: Any) -> Iterator[dict[str, Any]]:
    """Answer a :mod:`pyclmm.tools.tuner`, which asks for the candidates of "order"."""
    device = isolation.device_of(request["device"])
    problem = schema.problem_from(request["problem"])
    choices = [
        Choice(kernel_named(one["kernel"]), schema.config_from(one["config"])) for one in request["choices"]
    ]
    queue = queues.new_queue(device, profiling=True)
    ring = TimedProduct(queue, problem)
    deadline = time.monotonic() + request["seconds"]
    for index in request["order"]:
        if time.monotonic() > deadline:
            return
        if choices[index].kernel.name in ring.outclassed:
            yield {"outclassed": index}
            continue
        yield {"trying": index}
        child.within(request["limit"])
        try:
            answer = ring.challenge(choices[index])
        except DeviceLostError:  # nothing runs in this process any more; the parent starts another
            raise
        except (BuildError, LaunchError, DeviceMemoryError, cl.Error) as error:
            answer = {"reason": str(error).splitlines()[0]}
        yield {"index": index} | answer


class TimedProduct:
    """One product's operands on the device, and the incumbent that challengers are timed against."""

    def __init__(self, queue: cl.CommandQueue, problem: GemmProblem) -> None:
        self.queue, self.problem, self.device = queue, problem, device_info(queue.device)
        size, dtype = Size(problem.m, problem.n, problem.k), dtype_of(problem.a_type)
        a, b = random_pair(size, dtype, layout=problem.layout)
        self.board = Board(queue, a, b, dtype_of(problem.out_type), Terms())
        self.buffers = {name: getattr(self.board, name).base_data for name in ("a", "b", "out")}
        self.check = Expected(a, b, operands_error(problem))
        self.incumbent: Binding | None = None
        self.to_beat = np.inf
        self.outclassed: set[str] = set()

    def challenge(self, choice: Choice) -> dict[str, Any]:
        """Seconds of the challenger and of the incumbent (none for the first), or a reason for no times."""
        work = choice.kernel.launches(self.problem, choice.config, self.device)
        reason = first_wrong_result(self.queue, self.problem, choice.kernel, choice.config, work)
        if reason is not None:
            return {"reason": reason}
        challenger = self._bind(work)
        self.board.spoil()
        first = self._run(challenger)
        if not self.check.ratio(self.board.read()) < self.check.limit:
            return {"reason": f"wrong result at {self.problem}"}
        if _HOPELESS * self.to_beat < first < _OUTCLASSED * self.to_beat:
            first = self._run(challenger)  # the device's clock may have been low in the first run
        if first > _OUTCLASSED * self.to_beat:
            self.outclassed.add(choice.kernel.name)
        if first > _HOPELESS * self.to_beat:
            return {"seconds": [first], "incumbent": [self.to_beat]}
        return self._race(challenger, first)

    def _race(self, challenger: Binding, first: float) -> dict[str, Any]:
        """Run both in turn. The winner becomes the incumbent."""
        rounds = int(np.clip(_SECONDS / (2 * first), *_ROUNDS))
        both = [partial(self._run, one) for one in (self.incumbent, challenger) if one is not None]
        *before, seconds = clock.in_turn(rounds, *both)
        incumbent = before[0] if before else []
        if not incumbent or beats(seconds, incumbent):
            self.incumbent, self.to_beat = challenger, statistics.median(seconds)
        else:
            self.to_beat = statistics.median(incumbent)
        return {"seconds": seconds, "incumbent": incumbent}

    def _bind(self, work: Work) -> Binding:
        gemm = Gemm(self.problem, (self.problem.m, self.problem.n), self.board.out.dtype)
        return Binding(self.queue, self.device, complete(gemm, work), gemm.unread)

    def _run(self, binding: Binding) -> float:
        """Seconds from the first launch's start to the last one's end. All wait for a user event, as gaps
        between them would favour kernels with one launch.
        """
        gate = cl.UserEvent(self.queue.context)
        try:
            events = binding.enqueue(self.buffers, scalars_of(1.0, 0.0), [gate])
            self.queue.flush()
        finally:
            wall = clock.elapsed(lambda: gate.set_status(cl.command_execution_status.COMPLETE))
        wall += clock.elapsed(self.queue.finish)
        return clock.device_seconds(events) or wall
