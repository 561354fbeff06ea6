"""Weights in the order of fragments for kernels that read rows: a launch puts them in rows. Pure data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from ..formats import in_rows
from ..problem.dtypes import ELEMENTS
from ..problem.gemm import GemmProblem
from .device import DeviceInfo
from .interface import Arg, Launch, Program, Workspace, round_up
from .weights import format_of, matrices_of

_ITEMS = 64  # of a work-group, at most, each with 16 bytes


def moved(problem: GemmProblem, device: DeviceInfo) -> int:
    """Bytes that the launch reads and writes; 0 if there is none."""
    return 2 * sum(space.nbytes for space in InRows.of(problem, device).workspace)


@dataclass(frozen=True)
class InRows:
    """A ``problem`` whose weights lie in rows, and what writes them: ``launches``, in ``workspace``. Launches
    of the problem read that as :meth:`read` says.
    """

    problem: GemmProblem
    launches: tuple[Launch, ...] = ()
    workspace: tuple[Workspace, ...] = ()

    @classmethod
    def of(cls, problem: GemmProblem, device: DeviceInfo) -> InRows:
        """*problem* as it is, if its weights lie so."""
        if not problem.b_format or format_of(problem).order == "rows":
            return cls(problem)
        form, matrices = format_of(problem), matrices_of(problem)
        nbytes = form.row_nbytes(problem.k)
        ragged = problem.ragged and replace(problem.ragged, stride=problem.n * nbytes)
        plain = replace(problem, b_format=in_rows(form).name, ldb=nbytes, ragged=ragged)
        space = Workspace("rows_of_blocks", max(1, matrices * problem.n * nbytes))
        return cls(plain, (_rows(problem, space, matrices, device.group_items(_ITEMS)),), (space,))

    def read(self, launches: Iterable[Launch]) -> tuple[Launch, ...]:
        """*launches* of the problem, which read the rows that were written, if any."""
        names: dict[Arg, Arg] = {}
        if self.workspace:
            names = {"b": self.workspace[0].symbol, "b_offset": np.int64(0)}
        return tuple(launch.renamed(names) for launch in launches)


def _rows(problem: GemmProblem, space: Workspace, matrices: int, items: int) -> Launch:
    """The launch of cl/quantized/rows_of_blocks.cl."""
    form, apart = format_of(problem), problem.ragged.stride if problem.ragged else 0
    count = problem.k * form.bits // 128 + problem.k // form.group_size
    scale_bytes = ELEMENTS[form.dtype].nbytes
    defines = (("BITS", form.bits), ("GROUP_SIZE", form.group_size), ("SCALE_BYTES", scale_bytes))
    read, written = ("b", "b_offset", np.int64(apart)), (space.symbol, np.int64(form.row_nbytes(problem.k)))
    args = (np.int32(problem.n), np.int32(problem.k), *read, *written)
    size = (round_up(max(1, count), items), max(1, problem.n), max(1, matrices))
    program = Program("quantized/rows_of_blocks.cl", defines)
    return Launch(program, "rows_of_blocks", size, (items, 1, 1), args, packs="b")
