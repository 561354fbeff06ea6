"""KERNELS: every kernel family, best first. A new family is one module and one line here."""

from __future__ import annotations

from ..errors import unknown_name
from .base import Kernel, Launch, Program, Work, Workspace
from .dpas import Dpas
from .flat import Flat
from .matvec import Matvec
from .mfma import Mfma
from .mma import Mma
from .mma_double import MmaDouble
from .mma_double_bulk import MmaDoubleBulk
from .mma_split import MmaSplit
from .naive import Naive
from .packed import Packed
from .register import Register
from .sequential import Sequential
from .single_group import SingleGroup
from .split import Split
from .thin import Thin
from .tiled import Tiled
from .wgmma import Wgmma
from .wmma import Wmma

KERNELS: tuple[Kernel, ...] = (
    Matvec(),
    Packed(),
    Thin(),
    Wgmma(),
    Split(),
    MmaSplit(),
    MmaDoubleBulk(),
    MmaDouble(),
    Mma(),
    Mfma(),
    Wmma(),
    Dpas(),
    Register(),
    Tiled(),
    Naive(),
    Flat(),
    SingleGroup(),
    Sequential(),
)

__all__ = ["KERNELS", "Kernel", "Launch", "Program", "Work", "Workspace", "kernel_named"]


def kernel_named(name: str) -> Kernel:
    """The family of that name; ArgumentError with the nearest names otherwise."""
    for kernel in KERNELS:
        if kernel.name == name:
            return kernel
    raise unknown_name("kernel", name, ["auto", *(k.name for k in KERNELS)])
