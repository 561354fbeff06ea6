"""verify=: a part of a tile that is damaged on its way back is noticed, and fetched again with "repair"."""

import threading

import numpy as np
import pytest

import pyclmm
from pyclmm.streaming import lanes
from tests.support.cases import numbers

M, N, K = 70, 45, 31


@pytest.fixture
def damage(monkeypatch, small_tiles):
    """Damages the next transfers back: a list of (byte from the end of a part, bits that are flipped)."""
    monkeypatch.setattr(lanes, "HostLane", lanes.DeviceLane)
    waiting, lock, real = [], threading.Lock(), lanes.DeviceLane._copied

    def copied(self, queue, target, source, **where):
        event = real(self, queue, target, source, **where)
        with lock:
            if queue is self._down and waiting:
                event.wait()
                byte, bits = waiting.pop()
                target[-1 - byte] ^= bits
        return event

    monkeypatch.setattr(lanes.DeviceLane, "_copied", copied)
    return waiting


def operands(dtype):
    rng = np.random.default_rng(1)
    return [numbers(rng, shape, np.dtype(dtype)) for shape in ((M, K), (K, N))]


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_damaged_part_is_fetched_again(damage, dtype):
    a, b = operands(
        dtype
    )  # int8: parts of 30 x 13 bytes and others, so some end in two bytes that are no word
    plan, before = pyclmm.StreamedMatmul(a, b, verify="repair"), pyclmm.health()
    want = plan(a, b)
    for byte in (0, 1, 2, 3, 70):
        damage.append((byte, 1))
        with pytest.warns(pyclmm.VerificationWarning, match=r"damaged on its way from.*rows.*fetched again"):
            got = plan(a, b)
        assert not damage
        assert got.tobytes() == want.tobytes()
    assert pyclmm.health() == {name: count + 5 for name, count in before.items()}


@pytest.mark.parametrize(("verify", "damages"), [(True, 1), ("repair", 400)])
def test_a_part_that_is_damaged_each_time_is_refused(damage, verify, damages):
    a, b = operands("float32")
    plan = pyclmm.StreamedMatmul(a, b, verify=verify)
    damage += [(8, 4)] * damages
    with pytest.raises(pyclmm.VerificationError, match="damaged on its way") as caught:
        plan(a, b)
    rows, columns = caught.value.rows, caught.value.columns
    assert 0 <= rows[0] < rows[1] <= M
    assert 0 <= columns[0] < columns[1] <= N
    damage.clear()
    assert plan(a, b).tobytes() == pyclmm.StreamedMatmul(a, b)(a, b).tobytes()


def test_a_damaged_part_is_not_noticed_without_verify(damage):
    """What the tests above rest on."""
    a, b = operands("float32")
    plan = pyclmm.StreamedMatmul(a, b)
    want = plan(a, b)
    damage.append((8, 255))
    assert plan(a, b).tobytes() != want.tobytes()
