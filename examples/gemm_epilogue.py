"""gemm: a layer of a neural network, act(alpha op(a) op(b) + beta c + bias), in one call."""

import numpy as np

import pyclmm

rng = np.random.default_rng(1)
pictures = rng.integers(0, 5, (32, 100)).astype(np.float32)
weights = rng.integers(-2, 3, (10, 100)).astype(np.float32)  # stored transposed
bias = np.arange(10, dtype=np.float32)
previous = rng.integers(-9, 10, (32, 10)).astype(np.float32)

layer = pyclmm.gemm(
    pictures, weights, previous, alpha=0.5, beta=2.0, trans_b="T", bias=bias, activation="relu"
)

expected = np.maximum(0.5 * (pictures @ weights.T) + 2 * previous + bias, 0)
print(f"{layer.shape}, {np.count_nonzero(layer == 0)} of {layer.size} cut off by relu")
assert np.array_equal(layer, expected)

running = previous.copy()
pyclmm.gemm(pictures, weights, running, beta=1.0, trans_b="T", out=running)  # update in place, as in BLAS
assert np.array_equal(running, previous + pictures @ weights.T)
