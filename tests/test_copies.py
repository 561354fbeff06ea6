"""Public objects are pickled and copied, or an error says what to pickle in their place."""

import copy
import pickle
import re

import numpy as np
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm import array_api
from tests.support.habits import fetched

X = np.arange(32 * 64, dtype="f4").reshape(32, 64)


def again(x):
    return pickle.loads(pickle.dumps(x))


def refused(x, would_do):
    with pytest.raises(pyclmm.DTypeError, match=f"cannot be pickled; .*{re.escape(would_do)}"):
        pickle.dumps(x)


RECORDS = {
    "an explanation": lambda: pyclmm.Matmul(X, X.T).explain(),
    "that of tiles": lambda: pyclmm.StreamedMatmul(X, X.T).explain(),
    "those of lists": lambda: pyclmm.ManyMatmul([(X, X.T)]).explain(),
    "an estimate": lambda: pyclmm.Matmul(X, X.T).estimate(),
    "a configuration": lambda: pyclmm.Matmul(X, X.T).config,
    "progress": lambda: pyclmm.StreamProgress(1, 3, 0, 2.0, 6.0, 0.5),
    "health": pyclmm.health,
    "kernels": lambda: pyclmm.KERNELS,
}


@pytest.mark.parametrize("way", [again, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("what", RECORDS)
def test_records(way, what):
    one = RECORDS[what]()
    assert repr(way(one)) == repr(one)


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("place", ["host", "device"])
def test_copies_of_weights(way, place, queue):
    q = pyclmm.quantize(X).T
    q = q.to(queue) if place == "device" else q
    copied = way(q)
    assert (copied.shape, repr(copied)) == (q.shape, repr(q))
    assert (copied.data is q.data) == (way is copy.copy)
    x = np.ones((2, 64), "f4")
    there = cla.to_device(queue, x) if place == "device" else x
    got = fetched(pyclmm.matmul(there, copied))
    assert np.array_equal(got, pyclmm.matmul(x, q.to(x)))
    if place == "host":
        with pytest.raises(ValueError, match="read-only"):
            copied.data[0] = 0


@pytest.mark.parametrize("part", [lambda q: q[::2].mT, lambda q: q[1][::3], lambda q: q[:0]])
def test_copies_of_parts_of_a_stack_on_a_device(part, queue):
    q = pyclmm.quantize(X.reshape(4, 8, 64))
    copied = copy.deepcopy(part(q.to(queue)))
    assert copied.shape == part(q).shape
    assert np.array_equal(copied.dequantize(), part(q).dequantize())


def test_weights_on_a_device_are_not_pickled(queue):
    q = pyclmm.quantize(X)
    refused(q.to(queue), "pickle q.to(np.empty(0))")
    assert again(q.to(queue).to(np.empty(0))).to(queue).dequantize().tolist() == q.dequantize().tolist()


def test_a_device_record_is_of_its_process():
    (first, *_) = every = pyclmm.devices()
    assert copy.copy(first) is copy.deepcopy(every)[0] is first
    refused(every, f"pickle its name, {first.name!r}")


def test_an_array_of_the_namespace_is_copied_and_not_pickled():
    x = array_api.asarray(X)[:, ::2]
    same, other = copy.copy(x), copy.deepcopy(x)
    assert type(same) is type(other) is type(x)
    assert (same.base_data, same.offset, same.strides) == (x.base_data, x.offset, x.strides)
    assert other.base_data != x.base_data
    assert np.array_equal(np.asarray(other), X[:, ::2])
    refused(x, "pickle numpy.asarray(x)")
