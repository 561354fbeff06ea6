"""PathOnDevice: what the ways of arrays that are on a device already, OpenCL's or CUDA's, have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..opencl.steps import Scales
from ..problem.dtypes import check_scalars
from ..problem.gemm import Operand
from .execute import Executable
from .operands import checked, problem_name, read_operands
from .options import Options


class PathOnDevice:
    """One planned product of operands with these *layouts*, which are read and written where they lie.
    *overlaps*: whether ``out`` overlaps an operand that writing it would change."""

    def __init__(
        self, layouts: Mapping[str, Operand], overlaps: bool, options: Options, queue: Any, scales: Scales
    ) -> None:
        self._overlaps = overlaps
        gemm = checked(layouts, options, scales, out_is_copied=overlaps)
        check_scalars(gemm.dtype, scales)
        self.executable = Executable(queue, gemm, options)
        self._is_empty, self._warns = gemm.is_empty, gemm.warns
        # (the user's name, the problem's) of the arrays that kernels read or write, and of all
        self._arrays = [*read_operands(gemm, layouts), ("out", "out")]
        self._names = {name: problem_name(gemm, name) for name in layouts}
        # A call that warns, or has operands that no kernel reads, is always made in full.
        is_plain = not (gemm.warns or self.executable.repairs)
        self._repeats = is_plain and len(self._arrays) == len({*layouts, "out"})
