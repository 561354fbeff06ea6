"""Kernels for matrix instructions on a device without any: cl/units/unit.cl and the header of the instruction as
they are shipped, with each builtin of the vendor's compiler replaced (emulated_units.h)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

from pyclmm.kernels.interface import Launch, Work
from pyclmm.opencl import program

HERE = Path(__file__).parent
BUILTINS = "emulated_units.h"
_shipped = program.read_source


def _read(name: str) -> str:
    if name == BUILTINS:
        return (HERE / name).read_text(encoding="utf-8")
    text = _shipped(name)
    if name != "units/unit.cl":
        return text
    assert text.count("GEMM_BEGIN;") == 1
    return text.replace("GEMM_BEGIN;", "GEMM_BEGIN; EMULATION_BEGIN;")


def _one(launch: Launch) -> Launch:
    sources = launch.program.sources
    if "units/unit.cl" not in sources:
        return launch  # adds shares: no instruction in it
    at = sources.index("units/unit_tile.h")
    return replace(launch, program=replace(launch.program, sources=(*sources[:at], BUILTINS, *sources[at:])))


def emulated(work: Work) -> Work:
    """*work* by emulated instructions; it runs inside of :func:`emulation`."""
    return replace(work, launches=tuple(map(_one, work.launches)))


@contextmanager
def emulation() -> Iterator[None]:
    """Lets programs find the emulation among their sources."""
    with mock.patch.object(program, "read_source", _read):
        yield
