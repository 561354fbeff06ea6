"""The families for AMD's and Intel's matrix units: chosen on made-up devices, run by emulation.

No such device has run them. Only the instruction is emulated; loads, indices and stores are those of the
shipped kernel.
"""

from dataclasses import replace

import pytest

from pyclmm.checks.drawn import Drawn
from pyclmm.checks.known_answers import outcome
from pyclmm.checks.layouts import Decks, resized
from pyclmm.kernels import KERNELS, kernel_named
from pyclmm.kernels.config import TileConfig
from pyclmm.kernels.units.unit import UnitKernel, local_bytes, work_items
from pyclmm.selection.select import refusal
from tests.kernels.nvidia.test_matrix_units import problem
from tests.simulators.emulated import emulated, emulation
from tests.support.cases import DEVICE
from tests.support.made_up import ARC, DEVICES, H200, MI250
from tests.support.selection import few

EXTENSION = "cl_intel_subgroup_matrix_multiply_accumulate"
MI300 = replace(MI250, name="gfx942:sramecc+:xnack-", compute_units=304, max_work_group_size=1024)
RX7900 = replace(MI250, name="gfx1100", compute_units=48, max_work_group_size=1024)
RX9070 = replace(RX7900, name="gfx1201", compute_units=32)
A770 = replace(ARC, extensions=frozenset({EXTENSION}), sub_group_size=8)
MAX1550 = replace(
    ARC,
    name="Intel Data Center GPU Max",
    extensions=frozenset({EXTENSION, "cl_khr_fp64"}),
    has_fp64=True,
    local_mem_size=128 << 10,
    sub_group_size=16,
)
FAMILIES = tuple(k for k in KERNELS if isinstance(k, UnitKernel))
MFMA, WMMA, DPAS = (kernel_named(name) for name in ("mfma", "wmma", "dpas"))
TYPES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8")
# The types that each takes at precision="highest".
TAKEN = {
    ("mfma", MI250): {"bfloat16", "float32", "float64", "int8"},
    ("mfma", MI300): {"float16", "bfloat16", "float32", "float64", "int8"},
    ("wmma", RX7900): {"float16", "bfloat16", "int8", "uint8"},
    ("wmma", RX9070): {"float16", "bfloat16", "int8", "uint8"},
    ("dpas", A770): {"float16", "bfloat16", "int8", "uint8"},
    ("dpas", MAX1550): {"float16", "bfloat16", "int8", "uint8"},
}
OWN = [(kernel_named(name), device) for name, device in TAKEN]
own = pytest.mark.parametrize(("kernel", "device"), OWN, ids=lambda x: x.name[:8])


@own
def test_each_family_takes_the_types_of_its_matrix_unit(kernel, device):
    taken = {t for t in TYPES if kernel.refuses(problem(t), device) is None}
    assert taken == TAKEN[kernel.name, device]


@pytest.mark.parametrize("kernel", FAMILIES, ids=lambda k: k.name)
def test_devices_without_the_matrix_unit_are_refused_with_a_reason(kernel):
    others = {*DEVICES, MI300, RX7900, RX9070, A770, MAX1550} - {d for k, d in OWN if k is kernel}
    vendor = {"mfma": "AMD device of gfx90a", "wmma": "AMD device of RDNA 3", "dpas": "Intel device with"}
    for device in others:
        assert vendor[kernel.name] in kernel.refuses(problem(), device), device.name


@pytest.mark.parametrize(
    "device",
    [
        replace(MI250, name="gfx908"),
        replace(MI250, name="gfx1030"),
        replace(MI250, name="gfx1250"),
        replace(MI250, vendor="mesa", name="AMD Radeon (gfx90a, LLVM 15)"),
        replace(A770, sub_group_size=0),
        replace(A770, sub_group_size=32),
        replace(A770, vendor="pocl"),
        replace(H200, name="gfx90a"),
    ],
    ids=lambda d: d.name,
)
def test_devices_that_only_look_alike_are_refused(device):
    for kernel in FAMILIES:
        assert "needs an" in kernel.refuses(problem(), device)


def test_float16_without_denormals_needs_medium_precision():
    """gfx90a's float16 instructions read denormals as zero."""
    assert "denormals" in MFMA.refuses(problem(), MI250)
    assert MFMA.refuses(problem(precision="medium"), MI250) is None
    assert MFMA.refuses(problem(), MI300) is None


@own
@pytest.mark.parametrize(
    "given",
    [
        replace(problem("bfloat16"), k=0),
        replace(problem("bfloat16"), b_type="float16"),
        replace(problem("bfloat16"), b_type="float32"),
        replace(problem("int8"), a_type="int16", b_type="int16"),
        replace(problem("bfloat16"), acc_type="float64"),
        replace(problem("complex64"), acc_type="complex64"),
        replace(problem("bool"), acc_type="uint32"),
    ],
    ids=str,
)
def test_products_that_no_instruction_computes_are_refused(kernel, device, given):
    assert kernel.refuses(given, device) is not None


@own
def test_configurations_are_sound(kernel, device):
    for kind in TAKEN[kernel.name, device]:
        for trans in ("NN", "TT"):
            for m, n, k in ((4096, 4096, 4096), (64, 64, 65536), (1, 1, 1), (4097, 33, 77)):
                given = problem(kind, m, n, k, trans)
                configs = kernel.configs(given, device)
                assert len(set(configs)) == len(configs) >= 3
                for config in configs:
                    one = kernel.instruction(given, device, config.option("unit"))
                    assert kernel.violations(given, config, device) == []
                    assert local_bytes(config, one) <= device.local_mem_size
                    assert work_items(config, one) <= device.max_work_group_size
                    work = kernel.launches(given, config, device)
                    assert len(work.launches) == 1 + (config.split_k > 1)


def test_few_tiles_and_a_long_k_split_k():
    assert MFMA.configs(problem("bfloat16", 64, 64, 65536), MI300)[0].split_k > 1
    assert MFMA.configs(problem("bfloat16", 8192, 8192, 4096), MI300)[0].split_k == 1


@own
def test_unsound_configurations_are_refused(kernel, device):
    given = problem("bfloat16")
    sound = kernel.configs(given, device)[0]
    assert kernel.violations(given, sound, device) == []
    for change in (
        {"bm": sound.bm - 8}, {"sgm": 3}, {"bk": sound.bk + 1}, {"split_k": 0},
        {"sgn": sound.bn, "sgm": sound.bm}, {"bm": 1 << 14}, {"bn": sound.bn * 3},
    ):  # fmt: skip
        assert kernel.violations(given, replace(sound, **change), device), change


def test_a_new_shape_compiles_nothing_new_while_its_accesses_are_as_wide():
    for kernel, device in OWN:
        given = problem("bfloat16")
        config = kernel.configs(given, device)[0]
        old, new = (
            kernel.launches(p, config, device).launches for p in (given, replace(given, m=64, n=136, k=32))
        )
        assert {x.program for x in new} == {x.program for x in old}


# --- run by emulation ------------------------------------------------------------------------------

MEDIUM = {"precision": "medium"}
ALL = {"has_c": True, "bias": "row", "activation": "relu", "batch_shape": (2,)}
# Tiles: BM, BN, bytes of K, SGM, SGN, rows of an instruction.
HIGH_32, FLAT_32 = (128, 32, 32, 64, 32, 32), (32, 64, 32, 32, 64, 32)
HIGH_16, FLAT_16 = (64, 32, 32, 32, 16, 16), (32, 64, 32, 16, 32, 16)
INTEL = (32, 32, 32, 16, 16, 8)
# Device, types of A and B, tile, layouts, (M, N, K), other fields. They cover every instruction, each operand
# along and across K, accesses of one and of several elements, edges in every direction, one and several steps
# of K, split-K, stacks, epilogues and other dtypes of the result.
RUNS = [
    (MI250, "float16", HIGH_32, "NT", (70, 75, 51), MEDIUM),
    (MI300, "float16", FLAT_16, "NN", (40, 44, 64), {"out_type": "float32"}),
    (MI250, "bfloat16", HIGH_32, "TN", (70, 75, 51), {"out_type": "float32"} | ALL),
    (MI250, "bfloat16", FLAT_16, "NN", (37, 45, 51), {"split_k": 2}),
    (MI250, "float32", HIGH_32, "NN", (70, 75, 70), {}),
    (MI300, "float32", FLAT_16, "TT", (37, 45, 51), ALL),
    (MI300, "float32", HIGH_32, "NT", (70, 75, 70), MEDIUM),
    (MI300, "float32", FLAT_16, "NT", (37, 45, 64), MEDIUM),
    (MI250, "float64", HIGH_16, "NN", (37, 45, 51), {"split_k": 2} | ALL),
    (MI300, "float64", FLAT_16, "TT", (37, 45, 51), {"out_type": "float32"}),
    (MI250, "int8", HIGH_32, "NT", (72, 76, 128), {}),
    (MI250, "int8", FLAT_16, "TN", (37, 45, 51), {}),
    (MI300, "int8", HIGH_32, "TN", (72, 76, 70), {"out_type": "int8"}),
    (MI300, "int8", FLAT_16, "NT", (37, 45, 70), {}),
    (RX7900, "float16", HIGH_16, "NT", (40, 44, 64), {"out_type": "float32"} | ALL),
    (RX7900, "bfloat16", FLAT_16, "TN", (37, 45, 51), {"split_k": 2}),
    (RX7900, "int8", HIGH_16, "NN", (40, 44, 64), {}),
    (RX7900, "uint8", FLAT_16, "TT", (37, 45, 51), {}),
    (RX7900, ("int8", "uint8"), HIGH_16, "TN", (37, 45, 51), {}),
    (RX9070, "float16", HIGH_16, "NT", (40, 44, 64), {"out_type": "float32"} | ALL),
    (RX9070, "bfloat16", FLAT_16, "TN", (37, 45, 51), {"split_k": 2}),
    (RX9070, "int8", HIGH_16, "NN", (40, 44, 64), {}),
    (RX9070, ("uint8", "int8"), FLAT_16, "TT", (37, 45, 51), {}),
    (A770, "float16", INTEL, "TN", (37, 45, 51), {"out_type": "float32"}),
    (A770, "bfloat16", INTEL, "NN", (40, 44, 64), ALL),
    (A770, ("uint8", "int8"), INTEL, "NT", (40, 44, 64), {}),
    (MAX1550, "float16", INTEL, "NT", (40, 44, 64), {"split_k": 2}),
    (MAX1550, "bfloat16", INTEL, "TN", (37, 45, 51), {"out_type": "float32"}),
    (MAX1550, "int8", INTEL, "TT", (37, 45, 51), ALL | {"activation": "none"}),
]


def unit_case(device, kinds, tile, trans, shape, more):
    """(kernel, problem, configuration) of a row of RUNS."""
    kinds, more = (kinds, kinds) if isinstance(kinds, str) else kinds, dict(more)
    split_k = more.pop("split_k", 1)
    given = resized(replace(problem(kinds[0], trans=trans, **more), b_type=kinds[1]), *shape)
    kernel = unit_family(device)
    bm, bn, nbytes, sgm, sgn, rows = tile
    one = kernel.instruction(given, device, rows)
    sizes = {"bm": bm, "bn": bn, "bk": max(one.k, nbytes // one.nbytes), "sgm": sgm, "sgn": sgn}
    return kernel, given, TileConfig(**sizes, split_k=split_k, options=(("unit", one.m),))


def unit_family(device):
    """The family of the matrix unit that *device* has."""
    (kernel,) = (k for k in FAMILIES if k.unsuited(device) is None)
    return kernel


def _run_id(value):
    return value.name[:6] if hasattr(value, "name") else str(value).replace(" ", "")


@pytest.mark.skipif(not DEVICE.is_cpu, reason="the emulation is written for compilers of CPU devices")
@pytest.mark.parametrize(
    ("device", "kind", "tile", "trans", "shape", "more"), few(RUNS, 0, 1, 5), ids=_run_id
)
def test_an_emulated_product_is_right(queue, rng, device, kind, tile, trans, shape, more):
    kernel, given, config = unit_case(device, kind, tile, trans, shape, more)
    assert kernel.refuses(given, device) is None
    assert kernel.violations(given, config, device) == []
    work = emulated(kernel.launches(given, config, device))
    with emulation():
        for drawn in (Drawn.INTEGERS, Drawn.REALS):
            assert outcome(queue, given, work, DEVICE, Decks(rng), drawn).reason is None


@pytest.mark.skipif(not DEVICE.is_cpu, reason="the emulation is written for compilers of CPU devices")
@pytest.mark.parametrize(("kernel", "device"), OWN[0::2], ids=lambda x: x.name[:8])
def test_a_shipped_configuration_is_right_by_emulation(queue, rng, kernel, device):
    given = problem("bfloat16", 4096, 4096, 4096, "TN", out_type="float32")
    config = kernel.configs(given, device)[0]
    small = resized(given, config.bm + 3, config.bn - 5, 2 * config.bk + 7)
    assert kernel.violations(small, config, device) == []
    work = emulated(kernel.launches(small, config, device))
    with emulation():
        assert outcome(queue, small, work, DEVICE, Decks(rng), Drawn.INTEGERS).reason is None


def test_every_instruction_is_run_by_emulation():
    """RUNS compile every branch of the instruction headers."""
    seen = set()
    for device, kind, tile, _, _, more in RUNS:
        kinds = (kind, kind) if isinstance(kind, str) else kind
        precision = more.get("precision", "highest")  # type: ignore[attr-defined]
        given = replace(problem(kinds[0], precision=precision), b_type=kinds[1])
        kernel = next(k for k, d in OWN if d is device)
        seen.add((kernel.name, kernel.instruction(given, device, tile[5]).defines[:2]))  # type: ignore[attr-defined]
    wanted = set()
    for kernel, device in OWN:
        for precision in ("highest", "medium"):
            for kind in TYPES:
                for rows in (16, 32):
                    given = problem(kind, precision=precision)
                    if kind == "uint8" or kernel.refuses(given, device) is not None:
                        continue
                    one = kernel.instruction(given, device, rows)  # type: ignore[attr-defined]
                    if not isinstance(one, str):
                        wanted.add((kernel.name, one.defines[:2]))
    assert wanted <= seen


def test_auto_takes_the_family_of_the_devices_matrix_unit():
    for kernel, device in OWN:
        given = problem("bfloat16")
        able = [k for k in KERNELS if k.automatic and refusal(k, given, device) is None]
        assert able[0] is kernel
    assert kernel_named("register").refuses(problem("bfloat16"), replace(MI250, name="gfx1030")) is None
