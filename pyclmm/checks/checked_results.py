"""Checks the programs that check results (cl/verify/): right results must pass, a wrong element be named.

They run on small products without the product's own launches: the host computes what they check.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..kernels.device import DeviceInfo
from ..kernels.interface import Program, Work
from ..kernels.launches import complete
from ..kernels.verification import SUMS, allowed, elements_of_a_pass, sum_of, transfer_sums, verified
from ..opencl.launcher import info_of, launcher_of
from ..opencl.steps import scalars_of
from ..opencl.watch import Words, named
from ..problem.dtypes import dtype_of
from ..problem.gemm import Gemm, GemmProblem
from .drawn import Drawn
from .known_answers import FILL, Case, computed, drawn_case, expected, quietly
from .layouts import Array, Decks, Placed, placed, resized

_ROWS, _SHORT = 5, 64
_PARTS_OF_A_PASS = (7, 8)  # elements behind whole ones: programs may depend on what divides K
_OFF = 4  # limits of its row by which an element is off: more than 2 are noticed with any signs


@quietly
def wrong_check(queue: Any, problem: GemmProblem, wanted: Work) -> str | None:
    """Run the programs of *wanted*, which check results of *problem*, on right and on wrong ones. Returns
    what is wrong with them, or None.
    """
    device, missing = info_of(queue), programs_of(wanted)
    decks = Decks(np.random.default_rng(0))
    for small, work in cases(problem, device, programs_of(wanted)):
        reason = _wrong_verdict(queue, small, work, device, decks)
        if reason is not None:
            return f"{reason} ({small})"
        missing -= programs_of(work)
    return "no small product runs all of its programs" if missing else None


def cases(
    problem: GemmProblem, device: DeviceInfo, wanted: set[Program]
) -> Iterator[tuple[GemmProblem, Work]]:
    """Small problems, and what checks their results by *wanted* programs alone, until all of these have run.
    N, then K, has two whole passes of a work-group and a part of one.
    """
    missing, whole = set(wanted), 2 * elements_of_a_pass(problem, device)
    for part in _PARTS_OF_A_PASS:
        for n, k in dict.fromkeys(itertools.permutations((whole + part, _SHORT + part))) if missing else ():
            small = resized(problem, _ROWS, n, k)
            work = verified(small, Work(()), device)
            if programs_of(work) <= wanted:
                missing -= programs_of(work)
                yield small, work


def programs_of(work: Work) -> set[Program]:
    """The programs of *work*."""
    return {launch.program for launch in work.launches}


@quietly
def wrong_sums(queue: Any) -> str | None:
    """What is wrong with the program that adds up what a device sends, or None."""
    device, rng = info_of(queue), np.random.default_rng(0)
    data = Placed.of((8 * SUMS + 3,), (1,), "uint8", 3, 255)
    data.view[...] = rng.integers(0, 256, data.view.shape)
    sums = Placed.of((SUMS,), (1,), "uint32", 0, 0)
    sums.memory[...] = FILL
    work = Work((transfer_sums(data.view.nbytes, device).renamed({"sums": "out"}),))
    got, _ = computed(queue, device, work, {"data": data, "out": sums})
    is_right = int(np.add.reduce(got, dtype=np.uint32)) == sum_of(data.view)
    return None if is_right else "a part of a result that has arrived is called damaged"


def _wrong_verdict(
    queue: Any, small: GemmProblem, work: Work, device: DeviceInfo, decks: Decks
) -> str | None:
    """What is wrong with what *work* says of results of *small*, or None."""
    said = partial(_said, queue, work, device, decks)
    is_float = small.sums.significand > 0
    case = drawn_case(small, decks, Drawn.REALS)
    result, scale = expected(case)
    if said(case, result) is not None:
        return "a right result is called wrong"
    at = tuple(int(decks.rng.integers(length)) for length in (_ROWS, small.n))
    index = (*(0 for _ in result.shape[:-2]), *at)
    factor, rest = allowed(small, device)
    result[index] += _OFF * (factor * np.sum(np.asarray(scale)[index[:-1]]) + rest) if is_float else 1
    words = said(case, result)
    if words is None:
        return "a wrong element is not noticed"
    columns, rows, _ = named(words)
    if (rows, columns) != tuple((x, x + 1) for x in at):
        return "another element than the wrong one is named"
    if is_float:  # with an alpha of 1, as nothing is said where limits overflow
        case = replace(drawn_case(small, decks, Drawn.EXTREMES), alpha=1.0)
        if said(case, expected(case)[0]) is not None:
            return "a right result with NaN and infinity is called wrong"
    return None


def _said(
    queue: Any, work: Work, device: DeviceInfo, decks: Decks, case: Case, result: Array
) -> Words | None:
    """What *work* says of a *result* of *case* that is wrong; None of one that is not."""
    p, launcher = case.problem, launcher_of(queue)
    out = placed(p, "out", 1, 0)
    out.view[...] = result.astype(out.view.dtype)
    operands = {**case.operands, "out": out}
    memory = {name: operand.memory for name, operand in operands.items()}
    offsets = {name: operand.offset for name, operand in operands.items()}
    whole = complete(Gemm(p, (p.m, p.n), dtype_of(p.out_type)), work, device)
    scalars = scalars_of(case.alpha, case.beta, offsets)
    watch: Any = launcher.compute(queue, device, whole, memory, scalars, decks.kernel)
    said: list[Words] = []
    watch.on_alarm = lambda: said.append(watch.taken())
    watch.finish()
    return said[0] if said else None
