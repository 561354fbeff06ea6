"""ComputeUnit: the hardware that runs work-groups, from the vendors' datasheets. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class ComputeUnit:
    """The figures of one compute unit. Where a vendor counts smaller units, of several of them.

    ``fma`` is float32 multiply-adds per cycle, ``double`` and ``integer`` the same for float64 and 32-bit
    integers, ``registers`` the number of 32-bit registers, ``stream`` bytes per cycle from device memory.
    ``item_registers`` is from `make offline`. Matrix units are in matrix_unit.py.

    ``exact``: these and the matrix units' figures are those of this very generation, so it does no more.
    """

    fma: int
    registers: int
    work_items: int
    counted: int = 1  # how many of the vendor's compute units make one of these
    stream: float = 16.0
    item_registers: int = 216  # of a work-item; with more, clang 15 spills for gfx90a and gfx1030
    clang_spills: bool = True  # clang spills sooner with integers and converted elements; ptxas does not
    most_sums: int = 1 << 30  # 32-bit registers for the sums of a work-item; with more, Intel's IGC spills
    crowded: bool = False  # clang 19 spills some tiles for gfx1030, whatever the element type
    double: float = 2.0
    integer: int = 32
    exact: bool = False


_NVIDIA = ComputeUnit(128, 65536, 2048, item_registers=255, clang_spills=False, integer=64)
_AMD = ComputeUnit(64, 65536, 2048, crowded=True, double=4)
_INTEL = ComputeUnit(128, 131072, 1024, counted=16, most_sums=32, double=8, integer=64)
_OTHER = ComputeUnit(64, 32768, 1024, stream=8.0)
_BY_VENDOR = {"nvidia": _NVIDIA, "amd": _AMD, "intel": _INTEL}
# By compute capability (CUDA C++ Programming Guide, "Arithmetic Instructions")
_BY_CAPABILITY = {
    (7, 0): replace(_NVIDIA, fma=64, double=32, exact=True),
    (7, 5): replace(_NVIDIA, fma=64, exact=True),
    (8, 0): replace(_NVIDIA, fma=64, double=32, exact=True),
    (8, 6): replace(_NVIDIA, exact=True),
    (8, 9): replace(_NVIDIA, exact=True),
    (9, 0): replace(_NVIDIA, double=64, exact=True),
}
_BY_GFX = dict.fromkeys(("gfx90a", "gfx942"), replace(_AMD, double=64))


def unit_of(vendor: str, capability: tuple[int, int], gfx: str) -> ComputeUnit:
    """The compute unit of a GPU. *capability*: NVIDIA's, or (0, 0); *gfx*: AMD's name of it, or ""."""
    if vendor == "nvidia":
        return _BY_CAPABILITY.get(capability, _NVIDIA)
    if gfx.startswith(("gfx11", "gfx12")):
        return replace(_AMD, fma=128, integer=64)
    return _BY_GFX.get(gfx, _BY_VENDOR.get(vendor, _OTHER))
