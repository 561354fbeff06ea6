"""Launches of the converting copy (cl/copy.cl) that comes before or after a product."""

from __future__ import annotations

import numpy as np

from .dtypes import ACCUMULATOR, COMPLEX
from .kernels.base import TYPES_H, Arg, Launch, Program, round_up
from .problem import Copy

_GROUP = 16


def copy_launch(copy: Copy, source: tuple[Arg, Arg], target: tuple[Arg, Arg], batch_offsets: Arg) -> Launch:
    """The launch that does *copy*; *source* and *target* are (buffer, offset) arguments."""
    rows, cols = copy.shape[-2:]
    program = Program(
        (TYPES_H, "copy.cl"),
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
        (round_up(cols, _GROUP), rows, batch),
        (_GROUP, 1, 1),
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
