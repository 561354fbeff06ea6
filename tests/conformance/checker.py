"""Oclgrind reports faults seeded into real kernels.

Runs under Oclgrind only, as part of `make conformance`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.kernels.config import TileConfig
from tests.support.faults import changed_sources

from .grid import OCLGRIND_LOG
from .oclgrind_log import Log

BARRIER = "barrier(CLK_LOCAL_MEM_FENCE);"


@dataclass(frozen=True)
class Seeded:
    """The *nth* occurrence of *old* in a source of cl/ becomes *new*, and Oclgrind reports *kind*."""

    name: str
    kind: str
    file: str
    old: str
    new: str
    nth: int = 0

    def apply(self, text: str) -> str:
        parts = text.split(self.old)
        at = self.nth + 1
        assert len(parts) > at, f"{self.file} no longer holds {self.old!r}"
        return self.old.join(parts[:at]) + self.new + self.old.join(parts[at:])


SEEDED = (
    Seeded("no_barrier_after_load", "race", "textbook/tiled.cl", BARRIER, "", 0),
    Seeded("no_barrier_after_multiply", "race", "textbook/tiled.cl", BARRIER, "", 1),
    Seeded("no_store_guard", "invalid access", "include/gemm.h", "if ((i) < (M) && (j) < (N)) {", "if (1) {"),
    Seeded("no_load_guard", "invalid access", "include/gemm.h", "(i) < (M) && (k) < (K) ?", "1 ?"),
    Seeded(
        "sum_not_zeroed", "uninitialized read", "textbook/tiled.cl", "ACC_T acc = ACC_ZERO;", "ACC_T acc;"
    ),
)


@pytest.mark.skipif(OCLGRIND_LOG is None, reason="needs Oclgrind")
@pytest.mark.parametrize("seeded", SEEDED, ids=lambda s: s.name)
def test_seeded_fault_is_reported(seeded: Seeded, monkeypatch: pytest.MonkeyPatch) -> None:
    changed_sources(monkeypatch, lambda name, text: seeded.apply(text) if name == seeded.file else text)
    # A new context has no cached programs, and it starts Oclgrind's log again.
    context = cl.Context(cl.get_platforms()[0].get_devices())
    queue = cl.CommandQueue(context)
    log = Log(Path(str(OCLGRIND_LOG)))
    a, b = (cla.to_device(queue, np.ones((5, 5), np.float32)) for _ in range(2))
    pyclmm.matmul(a, b, kernel=("tiled", TileConfig.square(4)))
    queue.finish()
    assert seeded.kind in {f.kind for f in log.findings()}
