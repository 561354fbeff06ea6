"""What the families for quantised weights share: what they take, programs with a format's header, launches
on CPUs, where a work-item multiplies TM rows by TN columns at a time in vectors of VEC.
"""

from __future__ import annotations

import numpy as np

from ..formats import Format, format_named
from ..problem.gemm import GemmProblem
from .accepts import Types
from .config import TileConfig
from .device import DeviceInfo
from .interface import Arg, Defines, Launch, Program, gemm_defines, gemm_launch, round_up, vector_defines

RUN = 32  # weights that a format's header gives at a time (weights32)
GROUPS_A_UNIT = 4  # work-groups for each compute unit of a CPU
TYPES = (Types(("float32", "float16", "bfloat16"), "float32", weights=True),)


def format_of(problem: GemmProblem) -> Format:
    """The format of the weights."""
    return format_named(problem.b_format)


def matrices_of(problem: GemmProblem) -> int:
    """How many matrices of weights there are: those of groups, or one."""
    return problem.ragged.groups if problem.ragged else 1


def no_weights(problem: GemmProblem, *orders: str) -> str | None:
    """Why *problem* is not a product with quantised weights that these families multiply, or None. *orders*:
    those in which weights may lie; none: in rows.
    """
    form, wanted = format_of(problem), orders or ("rows",)
    if form.order not in wanted:
        return (
            f'its weights are in the order of {form.order}, not {wanted[0]}: see q.to(x, order="{wanted[0]}")'
        )
    parted = problem.n > 1 and problem.ldb != form.row_nbytes(problem.k)
    if problem.k and form.order != "rows" and parted:
        return "the rows of its weights are not behind one another"
    if problem.k and problem.b_align < form.align:
        return f"rows of weights do not begin on multiples of {form.align} bytes"
    if any(problem.batch_strides.b):
        return "a stack of quantised matrices is not offered: multiply each of them"
    if problem.k % max(RUN, form.block):
        return f"K is {problem.k}, no multiple of {max(RUN, form.block)}"
    return None


def program_of(problem: GemmProblem, source: str, defines: Defines) -> Program:
    """The program of *source* behind the header of the weights' format."""
    form = format_of(problem)
    return Program(f"{form.header} {source}", (*form.defines, *defines))


def one_item(config: TileConfig, device: DeviceInfo) -> list[str]:
    """Why a work-item of a CPU cannot multiply so. Empty if it can."""
    reasons = config.violations(device, (1,), 0)
    if config.vec not in (4, 8, 16) or config.vec * 32 > device.widest_bits or config.split_k != 1:
        reasons.insert(0, f"VEC must be 4, 8 or 16 and fit {device.widest_bits} bits, SPLIT_K 1: {config}")
    return reasons


def program_on_cpu(problem: GemmProblem, source: str, config: TileConfig, device: DeviceInfo) -> Program:
    """The program of *source* for a CPU."""
    sizes = (("ROWS", config.tm), ("COLUMNS", config.tn), *vector_defines(config, device))
    return program_of(problem, source, (*gemm_defines(problem), *sizes))


def launch_on_cpu(
    problem: GemmProblem, program: Program, kernel: str, config: TileConfig, device: DeviceInfo, *before: Arg
) -> Launch:
    """A launch in which each work-item has about as many rows of B as any other. *before*: arguments before
    their number.
    """
    span = round_up(-(-problem.n // (device.units * GROUPS_A_UNIT)), config.tn)
    size, extra = (-(-problem.n // span),), (*before, np.int32(span))
    return gemm_launch(problem, program, kernel, size, (1,), extra)
