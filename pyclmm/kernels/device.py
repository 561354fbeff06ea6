"""DeviceInfo: what kernel families know about an OpenCL device. Plain data: nothing here calls a driver."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from .compute_unit import ComputeUnit, unit_of
from .matrix_unit import MATRIX_UNITS, figures_of
from .rates import MATRIX_RATES, MEASURED, Rates

_LLVMPIPE_STEPS = 20_000
# Bytes of local arrays that a kernel may declare, by compute capability, where we have run it. NVIDIA's
# driver reports 48 KiB but accepts what the hardware has for a work-group (CUDA C++ Programming Guide,
# "Technical Specifications"). On 9.0 that is 227 KiB. With driver 580.159.04 a kernel with arrays of 226 KiB
# ran; one with all 227 KiB failed, because the compiler adds 4 bytes.
_STATIC_LOCAL_BYTES = {(9, 0): 232_448}
# MHz of a device that tells no clock, as Intel's CPU runtime for an AMD processor
_CPU_CLOCK, _GPU_CLOCK = 2500, 1000
# Seconds of a launch by the vendor of the driver. Intel's runtime computes a part on the caller's thread.
# Zen 4, and a Xeon of family 6, model 167
_CPU_LAUNCH = {"intel": 6e-6}
# PoCL's devices that compute on the caller's thread, up to PoCL 3 and since PoCL 4, and their launch.
THREADLESS = ("basic", "cpu-minimal")
_THREADLESS_LAUNCH = 5e-6
# What a launch of Intel's runtime that runs on the caller's thread takes, of one that may wake others: 1.6 us
# for 3.0, and 6 in the estimates above.
_HERE = 1 / 3

# Of Rates.launch, where a launch begins while the one before ends: H200, 2026-11-29, 0.55 us for 1.5.
_OVERLAPPED = 0.37

# What a processor may have, as far as kernels are compiled for it.
FEATURES = ("avx2", "avx512f", "fma", "neon", "sve")


@dataclass(frozen=True)
class Target:
    """The processor that a CPU device's compiler compiles for, as its predefined macros tell. ``vector_bits``
    is 0 if they do not. ``features``: those of ``FEATURES``. ``beyond``: the width of vectors that the
    processor has though the compiler was not told: functions may be compiled for it (attributes.h).
    """

    vector_bits: int = 0
    features: tuple[str, ...] = ()
    beyond: int = 0


@dataclass(frozen=True)
class Caches:
    """A CPU's data caches in bytes. The defaults are the least that processors with vectors have.

    ``l1`` and ``l2``: the share of one compute unit, as hardware threads that share a cache divide it.
    ``l3``: the whole cache, 0 without one. ``line``: bytes of a line. ``tlb``: pages that the second-level
    TLB holds, 0 if that is not known.
    """

    l1: int = 32 << 10
    l2: int = 256 << 10
    l3: int = 0
    line: int = 64
    tlb: int = 0


@dataclass(frozen=True)
class AmxSupport:
    """The matrix instructions (AMX) that a CPU device's kernels may use. ``types``: the element types that
    they multiply, of "int8" and "bfloat16". ``refusal``: why there are none.
    """

    types: tuple[str, ...] = ()
    refusal: str = "it is for CPU devices"


@dataclass(frozen=True)
class DeviceInfo:
    """The facts about one device that decide which kernel is chosen. Plain data, so tests can make up
    devices.

    Sizes are in bytes, ``max_clock_mhz`` in MHz. ``vendor`` is one of the short names in
    opencl/devices.py or "other"; ``kind`` is "cpu", "gpu", "accelerator" or "other".
    """

    name: str
    vendor: str
    kind: str
    platform: str
    platform_version: str
    driver_version: str
    opencl_version: tuple[int, int]
    compute_units: int
    max_work_group_size: int
    max_work_item_sizes: tuple[int, int, int]
    local_mem_size: int
    global_mem_size: int
    max_mem_alloc_size: int
    max_clock_mhz: int
    float_vector_width: int
    has_fp64: bool
    has_fp16: bool
    unified_memory: bool
    extensions: frozenset[str]
    compute_capability: tuple[int, int] | None = None
    sub_group_size: int = 0  # the smallest of the device; queried only where matrix instructions need it
    target: Target = Target()  # of a CPU
    caches: Caches = Caches()  # of a CPU
    amx: AmxSupport = AmxSupport()  # of a CPU
    flushes: bool = False  # whether the driver does not promise subnormal float32 numbers
    clusters: bool = False  # whether launches can have clusters, as CUDA's can and OpenCL's cannot
    overlaps: bool = False  # whether a launch may begin while the one before ends, as some of CUDA's can
    user_rates: Rates | None = None  # what `pyclmm tune --device` measured

    @property
    def identity(self) -> dict[str, str]:
        """Identifies the device in files and to other processes: name, platform, driver_version.

        A virtual machine's CPU has the same name with two cores and with sixty. So a CPU's name here includes
        its compute units and the width of its vectors.
        """
        size = f", {self.compute_units} units of {self.vector_bits} bits" if self.is_cpu else ""
        return {"name": self.name + size, "platform": self.platform, "driver_version": self.driver_version}

    @cached_property
    def gfx(self) -> str:
        """AMD's name of the processor, such as "gfx90a". Empty on other devices and drivers."""
        found = re.match(r"gfx[0-9a-f]+", self.name) if self.vendor == "amd" else None
        return found[0] if found else ""

    @property
    def capability(self) -> tuple[int, int]:
        """NVIDIA's compute capability, or (0, 0) on other devices."""
        return self.compute_capability or (0, 0)

    @cached_property
    def marks(self) -> tuple[str, ...]:
        """What a matrix unit is found by: "sm_90", AMD's gfx, "amx" with its types, extensions."""
        capability = "sm_{}{}".format(*self.capability)
        types = [name for name in ("int8", "bfloat16") if name in self.amx.types]
        return (capability, self.gfx, " ".join(("amx", *types)), *self.extensions)

    @cached_property
    def matrix_units(self) -> frozenset[str]:
        """The names of the matrix units that it has."""
        return frozenset(unit.name for unit in MATRIX_UNITS.values() if unit.figures(self.vendor, self.marks))

    @cached_property
    def is_cpu(self) -> bool:
        return self.kind == "cpu"

    @cached_property
    def vector_bits(self) -> int:
        """Width in bits of the widest vector registers to compile for: 128, 256 or 512. The compiler knows it
        best. If it does not say, as Intel's, the driver's native width decides, down to a power of two.
        """
        return self.target.vector_bits or max(128, min(512, 16 << self.float_vector_width.bit_length()))

    @cached_property
    def widest_bits(self) -> int:
        """The same for functions that are compiled for the processor itself."""
        return max(self.vector_bits, self.target.beyond)

    @cached_property
    def vector_items(self) -> int:
        """Neighbouring work-items of which a CPU's compiler makes one vector; 0 where it makes a loop."""
        return self.vector_bits // 32 if self.is_cpu and self.vendor == "intel" else 0

    @property
    def threadless(self) -> bool:
        """Whether kernels run on the caller's thread, so that a launch wakes no other."""
        return self.is_cpu and self.vendor == "pocl" and self.name.startswith(THREADLESS)

    @cached_property
    def alone(self) -> DeviceInfo:
        """What launches have that run on the caller's thread of a device which has threads: one unit."""
        return replace(self, compute_units=1, user_rates=self.rates.of_one(self.units, _HERE))

    def group_items(self, most: int) -> int:
        """The largest power of two of work-items, up to *most*, that a work-group may have in dimension 0."""
        return min(most, 1 << (min(self.max_work_group_size, self.max_work_item_sizes[0]).bit_length() - 1))

    @property
    def in_place(self) -> bool:
        """Whether a buffer made over a host array uses the array's memory, so that no map is needed.

        OpenCL promises that the array holds what a kernel wrote only after a map, which must wake a thread.
        PoCL and Intel's CPU runtime never copy. Oclgrind copies, and others may.
        """
        return self.is_cpu and self.unified_memory and self.vendor in ("pocl", "intel")

    @cached_property
    def unit(self) -> ComputeUnit:
        """The figures of one compute unit of a GPU."""
        return unit_of(self.vendor, self.capability, self.gfx)

    @cached_property
    def units(self) -> int:
        """The device's compute units, of a GPU as :class:`ComputeUnit` counts them."""
        return self.compute_units if self.is_cpu else max(1, self.compute_units // self.unit.counted)

    @cached_property
    def rates(self) -> Rates:
        """What the device does in a second: measured here, or by us, or from datasheets."""
        found = self.user_rates or MEASURED.get(self.name) or self._datasheet_rates
        return replace(found, launch=_OVERLAPPED * found.launch) if self.overlaps else found

    @property
    def _datasheet_rates(self) -> Rates:
        """Rates of a device that nobody measured. Unknown figures are pessimistic."""
        unknown = _CPU_CLOCK if self.is_cpu else _GPU_CLOCK
        cycles = 1e6 * (self.max_clock_mhz or unknown) * self.units
        figures = figures_of(self.vendor, self.marks)
        matrix: dict[str, Any] = {
            MATRIX_RATES[elements]: figure * cycles for elements, figure in figures.items()
        }
        if self.is_cpu:  # two multiply-adds a cycle in vectors; memory as on two cores of Zen 4
            single, clock = 2 * self.vector_bits / 32 * cycles, cycles / self.units
            launch = _THREADLESS_LAUNCH if self.threadless else _CPU_LAUNCH.get(self.vendor, 20e-6)
            return Rates(
                launch=launch, group=1e-6, latency=0.1e-6, memory=20e9,
                cache=32 * cycles, local=32 * cycles,
                cache_size=self.caches.l2 * self.units, float32=single, float64=single / 2, int32=single / 2,
                source=f"datasheet, at {clock / 1e9:.1f} GHz", **matrix,
            )  # fmt: skip
        unit, memory = self.unit, self.unit.stream * cycles
        return Rates(
            launch=4e-6, group=2e-9, latency=0.3e-6, memory=memory, cache=1.5 * memory, cache_size=8 << 20,
            local=unit.fma * cycles, float32=unit.fma * cycles, float64=unit.double * cycles,
            int32=unit.integer * cycles, dot8=4 * unit.integer * cycles * self.dots_bytes, **matrix,
        )  # fmt: skip

    def most(self, rate: str) -> float | None:
        """The most multiply-adds a second of the unit with that rate: units x clock x width. None where one
        of them is not known: a CPU's clock may rise over the one that it reports.
        """
        known = not self.is_cpu and self.max_clock_mhz and self.unit.exact
        return float(getattr(self._datasheet_rates, rate)) if known else None

    @property
    def dots_bytes(self) -> bool:
        """Whether a GPU has an instruction for dot products of four bytes (cl/include/dot_bytes.h)."""
        extended = self.kind == "gpu" and "cl_khr_integer_dot_product" in self.extensions
        return extended or self.capability >= (6, 1)

    @cached_property
    def static_local_bytes(self) -> int:
        """Bytes of local memory that the arrays declared in a kernel may take."""
        return _STATIC_LOCAL_BYTES.get(self.capability, self.local_mem_size)

    @property
    def wide_tile_cost(self) -> float:
        """Time of a multiply-add in a tile of 8 x 3 vectors, relative to one of 8 x 2. Measured on Zen 4."""
        return {"intel": 0.97, "pocl": 1.06}.get(self.vendor, 1.0)

    @property
    def prefetches(self) -> bool:
        """Whether clang's ``__builtin_prefetch`` works. OpenCL's own prefetch() does nothing on these
        drivers. Oclgrind compiles with clang too, but its interpreter does not know the builtin.
        """
        return self.is_cpu and self.vendor in ("pocl", "intel")

    @property
    def ends_loops_early(self) -> bool:
        """Whether long loops give wrong results, so that no work-item may do a whole work-group's work."""
        return "llvmpipe" in self.name

    def too_many_steps(self, steps: int) -> str | None:
        """Why a work-item of this device cannot run *steps* iterations of its loops, or None if it can.

        llvmpipe (Mesa 22.3) leaves all loops of a work-item after 65,535 iterations in total. It reports no
        error, and the result is wrong. The limit is a third of that, as *steps* may leave out some
        iterations.
        """
        if self.ends_loops_early and steps > _LLVMPIPE_STEPS:
            return f"{steps} steps per work-item are too many for {self.name!r}: it ends loops early"
        return None

    @property
    def soft_fma(self) -> bool:
        """Whether reproducible float32 products compute each FMA by integers, as the driver's own flushes.

        On llvmpipe (Mesa 22.3) that takes 1.8 to 3.6 times as long as products that are not reproducible
        (256 cubed by `tiled`, `naive`, `register`; 2026-11-22). On a GPU it would be far more, so GPUs that
        flush are refused.
        """
        return self.flushes and self.is_cpu

    def unfused(self, acc_type: str) -> str | None:
        """Why sums of *acc_type* cannot be chains of fused multiply-adds here, or None if they may be."""
        if self.flushes and not self.soft_fma and acc_type in ("float32", "complex64"):
            return f"device {self.name!r} does not keep subnormal float32 numbers"
        if self.target.vector_bits and not {"fma", "neon"} & {*self.target.features}:
            return f"the processor of {self.name!r} has no fused multiply-add"
        return None

    def missing_type(self, dtypes: tuple[str, ...]) -> str | None:
        """Why this device cannot compute with one of *dtypes* (NumPy names), or None."""
        for name in dtypes:
            if name in ("float64", "complex128") and not self.has_fp64:
                return f"{name} needs cl_khr_fp64, which device {self.name!r} does not have"
        return None
