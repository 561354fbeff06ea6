"""MATRIX_UNITS: the table of matrix units: how each is found, what it does in a cycle, how it is drawn.

A family says by name on which unit it multiplies (``MatrixKernel.unit``). It runs where that unit is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class MatrixUnit:
    """A matrix unit, called as the family that is plainest on it.

    ``generations``: pattern of a mark of the device (:attr:`~pyclmm.kernels.device.DeviceInfo.marks`) -> the
    multiply-adds of a compute unit in a cycle, by class of elements (``ElementType.unit``). The first pattern
    that fits a mark counts. ``vendor`` is the driver's; ``needs`` names the devices for people.
    ``style`` is colour and marker in pictures, ``road`` the families that are steps of the road.
    """

    name: str
    vendor: str
    needs: str
    generations: Mapping[str, Mapping[str, int]]
    style: tuple[str, str]
    road: tuple[str, ...]

    def figures(self, vendor: str, marks: Iterable[str]) -> Mapping[str, int]:
        """What it multiplies on a device of these marks, by class of elements; nothing where it is not."""
        if vendor != self.vendor:
            return {}
        listed = "\n".join(marks)
        for pattern, figures in self.generations.items():
            if re.search(f"^(?:{pattern})$", listed, re.MULTILINE):
                return figures
        return {}

    def lacking(self, family: str) -> str:
        """Why *family*, which is on this unit, cannot run on a device without it."""
        return f"{family} needs {self.needs}"


DPAS_EXTENSION = "cl_intel_subgroup_matrix_multiply_accumulate"
# The figures are from the vendors' datasheets. NVIDIA's others of 8.0 and later have those of 8.6. AMX:
# TDPBF16PS takes 16 cycles for 16 x 16 x 32 (Intel's manual). In the order of the road.
_UNITS = (
    MatrixUnit(
        "mma", "nvidia", "an NVIDIA device of compute capability 8.0 or more",
        {
            "sm_[89]0": {"halves": 1024, "singles": 512, "bytes": 2048},
            r"sm_([89]\d|\d{3,})": {"halves": 512, "singles": 256, "bytes": 1024},
        },
        ("#6e7600", "^"), ("mma",),
    ),
    MatrixUnit(
        # Other devices have few units for float64 or none, or we have not run them
        "mma_double", "nvidia", "an NVIDIA device of compute capability 8.0 or 9.0",
        {"sm_80": {"doubles": 64}, "sm_90": {"doubles": 128}},
        ("#b55e94", "X"), (),
    ),
    MatrixUnit(
        "wgmma", "nvidia", "an NVIDIA device of compute capability 9.0",
        {"sm_90": {"halves": 2048, "singles": 1024, "bytes": 4096}},
        ("#547ecd", "v"), ("wgmma_bare", "wgmma"),
    ),
    MatrixUnit(
        "mfma", "amd", "an AMD device of gfx90a or gfx942",
        {
            "gfx90a": {"halves": 512, "singles": 128, "doubles": 128, "bytes": 512},
            "gfx942": {"halves": 1024, "singles": 512, "doubles": 128, "bytes": 2048},
        },
        ("#5f64b8", "<"), ("mfma",),
    ),
    MatrixUnit(
        "wmma", "amd", "an AMD device of RDNA 3 or 4, gfx1100 to gfx1201",
        {r"gfx11\d\d": {"halves": 256, "bytes": 256}, "gfx120[01]": {"halves": 512, "bytes": 1024}},
        ("#b46d0f", ">"), ("wmma",),
    ),
    MatrixUnit(
        "dpas", "intel", f"an Intel device with {DPAS_EXTENSION} and sub-groups of 8 or 16",
        {DPAS_EXTENSION: {"halves": 1024, "bytes": 2048}},
        ("#009fbb", "p"), ("dpas",),
    ),
    MatrixUnit(
        "amx", "pocl", "PoCL on a processor of Intel's with AMX",
        {
            "amx int8 bfloat16": {"halves": 512, "bytes": 1024},
            "amx bfloat16": {"halves": 512},
            "amx int8": {"bytes": 1024},
        },
        ("#4f8f5b", "h"), (),
    ),
)  # fmt: skip
MATRIX_UNITS = {unit.name: unit for unit in _UNITS}


def figures_of(vendor: str, marks: Iterable[str]) -> dict[str, int]:
    """Multiply-adds of a compute unit in a cycle by class of elements: the fastest unit of the device."""
    found: dict[str, int] = {}
    for unit in _UNITS:
        for elements, figure in unit.figures(vendor, marks).items():
            found[elements] = max(figure, found.get(elements, 0))
    return found
