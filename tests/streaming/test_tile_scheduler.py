"""The tile scheduler by a simulated clock: devices end together, slow ones delay nothing, no tile is lost."""

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclmm.streaming import tiles
from pyclmm.streaming.tile_scheduler import TileScheduler
from pyclmm.streaming.tiles import Blocking, TiledProduct


def every_tile(P, Q):
    return tiles.tiles(TiledProduct(P, Q, 1, 4, 4, 4, 4), blocking())


def blocking(strip=1):
    return Blocking(1, 1, 1, 1, strip, 1, 1, 1)


def simulate(todo, seconds, estimated=None, lost=None, at_once=2):
    """(when the last tile ends, the tiles that each device did). *lost*: (device, time of its end).

    A device has *at_once* tiles in hand; it asks again when one ends, and those that got none when any ends.
    """
    scheduler = TileScheduler(blocking(), todo, estimated or seconds)
    done = [[] for _ in seconds]
    free_at, hands = [0.0] * len(seconds), [0] * len(seconds)
    events, now, alive = [], 0.0, set(range(len(seconds)))

    def ask():
        for device in sorted(alive):
            while hands[device] < at_once and (tile := scheduler.next(device)) is not None:
                hands[device] += 1
                free_at[device] = max(free_at[device], now) + seconds[device]
                heapq.heappush(events, (free_at[device], device, tile.number, tile))

    if lost is not None:
        heapq.heappush(events, (lost[1], lost[0], -1, None))
    ask()
    while events and scheduler.remaining:
        now, device, _, tile = heapq.heappop(events)
        if tile is None:
            alive.discard(device)
            scheduler.lost(device)
        elif device in alive:
            hands[device] -= 1
            done[device].append(tile)
            scheduler.done(device, tile, seconds[device])
        ask()
    assert scheduler.remaining == 0
    return now, done


@given(st.integers(1, 8), st.integers(1, 8), st.lists(st.floats(0.1, 100), min_size=1, max_size=4))
def test_every_tile_is_done_once(P, Q, seconds):
    todo = every_tile(P, Q)
    _, done = simulate(todo, seconds)
    assert sorted(tile.number for each in done for tile in each) == list(range(P * Q))


@given(st.integers(2, 10), st.integers(2, 10), st.integers(2, 4))
def test_equal_devices_end_within_one_tile_of_each_other(P, Q, devices):
    end, done = simulate(every_tile(P, Q), [1.0] * devices)
    assert end <= -(-P * Q // devices) + 1
    assert max(map(len, done)) - min(map(len, done)) <= 2


@given(st.integers(1, 10), st.integers(1, 10), st.floats(2.5, 1000), st.floats(0.3, 3))
def test_a_slow_device_never_delays_the_end(P, Q, times, wrong):
    """Even if its time was estimated wrongly at first: a third to three times of what it is."""
    alone, _ = simulate(every_tile(P, Q), [1.0])
    estimated = [1.0, max(2.1, times * wrong)]
    together, _ = simulate(every_tile(P, Q), [1.0, times], estimated)
    assert together <= max(alone, 2 * times / min(1.0, wrong)) + 1e-9
    if wrong >= 1:
        assert together <= alone + 1e-9


def test_a_slow_device_does_its_part():
    _, done = simulate(every_tile(20, 20), [1.0, 10.0])
    assert 20 <= len(done[1]) <= 400 // 10


def simulate_helper(count, fed, helper, slower, estimated):
    """(when the last tile ends, the helper's tiles). While the helper is busy the fed device is *slower*."""
    scheduler = TileScheduler(blocking(), every_tile(count, 1), [fed, estimated], [False, True])
    now, ends, last, helped = 0.0, [None, None], [0.0, 0.0], 0
    while scheduler.remaining:
        for device, seconds in ((1, helper), (0, fed)):
            if ends[device] is None and (tile := scheduler.next(device)) is not None:
                busy = ends[1] is not None
                ends[device] = now + seconds * (slower if device == 0 and busy else 1), tile
                last[device] = now
        device = min((d for d in (0, 1) if ends[d] is not None), key=lambda d: ends[d][0])
        (now, tile), ends[device] = ends[device], None
        helped += device
        scheduler.done(device, tile, now - last[device])
    return now, helped


@given(st.integers(1, 400), st.floats(2.1, 100), st.floats(1, 2), st.floats(0.5, 2))
def test_a_helper_that_slows_the_others_costs_no_more_than_its_trial(count, helper, slower, wrong):
    end, _ = simulate_helper(count, 1.0, helper, slower, max(2.1, helper * wrong))
    assert end <= count * 1.05 + 2 * slower  # the part of _TRIAL, and the tile that runs beside it


def test_a_helper_that_hinders_is_left_alone_after_one_tile():
    end, helped = simulate_helper(1000, 1.0, 5.0, 1.5, 5.0)
    assert helped == 1
    assert end < 1003


def test_a_helper_that_helps_gets_more_tiles():
    end, helped = simulate_helper(1000, 1.0, 5.0, 1.1, 5.0)
    assert helped > 100
    assert end < 950


def test_a_helper_with_little_to_give_is_never_tried():
    """Its use of the cores costs the others more: measured on an H200 with 16 cores."""
    assert simulate_helper(1000, 1.0, 20.0, 1.3, 20.0) == (1000, 0)


@pytest.mark.parametrize("helps", [[False, True], []], ids=["a helper", "a slow device"])
def test_a_device_that_was_refused_gets_tiles_when_the_fast_one_is_lost(helps):
    scheduler = TileScheduler(blocking(), every_tile(1, 3), [1.0, 100.0], *filter(None, [helps]))
    held = scheduler.next(0)
    assert scheduler.next(1) is None
    scheduler.lost(0)
    taken = [scheduler.next(1) for _ in range(3)]
    assert held in taken
    assert None not in taken


def test_of_devices_that_all_use_the_hosts_cores_none_is_a_helper():
    scheduler = TileScheduler(blocking(), every_tile(10, 10), [1.0, 9.0], [True, True])
    assert scheduler.next(1) is not None


def test_a_slow_device_has_one_tile_until_it_is_measured():
    scheduler = TileScheduler(blocking(), every_tile(10, 10), [1.0, 3.0])
    tile = scheduler.next(1)
    assert scheduler.next(1) is None
    scheduler.done(1, tile, 3.0)
    assert scheduler.next(1) is not None
    assert scheduler.next(1) is not None


def test_a_device_works_along_its_own_strip():
    _, done = simulate(every_tile(4, 6), [1.0, 1.0], at_once=1)
    for each in done:
        assert [tile.rows[0] for tile in each] == sorted(tile.rows[0] for tile in each)
        assert len({tile.rows[0] for tile in each}) == 2


def test_a_device_without_a_strip_helps_from_the_far_end():
    scheduler = TileScheduler(blocking(), every_tile(1, 5), [1.0, 1.0])
    assert [scheduler.next(d).columns[0] for d in (0, 1, 0, 1)] == [0, 4, 1, 3]


@given(st.integers(1, 6), st.integers(1, 6), st.floats(0, 20), st.integers(0, 1))
def test_the_tiles_of_a_lost_device_are_done_by_the_other(P, Q, when, which):
    todo = every_tile(P, Q)
    _, done = simulate(todo, [1.0, 1.5], lost=(which, when))
    assert sorted(tile.number for each in done for tile in each) == list(range(P * Q))


@pytest.mark.parametrize("by_columns", [False, True])
def test_strips_may_be_columns(by_columns):
    at = Blocking(1, 1, 1, 1, 1, 1, 1, 1, by_columns)
    todo = tiles.tiles(TiledProduct(2, 2, 1, 4, 4, 4, 4), at)
    scheduler = TileScheduler(at, todo, [1.0, 1.0])
    first, _, second = scheduler.next(0), scheduler.next(1), scheduler.next(0)
    assert (first.columns == second.columns) is by_columns
    assert (first.rows == second.rows) is not by_columns
