"""The products of residues by matrix units, emulated (emulated.py, interleaved.py): sums modulo p as bytes.

`residues` enqueues a product for each modulus, and a number that the device wrote says how many are needed.
"""

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from pyclmm.checks.reference import error_ratio
from pyclmm.kernels import kernel_named
from pyclmm.kernels.config import TileConfig
from pyclmm.kernels.interface import GATE
from pyclmm.kernels.launches import complete
from pyclmm.kernels.nvidia.wgmma_tiles import stacked
from pyclmm.kernels.residues import products as forms
from pyclmm.kernels.residues import residues
from pyclmm.kernels.residues.moduli import COMPLEX, REAL
from pyclmm.opencl.launcher import launcher_of
from pyclmm.opencl.steps import scalars_of
from pyclmm.problem.canonical import problem_of
from pyclmm.problem.gemm import Gemm
from tests.kernels.residues.conftest import in_blocks
from tests.kernels.residues.test_residues import K, M, N, as_real, data, within_bound
from tests.kernels.units.test_units import A770, MAX1550, MI300, RX7900
from tests.simulators import interleaved
from tests.simulators.emulated import emulated, emulation
from tests.simulators.simulated import arrays_of
from tests.support.cases import DEVICE
from tests.support.made_up import H200, MI250
from tests.support.selection import few

emulates = pytest.mark.skipif(not DEVICE.is_cpu, reason="the emulation is for compilers of CPU devices")
threads = interleaved.needs_clang
NAIVE = kernel_named("naive")
FLOAT64, COMPLEX128 = np.dtype(np.float64), np.dtype(np.complex128)
ALL = 30  # products of complex numbers
BEHIND = 1 << 17  # more bytes than a tile of the result has


def short(value):
    return getattr(value, "name", str(value).replace(" ", ""))[:16]


def products(shape, dtype=FLOAT64, form=None):
    """The problem of the products of residues."""
    m, n, k = shape
    return forms.inner(problem_of(m, n, k, dtype, precision="high"), form or forms.BYTES)


class Memory:
    """Residues, whatever lies behind them, and the bytes that products replace, with some behind them."""

    def __init__(self, rng, inner):
        blocks, count = inner.batch_shape[1:]
        self.inner = inner
        self.a = rng.integers(-128, 128, (count, inner.m, inner.lda), np.int8)
        self.b = rng.integers(-128, 128, (count, inner.n, inner.ldb), np.int8)
        self.shape = (blocks, count, inner.m, inner.ldo)
        self.out = rng.integers(0, 256, prod(self.shape) + BEHIND, np.uint8)

    def multiplied(self, queue, inner, work, needed):
        """`out` after the first *needed* products of each block by *work*, in memory of the device."""
        work = replace(work, tables={GATE: plan_of(needed).view(np.int64)})
        own = {name: x.reshape(-1).view(np.uint8) for name, x in (("a", self.a), ("b", self.b))}
        own["out"] = own["c"] = own["bias"] = self.out.copy()
        gemm = Gemm(inner, (inner.m, inner.n), np.dtype(np.uint8))
        launcher_of(queue).compute(queue, DEVICE, complete(gemm, work, DEVICE), own, scalars_of(1, 0))
        return own["out"]

    def after(self, needed):
        """`out` with the first *needed* products of each block of K."""
        inner, found = self.inner, self.out.copy()
        for block, stored in enumerate(found[:-BEHIND].reshape(self.shape)):
            part = slice(block * inner.k, (block + 1) * inner.k)
            for i, p in enumerate(inner.moduli[:needed]):
                a, b = (x[i, :, part].astype(np.int64) for x in (self.a, self.b))
                stored[i, :, : inner.n] = a @ b.T % p
        return found


def plan_of(needed):
    """plan_t of cl/residues/residues.h."""
    return np.array([needed, 0, 0, 0], np.int32)


# Family, device, (BM, BN, BK, SGM, SGN, rows of an instruction), (M, N, K), most elements of a block of K.
UNITS = [
    ("mfma", MI250, (64, 32, 32, 32, 32, 32), (70, 37, 51), None),
    ("mfma", MI250, (32, 64, 32, 16, 32, 16), (35, 67, 128), None),
    ("mfma", MI300, (64, 32, 32, 32, 32, 32), (5, 75, 70), None),
    ("mfma", MI300, (32, 64, 32, 16, 32, 16), (37, 65, 260), 128),
    ("wmma", RX7900, (64, 32, 32, 32, 16, 16), (67, 35, 51), None),
    ("dpas", A770, (32, 32, 32, 16, 16, 8), (35, 33, 51), None),
    ("dpas", MAX1550, (32, 32, 32, 16, 16, 8), (33, 47, 64), None),
]


@emulates
@pytest.mark.parametrize(
    ("dtype", "needed"),
    [(FLOAT64, ALL), (FLOAT64, 6), (FLOAT64, 0), (COMPLEX128, ALL), (COMPLEX128, 11)],
    ids=str,
)
@pytest.mark.parametrize(("name", "device", "tile", "shape", "block"), few(UNITS, 0), ids=short)
def test_units_multiply_residues(queue, rng, monkeypatch, name, device, tile, shape, block, dtype, needed):
    if block:
        in_blocks(monkeypatch, block)
    inner, kernel = products(shape, dtype), kernel_named(name)
    config = unit_config(tile)
    assert kernel.refuses(inner, device) is None
    assert kernel.violations(inner, config, device) == []
    work, memory = emulated(kernel.launches(inner, config, device)), Memory(rng, inner)
    with emulation():
        assert np.array_equal(memory.multiplied(queue, inner, work, needed), memory.after(needed))


def unit_config(tile):
    sizes = dict(zip(("bm", "bn", "bk", "sgm", "sgn"), tile, strict=False))
    return TileConfig(**sizes, options=(("unit", tile[-1]),))


# Family, tile (BM, BN, options), (M, N, K), most elements of a block of K, dtype, products that are needed.
# Edges lie within a chunk of 16 bytes, within a fragment of 8 columns and at its end.
NVIDIA = [
    ("mma", (64, 64, {}), (35, 33, 51), None, FLOAT64, ALL),
    ("mma", (64, 64, {}), (64, 79, 140), None, FLOAT64, 2),
    ("mma", (32, 32, {}), (33, 47, 130), None, COMPLEX128, 3),
    ("mma", (64, 16, {}), (66, 17, 40), None, FLOAT64, 2),
    ("mma", (16, 64, {}), (17, 65, 200), 128, FLOAT64, 2),
    ("mma", (128, 128, {}), (130, 100, 51), None, FLOAT64, 1),
    ("wgmma", (64, 64, {}), (35, 33, 51), None, FLOAT64, ALL),
    ("wgmma", (64, 128, {}), (70, 111, 300), None, FLOAT64, 2),
    ("wgmma", (64, 64, {}), (35, 33, 600), None, FLOAT64, 1),  # two work-groups without a tile
    ("wgmma", (128, 64, {}), (130, 37, 200), 128, FLOAT64, 1),
    ("wgmma", (64, 256, {"alternate": 1}), (65, 259, 51), None, FLOAT64, 1),
    ("wgmma", (64, 32, {"swapped": 1}), (37, 67, 129), None, COMPLEX128, 3),
]


@threads
@pytest.mark.parametrize(("name", "tile", "shape", "block", "dtype", "needed"), few(NVIDIA, 0, 4), ids=short)
def test_nvidias_units_multiply_residues(folder, rng, monkeypatch, name, tile, shape, block, dtype, needed):
    if block:
        in_blocks(monkeypatch, block)
    inner, kernel, device = products(shape, dtype), kernel_named(name), replace(H200, compute_units=3)
    assert kernel.refuses(inner, device) is None
    bm, bn, options = tile
    configs = [c for c in kernel.configs(inner, device) if c.split_k == 1]
    if name == "wgmma":
        named = {"alternate": 0, "group": 8} | options
        config = replace(configs[0], bm=bm, bn=bn, stages=2, options=tuple(sorted(named.items())))
    else:
        config = next(c for c in configs if (c.bm, c.bn) == (bm, bn))
    assert kernel.violations(inner, config, device) == []
    memory = Memory(rng, inner)
    out = memory.out.copy()
    arrays = arrays_of(inner, out, memory.a, memory.b) | {GATE: plan_of(needed)}
    interleaved.run(kernel.launches(inner, config, device), arrays, folder)
    assert np.array_equal(out, memory.after(needed))


@threads
@pytest.mark.parametrize("own", [REAL, COMPLEX], ids=["real", "complex"])
def test_the_residues_of_the_largest_sums(folder, rng, own):
    """cl/include/moduli.h for sums of less than 2^17 products, next to multiples of p and at both ends."""
    limit, inner = (2**17 - 1) * 2**14, products((1, 1, 1), COMPLEX128 if own is COMPLEX else FLOAT64)
    [launch] = NAIVE.launches(inner, NAIVE.configs(inner, DEVICE)[0], DEVICE).launches
    for i, p in enumerate(inner.moduli):
        multiples = np.concatenate(
            [rng.integers(-limit // p, limit // p + 1, 500), (0, -limit // p + 1, limit // p)]
        )
        near = (multiples[:, None] * p + (-1, 0, 1)).reshape(-1)
        sums = np.concatenate([near, (-limit, limit, -limit + 1, limit - 1)])
        sums = sums[abs(sums) <= limit].astype(np.int32)
        found = np.zeros(sums.shape, np.uint32)
        call = (
            "for (ulong n = 0; n < args[2]; ++n)"
            " ((__global uint *)args[1])[n] = sum_residue(((__global uint *)args[0])[n], args[3]);"
        )
        words = (sums.ctypes.data, found.ctypes.data, len(sums), i)
        interleaved.run_one(launch.program, call, words, folder)
        assert np.array_equal(found, sums.astype(np.int64) % p)


SERVED = [("normal", FLOAT64), ("few bits", FLOAT64), ("elements 2^+-20", FLOAT64), ("normal", COMPLEX128)]


@emulates
@pytest.mark.parametrize(("kind", "dtype"), SERVED, ids=str)
@pytest.mark.parametrize(
    ("name", "device"), [("mfma", MI300), ("wmma", RX7900), ("dpas", MAX1550)], ids=short
)
def test_units_multiply_float64(run, name, device, kind, dtype):
    """All launches of `residues`; where residues do not serve, MFMA's float64 on the device that has it."""
    problem = problem_of(M, N, K, dtype, precision="high")
    kernel = residues.Residues((kernel_named(name),), (kernel_named("mfma"), NAIVE))
    assert kernel.refuses(problem, device) is None
    config = kernel.configs(problem, device)[0]
    assert kernel.violations(problem, config, device) == []
    a, b = data(kind, dtype)
    with emulation():
        found = run(a, b, emulated(kernel.launches(problem, config, device)))
    assert (found.count > 0) == (kind != "elements 2^+-20")
    if not found.count:
        assert error_ratio(found.result, a, b) <= K + 2
    elif dtype == COMPLEX128:
        rows, columns = as_real(a, b)
        within_bound(found.result.view(np.float64), rows, columns, 2 * K)
    else:
        within_bound(found.result, a, b, K)


def test_one_set_of_work_groups_computes_all_moduli_if_those_needed_come_first():
    assert stacked(products((300, 300, 300))) == len(REAL.of_products)
    assert stacked(products((300, 300, 300), COMPLEX128)) == len(COMPLEX.of_products)
    blocks = products((300, 300, forms.BYTES.most + 1))
    assert blocks.batch == 2 * len(REAL.of_products)
    assert stacked(blocks) == 1
