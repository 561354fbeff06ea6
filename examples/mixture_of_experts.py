"""ragged_matmul: a layer of a mixture of experts, its weights in float32 and in 4 bits, beside NumPy's loop.

A router gives each token its two experts. Rows sorted by expert are multiplied by the weights of theirs.
"""

from typing import Any

import numpy as np

import pyclmm

Array = np.ndarray[Any, np.dtype[np.float32]]

TOKENS, WIDTH, HIDDEN, EXPERTS, EACH = 100, 128, 192, 8, 2
rng = np.random.default_rng(44)


def routed(x: Array, router: Array, bias: Array) -> tuple[Any, Array]:
    """The EACH experts of every token, and the softmax of their scores: (tokens, EACH)."""
    scores = pyclmm.gemm(x, router, bias=bias)
    experts = np.argsort(-scores, axis=1)[:, :EACH]
    chosen = np.exp(np.take_along_axis(scores, experts, 1) - scores.max(1, keepdims=True))
    return experts, chosen / chosen.sum(1, keepdims=True)


def layer(x: Array, experts: Any, shares: Array, up: Any, down: Any) -> Array:
    """The sum of what a token's experts make of it, by their shares. up, down: (EXPERTS, K, N) weights."""
    order = np.argsort(experts.ravel(), kind="stable")  # copies of tokens, sorted by expert
    sizes = np.bincount(experts.ravel(), minlength=EXPERTS)
    hidden = np.maximum(pyclmm.ragged_matmul(x[order // EACH], up, sizes), 0)
    made = np.empty((TOKENS * EACH, WIDTH), np.float32)
    made[order] = pyclmm.ragged_matmul(hidden, down, sizes)
    parts = made.reshape(TOKENS, EACH, WIDTH)
    return np.asarray((shares[..., None] * parts).sum(1))


def loop(x: Array, experts: Any, shares: Array, up: Array, down: Array) -> Array:
    """The same by NumPy, expert by expert."""
    y = np.zeros_like(x)
    for number in range(EXPERTS):
        tokens, place = np.nonzero(experts == number)
        y[tokens] += shares[tokens, place, None] * (np.maximum(x[tokens] @ up[number], 0) @ down[number])
    return y


def drawn(*shape: int) -> Array:
    """Weights that keep the size of what they multiply."""
    return rng.standard_normal(shape, np.float32) / np.float32(shape[-1] ** 0.5)


x = rng.standard_normal((TOKENS, WIDTH), np.float32)
popular = np.linspace(-2, 2, EXPERTS, dtype=np.float32)  # so that some experts get many tokens
experts, shares = routed(x, drawn(EXPERTS, WIDTH).T, popular)
print("tokens of each expert:", np.bincount(experts.ravel(), minlength=EXPERTS))

up, down = drawn(EXPERTS, HIDDEN, WIDTH), drawn(EXPERTS, WIDTH, HIDDEN)  # (N, K) of each expert
turned = [w.swapaxes(1, 2) for w in (up, down)]  # (K, N), read as they lie
y = layer(x, experts, shares, *turned)
assert np.allclose(y, loop(x, experts, shares, *turned), atol=1e-4)

small = [pyclmm.quantize(w, bits=4, group_size=64) for w in (up, down)]
quantised = layer(x, experts, shares, *(q.mT for q in small))
assert np.allclose(quantised, loop(x, experts, shares, *(q.mT.dequantize() for q in small)), atol=1e-4)
share = sum(q.nbytes for q in small) / (up.nbytes + down.nbytes)
error = np.linalg.norm(quantised - y) / np.linalg.norm(y)
print(f"4 bits: {share:.0%} of the bytes, {error:.0%} from the layer of float32 weights")
