"""Products of NVIDIA's kernels without a GPU (interleaved.py), for the self-check to judge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pyclmm.checks.drawn import Drawn
from pyclmm.checks.known_answers import outcome
from pyclmm.checks.layouts import Decks
from pyclmm.kernels.launches import batch_table
from pyclmm.opencl.launcher import Launcher, launcher_of
from pyclmm.problem.dtypes import converter_of, dtype_of
from pyclmm.problem.gemm import GemmProblem
from tests.simulators import interleaved


@dataclass(frozen=True)
class Simulated:
    """What stands for a queue: the folder of compiled programs, and the types of arrays and scalars."""

    folder: Any
    problem: GemmProblem


def arrays_of(problem, out, a, b):
    """What :func:`.interleaved.run` takes, for op(A) op(B) of *a* and *b* as they are stored."""
    scalar = dtype_of(problem.acc_type).type
    found = {"a": a, "b": b, "out": out, "c": out, "bias": out, "alpha": scalar(1), "beta": scalar(0)}
    return found | {"batch_offsets": batch_table(problem.batch_shape, problem.batch_strides)}


class _Launcher(Launcher):
    def compute(self, queue, device, work, memory, scalars, make=None):
        problem, (alpha, beta, offsets) = queue.problem, scalars
        ragged = {"group_sizes_type": problem.ragged.size_type} if problem.ragged else {}
        arrays: dict[str, Any] = dict(work.tables)
        for name, content in memory.items():
            own = ragged.get(f"{name}_type") or getattr(problem, f"{name}_type")
            arrays[name] = content[offsets.get(name, 0) * dtype_of(own).itemsize :]
        convert, scalar = converter_of(problem.acc_type), dtype_of(problem.acc_type).type
        arrays |= {"alpha": scalar(convert(alpha)), "beta": scalar(convert(beta))}
        interleaved.run(work, arrays, queue.folder)


_LAUNCHER = _Launcher()
launcher_of.register(Simulated, lambda _: _LAUNCHER)


def check(folder, family, problem, config, device, how=Drawn.INTEGERS, seed=0):
    """The self-check's judge finds nothing wrong with the product by *config*. Returns the launches."""
    assert family.refuses(problem, device) is None
    assert not family.violations(problem, config, device)
    work = family.launches(problem, config, device)
    decks = Decks(np.random.default_rng(seed))
    assert outcome(Simulated(folder, problem), problem, work, device, decks, how).reason is None
    return work.launches
