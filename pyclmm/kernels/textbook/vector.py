"""`vector`: `block` with OpenCL vectors."""

from __future__ import annotations

from ...problem.dtypes import COMPLEX
from ...problem.gemm import GemmProblem
from ..accepts import EPILOGUE, Accepts
from ..config import TileConfig
from ..device import DeviceInfo
from .blocks import Blocks

_LANES = (2, 4, 8, 16)  # OpenCL's vectors with vloadn; those of 3 would not divide a tile


class Vector(Blocks):
    """See cl/textbook/vector.cl. TN is the width of its vectors."""

    name = "vector"
    summary = "block with OpenCL vectors: loads, stores and multiply-adds of TN elements"
    accepts = Accepts(fields=EPILOGUE)  # a compiler may fuse multiply-adds of vectors, or not
    tiles = (
        TileConfig(bm=64, bn=64, bk=16, tm=4, tn=4),
        TileConfig(bm=4, bn=4, bk=4, tm=2, tn=2),
    )

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if problem.acc_type in COMPLEX:
            return "OpenCL has no vectors of complex numbers"
        return super().obstacle(problem, device)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        if config.tn not in _LANES:
            return [f"tn is the width of OpenCL's vectors, {', '.join(map(str, _LANES))}: {config}"]
        return super().violations(problem, config, device)
