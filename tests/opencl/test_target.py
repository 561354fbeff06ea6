"""What a CPU's compiler compiles for: asked once, kept, checked when read; vectors too wide do not build."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest

import pyclmm
from pyclmm import store
from pyclmm.errors import CacheWarning
from pyclmm.kernels import kernel_named
from pyclmm.kernels.device import DeviceInfo, Target
from pyclmm.kernels.interface import Program
from pyclmm.opencl import compiler, processor, program
from pyclmm.opencl.devices import default_device, device_info
from pyclmm.opencl.program import build_options
from pyclmm.problem.gemm import GemmProblem
from tests.support.faults import BUILD_FAILURE, cl_error, failing
from tests.support.made_up import DEVICE, seen_as
from tests.support.processes import ended

HERE = default_device()
CPU = replace(DEVICE, kind="cpu", vendor="pocl", local_mem_size=1 << 19, unified_memory=True)
pytestmark = pytest.mark.skipif(not device_info(HERE).is_cpu, reason="a CPU's compiler is asked")


@pytest.fixture(autouse=True)
def own(own_caches):
    return own_caches


def llvm(options, source):
    """Clang's LLVM text of an OpenCL C file. *options* begin with the target."""
    clang = shutil.which("clang") or shutil.which("clang-15")
    if clang is None:
        pytest.skip("no clang")
    flags = ("-x", "cl", "-S", "-emit-llvm", "-o", "-", "-target", *options)
    return ended(clang, *flags, source, check=True).stdout


def kept():
    """The files of the compiler's answers."""
    return list(store.folder("targets").glob("*.json"))


@pytest.mark.parametrize(
    ("options", "bits", "features"),
    [
        (("x86_64-linux-gnu", "-march=skylake-avx512"), 512, ("avx2", "avx512f", "fma")),
        (("x86_64-linux-gnu", "-march=znver3"), 256, ("avx2", "fma")),
        (("x86_64-linux-gnu", "-march=sandybridge"), 256, ()),
        (("x86_64-linux-gnu",), 128, ()),
        (("aarch64-linux-gnu", "-mcpu=neoverse-n1"), 128, ("fma", "neon")),
        (("aarch64-linux-gnu", "-mcpu=neoverse-v1"), 128, ("fma", "neon", "sve")),
        (("aarch64-linux-gnu", "-mcpu=neoverse-v1", "-msve-vector-bits=256"), 256, ("fma", "neon", "sve")),
        (("spir64",), 0, ()),
    ],
)
def test_the_macros_of_each_processor_are_understood(options, bits, features, tmp_path):
    source = tmp_path / "target.cl"
    source.write_text(compiler.expanded("cpu/target.cl"))
    text = llvm([*options, "-cl-std=CL1.2", "-DASKED=1"], source)
    names = ";".join(re.findall(r"^define [^@]*@(\w+)\(", text, re.M))
    assert processor.answer(names) == Target(bits, features)


def test_this_compiler_is_asked_once_and_its_answer_kept():
    with failing("opencl", "Program", None, times=0) as builds:
        found = processor.target_of(HERE)
        assert processor.target_of(HERE) == found == device_info(HERE).target
    assert builds.calls == 1
    assert json.loads(kept()[0].read_text())["vector_bits"] == found.vector_bits


def test_another_driver_processor_or_option_is_asked_anew(monkeypatch):
    processor.target_of(HERE)
    monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", "-w")
    processor.target_of(HERE)
    assert len(kept()) == 2
    monkeypatch.delenv("PYOPENCL_BUILD_OPTIONS")
    processor.target_of(HERE)
    assert len(kept()) == 2
    monkeypatch.setattr("pyclmm.opencl.processor.description", lambda: "another")
    processor.target_of(HERE)
    assert len(kept()) == 3


def test_a_compiler_that_builds_nothing_gives_no_answer_and_nothing_is_kept():
    with failing("opencl", "Program", cl_error(BUILD_FAILURE), always=True):
        assert processor.target_of(HERE) == Target()
    assert not kept()
    assert processor.target_of(HERE) == device_info(HERE).target


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"schema": 1}, "schema is 1, not 2"), ({"more": 1}, "its keys are not"),
        ({"vector_bits": 1024}, "vector_bits is 1024"), ({"vector_bits": "512"}, "vector_bits is '512'"),
        ({"features": "avx2"}, "features"), ({"features": ["mmx"]}, "features"),
        ({"features": [["avx2"]]}, "features"), ({"features": ["fma"] * 99}, "features"),
        ({"key": "another"}, "key is 'another'"),
    ],
)  # fmt: skip
def test_a_damaged_answer_is_set_aside_and_asked_again(changes, reason):
    found = processor.target_of(HERE)
    kept()[0].write_text(json.dumps({**json.loads(kept()[0].read_text()), **changes}))
    with pytest.warns(CacheWarning, match=reason):
        assert processor.target_of(HERE) == found
    assert processor.target_of(HERE) == found


@pytest.mark.parametrize(
    ("told", "width", "bits"),
    [(512, 8, 512), (256, 16, 256), (128, 16, 128), (0, 16, 512), (0, 8, 256), (0, 64, 512), (0, 1, 128)],
)
def test_the_compilers_width_comes_before_the_drivers(told, width, bits):
    assert replace(DEVICE, target=Target(told), float_vector_width=width).vector_bits == bits


# vectors that are too wide


def wide_program(device: DeviceInfo, bits: int) -> Program:
    """The multiplying program of `packed` with vectors of *bits*."""
    packed, told = kernel_named("packed"), replace(device, target=Target(512))
    problem = GemmProblem(64, 64, 64, *["float32"] * 4, lda=64, ldb=64, ldo=64)
    launch = packed.launches(problem, packed.configs(problem, told)[0], told).launches[-1]
    defines = dict(launch.program.defines) | {"LANES": bits // 32, "NR": bits // 16}
    return Program(launch.program.source, tuple(defines.items()))


def test_vectors_wider_than_the_registers_are_an_error_of_the_build():
    info = device_info(HERE)
    if info.target.vector_bits not in (128, 256):
        pytest.skip(f"the compiler tells {info.target.vector_bits} bits, and no vector of floats is wider")
    context = cl.Context([HERE])
    with pytest.raises(pyclmm.BuildError, match="wider than the registers"):
        program.built(context, wide_program(info, 2 * info.target.vector_bits))
    program.built(context, wide_program(info, info.target.vector_bits))


def test_a_product_whose_width_was_told_wrongly_is_right():
    """The build fails, and the next kernel of the ladder computes the product."""
    info = device_info(HERE)
    if info.target.vector_bits not in (128, 256):
        pytest.skip(f"the compiler tells {info.target.vector_bits} bits")
    x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) % 5
    with pytest.MonkeyPatch.context() as patch:
        seen_as(patch, target=Target(512))
        with pytest.warns(pyclmm.KernelWarning, match="wider than the registers"):
            assert np.array_equal(pyclmm.matmul(x, x), x @ x)


@pytest.mark.parametrize(
    ("march", "bits", "full"),
    [("skylake-avx512", 512, True), ("skylake-avx512", 256, False), ("znver3", 256, False)],
)
def test_only_full_vectors_of_avx512_ask_for_the_full_width(march, bits, full, tmp_path):
    source, wanted = tmp_path / "packed.cl", wide_program(CPU, bits)
    source.write_text(compiler.expanded(wanted.source))
    text = llvm(["x86_64-linux-gnu", f"-march={march}", *build_options(wanted)], source)
    assert (f'"min-legal-vector-width"="{bits}"' in text) == full


ZEN5 = "flags\t: fpu avx2 avx512f avx512bw avx512dq avx512vl avx512_vnni"


@pytest.mark.parametrize(
    ("platform", "target", "flags", "bits"),
    [
        ("OpenCL 3.0 PoCL 3.0-rc2  Linux, LLVM 14.0.6", Target(256, ("avx2", "fma")), ZEN5, 512),
        ("OpenCL 3.0 PoCL 3.0-rc2  Linux", Target(256, ("avx2", "fma")), ZEN5.replace("avx512bw", ""), 0),
        ("OpenCL 3.0 PoCL 3.0-rc2  Linux", Target(256, ("avx2", "fma")), "x86_64", 0),
        ("OpenCL 3.0 PoCL 3.0-rc2  Linux", Target(512, ("avx2", "avx512f", "fma")), ZEN5, 0),
        ("OpenCL 3.0 PoCL 3.0-rc2  Linux", Target(128, ("fma", "neon")), ZEN5, 0),
        ("OpenCL 3.0 PoCL 3.1+debian  Linux", Target(256, ("avx2", "fma")), ZEN5, 0),
        ("OpenCL 3.1 LINUX", Target(), ZEN5, 0),
    ],
)
def test_vectors_of_which_the_compiler_was_not_told(platform, target, flags, bits):
    """PoCL 3.0 compiles functions for them that are marked; others were not tried."""
    assert processor.beyond(target, platform, flags) == bits
    device = replace(CPU, target=replace(target, beyond=bits))
    assert device.widest_bits == max(bits, device.vector_bits)


@pytest.mark.parametrize(("dtype", "lanes"), [("float32", 16), ("float64", 8), ("complex64", 16)])
@pytest.mark.parametrize("beyond", [0, 512])
def test_packed_uses_vectors_beyond(dtype, lanes, beyond):
    """But for sums modulo a number, which ask for their place in the stack where that cannot be asked."""
    device = replace(CPU, has_fp64=True, target=Target(256, ("avx2", "fma"), beyond))
    packed, sizes = kernel_named("packed"), {"lda": 64, "ldb": 64, "ldo": 64}
    for moduli in ((), (251,)):
        product = replace(GemmProblem(64, 64, 64, *[dtype] * 4, **sizes), moduli=moduli)
        wide = bool(beyond) and not moduli
        for config in packed.configs(product, device):
            assert config.vec == (lanes if wide else lanes // 2)
            for launch in packed.launches(product, config, device).launches:
                assert (("AVX512", 1) in launch.program.defines) == wide
        told = replace(device, target=Target(256, ("avx2", "fma")))
        estimates = [packed.estimate(product, packed.configs(product, d)[0], d) for d in (device, told)]
        assert (estimates[0] < estimates[1]) == wide


def test_vectors_beyond_are_offered_first_to_few_rows_by_weights():
    types = ("float32", "uint8", "float32", "float32")
    product = GemmProblem(1, 64, 256, *types, trans_b=True, lda=256, ldo=64, b_format="q4_k", ldb=144)
    for beyond, widths in ((512, [16, 8]), (0, [8])):
        device = replace(CPU, target=Target(256, ("avx2", "fma"), beyond))
        configs = [c for c in kernel_named("quantized").configs(product, device) if not c.option("lanes")]
        assert [c.vec for c in configs] == widths
        work = kernel_named("quantized").launches(product, configs[0], device)
        assert (("AVX512", 1) in work.launches[0].program.defines) == bool(beyond)
