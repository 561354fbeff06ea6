"""The names of the kernel families, as a type: a type checker refuses any other."""

from __future__ import annotations

from typing import Literal

from .config import TileConfig

KernelName = Literal[
    "matvec",
    "packed",
    "thin",
    "wgmma",
    "split",
    "mma_split",
    "mma_double_bulk",
    "mma_double",
    "mma",
    "mfma",
    "wmma",
    "dpas",
    "register",
    "tiled",
    "naive",
    "flat",
    "single_group",
    "sequential",
]
# "auto", a kernel's name, or a name with the configuration to use.
NamedKernel = Literal["auto"] | KernelName | tuple[KernelName, TileConfig]
