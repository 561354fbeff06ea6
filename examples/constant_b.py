"""constant_b=True: weights are packed by the first call only."""

import numpy as np

import pyclmm

rng = np.random.default_rng(1)
weights = rng.integers(-4, 5, (500, 300)).astype(np.float32)
batches = [rng.integers(-4, 5, (32, 500)).astype(np.float32) for _ in range(5)]

with pyclmm.Matmul(batches[0], weights, constant_b=True) as plan:
    for batch in batches:
        assert np.array_equal(plan(batch, weights), batch @ weights)
    other = -weights  # another b is packed again; writing into the same one is what you promise not to do
    assert np.array_equal(plan(batches[0], other), batches[0] @ other)
    print(f"{plan.kernel}: {plan.workspace_nbytes} bytes of workspace, where b stays packed")
