"""Fixtures of the tests of products in tiles."""

import pytest

from pyclmm.streaming import lanes, machines, worker
from pyclmm.streaming.tiles import Blocking


@pytest.fixture(params=["host", "device"])
def lane(request, monkeypatch):
    """Each kind of lane, on the CPU."""
    kind = lanes.HostLane if request.param == "host" else lanes.DeviceLane
    monkeypatch.setattr(lanes, "HostLane", kind)
    return kind


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of 40 x 32 and chunks of 24, whatever would be best; those of a checkpoint as always."""
    real = machines.Fit.blocking

    def blocking(self, kept=None):
        if kept is not None:
            return real(self, kept)
        p = self.product(None)
        k = p.k if p.whole_k else min(p.k, 24)
        return Blocking(1, min(p.m, 40) or 1, min(p.n, 32) or 1, k, 2, 3, 3, 2)

    monkeypatch.setattr(machines.Fit, "blocking", blocking)


@pytest.fixture
def five_tiles(monkeypatch):
    """No run gets more than five tiles, until the test lifts it."""
    real, begun, limits = worker.RunState.next, {}, [5]

    def next_tile(self, worker):
        begun[self] = begun.get(self, 0) + 1
        if limits and begun[self] > limits[0]:
            self.stopped.wait(60)
        return real(self, worker)

    monkeypatch.setattr(worker.RunState, "next", next_tile)
    return limits
