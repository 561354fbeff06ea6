"""The device of PyTorch's on which these tests run: TEST_TORCH_DEVICE, "cpu" unless it is set."""

import os
from contextvars import ContextVar

import pytest

DEVICE = os.environ.get("TEST_TORCH_DEVICE", "cpu")


@pytest.fixture
def torch():
    """PyTorch, whose random numbers are the same in each test."""
    found = pytest.importorskip("torch", reason="needs torch")
    found.manual_seed(7)
    return found


@pytest.fixture
def door(torch):
    """pyclmm.torch."""
    return pytest.importorskip("pyclmm.torch", reason="needs torch")


@pytest.fixture
def device(torch):
    if DEVICE.startswith("cuda") and not torch.cuda.is_available():
        pytest.skip(f"TEST_TORCH_DEVICE={DEVICE}, but PyTorch finds no CUDA device")
    return DEVICE


@pytest.fixture
def key(device):
    """The dispatch key whose kernels are replaced for tensors on that device."""
    return "CUDA" if device.startswith("cuda") else "CPU"


@pytest.fixture
def traced(torch):
    setting = ContextVar("setting", default=1)
    try:
        torch.compile(lambda x: x + setting.get(), fullgraph=True, backend="eager")(torch.ones(1))
    except torch._dynamo.exc.Unsupported:
        pytest.skip("this PyTorch does not trace context variables")
