"""`packed` and `matvec` on an emulated Arm processor: small products, judged as on every other device.

    pytest tests/conformance/arm_products.py        (`make offline`)

The launches are those that the families give for a device with vectors of 128 bits.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from pyclmm import TileConfig
from pyclmm.checks.drawn import Drawn
from pyclmm.checks.known_answers import outcome
from pyclmm.checks.layouts import Decks, resized
from pyclmm.kernels import kernel_named
from pyclmm.kernels.launches import complete
from pyclmm.opencl.host_memory import host_span
from pyclmm.opencl.steps import scalars_of
from pyclmm.problem.canonical import Epilogue, checked_gemm
from pyclmm.problem.dtypes import ELEMENTS, dtype_of
from pyclmm.problem.gemm import ACTIVATIONS, Operand, alignment
from pyclmm.tools.laws import LAWS, Setting, first_taken
from tests.kernels.cpu.test_matvec import (  # noqa: F401 - they run here too, with the fixtures below
    test_a_complex_matvec_is_exact_conjugated_or_not,
    test_matvec_multiplies_a_few_vectors_along_k,
    test_matvec_reads_either_operand_along_either_axis,
    test_matvec_widens_narrow_elements,
)
from tests.kernels.cpu.test_packed import test_every_float16_is_converted_exactly  # noqa: F401 - so does this
from tests.kernels.nvidia.test_matrix_units import problem
from tests.simulators import arm
from tests.support.cases import is_positive_zero, numbers, small_integers, zero_products
from tests.support.made_up import NEON
from tests.support.oracle import gemm as expected

from .offline import compile_jobs
from .resources import register_tiles, tile_job, tile_jobs

PACKED, MATVEC = kernel_named("packed"), kernel_named("matvec")
FAR = ("exact integers, far from the start", "lists, and groups of rows")  # slow; of kernels for GPUs
ODD = TileConfig(bm=6, bn=8, bk=8, tm=3, tn=4, vec=4)
PACKING = [(("pack_a", a), ("pack_b", b)) for a, b in itertools.product((0, 1), (0, 1, 2))]


@pytest.fixture(scope="session", params=["neoverse-n1"])
def emulator(request, tmp_path_factory):
    arm.demand_tools()
    return arm.Emulator(request.param, tmp_path_factory.mktemp(request.param))


on_both = pytest.mark.parametrize("emulator", arm.PROCESSORS, indirect=True)


def operand(x):
    address = x.__array_interface__["data"][0]
    return Operand(x.shape, x.strides, x.dtype, alignment(x.itemsize, address))


class Subject:
    """A kernel family on an emulated processor; it is called like pyclmm.gemm."""

    def __init__(self, emulator, family):
        self.emulator, self.family = replace(emulator, align=1), family

    def __call__(
        self, a, b, c=None, *, alpha=1, beta=0, bias=None, activation=None, out=None, config=None, **how
    ):
        extras = {name: operand(x) for name, x in (("c", c), ("bias", bias)) if x is not None}
        epilogue = Epilogue(extras, activation, reads_c=beta != 0)
        given_out = None if out is None else operand(out)
        call = checked_gemm(
            operand(a), operand(b), out=given_out, epilogue=epilogue, alpha_is_zero=alpha == 0, **how
        )
        out = np.zeros(call.shape, call.dtype) if out is None else out
        problem = call.problem
        assert self.family.refuses(problem, NEON) is None
        config = config or self.family.configs(problem, NEON)[0]
        assert not self.family.violations(problem, config, NEON)
        work = complete(call, self.family.launches(problem, config, NEON), NEON)
        a, b = (b, a) if call.swapped else (a, b)
        given = {"a": a, "b": b, "c": c, "bias": bias, "out": out}
        spans = {name: host_span(x) for name, x in given.items() if x is not None and x.size}
        memory = {name: its for name, (its, _) in spans.items()}
        offsets = {name: start for name, (_, start) in spans.items()}
        self.emulator.compute(None, NEON, work, memory, scalars_of(alpha, beta, offsets))
        return out


@pytest.fixture
def packed(emulator):
    return Subject(emulator, PACKED)


@pytest.fixture
def matvec(emulator):
    return Subject(emulator, MATVEC)


def integers(rng, shape, dtype):
    """Small integers, complex ones for a complex *dtype*."""
    real = small_integers(rng, shape, dtype)
    return real + 1j * small_integers(rng, shape, dtype) if np.dtype(dtype).kind == "c" else real


SHAPES = [(3, 4, 4), (2, 3, 5), (7, 9, 21), (20, 17, 30), (5, 60, 70), (1, 9, 3), (4, 5, 0), (37, 29, 41)]


# ---- packed ------------------------------------------------------------------------------------


@on_both
@pytest.mark.parametrize("split_k", [1, 3])
@pytest.mark.parametrize("packing", PACKING)
def test_every_packing_and_split_is_exact(packed, packing, split_k, rng):
    config = replace(ODD, options=packing, split_k=split_k)
    for m, n, k in SHAPES:
        a, b = integers(rng, (m, k), "f4"), integers(rng, (k, n), "f4")
        assert np.array_equal(packed(a, b, config=config), a @ b), (m, n, k)


def shapes_around(config, in_place):
    """(M, N, K) at the register tile's size and beside it. Operands smaller than a tile are always packed."""
    tm, tn = config.tm, config.tn
    found = [(tm, tn, 16), (tm + 1, tn + 1, 15), (3 * tm + 1, 2 * tn + 1, 35)]
    return found if in_place else [*found, (tm - 1, tn - 1, 17), (1, tn, 9), (2 * tm, 1, 4)]


@on_both
@pytest.mark.parametrize("packing", PACKING[::4], ids=["in_place", "pack_both"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8"])
def test_every_tile_that_is_offered_is_exact(packed, dtype, packing, rng):
    for tile in register_tiles(np.dtype(dtype).name):
        config = replace(tile, options=packing)
        for m, n, k in shapes_around(config, in_place=packing == PACKING[0]):
            a, b = integers(rng, (m, k), dtype), integers(rng, (k, n), dtype)
            assert np.array_equal(packed(a, b, config=config), a @ b), (config, m, n, k)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_results_of_16_bits_are_rounded_to_nearest_even(packed, name, rng):
    dtype = dtype_of(name)
    a, b = numbers(rng, (20, 30), "f4"), numbers(rng, (30, 17), "f4")
    out = np.zeros((20, 17), dtype)
    packed(a, b, out=out, dtype=np.float32)
    expected(a, b).check(out, summed=np.float32)
    ties = np.array([[1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 2.0**-25, np.nan]], "f4")
    out = np.zeros((1, 6), dtype)
    packed(np.ones((1, 1), "f4"), ties, out=out, dtype=np.float32)
    assert np.array_equal(out, ties.astype(dtype), equal_nan=True)


# ---- what must hold besides --------------------------------------------------------------------


@pytest.mark.parametrize("law", [law for law in LAWS if law.name not in FAR], ids=lambda law: law.name)
@pytest.mark.parametrize("family", [PACKED, MATVEC], ids=lambda family: family.name)
def test_a_law(emulator, family, law):
    """As the self-check and `pyclmm selftest` judge it."""
    taken, decks = first_taken(family, NEON), Decks(np.random.default_rng(20))
    cases = law.cases(Setting(taken, family.configs(taken, NEON)[0]))
    cases = [case for case in cases if family.refuses(case.problem, NEON) is None]
    assert cases, "no case is taken"
    for case in cases:
        judged(emulator, family, case.problem, case.drawn, decks)


def judged(emulator, family, problem, drawn, decks):
    work = family.launches(problem, family.configs(problem, NEON)[0], NEON)
    assert outcome(emulator, problem, work, NEON, decks, drawn).reason is None, problem


@pytest.mark.parametrize("activation", ACTIVATIONS[1:])
def test_activations(emulator, activation):
    decks, number = Decks(np.random.default_rng(20)), ACTIVATIONS.index(activation)
    kind = ("float16", "float32", "float64")[number % 3]
    given = problem(kind, bias=("row", "column")[number % 2], activation=activation, has_c=number % 2 > 0)
    judged(emulator, PACKED, resized(given, 11, 9, 6), Drawn.REALS, decks)


@pytest.mark.parametrize("kind", ["float32", "float64", "complex64", "complex128", "bfloat16", "uint64"])
def test_ranges_of_a_long_k(emulator, kind):
    """Sums of float32 are added by a second launch. Complex operands are conjugated."""
    conj = {"conj_a": True, "conj_b": True} if kind.startswith("complex") else {}
    own = replace(problem(kind, trans="TT", has_c=True, **conj), acc_type=ELEMENTS[kind].accumulator)
    given = resized(own, 12, 9, 3000)
    assert kind != "float32" or PACKED.configs(given, NEON)[0].split_k > 1
    judged(emulator, PACKED, given, Drawn.REALS, Decks(np.random.default_rng(20)))


def test_denormals_and_the_sign_of_zero(packed, matvec):
    tiny = np.float32(2.0**-149)
    a = np.array([[tiny, 0], [-0.0, -0.0], [tiny, tiny]], "f4")
    b = np.array([[1, 2, -0.0], [0, 2, -1]], "f4")
    assert np.array_equal(packed(a, b), a @ b)
    for subject, m, n, k in ((packed, 7, 5, 3), (packed, 17, 18, 33), (matvec, 1, 9, 9), (matvec, 6, 1, 3)):
        for x, y in zero_products(m, n, k):
            assert is_positive_zero(subject(x, y)), (m, n, k)


def test_operands_that_kernels_do_not_read_are_copied(packed, rng):
    a, b = integers(rng, (9, 14), "i2")[:, ::2], integers(rng, (7, 10), "f4").T.copy().T
    out = np.zeros((10, 18), "f8").T[::2]
    packed(a, b, out=out)
    assert np.array_equal(out, a @ b)


# ---- the registers -----------------------------------------------------------------------------


def test_no_tile_that_is_offered_spills_where_operands_are_in_place(emulator):
    """`make offline` also compiles them for packed operands, and for the other processor."""
    named = [
        (name, job) for name, job in tile_jobs() if job[0].name == emulator.processor and "place" in name
    ]
    assert len(named) == 9, "three tiles, three types"
    for (name, _), row in zip(named, compile_jobs(job for _, job in named), strict=True):
        assert not row.error
        assert row.resources.spilled == 0, f"{row.dtype} {name} spills"


@on_both
def test_a_tile_with_too_many_sums_is_seen_to_spill(emulator):
    """24 sums of the 8 x 3 tile, eight numbers of A and three vectors of B do not fit 32 registers."""
    job = tile_job(emulator.processor, "float32", replace(ODD, bm=8, bn=12, tm=8, tn=12, options=PACKING[0]))
    (row,) = compile_jobs([job])
    assert not row.error
    assert row.resources.registers == 32
    assert row.resources.spilled > 0
