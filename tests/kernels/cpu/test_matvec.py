"""`matvec`, a kernel for CPU devices: a matrix times a vector, or a few."""

import dataclasses
import itertools

import numpy as np
import pytest

import pyclmm
from pyclmm.kernels import kernel_named
from pyclmm.kernels.device import Caches
from pyclmm.problem.canonical import checked_gemm, problem_of
from pyclmm.problem.dtypes import dtype_of
from pyclmm.problem.gemm import Operand
from pyclmm.selection.select import candidates
from tests.support.cases import small_integers
from tests.support.made_up import dense_problem as problem
from tests.support.selection import slow


@pytest.mark.parametrize("dtype", ["f4", "f8", "u4"])
@pytest.mark.parametrize("length", [1, 9, 40, *slow(3, 8, 5000)])
def test_matvec_reads_either_operand_along_either_axis(matvec, dtype, length, rng):
    for k, order in itertools.product((1, 7, 8, 65, 300), "CF"):
        w, x = small_integers(rng, (length, k), dtype), small_integers(rng, (k,), dtype)
        w = np.asarray(w, order=order)
        assert np.array_equal(matvec(w, x), w @ x)
        assert np.array_equal(matvec(x, w.T), x @ w.T)


@pytest.mark.parametrize("dtype", ["i1", "bfloat16", *slow("?", "u2", "f2")])
def test_matvec_widens_narrow_elements(matvec, dtype, rng):
    dtype = dtype_of(dtype) if dtype == "bfloat16" else np.dtype(dtype)
    exact = dtype.kind in "fV"  # integers may overflow, and wrap around then
    low, end = (-3, 4) if exact else (-(dtype.kind == "i") << 7, 128)
    for (n, k), order in itertools.product(((1, 9), (37, 70), (600, 129)), "CF"):
        w, x = (rng.integers(low, end, shape).astype(dtype) for shape in ((k, n), (k,)))
        got = matvec(x, np.asarray(w, order=order))
        wide = (x.astype("f4"), w.astype("f4")) if exact else (x, w)
        assert np.array_equal(got, np.matmul(*wide).astype(got.dtype))


@pytest.mark.parametrize("dtype", ["i1", "f4", "c8"])
@pytest.mark.parametrize(("m", "n"), [(2, 37), (3, 4), (64, 65), (41, 5)])
def test_matvec_multiplies_a_few_vectors_along_k(matvec, dtype, m, n, rng):
    for k in (2, 7, 16, 33, 100):
        a, b = small_integers(rng, (m, k), dtype), small_integers(rng, (n, k), dtype)
        if dtype == "c8":
            a, b = a * (1 + 2j), b * (2 - 1j)
        assert np.array_equal(matvec(a, b.T), a @ b.T), k


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("m", [1, 4])
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_numbers_that_two_vectors_load_count_once(m, value, rng):
    """The last vector of a row overlaps the one before. What it shares with that may be infinite, or NaN."""
    for at in range(17, 33):
        a, b = small_integers(rng, (m, 35), "f4"), small_integers(rng, (5, 35), "f4")
        b[:, at] = value
        a[:, at] = 2
        assert np.array_equal(pyclmm.matmul(a, b.T, kernel="matvec"), a @ b.T, equal_nan=True)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("dtype", ["f4", "c8", "i1", *slow("f2", "f8", "c16", "i8")])
@pytest.mark.parametrize("rows", [1, 3, 20])
def test_matvec_reads_a_vector_with_gaps(rows, dtype, rng):
    """Conjugated or not, by either operand, one product and a stack; what lies in the gaps is not read."""
    for k, step, stack in itertools.product((1, 7, 16, 35, 100), (2, 3), ((), (5,))):
        w = small_integers(rng, (*stack, rows, k), dtype)
        wide = np.full((*stack, k * step, 1), 100 if dtype[0] == "i" else np.nan, dtype)
        wide[..., ::step, :] = small_integers(rng, (*stack, k, 1), dtype)
        if dtype[0] == "c":
            w, wide = w * np.complex64(1 + 2j), wide * np.complex64(2 - 1j)
        x = wide[..., ::step, :]
        np.testing.assert_array_equal(pyclmm.matmul(w, x, kernel="matvec"), w @ x)
        got = pyclmm.gemm(x, w.swapaxes(-1, -2), trans_a="C", kernel="matvec")
        np.testing.assert_array_equal(got, x.conj().swapaxes(-1, -2) @ w.swapaxes(-1, -2))


@pytest.mark.usefixtures("on_cpu")
def test_matvec_converts_every_float16_exactly():
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    got = pyclmm.matmul(np.ones((1, 1), np.float32), x[None], kernel="matvec")
    assert got.dtype == np.float32
    assert np.array_equal(got[0], x.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("trans", ["N", "T", "C"])
@pytest.mark.parametrize("length", [40, *slow(1, 9, 3000)])
def test_a_complex_matvec_is_exact_conjugated_or_not(matvec, length, trans, rng):
    def complex_integers(*shape):
        return small_integers(rng, shape, "c8") + 1j * small_integers(rng, shape, "c8")

    ops = {"N": lambda x: x, "T": lambda x: x.T, "C": lambda x: x.conj().T}
    for k in (1, 8, 65, 300):
        row, matrix = complex_integers(1, k), complex_integers(length, k)
        w = matrix if trans != "N" else np.ascontiguousarray(matrix.T)
        for row_trans in "NC":
            x = row if row_trans == "N" else np.ascontiguousarray(row.conj().T)
            assert np.array_equal(matvec(x, w, trans_a=row_trans, trans_b=trans), row @ ops[trans](w)), k
            v = matrix if trans == "N" else np.ascontiguousarray(matrix.T)
            y = np.ascontiguousarray(row.T) if row_trans == "N" else row.conj()
            assert np.array_equal(matvec(v, y, trans_a=trans, trans_b=row_trans), ops[trans](v) @ row.T), k


def test_each_compute_unit_has_its_columns_of_the_matrix(cpu):
    """With four compute units. Short pieces of rows from memory are avoided: K is divided instead."""

    def chosen(n, k, **given):
        config = kernel_named("matvec").configs(problem(1, n, k, **given), cpu)[0]
        return config.bn, config.split_k

    assert chosen(4400, 1000) == (1104, 1)
    assert chosen(4000, 1000)[1] > 1  # pieces of less than a page
    assert chosen(40_000, 100) == (3336, 1)  # 12 pieces, three a unit
    assert chosen(1000, 1000) == (256, 1)  # 1 KB, but the second-level caches hold the matrix
    assert chosen(1000, 2000)[1] > 1
    assert chosen(1000, 2000, reproducible=True) == (256, 1)  # K is not divided
    assert chosen(4000, 1000, trans_b=True) == (4096, 1)  # by rows of the matrix


@pytest.mark.parametrize("units", [2, 4, 16, 64])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 4096, 4096), (4096, 1, 4096), (1, 8192, 8192)])
def test_a_vector_takes_matvec_on_few_cores_and_on_many(cpu, units, m, n, k):
    """`packed` took 1.6 times as long on 16 cores of a Xeon."""
    caches = Caches(l1=48 << 10, l2=2 << 20, l3=300 << 20, line=64)
    machine = dataclasses.replace(cpu, caches=caches, compute_units=units, max_clock_mhz=2100)
    found = next(candidates(problem_of(m, n, k, np.dtype("f4"), "NN"), machine, "auto"))
    assert found.kernel.name == "matvec"


@pytest.mark.usefixtures("on_cpu")
def test_a_few_rows_times_a_matrix_along_k_take_matvec(cpu):
    """`packed` of the transposed product reads the matrix as rows in place, and with more rows keeps up."""
    caches = Caches(32 << 10, 1 << 20, 64)
    machine = dataclasses.replace(cpu, caches=caches, max_clock_mhz=3000, vendor="pocl")

    def chosen(m, n, k, layout):
        return next(candidates(problem_of(m, n, k, np.dtype("f4"), layout), machine, "auto")).kernel.name

    assert [chosen(m, 4000, 4000, "NT") for m in (1, 2, 8)] == ["matvec"] * 3
    assert chosen(4000, 8, 4000, "NT") == "matvec"
    others = chosen(8, 4000, 4000, "NN"), chosen(512, 512, 512, "NT"), chosen(64, 1000, 16, "NT")
    assert [*others, chosen(32, 4000, 4000, "NT")] == ["packed"] * 4


def test_a_dot_product_of_two_vectors_is_read_along_k(cpu):
    """`matvec_columns` adds to one sum of each column in memory: 10 times as slow for a long column."""
    matvec = kernel_named("matvec")

    def entry(**given):
        dot = problem(1, 1, 5000, **given)
        (config,) = matvec.configs(dot, cpu)[:1]
        launch = matvec.launches(dot, config, cpu).launches[0]
        return launch.kernel, launch.program.define("ROWS")

    assert entry() == ("matvec_rows", 1)
    assert entry(trans_a=True, lda=3)[0] == entry(ldb=3)[0] == "matvec_columns"
    assert entry(reproducible=True)[0] == "matvec_columns"  # in order


def test_a_work_group_computes_several_products_of_a_long_stack(cpu):
    """With four compute units. Not across K, and not with ranges of K."""
    matvec = kernel_named("matvec")

    def groups(stack, layout="NT", m=1, config=None):
        p = problem_of(m, 1, 300, np.dtype("f4"), layout, stack=(stack,))
        launch = matvec.launches(p, config or matvec.configs(p, cpu)[0], cpu).launches[0]
        return launch.global_size

    assert [groups(stack) for stack in (24, 47)] == [(1, 1, 24), (1, 1, 47)]
    assert groups(48) == (1, 1, 24)
    assert groups(100_000) == (1, 1, 25)
    assert groups(100_000, m=7) == (1, 1, 25)
    assert groups(100_000, "TN", m=7) == (1, 1, 100_000)
    divided = dataclasses.replace(matvec.configs(problem(1, 1, 300), cpu)[0], split_k=3)
    assert groups(100_000, config=divided) == (1, 3, 100_000)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("kernel", ["matvec", "small", "packed"])
@pytest.mark.parametrize(("m", "n", "stack"), [(1, 1, ()), (1, 1, (5,)), (1, 700, ()), (3, 1, (2,))])
def test_ranges_of_k_are_one_launch_in_which_the_last_adds_their_sums(kernel, m, n, stack, rng):
    """Its counters begin each call as they began the first. Many partial sums are lent for it, few stay."""
    config = pyclmm.TileConfig(tm=min(m, 2), tn=1, bn=512, vec=4 if kernel == "matvec" else 1, split_k=5)
    if kernel == "packed":
        config = pyclmm.TileConfig(bm=2, bn=24, bk=8, tm=2, tn=8, vec=4, split_k=5)
    for k in (100, 997):
        a, b = small_integers(rng, (*stack, m, k), "f4"), small_integers(rng, (*stack, k, n), "f4")
        plan = pyclmm.Matmul(a, b, kernel=(kernel, config))
        for _ in range(3):
            assert np.array_equal(plan(a, b), a @ b)
            a += 1


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("kernel", ["matvec", "small"])
def test_a_long_stack_in_ranges_has_a_counter_a_product_at_most(kernel):
    stack = 1000
    a, b = np.ones((stack, 1, 100), "f4"), np.ones((stack, 100, 1), "f4")
    config = pyclmm.TileConfig(tm=1, tn=1, bn=512, vec=4 if kernel == "matvec" else 1)
    both = [
        pyclmm.Matmul(a, b, kernel=(kernel, dataclasses.replace(config, split_k=ranges))) for ranges in (1, 2)
    ]
    whole, divided = (plan.workspace_nbytes for plan in both)
    assert 0 < divided - whole - 2 * a.itemsize * stack <= 4 * stack


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("dtype", ["f4", "c8", "i2", "f2", *slow("f8", "c16", "u1")])
@pytest.mark.parametrize("stack", [(), (3,), (500,)])
def test_dot_products_are_exact_alone_and_in_stacks(dtype, stack, rng):
    for k in (1, 7, 8, 33, 300, *((30_001,) if not stack else ())):
        a, b = (small_integers(rng, (*stack, 1, k), dtype) * (1 if dtype != "c8" else 1 - 2j) for _ in "ab")
        got = pyclmm.gemm(a, b, trans_b="C", kernel="matvec")
        wide = "c16" if dtype.startswith("c") else "i8"
        expected = np.einsum("...ik,...jk->...ij", a.astype(wide), b.astype(wide).conj())
        assert np.array_equal(got, expected.astype(got.dtype)), k


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("dtype", ["f4", "c8"])
def test_a_dot_product_of_any_length_is_exact(dtype, rng):
    """A lone one is four chains of vectors; vectors that are no whole four, and numbers, are left over."""
    x, y = (small_integers(rng, (400,), dtype) for _ in range(2))
    sums = np.cumsum(x * y)
    for length in range(1, 400):
        got = pyclmm.matmul(x[:length], y[:length], kernel="matvec")
        assert got == sums[length - 1], length


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("dtype", ["f4", "c8"])
@pytest.mark.parametrize("rows", [2, 3, 4, 9])
def test_a_few_rows_of_any_length_are_exact(dtype, rows, rng):
    """As many are read at a time as there are, each in several chains: any number of vectors is left over."""
    w, x = small_integers(rng, (rows, 200), dtype), small_integers(rng, (200,), dtype)
    for length in range(1, 200):
        got = pyclmm.matmul(w[:, :length], x[:length], kernel="matvec")
        assert np.array_equal(got, w[:, :length] @ x[:length]), length


def test_no_row_is_read_twice_where_there_are_few(cpu):
    def rows(length):
        return kernel_named("matvec").configs(problem(length, 1, 1000), cpu)[0].tm

    assert [rows(n) for n in (1, 2, 7, 8, 9, 1001)] == [1, 2, 7, 8, 8, 8]


def test_a_long_dot_product_with_gaps_is_not_summed_in_memory(cpu):
    machine = dataclasses.replace(cpu, compute_units=2, max_clock_mhz=2600)
    x, y = (Operand((10**6,), (stride,), np.dtype("f8")) for stride in (16, 8))
    assert next(candidates(checked_gemm(x, y).problem, machine, "auto")).kernel.name == "small"


def test_a_stack_of_matrices_stored_along_m_is_not_read_by_parts_of_rows(cpu):
    machine = dataclasses.replace(cpu, compute_units=2, max_clock_mhz=2600)
    x = Operand((3, 1944, 303), (4 * 303 * 1944, 4, 4 * 1944), np.dtype("f4"))
    y = Operand((3, 303, 1), (4 * 303, 4, 4), np.dtype("f4"))
    assert next(candidates(checked_gemm(x, y).problem, machine, "auto")).kernel.name == "matvec"


@pytest.mark.usefixtures("on_cpu")
def test_matvec_refuses_what_it_cannot_read(device):
    matvec = kernel_named("matvec")
    assert "not both operands are stored along K" in matvec.refuses(problem(2, 3, 4), device)
    assert "not both" in matvec.refuses(problem(2, 3, 4, trans_a=True, trans_b=True), device)
    assert matvec.refuses(problem(2, 3, 4, trans_b=True), device) is None
    assert "at most 64: 65 x 66" in matvec.refuses(problem(65, 66, 4, trans_b=True), device)
    assert "not both" in matvec.refuses(problem(3, 2, 4, ldb=5), device)
    assert matvec.refuses(problem(3, 1, 4, ldb=2), device) is None
    assert matvec.refuses(problem(3, 1, 4), device) is None
