"""The self-check of the programs that check results: a driver that computes them wrongly is told of."""

from itertools import product

import numpy as np
import pytest

import pyclmm
from pyclmm.checks import selfcheck
from pyclmm.checks.checked_results import cases, programs_of
from pyclmm.kernels.interface import Work
from pyclmm.kernels.verification import verified
from pyclmm.opencl.launcher import info_of
from pyclmm.problem.canonical import checked_gemm
from pyclmm.problem.dtypes import dtype_of
from pyclmm.problem.gemm import dense
from tests.campaigns.check_faults import CHECK_FAULTS
from tests.support import spoiled
from tests.support.faults import changed_source, noted
from tests.support.made_up import H200
from tests.support.processes import as_in_a_new_process, nothing_checked

SUMS, OPERANDS, RESULT = (f"verify/{name}" for name in ("sums.h", "operands.cl", "result.cl"))
CALLED_WRONG, NOT_NOTICED = "a right result is called wrong", "a wrong element is not noticed"
# Faults of a driver: (form of cl/verify/, type, what the error says, source file, right text, text that
# computes what the driver would)
FAULTS = {
    "lanes added twice": (
        "cpu", "float32", CALLED_WRONG, SUMS, "    ACC_T sum = ACC_ZERO;",
        "    ACC_T sum = s->sum[r * lanes];",
    ),
    "long signs cut": ("cpu", "int64", CALLED_WRONG, SUMS, "(v) ^ -(ulong)(bit)", "(v) ^ -(bit)"),
    "limits too large": (
        "cpu", "float32", NOT_NOTICED, RESULT, "= factor * s.size[r]", "= 8 * factor * s.size[r]",
    ),
    "all integers equal": ("cpu", "int8", NOT_NOTICED, RESULT, "& OUT_MASK) != 0", "& 0) != 0"),
    "another column": (
        "cpu", "float32", "another element than the wrong one is named", RESULT,
        "include(verdict + WRONG_COLUMNS, j, j)", "include(verdict + WRONG_COLUMNS, 0, j)",
    ),
    "columns with NaN lost": (
        "cpu", "float32", "a right result with NaN and infinity is called wrong", OPERANDS,
        "columns[j] = call + 1", "columns[j] = call",
    ),
    "items lost": ("gpu", "float32", CALLED_WRONG, SUMS, "step >= stride;", "step > stride;"),
    "parts lost": ("gpu", "float16", CALLED_WRONG, OPERANDS, "p < PARTS", "p < PARTS - 1"),
    "no compiler for it": ("cpu", "float32", "it does not build: ", RESULT, "*alarm = 1;", "*alarms = 1;"),
    "no alarm": ("gpu", "float64", NOT_NOTICED, RESULT, "*alarm = 1;", ""),
}  # fmt: skip


@pytest.fixture(autouse=True)
def fresh(own_caches):
    """The self-check is on, with no earlier verdict or plan."""
    return own_caches


@pytest.fixture
def runs(monkeypatch):
    """The self-checks of programs that check results, since the test began."""
    return noted(monkeypatch, selfcheck, "wrong_check")


def multiply(dtype="float32", m=19, **options):
    a, b = np.ones((m, 53), dtype), np.full((37, 53), 2, dtype).T
    want = np.full((m, 37), 106, dtype)
    np.testing.assert_array_equal(pyclmm.matmul(a, b, kernel="naive", **{"verify": True} | options), want)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_driver_that_checks_wrongly_is_told_of(monkeypatch, queue, fault):
    form, dtype, why, *change = FAULTS[fault]
    if fault == "lanes added twice" and not info_of(queue).is_cpu:
        pytest.skip("a work-item of a GPU adds up one lane: it does not run what is changed")
    if form == "gpu":
        spoiled.gpu_form(monkeypatch)
    changed_source(monkeypatch, *change)
    error = f"verify: the driver of .* computes the check itself wrongly: {why}.* Pass verify=False"
    for _ in range(2):
        with pytest.raises(pyclmm.UnsupportedError, match=error):
            multiply(dtype)
    multiply(dtype, verify=False)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "complex64", "int8"])
def test_small_products_run_every_program_of_a_gpu(dtype):
    for stack, k in product([(), (3,)], [37, 38, 40]):
        a, b = (dense((*stack, *shape), dtype_of(dtype)) for shape in ((9, k), (k, 8)))
        problem = checked_gemm(a, b).problem
        wanted = programs_of(verified(problem, Work(()), H200))
        ran = [programs_of(work) for _, work in cases(problem, H200, wanted)]
        assert set().union(*ran) == wanted


def test_a_right_driver_is_checked_once_a_program(monkeypatch, fresh, runs):
    for m in (19, 7):
        multiply(m=m)
    assert len(runs) == 1
    nothing_checked(monkeypatch)
    multiply(m=8)
    assert len(runs) == 1, "the verdict is kept on disk"
    multiply("float64")
    assert len(runs) == 2
    multiply("int16", verify=False)
    assert len(runs) == 2


def test_a_verdict_against_the_check_is_this_process_own(monkeypatch, runs):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selfcheck, "wrong_check", lambda *_: "it is wrong today")
        for _ in range(2):
            with pytest.raises(pyclmm.UnsupportedError, match="wrongly: it is wrong today"):
                multiply()
    with pytest.raises(pyclmm.UnsupportedError, match="wrong today"):
        multiply()
    assert not runs
    as_in_a_new_process(monkeypatch)
    multiply()
    assert len(runs) == 1


def test_without_self_checks_it_is_not_checked(monkeypatch, runs):
    monkeypatch.setenv("PYCLMM_SELFCHECK", "off")
    multiply()
    assert not runs


def test_warm_runs_it_though_its_verdict_is_kept(monkeypatch, runs):
    multiply()
    nothing_checked(monkeypatch)
    for _ in range(2):
        pyclmm.warm((((19, 53), "float32"), ((53, 37), "float32", "F")), kernel="naive", verify=True)
    assert len(runs) == 2


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("activation", ["leaky_relu", "gelu_tanh", "silu"])
def test_a_wrong_activation_of_what_was_checked_is_refused(monkeypatch, activation, dtype):
    """The product is checked before it, so nothing else notices."""
    a, b = np.full((19, 53), -1, dtype), np.ones((53, 37), dtype)
    pyclmm.gemm(a, b, activation=activation, verify=True, kernel="naive")
    as_in_a_new_process(monkeypatch)
    (fault,) = (f for f in CHECK_FAULTS if f.product.get("activation") == activation)
    changed_source(monkeypatch, fault.file.removeprefix("cl/"), fault.old, fault.new)
    with pytest.raises(pyclmm.UnsupportedError, match=f"{activation} from float32 to {dtype} is wrong"):
        pyclmm.gemm(a, b, activation=activation, verify=True, kernel="naive")
