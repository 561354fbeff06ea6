"""`small`, a kernel for CPU devices: long stacks of small products, and small results of long sums."""

import dataclasses
import itertools

import numpy as np
import pytest

import pyclmm
from pyclmm.checks.layouts import resized
from pyclmm.kernels import kernel_named
from pyclmm.kernels.device import Target
from pyclmm.opencl.devices import default_device, device_info
from pyclmm.problem.canonical import checked_gemm, problem_of
from pyclmm.problem.gemm import Operand
from pyclmm.selection.select import candidates
from tests.support.cases import small_integers
from tests.support.guarded import before_a_guard
from tests.support.made_up import dense_problem as problem
from tests.support.processes import in_a_process_of_its_own
from tests.support.selection import slow

SMALL = kernel_named("small")


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("dtype", ["f4", "c8", "i1", *slow("f2", "f8", "u8", "?", "c16")])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (3, 3), (1, 7), (8, 5)])
def test_stacks_are_exact_in_any_layout(dtype, m, n, rng):
    wide = {"c": "c16", "b": "?"}.get(np.dtype(dtype).kind, "i8")
    for stack, k in (((), 9), ((1,), 1), ((5,), 4), ((3, 41), 8), ((301,), 3)):
        for trans_a, trans_b in ("NN", "TC", "CN"):
            a = small_integers(rng, (*stack, *((m, k) if trans_a == "N" else (k, m))), dtype)
            b = small_integers(rng, (*stack[1:], *((k, n) if trans_b == "N" else (n, k))), dtype)
            if wide == "c16":
                a, b = a * (1 - 2j), b * (2 + 1j)
            a, b = a.astype(dtype), b.astype(dtype)
            ops = {
                "N": np.asarray,
                "T": lambda x: x.swapaxes(-1, -2),
                "C": lambda x: x.conj().swapaxes(-1, -2),
            }
            got = pyclmm.gemm(a, b, trans_a=trans_a, trans_b=trans_b, kernel="small")
            expected = ops[trans_a](a.astype(wide)) @ ops[trans_b](b.astype(wide))
            assert np.array_equal(got, expected.astype(got.dtype)), (stack, k, trans_a, trans_b)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("dtype", ["f4", "c8", *slow("i4", "f8")])
def test_ranges_of_a_long_k_are_added_with_the_epilogue(dtype, rng):
    for stack in ((), (2,)):
        a, b = (small_integers(rng, (*stack, *shape), dtype) for shape in ((3, 70_001), (70_001, 5)))
        c, bias = small_integers(rng, (*stack, 3, 5), dtype), small_integers(rng, (5,), dtype)
        got = pyclmm.gemm(a, b, c, bias=bias, alpha=2, beta=-3, kernel="small")
        assert np.array_equal(got, 2 * (a @ b) - 3 * c + bias)


def test_k_is_divided_where_few_products_leave_units_without_work(cpu):
    """With four compute units."""

    def ranges(k, stack=(), **given):
        dot = dataclasses.replace(problem(3, 3, k, **given), batch_shape=stack)
        return SMALL.configs(dot, cpu)[0].split_k

    assert ranges(10**6) == 16
    assert ranges(20_000) == 4
    assert ranges(8191) == 1
    assert ranges(10**6, stack=(4,)) == 4
    assert ranges(10**6, stack=(100,)) == 1
    assert ranges(10**6, reproducible=True) == 1
    assert SMALL.configs(problem(70, 70, 10**6), cpu)[0].split_k == 1


@pytest.mark.parametrize("units", [2, 16])
def test_auto_takes_it_for_what_is_small_and_many_or_long(cpu, units):
    machine = dataclasses.replace(cpu, compute_units=units, max_clock_mhz=2500)

    def chosen(m, n, k, *stack):
        found = candidates(problem_of(m, n, k, np.dtype("f4"), stack=stack), machine, "auto")
        return next(found).kernel.name

    assert chosen(1, 1, 3, 100_000) == "small"
    assert chosen(1, 1, 16, 100_000) == chosen(1, 1, 60, 100_000) == "matvec"
    assert chosen(3, 3, 3, 20_000) == chosen(4, 4, 4, 20_000) == "small"
    assert chosen(3, 3, 10**6) == "small"
    assert chosen(1, 1, 10**7) == chosen(1, 1, 1000, 1000) == "matvec"
    assert chosen(32, 32, 32, 1000) == chosen(40, 40, 100, 10) == "packed"


def test_auto_takes_it_for_few_rows_and_columns_of_a_long_k(cpu):
    """As measured with PoCL 3.0 on Zen 5: 5 x 7 0.26 ms, 0.55 by tiles of `packed` that have few rows; 19 x 4
    50 us, 196 by `packed`."""
    machine = dataclasses.replace(cpu, target=Target(512), compute_units=2, max_clock_mhz=2500)
    for m, n, k in ((5, 7, 191_195), (5, 5, 100_000), (7, 7, 50_000), (2, 5, 60_000), (19, 4, 13_615)):
        assert next(candidates(problem(m, n, k), machine, "auto")).kernel.name == "small"
    few = next(candidates(problem(6, 16, 60_000), machine, "auto"))
    assert (few.kernel.name, few.config.tm) == ("packed", 4)


def test_auto_does_not_take_it_where_each_step_needs_a_far_line_of_memory(cpu):
    """As measured with PoCL 3.0 on Zen 5: 2 x 4096 by 4096 x 4096 17 ms, 2.7 by `packed`; 2 x 20,000 by
    20,000 x 300 0.8 ms, 0.4. 20 columns are 84 us, 123 by `packed`."""
    machine = dataclasses.replace(cpu, target=Target(512), compute_units=2, max_clock_mhz=2600)
    for m, n, k in ((2, 4096, 4096), (2, 300, 20_000), (2, 1000, 3000)):
        assert next(candidates(problem(m, n, k), machine, "auto")).kernel.name == "packed"
        assert next(candidates(problem(n, m, k, trans_a=True), machine, "auto")).kernel.name == "packed"
    assert next(candidates(problem(2, 20, 20_000), machine, "auto")).kernel.name == "small"


def test_a_stack_of_dot_products_across_rows_takes_it(cpu):
    """As "ijk,ijk->ik". `matvec` would add to a sum in memory, one number at a time."""
    across = problem(1, 1, 200, trans_a=True, lda=100, ldb=100)
    stack = dataclasses.replace(across, batch_shape=(20_000,), batch_strides=((1,), (1,), (0,), (1,)))
    machine = dataclasses.replace(cpu, target=Target(512), compute_units=2, max_clock_mhz=2500)
    assert next(candidates(stack, machine, "auto")).kernel.name == "small"


def test_one_sum_waits_for_each_addition_and_four_do_so_together(cpu):
    machine = dataclasses.replace(cpu, compute_units=1)

    def seconds(products):
        stack = problem_of(1, 1, 100_000, np.dtype("f4"), "TN", stack=(products,))
        stack = dataclasses.replace(stack, reproducible=True)
        return SMALL.estimate(stack, SMALL.configs(stack, machine)[0], machine)

    assert seconds(4) < 2 * seconds(1)


def test_a_sum_out_of_order_is_several_chains(cpu):
    machine = dataclasses.replace(cpu, compute_units=1)
    dot = problem_of(1, 1, 10**6, np.dtype("f2"), "TN")
    in_order = dataclasses.replace(dot, reproducible=True)
    several, one = (SMALL.estimate(found, pyclmm.TileConfig(), machine) for found in (dot, in_order))
    assert several < one / 2


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("dtype", ["f4", "c8", "i1", *slow("f2", "f8", "u8", "?", "c16")])
def test_one_long_sum_with_gaps_is_exact(dtype, rng):
    """Of four chains in each range: any number of steps is left over."""
    wide = {"c": "c16", "b": "?"}.get(np.dtype(dtype).kind, "i8")
    for k in (31, 32, 33, 34, 35, 36, 8191, 8192, 8193, 20_001, 50_002, 50_007):
        x, y = (small_integers(rng, (k,), dtype) for _ in range(2))
        x, y = np.repeat(x, 2)[::2], np.repeat(y, 3)[::-3]
        got = pyclmm.matmul(x, y, kernel="small")
        assert got == (x.astype(wide) @ y.astype(wide)).astype(dtype), k


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("dtype", ["f4", "c8"])
def test_sums_of_rows_with_gaps_are_chains_along_k_and_others_along_the_stack(dtype, rng):
    """Each has a program of its own. An operand that is shared says nothing."""

    def chained(x, y):
        assert np.array_equal(
            pyclmm.matmul(x[:, None], y[..., None], kernel="small")[:, 0, 0], (x * y).sum(-1)
        )
        whole = np.broadcast_to(y, x.shape)
        return program_of(x[:, None], whole[..., None]).define("IN_K")

    for k in (32, 35):
        rows, others = (small_integers(rng, (9, 2 * k), dtype)[:, ::2] for _ in range(2))
        columns = small_integers(rng, (2 * k, 9), dtype)[::2].T
        assert chained(rows, others) == chained(rows, others[:1]) == chained(rows[::-1], others) == 1
        assert chained(rows, columns) == chained(rows[:, 1:31], others[:, 1:31]) == 0


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("dtype", ["f4", "i1", "c8", *slow("f2", "f8", "u8", "?", "i4")])
@pytest.mark.parametrize("stack", [(), (7,)])
def test_rows_of_b_are_vectors(dtype, stack, rng):
    """The last columns overlap those before. C, which is the result's memory, is added once."""
    wide = {"c": "c16", "b": "?"}.get(np.dtype(dtype).kind, "i8")
    for m, n, k in ((1, 4, 9), (3, 5, 3), (7, 8, 1), (5, 9, 4), (2, 17, 6), (9, 35, 2)):
        a, b, c = (small_integers(rng, (*stack, *shape), dtype) for shape in ((m, k), (k, n), (m, n)))
        product = a.astype(wide) @ b.astype(wide)
        assert np.array_equal(pyclmm.matmul(a, b, kernel="small"), product.astype(dtype)), (m, n, k)
        if wide == "?":
            continue
        expected = product.astype(dtype) + c
        pyclmm.gemm(a, b, c, beta=1, out=c, kernel="small")
        assert np.array_equal(c, expected), (m, n, k)


def test_vectors_are_as_long_as_rows_allow(cpu):
    def lanes(n, **given):
        (config,) = SMALL.configs(problem(3, n, **{"k": 5, **given}), cpu)
        assert config.vec == 1 or config.tn == min(n, config.vec)
        return config.vec

    assert [lanes(n) for n in (1, 3, 4, 7, 8, 15, 16, 100)] == [1, 1, 4, 4, 8, 8, 8, 8]
    assert [lanes(n, k=32) for n in (1, 2, 3)] == [1, 4, 4]
    assert lanes(3, k=31) == lanes(3, k=32, ldb=-3) == lanes(8, trans_b=True) == 1
    assert lanes(8, soft_fma=True, reproducible=True) == 1
    few = {(m, k): SMALL.configs(problem(m, 7, k=k), cpu)[0].tn for m, k in ((4, 32), (5, 32), (4, 31))}
    assert few == {(4, 32): 7, (5, 32): 4, (4, 31): 4}, "two vectors of few sums of a long K alone"
    assert SMALL.violations(problem(3, 3, 5), pyclmm.TileConfig(tm=3, tn=2, vec=8), cpu)
    assert SMALL.violations(problem(3, 3, 5), pyclmm.TileConfig(tm=3, tn=4, vec=4), cpu)
    assert SMALL.violations(problem(3, 1, 5), pyclmm.TileConfig(tm=3, tn=1, vec=4), cpu)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("dtype", ["f4", "i1", "c8", *slow("f2", "f8", "u8", "?", "c16")])
@pytest.mark.parametrize(("m", "n"), [(1, 2), (1, 3), (3, 3), (2, 7), (8, 5)])
def test_sums_of_a_long_k_are_chains(dtype, m, n, rng):
    """Any number of steps is left over."""
    wide = {"c": "c16", "b": "?"}.get(np.dtype(dtype).kind, "i8")
    for k in (32, 33, 34, 35, 8192, 8193, 20_001, 50_003):
        a, b = small_integers(rng, (m, k), dtype), small_integers(rng, (k, n), dtype)
        product = (a.astype(wide) @ b.astype(wide)).astype(dtype)
        wider = np.zeros((k, 2 * n), dtype)
        wider[:, :n] = b
        for each in (b, wider[:, :n], np.ascontiguousarray(b[::-1])[::-1]):
            assert np.array_equal(pyclmm.matmul(a, each, kernel="small"), product), k


def multiply_before_guards():
    rng = np.random.default_rng(5)
    for dtype, n, k in itertools.product(("f4", "f8", "i1"), (2, 3, 5), (32, 35, 20_001)):
        a, b = small_integers(rng, (1, k), dtype), small_integers(rng, (k, n), dtype)
        assert np.array_equal(pyclmm.matmul(before_a_guard(a), before_a_guard(b), kernel="small"), a @ b)
        turned = before_a_guard(b.T.copy()).T  # `packed` turns the columns that fill no vector too
        assert np.array_equal(pyclmm.matmul(a, turned, kernel="packed"), a @ b)


@pytest.mark.usefixtures("on_cpu")
def test_no_vector_of_short_rows_goes_beyond_the_last():
    """In a process of its own, because such a read ends it."""
    in_a_process_of_its_own(multiply_before_guards)


def test_windows_whose_rows_overlap_are_offered_what_fits(cpu):
    for n, apart in itertools.product((2, 3, 5), (0, 1, 2)):
        found = dataclasses.replace(problem(3, n, 100), ldb=apart)
        configs = SMALL.candidates(found, cpu)
        assert any(not SMALL.violations(found, config, cpu) for config in configs), (n, apart)


def test_a_few_sums_of_a_long_k_do_not_wait_for_each_addition(cpu):
    def chains(m, n, k=10**6, **given):
        found = problem(m, n, k, **given)
        (config,) = SMALL.configs(found, cpu)
        define = SMALL.launches(found, config, cpu).launches[0].program.define
        return define("CHAINS") if define("IN_K") else 1

    assert [chains(*size) for size in ((1, 1), (1, 3), (1, 7), (2, 7), (4, 3), (4, 7))] == [4, 4, 4, 2, 2, 1]
    assert chains(1, 3, k=31) == chains(1, 3, reproducible=True) == 1


def side_by_side(i, j, k, dtype, rng):
    """Operands (i, k, 1, j) and (i, k, j, 1) of which neighbours along k are neighbours in memory."""
    x, y = (small_integers(rng, (i, j, k), dtype) for _ in range(2))
    return np.moveaxis(x, 1, 2)[:, :, None, :], np.moveaxis(y, 1, 2)[..., None]


def program_of(a, b, **given):
    """The one that a plan runs on the device here."""
    specs = [Operand(x.shape, x.strides, x.dtype) for x in (a, b)]
    found, device = checked_gemm(*specs, **given).problem, device_info(default_device())
    (config,) = SMALL.configs(found, device)
    return SMALL.launches(found, config, device).launches[0].program


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("dtype", ["f4", "c8", "i1", *slow("f2", "f8", "u8", "?", "c16")])
def test_dot_products_side_by_side_are_exact(dtype, rng):
    """Fewer than a vector, one more than whole vectors, rows in several parts; views, and another out."""
    for i, j, k in ((2, 7, 3), (3, 5, 16), (2, 6, 65), (3, 4, 129), (1, 3, 2500), (5, 1, 257), (2, 0, 40)):
        a, b = side_by_side(i, j, k, dtype, rng)
        wide = {"c": "c16", "b": "?"}.get(a.dtype.kind, "i8")
        expected = (a.astype(wide) @ b.astype(wide)).astype(a.dtype)
        assert np.array_equal(pyclmm.matmul(a, b, kernel="small"), expected), (i, j, k)
        out = np.full((i, 2 * k, 1, 1), 1, a.dtype)
        pyclmm.matmul(a[:, :, :, ::-1], b[:, :, ::-1], out=out[:, ::2], kernel="small")
        assert np.array_equal(out[:, ::2], expected), (i, j, k)
        assert (out[:, 1::2] == 1).all()


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("dtype", ["f4", "c8", "i1", *slow("f2", "f8", "u8", "?", "c16")])
def test_dot_products_side_by_side_with_gaps_are_exact(dtype, rng):
    """Or backwards, or all by one vector. They are computed by vectors too, if asked in the order of K."""
    wide = {"c": "c16", "b": "?"}.get(np.dtype(dtype).kind, "i8")
    cases = (2, 1), (1, -1), (-3, 8), (1, 0), (0, -3)
    for (i, j, k), steps in itertools.product(((2, 7, 33), (3, 4, 130)), cases):
        x, y = (small_integers(rng, (i, j, k * max(1, abs(step))), dtype) for step in steps)
        x, y = (
            each[..., ::step] if step else np.broadcast_to(each[..., :1], (i, j, k))
            for each, step in zip((x, y), steps, strict=True)
        )
        a, b = np.moveaxis(x, 1, 2)[:, :, None, :], np.moveaxis(y, 1, 2)[..., None]
        expected = (x.astype(wide) * y.astype(wide)).sum(1, dtype=wide).astype(dtype)
        for reproducible in (False, True):
            got = pyclmm.matmul(a, b, kernel="small", reproducible=reproducible)
            assert np.array_equal(got[..., 0, 0], expected), (i, j, k, steps, reproducible)
        define = program_of(a, b).define
        assert define("ACROSS") > 1
        assert (define("GAPS_A"), define("GAPS_B")) == tuple({1: 0, 0: 2}.get(step, 1) for step in steps)


@pytest.mark.parametrize("steps", [(1, -1), (-1, 1), (2, 1), (-3, 8), (1, 0), (0, 2)])
def test_the_self_check_runs_programs_of_neighbours_with_gaps(steps, cpu):
    strides = tuple((80_000, step) for step in steps)
    found = dataclasses.replace(
        problem(1, 1, 50, trans_a=True, lda=800, ldb=800),
        batch_shape=(4, 100),
        batch_strides=(*strides, (0, 0), (100, 1)),
    )
    (config,) = SMALL.configs(found, cpu)
    own, checked = (
        SMALL.launches(each, config, cpu).launches[0].program for each in (found, resized(found, 1, 1, 83, 3))
    )
    assert own == checked


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("dtype", ["c8", *slow("c16")])
def test_dot_products_side_by_side_of_conjugates(dtype, rng):
    a, b = side_by_side(2, 7, 83, dtype, rng)
    for trans_a, trans_b in (("C", "N"), ("N", "C"), ("C", "C")):
        x = a if trans_a == "N" else a.swapaxes(-1, -2)
        y = b if trans_b == "N" else b.swapaxes(-1, -2)
        expected = (a.conj() if trans_a == "C" else a) @ (b.conj() if trans_b == "C" else b)
        for reproducible in (False, True):
            got = pyclmm.gemm(
                x, y, trans_a=trans_a, trans_b=trans_b, kernel="small", reproducible=reproducible
            )
            assert np.array_equal(got, expected), (trans_a, trans_b, reproducible)


@pytest.mark.usefixtures("on_cpu")
def test_dot_products_side_by_side_with_the_epilogue(rng):
    """C may be the result's memory: nothing is added twice."""
    a, b = side_by_side(3, 5, 150, "f4", rng)
    c, bias = small_integers(rng, (3, 150, 1, 1), "f4"), np.array([3], "f4")
    expected = 2 * (a @ b) - 3 * c + bias
    assert np.array_equal(pyclmm.gemm(a, b, bias=bias, alpha=2, kernel="small"), 2 * (a @ b) + bias)
    assert np.array_equal(pyclmm.gemm(a, b, c, bias=bias, alpha=2, beta=-3, kernel="small", out=c), expected)
    assert np.array_equal(c, expected)


@pytest.mark.usefixtures("on_cpu")
def test_only_neighbours_near_in_memory_are_computed_together(rng):
    a, b = side_by_side(2, 7, 150, "f4", rng)
    assert program_of(a, b).define("ACROSS") > 1
    divided = pyclmm.TileConfig(tm=1, tn=1, split_k=3)
    assert np.array_equal(pyclmm.matmul(a, b, kernel=("small", divided)), a @ b)
    for others in ((a[:, :3], b[:, :3]), (a[:, ::9], b[:, ::9]), (a.copy(), b), (a, b.copy())):
        assert program_of(*others).define("ACROSS") == 1


@pytest.mark.usefixtures("on_cpu")
def test_the_self_check_runs_dot_products_side_by_side(rng, own_caches):
    a, b = side_by_side(2, 7, 150, "f4", rng)
    plan = pyclmm.Matmul(a, b)
    plan(a, b)
    assert plan.kernel == "small"
    assert program_of(a, b).define("ACROSS") > 1


def test_the_tile_is_as_small_as_the_product(cpu):
    (config,) = SMALL.configs(problem(3, 1, 5), cpu)
    assert (config.tm, config.tn) == (3, 1)
    assert SMALL.violations(problem(3, 1, 5), dataclasses.replace(config, tm=17), cpu)
