"""Weights in the order of fragments are put in rows on the device, for kernels that read rows."""

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import pyclmm
from pyclmm.checks.known_answers import FILL, computed
from pyclmm.checks.layouts import Placed
from pyclmm.formats import format_named, in_rows, ordered
from pyclmm.formats.fragments import FRAGMENTS
from pyclmm.kernels import kernel_named
from pyclmm.kernels.interface import Work
from pyclmm.kernels.verification import seconds
from pyclmm.opencl.devices import device_info
from pyclmm.problem.gemm import GemmProblem

N, K = 150, 256
DEQUANTIZED = kernel_named("dequantized")


@pytest.mark.parametrize("form", FRAGMENTS, ids=lambda form: form.name)
def test_a_launch_writes_the_rows_of_any_bytes(queue, rng, form):
    stored = rng.integers(0, 256, (N, form.row_nbytes(K)), np.uint8)
    want = ordered(form, stored, K, "rows")[1]
    problem = GemmProblem(1, N, K, "float32", "uint8", "float32", "float32", trans_b=True, lda=K, ldo=N,
                          ldb=stored.shape[1], b_format=form.name)  # fmt: skip
    device = device_info(queue.device)
    work = DEQUANTIZED.launches(problem, DEQUANTIZED.configs(problem, device)[0], device)
    renamed = work.launches[0].renamed({work.workspace[0].symbol: "out"})
    b, out = (Placed.of(stored.shape, (stored.shape[1], 1), "uint8", lead, 0) for lead in (64, 0))
    b.view[...] = stored
    out.memory[...] = FILL
    got, clean = computed(queue, device, Work((renamed,)), {"b": b, "out": out})
    assert clean
    form = in_rows(form)
    for written, expected in zip(form.parts(got, K), form.parts(want, K), strict=True):
        np.testing.assert_array_equal(written, expected)


def test_rows_with_gaps_between_them_are_refused(queue):
    form, device = FRAGMENTS[0], device_info(queue.device)
    problem = GemmProblem(1, N, K, "float32", "uint8", "float32", "float32", trans_b=True, lda=K, ldo=N,
                          ldb=form.row_nbytes(K), b_format=form.name, b_align=16)  # fmt: skip
    assert DEQUANTIZED.refuses(problem, device) is None
    assert "behind one another" in DEQUANTIZED.refuses(replace(problem, ldb=problem.ldb + 16), device)
    assert "order of fragments" in kernel_named("quantized").refuses(problem, device)


def test_the_launch_is_in_the_estimates(queue):
    device, name = device_info(queue.device), "affine4_g32_float32"
    rows = GemmProblem(1, N, K, "float32", "uint8", "float32", "float32", trans_b=True, lda=K, ldo=N,
                       ldb=format_named(name).row_nbytes(K), b_format=name)  # fmt: skip
    blocks = replace(rows, b_format=f"{name}_fragments")
    config = DEQUANTIZED.configs(rows, device)[0]
    for estimate in (partial(seconds, device=device), lambda p: DEQUANTIZED.estimate(p, config, device)):
        longer = estimate(blocks) - estimate(rows)
        assert longer == pytest.approx(device.rates.launch + device.rates.moved(2 * N * rows.ldb), rel=0.01)


def test_a_check_reads_the_rows_of_the_product(rng):
    q = pyclmm.quantize(rng.standard_normal((N, K), np.float32), bits=4, group_size=32)
    plan = pyclmm.Matmul(np.ones((5, K), np.float32), q.to(np.empty(0), order="fragments").T, verify=True)
    (launches,) = re.findall(r"launches +\d+: (.*)", str(plan.explain()))  # how many is the device's choice
    assert launches.startswith("rows_of_blocks, verify_b, ")
    assert launches.count("rows_of_blocks") == 1


def test_products_that_read_no_weights(rng):
    q = pyclmm.quantize(rng.standard_normal((3, N, K), np.float32), bits=4, group_size=32)
    f = q.to(np.empty(0), order="fragments")
    x, c = (rng.standard_normal((5, length), np.float32) for length in (K, N))
    np.testing.assert_array_equal(pyclmm.gemm(x, f[1].T, c, alpha=0, beta=2), 2 * c)
    np.testing.assert_array_equal(pyclmm.ragged_matmul(x, f[:0].mT, []), np.zeros_like(c))
