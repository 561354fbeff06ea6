"""Fixtures of the tests of products by residues."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest

from pyclmm.kernels import Work, kernel_named
from pyclmm.kernels.launches import complete
from pyclmm.kernels.residues import products
from pyclmm.opencl import host_memory, workspace
from pyclmm.opencl.binding import Binding
from pyclmm.opencl.steps import scalars_of
from pyclmm.problem.canonical import problem_of
from pyclmm.problem.gemm import Gemm

FORMS = ("bytes", "floats", "words")


def in_blocks(monkeypatch, most):
    """Sums are of *most* of K at the most, in every form."""
    forms = [replace(form, most=min(most, form.most)) for form in products.FORMS]
    monkeypatch.setattr(products, "FORMS", tuple(forms))
    for name, form in zip(FORMS, forms, strict=True):
        monkeypatch.setattr(products, name.upper(), form)


class Run:
    """A product a @ b by `residues`, or by *work*: what the device decided, and the result."""

    def __init__(self, queue, device, a, b, work: Work | None = None):
        kernel = kernel_named("residues")
        m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
        problem = problem_of(m, n, k, a.dtype, precision="high")
        work = work or kernel.launches(problem, kernel.configs(problem, device)[0], device)
        gemm = Gemm(problem, (m, n), a.dtype)
        binding = Binding(queue, device, complete(gemm, work, device), lend=workspace.own)
        out = np.zeros((m, n), a.dtype)
        arrays = {"a": a, "b": b, "c": out.copy(), "bias": out.copy(), "out": out}
        buffers = {
            name: host_memory.filled(queue.context, x.reshape(-1).view(np.uint8), device, name)
            for name, x in arrays.items()
        }
        binding.enqueue(buffers, scalars_of(1.0, 0.0), [])
        places = [space.name for space in binding._needs]
        kept = dict(zip(places, binding._lender._spaces.buffers, strict=True))
        plan = np.empty(4, np.int32)
        cl.enqueue_copy(queue, plan, kept["plan"])
        self.result = np.empty_like(out)
        cl.enqueue_copy(queue, self.result, buffers["out"])
        self.products, self.count, self.bits_a, self.bits_b = map(int, plan)


@pytest.fixture
def run(queue, device):
    if not device.has_fp64:
        pytest.skip("needs cl_khr_fp64")
    return lambda a, b, work=None: Run(queue, device, np.ascontiguousarray(a), np.ascontiguousarray(b), work)
