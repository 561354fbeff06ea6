"""The device of PyTorch's on which these tests run: TEST_TORCH_DEVICE, "cpu" unless it is set."""

import os

import pytest

DEVICE = os.environ.get("TEST_TORCH_DEVICE", "cpu")


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="needs torch")


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
