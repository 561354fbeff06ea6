"""Families that compute a product for another family, which names them by number: ``Products`` in its place,
``Plain`` where its launches decide on the device that the data do not suit it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..problem.gemm import GemmProblem
from .config import PlainConfig, TileConfig
from .device import DeviceInfo
from .interface import Kernel, Work


def may_return(family: Kernel, device: DeviceInfo) -> bool:
    """Whether launches of *family* may return at once (GATE in cl/include/gemm.h)."""
    return not (family.has_barriers and device.vendor == "pocl")


class _Families:
    """Families by number. ``field``: what names one of them in a configuration."""

    field: str

    def __init__(self, families: Sequence[Kernel]) -> None:
        self.families = tuple(families)

    def able(self, problem: GemmProblem, device: DeviceInfo) -> Iterator[tuple[int, Kernel]]:
        """Those that compute *problem*, by their numbers."""
        for number, family in enumerate(self.families):
            if family.refuses(problem, device) is None:
                yield number, family

    def _not_able(self, number: int, problem: GemmProblem, device: DeviceInfo) -> list[str]:
        """Why it may not be *number*. Empty if that family computes *problem*."""
        meant = ""
        if number < len(self.families):
            if self.families[number].refuses(problem, device) is None:
                return []
            meant = f" ({self.families[number].name})"
        able = ", ".join(f"{i} ({family.name})" for i, family in self.able(problem, device))
        return [f"{self.field} may be {able or 'nothing'} here, not {number}{meant}"]


class Products(_Families):
    """Families that multiply for another one. A configuration of that is one of theirs, with the option
    ``product``, the family's number, and further options *own*.
    """

    field = "option product"

    def __init__(self, families: Sequence[Kernel], *own: str) -> None:
        super().__init__(families)
        self._own = ("product", *own)
        self.on_matrix_units = any(family.matrix_units for family in families)
        self.options = {*self._own, *(name for family in families for name in family.options)}

    def of(self, config: TileConfig) -> tuple[Kernel, TileConfig]:
        """Who multiplies, and how."""
        theirs = {name: value for name, value in config.named.items() if name not in self._own}
        return self.families[config.option("product")], replace(config, options=theirs, plain=None)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        """Why *config* does not multiply *problem*."""
        if refused := self._not_able(config.option("product"), problem, device):
            return refused
        family, theirs = self.of(config)
        return family.violations(problem, theirs, device)


def _fallback(problem: GemmProblem) -> GemmProblem:
    return replace(problem, fallback=True, precision="highest")


class Plain(_Families):
    """The product where whole numbers do not serve, by the first of the families that can."""

    field = "plain"

    def refusal(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        """Why nobody computes it, or None if a family does."""
        fallback = _fallback(problem)
        reasons = [f.refuses(fallback, device) for f in self.families if may_return(f, device)]
        return reasons[-1] if all(reasons) else None

    def best(self, problem: GemmProblem, device: DeviceInfo) -> PlainConfig | None:
        """The number of its family, and its configuration; None if there is none."""
        fallback = _fallback(problem)
        for number, family in self.able(fallback, device):
            if may_return(family, device):
                for config in family.configs(fallback, device):
                    return PlainConfig(number, config)
        return None

    def _of(self, config: TileConfig) -> tuple[Kernel, TileConfig]:
        """Who computes it, and how."""
        plain = config.plain or PlainConfig(0, TileConfig())
        return self.families[plain.family], plain.config

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
        if refused := self._not_able(config.plain.family, fallback, device):
            return refused
        family, own = self._of(config)
        return family.violations(fallback, own, device)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        """Launches that may return at once, so none packs an operand for later calls."""
        family, own = self._of(config)
        work = family.launches(_fallback(problem), own, device)
        return replace(work, launches=tuple(replace(launch, packs="") for launch in work.launches))
