"""What the families for quantised weights share: what they take, and programs with a format's header."""

from __future__ import annotations

from ..formats import Format, format_named
from ..problem.gemm import GemmProblem
from .accepts import Types
from .interface import Defines, Program

RUN = 32  # weights that a format's header gives at a time (weights32)
TYPES = (Types(("float32", "float16", "bfloat16"), "float32", weights=True),)


def format_of(problem: GemmProblem) -> Format:
    """The format of the weights."""
    return format_named(problem.b_format)


def no_weights(problem: GemmProblem) -> str | None:
    """Why *problem* is not a product with quantised weights that these families multiply, or None."""
    if problem.k and problem.b_align < format_of(problem).align:
        return f"rows of weights do not begin on multiples of {format_of(problem).align} bytes"
    if any(problem.batch_strides.b):
        return "a stack of quantised matrices is not offered: multiply each of them"
    if problem.k % max(RUN, format_of(problem).block):
        return f"K is {problem.k}, no multiple of {max(RUN, format_of(problem).block)}"
    return None


def program_of(problem: GemmProblem, source: str, defines: Defines) -> Program:
    """The program of *source* behind the header of the weights' format."""
    form = format_of(problem)
    return Program(f"{form.header} {source}", (*form.defines, *defines))
