"""The launches of a checked call in order: copies of operands, the product, the copy to out. Pure data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..problem.dtypes import COMPLEX, ELEMENTS, dtype_of, narrows
from ..problem.gemm import ACTIVATIONS, Copy, Gemm
from .device import DeviceInfo
from .interface import Arg, Launch, Program, Table, Work, Workspace, round_up

COPY = "copy.cl"
# Of a copy's work-group at most. A GPU starts a work-group in 0.6 ns (H200), as it moves 3 KB
_COPY_ITEMS = 256
_START = np.int64(0)  # the offset of a temporary


def complete(gemm: Gemm, product: Work, device: DeviceInfo) -> Work:
    """*product*, the launches of gemm's problem, with the batch offsets and the copies around it."""
    problem, soft = gemm.problem, gemm.problem.soft_float64
    renamed: dict[Arg, Arg] = {}
    before: list[Launch] = []
    after: list[Launch] = []
    copies: list[Workspace] = []
    tables = {"batch_offsets": batch_table(problem.batch_shape, problem.batch_strides)}
    results = () if gemm.out_copy is None else (("out", gemm.out_copy),)
    for name, copy in (*gemm.copies, *results):
        if name in gemm.unread:
            continue
        element = copy.source_type if name == "out" else copy.target_type
        space = Workspace(f"copy_{name}", copy.elements * dtype_of(element).itemsize, copy_of=name)
        copies.append(space)
        offsets = f"copy_offsets_{name}"
        tables[offsets] = batch_table(copy.shape[:-2], (copy.source_strides[:-2], copy.target_strides[:-2]))
        own, temporary = (name, f"{name}_offset"), (space.symbol, _START)
        if name == "out":
            after.append(copy_launch(copy, temporary, own, offsets, device, soft))
        else:
            before.append(replace(copy_launch(copy, own, temporary, offsets, device, soft), packs=name))
        renamed |= dict(zip(own, temporary, strict=True))
    between = product.launches
    if renamed:
        between = tuple(x.renamed(renamed) for x in between)
    # Copies come first: if they alone have no room, no kernel has.
    return Work((*before, *between, *after), (*copies, *product.workspace), {**tables, **product.tables})


def batch_table(shape: tuple[int, ...], strides: Sequence[tuple[int, ...]]) -> Table:
    """Batch offsets in elements: a row for each product of the stack, a column for each array."""
    columns = []
    for steps in strides:
        offsets = np.zeros(1, np.int64)
        for length, step in zip(shape, steps, strict=True):
            offsets = np.add.outer(offsets, np.arange(length, dtype=np.int64) * step).reshape(-1)
        columns.append(offsets)
    return np.array(columns).T.copy()


def copy_launch(
    copy: Copy,
    source: tuple[Arg, Arg],
    target: tuple[Arg, Arg],
    batch_offsets: Arg,
    device: DeviceInfo,
    soft: bool = False,
    activation: str = "none",
) -> Launch:
    """The launch of *copy*; *source* and *target* are (buffer, offset) arguments. *soft*: the device has no
    float64, which can be copied but not converted. *activation* of what is copied.
    """
    rows, cols = copy.shape[-2:]
    its, own = copy.source_type, copy.target_type
    defines = (
        ("A_TYPE", its), ("B_TYPE", its), ("C_TYPE", its), ("BIAS_TYPE", its), ("OUT_TYPE", own),
        ("ACC_TYPE", intermediate_type(its, own)), ("CONJ_A", 0), ("CONJ_B", 0),
        ("REPRODUCIBLE", 0),  # of what is copied nothing is added
        ("SOFT_FLOAT64", int(soft)), ("DOT_BYTES", 0), ("ACTIVATION", ACTIVATIONS.index(activation)),
    )  # fmt: skip
    batch = copy.elements // max(1, rows * cols)
    group = _copy_group(rows, cols, device.group_items(_COPY_ITEMS))
    size = (round_up(cols, group[0]), round_up(rows, group[1]), batch)
    from_strides, to_strides = (map(np.int64, x[-2:]) for x in (copy.source_strides, copy.target_strides))
    args = (np.int32(rows), np.int32(cols), *source, *from_strides, *target, *to_strides, batch_offsets)
    return Launch(Program(COPY, defines), "copy_strided", size, group, args)


def _copy_group(rows: int, cols: int, items: int) -> tuple[int, int, int]:
    """A work-group as wide as the matrix, if that has few columns, and as high as work-items are left."""
    width = min(items, 1 << max(0, cols - 1).bit_length())
    return width, min(items // width, 1 << max(0, rows - 1).bit_length()), 1


def intermediate_type(source: str, target: str) -> str:
    """A type through which a conversion from *source* to *target* is exact until its last rounding. For a
    target of a lesser kind it is the source's own: cl/copy.cl drops what the target cannot hold.
    """
    if narrows(source, target):
        return ELEMENTS[source].accumulator
    if target in COMPLEX:
        return target
    if "float64" in (source, target):
        return "float64"
    if ELEMENTS[target].accumulator == "float32":
        return "float32"
    return "uint64"  # integers: sign-extended, then truncated to the target's width
