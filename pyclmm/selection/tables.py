"""Measured tables: the fastest kernel and configuration for products on one device and driver.

A table is a JSON file for one device (name, platform, driver). Each entry is one product that `pyclmm tune`
measured. An entry applies to all products with the same :class:`ProductClass`: element types, layout,
precision, whether rows are aligned, and shape class, which is M, N and K rounded to quarter powers of two
(4096 stands for 3757 to 4466). Stacks have no entries. For stacks, and for products without an entry, the
families' models decide.

The user's own table, in the cache folder, comes before the tables shipped in ``pyclmm/selection/tuned``. A
table for another driver is not used; the user's is renamed with a warning. Tables are not trusted:
:func:`check` checks the file, and select.py uses an entry only if the family offers the same configuration.
``PYCLMM_TUNED=off`` ignores all tables.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from .. import environment, fields, store
from ..errors import ArgumentError, CacheWarning, warn_caller
from ..kernels import KERNELS, kernel_named
from ..kernels.config import TileConfig
from ..kernels.device import DeviceInfo
from ..problem.gemm import GemmProblem
from . import schema

SCHEMA = 1
_ROW_ALIGN = 16  # bytes: the alignment of the rows of A and B that wide loads and copies need
_MAX_ENTRIES = 4096


@dataclass(frozen=True)
class _ClassFields:
    """Element types, layout and precision of products, and whether their rows are aligned."""

    a_type: str
    b_type: str
    out_type: str
    layout: str
    precision: str
    aligned: bool


@dataclass(frozen=True)
class ProductClass(_ClassFields):
    """The products that an entry applies to."""

    shape_class: tuple[int, int, int]


@dataclass(frozen=True)
class Entry(_ClassFields):
    """The fastest configuration for M x N x K: seconds of device time, and the day of measurement (UTC)."""

    m: int
    n: int
    k: int
    kernel: str
    config: TileConfig
    seconds: float
    date: str

    @property
    def key(self) -> ProductClass:
        return _class_of(self, self.aligned)


MeasuredTable = Mapping[ProductClass, Entry]


def shape_class(m: int, n: int, k: int) -> tuple[int, int, int]:
    """The class of a shape: 4 log2 of each length, rounded."""
    return round(4 * math.log2(m)), round(4 * math.log2(n)), round(4 * math.log2(k))


def _class_of(x: GemmProblem | Entry, aligned: bool) -> ProductClass:
    types, sizes = (x.a_type, x.b_type, x.out_type), shape_class(x.m, x.n, x.k)
    return ProductClass(*types, x.layout, x.precision, aligned, sizes)


def is_aligned(problem: GemmProblem) -> bool:
    """Whether every row of both operands is aligned for wide accesses."""
    return min(problem.a_align, problem.b_align) >= _ROW_ALIGN


def key_of(problem: GemmProblem) -> ProductClass | None:
    """The key of *problem*; None for stacks, products in which M, N or K is 0, and reproducible ones. What
    was measured as the fastest may add its products in any order.
    """
    if problem.batch_shape or problem.reproducible or min(problem.m, problem.n, problem.k) < 1:
        return None
    return _class_of(problem, is_aligned(problem))


def tables_for(device: DeviceInfo) -> tuple[MeasuredTable, ...]:
    """The measured tables for *device*, the user's own first; read once for each process."""
    if environment.TUNED.is_off:
        return ()
    return _tables_for(device, environment.CACHE_DIR.value)


@lru_cache(maxsize=64)
def _tables_for(device: DeviceInfo, _folder: str) -> tuple[MeasuredTable, ...]:
    return (own_table(device), _by_key(e for table in shipped() for e in _entries(table, device)))


def forget() -> None:
    """Drop the tables that were read, so that they are read again when they are next needed."""
    _tables_for.cache_clear()


def own_path(device: DeviceInfo) -> Path:
    """The path of the user's own table for *device*."""
    return store.folder("tuned", f"{store.device_name(device.identity)}.json")


def own_table(device: DeviceInfo) -> MeasuredTable:
    """The user's table for *device*; empty if there is none. A table for another device is renamed."""
    content = store.read_json(own_path(device), lambda name, content: _check_own(name, content, device))
    return {} if content is None else _by_key(_entries(content, device))


@lru_cache(maxsize=1)
def shipped() -> tuple[dict[str, Any], ...]:
    """The contents of the tables in ``pyclmm/selection/tuned``. A faulty one is left out with a warning."""
    found = []
    for file in sorted(resources.files("pyclmm.selection.tuned").iterdir(), key=lambda file: file.name):
        if not file.name.endswith(".json"):
            continue
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            check("content", content)
            found.append(content)
        except (OSError, ValueError, RecursionError) as error:
            warn_caller(f"{file.name} is left out: {error}", CacheWarning)
    return tuple(found)


def merge(device: DeviceInfo, entries: Iterable[Entry]) -> bool:
    """Put *entries* into the user's table, also beside other processes. False if it cannot be written."""
    path = own_path(device)
    with store.locked(path):
        merged = {**own_table(device), **_by_key(entries)}
        latest = sorted(merged.values(), key=lambda entry: entry.date)[-_MAX_ENTRIES:]
        written = store.write_json(path, table_json(device, latest))
    forget()
    return written


def table_json(device: DeviceInfo, entries: Iterable[Entry]) -> dict[str, Any]:
    """A table as JSON."""
    listed = [asdict(entry) | {"config": schema.config_json(entry.config)} for entry in entries]
    return {"schema": SCHEMA, "device": device.identity, "entries": listed}


def _check_own(name: str, content: Any, device: DeviceInfo) -> None:
    """Raise ArgumentError unless *content* is a table for *device*."""
    check(name, content)
    theirs, own = (x["driver_version"] for x in (content["device"], device.identity))
    if content["device"] != {**device.identity, "driver_version": theirs}:
        raise ArgumentError("it is for another device")
    if theirs != own:
        raise ArgumentError(f"it was measured with driver {theirs!r}, not {own!r}: run `pyclmm tune` again")


def _entries(content: Mapping[str, Any], device: DeviceInfo) -> Iterable[Entry]:
    """The entries of a checked table; none if it is for another device."""
    if content["device"] == device.identity:
        yield from (Entry(**{**e, "config": schema.config_from(e["config"])}) for e in content["entries"])


def _by_key(entries: Iterable[Entry]) -> MeasuredTable:
    return {entry.key: entry for entry in entries}


def _check_entry(name: str, content: Any) -> None:
    _ENTRY(name, content)
    config = schema.config_from(content["config"])
    sizes = asdict(replace(config, options=(), plain=None))
    if any(size < 1 for key, size in sizes.items() if key not in ("options", "plain", "split_k")):
        raise ArgumentError(f"{name}: config has a size of 0: {config}")
    unknown = config.unknown_to(kernel_named(content["kernel"]).options)
    if unknown:
        raise ArgumentError(f"{name}: {content['kernel']} has no option {', '.join(unknown)}")


_ENTRY = fields.record(
    {
        **{name: schema.PROBLEM[name] for name in ("a_type", "b_type", "out_type", "precision")},
        **dict.fromkeys(("m", "n", "k"), schema.length),
        "layout": fields.one_of("NN", "NT", "TN", "TT"),
        "aligned": schema.PROBLEM["trans_a"],
        "kernel": fields.one_of(*(kernel.name for kernel in KERNELS)),
        "config": lambda *_: None,  # _check_entry makes it
        "seconds": fields.number(1e-9, 1e9),
        "date": fields.DATE,
    }
)
check = fields.record(
    {
        "schema": fields.one_of(SCHEMA),
        "device": fields.record(dict.fromkeys(("name", "platform", "driver_version"), fields.text(200))),
        "entries": fields.list_of(_check_entry, 0, _MAX_ENTRIES),
    }
)
