"""`split` and `mma_split`: the error of parts, modelled in NumPy, and their kernels run without a GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pyclmm.kernels import Work, kernel_named
from pyclmm.kernels.nvidia import unit_cost
from pyclmm.kernels.nvidia.matrix_units import FLOAT16, TF32
from pyclmm.kernels.nvidia.split import as_real, lines_of, pitch
from pyclmm.problem.gemm import GemmProblem, alignment
from tests.simulators import interleaved
from tests.simulators.simulated import arrays_of
from tests.support.made_up import H200
from tests.support.oracle import one_by_one, real_lines
from tests.support.selection import few, slow

ZERO_LINE = -127  # of cl/nvidia/split.h
ROOM, GUESSED = (
    2,
    1024,
)  # of cl/nvidia/split.cl: powers of two left free; elements from which the exponent is estimated
NEVER = -(1 << 30)  # of cl/nvidia/split.h
CHUNK = 64  # bytes of hi, then of lo
SPLIT, MMA_SPLIT = kernel_named("split"), kernel_named("mma_split")
runs_kernels = interleaved.needs_clang


# --- models ---------------------------------------------------------------------------------------


def tf32(x):
    """cvt.rna.tf32: rounds to ten bits of fraction, to nearest, ties away from zero."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def top_exponents(largest, room):
    """e such that each magnitude times 2^-e lies in [2^14, 2^15), or *room* powers of two below."""
    e = np.maximum((largest.view(np.uint32) >> 23).astype(int) - 127 - 14 + room, -126)
    return np.where(largest == 0, ZERO_LINE, e)


def guessed_exponents(lines):
    """(exponents of a work-group's rows, whether its estimate was right)."""
    x = np.abs(lines)
    if lines.shape[1] > GUESSED:
        first = x[:, :GUESSED].max(1)
        guess = top_exponents(first, ROOM)
        if (np.ldexp(x.max(1).astype(np.float64), -guess) < np.where(first > 0, 2.0**15, 2.0**-200)).all():
            return guess, True
    return top_exponents(x.max(1), 0), lines.shape[1] <= GUESSED


def exponents(lines, together=4):
    """*together*: the lines of a work-group, which are estimated anew together."""
    groups = [lines[i : i + together] for i in range(0, len(lines), together)]
    return np.concatenate([guessed_exponents(group)[0] for group in groups])


def scaled(lines, together=4):
    return np.ldexp(lines, -exponents(lines, together)[:, None]).astype(np.float32)


def half_parts(lines, together=4):
    x = scaled(lines, together)
    hi = x.astype(np.float16)
    return hi, (x - hi.astype(np.float32)).astype(np.float16)


def tf32_parts(lines):
    hi = tf32(lines)
    return hi, tf32(lines - hi)


def scores(lines, together=4):
    """(score of each row, whether any element is lossy), as in split.h."""
    x = np.abs(scaled(lines, together))
    lossy = (x > 0) & (x < 2.0**-3)
    points = (x >= 2.0**5).sum(1) - 4 * lossy.sum(1)
    return np.where(x.max(1) > 0, points, lines.shape[1]), lossy.any()


def classes(m=40, n=50, k=300):
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    s = rng.integers(-30, 31, k)
    one_large, small = a.copy(), b.copy()
    one_large[7] *= 2.0**-26
    one_large[7, 0] = 1  # row 7 depends on one k ...
    small[0] *= 2.0**-34  # ... where all of B is small
    found = {
        "normal": (a, b),
        "uniform": (rng.random((m, k)), rng.random((k, n))),
        "each": (a * np.exp2(rng.integers(-20, 21, a.shape)), b * np.exp2(rng.integers(-20, 21, b.shape))),
        "rows": (a * np.exp2(rng.integers(-30, 31, (m, 1))), b * np.exp2(rng.integers(-30, 31, (1, n)))),
        "along K": (a * np.exp2(s), b * np.exp2(-s)[:, None]),
        "one row": (one_large, small),
        "triangle": (np.triu(a[:, :m]), b[:m] * np.exp2(-rng.integers(0, 25, (m, n)))),
        "few values": (np.round(a * 4) / 4 * (rng.random(a.shape) < 0.5), np.round(b * 4) / 4),
        "zero rows": (a * (np.arange(m) % 3 > 0)[:, None], b),
    }
    return {name: tuple(x.astype(np.float32) for x in pair) for name, pair in found.items()}


CLASSES = classes()
REFUSED = ("each", "along K", "one row", "triangle")
BOUND = 2.0**-20  # of split.h


def worst(got, a, b):
    """The largest error of an element, relative to its sum of magnitudes."""
    exact, scale = a.astype(np.float64) @ b.astype(np.float64), abs(a).astype(np.float64) @ abs(b)
    return np.max(abs(got - exact)[scale > 0] / scale[scale > 0])


# --- kernels --------------------------------------------------------------------------------------


def padded(x, pad):
    """*x* with *pad* elements of NaN behind each row."""
    held = np.full((*x.shape[:-1], x.shape[-1] + pad), np.nan, x.dtype)
    held[..., : x.shape[-1]] = x
    return held


class Call:
    """op(a) op(b) by `split` on a made-up device. Operands are stored as *trans* says, with padded rows."""

    def __init__(self, a, b, precision="high", trans="NN", conj=(False, False), pad=0, **more):
        kind, (m, k), n = a.dtype.name, a.shape[-2:], b.shape[-1]
        stored = [
            padded(np.swapaxes(x, -1, -2) if t == "T" else x, pad) for x, t in ((a, trans[0]), (b, trans[1]))
        ]
        row = [x.shape[-1] * x.itemsize for x in stored]
        self.problem = GemmProblem(
            m, n, k, kind, kind, kind, kind, trans[0] == "T", trans[1] == "T", *conj,
            *(x.shape[-1] for x in stored), n, *map(alignment, row), 4,
            precision=precision, c_type=kind, bias_type=kind, **more,
        )  # fmt: skip
        self.out = np.full((*a.shape[:-1], n), np.nan, a.dtype)
        self.arrays = arrays_of(self.problem, self.out, *stored)

    def work(self, tile=(128, 128), units=132, family=SPLIT):
        device = replace(H200, compute_units=units)
        config = next(c for c in family.configs(self.problem, device) if (c.bm, c.bn) == tile)
        assert not family.violations(self.problem, config, device)
        return family.launches(self.problem, config, device)

    def run(self, folder, tile=(128, 128), units=132, launches=slice(None), family=SPLIT):
        """Run it; returns the result and the workspace by name."""
        work = self.work(tile, units, family)
        spaces = interleaved.run(Work(work.launches[launches], work.workspace), self.arrays, folder)
        return self.out, {name.removeprefix("workspace:"): x for name, x in spaces.items()}


def wide_range(rng, shape, dtype):
    x = rng.standard_normal((*shape, 2)) * np.exp2(rng.integers(-25, 26, (*shape, 2)))
    return (x[..., 0] + 1j * x[..., 1] if dtype == "c8" else x[..., 0]).astype(dtype)


def small_integers(rng, shape, dtype):
    return (rng.integers(-3, 4, shape) + (1j * rng.integers(-3, 4, shape) if dtype == "c8" else 0)).astype(
        dtype
    )


PACKED = [
    ("f4", 1, "NN", (False, False), 0), ("f4", 1, "TT", (False, False), 3),
    ("f4", 2, "NT", (False, False), 0), ("f4", 1, "TN", (False, False), 0), ("c8", 0, "TN", (True, False), 0),
    ("c8", 1, "NN", (False, True), 0), ("c8", 1, "TT", (True, True), 3), ("c8", 2, "TT", (False, True), 0),
]  # fmt: skip


@runs_kernels
@pytest.mark.parametrize(("dtype", "split", "trans", "conj", "pad"), few(PACKED, 0, 1))
def test_rows_are_split_into_the_modelled_parts(folder, rng, dtype, split, trans, conj, pad):
    together = 8 if trans == "TN" else 4
    parts = {0: lambda x: (x,), 1: lambda x: half_parts(x, together), 2: tf32_parts}[split]
    for m, n, k in ((16, 24, 64), (13, 9, 70), (3, 10, 1030)):
        a, b = wide_range(rng, (m, k), dtype), wide_range(rng, (k, n), dtype)
        call = Call(a, b, "high" if split else "medium", trans, conj, pad)
        if split == 2:  # written by the product of float16 parts if they cannot be used
            call.arrays["workspace:quality"] = np.tile(np.array([NEVER, 1], np.int32), (m + 2 * n, 1))
        _, spaces = call.run(folder, launches=slice(1, 2) if split == 2 else slice(1))
        want = real_lines(*(x.conj() if c else x for x, c in zip((a, b), conj, strict=True)))
        line = pitch(call.problem, FLOAT16 if split == 1 else TF32, 2 if split else 1)
        for name, lines in zip(("packed_a", "packed_b"), want, strict=True):
            got = spaces[name].view(np.float16 if split == 1 else np.float32)[: len(lines) * line]
            got = got.reshape(len(lines), -1, len(parts(lines)), CHUNK // got.itemsize).swapaxes(1, 2)
            for part, model in enumerate(parts(lines)):
                mine = got[:, part].reshape(len(lines), -1)
                assert np.array_equal(mine[:, : lines.shape[1]], model), (m, n, k)
                assert (mine[:, lines.shape[1] :] == 0).all(), "zeros behind K"
        if split == 1:
            count = m + as_real(call.problem).n
            assert np.array_equal(
                spaces["exponents"].view(np.int32)[:count],
                np.concatenate([exponents(x, together) for x in want]),
            )
            groups = [x[i : i + together] for x in want for i in range(0, len(x), together)]
            quality = spaces["quality"].view(np.int32)[: 2 * len(groups)].reshape(-1, 2)
            assert np.array_equal(
                quality, [(scores(g, together)[0].min(), scores(g, together)[1]) for g in groups]
            )


GUESSES = {  # rows of 1500 elements, estimated from the first 1024 -> whether the estimate is right
    "normal": (lambda x: x, True),
    "three times as large later": (lambda x: x * np.where(np.arange(1500) < 1300, 1, 3), True),
    "much larger later": (lambda x: x * np.where(np.arange(1500) < 1300, 1, 50), False),
    "zeros first": (lambda x: x * (np.arange(1500) >= 1300), False),
    "zeros only": (lambda x: 0 * x, True),
    "tiny after zeros": (lambda x: x * 1e-38 * (np.arange(1500) >= 1300), False),
    "infinity later": (lambda x: np.where(np.arange(1500) == 1400, np.inf, x), False),
}


@runs_kernels
@pytest.mark.parametrize("name", GUESSES)
def test_a_wrong_estimate_of_an_exponent_is_corrected(folder, rng, name):
    change, does = GUESSES[name]
    a = np.clip(rng.standard_normal((4, 1500)), -3, 3)
    a[:, 0] = 2.5  # three times as large is then within ROOM
    a = change(a).astype(np.float32)
    call = Call(a, a.T[:, :1])
    assert lines_of(call.problem) == len(a)
    _, spaces = call.run(folder, launches=slice(1))
    got = spaces["exponents"].view(np.int32)[: len(a)]
    want, did = guessed_exponents(a)
    assert did == does
    assert np.array_equal(got, want)
    if np.isfinite(a).all():
        line = spaces["packed_a"].view(np.float16)[: len(a) * 47 * 64].reshape(len(a), 47, 2, 32)
        hi = line[:, :, 0].reshape(len(a), -1)[:, :1500]
        assert np.array_equal(hi, half_parts(a)[0])


PRODUCTS = [
    ("f4", "high", (200, 140, 130), (128, 128), 2, "NN"),  # two tiles a work-group
    ("f4", "high", (130, 140, 330), (64, 128), 2, "TN"),
    ("f4", "high", (140, 70, 97), (128, 64), 132, "NT"),
    ("c8", "high", (70, 75, 50), (128, 128), 2, "TT"),
    ("c8", "high", (70, 33, 90), (64, 128), 132, "NN"),
    ("c8", "medium", (70, 75, 100), (128, 128), 132, "NN"),
]


@runs_kernels
@pytest.mark.parametrize(("dtype", "precision", "shape", "tile", "units", "trans"), few(PRODUCTS, 0, 1))
def test_integers_are_exact(folder, rng, dtype, precision, shape, tile, units, trans):
    m, n, k = shape
    a, b = small_integers(rng, (m, k), dtype), small_integers(rng, (k, n), dtype)
    got, spaces = Call(a, b, precision, trans, pad=2).run(folder, tile, units)
    assert precision == "medium" or spaces["done"].view(np.int32)[0] == 1
    assert np.array_equal(got, a @ b)


@runs_kernels
@pytest.mark.parametrize("tile", [(64, 128), *slow((128, 64))])
def test_both_quartets_wait_equally_often_before_they_meet(folder, rng, tile):
    """Otherwise racecheck takes what they hand over for a race (docs/upstream/racecheck.md)."""
    call = Call(small_integers(rng, (200, 330), "f4"), small_integers(rng, (330, 140), "f4"))
    assert interleaved.unlike_meetings(call.work(tile, units=2), call.arrays, folder) == 0


@runs_kernels
@pytest.mark.parametrize(
    "name", ["normal", "each", *slow(*(x for x in CLASSES if x not in ("normal", "each")))]
)
def test_each_element_is_within_the_bound(folder, name):
    a, b = CLASSES[name]
    got, spaces = Call(a, b).run(folder)
    assert spaces["done"].view(np.int32)[0] == (name not in REFUSED)
    assert worst(got, a, b) < BOUND + 2.0**-22


@runs_kernels
@pytest.mark.parametrize("dtype", ["c8", *slow("f4")])
def test_infinities_and_nan_go_where_ieee_says(folder, rng, dtype):
    a, b = small_integers(rng, (20, 30), dtype), small_integers(rng, (30, 25), dtype)
    a[3, 5], a[7, 9], b[11, 13] = np.inf, np.nan, -np.inf
    got, _ = Call(a, b).run(folder)
    want = one_by_one(a, b)
    for part in ("real", "imag"):
        assert np.array_equal(getattr(got, part), getattr(want, part), equal_nan=True)


@runs_kernels
def test_overflow_and_small_rows_are_right(folder, rng):
    a, b = (abs(rng.standard_normal(s)).astype("f4") for s in ((20, 30), (30, 25)))
    got, _ = Call(a * np.float32(1e21), b * np.float32(1e19)).run(folder)
    assert np.isinf(got).all()
    a[3] *= np.float32(1e-36)
    b[7] *= np.float32(1e20) * np.exp2(rng.integers(-30, 31, 25)).astype("f4")
    got, _ = Call(a, b).run(folder)
    assert worst(got, a, b) < 30 * 2.0**-24


@runs_kernels
@pytest.mark.parametrize("dtype", ["c8", *slow("f4")])
def test_epilogues_and_stacks_are_exact(folder, rng, dtype):
    a, b = small_integers(rng, (2, 20, 30), dtype), small_integers(rng, (2, 30, 25), dtype)
    c, bias = small_integers(rng, (2, 20, 25), dtype), small_integers(rng, (25,), dtype)
    call = Call(a, b, batch_shape=(2,), has_c=True, c_strides=(25, 1), bias="row", bias_stride=1,
                batch_strides=((600,), (750,), (500,), (500,)))  # fmt: skip
    alpha, beta = (2 - 1j, 1j) if dtype == "c8" else (2, 3)
    call.arrays |= {"c": c, "bias": bias, "alpha": np.asarray(alpha, dtype), "beta": np.asarray(beta, dtype)}
    got, _ = call.run(folder, (64, 128))
    assert np.array_equal(got, (alpha * (a @ b) + beta * c + bias).astype(dtype))


@runs_kernels
@pytest.mark.parametrize("family", [SPLIT, MMA_SPLIT], ids=["split", "mma_split"])
def test_parts_of_one_product_of_a_stack_do_not_replace_anothers(folder, rng, family):
    """TF32 parts are written in the launch that multiplies the float16 parts of other products."""
    a, b = np.empty((4, 20, 70), "f4"), np.empty((4, 70, 25), "f4")
    for z, name in enumerate(("along K", "normal", "along K", "normal")):
        a[z], b[z] = CLASSES[name][0][:20, :70], CLASSES[name][1][:70, :25]
    call = Call(a, b, batch_shape=(4,), batch_strides=((1400,), (1750,), (500,), (500,)))
    got, spaces = call.run(folder, (64, 128) if family is SPLIT else (64, 64), family=family)
    assert spaces["done"].view(np.int32)[:4].tolist() == [0, 1, 0, 1]
    for z in range(4):
        assert worst(got[z], a[z], b[z]) < BOUND + 2.0**-22


@runs_kernels
@pytest.mark.parametrize("dtype", ["f4", *slow("c8")])
@pytest.mark.parametrize("tile", [(64, 64), *slow((128, 128))])
def test_mma_split_is_exact_on_integers(folder, rng, dtype, tile):
    a, b = small_integers(rng, (70, 145), dtype), small_integers(rng, (145, 67), dtype)
    got, spaces = Call(a, b, trans="TN").run(folder, tile, family=MMA_SPLIT)
    assert spaces["done"].view(np.int32)[0] == 1
    assert np.array_equal(got, a @ b)


@runs_kernels
@pytest.mark.parametrize("name", ["normal", *slow("along K")])
def test_mma_split_bounds_each_element(folder, name):
    a, b = CLASSES[name]
    got, spaces = Call(a, b).run(folder, (64, 64), family=MMA_SPLIT)
    assert spaces["done"].view(np.int32)[0] == (name == "normal")
    assert worst(got, a, b) < BOUND + 2.0**-22


@runs_kernels
def test_tf32_parts_of_a_long_row_are_at_the_right_offsets(folder):
    """The first and last elements of a row whose parts take more than 2^31 bytes."""
    depth, before = 2**28 + 64, 2**29  # and room where a wrapped offset would write
    line, held = np.zeros(depth, np.float32), np.zeros(before + 2 * depth, np.float32)  # never touched
    parts = held[before:]
    line[:4], line[-4:] = (1, 2, 3, 4), (5, 6, 7, 8)
    call = Call(np.zeros((1, 4), np.float32), np.zeros((4, 1), np.float32))
    work = MMA_SPLIT.launches(call.problem, MMA_SPLIT.configs(call.problem, H200)[0], H200)
    interleaved.run_one(
        work.launches[1].program,
        "pack_lines(source_a((__global float *)args[0], args[1], 1, args[1]), (__global uchar *)args[2],"
        f" 0, 0, {depth // 4 - 1}, 2);",  # so that one work-item has the first four and the last
        (line.ctypes.data, depth, parts.ctypes.data),
        folder,
    )
    hi, lo = parts[-32:].reshape(2, 16)
    assert parts[:4].tolist() == [1, 2, 3, 4]
    assert hi[-4:].tolist() == [5, 6, 7, 8]
    assert (lo == 0).all()


def test_splitting_short_lines_costs_their_number():
    """A work-group takes four lines, however short they are; long ones cost their bytes."""
    types = ("float32",) * 4
    short, longer, long = (
        unit_cost.splitting_seconds(GemmProblem(10**6, 64, k, *types), H200) for k in (8, 16, 4096)
    )
    assert short == longer > 1e-3
    assert long > 5 * short
