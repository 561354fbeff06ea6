"""pyclmm.linalg: NumPy's functions that multiply, on NumPy arrays and on Arrays alike."""

import numpy as np
import pyopencl.array as cla

import pyclmm
from pyclmm import linalg

rng = np.random.default_rng(1)
# Attention: each query with each key, in each of 4 heads. The heads are a stack; nothing is copied for that.
queries, keys = (rng.integers(-3, 4, (2, n, 4, 16)).astype(np.float32) for n in (5, 7))
scores = linalg.einsum("bqhd,bkhd->bhqk", queries, keys)
print(f"queries {queries.shape}, keys {keys.shape} -> scores {scores.shape}")
assert np.array_equal(scores, np.einsum("bqhd,bkhd->bhqk", queries, keys))

queue = pyclmm.default_queue()
on_device = linalg.einsum("bqhd,bkhd->bhqk", *(cla.to_device(queue, x) for x in (queries, keys)))
assert np.array_equal(on_device.get(), scores)

tall, flat = np.ones((1000, 2), np.float32), np.ones((2, 1000), np.float32)
vector = np.arange(1000, dtype=np.float32)
assert np.array_equal(linalg.multi_dot([tall, flat, vector]), tall @ (flat @ vector))  # from the right
assert linalg.tensordot(queries, keys, axes=([0, 3], [0, 3])).shape == (5, 4, 7, 4)
assert np.array_equal(linalg.matrix_power(np.array([[1, 1], [1, 0]]), 10)[0], [89, 55])

# What is like an array is taken as one; memory is shared where it can be.
assert linalg.dot([1, 2, 3], (4, 5, 6)) == 32
mixed = linalg.matvec(cla.to_device(queue, flat), vector, mixed="copy")  # a NumPy array goes to the device
print(f"a matrix on the device, a vector on the host -> {type(mixed).__name__} {mixed.get()}")
