"""TileConfig: the sizes that a kernel is built with, and why a device cannot take them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

from ..errors import ArgumentError, brief
from .device import DeviceInfo

ACCESS = 16  # bytes of the widest access of a work-item


@dataclass(frozen=True)
class TileConfig:
    """Tile sizes in elements. Each kernel family says which of them it uses; the rest stay 1.

    BM x BN x BK is a work-group's tile, SGM x SGN a sub-group's, TM x TN a work-item's. VEC is the vector
    width, STAGES the number of stages in local memory, SPLIT_K the number of ranges of K; with 0 the family
    chooses, if it can. ``options`` are further integers of one family, given as a mapping:
    ``TileConfig(bm=64, options={"depth": 2})``. They are stored as pairs sorted by name, so that a
    configuration can be compared and hashed. ``plain`` is for a family that leaves the product to another one
    where the data need it: the other's configuration.
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
    plain: PlainConfig | None = None

    def __post_init__(self) -> None:
        named = _options(self.options)
        for name, value in vars(self).items():
            if name in _NO_SIZES:
                continue
            if value.__class__ is not int or value < (name != "split_k"):
                raise _invalid(f"TileConfig.{name}", value, int(name != "split_k"))
        for name, value in named.items():
            if value.__class__ is not int or value < 0:
                raise _invalid(f"TileConfig.options[{name!r}]", value, 0)
        # Kernels ask for options hundreds of times in a choice
        vars(self).update(options=tuple(sorted(named.items())), named=named)

    @classmethod
    def square(cls, tw: int) -> TileConfig:
        """A TW x TW x TW tile of the textbook kernel, one element for each work-item."""
        return cls(bm=tw, bn=tw, bk=tw)

    def option(self, name: str, default: int = 0) -> int:
        return self.named.get(name, default)

    @cached_property
    def named(self) -> dict[str, int]:
        """The options by name."""
        return dict(self.options)

    def with_options(self, **options: int) -> TileConfig:
        """This one with further options."""
        return replace(self, options={**self.named, **options})

    def macros(self, *names: str) -> tuple[tuple[str, int], ...]:
        """The sizes *names* as macros of a program: BM for ``bm``, and so on."""
        return tuple((name.upper(), getattr(self, name)) for name in names)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Every call that names a configuration asks for it."""
        return hash(_values(self))

    def __getstate__(self) -> dict[str, Any]:
        """Without the hash: those of texts are others in another process."""
        return {name: value for name, value in vars(self).items() if name != "_hash"}

    def unknown_to(self, options: tuple[str, ...]) -> list[str]:
        """What it sets besides sizes and *options*: names of options, and "plain"."""
        return sorted({*self.named, *(["plain"] if self.plain else [])} - {*options})

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
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _NO_SIZES}
        plain = {"plain": str(self.plain)} if self.plain else {}
        return {k: v for k, v in given.items() if v != 1} | dict(self.options) | plain

    def __repr__(self) -> str:
        """What makes it again, without the defaults."""
        sizes = [f"{k}={v}" for k, v in replace(self, options={}, plain=None).as_dict().items()]
        options = [f"options={dict(self.options)}"] if self.options else []
        plain = [f"plain={self.plain!r}"] if self.plain else []
        return f"TileConfig({', '.join(sizes + options + plain)})"

    def __str__(self) -> str:
        return " ".join(f"{k}={v}" for k, v in self.as_dict().items()) or "-"


_values = attrgetter(*(field.name for field in fields(TileConfig)))
_NO_SIZES = ("options", "plain")  # the fields that hold no size


@dataclass(frozen=True)
class PlainConfig:
    """A configuration of another family: ``family`` is its place among those that may compute the product."""

    family: int
    config: TileConfig

    def __str__(self) -> str:
        return f"{self.family}({self.config})"


class Ranked(NamedTuple):
    """A configuration and its estimate in seconds."""

    seconds: float
    config: TileConfig


def _invalid(name: str, value: object, least: int) -> ArgumentError:
    return ArgumentError(f"{name} must be an integer of {least} or more, not {brief(value)}")


def _options(given: object) -> dict[str, int]:
    """Options as a dictionary, from a mapping or from pairs."""
    try:
        options: dict[Any, int] = dict(given)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        options = {None: 0}
    for name in options:
        if not isinstance(name, str):
            raise ArgumentError(f"TileConfig.options is {brief(given)}; pass a mapping of names to integers")
    return options


def slices(config: TileConfig) -> int:
    """Option ``slices``: how many slices a step's K is cut into. Their sums are added at the end."""
    return config.named.get("slices", 1)
