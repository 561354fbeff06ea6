"""TileConfig: the sizes that a kernel is built with, and why a device cannot take them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..errors import ArgumentError
from .device import DeviceInfo


@dataclass(frozen=True)
class TileConfig:
    """Tile sizes in elements. Each kernel family says which of them it uses; the rest stay 1.

    BM x BN x BK is a work-group's tile, SGM x SGN a sub-group's, TM x TN a work-item's. VEC is the
    vector width, STAGES the number of stages in local memory, SPLIT_K the number of ranges of K; with 0 the
    family chooses, if it can.
    ``options`` are further integers of one family, given as a mapping:
    ``TileConfig(bm=64, options={"depth": 2})``. They are stored as pairs sorted by name, so that a
    configuration can be compared and hashed.
    """

    bm: int = 1
    bn: int = 1
    bk: int = 1
    sgm: int = 1
    sgn: int = 1
    tm: int = 1
    tn: int = 1
    vec: int = 1
    stages: int = 1
    split_k: int = 1
    options: Mapping[str, int] | tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        options = _options(self.options)
        object.__setattr__(self, "options", tuple(sorted(options.items())))
        sizes = {name: value for name, value in vars(self).items() if name != "options"}
        for name, value in sizes.items():
            _check(f"TileConfig.{name}", value, 0 if name == "split_k" else 1)
        for name, value in options.items():
            _check(f"TileConfig.options[{name!r}]", value, 0)

    @classmethod
    def square(cls, tw: int) -> TileConfig:
        """A TW x TW x TW tile of the textbook kernel, one element for each work-item."""
        return cls(bm=tw, bn=tw, bk=tw)

    def option(self, name: str, default: int = 0) -> int:
        pairs: Any = self.options  # not made a dictionary here, because estimates ask often
        for own, value in pairs:
            if own == name:
                return int(value)
        return default

    def violations(
        self, device: DeviceInfo, local_size: tuple[int, ...], local_bytes: int, most: int | None = None
    ) -> list[str]:
        """Why *device* cannot run work-groups of *local_size* that use *local_bytes*. Empty if it can.

        *most*: bytes of local memory that they may use, if not those that the device reports.
        """
        most = device.local_mem_size if most is None else most
        reasons = []
        work_items = 1
        for axis, (size, limit) in enumerate(zip(local_size, device.max_work_item_sizes, strict=False)):
            work_items *= size
            if size < 1:
                reasons.append(f"{size} work-items in dimension {axis}, at least 1 is needed")
            if size > limit:
                reasons.append(f"{size} work-items in dimension {axis}, the device allows {limit}")
        if work_items > device.max_work_group_size:
            reasons.append(
                f"{work_items} work-items a work-group, the device allows {device.max_work_group_size}"
            )
        if local_bytes > most:
            reasons.append(f"{local_bytes} bytes of local memory, the device has {most}")
        return reasons

    def as_dict(self) -> dict[str, Any]:
        """The fields that differ from their defaults, for tables and files."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "options"}
        return {k: v for k, v in given.items() if v != 1} | dict(self.options)

    def __repr__(self) -> str:
        """What makes it again, without the defaults."""
        sizes = [f"{k}={v}" for k, v in self.as_dict().items() if k not in dict(self.options)]
        options = [f"options={dict(self.options)}"] if self.options else []
        return f"TileConfig({', '.join(sizes + options)})"

    def __str__(self) -> str:
        return " ".join(f"{k}={v}" for k, v in self.as_dict().items()) or "-"


def _check(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ArgumentError(f"{name} must be an integer of {least} or more, not {value!r}")


def _options(given: object) -> dict[str, int]:
    """Options as a dictionary, from a mapping or from pairs."""
    try:
        options: dict[Any, int] = dict(given)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        options = {None: 0}
    if not all(isinstance(name, str) for name in options):
        raise ArgumentError(f"TileConfig.options is {given!r}; pass a mapping of names to integers")
    return options


def slices(config: TileConfig) -> int:
    """Option ``slices``: how many slices a step's K is cut into. Their sums are added at the end."""
    return config.option("slices", 1)
