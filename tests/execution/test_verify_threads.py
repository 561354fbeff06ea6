"""verify= while finish() of another thread comes between: who hears of a wrong result, and how often."""

import threading

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from tests.support.spoiled import at

CALLS, SIDE = 60, 160
WRONG = ((3, 4), (6, 7))  # rows and columns
RNG = np.random.default_rng(5)
A, B = (RNG.standard_normal((SIDE, SIDE)).astype("f") for _ in range(2))


def told(call, *args, **kwargs):
    """What VerificationErrors the call raises."""
    try:
        call(*args, **kwargs)
    except pyclmm.VerificationError as error:
        return [(error.rows, error.columns)]
    return []


@pytest.fixture
def both_hear(spoiler):
    """What another thread hears in its calls, and this one in finish(), when each result is wrong."""
    spoiler.always = at(3 * SIDE + 6, "f", lambda x: x + 1e6)

    def hear(call):
        theirs, own = [], []
        other = threading.Thread(target=lambda: [theirs.extend(call()) for _ in range(CALLS)])
        other.start()
        while other.is_alive():
            own += told(pyclmm.finish)
        return theirs, own

    return hear


@pytest.mark.parametrize("ways", [{}, {"memory_limit": "4M"}])
def test_a_call_that_waits_hears_itself(ways, both_hear):
    assert both_hear(lambda: told(pyclmm.matmul, A, B, verify=True, **ways)) == ([WRONG] * CALLS, [])


def test_a_list_that_waits_hears_itself(both_hear):
    pairs = [(A, B), (B, A)]
    theirs, own = both_hear(lambda: told(pyclmm.matmul_many, pairs, verify=True))
    assert (len(theirs), own) == (CALLS, [])


def test_a_wrong_array_is_told_once(queue, both_hear):
    own_queue = cl.CommandQueue(queue.context)
    a, b = (cla.to_device(own_queue, x) for x in (A, B))
    plan = pyclmm.Matmul(a, b, verify=True)
    before = pyclmm.health()["wrong"]
    theirs, own = both_hear(lambda: told(plan, a, b) + told(pyclmm.finish))
    assert theirs + own == [WRONG] * CALLS
    assert pyclmm.health()["wrong"] == before + CALLS
