"""`wgmma_fragments`: few rows of 16-bit floats by affine weights of 4 or 8 bits in the order of fragments, on
matrix units of NVIDIA's sm_90a. Its estimate was fitted on an H200 (docs/quantised_kernels.md).
"""

from __future__ import annotations

from math import ceil

from ...problem.dtypes import ELEMENTS
from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..interface import round_up
from ..weights import format_of
from .held_weights import Costs, HeldWeights, staged_bytes
from .quantized_units import DEPTH

_FEEDER = 32  # work-items that start copies


class WgmmaFragments(HeldWeights):
    """See cl/nvidia/wgmma_fragments.cl."""

    name = "wgmma_fragments"
    summary = "few rows by affine weights in the order of fragments on matrix units of sm_90a (wgmma)"
    order = "fragments"
    tiles = (
        *((64, 4, 4, 1), (64, 4, 3, 1), (64, 4, 2, 1), (64, 2, 3, 1), (64, 4, 4, 0), (64, 3, 4, 0)),
        *((64, 2, 5, 0), (64, 2, 4, 0), (64, 2, 3, 0), (128, 2, 4, 0), (128, 1, 4, 0)),
    )
    costs = Costs(2.2, 3.8, 7.0, 0.76, 1.3, 1.77, 29.5, (0.24, 0.04), 21.7)

    def items(self, config: TileConfig) -> int:
        return super().items(config) + _FEEDER

    def k_range(self, problem: GemmProblem, ranges: int) -> int:
        form = format_of(problem)
        pairs = 8 // ELEMENTS[form.dtype].nbytes  # a column's of a scale and a bias, in 16 bytes
        return round_up(ceil(problem.k / ranges), max(DEPTH, pairs * form.group_size))

    def local_bytes(self, problem: GemmProblem, config: TileConfig) -> int:
        c, form = config, format_of(problem)
        groups = c.option("steps", 0) * c.bk // form.group_size + 1
        return staged_bytes(problem, c, c.bn * 2 * groups * ELEMENTS[form.dtype].nbytes) + 8
