"""What tests of products in tiles share: the one place where they step into a run."""

import pytest

from pyclmm.streaming import lanes, machines, worker
from pyclmm.streaming.tiles import Blocking


@pytest.fixture
def on_device(monkeypatch):
    """A CPU computes as a device with its own memory does."""
    monkeypatch.setattr(lanes, "HostLane", lanes.DeviceLane)


@pytest.fixture(params=["host", "device"])
def lane(request):
    """Each kind of lane, on the CPU."""
    if request.param == "device":
        request.getfixturevalue("on_device")


class Runs:
    """The runs of a test.

    ``devices``: of their lanes. ``products``: the device of each product of a tile. ``refused``: device ->
    the error in place of its lane. ``before``: called with each step of a lane, "begin", "multiply" or
    "deliver", and the lane's number. ``before_tile``: with the RunState before a worker asks for a tile.
    """

    def __init__(self, patch):
        self.devices, self.products, self.refused = [], [], {}
        self.before, self.before_tile = lambda step, number: None, lambda state: None
        make, next_tile = lanes.lane_for, worker.RunState.next

        def lane_for(device, *others):
            if device in self.refused:
                raise self.refused[device]
            lane = make(device, *others)
            for step in ("begin", "multiply", "deliver"):
                setattr(lane, step, self._noted(step, getattr(lane, step), len(self.devices), device))
            self.devices.append(device)
            return lane

        def asked(state, number):
            self.before_tile(state)
            return next_tile(state, number)

        patch.setattr("pyclmm.streaming.run.lane_for", lane_for)
        patch.setattr(worker.RunState, "next", asked)

    def _noted(self, step, real, number, device):
        def noted(*arguments):
            self.before(step, number)
            if step == "multiply":
                self.products.append(device)
            return real(*arguments)

        return noted


@pytest.fixture
def runs(monkeypatch):
    return Runs(monkeypatch)


@pytest.fixture
def blocks(monkeypatch):
    """A function: runs have the blocks that *choose* says of a product; those of a checkpoint as always."""
    real = machines.Fit.blocking

    def use(choose):
        def blocking(self, kept=None):
            return choose(self.product(None)) if kept is None else real(self, kept)

        monkeypatch.setattr(machines.Fit, "blocking", blocking)

    return use


@pytest.fixture
def small_tiles(blocks):
    """Tiles of 40 x 32 and chunks of 24, whatever would be best."""

    def small(p):
        k = p.k if p.whole_k else min(p.k, 24)
        return Blocking(1, min(p.m, 40) or 1, min(p.n, 32) or 1, k, 2, 3, 3, 2)

    blocks(small)


@pytest.fixture
def five_tiles(runs):
    """No run gets more than five tiles, until the test lifts it."""
    begun, limits = {}, [5]

    def wait(state):
        begun[state] = begun.get(state, 0) + 1
        if limits and begun[state] > limits[0]:
            state.stopped.wait(60)

    runs.before_tile = wait
    return limits
