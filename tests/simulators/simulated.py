"""Products of NVIDIA's kernels without a GPU (interleaved.py), for the self-check to judge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyclmm.opencl.launcher import Launcher, launcher_of
from pyclmm.opencl.steps import converter_of
from pyclmm.problem.dtypes import dtype_of
from pyclmm.problem.gemm import GemmProblem
from tests.simulators import interleaved


@dataclass(frozen=True)
class Simulated:
    """What stands for a queue: the folder of compiled programs, and the types of arrays and scalars."""

    folder: Any
    problem: GemmProblem


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
