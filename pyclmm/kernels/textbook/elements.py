"""`sequential`, `single_group`, `naive`, `flat` and `tiled`: one element at a time for each work-item."""

from __future__ import annotations

from ...problem.gemm import GemmProblem
from ..accepts import GENERAL, IN_ORDER, Accepts
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import Work, round_up, tiles_of
from .textbook import Textbook

# A multiply-add of doubles by integers takes as long as so many of 32-bit integers. llvmpipe, 2026-11-23
_SOFT = 90
_SOFT_ACTIVATIONS = ("none", "relu", "leaky_relu")
_WIDTHS = (16, 32, 8, 4, 2, 1)  # of `tiled`
_OTHER_WIDTH = 0.1  # other widths than the first count as slower by this


class Sequential(Textbook):
    """See cl/textbook/sequential.cl. Speed-ups are relative to it."""

    name = "sequential"
    summary = "the triple loop in a single work-item, summed in float64 where the device has it"
    wait = 0.186

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        return device.too_many_steps(problem.m * problem.n * problem.k)

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        rates, steps = device.rates, problem.m * problem.n * problem.k
        return rates.launch + problem.batch * steps * self.wait * rates.latency

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        return []

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        wide = {"float32": "float64", "complex64": "complex128"}
        wide = {} if problem.reproducible or not device.has_fp64 else wide
        acc_type = wide.get(problem.acc_type, problem.acc_type)
        return self.one_launch(problem, (1,), (1,), (), acc_type)


class SingleGroup(Textbook):
    """See cl/textbook/single_group.cl. For small shapes only."""

    name = "single_group"
    summary = "the whole product in one work-group of M x N work-items"
    fraction, wait = 0.1, 0.186  # as `naive`

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        items = problem.m * problem.n
        if items > device.max_work_group_size:
            return (
                f"M x N is {problem.m} x {problem.n}, {items} work-items in one work-group; "
                f"the device's limit is {device.max_work_group_size}"
            )
        reasons = self.violations(problem, TileConfig(), device)
        return device.too_many_steps(problem.k) or (reasons[0] if reasons else None)

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        return self.loop_seconds(problem, device, problem.batch, problem.m * problem.n, problem.n)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        return config.violations(device, (problem.n, problem.m), 0)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        size = (problem.n, problem.m)
        return self.one_launch(problem, size, size)


class Naive(Textbook):
    """See cl/textbook/naive.cl. BM x BN is the size of a work-group. The last fallback."""

    name = "naive"
    summary = "one work-item for each element of the result, 2-D NDRange"
    automatic = True
    has_barriers = False
    tiles = tuple(TileConfig(bm=side, bn=side) for side in (16, 8, 4, 1))
    accepts = Accepts(fields=GENERAL | IN_ORDER | {"soft_float64", "moduli", "dot_bytes", "fallback"})
    fraction, wait = 0.026, 0.28  # H200, 2026-11-22

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if problem.soft_float64 and problem.activation not in _SOFT_ACTIVATIONS:
            return f"activation {problem.activation!r} of {device.missing_type(problem.types)}"
        return super().obstacle(problem, device)

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        if problem.soft_float64:
            return device.rates.launch + problem.flops / 2 * _SOFT / device.rates.int32
        return super().estimate(problem, config, device)


class Flat(Textbook):
    """See cl/textbook/flat.cl. BN is the size of a work-group."""

    name = "flat"
    summary = "1-D NDRange in work-groups of 256: row = id / N, column = id % N"
    tiles = tuple(TileConfig(bn=size) for size in (256, 64, 16, 1))
    fraction, wait = 0.08, 0.186  # as `naive`, whose work-groups share rows and columns better

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        groups = problem.m * problem.n * problem.batch // config.bn + 1
        return self.loop_seconds(problem, device, groups, config.bn)

    def work_group(self, config: TileConfig) -> tuple[int, int]:
        return config.bn, 1

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        size = round_up(problem.m * problem.n, config.bn)
        return self.one_launch(problem, (size,), (config.bn,))


class Tiled(Textbook):
    """See cl/textbook/tiled.cl. BM = BN = BK is TW, the tile width."""

    name = "tiled"
    summary = "TW x TW tiles of A and B in local memory, one element for each work-item"
    automatic = True
    tiles = tuple(map(TileConfig.square, _WIDTHS))
    macros = (("TW", "bm"),)
    fraction, wait = 0.086, 0.12  # besides one for each step of TW. H200, 2026-11-22

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        """Of every width as of the first one, so that one program serves all shapes."""
        tw = _WIDTHS[0]
        groups = tiles_of(problem, tw, tw) * problem.batch
        seconds = self.loop_seconds(problem, device, groups, tw * tw, config.bn, 1 / tw)
        return seconds * (1 + _OTHER_WIDTH * (config.bm != tw))

    def shared_tile(self, config: TileConfig) -> tuple[int, int]:
        return config.bm, config.bn

    def local_bytes(self, problem: GemmProblem, config: TileConfig) -> int:
        return 2 * config.bm * (config.bm + 1) * problem.sums.nbytes

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        if not config.bm == config.bn == config.bk:
            return [f"tiled has one tile width, so bm, bn and bk must be equal: {config}"]
        return super().violations(problem, config, device)
