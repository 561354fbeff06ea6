"""Every kernel that AMD's GPUs are offered, as machine code in an emulator (tests/simulators/amd).

    pytest tests/conformance/amd_products.py        (`make emulator`)

The launches are those that the families give for a device of each processor. Small problems are judged as the
self-check and `pyclmm selftest` judge them on a device: by exact integers, error bounds, and memory that no
kernel may change. An access outside of the buffers, a read of bytes that nobody wrote, and a race in local
memory fail.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from pyclmm.checks.drawn import Drawn
from pyclmm.checks.known_answers import outcome
from pyclmm.checks.layouts import Decks, resized
from pyclmm.kernels import KERNELS
from pyclmm.kernels.accepts import LISTS
from pyclmm.problem.dtypes import ELEMENT_TYPES, ELEMENTS
from pyclmm.tools.laws import LAWS, Setting, first_taken
from tests.kernels.nvidia.test_matrix_units import problem
from tests.kernels.units.test_units import RUNS, unit_case, unit_family
from tests.simulators.amd.emulator import Emulator, demand_tools

from .grid import KINDS_OF_WEIGHTS, OF_WEIGHTS
from .offline import TARGETS

DEVICES = {target.name: target.device for target in TARGETS if target.device.vendor == "amd"}
DEVICES["gfx1201"] = replace(DEVICES["gfx1100"], name="gfx1201")
SEED = 20
FAR = "exact integers, far from the start"
OF_LISTS = "lists, and groups of rows"
SLOW = ("residues", "limbs")  # several programs and many instructions for each product
PADDED = ("digits",)  # combine.cl reads four columns at a time; what is beyond N is not stored
ONE_ITEM = ("sequential",)  # one work-item computes all: its products are smaller
SHAPES = ((19, 21, 33), (19, 4, 33), (4, 21, 33), (19, 1, 33))


@pytest.fixture(scope="session")
def emulators(tmp_path_factory):
    demand_tools()
    return {name: Emulator(name, tmp_path_factory.mktemp(name), PADDED) for name in DEVICES}


@pytest.fixture(autouse=True)
def noted(request, emulators, record_property):
    """Says in the report how many products of the kernel were run on the processor (emulated.py)."""
    before = {name: (one.products, one.executed) for name, one in emulators.items()}
    yield
    for name, one in emulators.items():
        products, executed = one.products - before[name][0], one.executed - before[name][1]
        if products:
            kernel = request.node.callspec.params.get("kernel") or unit_family(DEVICES[name])
            values = {
                "kernel": kernel.name,
                "processor": name,
                "products": products,
                "instructions": executed,
            }
            for key, value in values.items():
                record_property(key, value)


OFFERED = {
    kernel: own
    for kernel in KERNELS
    if (own := [n for n, d in DEVICES.items() if first_taken(kernel, d) is not None])
}


def run(emulator, device, kernel, config, given, drawn, decks):
    """Why the result is wrong, or None. Takes the kernel's first choice where *config* does not fit."""
    if config is None or kernel.violations(given, config, device):
        config = kernel.configs(given, device)[0]
    work = kernel.launches(given, config, device)
    return outcome(emulator, given, work, device, decks, drawn).reason


def rotated():
    """(kernel, law, processor): each law of each kernel on one processor, each processor with all laws."""
    for number, (kernel, own) in enumerate(OFFERED.items()):
        for place, law in enumerate(LAWS):
            if law.name == FAR and kernel.name != "register":
                continue  # seconds for each product
            if law.name == OF_LISTS and not kernel.accepts.fields >= LISTS:
                continue
            if not kernel.automatic and (number + place) % 3:
                continue  # of one for learning: the code of types, layouts and epilogues is the others'
            name = own[(number + place) % len(own)]
            yield pytest.param(kernel, law, name, id=f"{kernel.name}-{name}-{law.name}".replace(" ", "_"))


@pytest.mark.parametrize(("kernel", "law", "name"), list(rotated()))
def test_a_law(emulators, kernel, law, name):
    """Of slow kernels one case, not the same: they share how they read operands and store results."""
    device, decks = DEVICES[name], Decks(np.random.default_rng(SEED))
    own = first_taken(kernel, device)
    own = resized(own, 5, 7, 9) if kernel.name in ONE_ITEM + SLOW else own
    config = kernel.configs(own, device)[0]
    most = 4000 if kernel.name in ONE_ITEM else math.inf
    cases = [
        case
        for case in law.cases(Setting(own, config))
        if kernel.refuses(given := case.problem, device) is None and given.m * given.n * given.k <= most
    ]
    assert cases, "no case is taken"
    first = len(cases) // 2 if kernel.name == SLOW[1] else 0
    for case in cases[first :: len(cases) if kernel.name in SLOW else -(-len(cases) // 20)]:
        reason = run(emulators[name], device, kernel, config, case.problem, case.drawn, decks)
        assert reason is None, case.problem


def of_type(dtype, **more):
    """A product of elements of *dtype*, summed as they are."""
    return replace(problem(dtype, **more), acc_type=ELEMENTS[dtype].accumulator)


def everything(kernel, device, dtype):
    """A transposed stack with C, bias and an activation, or None where the kernel takes no such thing."""
    whole = {"has_c": True, "bias": "row", "batch_shape": (2,)}
    if dtype in ("float16", "bfloat16", "float32", "float64"):
        whole["activation"] = "gelu_tanh"
    for more in (whole, {}):
        for m, n, k in SHAPES:
            given = resized(of_type(dtype, trans="TT", **more), m, n, k)
            for precision in ("highest", "high"):
                own = replace(given, precision=precision)
                if kernel.refuses(own, device) is None:
                    return own
    return None


def divided(kernel, given, device):
    """The kernel's first configuration, with K in two ranges if the kernel can do that."""
    config = kernel.configs(given, device)[0]
    split = replace(config, split_k=2)
    return config if config.split_k > 1 or kernel.violations(given, split, device) else split


def cases_of_everything():
    """Types in turn, so that each kernel has several on its processors."""
    for number, (kernel, own) in enumerate(item for item in OFFERED.items() if item[0] not in OF_WEIGHTS):
        for place, name in enumerate(own[number % len(own) :][:1] if kernel.name in SLOW else own):
            able = [t for t in ELEMENT_TYPES if everything(kernel, DEVICES[name], t) is not None]
            first = (number + place) % len(able)
            for dtype in able[place::5] if kernel.name == "naive" else able[first : first + 1]:
                yield pytest.param(kernel, name, dtype, id=f"{kernel.name}-{name}-{dtype}")


@pytest.mark.parametrize(("kernel", "name", "dtype"), list(cases_of_everything()))
def test_everything_at_once(emulators, kernel, name, dtype):
    """Of kernels that split K, with split-K."""
    device, decks = DEVICES[name], Decks(np.random.default_rng(SEED))
    given = everything(kernel, device, dtype)
    if kernel.name in ONE_ITEM:
        given = resized(given, 5, 7, 9)
    config = divided(kernel, given, device)
    for drawn in (Drawn.REALS,) if kernel.name in SLOW else (Drawn.INTEGERS, Drawn.REALS):
        assert run(emulators[name], device, kernel, config, given, drawn, decks) is None


def cases_of_weights():
    """Each kind of weights for each kernel that takes them, of affine weights for one.

    Types and processors come in turn. Some K are of several steps of `quantized`.
    """
    types = ("float32", "float16", "bfloat16")
    for place, kernel in enumerate(OF_WEIGHTS):
        own = OFFERED[kernel]
        for i, form in enumerate(KINDS_OF_WEIGHTS):
            if form.mode == "affine" and i % 2 != place:
                continue  # all have one header, formats/affine.h
            name, dtype = own[(i + place) % len(own)], types[(i // 2 + place) % 3]
            k = 2 * form.block + (2304 if i % 7 == 0 and kernel.name == "quantized" else 0)
            yield pytest.param(kernel, name, form, dtype, k, id=f"{kernel.name}-{name}-{form.name}-{dtype}")


@pytest.mark.parametrize(("kernel", "name", "form", "dtype", "k"), list(cases_of_weights()))
def test_weights(emulators, kernel, name, form, dtype, k):
    """Their values are drawn, so errors are bounded. C and a bias are added, and K is split."""
    assert by_weights(emulators[name], kernel, name, form, dtype, k) is None


def by_weights(emulator, kernel, name, form, dtype, k):
    """Why a product by weights of *form* is wrong, or None."""
    device, decks = DEVICES[name], Decks(np.random.default_rng(SEED))
    types = {"b_type": "uint8", "b_format": form.name, "trans_b": True, "b_align": form.align}
    given = replace(problem(dtype), **types, acc_type="float32", has_c=True, bias="column")
    given = resized(given, 5, 37, k)
    return run(emulator, device, kernel, divided(kernel, given, device), given, Drawn.REALS, decks)


AMDS = [case for case in RUNS if case[0].vendor == "amd"]


@pytest.mark.parametrize(
    "case", AMDS, ids=lambda case: f"{case[0].name[:7]}-{case[1]}-{case[3]}-{case[2][5]}"
)
def test_every_matrix_instruction(emulators, case):
    """Each operand along and across K, edges, split-K, epilogues: the cases of tests/kernels/units."""
    device, decks = case[0], Decks(np.random.default_rng(SEED))
    kernel, given, config = unit_case(*case)
    assert kernel.violations(given, config, device) == []
    for drawn in (Drawn.INTEGERS, Drawn.REALS):
        assert run(emulators[device.gfx], device, kernel, config, given, drawn, decks) is None


def test_every_kernel_for_gpus_is_offered_somewhere():
    """What is missing is for other vendors' units or for CPUs."""
    others = Counter(kernel.name for kernel in KERNELS if kernel not in OFFERED)
    assert set(others) == {
        *("packed", "matvec", "small", "int8_quantized", "int8_tile", "amx", "dpas", "wgmma"),
        *("wgmma_bare", "split", "mma", "mma_split", "mma_double", "mma_double_bulk"),
        *("mma_quantized", "wgmma_quantized", "wgmma_fragments"),
    }
