"""Oclgrind reports faults seeded into real kernels.

Runs under Oclgrind only, as part of `make conformance`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.kernels.config import TileConfig
from tests.campaigns.faults import STORE_GUARD, Fault
from tests.support.faults import changed_sources

from .grid import OCLGRIND_LOG
from .oclgrind_log import Log

BARRIER = "barrier(CLK_LOCAL_MEM_FENCE);"
RACE, ACCESS, UNWRITTEN = "race", "invalid access", "uninitialized read"  # as Oclgrind reports them
SEEDED = (
    Fault("no_barrier_after_load", RACE, "textbook/tiled.cl", BARRIER, "", ()),
    Fault("no_barrier_after_multiply", RACE, "textbook/tiled.cl", BARRIER, "", (), 1),
    Fault("no_store_guard", ACCESS, "include/gemm.h", STORE_GUARD, "if (1) {", ()),
    Fault("no_load_guard", ACCESS, "include/gemm.h", "(i) < (M) && (k) < (K) ?", "1 ?", ()),
    Fault("sum_not_zeroed", UNWRITTEN, "textbook/tiled.cl", "ACC_T acc = ACC_ZERO;", "ACC_T acc;", ()),
)


@pytest.mark.skipif(OCLGRIND_LOG is None, reason="needs Oclgrind")
@pytest.mark.parametrize("seeded", SEEDED, ids=lambda s: s.name)
def test_seeded_fault_is_reported(seeded: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    changed_sources(monkeypatch, lambda name, text: seeded.changed(text) if name == seeded.file else text)
    # A new context has no cached programs, and it starts Oclgrind's log again.
    context = cl.Context(cl.get_platforms()[0].get_devices())
    queue = cl.CommandQueue(context)
    log = Log(Path(str(OCLGRIND_LOG)))
    a, b = (cla.to_device(queue, np.ones((5, 5), np.float32)) for _ in range(2))
    pyclmm.matmul(a, b, kernel=("tiled", TileConfig.square(4)))
    queue.finish()
    assert seeded.breaks in {f.kind for f in log.findings()}
