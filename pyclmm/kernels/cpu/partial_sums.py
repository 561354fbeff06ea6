"""Split-K on CPUs: partial sums in workspace, and the launch that adds them (cl/cpu/add_partial_sums.h)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...problem.gemm import GemmProblem
from ..interface import Launch, Program, Workspace, gemm_args, local_range


@dataclass(frozen=True)
class PartialSums:
    """Partial sums: for each of ``split_k`` ranges of K, ``pieces`` pieces of a result, each ``nbytes``."""

    problem: GemmProblem
    split_k: int
    pieces: int
    nbytes: int

    @property
    def workspace(self) -> Workspace:
        return Workspace("partial", self.problem.batch * self.split_k * self.pieces * self.nbytes)

    def added(self, program: Program, span: int = 1) -> Launch:
        """The launch that adds the partial sums, *span* pieces in each work-group."""
        stack = (1, self.problem.batch) if self.problem.batch_shape else (1,)
        sizes = (np.int32(self.split_k), np.int32(self.pieces), np.int32(span))
        return Launch(
            program,
            "add_partial_sums",
            (-(-self.pieces // span), *stack),
            local_range(self.problem, 1, 1),
            (*gemm_args(self.problem), *sizes, self.workspace.symbol),
        )
