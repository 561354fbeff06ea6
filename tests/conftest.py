"""Fixtures that every test file shares: the device under test, and random numbers with a seed."""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import HealthCheck, settings

from pyclmm import api
from pyclmm.checks import selfcheck
from pyclmm.kernels.device import DeviceInfo
from pyclmm.opencl import queues
from pyclmm.opencl.devices import device_info
from pyclmm.opencl.queues import default_queue
from pyclmm.opencl.single_flight import SingleFlight

# A slow build is no reason for a test to fail, and the same examples are drawn in each run;
# `make fuzz` is what looks for new ones.
settings.register_profile(
    "pyclmm", deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), print_blob=False
)
settings.load_profile("pyclmm")


@pytest.fixture(scope="session")
def queue() -> cl.CommandQueue:
    """The default queue: whatever OpenCL there is, or what PYOPENCL_CTX names."""
    return default_queue()


@pytest.fixture(scope="session")
def context(queue: cl.CommandQueue) -> cl.Context:
    return queue.context


@pytest.fixture(scope="session")
def device(queue: cl.CommandQueue) -> DeviceInfo:
    return device_info(queue.device)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers that are the same in each run, and different in each test."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels run without their self-check, so that a wrong one shows instead of being refused."""
    monkeypatch.setenv("PYCLMM_SELFCHECK", "off")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Files that pyclmm keeps go to a folder of this run's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYCLMM_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("PYCLMM_TRIAL", "off")  # a child process for each program would take long
        yield


@pytest.fixture
def own_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No plan, verdict, context or default queue from before, and a cache folder of this test's own."""
    folder = tmp_path / "caches"
    monkeypatch.setenv("PYCLMM_CACHE_DIR", str(folder))
    monkeypatch.delenv("PYCLMM_SELFCHECK", raising=False)
    monkeypatch.setattr(selfcheck, "_verdicts", SingleFlight())
    monkeypatch.setattr(queues, "_default", {})
    monkeypatch.setattr(queues, "_contexts", {})
    monkeypatch.setattr(api, "_plans", OrderedDict())
    return folder
