"""float64 on devices without cl_khr_fp64: by integers (cl/include/soft_double.h), and by residues."""

import numpy as np
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.checks.fma_reference import chain
from pyclmm.checks.reference import error_ratio, limit
from pyclmm.errors import ArgumentError, UnsupportedError
from pyclmm.opencl.compiler import expanded
from pyclmm.opencl.devices import default_device, device_info
from pyclmm.opencl.program import build_options
from pyclmm.plan import programs_of
from tests.simulators.interleaved import CLANG
from tests.support.processes import ended, nothing_compiled
from tests.support.selection import slow

WILD = np.array([
    0.0, -0.0, 1.0, -1.5, 2.0**-1074, -3 * 2.0**-1074, 2.0**-1022, 2.0**-1022 - 2.0**-1074, 2.0**1023,
    1 + 2.0**-52, 1 - 2.0**-53, -(2.0**-53), 2.0**-537, 2.0**-538, 3 * 2.0**511, np.inf, -np.inf, np.nan,
    1.7976931348623157e308,
])  # fmt: skip


@pytest.fixture
def without(monkeypatch):
    """The device under test, as one without cl_khr_fp64."""
    monkeypatch.setenv("PYCLMM_WITHOUT", "cl_khr_fp64")
    nothing_compiled(monkeypatch)
    device_info.cache_clear()
    yield device_info(default_device())
    monkeypatch.undo()
    device_info.cache_clear()
    device_info(default_device())


def product(a, b, **options):
    """(the kernel, a @ b) by a plan of its own."""
    plan = pyclmm.Matmul(a, b, **options)
    return plan.kernel, plan(a, b)


def any_bits(rng, shape):
    """Numbers of random bits: of any exponent, NaN and infinity among them."""
    return rng.integers(0, 2**64, shape, dtype=np.uint64).view(np.float64)


def near(rng, shape):
    """Numbers of like exponents, so that sums cancel, tie and are subnormal."""
    return rng.integers(-7, 8, shape) * 2.0 ** rng.integers(-540, -530, shape)


def same_bits(x, y):
    nan = np.isnan(x) & np.isnan(y)
    return np.array_equal(nan, np.isnan(x)) and np.array_equal(
        x[~nan].view(np.uint64), y[~nan].view(np.uint64)
    )


@pytest.mark.parametrize(
    "draw", [any_bits, near, lambda rng, s: rng.choice(WILD, s)], ids=["any", "near", "wild"]
)
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_sums_have_the_bits_of_fused_multiply_adds(without, rng, draw, dtype):
    a, b = draw(rng, (40, 5)), draw(rng, (5, 30))
    if dtype == np.complex128:
        a, b = (x.view(np.complex128) for x in (draw(rng, (12, 10)), draw(rng, (5, 18))))
    kernel, got = product(a, b, reproducible=True)
    assert kernel == "naive"
    with np.errstate(all="ignore"):
        wanted = chain(a, b)
    assert same_bits(
        np.ascontiguousarray(got).view(np.float64), np.ascontiguousarray(wanted).view(np.float64)
    )


def test_alpha_beta_and_bias_round_as_doubles_do(without, rng):
    a, b = near(rng, (30, 1)), rng.choice(WILD, (1, 40))
    c, bias = rng.choice(WILD, (30, 40)), near(rng, 40)
    got = pyclmm.gemm(a, b, c, alpha=1.3, beta=-0.7, bias=bias, kernel="naive")
    with np.errstate(all="ignore"):
        wanted = 1.3 * (a * b + 0.0) + -0.7 * c + bias
    assert np.array_equal(got, wanted, equal_nan=True)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu"])
def test_activations_of_comparisons(without, activation):
    x = WILD[:, None]
    got = pyclmm.gemm(x, np.ones((1, 1)), activation=activation, kernel="naive")
    with np.errstate(all="ignore"):
        wanted = np.where(x < 0, 0.0 if activation == "relu" else 0.01 * x, x + 0.0)
    assert np.array_equal(got, wanted, equal_nan=True)


def test_activations_of_functions_are_refused(without):
    with pytest.raises(UnsupportedError, match="activation 'tanh' of float64 needs cl_khr_fp64"):
        pyclmm.gemm(np.ones((3, 3)), np.ones((3, 3)), activation="tanh")


@pytest.mark.slow
def test_complex_scales(without, rng):
    a, b, c = (rng.integers(-9, 10, s) + 1j * rng.integers(-9, 10, s) for s in ((7, 8), (8, 9), (7, 9)))
    got = pyclmm.gemm(a, b, c, alpha=2 - 1j, beta=3j, trans_a="N")
    assert np.array_equal(got, (2 - 1j) * (a @ b) + 3j * c)


@pytest.mark.parametrize("dtype", [np.float64, *slow(np.complex128)])
def test_large_products_are_computed_by_residues_in_highest_too(without, rng, dtype):
    k = 256 if dtype == np.float64 else 1000
    a, b = (rng.standard_normal(s).astype(dtype) for s in ((150, k), (k, 180)))
    kernel, got = product(a, b)
    assert kernel in ("limbs", "residues")
    assert error_ratio(got, a, b) < 16
    whole = np.rint(a * 8), np.rint(b * 8)
    for name in ("limbs", "residues"):
        assert np.array_equal(product(*whole, kernel=name)[1], whole[0] @ whole[1])


@pytest.mark.parametrize("kernel", ["limbs", "residues"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 2.0**600])
def test_data_that_residues_refuse_are_computed_by_integers(without, rng, bad, kernel):
    a, b = rng.standard_normal((130, 140)), rng.standard_normal((140, 150))
    a[5, 6] = bad
    got = product(a, b, kernel=kernel, precision="high")[1]
    wanted = a @ b
    rows = np.arange(130) != 5
    assert np.allclose(got[rows], wanted[rows], rtol=0, atol=1e-12)
    assert np.array_equal(np.isfinite(got), np.isfinite(wanted))
    assert np.array_equal(np.isnan(got), np.isnan(wanted))


def test_other_dtypes_on_the_host_and_on_the_device(without, rng, queue):
    a, b = rng.standard_normal((6, 7)).astype(np.float32), rng.standard_normal((7, 8))
    assert error_ratio(pyclmm.matmul(a, b), a.astype(np.float64), b) < limit(7)
    assert pyclmm.matmul(a, b, dtype=np.float32, casting="same_kind").dtype == np.float32
    x, y = (cla.to_device(queue, z) for z in (a, b))
    words = "a must be converted from float32 to float64, but float64 needs"
    with pytest.raises(UnsupportedError, match=words):
        pyclmm.matmul(x, y)
    z = cla.to_device(queue, np.asfortranarray(rng.standard_normal((6, 14)))[:, ::2].copy())
    assert error_ratio(pyclmm.matmul(z, y).get(), z.get(), b) < limit(7)


@pytest.mark.skipif(CLANG is None, reason="needs clang")
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("kernel", ["naive", "residues", "limbs"])
def test_no_program_has_a_double(without, dtype, kernel):
    a = np.ones((300, 300), dtype)
    plan = pyclmm.Matmul(a, a, kernel=kernel)
    own = [program for program in programs_of(plan) if not program.source.startswith("nvidia/")]
    assert own
    for program in own:
        flags = ["-x", "cl", "-target", "spir64", "-fsyntax-only", "-Xclang", "-finclude-default-header"]
        flags += ["-Xclang", "-cl-ext=-cl_khr_fp64", "-Wno-everything", *build_options(program), "-"]
        done = ended(CLANG, *flags, input=expanded(program.source))
        assert done.returncode == 0, done.stderr[-2000:]


def test_the_variable_takes_one_extension(monkeypatch):
    monkeypatch.setenv("PYCLMM_WITHOUT", "cl_khr_fp16")
    device_info.cache_clear()
    with pytest.raises(ArgumentError, match="PYCLMM_WITHOUT is 'cl_khr_fp16'; set cl_khr_fp64"):
        device_info(default_device())
