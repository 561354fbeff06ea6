"""Copies around a product: of operands that kernels do not read, and to results that they do not write."""

from math import prod

import numpy as np
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.kernels.launches import copy_launch
from pyclmm.problem.gemm import Copy
from tests.support.made_up import DEVICE


@pytest.mark.parametrize("shape", [(4096, 4096), (100_000, 3), (3, 100_000), (1, 7), (7, 1), (513, 257)])
def test_a_copy_has_few_work_groups_and_few_idle_work_items(shape):
    """Each work-group costs a device time to start, whatever it does."""
    rows, columns = shape
    copy = Copy(
        (5, rows, columns), "int8", (rows * columns, columns, 1), "int32", (rows * columns, columns, 1)
    )
    launch = copy_launch(copy, ("a", "a_offset"), ("out", "out_offset"), "offsets", DEVICE)
    items, group = prod(launch.global_size), prod(launch.local_size)
    assert all(whole % its == 0 for whole, its in zip(launch.global_size, launch.local_size, strict=True))
    assert 5 * rows * columns <= items <= 2 * 5 * rows * columns
    assert items // group <= max(5, 2 * 5 * rows * columns // 128)


@pytest.mark.parametrize("shape", [(1, 1), (3, 700), (700, 3), (17, 33), (257, 1), (300, 260)])
@pytest.mark.parametrize("dtype", [np.int16, np.int32])
def test_copied_results_of_any_shape(shape, dtype, queue):
    rng = np.random.default_rng(shape)
    a, b = (rng.integers(-5, 6, s).astype(np.int8) for s in ((2, shape[0], 4), (2, 4, shape[1])))
    stored = cla.zeros(queue, (shape[1], shape[0], 2), dtype)
    pyclmm.matmul(cla.to_device(queue, a), cla.to_device(queue, b), out=stored.transpose((2, 1, 0)))
    assert np.array_equal(stored.get().T, np.matmul(a, b))
