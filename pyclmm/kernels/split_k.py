"""split-K on GPUs: partial sums of a tile in workspace, and the launch that adds them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..problem.gemm import GemmProblem
from .interface import Launch, gemm_args, gemm_program, local_range, ndrange

GROUP = 8  # rows of tiles that are walked together


@dataclass(frozen=True)
class Part:
    """Tiles ``first`` to ``first + tiles``, computed by one launch with K in ``shares``."""

    first: int
    tiles: int
    shares: int = 1


def reduction(problem: GemmProblem, bm: int, bn: int, part: Part, partial: str) -> Launch:
    """Adds the shares of *part*'s BM x BN tiles, in order, and finishes them."""
    defines = [("BM", bm), ("BN", bn), ("GROUP", GROUP)]
    return Launch(
        gemm_program(problem, "split_k.cl", defines),
        "reduce_shares",
        ndrange(problem, bn * part.tiles, bm),
        local_range(problem, math.gcd(bn, 64), 1),
        (*gemm_args(problem), np.int32(part.first), np.int32(part.shares), partial),
    )
