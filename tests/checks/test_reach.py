"""The self-check reaches what a program can reach: loops, ranges, stacks, scalars, layouts, values."""

import math
from dataclasses import replace

import numpy as np
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.checks import selfcheck, small_problems
from pyclmm.checks.drawn import Drawn, draw, scalars
from pyclmm.checks.layouts import Decks, Placed, placed, rearranged, resized
from pyclmm.formats import format_named
from pyclmm.kernels import kernel_named
from pyclmm.kernels.device import Target
from pyclmm.opencl.devices import default_device, device_info
from pyclmm.problem.canonical import checked_gemm
from pyclmm.problem.dtypes import dtype_of
from pyclmm.problem.gemm import dense
from tests.campaigns.check_faults import CHECK_FAULTS
from tests.campaigns.checked_product import answer
from tests.conformance.offline import TARGETS
from tests.support.cases import problem_of
from tests.support.contexts import new_queue
from tests.support.faults import changed_sources, noted
from tests.support.made_up import EPYC_POCL, H200, XEON_POCL

seed_of = small_problems._seed

DEVICE = device_info(default_device())


def stack_of(m, n, k, dtype="float32", stack=3):
    """A stack of dense products."""
    a, b = (dense((stack, *shape), dtype_of(dtype)) for shape in ((m, k), (k, n)))
    return checked_gemm(a, b).problem


def with_weights(problem, name):
    """*problem* with quantised weights as B."""
    (a, b, *others), nbytes = problem.batch_strides, format_named(name).row_nbytes(problem.k)
    types = {"b_type": "uint8", "b_format": name, "trans_b": True, "ldb": nbytes, "b_align": 2}
    return replace(problem, **types, batch_strides=(a, (0,) * len(b), *others))


# Of the faults that `seeded_faults --check` seeds, one of each kind.
SOME = (
    "tiled_third_step", "matvec_512", "packed_third_block", "register_second_range", "thin_k_end",
    "stack_fourth_a", "alpha_imaginary", "alpha_below_1", "c_columns", "bias_stride", "uint8_signed",
    "relu_nan", "float16_clamped", "uint16_signed", "nibble_of_the_last_run", "second_span",
)  # fmt: skip


@pytest.fixture(autouse=True)
def fresh(own_caches):
    """The self-check is on, with no earlier verdict or plan."""


@pytest.fixture
def queue():
    """Of a new context, in which no program is built yet."""
    return new_queue()


def seed(monkeypatch, fault):
    """Put *fault* into the sources that are read from now on."""
    changed_sources(
        monkeypatch, lambda name, text: fault.changed(text) if f"cl/{name}" == fault.file else text
    )


@pytest.mark.parametrize("name", SOME)
def test_a_fault_is_noticed_before_a_user_meets_it(monkeypatch, queue, name):
    fault = next(f for f in CHECK_FAULTS if f.name == name)
    kernel = kernel_named(fault.product["kernel"])
    problem = problem_of(*fault.product.get("shape", (70, 60, 50)))
    if name := fault.product.get("weights"):
        problem = with_weights(problem, name)
    reason = kernel.refuses(problem, DEVICE)
    if reason is not None:
        pytest.skip(reason)
    seed(monkeypatch, fault)
    found = answer(**fault.product, queue=queue, only_checked=True)
    assert found["reason"] is not None
    assert "wrong" in found["reason"]


PROBLEMS = [
    stack_of(5000, 5000, 5000),
    stack_of(5000, 1, 5000, "float64"),
    stack_of(4096, 4096, 4096, "bfloat16"),
    stack_of(4096, 4096, 4096, "int8"),
    with_weights(stack_of(5000, 5000, 32768), "q4_k"),
    with_weights(stack_of(1000, 5000, 5120, "float16"), "affine3_g64_float16"),
]
# With AMX, and a second-level cache that is filled by fewer blocks of K than a check must run.
XEON = replace(
    XEON_POCL, target=Target(512), local_mem_size=1 << 21, caches=replace(EPYC_POCL.caches, l2=1 << 21)
)
DEVICES = (DEVICE, EPYC_POCL, XEON, H200, *(target.device for target in TARGETS))


def cases_of(kernel, problem, device):
    """The cases of a check, or None if *device* cannot run it."""
    if kernel.refuses(problem, device) is not None or not kernel.configs(problem, device):
        return None
    config = kernel.configs(problem, device)[0]
    wanted = kernel.launches(problem, config, device)
    decks = Decks(np.random.default_rng(1))
    return list(small_problems.cases(problem, kernel, config, device, wanted, decks))


@pytest.mark.parametrize("kernel", pyclmm.KERNELS, ids=lambda k: k.name)
def test_each_loop_of_a_kernel_makes_three_passes(kernel):
    """Where a program exists for some sizes only, as far as these let it."""
    checked = 0
    for problem in PROBLEMS:
        for device in DEVICES:
            cases = cases_of(kernel, problem, device)
            if cases is None:
                continue
            checked += 1
            loops = kernel.loops(problem, kernel.configs(problem, device)[0])
            for axis, limit in (("m", 2600), ("n", 2600), ("k", 20_000)):
                size = getattr(problem, axis)
                longest = max(getattr(case.problem, axis) for case in cases)
                reachable = [each for each in getattr(loops, axis) if 2 * each < limit]
                assert size == 1 or longest > 2 * max(reachable, default=0), (problem, device.name, axis)
            assert max(case.problem.batch for case in cases) > 3
            assert any(case.problem.c_strides[1] != 1 for case in cases)
            assert any(case.problem.bias_stride != 1 for case in cases)
            assert {Drawn.INTEGERS, Drawn.REALS, Drawn.EXTREMES} <= {x for case in cases for x in case.drawn}
    if not checked:
        pytest.skip("no device here runs this kernel in a stack")


@pytest.mark.parametrize("name", ["tiled", "packed", "register"])
def test_a_row_or_column_alone_in_the_last_tile_is_checked(name):
    cases = cases_of(kernel_named(name), problem_of(5001, 5001, 5001), DEVICE)
    if cases is None:
        pytest.skip(f"this device cannot run {name}")
    sizes = [(case.problem.m, case.problem.n, case.problem.k) for case in cases]
    assert any(m > 100 and m % 16 == 1 for m, _, _ in sizes)
    assert any(n > 100 and n % 16 == 1 for _, n, _ in sizes)
    assert any(k > 8192 for _, _, k in sizes)


def test_two_devices_check_other_numbers_and_one_the_same():
    problem, kernel = problem_of(100, 100, 100), kernel_named("naive")
    programs = {
        x.program for x in kernel.launches(problem, kernel.configs(problem, DEVICE)[0], DEVICE).launches
    }
    own = seed_of(DEVICE, programs)
    assert own == seed_of(DEVICE, programs)
    assert own != seed_of(replace(DEVICE, driver_version="another"), programs)
    programs_of_other = {replace(x, defines=(*x.defines, ("MORE", 1))) for x in programs}
    assert own != seed_of(DEVICE, programs_of_other)


def test_a_deck_gives_each_card_before_one_comes_again():
    decks = Decks(np.random.default_rng(3))
    drawn = [decks.next("c", range(5)) for _ in range(10)]
    assert sorted(drawn[:5]) == sorted(drawn[5:]) == list(range(5))


def test_scalars_are_complex_below_and_above_one_and_negative():
    decks = Decks(np.random.default_rng(3))
    problem = replace(problem_of(5, 5, 5, "complex64"), has_c=True)
    pairs = [scalars(problem, decks, Drawn.INTEGERS) for _ in range(24)]
    for drawn in zip(*pairs, strict=True):
        assert any(complex(x).imag for x in drawn)
        real = [x for x in drawn if not isinstance(x, complex)]
        assert any(0 < x < 1 for x in real)
        assert any(x > 1 for x in real)
        assert any(x < 0 for x in real)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64"])
def test_extremes_of_integers_are_drawn(dtype):
    a = np.zeros((20, 30), dtype)
    draw(problem_of(20, 30, 30, dtype), {"a": a, "b": a.copy()}, np.random.default_rng(1), Drawn.EXTREMES)
    info = np.iinfo(dtype)
    assert (a.min(), a.max()) == (info.min, info.max)


def test_special_numbers_are_drawn_and_most_results_stay_finite():
    operands = {"a": np.zeros((20, 30), np.float32), "b": np.zeros((30, 25), np.float32)}
    problem = problem_of(20, 25, 30)
    draw(problem, operands, np.random.default_rng(1), Drawn.EXTREMES)
    together = np.concatenate([x.ravel() for x in operands.values()])
    assert np.isnan(together).any()
    assert {np.inf, -np.inf} <= set(together)
    with np.errstate(all="ignore"):
        product = np.einsum("ik,kj->ij", operands["a"], operands["b"])
        alpha = scalars(problem, Decks(np.random.default_rng(1)), Drawn.EXTREMES)[0]
        results = np.float32(alpha) * product
    assert np.isfinite(product).mean() > 0.5
    assert np.isinf(results).sum() > np.isinf(product).sum(), "sums overflow"


@pytest.mark.parametrize("strides", [(7, 1), (1, 9), (-7, 1), (0, 1), (15, 2)])
def test_an_array_lies_within_its_memory(strides):
    found = Placed.of((3, 4), strides, "int32", 5, 99)
    found.view[...] = 0
    found.own_bytes[...] = 0
    words = found.memory.view(np.int32)
    touched = {found.offset + i * strides[0] + j * strides[1] for i in range(3) for j in range(4)}
    assert min(touched) == 5
    assert set(np.flatnonzero(words == 0)) == touched


def test_rearranged_stacks_keep_alignment_and_do_not_overlap():
    problem = resized(replace(stack_of(9, 7, 5), a_align=16, b_align=16, out_align=16), 9, 7, 5, 4)
    decks = Decks(np.random.default_rng(2))
    for _ in range(20):
        moved = rearranged(problem, decks)
        (a,), (b,), _, (out,) = moved.batch_strides
        assert a % 4 == b % 4 == out % 4 == 0
        assert out >= moved.m * moved.ldo
        view = placed(moved, "out", 1, 0).view
        assert math.prod(view.shape) == 4 * 9 * 7


def test_a_wrong_copy_of_an_operand_is_refused(monkeypatch, queue):
    """An int8 operand of a float32 product is converted on the device first."""
    fault = next(f for f in CHECK_FAULTS if f.name == "int8_unsigned")
    seed(monkeypatch, fault)
    a = cla.to_device(queue, np.full((5, 6), -3, np.int8))
    with pytest.raises(pyclmm.UnsupportedError, match="copy of an operand from int8 to float32 is wrong"):
        pyclmm.matmul(a, a.T, dtype=np.float32, kernel="naive")


def test_a_right_copy_is_checked_once(monkeypatch, queue):
    ran = noted(monkeypatch, selfcheck, "wrong_copy")
    a = cla.to_device(queue, np.full((5, 6), -3, np.int8))
    for rows in (5, 4):
        got = pyclmm.matmul(a[:rows], a.T, dtype=np.float32, kernel="naive")
        assert (got.get() == 54).all()
    assert len(ran) == 1
