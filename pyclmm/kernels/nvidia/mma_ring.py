"""What `mma`, `mma_double` and `mma_split` share: one work-group for each tile, cl/nvidia/mma_ring.h."""

from __future__ import annotations

from ...problem.gemm import GemmProblem
from ..config import TileConfig, slices
from ..device import DeviceInfo
from ..interface import Arg, Defines, Launch, gemm_launch, gemm_program
from .matrix_units import local_bytes, out_defines


def work_items(config: TileConfig) -> int:
    """A work-group's size: 32 work-items for each sub-group, and each slice."""
    return 32 * (config.bm // config.sgm) * (config.bn // config.sgn) * slices(config)


def unfit(config: TileConfig, columns: int) -> list[str]:
    """Why the ring has no such tile, of fragments of 16 x *columns*. Empty if it has."""
    if config.sgm % 16 or config.sgn % columns or config.bm % config.sgm or config.bn % config.sgn:
        return [f"sgm must be a multiple of 16, sgn of {columns}, and divide bm, bn: {config}"]
    if config.stages < 2 or config.split_k < 1:
        return [f"stages must be 2 or more, split_k 1 or more: {config}"]
    return []


def too_many_stages(config: TileConfig, needed: int, device: DeviceInfo) -> list[str]:
    """Why *needed* bytes of local memory are too many for the device. Empty if they are not."""
    if needed > local_bytes(device):
        return [f"{config.stages} stages take {needed} bytes of local memory"]
    return []


def product(
    problem: GemmProblem,
    config: TileConfig,
    name: str,
    groups: int,
    chunks: tuple[int, int],
    defines: Defines,
    args: tuple[Arg, ...],
) -> Launch:
    """The launch of cl/nvidia/<name>.cl, with *groups* work-groups for each range of K."""
    ring = (
        *config.macros("bm", "bn", "sgm", "sgn", "stages"), ("GROUP", config.option("group", 8)),
        ("CHUNK_A", chunks[0]), ("CHUNK_B", chunks[1]),
    )  # fmt: skip
    items, split = work_items(config), config.split_k > 1
    program = gemm_program(problem, f"nvidia/{name}.cl", (*ring, *defines, *out_defines(problem)))
    size, local = (groups * items, *(config.split_k,) * split), (items, *(1,) * split)
    return gemm_launch(problem, program, f"matmul_{name}", size, local, args=args)
