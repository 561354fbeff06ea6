"""The choice of tiles: it fits the memory, covers the product, and its times behave."""

import math
from dataclasses import asdict, replace

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from pyclmm import ArgumentError
from pyclmm.byte_sizes import format_bytes
from pyclmm.streaming import choice, prediction, tiles
from pyclmm.streaming.prediction import DeviceModel
from pyclmm.streaming.tiles import Blocking, TiledProduct

H200 = DeviceModel(100 << 30, 33e9, 28e9, lambda m, n, k: 5e-6 + m * n * k / 26e12)


def cube(n, stack=()):
    return TiledProduct(n, n, n, 4, 4, 4, 4, 0, stack, stack, stack)


products = st.builds(
    TiledProduct,
    m=st.integers(1, 5000),
    n=st.integers(1, 5000),
    k=st.integers(1, 5000),
    a_size=st.sampled_from([1, 2, 4, 8]),
    b_size=st.sampled_from([2, 4, 16]),
    out_size=st.sampled_from([2, 4, 8]),
    acc_size=st.sampled_from([4, 8]),
    c_size=st.sampled_from([0, 4]),
    whole_k=st.booleans(),
)
machines = st.builds(
    DeviceModel,
    memory=st.integers(1 << 10, 1 << 30),
    up=st.sampled_from([0.0, 1e9, 50e9]),
    down=st.sampled_from([0.0, 1e9, 50e9]),
    seconds=st.just(H200.seconds),
    devices=st.integers(1, 3),
    largest=st.sampled_from([1 << 62, 1 << 24]),
)


FEW = TiledProduct(97, 561, 1, 1, 4, 2, 4, 0)  # of three devices the first one has the least to do


@given(products, machines)
@example(FEW, replace(H200, memory=1 << 10, up=0.0, down=0.0, devices=3))
def test_the_choice_fits_the_memory_and_the_product(product, machine):
    k = product.k if product.whole_k else 1
    least = k * (product.a_size + product.b_size) + product.tile_size
    try:
        found = choice.choose(product, machine)
    except ArgumentError as error:
        needed = f"need {format_bytes(least)}, besides workspace"
        assume(needed not in str(error) or least <= min(machine.memory, machine.largest))
        raise
    assert prediction.memory(product, found) <= machine.memory
    assert found.m <= product.m
    assert found.n <= product.n
    assert found.k == product.k if product.whole_k else 0 < found.k <= product.k
    assert Blocking.from_json(asdict(found)) == found
    count = math.prod(
        -(-x // y) for x, y in ((product.m, found.m), (product.n, found.n), (product.k, found.k))
    )
    if count < 500:
        assert len(tiles.tiles(product, found)) * len(tiles.chunks(product, found)) == count
        predicted = prediction.predict(product, machine, found)
        assert predicted.seconds * 1.000001 >= predicted.product_seconds > 0
        assert predicted.up >= product.m * product.k * product.a_size + product.k * product.n * product.b_size


@given(products, machines, st.floats(1.1, 10))
def test_a_faster_link_is_never_predicted_to_be_slower(product, machine, times):
    assume(machine.up and machine.down)
    try:
        at = choice.choose(product, machine)
    except ArgumentError:
        return
    faster = replace(machine, up=machine.up * times, down=machine.down * times)
    before, after = (prediction.predict(product, each, at).seconds for each in (machine, faster))
    assert after <= before * 1.0000001


def test_transfers_and_product_overlap():
    """8192 cubed: what a device takes one after the other is predicted to take much less in tiles."""
    product = cube(8192)
    found = choice.choose(product, H200)
    nbytes = 4 * 8192**2
    serial = 2 * nbytes / H200.up + H200.seconds(8192, 8192, 8192) + nbytes / H200.down
    predicted = prediction.predict(product, H200, found)
    assert predicted.seconds < 0.8 * serial
    assert predicted.decides.startswith("arithmetic")


def test_what_fits_is_sent_once():
    product = cube(32768)
    moved = tiles.traffic(product, choice.choose(product, H200))
    assert moved == (2 * 4 * 32768**2, 4 * 32768**2)


def test_little_memory_means_more_bytes():
    product = TiledProduct(65536, 65536, 16384, 4, 4, 4, 4)
    moved = []
    for memory in (64 << 30, 7 << 30, 1 << 30):
        machine = replace(H200, memory=memory)
        moved.append(prediction.predict(product, machine, choice.choose(product, machine)).up)
    assert moved[0] == 4 * (65536 + 65536) * 16384
    assert moved[0] <= moved[1] < moved[2]


@pytest.mark.parametrize("devices", [2, 4])
def test_several_devices_get_tiles_enough(devices):
    machine = replace(H200, devices=devices)
    product = cube(32768)
    found = choice.choose(product, machine)
    every = tiles.tiles(product, found)
    assert len(every) >= 8 * devices
    strips = {(tile.columns if found.by_columns else tile.rows)[0] for tile in every}
    assert len(strips) >= devices


def test_small_matrices_of_a_stack_share_tiles():
    product = cube(64, (10_000,))
    found = choice.choose(product, replace(H200, memory=1 << 30))
    assert found.batch > 100
    assert len(tiles.tiles(product, found)) < 100


def test_on_a_device_that_reads_the_hosts_memory_nothing_is_cut():
    found = choice.choose(cube(4096), replace(H200, up=0.0, down=0.0))
    assert (found.m, found.n, found.k) == (4096, 4096, 4096)


@pytest.mark.parametrize("sizes", [(0, 5, 5), (5, 0, 5), (5, 5, 0)])
def test_nothing_to_multiply(sizes):
    product = TiledProduct(sizes[0], sizes[1], sizes[2], 4, 4, 4, 4)
    found = choice.choose(product, H200)
    assert tiles.tiles(product, found) == [] or tiles.chunks(product, found) == [(0, 0)]
    assert prediction.describe(product, H200, found) == [("tiles", "none: nothing is multiplied")]


def test_the_explanation_has_numbers_with_units():
    product = cube(8192)
    rows = dict(prediction.describe(product, H200, choice.choose(product, H200)))
    assert rows["tiles"] == "2 x 2 of 4096 x 4096, K in 2 chunks of 4096"
    assert rows["to the device"].startswith("512 MiB at 33.0 GB/s: 0.01627 s")
    assert rows["back"].startswith("256 MiB at 28.0 GB/s")
    assert rows["decides"] == "arithmetic, which hides the transfers"
