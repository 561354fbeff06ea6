"""reproducible=True: the same bits from every kernel, configuration, batch, layout and device."""

import threading
from dataclasses import replace

import numpy as np
import pyopencl.array as cla
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyclmm
from pyclmm.checks import fixed_products
from pyclmm.checks.fixed_products import PRODUCTS, digest, digests, numbers
from pyclmm.kernels import KERNELS, kernel_named
from pyclmm.kernels.config import TileConfig
from pyclmm.kernels.device import Target
from pyclmm.opencl.devices import device_info
from pyclmm.plan import programs_of
from pyclmm.problem.canonical import problem_of
from pyclmm.problem.settings import is_reproducible
from pyclmm.selection import select, tables
from tests.support.calls import problems_of_calls
from tests.support.faults import changed_source
from tests.support.made_up import EPYC_POCL, H200, seen_as
from tests.support.selection import examples

FLOATS = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")

pytestmark = pytest.mark.usefixtures("optimized")


def run(product, **how):
    return product.on_device(pyclmm.gemm, **how)


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda p: p.name)
def test_the_device_gives_the_digest_in_the_repository(product):
    assert digest(run(product)) == digests()[product.name]


# Two products for each kernel here; `make conformance` runs all.
SOME = {
    "matvec": ("float32 cancelling", "float64 huge"),
    "small": ("float64 normal", "complex64 tiny"),
    "packed": ("float32 epilogue", "complex64 wide"),
    "thin": ("float64 cancelling", "complex64 tiny"),
    "register": ("float32 tiny", "complex128 stack"),
    "double_buffer": ("float32 normal", "complex64 cancelling"),
    "block": ("float32 huge", "complex64 epilogue"),
    "strip": ("float32 stack", "float64 cancelling"),
    "tiled": ("float64 epilogue", "bfloat16 normal"),
    "naive": ("float32 stack", "complex64 epilogue"),
    "flat": ("float32 huge", "float16 tiny"),
    "single_group": ("float64 wide", "float16 epilogue"),
    "sequential": ("float32 normal", "complex64 cancelling"),
}


def test_every_kernel_that_keeps_the_order_is_tested():
    units = {"mma_double", "mma_double_bulk"}  # benchmarks/reproducible_units.py, on a device that has them
    accepting = {kernel.name for kernel in KERNELS if "reproducible" in kernel.accepts.fields}
    accepting -= {"dequantized"}  # of weights: tests/test_weights.py and the grid of conformance
    assert accepting == set(SOME) | units


@pytest.mark.parametrize(("kernel", "name"), [(k, name) for k, names in SOME.items() for name in names])
def test_every_kernel_that_offers_it_gives_the_digest(kernel, name, device):
    product = next(p for p in PRODUCTS if p.name == name)
    try:
        got = run(product, kernel=kernel)
    except pyclmm.UnsupportedError as error:
        assert not (device.is_cpu and device.vendor == "pocl"), error  # noqa: PT017
        pytest.skip(str(error))
    assert digest(got) == digests()[name]


@pytest.mark.usefixtures("on_cpu")
def test_packed_carries_its_sums_from_one_block_of_k_to_the_next():
    """Also where work-groups pack a transposed B, and where the transposed product reads it in place."""
    a, b = numbers("a", (9, 700), "float32"), numbers("b", (700, 33), "float32")
    want = pyclmm.reference.chain(a, b)
    for config in (
        TileConfig(bm=12, bn=32, bk=64, tm=6, tn=16, vec=8, options={"pack_a": 1, "pack_b": 1}),
        TileConfig(bm=8, bn=16, bk=300, tm=4, tn=8, vec=4, options={"pack_a": 0, "pack_b": 0}),
        TileConfig(bm=6, bn=8, bk=8, tm=3, tn=4, vec=4, options={"pack_a": 0, "pack_b": 2}),
        TileConfig(bm=6, bn=8, bk=8, tm=3, tn=4, vec=4, options={"swapped": 1}),
    ):
        for y in (b, np.asfortranarray(b)):
            got = pyclmm.matmul(a, y, kernel=("packed", config), reproducible=True)
            np.testing.assert_array_equal(got, want)


@pytest.mark.hypothesis
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_the_bits_depend_on_nothing_but_the_row_and_the_column(dtype):
    """Row i of A B is A[i] B, also in a stack, in views, in every layout and configuration."""

    @examples(25)
    @given(st.data())
    def check(data):
        m, n, k = (data.draw(st.sampled_from([1, 2, 7, 16, 33])) for _ in range(3))
        stack = data.draw(st.sampled_from([(), (1,), (3,)]))
        a, b = numbers("a", (*stack, m, k), dtype), numbers("b", (k, n), dtype)
        whole = pyclmm.matmul(a, b, reproducible=True)
        at = (*(data.draw(st.integers(0, s - 1)) for s in stack), data.draw(st.integers(0, m - 1)))
        some = slice(data.draw(st.integers(0, n - 1)), None, data.draw(st.sampled_from([1, 2])))
        one = laid_out(data, a[at][None]), laid_out(data, b[:, some])
        kernel = data.draw(st.sampled_from(["auto", "auto", "naive", "tiled", "register", "packed"]))
        out = laid_out(data, np.empty((1, one[1].shape[1]), dtype)) if data.draw(st.booleans()) else None
        try:
            got = pyclmm.matmul(*one, out=out, kernel=kernel, reproducible=True)
        except pyclmm.UnsupportedError:
            got = pyclmm.matmul(*one, out=out, reproducible=True)
        np.testing.assert_array_equal(
            got.view(np.uint8), np.ascontiguousarray(whole[at][some])[None].view(np.uint8)
        )

    check()


def laid_out(data, x):
    """*x* with other strides."""
    way = data.draw(st.sampled_from(["C", "F", "padded", "reversed"]))
    if way == "padded":
        wider = np.zeros((x.shape[0], x.shape[1] + 3), x.dtype)
        wider[:, : x.shape[1]] = x
        return wider[:, : x.shape[1]]
    return x[::-1].copy()[::-1] if way == "reversed" else np.array(x, order=way)


def test_arrays_on_the_device_have_the_same_bits(queue):
    product = next(p for p in PRODUCTS if p.name == "float32 stack")
    operands = product.operands()
    a, b = (cla.to_device(queue, operands[name]) for name in "ab")
    assert digest(pyclmm.matmul(a, b, reproducible=True).get()) == digests()[product.name]


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_transposed_out_has_the_same_bits(dtype):
    a, b = numbers("a", (5, 70), dtype), numbers("b", (70, 6), dtype)
    out = np.empty((6, 5), a.dtype).T
    how = {"dtype": a.dtype, "reproducible": True}
    pyclmm.matmul(a, b, out=out, **how)
    assert digest(np.ascontiguousarray(out)) == digest(pyclmm.reference.chain(a, b, dtype=a.dtype))


# What a driver might do: file, right text, wrong text, and the data that show it.
FAULTS = {
    "products rounded": ("include/types.h", "#define mac_real(acc, x, y) FMA(x, y, acc)",
                         "#define mac_real(acc, x, y) ((acc) + FMA(x, y, ACC_ZERO))", "normal"),
    "another order": ("textbook/naive.cl", "for (int k = 0; k < K; ++k)", "for (int k = K - 1; k >= 0; --k)",
                      "normal"),
    "subnormal numbers flushed": ("textbook/naive.cl", "acc = MAC(acc, x, y);",
                                  "acc = MAC(acc, x, y); if (fabs(acc) < 0x1p-126f) acc = 0;", "tiny"),
    "the epilogue rounded once more": ("include/gemm.h", "const ACC_T value = SCALE(alpha, sum);",
                                       "const ACC_T value = SCALE(alpha * (ACC_T)3, sum) / (ACC_T)3;",
                                       "normal"),
}  # fmt: skip


@pytest.fixture
def fresh_queue(own_caches):
    """A queue of a new context, and no earlier verdict or plan."""
    return pyclmm.default_queue()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_kernel_without_the_bits_is_refused(monkeypatch, fresh_queue, fault):
    file, right, wrong, data = FAULTS[fault]
    changed_source(monkeypatch, file, right, wrong)
    a, b = numbers("a", (5, 70), "float32"), numbers("b", (70, 6), "float32")
    bits = f"not reproducible in the self-check, .*: {data} numbers did not give the bits"
    with pytest.raises(pyclmm.UnsupportedError, match=f"naive: ({bits}|wrong result in the self-check)"):
        pyclmm.matmul(a, b, kernel="naive", reproducible=True, queue=fresh_queue)


@pytest.mark.usefixtures("on_cpu")
def test_the_ladder_goes_on_after_a_kernel_without_the_bits(monkeypatch, fresh_queue):
    a, b = numbers("a", (40, 70), "float32"), numbers("b", (70, 60), "float32")
    if device_info(fresh_queue.device).vendor == "intel":
        pytest.skip("another kernel has a lower estimate by Intel's runtime")
    changed_source(monkeypatch, "cpu/vectors.h", "#define FMA_VEC(x, y, z) ((x) * (y) + (z))",
           "#define FMA_VEC(x, y, z) ((z) + (x) * (y) * 0.5f + (x) * (y) * 0.5f)")  # fmt: skip
    with pytest.warns(pyclmm.KernelWarning, match="packed: not reproducible in the self-check"):
        got = pyclmm.matmul(a, b, reproducible=True, queue=fresh_queue)
    np.testing.assert_array_equal(got, pyclmm.reference.chain(a, b))


def test_a_host_that_cannot_compute_the_bits_admits_no_kernel(monkeypatch, fresh_queue):
    monkeypatch.setattr(fixed_products, "host_fault", lambda accumulator: "NumPy does not compute it")
    a = numbers("a", (5, 5), "float32")
    with pytest.raises(pyclmm.UnsupportedError, match="NumPy does not compute it"):
        pyclmm.matmul(a, a, kernel="naive", reproducible=True, queue=fresh_queue)


@pytest.fixture
def on_cpu():
    if not device_info(pyclmm.default_queue().device).is_cpu:
        pytest.skip("about kernels and drivers of CPUs")


@pytest.fixture
def flushing(monkeypatch, on_cpu):
    """A CPU device whose driver does not promise subnormal numbers."""
    seen_as(monkeypatch, flushes=True)


@pytest.mark.parametrize("name", ["float32 tiny", "float32 huge", "complex64 tiny", "float16 epilogue"])
@pytest.mark.usefixtures("flushing")
def test_a_cpu_that_flushes_computes_fmas_by_integers(fresh_queue, name):
    product = next(p for p in PRODUCTS if p.name == name)
    operands = product.operands()
    plan = pyclmm.Matmul(operands["a"], operands["b"], reproducible=True, kernel="naive", queue=fresh_queue)
    assert {program.define("REPRODUCIBLE") for program in programs_of(plan)} == {2}
    assert digest(run(product, kernel="naive", queue=fresh_queue)) == digests()[name]


@pytest.mark.usefixtures("flushing")
def test_a_wrong_fma_by_integers_is_refused(monkeypatch, fresh_queue):
    changed_source(monkeypatch, "include/soft_fma.h", "rest == middle && (kept & 1)", "rest == middle")
    tiny = np.full((1, 1), 2.0**-75, np.float32)
    with pytest.raises(pyclmm.UnsupportedError, match="naive: not reproducible in the self-check"):
        pyclmm.matmul(tiny, tiny, kernel="naive", reproducible=True, queue=fresh_queue)


def test_the_setting_of_a_block():
    a = np.ones((3, 3), np.float32)
    assert not pyclmm.Matmul(a, a).reproducible
    with pyclmm.default_reproducible():
        plan = pyclmm.Matmul(a, a)
        assert plan.reproducible
        assert not pyclmm.Matmul(a, a, reproducible=False).reproducible
        with pyclmm.default_reproducible(False):
            assert not pyclmm.Matmul(a, a).reproducible
        seen = []
        other = threading.Thread(target=lambda: seen.append(is_reproducible(None)))
        other.start()
        other.join()
        assert seen == [False]
    assert not is_reproducible(None)
    assert plan.reproducible


def test_matmul_and_gemm_take_the_setting(monkeypatch):
    problems = problems_of_calls(monkeypatch)
    a = np.ones((3, 3), np.float32)
    for _ in range(2):  # the second round uses kept plans
        pyclmm.matmul(a, a)
        with pyclmm.default_reproducible():
            pyclmm.matmul(a, a)
            pyclmm.gemm(a, a)
        pyclmm.gemm(a, a, reproducible=True)
    assert [problem.reproducible for problem in problems] == [False, True, True, True] * 2


def test_wrong_arguments_are_named():
    a = np.ones((3, 3), np.float32)
    for wrong in ("yes", 1):
        with pytest.raises(pyclmm.DTypeError, match=f"reproducible is {wrong!r}; pass True or False"):
            pyclmm.matmul(a, a, reproducible=wrong)
        with pytest.raises(pyclmm.DTypeError, match="reproducible is"):
            pyclmm.default_reproducible(wrong)
    for activation in ("gelu", "gelu_tanh", "sigmoid", "tanh", "silu"):
        with pytest.raises(pyclmm.ArgumentError, match=f"activation '{activation}' uses a builtin"):
            pyclmm.gemm(a, a, activation=activation, reproducible=True)
        pyclmm.gemm(a, a, activation=activation)


def test_integers_are_reproducible_by_any_kernel():
    a = np.ones((3, 3), np.int32)
    plain, ordered = pyclmm.Matmul(a, a), pyclmm.Matmul(a, a, reproducible=True)
    assert plain.reproducible
    assert (plain.kernel, plain.config) == (ordered.kernel, ordered.config)
    assert programs_of(plain) == programs_of(ordered)


def reason(name, m=500, n=500, k=5000, dtype="f4", device=H200, layout="NN"):
    problem = problem_of(m, n, k, np.dtype(dtype), layout, reproducible=True)
    return select.refusal(kernel_named(name), problem, device)


def test_families_say_why_they_are_out_of_order():
    for name in ("wgmma", "wgmma_bare", "mma"):
        assert "not in chains of fused multiply-adds" in reason(name, dtype="f2")
    for name in ("mma_double", "mma_double_bulk"):
        assert reason(name, dtype="f8") is None
    assert "real and of imaginary parts apart" in reason("matvec", m=1, dtype="c8", device=EPYC_POCL)
    assert "at the end of each row" in reason("matvec", m=1, layout="NT", device=EPYC_POCL)
    for name in ("packed", "tiled", "naive"):
        assert reason(name, device=EPYC_POCL) is None
    for name in ("register", "tiled", "naive"):
        assert reason(name) is None
    assert reason("thin", m=4) is None


def test_no_offered_configuration_shares_k():
    for device in (H200, EPYC_POCL):
        for m, n, k in ((500, 500, 5000), (4, 4000, 4000), (1, 700, 90000), (16, 16, 100000)):
            problem = problem_of(m, n, k, np.dtype("f4"), reproducible=True)
            for kernel in KERNELS:
                if kernel.refuses(problem, device) is None:
                    for config in kernel.configs(problem, device):
                        work = kernel.launches(problem, config, device)
                        assert not any("partial" in space.name for space in work.workspace), (kernel, config)


def test_a_configuration_out_of_order_is_refused_by_name():
    a = np.ones((40, 40), np.float32)
    config = kernel_named("register").configs(problem_of(40, 40, 40, a.dtype), EPYC_POCL)[0]
    with pytest.raises(pyclmm.ArgumentError, match="cannot be reproducible: it adds the sums"):
        pyclmm.matmul(a, a, kernel=("register", config), reproducible=True)


def test_measured_tables_do_not_choose_for_reproducible_products():
    assert tables.key_of(problem_of(64, 64, 64, np.dtype("f4"))) is not None
    assert tables.key_of(problem_of(64, 64, 64, np.dtype("f4"), reproducible=True)) is None


def test_devices_that_flush_or_have_no_fma_are_refused_with_the_reason():
    problem = problem_of(64, 64, 64, np.dtype("f4"), reproducible=True)
    flushing = replace(H200, flushes=True)
    with pytest.raises(pyclmm.UnsupportedError, match="does not keep subnormal float32"):
        next(select.candidates(problem, flushing, "auto"))
    double = problem_of(64, 64, 64, np.dtype("f8"), reproducible=True)
    next(select.candidates(double, flushing, "auto"))
    unfused = replace(EPYC_POCL, target=Target(128, ()))
    with pytest.raises(pyclmm.UnsupportedError, match="has no fused multiply-add"):
        next(select.candidates(double, unfused, "auto"))


def test_explain_says_why_others_do_not_bid():
    a = np.ones((64, 64), np.float32)
    plan = pyclmm.Matmul(a, a, reproducible=True)
    assert "reproducible" in str(plan.explain())
    found = {other.kernel: str(other) for other in plan.explain().others}
    assert set(SOME) - {plan.kernel} <= set(found)
