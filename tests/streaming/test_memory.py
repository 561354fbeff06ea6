"""Products in tiles and memory: the limit, workspace, and what is too large for one buffer."""

import numpy as np
import pytest

import pyclmm
from pyclmm import ArgumentError, DTypeError, StreamedMatmul, plan_cache
from pyclmm.opencl import host_memory
from tests.support.faults import noted
from tests.support.made_up import seen_as
from tests.support.streams import Stored, integers, normal


@pytest.mark.parametrize(
    ("dims", "limit"),
    [
        ((400, 3000, 700), 3 << 20),
        ((400, 3000, 700), 8 << 20),
        ((1000, 2000, 1000), 1 << 19),
        ((9, 4, 7), 400),
    ],
)
def test_kernels_of_whole_tiles_and_of_edges_have_their_workspace(tmp_path, dims, limit):
    """What a product needs is known before: no KernelWarning says that another kernel is used."""
    m, k, n = dims
    a, b = normal(m, k), normal(k, n)
    stored = []
    for name, x in (("a", a), ("b", b)):
        np.save(tmp_path / name, x)
        stored.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    np.testing.assert_allclose(pyclmm.matmul(*stored, memory_limit=limit), a @ b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("limit", [50, 150, 260, 600, 5000, 8000])
def test_the_check_of_a_tile_has_room_however_operands_lie(tmp_path, limit):
    a, b = integers(33, 60, dtype="i2"), integers(60, 16, dtype="i2")
    for name, x in (("a", a), ("b", b)):
        np.save(tmp_path / name, np.asfortranarray(x))
    stored = [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "ab"]
    if limit < 260:
        with pytest.raises(ArgumentError, match=r"memory_limit is .* and their check need .*: pass more"):
            pyclmm.matmul(*stored, memory_limit=limit, verify=True)
        return
    np.testing.assert_array_equal(pyclmm.matmul(*stored, memory_limit=limit, verify=True), a @ b)


@pytest.mark.parametrize(
    ("dims", "limit"),
    [((0, 7, 100), 20), ((100, 7, 0), 20), ((100, 0, 0), 20), ((60, 0, 60), 300), ((300, 0, 2), 2000)],
)
@pytest.mark.parametrize("verify", [False, True])
def test_no_elements_need_no_memory_and_no_k_that_of_its_kernel(dims, limit, verify):
    m, k, n = dims
    a, b = Stored(normal(m, k)), Stored(normal(k, n))  # which a CPU cannot read in place
    result = pyclmm.matmul(a, b, memory_limit=limit, verify=verify)
    np.testing.assert_array_equal(result, np.zeros((m, n)))


@pytest.mark.usefixtures("on_device")
def test_no_more_memory_than_the_limit_is_allocated(tmp_path, monkeypatch):
    a, b = normal(600, 500), normal(500, 700)
    np.save(tmp_path / "a", a)  # a CPU would read arrays in memory where they are: no slots were counted
    limit, allocated = 1 << 20, noted(monkeypatch, host_memory, "allocate")
    assert (a.nbytes, b.nbytes) > (limit, limit)
    result = pyclmm.matmul(np.load(tmp_path / "a.npy", mmap_mode="r"), b, memory_limit=limit)
    assert np.allclose(result, a @ b, atol=1e-3)
    assert 0 < sum(nbytes for _, nbytes, *_ in allocated) <= limit


@pytest.mark.parametrize(
    ("limit", "error", "words"),
    [
        ("lots", ArgumentError, "8 GiB"), ("8 i", ArgumentError, "8 GiB"), (0, ArgumentError, "of 1 or more"),
        (-5, ArgumentError, "of 1 or more"), (1.5, DTypeError, "number of bytes"),
        (True, DTypeError, "number of bytes"), (7, ArgumentError, "7 bytes; even tiles of one element need"),
        (16, ArgumentError, r"16 bytes; tiles of 1 x 1 need \d\d bytes: pass more$"),
    ],
)  # fmt: skip
def test_a_limit_that_cannot_be_used_is_refused(limit, error, words):
    with pytest.raises(error, match=words):
        pyclmm.matmul(normal(5, 5), normal(5, 5), memory_limit=limit)


@pytest.fixture
def small_buffers(monkeypatch, limits):
    """The device allows buffers of 60,000 bytes."""
    seen_as(monkeypatch, max_mem_alloc_size=60_000)
    limits(tiles_from=0)
    plan_cache.release()
    yield
    plan_cache.release()


@pytest.mark.usefixtures("small_buffers")
@pytest.mark.parametrize(
    ("a", "b"),
    [
        (integers(30, 200), integers(200, 150)),  # B, of which columns span all of it
        (integers(150, 200), integers(200, 30)),
        (integers(200, 9), integers(9, 200)),  # the result
        (integers(4, 1, 100, 9), integers(4, 9, 100)),
        (integers(150, 200), integers(200)),
        (integers(200), integers(200, 150)),
        (integers(200, 150)[:, :7], integers(7, 9)),  # with its gaps
        (integers(200, 150).T, integers(200, 9)),
    ],
    ids=["B", "A", "result", "stack", "vector b", "vector a", "gaps", "turned"],
)
def test_what_is_too_large_for_a_buffer_is_computed_in_tiles(a, b):
    assert np.array_equal(pyclmm.matmul(a, b), a @ b)
    c = integers(*(a @ b).shape)
    if a.ndim == b.ndim == 2:
        assert np.array_equal(pyclmm.gemm(a, b, c, beta=2.0, bias=c[0]), a @ b + 2 * c + c[0])
        assert np.array_equal(pyclmm.gemm(a, b, c, beta=1.0, out=c.copy()), a @ b + c)


def test_a_cpu_that_reads_in_place_does_not_limit_the_memory_of_others(two_devices, monkeypatch, tmp_path):
    seen_as(monkeypatch, two_devices[0], unified_memory=False, global_mem_size=100 << 30)
    seen_as(monkeypatch, two_devices[1], global_mem_size=8 << 30)
    a = normal(50, 60)
    assert "75 GiB of each" in str(StreamedMatmul(a, a.T, devices=two_devices).explain())
    np.save(tmp_path / "a.npy", a)
    a = np.load(tmp_path / "a.npy", mmap_mode="r")  # of which the CPU keeps blocks
    assert "4 GiB of each" in str(StreamedMatmul(a, a.T, devices=two_devices).explain())


@pytest.mark.usefixtures("small_buffers")
def test_a_result_in_a_large_array_is_computed_in_tiles():
    a, b, c = integers(200, 5), integers(5, 7), np.full((200, 150), 9, np.float32)
    pyclmm.matmul(a, b, out=c[:, 20:27])
    assert np.array_equal(c[:, 20:27], a @ b)
    c[:, 20:27] = 9
    assert (c == 9).all()


@pytest.mark.usefixtures("small_buffers")
def test_blocks_that_are_copied_count_against_the_limit():
    a, b = integers(30, 200), integers(200, 150)
    told = str(StreamedMatmul(a, b, memory_limit=70_000).explain())
    assert "to the device  nothing" not in told
    assert np.array_equal(pyclmm.matmul(a, b, memory_limit=70_000), a @ b)
