"""constant_b=True: large weights are packed by the first call only. Small ones are not packed at all."""

import numpy as np

import pyclmm

rng = np.random.default_rng(1)
weights = rng.integers(-4, 5, (2048, 2048)).astype(np.float32)
batches = [rng.integers(-4, 5, (256, 2048)).astype(np.float32) for _ in range(3)]

with pyclmm.Matmul(batches[0], weights, constant_b=True) as plan:
    for batch in batches:
        assert np.array_equal(plan(batch, weights), batch @ weights)
    other = -weights  # another b is packed again; writing into the same one is what you promise not to do
    assert np.array_equal(plan(batches[0], other), batches[0] @ other)
    kept = "where b stays packed" if plan.workspace_nbytes >= weights.nbytes else "so b is not packed"
    print(f"{plan.kernel}: {plan.workspace_nbytes} bytes of workspace, {kept}")
