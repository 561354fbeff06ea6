"""pyclmm.dask on a cluster of two worker processes: devices, limits, and a worker that is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import dask
import dask.array as da
import distributed
import numpy as np
import pytest

import pyclmm.dask
from pyclmm.dask import workers
from pyclmm.opencl.devices import default_device, device_info


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """Two workers of one thread each. Their lock files are in a folder of this test."""
    settings = {
        "distributed.worker.daemon": True,
        "distributed.comm.timeouts.connect": "3s",  # 30 s would be waited for a dead worker
        "distributed.scheduler.allowed-failures": 5,
        "distributed.admin.large-graph-warning-threshold": "1 GiB",
    }
    with (
        pytest.MonkeyPatch.context() as patch,
        dask.config.set(settings),
    ):
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("locks")))
        with (
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit="2GiB"
            ) as cluster,
            distributed.Client(cluster, timeout=60) as connected,
        ):
            yield connected


def lock_of(dask_worker):
    return dask_worker.plugins["pyclmm-device"]._lock.name


def given(dask_worker):
    return workers._given[dask_worker.id]


def killed_once(chunk, marker, block_info=None):
    """The chunk; the first time, the end of this worker's process."""
    if block_info[None]["chunk-location"] == (1, 1):
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return chunk
        os.kill(os.getpid(), signal.SIGKILL)
    return chunk


def numbers(shape, seed):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def test_each_worker_has_its_device_and_the_product_is_right(client):
    client.register_plugin(pyclmm.dask.DevicePlugin(devices=[0, 0]))
    locks = client.run(lock_of)
    assert len(set(locks.values())) == 2
    number = pyclmm.devices()[0].number
    assert list(client.run(given).values()) == [number] * 2
    a, b = numbers((60, 80), 0), numbers((80, 40), 1)
    x, y = da.from_array(a, chunks=20), da.from_array(b, chunks=20)
    product = pyclmm.dask.matmul(x, y)
    np.testing.assert_array_equal(product.compute(), a @ b)
    with pyclmm.dask.backend():
        np.testing.assert_array_equal((x @ y).compute(), a @ b)


def test_limits_are_of_the_workers(client, monkeypatch):
    found = workers.limits()
    assert found.tasks == 2
    assert found.host == (2 << 30) // 4
    assert found.device == device_info(default_device()).global_mem_size // 2
    monkeypatch.setattr(client, "run", lambda *_, **__: pytest.fail("they are asked again"))
    assert workers.limits() == found
    assert workers.limits(5, 6) == workers.Limits(5, 6, 2)


def test_a_worker_killed_in_mid_run_loses_nothing(client, tmp_path):
    a, b = numbers((80, 80), 2), numbers((80, 80), 3)
    x, y = da.from_array(a, chunks=20), da.from_array(b, chunks=20)
    before = set(client.run(os.getpid).values())
    product = pyclmm.dask.matmul(x, y, memory_limit=20 * 20 * 4 * 9, host_limit="1 GiB")
    assert product.numblocks == (4, 4)
    marker = tmp_path / "killed"
    after = product.map_blocks(killed_once, str(marker), dtype=product.dtype)
    np.testing.assert_array_equal(after.compute(), a @ b)
    assert Path(marker).exists()
    client.wait_for_workers(2, timeout=30)
    assert set(client.run(os.getpid).values()) != before
    assert len(set(client.run(lock_of).values())) == 2  # the new process took the device of the old one


def test_a_fault_of_one_task_is_a_clear_error_or_a_retry(client):
    x = da.from_array(numbers((4, 4), 4), chunks=2)
    with pytest.raises(pyclmm.UnsupportedError):
        pyclmm.dask.matmul(x, x, kernel="wgmma").compute()
