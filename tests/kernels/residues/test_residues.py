"""Products by residues: their errors, what is exact, and when the plain product is computed.

The bound is that of cl/residues/residues.h. References are exact sums of Python's whole numbers.
"""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import pyclmm
from pyclmm.checks.reference import error_ratio
from pyclmm.errors import UnsupportedError
from pyclmm.kernels import kernel_named
from pyclmm.kernels.residues import residues
from pyclmm.kernels.residues.moduli import MOST
from pyclmm.problem.canonical import problem_of
from pyclmm.selection.select import candidates
from tests.kernels.residues.conftest import in_blocks
from tests.support.made_up import DEVICE, H200
from tests.support.selection import few

U = 2.0**-53
M, N, K = 37, 29, 700


def normal(rng, shape):
    return rng.standard_normal(shape)


DATA = {
    "normal": normal,
    "uniform": lambda rng, s: rng.uniform(-1, 1, s),
    "positive": lambda rng, s: rng.uniform(0, 1, s),
    "half zeros": lambda rng, s: np.maximum(normal(rng, s), 0),
    "elements 2^+-20": lambda rng, s: normal(rng, s) * 2.0 ** rng.integers(-20, 21, s),
    "few bits": lambda rng, s: np.rint(normal(rng, s) * 100) / 64,
    "large": lambda rng, s: normal(rng, s) * 2.0**400,
    "small": lambda rng, s: normal(rng, s) * 2.0**-400,
}


def scaled_lines(rng, a, b):
    """Rows of a and columns of b times powers of two."""
    rows = 2.0 ** rng.integers(-300, 301, (a.shape[0], 1))
    return a * rows, b * 2.0 ** rng.integers(-300, 301, (1, b.shape[1]))


def cancelling(rng, a, b):
    """The second half of K takes the first half's sum away, but for one part in 2^40."""
    half = a.shape[1] // 2
    a[:, half : 2 * half] = a[:, :half]
    b[half : 2 * half] = -b[:half] * (1 + 2.0**-40)
    return a, b


def one_heavy_row(rng, a, b):
    """Row 0 of a has its weight where b is small."""
    a[0] = 2.0**-30 * a[0]
    a[0, 5] = 1.0
    b[5] *= 2.0**-40
    return a, b


def one_large_element(rng, a, b):
    """Element 3 of each row is 2^30 times the others, and it meets zeros."""
    a[:, 3] *= 2.0**30
    b[3] = 0
    return a, b


MADE = {
    "lines 2^+-300": scaled_lines,
    "cancelling": cancelling,
    "a row on small columns": one_heavy_row,
    "one large element": one_large_element,
}


def data(name, dtype=np.float64, seed=1):
    rng = np.random.default_rng(seed)
    draw = DATA.get(name, DATA["normal"])
    a, b = draw(rng, (M, K)), draw(rng, (K, N))
    if np.dtype(dtype).kind == "c":
        a, b = a + 1j * draw(rng, (M, K)), b + 1j * draw(rng, (K, N))
    return MADE[name](rng, a, b) if name in MADE else (a, b)


def whole(x):
    """(whole numbers, exponent): each element of a line is one of these times 2^exponent."""
    mantissas, exponents = np.frexp(x)
    least = int(exponents[x != 0].min(initial=0)) - 53
    return [
        int(m * 2**53) << int(e) - 53 - least if m else 0 for m, e in zip(mantissas, exponents, strict=True)
    ], least


def exact(a, b):
    """(a @ b, |a| @ |b|) as fractions, for a few rows and columns: {(i, j): (sum, magnitude)}."""
    found = {}
    for i in (0, 1, a.shape[0] - 1):
        row, up = whole(a[i])
        for j in (0, 3, b.shape[1] - 1):
            column, down = whole(b[:, j])
            products = [x * y for x, y in zip(row, column, strict=True)]
            unit = Fraction(2) ** (up + down)
            found[i, j] = (sum(products) * unit, sum(map(abs, products)) * unit)
    return found


def as_real(a, b):
    """The real product that has re and im of a @ b in turn as its columns."""
    rows = np.stack([a.real, a.imag], axis=-1).reshape(a.shape[0], -1)
    re = np.stack([b.real, -b.imag], axis=1).reshape(-1, b.shape[1])
    im = np.stack([b.imag, b.real], axis=1).reshape(-1, b.shape[1])
    return rows, np.stack([re, im], axis=-1).reshape(rows.shape[1], -1)


def within_bound(got, a, b, depth):
    for (i, j), (value, magnitude) in exact(a, b).items():
        error = abs(Fraction(float(got[i, j])) - value)
        allowed = (max(8, depth / 4) + 1) * Fraction(U) * magnitude
        assert error <= allowed, (i, j, float(error / magnitude) / U)


@pytest.mark.parametrize("name", [*DATA, *MADE])
def test_every_element_is_within_the_bound(run, name):
    a, b = data(name)
    found = run(a, b)
    if found.count:
        within_bound(found.result, a, b, K)
    else:
        assert error_ratio(found.result, a, b) <= K + 2


@pytest.mark.parametrize("name", ["normal", "few bits", "lines 2^+-300"])
def test_complex_parts_are_within_the_bound(run, name):
    a, b = data(name, np.complex128)
    found = run(a, b)
    assert found.count > 0
    assert found.products == 2 * found.count
    rows, columns = as_real(a, b)
    within_bound(found.result.view(np.float64), rows, columns, 2 * K)


@pytest.mark.parametrize(
    "name", ["normal", "uniform", "positive", "lines 2^+-300", "few bits", "large", "small"]
)
def test_usual_data_are_multiplied_by_residues(run, name):
    assert run(*data(name)).count > 0


@pytest.mark.parametrize("name", ["elements 2^+-20", "a row on small columns"])
def test_data_that_residues_would_spoil_get_the_plain_product(run, name):
    assert run(*data(name)).count == 0


@pytest.mark.parametrize("bits", [1, 3, 8, 20, 22])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_whole_numbers_are_exact_with_no_more_moduli_than_they_need(run, bits, dtype):
    rng = np.random.default_rng(bits)
    a, b = (rng.integers(-(2**bits) + 1, 2**bits, s).astype(dtype) for s in ((M, 90), (90, N)))
    if a.dtype.kind == "c":
        a, b = a + 1j * a[::-1], b - 1j * b[:, ::-1]
    found = run(a, b)
    assert np.array_equal(found.result, a @ b)
    assert 0 < found.count <= (2 * bits + 10) // 6 + 1


def test_operands_of_unequal_bits_are_exact(run):
    rng = np.random.default_rng(3)
    a, b = rng.integers(-3, 4, (M, 60)) * 1.0, rng.integers(-(2**44), 2**44, (60, N)) * 1.0
    found = run(a, b)
    assert found.bits_a < 4 < found.bits_b
    assert found.count < 9
    assert np.array_equal(found.result, a @ b)


def test_more_bits_take_more_moduli(run):
    rng = np.random.default_rng(0)
    counts = []
    for bits in (2, 10, 20, 30):
        a, b = (rng.integers(0, 2**bits, s).astype(np.float64) for s in ((20, 60), (60, 20)))
        counts.append(run(a, b).count)
    assert counts == sorted(set(counts))


@pytest.mark.parametrize("count", range(1, 16))
def test_each_number_of_moduli_gives_whole_numbers_back(run, count):
    """Operands whose product needs nearly all of the moduli's bits: one lost or wrong residue shows."""
    rng = np.random.default_rng(count)
    bits = max(1, int((7.6 * count - 6) / 2))
    a, b = (rng.integers(2 ** (bits - 1), 2**bits, s) | 1 for s in ((40, 8), (8, 40)))
    a[:, 0], b[0] = -a[:, 0], b[0]
    bits_of_double = a.astype(np.float64), b.astype(np.float64)
    if bits > 53:
        pytest.skip("the numbers are no doubles")
    found = run(*bits_of_double)
    wanted = [
        [float(sum(int(x) * int(y) for x, y in zip(row, column, strict=True))) for column in b.T] for row in a
    ]
    assert found.count > 0
    assert np.array_equal(found.result, np.array(wanted))


def native(a, b, **options):
    return pyclmm.matmul(a, b, kernel="naive", **options)


def by_residues(a, b, **options):
    return pyclmm.matmul(a, b, kernel="residues", precision="high", **options)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_ends_as_natively(value, device):
    if not device.has_fp64:
        pytest.skip("needs cl_khr_fp64")
    a, b = data("normal")
    a[2, 7] = value
    b[9, 4] = value
    got, wanted = by_residues(a, b), native(a, b)
    assert not np.isfinite(wanted).all()
    assert np.array_equal(got[~np.isfinite(wanted)], wanted[~np.isfinite(wanted)], equal_nan=True)
    assert np.allclose(got[np.isfinite(wanted)], wanted[np.isfinite(wanted)], rtol=1e-9)


def test_overflow_ends_as_natively(device):
    if not device.has_fp64:
        pytest.skip("needs cl_khr_fp64")
    a, b = data("positive")
    a, b = a * 2.0**511, b * 2.0**511
    assert np.array_equal(np.isinf(by_residues(a, b)), np.isinf(native(a, b)))
    a[1] *= 2.0**10
    assert np.array_equal(np.isinf(by_residues(a, b)), np.isinf(native(a, b)))


def test_subnormal_operands_and_results(run):
    rng = np.random.default_rng(5)
    a = rng.integers(-40, 41, (M, 50)) * 2.0**-1074
    b = rng.integers(-40, 41, (50, N)) * 2.0**20
    found = run(a, b)
    assert found.count > 0
    assert np.array_equal(found.result, a @ b)
    b = b * 2.0**-24  # results lie between subnormal numbers: rounded once
    whole_sums = np.rint(a * 2.0**1000 @ b * 2.0**74)
    assert np.array_equal(run(a, b).result, whole_sums * 2.0**-1074)


def test_ties_are_decided_by_every_bit(run):
    """1 + 2^-53 lies halfway between two numbers; 2^-100 more decides."""
    a = np.array([[1.0, 2.0**-53, 2.0**-48], [1.0, 2.0**-53, -(2.0**-48)], [1.0, 2.0**-53, 0.0]])
    b = np.array([[1.0], [1.0], [2.0**-52]])
    found = run(a, b)
    assert found.count > 0
    assert found.result[:, 0].tolist() == [1 + 2.0**-52, 1.0, 1.0]


def test_zeros(run):
    a, b = data("normal")
    a[3] = 0
    b[:, 2] = 0
    found = run(a, b)
    assert found.count > 0
    within_bound(found.result, a, b, K)
    zeros = run(np.zeros_like(a), b).result
    assert not zeros.any()
    assert not np.signbit(zeros).any()
    assert not np.signbit(found.result[3]).any()


LAYOUTS = [(ta, tb) for ta in "NTC" for tb in "NTC"]


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize(("ta", "tb"), few(LAYOUTS, 0, 1))
def test_layouts_and_the_epilogue(ta, tb, dtype, device):
    if not device.has_fp64:
        pytest.skip("needs cl_khr_fp64")
    rng = np.random.default_rng(8)

    def draw(*shape):
        x = rng.integers(-9, 10, shape).astype(dtype)
        return x + 1j * rng.integers(-9, 10, shape) if x.dtype.kind == "c" else x

    a, b, c, bias = draw(2, 33, 65)[0], draw(65, 70)[:, ::2], draw(33, 35), draw(35)
    ops = {"N": lambda x: x, "T": lambda x: x.T, "C": lambda x: x.conj().T}
    given = [np.ascontiguousarray(ops[t](x)) for t, x in ((ta, a), (tb, b))]
    how = {"trans_a": ta, "trans_b": tb, "alpha": 3.0, "beta": -2.0, "precision": "high"}
    got = pyclmm.gemm(*given, c, bias=bias, kernel="residues", **how)
    assert np.array_equal(got, 3 * (a @ b) - 2 * c + bias)


def test_stacks_and_strided_results(device):
    if not device.has_fp64:
        pytest.skip("needs cl_khr_fp64")
    rng = np.random.default_rng(9)
    a, b = rng.integers(-99, 100, (3, 1, 17, 40)) * 1.0, rng.integers(-99, 100, (2, 40, 21)) * 1.0
    out = np.zeros((3, 2, 34, 21))
    by_residues(a, b, out=out[:, :, ::2])
    assert np.array_equal(out[:, :, ::2], a @ b)
    assert not out[:, :, 1::2].any()
    got = pyclmm.gemm(a[0, 0], b[0], activation="relu", kernel="residues", precision="high")
    assert np.array_equal(got, np.maximum(a[0, 0] @ b[0], 0))


def test_k_in_blocks(run, monkeypatch):
    in_blocks(monkeypatch, 256)
    a, b = data("normal")
    found = run(a, b)
    assert found.count > 0
    within_bound(found.result, a, b, K)
    c, d = data("normal", np.complex128)
    rows, columns = as_real(c, d)
    within_bound(run(c, d).result.view(np.float64), rows, columns, 2 * K)


def test_many_blocks_of_k(run, monkeypatch):
    """Digits of many blocks add up to a large multiple of P."""
    in_blocks(monkeypatch, 128)
    rng = np.random.default_rng(4)
    a, b = (normal(rng, s) * 2.0 ** rng.integers(-4, 1, s) for s in ((9, 1500), (1500, 11)))
    found = run(a, b)
    assert found.count == MOST
    within_bound(found.result, a, b, 1500)


def test_long_lines(run):
    """More elements than a byte counts: all of them are known to be large, so few moduli serve."""
    a, b = (np.random.default_rng(5).uniform(0.5, 1, s) for s in ((3, 9000), (9000, 5)))
    found = run(a, b)
    assert found.count == 13
    within_bound(found.result, a, b, 9000)


def test_what_it_refuses(device):
    kernel = kernel_named("residues")

    def refusal(dtype, precision="high", k=9):
        return kernel.refuses(problem_of(9, 9, k, np.dtype(dtype), precision=precision), device)

    assert "multiplies float64 with precision='high' or 'medium', complex128" in refusal(np.float32)
    assert "precision='high' or 'medium', not 'highest'" in refusal(np.float64, "highest")
    assert "K must be 1 to" in refusal(np.float64, k=0)
    assert "K must be 1 to" in refusal(np.complex128, k=2**20)
    with pytest.raises(UnsupportedError, match="precision='high'"):
        pyclmm.matmul(np.eye(3), np.eye(3), kernel="residues")


def test_high_is_never_slower_than_highest(device):
    """The estimate chooses residues only where it says that they are faster."""
    plan = pyclmm.Matmul(np.eye(8), np.eye(8), precision="high")
    assert plan.kernel != "residues"


@pytest.mark.parametrize(("dtype", "k"), [(np.float64, 128), (np.float64, 1024), (np.complex128, 700)])
def test_the_estimate_knows_which_data_are_served(run, dtype, k):
    """Where normal data would get the plain product, the estimate counts that too."""
    rng = np.random.default_rng(2)

    def draw(*shape):
        x = rng.standard_normal(shape).astype(dtype)
        return x + 1j * rng.standard_normal(shape) if x.dtype.kind == "c" else x

    for depth in (k, 16):
        problem = problem_of(256, 256, depth, np.dtype(dtype), precision="high")
        assert residues.expected_count(problem) == run(draw(256, depth), draw(depth, 256)).count


def test_a_device_with_the_units_takes_them_for_large_products_only():
    kernels = {}
    for dtype, n in itertools.product(("float64", "complex128"), (256, 1024, 8192)):
        problem = problem_of(n, n, n, np.dtype(dtype), precision="high")
        kernels[dtype, n] = next(candidates(problem, H200, "auto")).kernel.name
    assert kernels["float64", 8192] == kernels["complex128", 8192] == "residues"
    assert "residues" not in (kernels["float64", 256], kernels["float64", 1024], kernels["complex128", 256])


def test_sums_that_must_be_chains_are_refused():
    with pytest.raises(UnsupportedError, match="not in chains of fused multiply-adds"):
        pyclmm.matmul(np.eye(3), np.eye(3), kernel="residues", precision="high", reproducible=True)


def test_kernels_with_barriers_may_not_return_at_once_on_pocl():
    """They lose work-items there (GATE in cl/include/gemm.h)."""
    pocl = replace(DEVICE, kind="cpu", vendor="pocl", local_mem_size=1 << 19)
    problem = problem_of(64, 64, 1000, np.dtype(np.float64), precision="high")
    families = (kernel_named("register"), kernel_named("naive"))
    kernel = residues.Residues(families, families)
    found = {}
    for device in (pocl, replace(pocl, vendor="intel")):
        work = kernel.launches(problem, kernel.configs(problem, device)[0], device)
        found[device.vendor] = {x.program.source for x in work.launches if x.program.define("GATE")}
    assert found["pocl"] == {"textbook/naive.cl"}
    assert "textbook/naive.cl" not in found["intel"]
