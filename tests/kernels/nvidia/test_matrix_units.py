"""The families for NVIDIA's matrix units on made-up devices, without a GPU: refusals, choices, assembly."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pyclmm.kernels import kernel_named
from pyclmm.kernels.nvidia.matrix_units import Operands, local_bytes, out_defines
from pyclmm.kernels.nvidia.wgmma_tiles import stacked
from pyclmm.opencl import compiler
from pyclmm.opencl.compiler import expanded, read_source
from pyclmm.opencl.program import build_options
from pyclmm.problem.gemm import GemmProblem, Ragged
from tests.simulators.interleaved import CLANG
from tests.support.made_up import H200
from tests.support.processes import ended
from tests.support.selection import few, slow

PTX_BUILTINS = (Path(__file__).parents[2] / "simulators/ptx_builtins.h").read_text()

A100 = replace(H200, name="A100", compute_capability=(8, 0), compute_units=108)
ADA = replace(H200, name="RTX 4090", compute_capability=(8, 9), compute_units=128)
TURING = replace(H200, name="T4", compute_capability=(7, 5), compute_units=40)
RADEON = replace(H200, name="gfx1100", vendor="amd", compute_capability=None)
FAMILIES = tuple(
    kernel_named(name) for name in ("wgmma", "split", "mma_split", "mma", "mma_double", "mma_double_bulk")
)

ACCUMULATOR = {"int8": "uint32", "uint8": "uint32", "float64": "float64", "complex64": "complex64"}


def problem(kind="float16", m=4096, n=4096, k=4096, trans="NN", **more):
    out = more.pop("out_type", "int32" if kind.endswith("int8") else kind)
    trans_a, trans_b = (letter == "T" for letter in trans)
    types = (kind, kind, out, ACCUMULATOR.get(kind, "float32"))
    rows = {"lda": m if trans_a else k, "ldb": k if trans_b else n, "ldo": n}
    return GemmProblem(m, n, k, *types, trans_a, trans_b, c_type=out, bias_type=out, **rows, **more)


FULL = {"has_c": True, "bias": "row", "activation": "gelu", "a_align": 2, "out_align": 2}
TAKEN = [
    ("wgmma", problem(), H200),
    ("wgmma", problem("bfloat16", trans="TT", **FULL), H200),
    ("wgmma", problem("int8"), H200),
    ("wgmma", problem("float32", precision="medium"), H200),
    ("wgmma", problem("float32", precision="medium", trans="TT", **{**FULL, "a_align": 16}), H200),
    ("wgmma", problem("float32", precision="medium", trans="TN", out_type="float16"), H200),
    ("wgmma", problem("float32", precision="medium", m=300, n=1024, k=16384), H200),
    ("split", problem("float32", precision="high"), H200),
    ("split", problem("float32", precision="high", trans="TT", a_align=4, b_align=4), H200),
    ("split", problem("complex64", precision="high"), H200),
    ("split", problem("complex64", precision="high", trans="TT", conj_a=True, conj_b=True), H200),
    ("split", problem("complex64", precision="medium"), H200),
    ("mma_split", problem("float32", precision="high"), A100),
    ("mma_split", problem("complex64", precision="high", trans="TT", a_align=8), A100),
    ("mma", problem(), A100),
    ("mma", problem(trans="TT", **FULL), ADA),
    ("mma", problem("uint8", trans="NT"), A100),
    ("mma", problem("float32", precision="medium"), H200),
    ("mma_double", problem("float64"), A100),
    ("mma_double", problem("float64", trans="TT", a_align=8), H200),
    ("mma_double_bulk", problem("float64"), H200),
    ("mma_double_bulk", problem("float64", trans="NT", m=512, n=512, k=512), H200),
    ("mma_double_bulk", problem("float64", trans="TN", m=1024, n=1024, k=65536, **FULL), H200),
]
taken = pytest.mark.parametrize(("name", "given", "device"), few(TAKEN, 0))


@taken
def test_each_family_takes_its_products(name, given, device):
    kernel = kernel_named(name)
    assert kernel.refuses(given, device) is None
    configs = kernel.configs(given, device)
    assert len(configs) > 1
    assert len(set(configs)) == len(configs)
    for config in configs:
        assert kernel.violations(given, config, device) == []
        assert kernel.launches(given, config, device).launches


@pytest.mark.parametrize("kernel", FAMILIES, ids=lambda k: k.name)
@pytest.mark.parametrize("device", [RADEON, TURING], ids=lambda d: d.name)
@pytest.mark.parametrize("given", [p for _, p, _ in TAKEN[:5]] + [problem("float64")], ids=str)
def test_devices_without_the_matrix_unit_are_refused_with_a_reason(kernel, device, given):
    assert "compute capability" in kernel.refuses(given, device)


@pytest.mark.parametrize("device", [H200, A100, ADA], ids=lambda d: d.name)
def test_highest_float32_is_not_for_matrix_units(device):
    for kernel in FAMILIES:
        assert kernel.refuses(problem("float32"), device) is not None
        assert kernel.refuses(problem("complex64"), device) is not None


@pytest.mark.parametrize("device", [A100, ADA], ids=lambda d: d.name)
def test_wgmma_and_split_need_sm_90(device):
    assert kernel_named("wgmma").refuses(problem(), device) is not None
    assert kernel_named("split").refuses(problem("float32", precision="high"), device) is not None


@pytest.mark.parametrize(
    "given",
    [
        replace(problem(), k=0),
        replace(problem(), b_type="bfloat16"),
        replace(problem(), a_type="int16", b_type="int16", acc_type="uint32"),
        replace(problem(), acc_type="float64"),
        problem("float32", precision="high"),
    ],
    ids=str,
)
def test_wgmma_and_mma_refuse_other_products(given):
    for name in ("wgmma", "mma"):
        assert kernel_named(name).refuses(given, H200) is not None


def test_a_split_product_is_float32_and_not_highest():
    split = kernel_named("split")
    assert split.refuses(problem("float32", precision="highest"), H200) is not None
    assert split.refuses(problem("float32", precision="medium"), H200) is None, "a higher precision will do"
    assert split.refuses(problem("float16", precision="high"), H200) is not None


def test_a_new_shape_compiles_nothing_new():
    for name, given, device in TAKEN:
        kernel = kernel_named(name)
        config = kernel.configs(given, device)[0]
        other = replace(given, m=129, n=1000, k=77, a_align=given.a_align)
        old, new = (kernel.launches(p, config, device).launches for p in (given, other))
        assert {x.program for x in new} <= {x.program for x in old}, name


def test_operands_are_packed_only_where_necessary():
    def packed(given):
        found = Operands.of(given)
        return found.pack_a, found.pack_b

    assert packed(problem()) == packed(problem(trans="TT")) == (False, False)
    assert packed(problem(a_align=8)) == (True, False)
    assert packed(replace(problem(), lda=0)) == (True, False)
    assert packed(problem("float32")) == (False, True)
    assert packed(problem("float32", trans="TT")) == (False, False), "A goes through registers"


def test_bytes_across_k_are_packed_unless_registers_can_take_them():
    """They can take A where the result has 4 bytes."""

    def packed(given):
        found = Operands.of(given)
        return found.pack_a, found.pack_b

    sums = problem("int8", trans="TN")
    assert packed(sums) == (False, True)
    assert packed(replace(sums, trans_b=True)) == (False, False)
    assert packed(replace(sums, out_type="int8")) == (True, True)
    assert packed(replace(sums, out_type="uint8", moduli=(251,))) == (True, True)
    assert packed(replace(sums, a_align=8)) == (True, True)


def test_results_are_stored_in_chunks_and_pairs_where_their_rows_allow():
    def vector(kind, align):
        return dict(out_defines(problem("float16", out_type=kind, out_align=align)))["OUT_VECTOR"]

    assert [vector("float16", align) for align in (2, 4, 8, 16)] == [0, 1, 1, 2]
    assert [vector("float32", align) for align in (4, 8, 16)] == [0, 1, 1]


def in_registers(given):
    work = kernel_named("wgmma").launches(given, kernel_named("wgmma").configs(given, H200)[0], H200)
    defines = dict(work.launches[-1].program.defines)
    left = defines["TRANS_A"] == 1 and defines["A_TYPE"] == "float32"  # cl/nvidia/fragment_rows.h
    return [x.kernel for x in work.launches], defines["SWAPPED"], left


@pytest.mark.parametrize(
    ("trans", "more", "swapped", "packs", "registers"),
    [
        ("NN", {}, 1, 0, 1),
        ("TT", {}, 0, 0, 1),
        ("TN", {"n": 1024}, 0, 1, 1),  # B, the smaller, is packed
        ("TN", {"m": 1024}, 1, 1, 1),
        ("NN", {"a_align": 4}, 1, 1, 1),
        ("NT", {}, 0, 0, 0),
    ],
    ids=str,
)
def test_tf32_goes_through_registers_across_k_and_not_along_it(trans, more, swapped, packs, registers):
    given = problem("float32", trans=trans, precision="medium", **more)
    assert in_registers(given) == (["matmul_pack"] * packs + ["matmul_wgmma"], swapped, registers)


@pytest.mark.parametrize(
    ("shape", "both"), [((16, 4096), True), ((4096, 16), True), ((64, 4096), False)], ids=str
)
def test_few_rows_or_columns_are_tried_swapped_and_not(shape, both):
    m, n = shape
    found = kernel_named("wgmma").configs(problem(m=m, n=n), H200)
    assert {c.option("swapped") for c in found} == ({0, 1} if both else {0})
    for config in found:
        launches = kernel_named("wgmma").launches(problem(m=m, n=n), config, H200).launches
        assert launches[0].kernel == "matmul_wgmma"  # nothing is packed


def test_a_swapped_launch_swaps_the_operands():
    given = problem("float32", m=512, n=256, k=1024, precision="medium", a_align=4)
    wgmma = kernel_named("wgmma")
    config = next(c for c in wgmma.configs(given, H200) if c.split_k == 1)
    pack, product = wgmma.launches(given, config, H200).launches
    assert product.args[:3] == (256, 512, 1024)
    assert product.args[3:9] == ("b", "b_offset", 256, "workspace:packed_a", 0, 1024)
    assert "workspace:packed_a" in pack.args


def test_local_memory_follows_the_compute_capability():
    assert local_bytes(H200) == 232_448
    assert local_bytes(ADA) == local_bytes(RADEON) == 101_376


@taken
def test_launches_use_declared_workspace_and_whole_work_groups(name, given, device):
    kernel = kernel_named(name)
    work = kernel.launches(given, kernel.configs(given, device)[0], device)
    spaces = {w.symbol for w in work.workspace}
    for launch in work.launches:
        assert {a for a in launch.args if isinstance(a, str) and a.startswith("workspace:")} <= spaces
        assert np.prod(launch.global_size) % np.prod(launch.local_size) == 0


# On an H200, the tiles (BM, BN, alternate) within 8 % of the fastest: of float16, 2026-11-22 (192 rows:
# 2026-12-01), and of int8 in lines that begin so many bytes apart, 2026-11-24.
FASTEST = [
    ((1, 512, 512, 512), None, [(64, 64, 0), (64, 32, 0)]),
    ((1, 1024, 1024, 1024), None, [(64, 128, 0), (64, 128, 1), (128, 64, 0)]),
    ((1, 2048, 2048, 2048), None, [(128, 256, 0), (256, 128, 0), (128, 128, 0), (128, 128, 1)]),
    ((1, 4096, 4096, 4096), None, [(128, 256, 0), (256, 128, 0), (128, 128, 1)]),
    ((1, 1536, 1536, 1536), None, [(128, 192, 0), (192, 128, 0)]),
    ((1, 65536, 256, 256), None, [(256, 128, 0), (128, 256, 0), (128, 128, 1), (64, 256, 1)]),
    ((64, 512, 512, 512), None, [(128, 128, 1), (128, 256, 0), (256, 128, 0)]),
    ((1, 2048, 2048, 2048), 2048, [(128, 128, 1), (64, 128, 1)]),
    ((1, 4096, 4096, 4000), 4096, [(128, 128, 1), (128, 256, 0)]),
    ((1, 4096, 4096, 4000), 4000, [(128, 256, 0), (256, 128, 0)]),
    ((1, 12288, 1536, 2048), 2048, [(128, 128, 1)]),
]


def stack_of(z, m, n, k, strides):
    return problem(m=m, n=n, k=k, batch_shape=z, batch_strides=(*strides, (0,) * len(z), (m * n,) * len(z)))


@pytest.mark.parametrize(("shape", "pitch", "tiles"), FASTEST, ids=str)
def test_the_model_chooses_a_tile_measured_among_the_fastest(shape, pitch, tiles):
    z, m, n, k = shape
    given = stack_of((z,), m, n, k, ((m * k,), (k * n,))) if z > 1 else problem(m=m, n=n, k=k)
    if pitch:
        given = replace(problem("int8", trans="NT", m=m, n=n, k=k), lda=pitch, ldb=pitch)
    chosen = kernel_named("wgmma").configs(given, H200)[0]
    assert (chosen.bm, chosen.bn, chosen.option("alternate")) in tiles
    assert chosen.split_k == 1


@pytest.mark.parametrize(
    ("dtype", "k", "pitch"), [("float16", 4097, 4160), ("int8", 3333, 3456), ("float16", 100, 112)]
)
def test_packed_lines_begin_on_multiples_of_128_bytes_or_32_if_short(dtype, k, pitch):
    given = problem(dtype, trans="NT", m=256, n=256, k=k, a_align=1, b_align=1)
    wgmma = kernel_named("wgmma")
    work = wgmma.launches(given, wgmma.configs(given, H200)[0], H200)
    assert [w.nbytes for w in work.workspace if w.name.startswith("packed")] == [
        256 * pitch * np.dtype(dtype).itemsize
    ] * 2


def test_lines_that_begin_elsewhere_cost_more():
    wgmma = kernel_named("wgmma")
    seconds = []
    for pitch in (4160, 4128, 4112, 4104):  # multiples of 128, 64, 32 and 16 bytes
        given = replace(problem(trans="NT", m=4096, n=4096, k=4096), lda=pitch, ldb=pitch)
        config = next(c for c in wgmma.configs(given, H200) if (c.bm, c.bn) == (128, 128))
        seconds.append(wgmma.estimate(given, config, H200))
    assert seconds == sorted(seconds)
    assert seconds[-1] > 1.5 * seconds[0]  # measured: 329 and 185 us


def test_tf32_across_k_is_left_to_wgmma_where_mma_would_copy_single_elements():
    given = stack_of((64,), 512, 512, 512, ((512 * 512,), (512 * 512,)))
    types = dict.fromkeys(("a_type", "b_type", "out_type"), "float32")
    given = replace(given, **types, precision="medium", trans_a=True)

    def least(name):
        kernel = kernel_named(name)
        return min(kernel.estimate(given, config, H200) for config in kernel.configs(given, H200))

    assert least("wgmma") < least("mma")  # measured: 126 and 237 us


def test_few_tiles_and_a_long_k_split_k():
    for m, n, k in ((256, 256, 65536), (512, 512, 16384)):
        assert kernel_named("wgmma").configs(problem(m=m, n=n, k=k), H200)[0].split_k >= 8


@pytest.mark.parametrize(
    ("z", "strides", "at_once"),
    [
        ((6,), ((100,), (200,)), 6), ((6,), ((0,), (200,)), 6), ((2, 3), ((300, 100), (600, 200)), 6),
        ((2, 1, 3), ((300, 5, 100), (0, 0, 0)), 6), ((2, 3), ((0, 100), (600, 200)), 1),
        ((6,), ((-100,), (200,)), 1), ((), ((), ()), 1),
    ],
    ids=str,
)  # fmt: skip
def test_one_set_of_work_groups_computes_an_evenly_spaced_stack(z, strides, at_once):
    given = stack_of(z, 64, 64, 64, strides)
    assert stacked(given) == at_once
    kernel = kernel_named("wgmma")
    work = kernel.launches(given, kernel.configs(given, H200)[0], H200)
    assert len(work.launches[0].global_size) == (1 if at_once > 1 or not z else 3)


# --- compiling offline -----------------------------------------------------------------------------

PTXAS = shutil.which("ptxas")
clang = pytest.mark.skipif(CLANG is None, reason="needs clang")
compilers = pytest.mark.skipif(CLANG is None or PTXAS is None, reason="needs clang and ptxas")
CLANG_FLAGS = [
    *("-x", "cl", "-target", "nvptx64-nvidia-nvcl", "-O3", "-S", "-o", "-", "-", "-Wno-unknown-pragmas"),
    *("-Xclang", "-finclude-default-header", "-Xclang", "-fgnu-keywords", "-Dcl_khr_fp64=1"),
    *("-Xclang", "-target-feature", "-Xclang", "+ptx70", "-Xclang", "-target-cpu", "-Xclang", "sm_80"),
]


def ptx_of(program):
    """What clang makes of *program*."""
    source = PTX_BUILTINS + expanded(program.source)
    options = [o for o in build_options(program) if not o.startswith("-cl-")]
    built = ended(CLANG, *CLANG_FLAGS, *options, input=source)
    assert built.returncode == 0, built.stderr[-3000:]
    return built.stdout


def assembled(program, device, work_items, tmp_path):
    """The report of ptxas on *program*: (registers, bytes of spills, full text)."""
    major, minor = device.compute_capability
    text = re.sub(r"\.target sm_\d+", f".target sm_{major}{minor}", ptx_of(program))
    text = re.sub(r"\.version [\d.]+", ".version 8.6", text)
    if program.ptx_target:
        text = compiler.rewritten(text.encode()).decode()
    # less local memory: ptxas refuses more than 48 KiB, the driver does not
    text = re.sub(r"(tiles\[)\d+", r"\g<1>4096", text)
    path = tmp_path / "program.ptx"
    path.write_text(text)
    most = min(255, 65536 // work_items // 8 * 8)
    target = program.ptx_target or f"sm_{major}{minor}"
    report = ended(PTXAS, f"-arch={target}", "-v", f"-maxrregcount={most}", "-o", tmp_path / "out", path)
    everything = report.stdout + report.stderr
    assert report.returncode == 0, everything[-3000:]
    spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill stores", everything))
    return max(int(n) for n in re.findall(r"Used (\d+) registers", everything)), spills, everything


@clang
@taken
def test_no_array_of_a_work_item_lies_in_memory(name, given, device):
    """An index that is no constant puts an array there. Stores of float16 took half as long again for it."""
    kernel = kernel_named(name)
    work = kernel.launches(given, kernel.candidates(given, device)[0], device)
    for launch in work.launches:
        if "split.cl" not in launch.program.source:  # vstore_half takes a pointer, and clang has no body
            assert "__local_depot" not in ptx_of(launch.program), launch.kernel


@compilers
@taken
def test_programs_assemble_without_spills(name, given, device, tmp_path):
    """With the family's largest tile, or for float64 and mma the one that it lists first."""
    kernel = kernel_named(name)
    work = kernel.launches(given, kernel.candidates(given, device)[0], device)
    for launch in work.launches:
        _, spills, report = assembled(launch.program, device, int(np.prod(launch.local_size)), tmp_path)
        assert "serialized" not in report, "wgmma instructions that wait for each other"
        if given.activation == "none" and launch.kernel != "matmul_mma":
            assert spills <= 8, report


DRAINED = [
    problem("int8"),
    problem("int8", trans="NT"),
    problem("int8", trans="TT"),
    problem("float32", precision="medium"),
    problem("float32", trans="NT", precision="medium"),
    problem("float16", out_type="float32"),
    problem("bfloat16", trans="TN", out_type="float32", activation="gelu"),
]


def drained(given):
    return [c for c in kernel_named("wgmma").configs(given, H200) if c.option("drain")]


@pytest.mark.parametrize("given", DRAINED, ids=str)
def test_results_leave_during_the_next_tile_where_there_is_one(given):
    tiles = {(c.bm, c.bn, c.stages) for c in drained(given)}
    assert tiles == {(128, 256, 4), (128, 192, 4)}
    for other in (
        replace(given, has_c=True), replace(given, bias="row"), replace(given, out_align=8),
        replace(given, out_type="float64"), replace(given, k=128), replace(given, m=2048, n=2048),
    ):  # fmt: skip
        assert not any(c.bn == 256 for c in drained(other)), other


def test_tiles_of_160_and_224_columns_are_for_operands_along_k():
    wgmma = kernel_named("wgmma")
    along, across = (wgmma.configs(problem("float16", trans=trans), H200) for trans in ("NT", "NN"))
    assert {160, 224} <= {c.bn for c in along}
    assert not {160, 224} & {c.bn for c in across}
    odd = next(c for c in along if c.bn == 160)
    assert "multiple" in wgmma.violations(problem("float16", trans="NN"), odd, H200)[0]


DRAINED_16 = [problem("float16"), problem("bfloat16", trans="TN", bias="row", activation="gelu")]


@pytest.mark.parametrize("given", DRAINED_16, ids=str)
def test_results_of_16_bits_leave_during_the_next_tile_too(given):
    assert {(c.bm, c.bn, c.stages) for c in drained(given)} == {(128, 256, 4)}
    assert drained(replace(given, k=128)), "two blocks of K"
    for other in (
        replace(given, has_c=True),
        replace(given, out_align=8),
        replace(given, k=64),
        replace(given, m=2048, n=2048),
        replace(given, a_type="int8", b_type="int8", acc_type="int32"),
    ):
        assert not drained(other), other


FASTEST_DRAINED = [  # on an H200, 2026-11-25; int8 NT 4096 together with 128 x 128 by quartets in turn
    ("int8", "NN", (4096, 4096, 4096), 256), ("int8", "NT", (4096, 4096, 4096), 256),
    ("int8", "NT", (8192, 8192, 8192), 256), ("int8", "NT", (4080, 4016, 1168), 256),
    ("float32", "NT", (8192, 8192, 8192), 256), ("float32", "NT", (3072, 3072, 3072), 192),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "trans", "shape", "bn"), FASTEST_DRAINED, ids=str)
def test_the_model_chooses_results_that_leave_later_where_they_were_fastest(kind, trans, shape, bn):
    m, n, k = shape
    given = problem(kind, trans=trans, m=m, n=n, k=k, precision="highest" if kind == "int8" else "medium")
    chosen = kernel_named("wgmma").configs(given, H200)[0]
    assert (chosen.bm, chosen.bn, chosen.option("drain")) == (128, bn, 1)


@compilers
@pytest.mark.parametrize("given", [DRAINED[0], DRAINED_16[1], *slow(*DRAINED[1:], DRAINED_16[0])], ids=str)
def test_results_that_leave_later_need_more_registers(given, tmp_path):
    """setmaxnreg gives them to the quartets that multiply. Without them 200 bytes and more are spilled."""
    config = drained(given)[0]
    launch = kernel_named("wgmma").launches(given, config, H200).launches[-1]
    _, spills, report = assembled(launch.program, H200, int(np.prod(launch.local_size)), tmp_path)
    assert "serialized" not in report, "wgmma instructions that wait for each other"
    assert "setmaxnreg" not in report, "it was ignored"
    assert spills <= 100 or given.activation != "none", report


IN_CLUSTERS = replace(H200, clusters=True)
CLUSTERED = [
    problem("float16"),
    problem("bfloat16", trans="TN", has_c=True, bias="row", activation="gelu"),
    problem("float16", trans="NT", out_type="float32"),
]


def clustered(given, device=IN_CLUSTERS):
    return [c for c in kernel_named("wgmma").configs(given, device) if c.option("cluster") == 2]


def test_work_groups_share_a_tile_of_b_only_where_launches_have_clusters():
    wgmma, given = kernel_named("wgmma"), problem("float16")
    config = clustered(given)[0]
    assert not wgmma.violations(given, config, IN_CLUSTERS)
    assert not clustered(given, H200)
    assert "only in launches by CUDA" in wgmma.violations(given, config, H200)[0]
    for other in (
        problem("int8"),
        problem("float32", precision="medium"),
        replace(given, ragged=Ragged("m", 4, 0, "int32")),
        replace(given, m=64),
    ):
        assert not clustered(other), other
    for changed in ({"cluster": 3}, {"alternate": 1}, {"swapped": 1}):
        odd = replace(config, options=dict(config.options) | changed)
        assert any("cluster" in reason for reason in wgmma.violations(given, odd, IN_CLUSTERS)), changed
    assert any("cluster" in x for x in wgmma.violations(given, replace(config, split_k=2), IN_CLUSTERS))


@pytest.mark.parametrize("given", CLUSTERED, ids=str)
@pytest.mark.parametrize("units", [1, 5, 132])
def test_a_launch_has_whole_clusters(given, units):
    device = replace(IN_CLUSTERS, compute_units=units)
    for config in clustered(given, device):
        launch = kernel_named("wgmma").launches(given, config, device).launches[-1]
        assert (launch.cluster, launch.program.define("CLUSTER")) == (2, 2)
        groups = launch.global_size[0] // launch.local_size[0]
        assert groups % 2 == 0
        assert 2 <= groups <= max(2, units)


def test_the_model_shares_tiles_where_lines_begin_within_lines_of_the_cache():
    """On an H200, in CUDA graphs, 2026-11-29: 75 us and not 100. At 8192 cubed the times are equal."""
    odd, even = problem("float16", trans="NT", m=3784, n=2800, k=2296), problem(m=8192, n=8192, k=8192)
    chosen = [kernel_named("wgmma").configs(given, IN_CLUSTERS)[0] for given in (odd, even)]
    assert [c.option("cluster") for c in chosen] == [2, 0]


@compilers
@pytest.mark.parametrize("given", CLUSTERED, ids=str)
def test_clusters_assemble_without_a_fence_for_each_stage(given, tmp_path):
    for config in (clustered(given)[0], clustered(given)[-1]):
        launch = kernel_named("wgmma").launches(given, config, IN_CLUSTERS).launches[-1]
        text = ptx_of(launch.program)
        assert text.count("multicast::cluster") >= 1
        assert ".release.cluster.shared" not in text
        _, spills, report = assembled(launch.program, H200, int(np.prod(launch.local_size)), tmp_path)
        assert "serialized" not in report
        assert spills <= (100 if config.option("drain") else 8) or given.activation != "none", report


def test_sources_that_are_rewritten_have_marks():
    for name in ("nvidia/ptx_wgmma.h", "nvidia/ptx_map.h"):
        assert compiler.MARK.decode().strip() in read_source(name)
