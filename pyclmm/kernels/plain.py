"""The plain product of a family whose launches decide on the device whether the data suit it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..problem.gemm import GemmProblem
from .config import PlainConfig, TileConfig
from .device import DeviceInfo
from .interface import Kernel, Work


def may_return(family: Kernel, device: DeviceInfo) -> bool:
    """Whether launches of *family* may return at once (GATE in cl/include/gemm.h)."""
    return not (family.has_barriers and device.vendor == "pocl")


def _fallback(problem: GemmProblem) -> GemmProblem:
    return replace(problem, fallback=True, precision="highest")


def not_able(
    name: str, number: int, families: Sequence[Kernel], problem: GemmProblem, device: DeviceInfo
) -> str | None:
    """Why *name* may not be *number*, a place in *families*, or None if that family computes *problem*."""
    if number < len(families) and families[number].refuses(problem, device) is None:
        return None
    meant = f" ({families[number].name})" if number < len(families) else ""
    able = [f"{i} ({f.name})" for i, f in enumerate(families) if f.refuses(problem, device) is None]
    return f"{name} may be {', '.join(able) or 'nothing'} here, not {number}{meant}"


class Plain:
    """The product where whole numbers do not serve, by the first of *families* that can."""

    def __init__(self, families: Sequence[Kernel]) -> None:
        self._families = tuple(families)

    def refusal(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        """Why nobody computes it, or None if a family does."""
        fallback = _fallback(problem)
        reasons = [f.refuses(fallback, device) for f in self._families if may_return(f, device)]
        return reasons[-1] if all(reasons) else None

    def best(self, problem: GemmProblem, device: DeviceInfo) -> PlainConfig | None:
        """The number of its family, and its configuration; None if there is none."""
        fallback = _fallback(problem)
        for number, family in enumerate(self._families):
            if may_return(family, device) and family.refuses(fallback, device) is None:
                for config in family.configs(fallback, device):
                    return PlainConfig(number, config)
        return None

    def _of(self, config: TileConfig) -> tuple[Kernel, TileConfig]:
        """Who computes it, and how."""
        plain = config.plain or PlainConfig(0, TileConfig())
        return self._families[plain.family], plain.config

    def where_needed(self, config: TileConfig) -> str:
        """In words, who computes it."""
        return f"data that need it get the plain product by {self._of(config)[0].name}"

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        family, own = self._of(config)
        return family.estimate(_fallback(problem), own, device)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        fallback = _fallback(problem)
        if config.plain is None:
            return ["plain is missing: the configuration of the product where the data need it"]
        if refused := not_able("plain", config.plain.family, self._families, fallback, device):
            return [refused]
        family, own = self._of(config)
        return family.violations(fallback, own, device)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        """Launches that may return at once, so none packs an operand for later calls."""
        family, own = self._of(config)
        work = family.launches(_fallback(problem), own, device)
        return replace(work, launches=tuple(replace(launch, packs="") for launch in work.launches))
