"""Repair: the wrong part of a checked result is computed again, and checked again.

Other kernels come first. The one that failed comes last: where no other accepts the product, as of lists on
GPUs, it may have been right but for that once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..errors import PyclmmError, VerificationError
from ..formats import format_named
from ..kernels.interface import Work, round_up
from ..kernels.launches import batch_table, complete
from ..kernels.verification import verified
from ..opencl.launcher import launcher_of
from ..problem.dtypes import ELEMENTS
from ..problem.gemm import Gemm, GemmProblem
from ..selection import select
from .verdicts import repaired, watch_over

# Enqueues a binding's launches on the arrays of the call, which begin so many elements later, by the
# problem's names, and waits for them.
Run = Callable[[Any, Mapping[str, int]], None]


def moved(offsets: Mapping[str, int], shifts: Mapping[str, int]) -> dict[str, int]:
    """The *offsets* of a call for a :data:`Run`."""
    return {x: offsets.get(x, 0) + shifts.get(x, 0) for x in {*offsets, *shifts}}


def repair(executable: Any, asked: GemmProblem, error: VerificationError, queue: Any, run: Run) -> None:
    """Compute what *error* names again, until the check of the whole result finds no fault.

    *asked*: the problem with its activation. Raises the last error if no kernel is left.
    """
    gemm, first = executable.gemm, error.kernel
    offered = select.candidates(gemm.problem, executable.device, "auto")
    others = dict.fromkeys(choice.kernel.name for choice in offered if choice.kernel.name != first)
    for kernel in (*others, first):
        try:
            # What lies in workspace is gone by now: then all is computed again. So is what tables list,
            # and a product of a list, as the error names its pair.
            is_all = gemm.copies or gemm.out_copy or gemm.problem.is_listed or executable.pairs
            if is_all or asked is not gemm.problem:
                check = executable.remade(replace(gemm, problem=asked), kernel, True, queue)
            else:
                for part, shifts in _parts(gemm, error):
                    run(executable.remade(part, kernel, False, queue), shifts)
                check = _check(executable, asked, kernel, queue)
            check.watch.repairs = True
            run(check, {})
            check.watch.finish()
        except VerificationError as again:
            error = again
        except PyclmmError:
            continue
        else:
            repaired(error, f"computed again by {kernel!r}")
            return
    raise error


def _parts(gemm: Gemm, error: VerificationError) -> Iterator[tuple[Gemm, dict[str, int]]]:
    """The wrong rows and columns of each product of the stack, and where its arrays begin, in elements."""
    problem = gemm.problem
    (r0, r1), (c0, c1) = (error.columns, error.rows) if gemm.swapped else (error.rows, error.columns)
    aligns: dict[str, Any] = {
        f"{x}_align": ELEMENTS[getattr(problem, f"{x}_type")].nbytes for x in ("a", "b", "out")
    }
    if problem.b_format:  # rows of weights begin where they do, and some cannot be divided
        del aligns["b_align"]
        many = format_named(problem.b_format).together
        c0, c1 = c0 // many * many, min(problem.n, round_up(c1, many))
    one: dict[str, Any] = {"batch_shape": (), "batch_strides": ((), (), (), ())}
    part = replace(problem, m=r1 - r0, n=c1 - c0, **one, **aligns)
    whole = replace(gemm, problem=part, shape=(part.m, part.n))
    table = batch_table(problem.batch_shape, problem.batch_strides)
    for z in range(*error.stack):
        a, b, c, out = map(int, table[z])
        yield (
            whole,
            {
                "a": a + r0 * (1 if problem.trans_a else problem.lda),
                "b": b + c0 * (problem.ldb if problem.trans_b else 1),
                "c": c + r0 * problem.c_strides[0] + c0 * problem.c_strides[1],
                "out": out + r0 * problem.ldo + c0,
                "bias": (c0 if problem.bias == "row" else r0) * problem.bias_stride,
            },
        )


def _check(executable: Any, asked: GemmProblem, kernel: str, queue: Any) -> Any:
    """The launches that check the whole result without computing it."""
    gemm, device = executable.gemm, executable.device
    work = complete(gemm, verified(asked, Work(()), device), device)
    made = launcher_of(queue).binding(queue, device, work, gemm.unread, False)
    watch_over(made, gemm, device, kernel)
    return made
