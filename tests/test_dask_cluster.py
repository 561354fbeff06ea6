"""pyclmm.dask on a cluster of two worker processes: devices, limits, and a worker that is killed."""

import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest

dask = pytest.importorskip("dask", reason="needs dask")
da = pytest.importorskip("dask.array", reason="needs dask")
distributed = pytest.importorskip("distributed", reason="needs distributed")

import pyclmm.dask  # noqa: E402 - it needs dask
from pyclmm.dask import block, workers  # noqa: E402


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """Two workers of one thread each. Their lock files are in a folder of this test."""
    settings = {
        "distributed.worker.daemon": True,
        "distributed.comm.timeouts.connect": "3s",  # 30 s would be waited for a dead worker
        "distributed.scheduler.allowed-failures": 5,
        "distributed.admin.large-graph-warning-threshold": "1 GiB",
    }
    with pytest.MonkeyPatch.context() as patch, dask.config.set(settings):
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("locks")))
        with (
            distributed.LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                processes=True,
                dashboard_address=":0",  # None is port 8787, which somebody's cluster may have
                memory_limit="2GiB",
            ) as cluster,
            distributed.Client(cluster, timeout=200) as connected,
        ):
            connected.register_plugin(pyclmm.dask.DevicePlugin(devices=[0, 0]))
            yield connected


def lock_of(dask_worker):
    return os.fstat(dask_worker.plugins["pyclmm-device"]._lock).st_ino


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
    memories = [device for device, _ in client.run(workers.facts).values()]  # PoCL's follow the free memory
    assert found.device == min(memories) // 2
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
    client.wait_for_workers(2, timeout=200)
    assert set(client.run(os.getpid).values()) != before
    assert len(set(client.run(lock_of).values())) == 2  # the new process took the device of the old one


def lost_once(marker):
    """On this worker, the first product of all workers finds its device lost."""

    def gemm(*arguments, **keywords):
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return pyclmm.gemm(*arguments, **keywords)
        raise pyclmm.DeviceLostError("the device is lost")

    vars(block)["gemm"] = gemm


def slowly(chunk):
    time.sleep(0.3)
    return chunk


def mended():
    vars(block)["gemm"] = pyclmm.gemm


@pytest.mark.parametrize("retries", [0, 1])
def test_a_task_that_fails_is_tried_again_if_asked(client, tmp_path, retries):
    a = numbers((8, 8), 40 + retries)  # other keys: the scheduler remembers those that failed
    x = da.from_array(a, chunks=4)
    client.run(lost_once, str(tmp_path / "lost"))
    try:
        product = pyclmm.dask.matmul(x, x)
        future = client.compute(product, retries=retries)
        if retries:
            np.testing.assert_array_equal(future.result(timeout=200), a @ a)
        else:
            with pytest.raises(pyclmm.DeviceLostError, match="the device is lost"):
                future.result(timeout=200)
    finally:
        client.run(mended)
    assert (tmp_path / "lost").exists()


def test_progress_of_distributed_shows_the_tasks(client, capsys):
    x = da.from_array(numbers((8, 8), 4), chunks=4)
    product = pyclmm.dask.matmul(x, x).map_blocks(slowly).persist()
    distributed.progress(product, notebook=False)
    distributed.wait(product)
    assert re.search(r"[1-9]\d?% Completed", capsys.readouterr().out)


def test_what_a_device_cannot_do_is_its_own_error(client):
    x = da.from_array(numbers((4, 4), 4), chunks=2)
    with pytest.raises(pyclmm.UnsupportedError):
        pyclmm.dask.matmul(x, x, kernel="wgmma").compute()
