"""Fixtures of the tests of products in tiles."""

from __future__ import annotations

import pyopencl as cl
import pytest

import pyclmm


@pytest.fixture
def two_devices():
    """Two parts of the default device."""
    whole = pyclmm.default_queue().device
    if whole.partition_max_sub_devices < 2:
        pytest.skip(f"{whole.name.strip()} cannot be divided (CL_DEVICE_PARTITION_MAX_SUB_DEVICES)")
    return whole.create_sub_devices([cl.device_partition_property.EQUALLY, 1])[:2]
