import gc

import pytest

import pyclmm
from pyclmm.cuda import streams
from tests.support import fake_cuda


@pytest.fixture
def cuda_and_lib(monkeypatch):
    """The made-up CUDA driver on PoCL, and its library of arrays."""
    device = next((d for d in pyclmm.devices() if "Portable" in d.platform), None)
    if device is None:
        pytest.skip("PoCL runs what the made-up CUDA driver launches")
    pyclmm.release()
    cuda, lib = fake_cuda.installed(monkeypatch, device.device)
    yield cuda, lib
    cuda.fail.clear()
    pyclmm.release()
    streams._contexts.clear()
    gc.collect()  # memory that is freed later would be another driver's


@pytest.fixture
def cuda(cuda_and_lib):
    return cuda_and_lib[0]


@pytest.fixture
def lib(cuda_and_lib):
    return cuda_and_lib[1]
