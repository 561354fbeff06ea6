"""`pyclmm road --start`: the kernel of a step as a file to change, with the task of its page's exercise."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Sequence
from pathlib import Path

from ..errors import ArgumentError
from ..kernels import Kernel, kernel_named
from ..kernels.config import TileConfig
from ..opencl import compiler

# The step of the road -> the kernel that its starter file has, and what to change.
STARTS = {
    1: (
        "sequential",
        "Nest the loops over i and j the other way round. Which order is faster here, and why?",
    ),
    2: ("single_group", "Sum the products of every fourth k apart, and add the four sums at the end."),
    3: ("naive", "Sum the products of every fourth k apart, and add the four sums at the end."),
    4: ("flat", "Exercise 2: divide by N with a multiplication and a shift. Is it faster?"),
    5: ("tiled", "Exercise 3: make the tiles twice as long along K: TW x 2 TW and 2 TW x TW."),
    6: ("strip", "Exercise 3: sum TM elements of a column straight from global memory."),
    7: ("block", "Let the TN columns of a work-item lie side by side, as in exercise 2."),
    8: ("vector", "Exercise 3: load the vectors straight from global memory."),
    9: (
        "tiled",
        "Exercise 3: write it with two pairs of tiles and one barrier a step. (double_buffer is the answer "
        "for block, so the file begins with tiled.)",
    ),
    10: (
        "block",
        "Exercise 3: sum the TM x TN elements of a work-item straight from global memory. (register is "
        "several files, whose tiles pyclmm fits to the device. block is its idea in one file.)",
    ),
}
LAST = 15  # step of the road
_STARTER = """\
/* Step {step} of the road. Below is pyclmm's kernel {name}, as it is. Change it:
 *
 *   {task}
 *
 * Then check it, and time it beside its neighbours:   pyclmm road {file}
 *
 * Its name, matmul_{name}, says that it is launched as {name} is. It computes out = A B, M x K times K x N:
 *   LOAD_A(a, A_INDEX(i, k, lda))      A(i, k) as ACC_T, the type of sums, whatever its type and layout
 *   LOAD_B(b, B_INDEX(k, j, ldb))      B(k, j)
 *   GUARDED_A(a, i, k, lda, M, K)      the same, but 0 outside of the matrix; GUARDED_B(b, k, j, ldb, K, N)
 *   MAC(acc, x, y)                     acc + x y
 *   STORE_RESULT(i, j, acc, RESULT)    stores out(i, j), unless it lies outside, with alpha, beta and bias
 *
 * Delete the bar of a line below to ask for these element types only, or for this tile:
 *   | types: float32
{tile} */
"""
_TILE = " *   | tile: {}\n"


def start(step: int, path: Path) -> str:
    """Write the file that the exercise of a *step* begins with, and say so. Raises ArgumentError where it is
    there, or the step has none.
    """
    if step not in STARTS:
        last = max(STARTS)
        raise ArgumentError(
            f"step {step} has no starter file: the kernels of steps {last + 1} to {LAST} are of several "
            f"files and launches; --start 1 to --start {last} write one"
        )
    name, task = STARTS[step]
    task = "\n *   ".join(textwrap.wrap(task, 100))
    source, tile = compiler.read_source(f"textbook/{name}.cl"), tiles(kernel_named(name))[0]
    while found := re.search(r'^#include "(textbook/\w+\.h)"\n', source, re.M):
        source = source[: found.start()] + compiler.read_source(found[1]) + source[found.end() :]
    tile_line = _TILE.format(tile) if tile.as_dict() else ""
    quoted = shlex.quote(str(path))
    head = _STARTER.format(step=step, name=name, task=task, file=quoted, tile=tile_line)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(head + source)
    except FileExistsError:
        other = f"`pyclmm road --start {step} OTHER.cl`"
        raise ArgumentError(f"{path}: File exists, and stays as it is; {other} writes another") from None
    return f"{path} is written, with the kernel {name}: change it, and check it by `pyclmm road {quoted}`"


def tiles(textbook: Kernel) -> Sequence[TileConfig]:
    """The configurations of a textbook's kernel."""
    found: Sequence[TileConfig] = textbook.tiles  # type: ignore[attr-defined]
    return found
