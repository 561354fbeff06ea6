"""The headers in cl/formats/ give the bits that pyclmm/formats/ define, for any bytes."""

import numpy as np
import pytest

from pyclmm.checks.known_answers import computed
from pyclmm.checks.layouts import Placed
from pyclmm.formats import FORMATS
from pyclmm.kernels import kernel_named
from pyclmm.kernels.interface import Work
from pyclmm.opencl.devices import device_info
from pyclmm.problem.gemm import GemmProblem

N, K = 40, 512


def on_device(queue, form, rows):
    """The float32 values that the device makes of *rows*."""
    problem = GemmProblem(1, N, K, "float32", "uint8", "float32", "float32", trans_b=True, lda=K, ldo=N,
                          ldb=rows.shape[1], b_format=form.name)  # fmt: skip
    family, device = kernel_named("dequantized"), device_info(queue.device)
    work = family.launches(problem, family.configs(problem, device)[0], device)
    (turned,) = [x for x in work.launches if x.kernel == "dequantize"]
    stored = Placed.of(rows.shape, (rows.shape[1], 1), "uint8", 64, 0)
    out = Placed.of((N, K), (K, 1), "float32", 0, 0)
    stored.view[...] = rows
    out.memory[...] = 0xA5
    names = {arg: "out" for arg in turned.args if arg == "workspace:weights"}
    got, clean = computed(queue, device, Work((turned.renamed(names),)), {"b": stored, "out": out})
    assert clean
    return got


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_any_bytes_have_the_bits_of_dequantize(queue, rng, form):
    for rows in (rng.integers(0, 256, (N, form.row_nbytes(K)), np.uint8), form.drawn(rng, N, K)):
        want, got = form.dequantize(rows, K), on_device(queue, form, rows)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        both = np.isnan(want)
        np.testing.assert_array_equal(np.where(both, 0, got).view("u4"), np.where(both, 0, want).view("u4"))
