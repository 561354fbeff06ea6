"""`register` and `thin` in test-only tiles: every layout, edges, split-K, conversions."""

from dataclasses import replace

import numpy as np
import pytest

import pyclmm
from pyclmm import TileConfig
from pyclmm.kernels import kernel_named
from pyclmm.problem.canonical import problem_of
from tests.support.cases import laid_out
from tests.support.made_up import H200, LLVMPIPE

EDGES = ((1, 31, 1), (15, 33, 7), (16, 32, 8), (40, 36, 20))


def tile(*sizes, vec=4, split_k=0, slices=1, **more):
    options = {"fetch_b": 0, "held": 1, "slices": slices, **more}
    return TileConfig(*sizes, vec, 2, split_k, options)  # type: ignore[call-arg]


WIDE = tile(16, 32, 8, 16, 16, 4, 8)  # two sub-groups, each 4 x 2 work-items
SLICED = tile(16, 32, 16, 8, 32, 4, 8, slices=2, split_k=2)
NARROW = tile(8, 8, 4, 4, 8, 2, 4, vec=1, split_k=3)
ROWS = tile(8, 16, 64, 8, 16, 4, 4, slices=16, split_k=1, rows=1)  # 16 work-items for each row of A's tile
VECTORS = tile(16, 32, 8, 8, 32, 4, 8, split_k=2, vectors=1)  # 4 x 4 work-items, two sub-groups
BESIDE = tile(8, 32, 8, 4, 32, 2, 2, vec=1, vectors=1)  # 16 work-items side by side
TILES = {"wide": WIDE, "sliced": SLICED, "narrow": NARROW, "rows": ROWS, "vectors": VECTORS, "beside": BESIDE}
every_tile = pytest.mark.parametrize("config", TILES.values(), ids=TILES)


def operands(rng, m, n, k, trans, dtype="f4", stack=()):
    a = rng.integers(-4, 5, (*stack, m, k)).astype(dtype)
    b = rng.integers(-4, 5, (*stack, k, n)).astype(dtype)
    return [laid_out(x, letter) for x, letter in zip((a, b), trans, strict=True)]


@pytest.mark.parametrize("trans", ["NN", "NT", "TN", "TT"])
@every_tile
def test_edges_are_exact_in_every_layout(config, trans, rng):
    for m, n, k in EDGES:
        a, b = operands(rng, m, n, k, trans)
        assert np.array_equal(pyclmm.matmul(a, b, kernel=("register", config)), a @ b), (m, n, k)


@every_tile
def test_epilogue_of_stacks_is_exact(config, rng):
    a, b = operands(rng, 17, 33, 20, "NT", stack=(3,))
    c = rng.integers(-4, 5, (3, 17, 33)).astype("f4")
    bias = np.arange(33, dtype="f4")
    got = pyclmm.gemm(a, b, c, alpha=2, beta=3, bias=bias, activation="relu", kernel=("register", config))
    assert np.array_equal(got, np.maximum(2 * (a @ b) + 3 * c + bias, 0))


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("dtype", ["f2", "i8", "c8"])
def test_converted_types_and_types_without_wide_accesses_are_exact(dtype, rows, rng):
    config = tile(8, 8, 4, 8, 8, 2, 2, vec=1, split_k=rows, slices=2, rows=rows)
    a, b = operands(rng, 9, 10, 11, "NN", dtype)
    assert np.array_equal(pyclmm.matmul(a, b, kernel=("register", config)), a @ b)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (tile(8, 16, 64, 8, 16, 4, 4, slices=16, split_k=2, rows=1), "split_k 2: must be 1 with rows=1"),
        (tile(8, 8, 12, 8, 8, 4, 4, slices=3, split_k=1, rows=1), "slices 3: must divide 4 x 4 with rows=1"),
        (tile(8, 16, 8, 8, 16, 4, 4, split_k=1, rows=1), "bn 16: must divide 8 work-items with rows=1"),
        (tile(8, 16, 32, 8, 16, 4, 4, slices=16, split_k=1, rows=1), "must be of a multiple of 4 of bk 32"),
        (tile(16, 32, 16, 8, 32, 4, 8, slices=2, vectors=1), "vectors=1 needs held 1, rows 0 and slices 1"),
        (tile(16, 32, 16, 8, 32, 4, 8, held=0, fetch_b=0), "fetch_b 0: must be 1 or more with held=0"),
    ],
    ids=["split_k", "slices", "bn", "bk", "vectors", "fetch_b"],
)
def test_what_does_not_go_together_is_refused(config, reason):
    with pytest.raises(pyclmm.ArgumentError, match=reason):
        pyclmm.matmul(np.ones((9, 40), "f4"), np.ones((40, 9), "f4"), kernel=("register", config))


def test_rows_are_for_small_products():
    def square(n):
        return problem_of(n, n, n, np.dtype("f4"), "NN", "highest")

    register = kernel_named("register")
    small = [c for c in register.configs(square(512), H200) if c.option("rows")]
    assert small
    assert not any(c.option("rows") for c in register.configs(square(1024), H200))
    tall = replace(square(64), m=65535 * small[0].bm + 1)
    assert "at the most" in register.violations(tall, small[0], H200)[0]


@pytest.mark.parametrize("trans", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("split_k", [0, 3])
@pytest.mark.parametrize("side", [1, 3])
def test_thin_is_exact_in_every_layout(side, split_k, trans, rng):
    config = TileConfig(vec=4, split_k=split_k, options=(("depth", 2), ("lanes", 4), ("teams", 4)))
    for m, n, k in ((side, 50, 60), (64, side, 64), (side, side, 33), (side, 20, 1)):
        a, b = operands(rng, m, n, k, trans)
        assert np.array_equal(pyclmm.matmul(a, b, kernel=("thin", config)), a @ b), (m, n, k)


def test_thin_refuses_what_is_not_thin(rng):
    with pytest.raises(pyclmm.UnsupportedError, match="is not thin"):
        pyclmm.matmul(np.ones((9, 4), "f4"), np.ones((4, 9), "f4"), kernel="thin")


def test_chains_of_integer_fmas_end_before_llvmpipe_ends_their_loops():
    """With K = 3072 sums of a tile of 4 x 4 lacked their end (Mesa 22.3)."""
    register, config = kernel_named("register"), tile(4, 4, 4, 4, 4, 4, 4)
    for k, fits in ((768, True), (3072, False)):
        problem = replace(problem_of(1, 21, k, np.dtype("f4"), "NT", reproducible=True), soft_fma=True)
        assert (register.violations(problem, config, LLVMPIPE) == []) is fits
        assert not register.violations(replace(problem, soft_fma=False), config, LLVMPIPE)
