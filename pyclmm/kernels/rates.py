"""Rates: what a device does in a second. The one table of constants that every estimate starts from.

Where they come from, the best first: the user's own measurement (`pyclmm tune --device`), ours
(``MEASURED``), datasheet figures by vendor. Times are in seconds; a multiply-add is one fused multiplication
and addition, and rates are those of the whole device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

# Field -> unit and meaning. The command line prints them, and the user's file has these names.
MEANINGS: Mapping[str, tuple[str, str]] = {
    "launch": ("s", "an empty kernel that follows another one"),
    "group": ("s", "each work-group beyond those that run at the same time"),
    "latency": ("s", "a read of global memory that another one waits for"),
    "memory": ("B/s", "reading or writing global memory"),
    "cache": ("B/s", "reading what fits the last-level cache"),
    "cache_size": ("B", "the last-level cache"),
    "local": ("B/s", "reading local memory"),
    "float32": ("1/s", "float32 multiply-adds"),
    "float64": ("1/s", "float64 multiply-adds"),
    "int32": ("1/s", "32-bit integer multiply-adds"),
    "dot8": ("1/s", "multiply-adds of 8-bit integers, four by an instruction"),
    "matrix16": ("1/s", "multiply-adds of matrix units, float16 and bfloat16"),
    "matrix32": ("1/s", "multiply-adds of matrix units, TF32 (on AMD's gfx90a, float32)"),
    "matrix64": ("1/s", "multiply-adds of matrix units, float64"),
    "matrix8": ("1/s", "multiply-adds of matrix units, 8-bit integers"),
}
# Class of elements (``ElementType.unit``) -> the rate of the matrix units that multiply them
MATRIX_RATES = {"bytes": "matrix8", "halves": "matrix16", "singles": "matrix32", "doubles": "matrix64"}
# Unit -> the least and the most that a device of today or of the next decades can have.
BOUNDS: Mapping[str, tuple[float, float]] = {
    "s": (1e-15, 1.0),
    "B/s": (1e6, 1e18),
    "B": (1.0, 1e15),
    "1/s": (1e6, 1e18),
}
MAY_BE_ZERO = frozenset(MEANINGS) - {"launch", "latency", "memory", "cache", "local", "float32"}


@dataclass(frozen=True)
class Rates:
    """See ``MEANINGS``. A rate of 0: there is no such unit. ``source``: who measured, or "datasheet"."""

    launch: float
    group: float
    latency: float
    memory: float
    cache: float
    cache_size: float
    local: float
    float32: float
    float64: float
    int32: float
    dot8: float = 0.0
    matrix16: float = 0.0
    matrix32: float = 0.0
    matrix64: float = 0.0
    matrix8: float = 0.0
    source: str = "datasheet"

    def multiply_adds(self, acc_type: str) -> float:
        """Multiply-adds of *acc_type* (NumPy's name) a second, without matrix units."""
        return {
            "float32": self.float32, "complex64": self.float32 / 4,
            "float64": self.float64, "complex128": self.float64 / 4,
            "uint32": self.int32, "uint64": self.int32 / 4,
        }[acc_type]  # fmt: skip

    def matrix(self, unit: str) -> float:
        """Multiply-adds a second of the matrix units *unit* (``ElementType.unit``), or of float32."""
        rate: float = getattr(self, MATRIX_RATES[unit])
        return rate or self.float32

    def moved(self, nbytes: float) -> float:
        """Seconds to move *nbytes* that are used again and again, so that small ones stay in the cache."""
        return nbytes / (self.cache if nbytes <= self.cache_size else self.memory)

    def of_one(self, units: int, launch: float) -> Rates:
        """The rates of one of *units* that share the work, where a launch takes so much of theirs."""
        together = ("launch", "group", "latency")
        own: dict[str, Any] = {
            name: value / units for name, value in as_numbers(self).items() if name not in together
        }
        return replace(self, launch=self.launch * launch, **own)

    def with_measured(self, measured: Mapping[str, float], source: str) -> Rates:
        """These rates with those in *measured* in their place."""
        return replace(self, **measured, source=source)


def as_numbers(rates: Rates) -> dict[str, float]:
    """The rates by name, without their source."""
    return {name: getattr(rates, name) for name in MEANINGS}


# Measured by us: device name -> rates, driver 580.159.04, 2026-11-22 (NVIDIA H200) and 2026-11-27 (H100): by
# `pyclmm tune --device` of then, which timed a loop of multiply-adds for float32 to dot8, launch included.
# But the cache's size is by a sweep of reads on the H200, and matrix units are by the fastest products there,
# of `wgmma` and cuBLAS: both cards have the same chip at the same clock.
MEASURED = {
    "NVIDIA H200": Rates(
        launch=1.5e-6, group=0.58e-9, latency=0.145e-6,
        memory=4.4e12, cache=6.7e12, cache_size=45e6, local=32.5e12,
        float32=26.6e12, float64=14.4e12, int32=15.8e12, dot8=62.8e12,
        matrix16=400e12, matrix32=200e12, matrix64=32e12, matrix8=800e12,
        source="measured on an NVIDIA H200, driver 580.159.04, 2026-11-22",
    ),
    "NVIDIA H100 80GB HBM3": Rates(
        launch=1.9e-6, group=0.57e-9, latency=0.142e-6,
        memory=3.09e12, cache=5.7e12, cache_size=45e6, local=32.4e12,
        float32=26.0e12, float64=14.2e12, int32=15.6e12, dot8=62.3e12,
        matrix16=400e12, matrix32=200e12, matrix64=32e12, matrix8=800e12,
        source="measured on an NVIDIA H100, driver 580.159.04, 2026-11-27",
    ),
}  # fmt: skip
