"""Recipe: everything one product enqueues, in order, with its workspace and tables. Pure data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..kernels.interface import Arg, Launch, Program, Work, Workspace, round_up
from ..problem.dtypes import ACCUMULATOR, COMPLEX, dtype_of
from ..problem.gemm import Copy, Gemm

Table = np.ndarray[Any, np.dtype[np.int64]]

_COPY_GROUP = 16  # work-items of a work-group that copies


def batch_table(shape: tuple[int, ...], strides: Sequence[tuple[int, ...]]) -> Table:
    """Offsets in elements for each batch entry (rows) and operand (columns)."""
    table = np.zeros((*shape, len(strides)), np.int64)
    for column, steps in enumerate(strides):
        for axis, (length, step) in enumerate(zip(shape, steps, strict=True)):
            along = np.arange(length, dtype=np.int64) * step
            table[..., column] += along.reshape(-1, *(1,) * (len(shape) - 1 - axis))
    return table.reshape(-1, len(strides))


class Recipe:
    """The launches of a checked call in order: copies in, the product, the copy out."""

    def __init__(self, gemm: Gemm, work: Work) -> None:
        self.workspace = list(work.workspace)
        self.tables: dict[str, Table] = {"batch_offsets": np.zeros((1, 4), np.int64)}
        self.launches: list[Launch] = []
        problem = gemm.problem
        if problem.batch_shape:
            self.tables["batch_offsets"] = batch_table(problem.batch_shape, problem.batch_strides)
        renamed: dict[Arg, Arg] = {}
        for name, copy in gemm.copies:
            if name in gemm.unread:
                continue
            symbol = self._temporary(name, copy.elements * dtype_of(copy.target_type).itemsize)
            self._add_copy(name, copy, (name, f"{name}_offset"), (symbol, np.int64(0)))
            renamed |= {name: symbol, f"{name}_offset": np.int64(0)}
        if gemm.out_copy is not None:
            nbytes = gemm.out_copy.elements * dtype_of(gemm.out_copy.source_type).itemsize
            renamed |= {"out": self._temporary("out", nbytes), "out_offset": np.int64(0)}
        for launch in work.launches:
            args = tuple(renamed.get(x, x) if isinstance(x, str) else x for x in launch.args)
            self.launches.append(replace(launch, args=args))
        if gemm.out_copy is not None:
            source = (renamed["out"], renamed["out_offset"])
            self._add_copy("out", gemm.out_copy, source, ("out", "out_offset"))

    @property
    def workspace_nbytes(self) -> int:
        """Bytes of device memory beyond operands and result, offset tables included."""
        return sum(w.nbytes for w in self.workspace) + sum(t.nbytes for t in self.tables.values())

    def _temporary(self, name: str, nbytes: int) -> str:
        self.workspace.append(Workspace(f"copy_{name}", nbytes))
        return self.workspace[-1].symbol

    def _add_copy(self, name: str, copy: Copy, source: tuple[Arg, Arg], target: tuple[Arg, Arg]) -> None:
        table = f"copy_offsets_{name}"
        strides = (copy.source_strides[:-2], copy.target_strides[:-2])
        self.tables[table] = batch_table(copy.shape[:-2], strides)
        launch = copy_launch(copy, source, target, table)
        self.launches.append(launch if name == "out" else replace(launch, packs=name))


def copy_launch(copy: Copy, source: tuple[Arg, Arg], target: tuple[Arg, Arg], batch_offsets: Arg) -> Launch:
    """The launch that does *copy*; *source* and *target* are (buffer, offset) arguments."""
    rows, cols = copy.shape[-2:]
    program = Program(
        "copy.cl",
        (
            ("A_TYPE", copy.source_type),
            ("B_TYPE", copy.source_type),
            ("C_TYPE", copy.source_type),
            ("BIAS_TYPE", copy.source_type),
            ("OUT_TYPE", copy.target_type),
            ("ACC_TYPE", through(copy.source_type, copy.target_type)),
            ("CONJ_A", 0),
            ("CONJ_B", 0),
        ),
    )
    batch = copy.elements // max(1, rows * cols)
    return Launch(
        program,
        "copy_strided",
        (round_up(cols, _COPY_GROUP), rows, batch),
        (_COPY_GROUP, 1, 1),
        (
            np.int32(rows),
            np.int32(cols),
            *source,
            *(np.int64(s) for s in copy.source_strides[-2:]),
            *target,
            *(np.int64(s) for s in copy.target_strides[-2:]),
            batch_offsets,
        ),
    )


def through(source: str, target: str) -> str:
    """The accumulator type that a conversion goes through without losing anything on the way."""
    if target in COMPLEX:
        return target
    if "float64" in (source, target):
        return "float64"
    if ACCUMULATOR[target] == "float32":
        return "float32"
    return "uint64"  # integers: sign-extended, then cut to the target's width
