"""Checks the programs of a large product on small problems.

The small problems run the same programs as the product, on operands from known_answers.py. Products of small
integers must be exact, products of random numbers must be within the error bound, and the memory around the
result must not change. Reproducible problems must also have the bits that the host computes (chains.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyopencl as cl

from ..kernels import Kernel, Program, Work
from ..kernels.config import TileConfig
from ..kernels.device import DeviceInfo
from ..opencl.devices import device_info
from ..problem.gemm import GemmProblem
from .known_answers import outcome, resized, wrong_bits

_LARGEST = 300  # M and N of the check: a few work-groups of any tile, and the edges
_LONGEST_STEP = 64  # BK of the check: K takes time, and all blocks of K are alike
_ALWAYS = 6  # small problems that always run; more run only until every program has run
_CAPS = (160, 1200, 5000, 40000)  # of M, N and K, if programs depend on sizes
_CHAINED_CAPS = ((24, 24, 96), (1, 24, 96), (24, 1, 96), (160, 160, 8))
# "tiny": products and sums are subnormal; "ties": many sums lie halfway between two numbers
_CHAINED_DATA = ("normal", "tiny", "ties")
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
    if missing:
        return "no small problem runs all of its programs, so it cannot be checked"
    return _first_wrong_bits(queue, problem, kernel, config, wanted) if problem.reproducible else None


def _first_wrong_bits(
    queue: cl.CommandQueue, problem: GemmProblem, kernel: Kernel, config: TileConfig, wanted: Work
) -> str | None:
    """What is wrong with the bits of the first small problem that has not the host's, or None."""
    device, programs = device_info(queue.device), _programs(wanted)
    missing = set(programs)
    for small in _chained_problems(problem, config):
        if kernel.supports(small, device) is not None or kernel.violations(small, config, device):
            continue
        work = kernel.launches(small, config, device)
        if _programs(work) <= programs:
            for data in _CHAINED_DATA:
                reason = wrong_bits(queue, small, work, device, data)
                if reason is not None:
                    return f"not reproducible in the self-check, {small}: {reason}"
            missing -= _programs(work)
    return "no small problem runs all of its programs, so its bits cannot be checked" if missing else None


def _chained_problems(problem: GemmProblem, config: TileConfig) -> Iterator[GemmProblem]:
    """*problem* with sizes that the host computes in milliseconds. One has more steps than a block of K.

    Lengths are multiples of 8, as programs may depend on that, or odd.
    """
    own = (problem.m, problem.n, problem.k)
    longest = min(config.bk, _LONGEST_STEP)
    sizes = [(24, 16, 2 * longest), (19, 13, 2 * longest + 1), (8, 8, config.bk + 64), (3, 5, config.bk + 67)]
    sizes += [(min(own[0], m), min(own[1], n), min(own[2], k)) for m, n, k in _CHAINED_CAPS]
    for m, n, k in dict.fromkeys(sizes):
        yield resized(problem, m, n, k if problem.k else 0)


def _programs(work: Work) -> set[Program]:
    return {launch.program for launch in work.launches}


def _cases(
    problem: GemmProblem, kernel: Kernel, config: TileConfig, device: DeviceInfo, wanted: set[Program]
) -> Iterator[tuple[GemmProblem, Work]]:
    """Small problems that run only *wanted* programs, until every one of these has run."""
    missing = set(wanted)
    if kernel.tiles_in_turn:
        alone = replace(device, compute_units=1)
        small = _several_tiles(problem, config)
        if kernel.supports(small, alone) is None and not kernel.violations(small, config, alone):
            work = kernel.launches(small, config, alone)
            if _programs(work) <= wanted:
                yield small, work
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


def _several_tiles(problem: GemmProblem, config: TileConfig) -> GemmProblem:
    """*problem* with a size that gives a lone work-group a whole tile, then one at an edge.

    K has as many blocks as an end of a tile needs that overlaps the next one (cl/nvidia/wgmma_drain.h).
    """
    tile = (config.bn, config.bm) if config.option("swapped") else (config.bm, config.bn)
    return resized(problem, tile[0], tile[1] + 16, 8 * config.bk + 1 if problem.k else 0)


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
