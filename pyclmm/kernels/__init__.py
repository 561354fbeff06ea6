"""KERNELS: every kernel family, by folder. A new family is one module and one line here. Pure.

Others import: accepts, config, device, interface, launches, listed, matrix_unit, rates, traffic,
verification, and what is in ``__all__``.
"""

from __future__ import annotations

from .. import repr_tables
from ..errors import unknown_name
from .cpu.amx import Amx
from .cpu.int8_rows import Int8Quantized, Int8Tile
from .cpu.matvec import Matvec
from .cpu.packed import Packed
from .cpu.small import Small
from .gpu.register import Register
from .gpu.thin import Thin
from .interface import Kernel, Launch, Program, Work, Workspace
from .nvidia.mma import Mma, MmaDouble
from .nvidia.mma_double_bulk import MmaDoubleBulk
from .nvidia.mma_quantized import MmaQuantized
from .nvidia.split import MmaSplit, Split
from .nvidia.wgmma import Wgmma
from .nvidia.wgmma_bare import WgmmaBare
from .nvidia.wgmma_fragments import WgmmaFragments
from .nvidia.wgmma_quantized import WgmmaQuantized
from .quantized.dequantized import Dequantized
from .quantized.rows import Quantized
from .residues.limbs import Limbs
from .residues.residues import Residues
from .textbook.blocks import Block, DoubleBuffer, Strip, Vector
from .textbook.elements import Flat, Naive, Sequential, SingleGroup, Tiled
from .units.unit import UNIT_KERNELS, Mfma


class Kernels(tuple[Kernel, ...]):
    """Kernel families; ``repr`` gives one line for each, and a notebook shows a table."""

    def __repr__(self) -> str:
        return "\n".join(repr_tables.aligned([(kernel.name, kernel.summary) for kernel in self]))

    def _repr_html_(self) -> str:
        rows = [(k.name, k.summary, "yes" if k.automatic else "by name only") for k in self]
        return repr_tables.html(("kernel", "what it does", "chosen by auto"), rows)


# Which families multiply residues for `residues`, and compute the product where residues do not serve: the
# first that can. `packed` and `naive` have no barriers (GATE in cl/include/gemm.h).
_OF_BYTES = (Wgmma(), Mma(), *UNIT_KERNELS, Packed(), Register(), Naive())
_OF_FLOAT64 = (MmaDoubleBulk(), MmaDouble(), Mfma(), Packed(), Register(), Naive())
# Which families may multiply quantised weights once they are numbers.
_OF_WEIGHTS = (Wgmma(), Split(), Mma(), *UNIT_KERNELS, Packed(), Register(), Naive())

KERNELS = Kernels(
    (
        Matvec(),
        Small(),
        Packed(),
        Amx((Packed(), Naive())),
        Thin(),
        Quantized(),
        Int8Quantized(),
        Int8Tile(),
        MmaQuantized(),
        WgmmaFragments(),
        WgmmaQuantized(),
        Dequantized(_OF_WEIGHTS),
        Wgmma(),
        Split(),
        MmaSplit(),
        Residues(_OF_BYTES, _OF_FLOAT64),
        Limbs(_OF_FLOAT64),
        MmaDoubleBulk(),
        MmaDouble(),
        Mma(),
        *UNIT_KERNELS,
        WgmmaBare(),
        Register(),
        DoubleBuffer(),
        Vector(),
        Block(),
        Strip(),
        Tiled(),
        Naive(),
        Flat(),
        SingleGroup(),
        Sequential(),
    )
)

__all__ = ["KERNELS", "Kernel", "Kernels", "Launch", "Program", "Work", "Workspace", "kernel_named"]


def kernel_named(name: str) -> Kernel:
    """The family called *name*. Raises ArgumentError with the nearest names if there is none."""
    for kernel in KERNELS:
        if kernel.name == name:
            return kernel
    raise unknown_name("kernel", name, ["auto", *(k.name for k in KERNELS)])
