"""benchmarks/memory.py draws the same calls again, makes them, and reads the memory."""

import random
from pathlib import Path

import numpy as np
import pytest

from pyclmm.problem.dtypes import ELEMENT_TYPES
from pyclmm.problem.dtypes import result_dtype as result_of
from tests.support.faults import failing
from tests.support.scripts import script


@pytest.fixture(scope="module")
def memory():
    return script("benchmarks/memory.py")


def test_calls_are_valid_and_the_same_for_a_seed(memory):
    def drawn():
        r = random.Random(5)
        shapes = [memory.draw_shape(r) for _ in range(50)]
        return [memory.draw_call(r, shapes) for _ in range(500)]

    calls = drawn()
    assert calls == drawn()
    assert {call.a.name for call in calls} == {call.b.name for call in calls} == set(ELEMENT_TYPES)
    for call in calls:
        result_of(call.a, call.b, None, call.out)
    for name in ("trans_a", "trans_b", "on_device"):
        assert {getattr(call, name) for call in calls} == {False, True}


def test_growing_calls_have_shapes_and_all_dtypes(memory):
    calls = [memory.grown_call(number) for number in range(3000)]
    sizes = [call.shape.n * call.shape.k for call in calls]
    assert len({call.shape for call in calls}) == 3000
    assert sizes == sorted(sizes)
    assert {call.a.name for call in calls} == set(ELEMENT_TYPES)
    assert {(call.a.name, call.on_device) for call in calls} == {
        (name, where) for name in ELEMENT_TYPES for where in (False, True)
    }


def test_arrays_have_the_strides_of_their_numpy_arrays(memory, queue):
    for trans in (False, True):
        x = memory.matrices(np.random.default_rng(1), (2, 3), 4, 5, np.dtype("f4"), trans)
        y = memory.on_device(queue, x)
        assert (y.shape, y.strides) == (x.shape, x.strides)
        stored = (y, x) if not trans else (y.transpose((0, 1, 3, 2)), np.swapaxes(x, -1, -2))
        assert np.array_equal(stored[0].get(), stored[1])


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc to read the memory from")
def test_each_reading_has_calls_memory_and_programs(memory, queue):
    first, second = memory.measure(queue, memory.random_calls(4, 3, seed=1), seed=1, every=2)
    assert (first["calls"], second["calls"]) == (2, 4)
    assert first["megabytes"] > 10
    assert 0 < second["programs"] <= second["builds"]


def test_a_wrong_result_ends_the_run(memory, queue, monkeypatch):
    shape = memory.Shape(2, 2, 2, (), ())
    four = np.dtype("f4")
    call = memory.Call(shape, four, four, None, trans_a=False, trans_b=False, on_device=False)
    memory.perform(call, queue, np.random.default_rng(1))
    monkeypatch.setattr(memory.pyclmm, "matmul", lambda a, b, *_, **__: a @ b + 1)
    with pytest.raises(SystemExit, match="wrong result of Call"):
        memory.perform(call, queue, np.random.default_rng(1))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc to read the memory from")
def test_a_product_of_much_memory_is_read_at_its_peak_or_refused(memory, queue):
    operands, peak, after = memory.large(queue, (40, 3, 300))
    assert [reading["what"] for reading in (operands, peak, after)] == ["operands", "peak", "after"]
    assert peak["megabytes"] >= operands["megabytes"] > 0
    with failing(memory, "matmul", memory.pyclmm.DeviceMemoryError("no room"), library="pyclmm"):
        assert [reading["what"] for reading in memory.large(queue, (4, 3, 30))] == ["operands", "refused"]
