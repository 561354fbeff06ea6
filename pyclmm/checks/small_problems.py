"""Checks the programs of a large product on small problems.

The small problems run the same programs as the product, on operands from known_answers.py. Products of small
integers must be exact, products of random numbers must be within the error bound, and the memory around the
result must not change.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pyopencl as cl

from ..kernels import Kernel, Program, Work
from ..kernels.config import TileConfig
from ..kernels.device import DeviceInfo
from ..opencl.devices import device_info
from ..problem.gemm import GemmProblem
from .known_answers import outcome, resized

_LARGEST = 300  # M and N of the check: a few work-groups of any tile, and the edges
_LONGEST_STEP = 64  # BK of the check: K takes time, and all blocks of K are alike
_ALWAYS = 6  # small problems that always run; more run only until every program has run
_CAPS = (160, 1200, 5000, 40000)  # of M, N and K, if programs depend on sizes
_MAX_ELEMENTS, _MAX_WORK = 1 << 25, 1 << 28

# (whether the data are small integers, the `spread` of known_answers.outcome). Kernels that split operands
# take another path on spread data, and a third path if the data are large too.
_DATA: dict[str, tuple[tuple[bool, int | None], ...]] = {
    "highest": ((True, None), (False, None)),
    "high": ((True, None), (False, None), (False, 0), (False, 50)),
}


def first_wrong_result(
    queue: cl.CommandQueue, problem: GemmProblem, kernel: Kernel, config: TileConfig, wanted: Work
) -> str | None:
    """Run small problems with the programs of *wanted*, the launches of *problem*.

    Returns what is wrong with the first wrong result, or None.
    """
    device = device_info(queue.device)
    rng = np.random.default_rng(20)
    missing = _programs(wanted)
    for small, work in _cases(problem, kernel, config, device, _programs(wanted)):
        for exact, spread in _DATA.get(problem.precision, _DATA["highest"]):
            reason = outcome(queue, small, work, device, rng, exact, spread).reason
            if reason is not None:
                return f"wrong result in the self-check, {small}: {reason}"
        missing -= _programs(work)
    return "no small problem runs all of its programs, so it cannot be checked" if missing else None


def _programs(work: Work) -> set[Program]:
    return {launch.program for launch in work.launches}


def _cases(
    problem: GemmProblem, kernel: Kernel, config: TileConfig, device: DeviceInfo, wanted: set[Program]
) -> Iterator[tuple[GemmProblem, Work]]:
    """Small problems that run only *wanted* programs, until every one of these has run."""
    missing = set(wanted)
    for number, small in enumerate(_small_problems(problem, config)):
        if number >= _ALWAYS and not missing:
            return
        for variant in kernel.checked_as(config):
            if kernel.supports(small, device) is not None or kernel.violations(small, variant, device):
                continue
            work = kernel.launches(small, variant, device)
            if _programs(work) <= wanted:  # other programs are for other sizes and will not be used
                missing -= _programs(work)
                yield small, work


def _small_problems(problem: GemmProblem, config: TileConfig) -> Iterator[GemmProblem]:
    """*problem* with other sizes: a few elements more than a tile, whole tiles, and tiny ones.

    Larger ones follow, for kernels whose programs depend on sizes.
    """
    bm, bn = (min(size, _LARGEST // 2) for size in (config.bm, config.bn))
    bk = min(config.bk, _LONGEST_STEP)
    sizes = [(bm + 3, bn + 5, 2 * bk + 1), (bm, bn, 2 * bk), (2 * bm, 2 * bn, 4 * bk), (3, 2, 5), (1, 1, 1)]
    for m, n, k in sizes:
        yield resized(problem, m, n, k if problem.k else 0)
    own = (problem.m, problem.n, problem.k)
    near = {tuple(map(min, own, caps)) for caps in itertools.product(_CAPS, repeat=3)}
    for m, n, k in sorted(near, key=lambda size: (size[0] * size[1] * (size[2] + 1), size)):
        if max(m * n, m * k, k * n) <= _MAX_ELEMENTS and m * n * k <= _MAX_WORK:
            yield resized(problem, m, n, k)
