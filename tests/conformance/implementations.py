"""The OpenCL implementations that conformance runs on, as data.

Each is a shared library named by an .icd file. A process sees exactly one of them, through OCL_ICD_VENDORS,
so that a crash of a driver ends only its own run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyclmm.kernels import KERNELS
from pyclmm.opencl.pocl import pocl_folder

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".conformance"  # all downloads and generated files
DEBIAN = HOME / "debian"  # Debian packages, unpacked
INTEL = HOME / "intel"
POCL_WHEEL = HOME / "pocl-wheel"
NVIDIA = HOME / "nvidia"
TINYGRAD = HOME / "tinygrad"
DEBIAN_LIB = "usr/lib/x86_64-linux-gnu"
ARM_LIBC = DEBIAN / "usr/aarch64-linux-gnu"
AMD_LIBRARIES = DEBIAN / DEBIAN_LIB / "amdgcn/bitcode"

# The contents of each folder.
DEBIAN_PACKAGES = (
    *("pocl-opencl-icd", "mesa-opencl-icd", "oclgrind", "clang-15"),
    *("clang-19", "lld-19", "llvm-19", "rocm-device-libs"),  # for AMD's devices
    "intel-opencl-icd",  # for Intel's GPUs
    *("libc6-dev-arm64-cross", "qemu-user"),  # for Arm's CPUs
)
WHEELS = {
    INTEL: ("intel-opencl-rt==2026.2.0", "intel-cmplr-lib-rt==2026.2.0"),
    POCL_WHEEL: ("pocl-binary-distribution==3.0",),
    NVIDIA: ("nvidia-cuda-nvcc-cu12==12.9.86",),
    TINYGRAD: ("tinygrad==0.14.0",),  # AMD's pseudocode of the instructions; nothing of it runs
}


@dataclass(frozen=True)
class Implementation:
    """One implementation: its library (a pattern below ``home``) and the environment it needs.

    ``refusals`` are regular expressions for reasons with which a kernel may refuse a problem here. Any other
    skip fails the run. Every kernel must pass here at least once, except MATRIX_UNITS and those in
    ``without``, which this device cannot run. ``checked`` marks the simulator, which reports races and bad
    accesses and is too slow for large sizes. ``shares`` marks a driver that shares the grid with others like
    it: each gets every kernel with every type. ``newer`` is the Debian package of a driver that runs in the
    system of newer.py; ``title`` gets its version, and ``home`` is not used.
    """

    name: str
    title: str
    home: Path
    library: str
    env: dict[str, str] = field(default_factory=dict)
    library_path: tuple[Path, ...] = ()
    refusals: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    checked: bool = False
    shares: bool = False
    newer: str = ""


FOR_CPUS = tuple(kernel.name for kernel in KERNELS if kernel.made_for == "cpu")
# Kernels for matrix units of GPUs. No implementation here must run them.
MATRIX_UNITS = (
    *("wgmma", "wgmma_bare", "split", "mma_split", "mma_double", "mma_double_bulk", "mma"),  # NVIDIA
    *("mma_quantized", "wgmma_quantized", "wgmma_fragments"),
    *("mfma", "wmma", "dpas"),  # AMD, Intel
    "amx",  # some of Intel's processors
)
NO_FP64 = r"needs cl_khr_fp64"
# Reasons about the product, or about hardware that no implementation here has.
EVERYWHERE = (
    r"work-items in one work-group",
    r"neither M nor N is",
    r"is not thin",
    r"OpenCL has no vectors of complex numbers",
    r"takes no shape like",
    r"needs an (NVIDIA|AMD|Intel) device",
    r"by residues",
    r"(amx|residues|limbs) multiplies",
    r"amx (is for|cannot|needs)",
    r"K is 0",
    r"would have to pack operands of a list",
    # of reproducible products
    r"chains of fused multiply-adds",
    r"adds products of real and of imaginary parts apart",
    r"adds the elements of a vector at the end of each row",
)

_LLVMPIPE: dict[str, Any] = {
    "refusals": (
        NO_FP64,
        r"no configuration fits the device's limits",
        r"ends loops early",
        r"loops to their end",
    ),
    "without": FOR_CPUS,
}

IMPLEMENTATIONS = (
    Implementation(
        "pocl-3.0",
        "PoCL 3.0 (PyPI)",
        POCL_WHEEL,
        "**/libpocl-*.so",
        # The one of `make test`: what that compiled need not be compiled again.
        env={"POCL_CACHE_DIR": str(pocl_folder())},
    ),
    Implementation(
        "pocl-3.1",
        "PoCL 3.1 (Debian)",
        DEBIAN,
        f"{DEBIAN_LIB}/libpocl.so.2.*",
        library_path=(DEBIAN / DEBIAN_LIB,),
        shares=True,
    ),
    Implementation(
        "intel", "Intel CPU runtime 2026.2 (PyPI)", INTEL, "lib/libintelocl.so", library_path=(INTEL / "lib",)
    ),
    Implementation(
        "rusticl",
        "rusticl on llvmpipe, Mesa 22.3 (Debian)",
        DEBIAN,
        f"{DEBIAN_LIB}/libRusticlOpenCL.so.1",
        env={
            "RUSTICL_ENABLE": "llvmpipe",
            "GALLIUM_PIPE_SEARCH_DIR": str(DEBIAN / DEBIAN_LIB / "gallium-pipe"),
        },
        library_path=(DEBIAN / DEBIAN_LIB,),
        **_LLVMPIPE,
    ),
    Implementation(
        "oclgrind",
        "Oclgrind 21.10 (Debian)",
        DEBIAN,
        "usr/lib/oclgrind/liboclgrind-rt-icd.so",
        env={
            "OCLGRIND_DATA_RACES": "1",
            "OCLGRIND_UNINITIALIZED": "1",
            "OCLGRIND_MAX_ERRORS": "10000",
            "OCLGRIND_LOCAL_MEM_SIZE": str(256 << 10),  # for packed
            "OCLGRIND_BUILD_OPTIONS": "-cl-opt-disable",
            "OCLGRIND_LOG": str(HOME / "oclgrind.log"),
        },
        library_path=(DEBIAN / DEBIAN_LIB,),
        refusals=(r"copies of structures", r"takes a filled buffer"),
        without=("residues", "limbs"),
        checked=True,
    ),
)

# Of Debian's newest suite, with its Python.
NEWER_IMPLEMENTATIONS = (
    Implementation(
        "pocl-newer",
        "PoCL {} (Debian sid, Python 3.14)",
        HOME,
        f"/{DEBIAN_LIB}/libpocl.so.2",
        shares=True,
        newer="pocl-opencl-icd",
    ),
    Implementation(
        "rusticl-newer",
        "rusticl on llvmpipe, Mesa {} (Debian sid, Python 3.14)",
        HOME,
        f"/{DEBIAN_LIB}/libRusticlOpenCL.so.1",
        env={"RUSTICL_ENABLE": "llvmpipe"},
        shares=True,
        newer="mesa-opencl-icd",
        **_LLVMPIPE,
    ),
)
