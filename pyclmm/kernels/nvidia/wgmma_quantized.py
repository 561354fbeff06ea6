"""`wgmma_quantized`: few rows of 16-bit floats by affine weights, on matrix units of NVIDIA's sm_90a.

The limits of its estimate are those of `mma_quantized`, measured on an H200 (docs/quantised_kernels.md).
"""

from __future__ import annotations

from ...problem.dtypes import ELEMENTS
from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..interface import round_up
from ..weights import format_of
from .held_weights import Costs, HeldWeights, staged_bytes
from .quantized_units import DEPTH


class WgmmaQuantized(HeldWeights):
    """See cl/nvidia/wgmma_quantized.cl."""

    name = "wgmma_quantized"
    summary = "few rows by affine weights on matrix units of sm_90a (wgmma)"
    tiles = (
        *((64, 4, 3, 1), (64, 4, 2, 1), (128, 2, 4, 1), (64, 2, 3, 1)),
        *((64, 4, 3, 0), (64, 2, 4, 0), (128, 2, 3, 0), (128, 1, 4, 0), (256, 1, 4, 0)),
    )
    costs = Costs(3.05, 5.2, 7.0, 0.76, 1.2, 1.3, 28.0, (0.9, 0.02), 17.5)

    def k_multiple(self, problem: GemmProblem) -> int:
        """K of which a column's scales take a multiple of four bytes, which are copied together."""
        form = format_of(problem)
        return max(DEPTH, form.group_size * 4 // ELEMENTS[form.dtype].nbytes)

    def least_stages(self, config: TileConfig) -> int:
        """A of the step before the last one lies in one more, unless A is resident."""
        return 3 - config.option("resident", 0)

    def local_bytes(self, problem: GemmProblem, config: TileConfig) -> int:
        c, form = config, format_of(problem)
        groups = round_up(c.option("steps", 0) * c.bk // form.group_size, 2)
        scales = c.bn * (2 * groups * ELEMENTS[form.dtype].nbytes + 4)
        return staged_bytes(problem, c, scales)
