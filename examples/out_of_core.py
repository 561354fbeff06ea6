"""Beyond the device's memory: two mapped files larger than memory_limit, multiplied in tiles into a third."""

import tempfile
from pathlib import Path

import numpy as np

import pyclmm

M, N, K = 1500, 1200, 1000
rng = np.random.default_rng(18)

with tempfile.TemporaryDirectory() as folder:

    def file(name: str, rows: int, columns: int) -> np.memmap:
        return np.lib.format.open_memmap(Path(folder, name), "w+", np.float32, (rows, columns))

    a, b, c = file("a.npy", M, K), file("b.npy", K, N), file("c.npy", M, N)
    for matrix in (a, b):
        for row in range(0, len(matrix), 100):  # never a whole matrix in memory
            matrix[row : row + 100] = rng.integers(-4, 5, matrix[row : row + 100].shape)

    limit = 2 << 20
    assert min(a.nbytes, b.nbytes) > limit
    plan = pyclmm.StreamedMatmul(a, b, out=c, memory_limit=limit, checkpoint=Path(folder, "tiles"))
    for what, text in plan.explain().rows:
        print(f"{what:14} {text}")

    # An interrupted run goes on: here the function that is told of progress ends the first one.
    def stop_early(at: pyclmm.StreamProgress) -> None:
        if at.tiles == 2:
            raise KeyboardInterrupt

    try:
        plan(a, b, out=c, progress=stop_early)
    except KeyboardInterrupt:
        print("interrupted")

    def tell(at: pyclmm.StreamProgress) -> None:
        if at.tiles % 12 == 0:
            print(f"{at} ({at.resumed} of an earlier run)")

    plan(a, b, out=c, progress=tell)

    for row in range(0, M, 100):
        assert np.array_equal(c[row : row + 100], a[row : row + 100] @ b)  # small integers: exact
    del a, b, c, plan  # Windows removes no file that is mapped
