"""Fixtures of the tests of kernels for CPU devices."""

from __future__ import annotations

import dataclasses
from functools import partial

import pytest

import pyclmm
from pyclmm.kernels.device import Caches, DeviceInfo, Target


@pytest.fixture
def cpu(device: DeviceInfo) -> DeviceInfo:
    """The device under test, as a CPU with four compute units, 256-bit vectors and caches as of Zen 4."""
    return dataclasses.replace(
        device,
        kind="cpu",
        compute_units=4,
        target=Target(256),
        caches=Caches(32 << 10, 1 << 20),
        local_mem_size=1 << 20,
    )


@pytest.fixture
def on_cpu(device: DeviceInfo) -> None:
    if not device.is_cpu:
        pytest.skip("a kernel for CPU devices")


@pytest.fixture
def matvec(on_cpu: None) -> partial:
    """gemm by this kernel. tests/conformance/arm_products.py gives the same tests another."""
    return partial(pyclmm.gemm, kernel="matvec")


@pytest.fixture
def packed(on_cpu: None) -> partial:
    return partial(pyclmm.gemm, kernel="packed")
