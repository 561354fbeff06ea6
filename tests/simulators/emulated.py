"""Runs kernels for AMD's and Intel's matrix units on a device without any.

cl/units/unit.cl and the header of the instruction are the shipped ones. Only the builtins of the vendor's
compiler are replaced (emulated_units.h)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pyclmm.kernels.interface import Launch, Work
from tests.support.faults import changed_sources

BUILTINS = (Path(__file__).parent / "emulated_units.h").read_text(encoding="utf-8")
_AFTER_INCLUDES = "#ifndef SPLIT\n"


def _with_builtins(name: str, text: str) -> str:
    if name != "units/unit.cl":
        return text
    assert text.count("GEMM_BEGIN;") == text.count(_AFTER_INCLUDES) == 1
    text = text.replace(_AFTER_INCLUDES, f"{BUILTINS}\n{_AFTER_INCLUDES}")
    return text.replace("GEMM_BEGIN;", "GEMM_BEGIN; EMULATION_BEGIN;")


def _one(launch: Launch) -> Launch:
    if not launch.program.source.startswith("units/"):
        return launch  # it adds partial sums, without matrix instructions
    # With EMULATED it is not a program that the device itself would run.
    own = replace(launch.program, defines=(*launch.program.defines, ("EMULATED", 1)))
    return replace(launch, program=own)


def emulated(work: Work) -> Work:
    """*work* with emulated instructions. It runs only inside :func:`emulation`."""
    return replace(work, launches=tuple(map(_one, work.launches)))


@contextmanager
def emulation() -> Iterator[None]:
    """Inside the block programs can include the emulation."""
    with pytest.MonkeyPatch.context() as patch:
        changed_sources(patch, _with_builtins)
        yield
