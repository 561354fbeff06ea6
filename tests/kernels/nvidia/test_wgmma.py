"""cl/nvidia/wgmma*.cl and cl/split_k.cl run without a GPU (interleaved.py).

This tests every copy, index and barrier. Nothing is asynchronous there, so a stage that is released too early
is not noticed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pyclmm.checks.drawn import Drawn
from pyclmm.checks.known_answers import outcome
from pyclmm.checks.layouts import Decks, resized
from pyclmm.kernels import kernel_named
from pyclmm.kernels.launches import batch_table
from pyclmm.problem.gemm import GemmProblem, alignment
from tests.simulators import interleaved
from tests.simulators.simulated import Simulated
from tests.support.made_up import H200
from tests.support.selection import few

pytestmark = interleaved.needs_clang
WGMMA = kernel_named("wgmma")
HALF, SINGLE = np.float16, np.float32


def tile(bm, bn, **options):
    return bm, bn, options.pop("split_k", 1), options.pop("stages", 2), options


# element type, layout, (M, N, K), (tile, split_k, stages, options), compute units, products, padded to
CASES = [
    (SINGLE, "NN", (136, 72, 100), tile(64, 128, swapped=1), 2, (), 4),
    (SINGLE, "NN", (72, 136, 132), tile(128, 64, swapped=1, stages=3), 1, (), 4),
    (SINGLE, "TT", (136, 72, 100), tile(64, 64, stages=3), 3, (), 4),
    (SINGLE, "TT", (136, 260, 36), tile(128, 256), 1, (), 4),
    (SINGLE, "TN", (100, 40, 68), tile(128, 64), 2, (), 4),
    (SINGLE, "TN", (40, 100, 68), tile(64, 64, swapped=1), 2, (), 4),
    (SINGLE, "NT", (100, 72, 68), tile(64, 64), 2, (), 4),
    (SINGLE, "NN", (200, 136, 260), tile(64, 128, swapped=1, split_k=3), 3, (), 4),
    (SINGLE, "NN", (200, 264, 68), tile(64, 128, swapped=1, alternate=1), 1, (), 4),
    (SINGLE, "NN", (72, 40, 100), tile(64, 32, swapped=1), 2, (3,), 4),
    (SINGLE, "NN", (33, 35, 37), tile(64, 64, swapped=1), 2, (2,), 1),
    (HALF, "NN", (16, 200, 264), tile(64, 32, stages=3), 3, (), 8),
    (HALF, "NT", (16, 100, 328), tile(64, 32), 4, (), 8),
    (HALF, "TN", (24, 72, 136), tile(64, 32), 2, (), 8),
    (HALF, "NN", (200, 16, 264), tile(64, 32, swapped=1, stages=3), 3, (), 8),
    (HALF, "TT", (72, 16, 328), tile(64, 32, swapped=1), 2, (2,), 8),
    (HALF, "NN", (200, 16, 520), tile(64, 32, swapped=1, split_k=3), 4, (), 8),
    (SINGLE, "NN", (520, 264, 292), tile(128, 256, swapped=1, drain=1, stages=3), 1, (), 4),
    (SINGLE, "TT", (136, 520, 292), tile(128, 256, drain=1, stages=3), 1, (), 4),
    (HALF, "NN", (136, 520, 584), tile(128, 256, drain=1, stages=3), 1, (), 8),
    (HALF, "TN", (136, 136, 72), tile(64, 64), 2, (), 8),
    (HALF, "NT", (136, 328, 72), tile(128, 160), 2, (), 8),
    (HALF, "TT", (136, 264, 72), tile(128, 224), 1, (2,), 8),
    (SINGLE, "NN", (264, 136, 68), tile(128, 160, swapped=1), 2, (), 4),
    (HALF, "NT", (136, 488, 264), tile(128, 224, split_k=2), 5, (), 8),
    (HALF, "NN", (136, 264, 72), tile(64, 256, alternate=1), 1, (), 8),
]


def stored(x, transposed, padded_to):
    """*x* as stored. Rows are padded with NaN to a multiple."""
    x = np.swapaxes(x, -1, -2) if transposed else x
    held = np.full((*x.shape[:-1], -(-x.shape[-1] // padded_to) * padded_to), np.nan, x.dtype)
    held[..., : x.shape[-1]] = x
    return held


def tiled(problem, device, bm, bn, split_k, stages, options):
    """The family's configuration with that tile, *stages* and *split_k*."""
    wanted = {"alternate": 0, "group": 8} | options
    config = next(c for c in WGMMA.configs(problem, device) if c.split_k == 1)
    named = tuple(sorted(wanted.items()))
    return replace(config, bm=bm, bn=bn, stages=stages, split_k=split_k, options=named)


@pytest.mark.parametrize(
    ("dtype", "trans", "shape", "wanted", "units", "stack", "padded_to"), few(CASES, 0, 1), ids=str
)
@pytest.mark.parametrize("epilogue", [False, True], ids=["plain", "epilogue"])
def test_products_are_exact(folder, rng, dtype, trans, shape, wanted, units, stack, padded_to, epilogue):
    (m, n, k), kind = shape, np.dtype(dtype).name
    a, b = (rng.integers(-3, 4, (*stack, *s)).astype(dtype) for s in ((m, k), (k, n)))
    c, bias = rng.integers(-3, 4, (*stack, m, n)).astype("f4"), rng.integers(-3, 4, m).astype("f4")
    held = [stored(x, t == "T", padded_to) for x, t in ((a, trans[0]), (b, trans[1]))]
    strides = tuple((int(np.prod(x.shape[-2:])),) * len(stack) for x in (*held, c, c))
    problem = GemmProblem(
        *(m, n, k, kind, kind, "float32", "float32", trans[0] == "T", trans[1] == "T"),
        *(False, False, *(x.shape[-1] for x in held), n),
        *(*(alignment(x.shape[-1] * x.itemsize) for x in held), alignment(4 * n)),
        *(stack, strides),
        precision="medium" if dtype is SINGLE else "highest",
        **({"has_c": True, "c_strides": (n, 1), "bias": "column", "bias_stride": 1} if epilogue else {}),
    )
    device = replace(H200, compute_units=units)
    config = tiled(problem, device, *wanted)
    if epilogue and config.option("drain"):
        assert "cannot leave" in WGMMA.violations(problem, config, device)[0]
        return
    assert not WGMMA.violations(problem, config, device)
    out = np.full((*stack, m, n), np.nan, "f4")
    table = batch_table(stack, strides) if stack else np.zeros((1, 4), np.int64)
    arrays = {"a": held[0], "b": held[1], "out": out, "c": c, "bias": bias, "batch_offsets": table}
    scalars = {"alpha": np.float32(2), "beta": np.float32(3)}
    work = WGMMA.launches(problem, config, device)
    interleaved.run(work, arrays | scalars, folder)
    value = 2 * (a.astype("f8") @ b.astype("f8"))
    assert np.array_equal(out, value + 3 * c + bias[:, None] if epilogue else value)


DRAINED_16 = [  # layout, (M, N, K), compute units, epilogue
    ("NT", (256, 776, 128), 2, {"bias": "row", "activation": "relu"}),
    ("TN", (272, 512, 392), 1, {"bias": "column"}),
    ("NN", (264, 776, 200), 1, {}),
]


@pytest.mark.parametrize(("trans", "shape", "units", "epilogue"), few(DRAINED_16, 0), ids=str)
def test_results_of_16_bits_that_leave_later_are_right(folder, trans, shape, units, epilogue):
    layout = {"trans_a": trans[0] == "T", "trans_b": trans[1] == "T"}
    small = GemmProblem(1, 1, 1, *("float16",) * 3, "float32", **layout, **epilogue, bias_type="float16")
    device, problem = replace(H200, compute_units=units), resized(small, *shape)
    config = next(c for c in WGMMA.configs(problem, device) if c.option("drain"))
    config = replace(config, stages=3)
    work = WGMMA.launches(problem, config, device)
    for how in (Drawn.INTEGERS, Drawn.REALS):
        decks = Decks(np.random.default_rng(0))
        found = outcome(Simulated(folder, problem), problem, work, device, decks, how)
        assert found.reason is None


BYTES = [  # layout, types, (M, N, K), (tile, split_k, stages, options), compute units, products, launches
    ("NT", "int8 uint8", (272, 516, 1168), tile(128, 256, drain=1, stages=3), 1, (2,), 1),
    ("NN", "int8 int8", (144, 80, 272), tile(128, 64, swapped=1), 2, (), 1),
    ("NN", "int8 uint8", (80, 144, 144), tile(64, 64, swapped=1, stages=3), 1, (), 1),
    ("NN", "uint8 int8", (272, 144, 160), tile(128, 256, swapped=1), 1, (), 1),
    ("TT", "uint8 uint8", (144, 80, 272), tile(64, 128), 3, (), 1),
    ("TT", "int8 uint8", (208, 48, 400), tile(128, 64, split_k=2), 3, (), 2),
    ("TT", "int8 int8", (144, 48, 272), tile(64, 128, alternate=1), 1, (2,), 1),
    ("NN", "int8 int8", (400, 528, 1168), tile(128, 256, swapped=1, drain=1, stages=3), 2, (), 1),
    ("TT", "int8 int8", (272, 396, 1168), tile(128, 192, drain=1, stages=3), 1, (), 1),
    ("TN", "int8 int8", (144, 48, 144), tile(128, 64), 2, (2,), 2),  # B is packed, A is not
    ("NT", "int8 int8", (136, 328, 144), tile(128, 160), 2, (), 1),
    ("NN", "int8 int8", (66, 35, 70), tile(64, 32, swapped=1), 1, (), 2),  # not aligned: both are packed
]


@pytest.mark.parametrize(
    ("trans", "kinds", "shape", "wanted", "units", "stack", "launches"), few(BYTES, 1), ids=str
)
def test_bytes_across_k_go_through_registers(
    folder, rng, trans, kinds, shape, wanted, units, stack, launches
):
    """All values of a byte: bytes that change places or lose their sign are noticed."""
    (m, n, k), kinds = shape, kinds.split()
    a, b = (
        rng.integers(*(np.iinfo(kind).min, np.iinfo(kind).max + 1), (*stack, *s)).astype(kind)
        for kind, s in zip(kinds, ((m, k), (k, n)), strict=True)
    )
    held = [
        np.ascontiguousarray(np.swapaxes(x, -1, -2) if t == "T" else x)
        for x, t in zip((a, b), trans, strict=True)
    ]
    strides = tuple((int(np.prod(x.shape[-2:])),) * len(stack) for x in held)
    strides += ((m * n,) * len(stack),) * 2
    problem = GemmProblem(
        *(m, n, k, *kinds, "int32", "uint32", trans[0] == "T", trans[1] == "T", False, False),
        *(*(x.shape[-1] for x in held), n, *(alignment(x.shape[-1]) for x in held), alignment(4 * n)),
        *(stack, strides),
    )
    device = replace(H200, compute_units=units)
    config = tiled(problem, device, *wanted)
    assert not WGMMA.violations(problem, config, device)
    work = WGMMA.launches(problem, config, device)
    assert len(work.launches) == launches
    out = np.full((*stack, m, n), 99, np.int32)
    table = batch_table(stack, strides) if stack else np.zeros((1, 4), np.int64)
    arrays = {"a": held[0], "b": held[1], "out": out, "c": out, "bias": out, "batch_offsets": table}
    interleaved.run(work, arrays | {"alpha": np.uint32(1), "beta": np.uint32(0)}, folder)
    assert np.array_equal(out, a.astype(np.int64) @ b)
