"""verify=: a part of a tile that is damaged on its way back is noticed, and fetched again with "repair"."""

import threading

import numpy as np
import pytest

import pyclmm
from pyclmm.streaming import lanes
from tests.support import spoiled
from tests.support.cases import numbers
from tests.support.faults import changed_source

M, N, K = 70, 45, 31


@pytest.fixture
def damage(monkeypatch, small_tiles, on_device):
    """Damages the next transfers back: a list of (byte from the end of a part, bits that are flipped)."""
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
        words = r"damaged on its way from.*rows.*fetched again"
        with pytest.warns(pyclmm.VerificationWarning, match=words) as told:
            got = plan(a, b)
        assert told[0].filename == __file__
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


def test_a_damaged_part_of_a_stack_is_named(damage):
    a, b = (np.ones((2, 3, *shape), "f") for shape in ((M, K), (K, N)))
    plan = pyclmm.StreamedMatmul(a, b, verify=True)
    for passing in (0, 13, 23):  # parts before the damaged one
        damage += [(0, 64), *[(0, 0)] * passing]
        with pytest.raises(pyclmm.VerificationError) as caught:
            plan(a, b)
        first, end = caught.value.stack
        assert end == first + 1
        assert f"[{first // 3}, {first % 3}]" in str(caught.value)


def test_a_wrong_element_of_a_tile_is_named_in_the_whole_result(damage):
    a, b = (np.ones(shape, "f") for shape in ((M, K), (K, N)))
    plan = pyclmm.StreamedMatmul(a, b, verify=True)
    with spoiled.installed(spoiled.Spoiler()) as spoiler:
        spoiler.waiting += [lambda words: None] * 7  # two chunks of each of four tiles
        spoiler.element(2, "f", lambda x: x + 90)
        with pytest.raises(pyclmm.VerificationError, match="in a tile that begins at") as caught:
            plan(a, b)
    rows, columns = caught.value.rows, caught.value.columns
    assert (rows[0], columns[0]) in {(0, 32), (40, 0), (40, 32)}, "the last tile is not the first"
    assert rows[1] == rows[0] + 1
    assert columns[1] == min(columns[0] + 32, N), "all, as the second chunk is added to the first"
    assert f"begins at row {rows[0]}, column {columns[0]})" in str(caught.value)


def test_a_wrong_element_of_a_tile_that_is_repaired_is_named_with_its_tile(damage):
    a, b = (np.ones(shape, "f") for shape in ((M, K), (K, N)))
    plan = pyclmm.StreamedMatmul(a, b, verify="repair")
    with spoiled.installed(spoiled.Spoiler()) as spoiler:
        spoiler.waiting += [lambda words: None] * 6  # two chunks of each of three tiles
        spoiler.element(2, "f", lambda x: x + 90)
        where = r"row 0, column 2 of .* \(in a tile that begins at row (0|40), column (0|32)\), computed"
        with pytest.warns(pyclmm.VerificationWarning, match=where):
            assert (plan(a, b) == K).all()


def test_a_driver_that_adds_up_parts_wrongly_is_told_of(monkeypatch, own_caches, small_tiles, on_device):
    a, b = operands("float32")
    changed_source(monkeypatch, "verify/transfer.cl", "j < words;", "j < words - 1;")
    error = "verify: the driver of .* computes the check itself wrongly: a part .* is called damaged"
    with pytest.raises(pyclmm.UnsupportedError, match=error):
        pyclmm.StreamedMatmul(a, b, verify=True)(a, b)
    assert np.allclose(pyclmm.StreamedMatmul(a, b)(a, b), a @ b, atol=1e-4)
