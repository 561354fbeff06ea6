"""Weights in the order of fragments for kernels that read rows: a launch puts them in rows. Pure data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..formats import in_rows
from ..problem.dtypes import ELEMENTS
from ..problem.gemm import GemmProblem
from .interface import Arg, Launch, Program, Work, Workspace, round_up
from .weights import format_of, matrices_of

_ITEMS = 64  # of a work-group, each with 16 bytes


def moved(problem: GemmProblem) -> int:
    """Bytes that the launch reads and writes; 0 if there is none."""
    form = format_of(problem)
    return 0 if form.order == "rows" else 2 * matrices_of(problem) * problem.n * form.row_nbytes(problem.k)


def with_rows(problem: GemmProblem, of_rows: Callable[[GemmProblem], Work]) -> Work:
    """The launches that *of_rows* makes for weights in rows, behind one that writes such rows if the
    problem's weights lie in another order.
    """
    if not problem.b_format or format_of(problem).order == "rows":
        return of_rows(problem)
    nbytes, matrices = format_of(problem).row_nbytes(problem.k), matrices_of(problem)
    ragged = problem.ragged and replace(problem.ragged, stride=problem.n * nbytes)
    work = of_rows(replace(problem, b_format=in_rows(format_of(problem)).name, ldb=nbytes, ragged=ragged))
    space = Workspace("rows_of_blocks", max(1, matrices * problem.n * nbytes))
    names: dict[Arg, Arg] = {"b": space.symbol, "b_offset": np.int64(0)}
    launches = tuple(launch.renamed(names) for launch in work.launches)
    return replace(
        work, launches=(_rows(problem, space, matrices), *launches), workspace=(space, *work.workspace)
    )


def _rows(problem: GemmProblem, space: Workspace, matrices: int) -> Launch:
    """The launch of cl/quantized/rows_of_blocks.cl."""
    form, apart = format_of(problem), problem.ragged.stride if problem.ragged else 0
    count = problem.k * form.bits // 128 + problem.k // form.group_size
    defines = (
        *(("BITS", form.bits), ("GROUP_SIZE", form.group_size)),
        ("SCALE_BYTES", ELEMENTS[form.dtype].nbytes),
    )
    args = (np.int32(problem.n), np.int32(problem.k), "b", "b_offset", np.int64(apart), space.symbol)
    size = (round_up(max(1, count), _ITEMS), max(1, problem.n), max(1, matrices))
    program = Program("quantized/rows_of_blocks.cl", defines)
    return Launch(
        program,
        "rows_of_blocks",
        size,
        (_ITEMS, 1, 1),
        (*args, np.int64(form.row_nbytes(problem.k))),
        packs="b",
    )
