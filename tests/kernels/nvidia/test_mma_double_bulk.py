"""cl/nvidia/mma_double_bulk.cl runs on a machine written in Python: every barrier, copy and index, no GPU."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from math import ceil
from pathlib import Path

import numpy as np
import pytest

from pyclmm.kernels import kernel_named
from pyclmm.kernels.config import TileConfig
from pyclmm.opencl import compiler
from pyclmm.opencl.compiler import expanded
from pyclmm.opencl.program import build_options
from pyclmm.problem.gemm import GemmProblem
from tests.kernels.nvidia.test_matrix_units import CLANG_FLAGS
from tests.simulators.interleaved import CLANG
from tests.simulators.ptx_machine import Kernel, Machine
from tests.support.made_up import H200
from tests.support.processes import ended
from tests.support.selection import few

PTX_BUILTINS = (Path(__file__).parents[2] / "simulators/ptx_builtins.h").read_text()

pytestmark = pytest.mark.skipif(CLANG is None, reason="needs clang")
FAMILY = kernel_named("mma_double_bulk")


def config(bm, bn, bk, sgm, sgn, stages, slices=1, split_k=1):
    return TileConfig(bm, bn, bk, sgm, sgn, stages=stages, split_k=split_k, options=(("slices", slices),))


@cache
def translated(program):
    source = PTX_BUILTINS + expanded(program.source)
    options = [o for o in build_options(program) if not o.startswith("-cl-std")]
    text = ended(CLANG, *CLANG_FLAGS, *options, input=source, check=True).stdout
    rewritten = compiler.rewritten(text.replace(".target sm_80", ".target sm_90").encode()).decode()
    return Kernel.of(rewritten, "matmul_mma_double_bulk")


CASES = [  # tile, (m, n, k), layout, compute units, batch, calls
    (config(64, 32, 32, 32, 16, 4), (64, 32, 70), "NN", 3, 1, 1),
    (config(64, 32, 32, 32, 16, 3, 2), (70, 40, 136), "TT", 2, 1, 2),
    (config(64, 64, 32, 32, 32, 3), (130, 70, 72), "NT", 1, 1, 1),
    (config(64, 64, 16, 32, 32, 4), (64, 144, 40), "TN", 1, 1, 1),
    (config(64, 64, 16, 32, 32, 2, 1, 3), (64, 80, 104), "NN", 2, 1, 2),
    (config(128, 128, 32, 32, 64, 3, 1, 2), (120, 132, 66), "NT", 3, 1, 1),
    (config(32, 16, 128, 32, 16, 2, 8), (40, 18, 300), "NN", 3, 1, 1),
    (config(16, 32, 128, 16, 32, 4, 8), (18, 32, 129), "NT", 3, 2, 1),
    (config(64, 64, 16, 32, 32, 4), (1, 1, 1), "NN", 3, 1, 1),
]


@pytest.mark.parametrize(("tile", "shape", "layout", "units", "batch", "calls"), few(CASES, 2, 4, 5), ids=str)
def test_the_product_is_exact_in_every_order_of_execution(tile, shape, layout, units, batch, calls):
    """Products and sums of integers are exact. Later calls find the maps and counters of the first."""
    m, n, k = shape
    rng = np.random.default_rng(5)
    random.seed(7)
    a, b = rng.integers(-3, 4, (batch, m, k)), rng.integers(-3, 4, (batch, k, n))
    stored_a, stored_b = (stored(x, turned) for x, turned in ((a, layout[0] == "T"), (b, layout[1] == "T")))
    out = np.full((batch, m, n + n % 2), 7.0)
    strides = ((stored_a[0].size,), (stored_b[0].size,), (0,), (out[0].size,))
    problem = GemmProblem(
        *(m, n, k), *("float64",) * 4, trans_a=layout[0] == "T", trans_b=layout[1] == "T",
        lda=stored_a.shape[-1], ldb=stored_b.shape[-1], ldo=out.shape[-1],
        c_type="float64", bias_type="float64",
        **({"batch_shape": (batch,), "batch_strides": strides} if batch > 1 else {}),
    )  # fmt: skip
    device = replace(H200, compute_units=units)
    assert FAMILY.violations(problem, tile, device) == []
    work = FAMILY.launches(problem, tile, device)
    launch = work.launches[0]
    machine = Machine(1 << 23, delay=40)
    named = {name: machine.allocate(x) for name, x in (("a", stored_a), ("b", stored_b), ("out", out))}
    offsets = np.array([[z * s[0] for s in strides] for z in range(batch)])
    named |= {"batch_offsets": machine.allocate(offsets), "c": 0, "bias": 0, "alpha": 1.0, "beta": 0.0}
    for space in work.workspace:
        named[space.symbol] = machine.allocate(np.full(space.nbytes, 0 if space.zeroed else 255, np.uint8))
    arguments = [
        named.get(x, 0) if isinstance(x, str) else int(x) & (2**64 - 1) for x in launch.args
    ]  # offsets of operands are 0
    items = launch.local_size[0]
    for _ in range(calls):
        machine.memory[named["out"] : named["out"] + out.nbytes] = out.tobytes()
        machine.launch(translated(launch.program), arguments, launch.global_size[0] // items, items, batch)
        got = machine.read(named["out"], out)
        if tile.split_k > 1:
            sums = np.zeros((batch, ceil(m / tile.bm) * ceil(n / tile.bn), tile.split_k, tile.bm, tile.bn))
            sums = machine.read(named["workspace:partial"], sums).sum(axis=2)
            got[..., :n] = [whole(x, m, n) for x in sums]
        assert np.array_equal(got[..., :n], a @ b)
        assert (got[..., n:] == 7).all()


def whole(tiles, m, n):
    """The matrix of *tiles*, ordered as in tile_order.h: eight rows of tiles, column by column."""
    _, bm, bn = tiles.shape
    rows, columns = ceil(m / bm), ceil(n / bn)
    places = [(i, j) for first in range(0, rows, 8) for j in range(columns)
              for i in range(first, min(first + 8, rows))]  # fmt: skip
    out = np.zeros((rows * bm, columns * bn))
    for (i, j), part in zip(places, tiles, strict=True):
        out[i * bm : (i + 1) * bm, j * bn : (j + 1) * bn] = part
    return out[:m, :n]


def stored(x, turned):
    """*x* as stored, perhaps transposed. Rows are padded with NaN to multiples of 16 bytes."""
    x = x.transpose(0, 2, 1) if turned else x
    wide = np.full((*x.shape[:-1], x.shape[-1] + x.shape[-1] % 2 + 2), np.nan)
    wide[..., : x.shape[-1]] = x
    return wide
