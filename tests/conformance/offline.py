"""Compiles every kernel for AMD, Intel and NVIDIA devices that we do not have. Warnings are errors.

Each program is what a family would launch on such a device: its first configuration for each of the few
problems of asked(), about 60 programs a target.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from pyclmm.formats import FORMAT_NAMES, format_named
from pyclmm.kernels import KERNELS
from pyclmm.kernels.device import DeviceInfo
from pyclmm.kernels.interface import Kernel, Launch, Work
from pyclmm.kernels.launches import copy_launch
from pyclmm.kernels.verification import verified
from pyclmm.opencl.compiler import expanded
from pyclmm.opencl.program import build_options, source_hash
from pyclmm.problem.dtypes import ELEMENT_TYPES, ELEMENTS
from pyclmm.problem.gemm import ACTIVATIONS, Copy, GemmProblem, ListedProduct, Ragged
from tests.support.made_up import DEVICE, NEON

from .compilers import DPAS, NOTHING, Resources, compiled, link
from .implementations import FOR_CPUS, MATRIX_UNITS

SMALL = ("naive", "flat", "single_group", "sequential")  # a loop around gemm.h


@dataclass(frozen=True)
class Target:
    """A processor, the device that families are given for it, and the families compiled; none means all."""

    name: str
    device: DeviceInfo
    families: tuple[str, ...] = ()


Job = tuple[Target, str, str, Launch]  # the family and the element type, too


@dataclass(frozen=True)
class Compiled:
    """The resources of a kernel function on a target. ``error``: why it could not be compiled or linked."""

    kernel: str
    dtype: str
    target: str
    config: str = ""
    resources: Resources = NOTHING
    error: str = ""


def _device(name: str, vendor: str, **limits: object) -> DeviceInfo:
    plain = replace(
        DEVICE,
        name=name,
        vendor=vendor,
        platform=vendor,
        platform_version="OpenCL 2.0",
        driver_version="offline",
        opencl_version=(2, 0),
        compute_units=100,
        max_work_group_size=1024,
        max_work_item_sizes=(1024, 1024, 1024),
        local_mem_size=64 << 10,
        global_mem_size=64 << 30,
        max_mem_alloc_size=16 << 30,
        max_clock_mhz=1700,
        float_vector_width=1,
        extensions=frozenset({"cl_khr_fp64"}),
    )
    return replace(plain, **limits)


_AMD = {"max_work_group_size": 256, "has_fp16": True}
_INTEL = {"platform": "Intel(R) OpenCL Graphics", "extensions": frozenset({DPAS})}
_NV = {"local_mem_size": 48 << 10, "platform": "NVIDIA CUDA", "driver_version": "580.159"}
TARGETS = (
    Target("gfx90a", _device("gfx90a", "amd", **_AMD)),
    Target("gfx942", _device("gfx942", "amd", **_AMD), MATRIX_UNITS),
    Target("gfx1030", _device("gfx1030", "amd", **_AMD)),
    Target("gfx1100", _device("gfx1100", "amd", **_AMD), MATRIX_UNITS),
    Target("dg2-g10", _device("Intel Arc A770", "intel", has_fp64=False, sub_group_size=8, **_INTEL)),
    Target("pvc", _device("Intel GPU Max", "intel", sub_group_size=16, **_INTEL), MATRIX_UNITS),
    Target("sm_80", _device("NVIDIA A100", "nvidia", compute_capability=(8, 0), **_NV), MATRIX_UNITS),
    Target("sm_90a", _device("NVIDIA H100", "nvidia", compute_capability=(9, 0), **_NV)),
)
ARM = tuple(Target(name, replace(NEON, name=name), FOR_CPUS) for name in ("armv8-a", "neoverse-n1"))


def problems(dtype: str) -> tuple[GemmProblem, GemmProblem]:
    """A large product without an epilogue, and a transposed stack with a full one."""
    real_float = dtype in ("float16", "bfloat16", "float32", "float64")
    plain = GemmProblem(
        *(4096, 4096, 4096),
        *(dtype, dtype, dtype, ELEMENTS[dtype].accumulator),
        lda=4096,
        ldb=4096,
        ldo=4096,
        c_type=dtype,
        bias_type=dtype,
    )
    everything = replace(
        plain,
        m=1000,
        n=1000,
        k=1000,
        trans_a=True,
        trans_b=True,
        conj_a=dtype.startswith("complex"),
        conj_b=dtype.startswith("complex"),
        batch_shape=(3,),
        batch_strides=((10**6,),) * 4,
        has_c=True,
        c_strides=(1000, 1),
        bias="row",
        bias_stride=1,
        activation="gelu_tanh" if real_float else "none",
    )
    return plain, everything


def of_weights() -> Iterator[tuple[str, GemmProblem]]:
    """Products of 16 or 64 rows, float16 or bfloat16, with weights of each format; of affine ones a few."""
    for number, name in enumerate(FORMAT_NAMES):
        if number % 7 and name.startswith("affine"):
            continue
        dtype = ("float16", "bfloat16")[number // 2 % 2]
        ldb, m = format_named(name).row_nbytes(4096), (16, 64)[number % 2]
        yield dtype, replace(problems(dtype)[0], m=m, b_type="uint8", trans_b=True, ldb=ldb, b_format=name)


def asked(place: int, family: Kernel) -> Iterator[tuple[str, GemmProblem]]:
    """(dtype, problem) for which the family at *place* in KERNELS is compiled.

    These are both products of problems(), in one element type for each accumulator; *place* chooses the type.
    The small families get one of the two products, those of matrix units every type. `naive` gets every
    activation, as all families share that code. `residues` and `limbs` get both types with "high".
    """
    for number, accumulator in enumerate(dict.fromkeys(one.accumulator for one in ELEMENTS.values())):
        types = [t for t in ELEMENT_TYPES if ELEMENTS[t].accumulator == accumulator]
        for turn in (0, 1):
            if family.name in SMALL and turn != (number + place) % 2:
                continue
            every = family.name in MATRIX_UNITS
            for dtype in types if every else [types[(place + turn) % len(types)]]:
                yield dtype, problems(dtype)[turn]
    if family.name in ("residues", "limbs"):
        for dtype in ("float64", "complex128"):
            yield dtype, replace(problems(dtype)[0], precision="high")
    if family.name == "naive":
        for activation in ACTIVATIONS[1:]:
            yield (
                "float32",
                replace(problems("float32")[0], bias="column", bias_stride=1, activation=activation),
            )


def launches(target: Target) -> Iterator[tuple[str, str, Launch]]:
    """(family, dtype, launch) for every different program and kernel function on *target*."""
    seen = set()
    for place, family in enumerate(KERNELS):
        if target.families and family.name not in target.families:
            continue
        weighted = "b_format" in family.accepts.fields
        for dtype, wide in of_weights() if weighted else asked(place, family):
            soft = dtype in ("float64", "complex128") and not target.device.has_fp64
            whole = replace(wide, soft_float64=soft)
            for problem in (whole, replace(whole, m=1)):
                if family.refuses(problem, target.device) is None:
                    break
            else:
                continue
            config = family.configs(problem, target.device)[0]
            for launch in family.launches(problem, config, target.device).launches:
                if (launch.program, launch.kernel) not in seen:
                    seen.add((launch.program, launch.kernel))
                    yield family.name, dtype, launch


def checks(device: DeviceInfo) -> Iterator[tuple[str, str, Launch]]:
    """The kernels of cl/verify/, in types of each form of sums, of lists, with weights of some formats."""
    wide = [(dtype, problem) for dtype in ("float16", "int8", "complex128") for problem in problems(dtype)]
    plain, transposed = (
        replace(one, batch_shape=(), batch_strides=((),) * 4, activation="none")
        for one in problems("float32")
    )
    product = ListedProduct(*(1000,) * 3, 0, 0, 0, *(1000,) * 3)
    listed = [replace(plain, ragged=Ragged(axis, 8, 4096**2)) for axis in "mk"]
    listed.append(replace(transposed, products=(product,)))
    for dtype, problem in (*wide, *(("float32", one) for one in listed), *islice(of_weights(), 0, None, 6)):
        if device.has_fp64 or dtype != "complex128":
            for launch in verified(problem, Work(()), device).launches:
                yield "verify", dtype, launch


def copies(device: DeviceInfo) -> Iterator[tuple[str, str, Launch]]:
    """The kernel that packs operands that no family reads in place."""
    for dtype in ("int8", "bfloat16", "complex64"):
        copy = Copy((2, 100, 100), dtype, (10**6, 200, 2), dtype, (10**4, 100, 1))
        yield "copy", dtype, copy_launch(copy, ("a", "a_offset"), ("b", "b_offset"), "offsets", device)


def compile_launch(
    target: Target, family: str, dtype: str, launch: Launch, folder: Path, linked: set[tuple[str, ...]]
) -> Compiled:
    """Compile *launch* for *target*, and link it if its program is not among those *linked* for that vendor.

    What a program calls follows from its text and options, not from the processor.
    """
    name = f"{target.name}-{launch.kernel}-{source_hash(launch.program)}"
    source = folder / f"{name}.cl"
    source.write_text(expanded(launch.program.source))
    options = [o for o in build_options(launch.program) if not o.startswith("-cl-nv-")]
    row = Compiled(f"{family}: {launch.kernel}", dtype, target.name)
    vendor = target.device.vendor
    program = (vendor, source.read_text(), *options)
    try:
        needed = compiled(vendor, target.name, source, options, launch.kernel)
        if program not in linked:
            link(vendor, target.name, source, options)
            linked.add(program)
    except subprocess.CalledProcessError as error:
        log = f"{error.stderr or ''}{error.stdout or ''}".strip()
        return replace(row, error=f"{' '.join(options)}\n{log[:3000]}")
    return replace(row, resources=needed)


def compile_jobs(jobs: Iterable[Job], workers: int = 2) -> list[Compiled]:
    """Compile these (target, family, dtype, launch); results are in the same order."""
    linked: set[tuple[str, ...]] = set()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda job: compile_launch(*job, Path(folder), linked), jobs))  # type: ignore[call-arg]


def compile_all(workers: int, share: int) -> list[Compiled]:
    """Compile every launch for every target, in the order of KERNELS; of *share* launches one."""
    jobs = [
        (target, *job)
        for target in TARGETS
        for job in (*launches(target), *checks(target.device), *copies(target.device))
    ]
    return compile_jobs(jobs[::share], workers)
