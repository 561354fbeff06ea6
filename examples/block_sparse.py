"""matmul_many: a block-sparse matrix times a dense one, a product of its own size for each row of blocks."""

import numpy as np

import pyclmm

rng = np.random.default_rng(1)
sides = rng.integers(3, 20, 12)  # of the blocks, as of atoms with few and with many orbitals
edges = np.cumsum([0, *sides])
places = [np.flatnonzero(rng.random(12) < 0.3) for _ in sides]  # the columns of blocks in each row of blocks
x = rng.integers(-4, 5, (edges[-1], 8)).astype(np.float32)

rows, pairs, dense = [], [], np.zeros((edges[-1], edges[-1]), np.float32)
for i, columns in enumerate(places):
    rows.append(slice(edges[i], edges[i + 1]))
    here = np.concatenate([np.arange(edges[j], edges[j + 1]) for j in columns] or [np.arange(0)])
    blocks = rng.integers(-4, 5, (sides[i], len(here))).astype(np.float32)  # side by side
    dense[rows[i], here] = blocks
    pairs.append((blocks, x[here]))

y = np.empty_like(x)
with pyclmm.ManyMatmul(pairs, [y[row] for row in rows]) as plan:  # for many x, which the blocks outlive
    plan(pairs, [y[row] for row in rows])
    assert np.array_equal(y, dense @ x)
    filled = sum(a.size for a, _ in pairs) / dense.size
    print(f"{len(pairs)} products, {filled:.0%} of the matrix, in {len(plan.kernels)} launches")
