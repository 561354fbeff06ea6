"""Tiles: every element once, keys that name blocks, slots, bytes against all orders there are."""

import heapq
import itertools
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclmm.streaming import prediction, tiles
from pyclmm.streaming.tiles import Blocking, Slots, TiledProduct
from tests.support.selection import slow


def product(m, n, k, **others):
    return TiledProduct(m, n, k, 4, 4, 4, 4, **others)


def blocking(m, n, k, strip=1, a=1, b=1, out=1, batch=1, by_columns=False):
    return Blocking(batch, m, n, k, strip, a, b, out, by_columns)


sizes = st.integers(1, 40)


@given(
    sizes,
    sizes,
    st.integers(1, 50),
    st.integers(1, 50),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from([(), (3,), (2, 3)]),
)
def test_every_element_of_c_is_in_one_tile(m, n, tm, tn, strip, by_columns, stack):
    p = product(m, n, 5, stack=stack, a_stack=stack)
    count = np.zeros((math.prod(stack), m, n), int)
    at = blocking(tm, tn, 5, strip, by_columns=by_columns)
    found = tiles.tiles(p, at)
    assert tiles.count(p, at) == len(found)
    for number, tile in enumerate(found):
        assert tile.number == number
        count[slice(*tile.z), slice(*tile.rows), slice(*tile.columns)] += 1
    assert (count == 1).all()


@given(st.integers(1, 7), st.sampled_from([(7,), (2, 7), (3, 1, 5)]))
def test_tiles_of_several_matrices_stay_in_a_row_of_the_stack(batch, stack):
    p = product(3, 4, 5, stack=stack, a_stack=stack, b_stack=stack)
    at = blocking(3, 4, 5, batch=batch)
    found = tiles.tiles(p, at)
    assert tiles.count(p, at) == prediction.count_of(p, at) == len(found)
    covered = [z for tile in found for z in range(*tile.z)]
    assert covered == list(range(math.prod(stack)))
    assert all(tile.z[0] // stack[-1] == (tile.z[1] - 1) // stack[-1] for tile in found)


def test_tiles_follow_one_another_like_an_ox_that_ploughs():
    found = tiles.tiles(product(4, 3, 1), blocking(1, 1, 1, strip=2))
    places = [(tile.rows[0], tile.columns[0]) for tile in found]
    assert places == [
        *((0, 0), (1, 0), (1, 1), (0, 1), (0, 2), (1, 2)),
        *((2, 2), (3, 2), (3, 1), (2, 1), (2, 0), (3, 0)),
    ]


@given(st.sampled_from([((2, 3), (3,)), ((2, 3), (2, 1)), ((2, 3), ()), ((4,), (1,)), ((2, 3), (2, 3))]))
def test_equal_keys_name_the_same_block(stacks):
    stack, own = stacks
    p = product(2, 2, 4, stack=stack, a_stack=own, b_stack=stack)
    at = blocking(2, 2, 2)
    seen = {}
    for tile in tiles.tiles(p, at):
        for chunk, ks in enumerate(tiles.chunks(p, at)):
            block = str(tiles.region(stack, own, tile.z, tile.rows, ks))
            assert seen.setdefault(tiles.block_key(p, "a", tile, chunk), block) == block
    assert len(set(seen.values())) == len(seen)


def test_slots_give_up_what_was_used_longest_ago():
    slots = Slots(2)
    assert [slots.place(x, ()) for x in "ab"] == [0, 1]
    assert slots.find("a") == 0
    assert slots.place("c", ()) == 1, "b was used longest ago"
    assert slots.find("b") is None
    assert slots.place("d", {0, 1}) is None, "all are locked"
    assert slots.place("d", {0}) == 1


def test_k_of_zero_has_an_empty_chunk():
    assert tiles.chunks(product(3, 3, 0), blocking(3, 3, 0)) == [(0, 0)]


@pytest.mark.parametrize("wrong", [None, {}, {"m": 3}, "x", [1]])
def test_only_a_blocking_is_read_as_one(wrong):
    good = asdict(blocking(3, 4, 5))
    assert Blocking.from_json(good) == blocking(3, 4, 5)
    with pytest.raises(ValueError, match="sizes of tiles"):
        Blocking.from_json(wrong)
    for name, value in (("m", 0), ("n", -1), ("batch", True), ("strip", "2"), ("k", -1)):
        with pytest.raises(ValueError, match=name):
            Blocking.from_json({**good, name: value})


# ---- bytes


def loads(product, blocking):
    """How many blocks of A and of B one device loads that walks all tiles in order."""
    every = tiles.walk(product, blocking, tiles.tiles(product, blocking))
    return np.sum([[nbytes is not None for _, nbytes in blocks] for _, _, blocks in every], axis=0)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_the_closed_form_of_loads_is_what_is_loaded(P, Q, c, strip, panels):
    """For the numbers of slots that the choice uses: whole panels, or fewer than one."""
    strip = min(strip, P)
    for a, b in (((strip + 1) * c, panels * c), (strip * c, Q * c), (1, panels * c), (1, 1)):
        if strip > 1 and b < c + 1 and c > 1:
            continue
        p, at = product(P, Q, c), blocking(1, 1, 1, strip, min(a, P * c), min(b, Q * c))
        found, most = loads(p, at), prediction.loads(strip, P, Q, c, at.a_slots, at.b_slots)
        assert (found <= most).all()
        if c == 1 or min(a, b) >= c:
            assert (found == most).all()


def fewest_loads(P, Q, a_slots, b_slots):
    """The fewest loads over all orders and all evictions (Dijkstra over what is done and what is held)."""
    everything = (1 << P * Q) - 1
    start = (0, frozenset(), frozenset())
    best, queue, number = {start: 0}, [(0, 0, start)], itertools.count(1)
    while queue:
        cost, _, state = heapq.heappop(queue)
        done, held_a, held_b = state
        if done == everything:
            return cost
        if cost > best[state]:
            continue
        for i, j in itertools.product(range(P), range(Q)):
            bit = 1 << i * Q + j
            if done & bit:
                continue
            for a, b in itertools.product(_with(held_a, i, a_slots), _with(held_b, j, b_slots)):
                after = (done | bit, a, b)
                price = cost + (i not in held_a) + (j not in held_b)
                if price < best.get(after, math.inf):
                    best[after] = price
                    heapq.heappush(queue, (price, next(number), after))
    raise AssertionError


def _with(held, x, slots):
    if x in held:
        return [held]
    if len(held) < slots:
        return [held | {x}]
    return [held - {y} | {x} for y in held]


@pytest.mark.parametrize("shape", [(2, 2), (2, 4), (3, 3), *slow((3, 4), (4, 3))])
@pytest.mark.parametrize("memory", [2, 3, 4, 5])
def test_no_order_moves_fewer_bytes(shape, memory):
    """The best strip and split of the slots moves what the best of all orders moves."""
    P, Q = shape
    splits = [(a, memory - a) for a in range(1, memory)]
    least = min(fewest_loads(P, Q, a, b) for a, b in splits)
    ours = [
        loads(product(P, Q, 1), replace(blocking(1, 1, 1, strip, a, b), by_columns=by_columns)).sum()
        for a, b in splits
        for by_columns, most in ((False, P), (True, Q))
        for strip in range(1, most + 1)
    ]
    assert min(ours) == least
