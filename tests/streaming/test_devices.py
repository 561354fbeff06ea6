"""Products in tiles on several devices: who computes what, and devices that are lost."""

from types import SimpleNamespace

import numpy as np
import pytest

import pyclmm
from pyclmm import ArgumentError, DeviceLostError, DeviceMemoryError, DeviceWarning, DTypeError
from pyclmm.opencl import devices, queues
from pyclmm.streaming import machines, run, worker
from tests.support.faults import noted, replace_driver
from tests.support.processes import without_queues
from tests.support.streams import integers, normal


@pytest.mark.usefixtures("lane", "small_tiles")
def test_several_devices_share_the_tiles(two_devices, runs):
    a, b = integers(900, 70), integers(70, 500)
    assert np.array_equal(pyclmm.matmul(a, b, devices=two_devices), a @ b)
    assert set(runs.products) == set(two_devices)


@pytest.mark.usefixtures("on_device", "small_tiles")
def test_c_in_one_zarr_shard_is_updated_by_two_devices(two_devices, tmp_path):
    """Chunks of zeros are not in the shard's file, so each tile that is written moves what others read."""
    zarr = pytest.importorskip("zarr")
    a, b, c = integers(400, 20), integers(20, 96), integers(400, 96)
    c[np.arange(400) // 8 % 2 == 0] = 0
    out = zarr.create_array(
        tmp_path / "c", shape=c.shape, dtype="f4", chunks=(8, 8), shards=c.shape, compressors=None
    )
    out[...] = c
    pyclmm.gemm(a, b, out, beta=1, out=out, devices=two_devices)
    assert (out[...] == a @ b + c).all()


def break_lanes(runs, numbers=(0,), at=3):
    """These lanes are lost at their products from *at* on."""
    counts = dict.fromkeys(numbers, 0)

    def before(step, number):
        if number in counts and step == "multiply":
            counts[number] += 1
            if counts[number] >= at:
                raise DeviceLostError("it stopped")

    runs.before = before


@pytest.mark.parametrize("why", ["it stopped", "no room"])
@pytest.mark.usefixtures("lane", "small_tiles")
def test_the_others_finish_the_tiles_of_a_device_that_is_lost_or_has_no_room(why, two_devices, runs):
    if why == "it stopped":
        break_lanes(runs)
    else:
        runs.refused[two_devices[1]] = DeviceMemoryError(why)
    a, b = integers(900, 70), integers(70, 500)
    with pytest.warns(DeviceWarning, match=f"takes no more part in the product: {why}"):
        got = pyclmm.matmul(a, b, devices=two_devices)
    assert np.array_equal(got, a @ b)


def test_after_a_device_was_lost_a_call_gets_another_context(runs):
    device = pyclmm.default_queue().device
    before = queues.queue_on(device).context
    break_lanes(runs, at=1)
    with pytest.raises(DeviceLostError):
        pyclmm.matmul(integers(5, 6), integers(6, 7), devices=[device])
    assert queues.queue_on(device).context != before
    a, b = integers(5, 6), integers(6, 7)
    assert np.array_equal(pyclmm.matmul(a, b, devices=[device]), a @ b)


@pytest.mark.usefixtures("lane", "small_tiles")
def test_the_time_of_a_tile_is_without_the_wait_for_it(monkeypatch, runs):
    """A device that is refused tiles for a while is not slow for that."""
    now = [0.0]
    runs.before_tile = lambda state: now.append(1000.0)  # it had to wait for its first tile
    told = noted(monkeypatch, worker.RunState, "done")
    monkeypatch.setattr(worker, "time", SimpleNamespace(perf_counter=lambda: now[-1]))
    pyclmm.matmul(integers(40, 70), integers(70, 32), devices=[pyclmm.default_queue().device])
    assert [seconds for *_, seconds in told] == [0.0]


def test_a_lost_device_whose_context_another_call_forgot_is_told(monkeypatch):
    device = pyclmm.default_queue().device
    without_queues(monkeypatch)
    replace_driver(monkeypatch, "opencl", Context=None)  # a lost device may give none
    with pytest.raises(DeviceLostError, match="it stopped"):
        run._give_up((device, None), DeviceLostError("it stopped"), others=False)


@pytest.mark.filterwarnings("ignore::pyclmm.DeviceWarning")
@pytest.mark.usefixtures("lane", "small_tiles")
def test_if_every_device_is_lost_the_call_raises(two_devices, runs):
    break_lanes(runs, numbers=(0, 1), at=1)
    with pytest.raises(DeviceLostError, match="it stopped"):
        pyclmm.matmul(integers(200, 70), integers(70, 100), devices=two_devices)


@pytest.mark.parametrize(
    ("devices", "error", "words"),
    [
        ([], ArgumentError, "empty"),
        ("some", ArgumentError, '"all"'),
        (["0:0", "0:0"], ArgumentError, "devices names .+ twice; pass each device once"),
        (["0:0", "none"], ArgumentError, r"devices\[1\]: .*'none'"),
        ([None, 3.5], DTypeError, r"devices\[1\]: device is a float"),
        ([1.5], DTypeError, "number or a name"),
        (np.array(0), DTypeError, r"devices is array\(0\); pass"),
        (3, DTypeError, "devices is 3; pass"),
    ],
)
def test_devices_that_cannot_be_used_are_refused(devices, error, words):
    with pytest.raises(error, match=words):
        pyclmm.matmul(normal(5, 5), normal(5, 5), devices=devices)


def test_devices_stands_beside_neither_queue_nor_device(two_devices):
    for other in ({"queue": pyclmm.default_queue()}, {"device": "cpu"}):
        with pytest.raises(ArgumentError, match="devices is given beside"):
            pyclmm.matmul(normal(5, 5), normal(5, 5), devices=two_devices, **other)


def test_all_devices_are_every_gpu_and_one_cpu():
    kinds = [devices.device_info(device).kind for device, _ in machines.places("all", None, None)]
    there = [record.kind for record in pyclmm.devices()]
    assert kinds.count("cpu") == min(1, there.count("cpu"))
    assert sorted(set(kinds)) == sorted(set(there))
    assert len(kinds) - kinds.count("cpu") == len(there) - there.count("cpu")
