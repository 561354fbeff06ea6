"""cl/nvidia/wgmma*.cl and cl/split_k.cl run without a GPU (interleaved.py).

This tests every copy, index and barrier. Nothing is asynchronous there, so a stage that is released too early
is not noticed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pyclmm.checks.drawn import Drawn
from pyclmm.checks.layouts import resized
from pyclmm.kernels import kernel_named
from pyclmm.problem.dtypes import ELEMENTS
from tests.simulators import interleaved
from tests.simulators.simulated import check
from tests.support.made_up import H200
from tests.support.selection import few

from .test_matrix_units import problem

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
    (HALF, "NT", (136, 72, 264), tile(64, 64, cluster=2, stages=3), 2, (), 8),
    (HALF, "TN", (264, 200, 136), tile(64, 128, cluster=2), 4, (2,), 8),
    (HALF, "NN", (200, 24, 200), tile(64, 32, cluster=2), 2, (), 8),
    (HALF, "NT", (520, 40, 72), tile(128, 160, cluster=2), 4, (), 8),
    (HALF, "NN", (520, 264, 584), tile(128, 256, drain=1, cluster=2, stages=3), 2, (), 8),
]


def of(kind, trans, shape, stack=(), **more):
    """The product of *shape* (M, N, K)."""
    return resized(problem(kind, trans=trans, batch_shape=stack, **more), *shape, *stack)


def tiled(given, device, bm, bn, split_k, stages, options):
    """The family's configuration with that tile, *stages* and *split_k*."""
    wanted = {"alternate": 0, "group": 8} | options
    config = next(c for c in WGMMA.configs(given, device) if c.split_k == 1)
    named = tuple(sorted(wanted.items()))
    return replace(config, bm=bm, bn=bn, stages=stages, split_k=split_k, options=named)


@pytest.mark.parametrize(
    ("dtype", "trans", "shape", "wanted", "units", "stack", "padded_to"), few(CASES, 0, 1), ids=str
)
@pytest.mark.parametrize("epilogue", [False, True], ids=["plain", "epilogue"])
def test_products_are_exact(folder, dtype, trans, shape, wanted, units, stack, padded_to, epilogue):
    aligned = padded_to * np.dtype(dtype).itemsize
    more = {"has_c": True, "bias": "column"} if epilogue else {}
    more |= {"a_align": aligned, "b_align": aligned, "precision": "medium" if dtype is SINGLE else "highest"}
    given = of(np.dtype(dtype).name, trans, shape, stack, out_type="float32", **more)
    device = replace(H200, compute_units=units, clusters=True)
    config = tiled(given, device, *wanted)
    if epilogue and config.option("drain"):
        assert "cannot leave" in WGMMA.violations(given, config, device)[0]
    else:
        check(folder, WGMMA, given, config, device)


DRAINED_16 = [  # layout, (M, N, K), compute units, work-groups of a cluster, epilogue
    ("NT", (528, 776, 136), 2, 2, {}),
    ("NT", (256, 776, 128), 2, 1, {"bias": "row", "activation": "relu"}),
    ("TN", (272, 512, 392), 1, 1, {"bias": "column"}),
    ("NN", (264, 776, 200), 1, 1, {}),
]


@pytest.mark.parametrize(("trans", "shape", "units", "members", "epilogue"), few(DRAINED_16, 0, 1), ids=str)
def test_results_of_16_bits_that_leave_later_are_right(folder, trans, shape, units, members, epilogue):
    device = replace(H200, compute_units=units, clusters=True)
    given = of("float16", trans, shape, **epilogue)
    configs = WGMMA.configs(given, device)
    config = next(c for c in configs if c.option("drain") and c.option("cluster", 1) == members)
    for how in (Drawn.INTEGERS, Drawn.REALS):
        check(folder, WGMMA, given, replace(config, stages=3), device, how)


UNALIGNED = [  # elements and results, layout, (M, N, K), (tile ..), compute units, products, epilogue
    ("float16 float16", "NT", (150, 203, 72), tile(64, 64), 2, (), {}),
    ("float16 float16", "NN", (150, 203, 72), tile(128, 128), 2, (2,), {"has_c": True, "bias": "column"}),
    ("float16 float16", "NT", (150, 406, 136), tile(128, 224), 2, (), {"activation": "relu"}),
    ("float16 float16", "NT", (150, 335, 72), tile(128, 160), 2, (), {}),
    ("float16 float16", "NT", (170, 57, 72), tile(64, 32), 1, (), {"bias": "row"}),
    ("float16 float16", "NT", (270, 137, 264), tile(256, 128), 2, (), {}),
    ("float16 float16", "NN", (140, 521, 72), tile(64, 256, alternate=1), 1, (), {}),
    (
        "float16 float16", "NN", (203, 150, 72), tile(64, 128, swapped=1), 2, (),
        {"has_c": True, "bias": "row"},
    ),
    ("float16 float16", "NN", (203, 152, 264), tile(64, 32, swapped=1, split_k=2), 2, (), {}),
    ("float16 float32", "NT", (150, 203, 72), tile(64, 128), 2, (), {"has_c": True, "bias": "column"}),
    ("float16 float32", "NT", (150, 203, 72), tile(128, 64, swapped=1), 2, (), {}),
    ("float16 float16", "NT", (150, 203, 72), tile(64, 64, cluster=2, stages=3), 2, (), {}),
    ("float32 float32", "NN", (137, 203, 68), tile(128, 160, swapped=1), 2, (), {}),
    ("float32 float32", "TT", (150, 203, 68), tile(128, 128), 2, (2,), {"has_c": True, "bias": "row"}),
    ("float32 float32", "TT", (70, 333, 68), tile(128, 256), 1, (), {}),
    ("float32 float16", "TN", (150, 203, 68), tile(128, 64), 2, (), {}),
    ("float32 float16", "NN", (203, 150, 68), tile(64, 64, swapped=1), 2, (), {"bias": "column"}),
    ("int8 int32", "TT", (144, 203, 144), tile(64, 128), 2, (), {}),
    ("int8 int32", "NN", (203, 144, 144), tile(64, 64, swapped=1), 2, (), {}),
    ("int8 int32", "NT", (150, 203, 144), tile(64, 64), 2, (), {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kinds", "trans", "shape", "wanted", "units", "stack", "epilogue"), few(UNALIGNED, 0, 2), ids=str
)
def test_rows_of_the_result_may_begin_anywhere(folder, kinds, trans, shape, wanted, units, stack, epilogue):
    """Results leave through local memory there, in words that may begin at any element."""
    kind, result = kinds.split()
    given = of(kind, trans, shape, stack, out_type=result, **epilogue)
    align = ELEMENTS[result].nbytes * (2 - shape[1] % 2)
    given = replace(given, out_align=align, precision="medium" if kind == "float32" else "highest")
    device = replace(H200, compute_units=units, clusters=True)
    tiles = tiled(given, device, *wanted)
    config = replace(tiles, options=(*tiles.options, ("lines", 1)))
    check(folder, WGMMA, given, config, device, Drawn.REALS if kind == "int8" else Drawn.INTEGERS)


@pytest.mark.parametrize(("side", "align", "lines"), [(1000, 2, 0), (4000, 2, 1), (4000, 16, 0)])
def test_only_many_results_that_fill_no_sectors_leave_as_lines(side, align, lines):
    given = replace(of("float16", "NT", (side, side, 512)), out_align=align)
    assert {c.option("lines") for c in WGMMA.configs(given, H200)} == {lines}


def test_lines_take_local_memory_from_stages():
    given = replace(of("float16", "NT", (4000, 3999, 512)), out_align=2)
    config = next(c for c in WGMMA.configs(given, H200) if (c.bm, c.bn) == (256, 128))
    assert config.stages == 3
    assert "local memory" in WGMMA.violations(given, replace(config, stages=4), H200)[0]


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
def test_bytes_across_k_go_through_registers(folder, trans, kinds, shape, wanted, units, stack, launches):
    """All values of a byte: bytes that change places or lose their sign are noticed."""
    a_type, b_type = kinds.split()
    aligned = 16 if shape[2] % 16 == 0 else 1
    given = of("int8", trans, shape, stack, a_align=aligned, b_align=aligned)
    given = replace(given, a_type=a_type, b_type=b_type)
    device = replace(H200, compute_units=units)
    config = tiled(given, device, *wanted)
    assert len(check(folder, WGMMA, given, config, device, Drawn.REALS)) == launches
