"""Blocks of arrays, memory maps, HDF5 and Zarr against plain slicing, and every fault of storage."""

import errno
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyopencl.array as cla
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyclmm
from pyclmm.errors import ArgumentError, DTypeError, ShapeError, StorageError
from pyclmm.problem.dtypes import ELEMENT_TYPES, dtype_of
from pyclmm.streaming import datasets
from pyclmm.streaming.datasets import is_stored
from pyclmm.streaming.storage import sink, source
from pyclmm.streaming.tiles import Region
from tests.support.faults import failing, noted
from tests.support.optional import optional
from tests.support.streams import Stored

h5py, ml_dtypes, pd, zarr = map(optional, ("h5py", "ml_dtypes", "pandas", "zarr"))


def numbers(shape, dtype="f4"):
    return (np.arange(np.prod(shape)) % 101).reshape(shape).astype(dtype)


def mapped(path, shape, dtype="f4", order="C", offset=0, mode="r+"):
    x = np.memmap(path, dtype, "w+", offset, shape, order)
    x[...] = numbers(shape, dtype)
    x.flush()
    return np.memmap(path, dtype, mode, offset, shape, order)


def write(to, block, rows, columns):
    to.write(block, Region((), rows, columns))


def read(of, index, rows, columns):
    wanted = np.empty(of.shape, "?")[(*index, rows, columns)].shape
    shape = (*wanted[:-2], wanted[-1], wanted[-2]) if of.turned else wanted
    target = np.empty(shape, of.dtype.newbyteorder("="))
    of.read(target, Region(index, rows, columns))
    return target.swapaxes(-1, -2) if of.turned else target


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
@pytest.mark.parametrize("kind", ["array", "memmap", "h5py", "zarr", "alike"])
def test_every_dtype_is_read_and_written(kind, dtype, tmp_path):
    x = numbers((9, 7), dtype_of(dtype))
    if dtype == "bfloat16" and kind in ("h5py", "zarr"):
        pytest.skip("these formats have no bfloat16")
    stored = {
        "array": lambda: np.zeros_like(x),
        "memmap": lambda: np.memmap(tmp_path / "x", x.dtype, "w+", shape=x.shape),
        "h5py": lambda: h5py.File(tmp_path / "x.h5", "w").create_dataset(
            "x", x.shape, x.dtype, chunks=(4, 4)
        ),
        "zarr": lambda: zarr.create_array(tmp_path / "z", shape=x.shape, dtype=x.dtype, chunks=(4, 4)),
        "alike": lambda: Stored(np.zeros_like(x)),
    }[kind]()
    to = sink(stored, x.shape, x.dtype)
    for r in (0, 4, 8):
        write(to, x[r : r + 4], slice(r, min(9, r + 4)), slice(0, 7))
    to.flush()
    got = read(source("a", stored), (), slice(1, 8), slice(2, 6))
    assert got.dtype == x.dtype
    assert (got == x[1:8, 2:6]).all()
    assert to.persistent == (kind in ("memmap", "h5py", "zarr"))


@given(data=st.data())
def test_blocks_of_views_of_a_memmap_are_slices(data, tmp_path_factory):
    draw, path = data.draw, tmp_path_factory.mktemp("m") / "x"
    order, offset = draw(st.sampled_from("CF")), draw(st.sampled_from([0, 123, 4096, 5000]))
    dtype = draw(st.sampled_from(["f4", ">f4", "i1", "c16"]))
    x = mapped(path, (3, 9, 8), dtype, order, offset, draw(st.sampled_from(["r", "r+", "c"])))
    steps = st.sampled_from([slice(None), slice(1, None), slice(None, None, -1), slice(None, None, 2)])
    x = x[draw(steps), draw(steps), draw(steps)]
    if draw(st.booleans()):
        x = np.asarray(x.swapaxes(-1, -2))
    of = source("a", x)
    assert not of.in_memory
    first = [draw(st.integers(0, n - 1)) for n in x.shape]
    spans = [slice(i, draw(st.integers(i + 1, n))) for i, n in zip(first, x.shape, strict=True)]
    index = draw(st.sampled_from([(spans[0],), (first[0],)]))
    assert (read(of, index, *spans[1:]) == x[(*index, *spans[1:])]).all()


@pytest.mark.parametrize("order", "CF")
def test_rows_are_read_past_the_map(order, tmp_path, monkeypatch, limits):
    x = mapped(tmp_path / "x", (40, 30), order=order, offset=4219)
    x = x[5:, :] if order == "C" else x[:, 5:]
    of, count = source("a", x), noted(monkeypatch, os, "preadv")
    assert of.turned == (order == "F")
    assert (read(of, (), slice(0, x.shape[0]), slice(0, x.shape[1])) == x).all()
    assert len(count) == 1
    assert (read(of, (), slice(1, 5), slice(1, 5)) == x[1:5, 1:5]).all()
    assert len(count) == 1, "short pieces come from the map"
    limits(read=1)
    assert (read(of, (), slice(1, 5), slice(1, 5)) == x[1:5, 1:5]).all()
    assert len(count) == 5


@pytest.mark.parametrize("change", ["deleted", "replaced", "private"])
def test_what_the_name_does_not_show_is_read_from_the_map(change, tmp_path):
    path = tmp_path / "x"
    x = mapped(path, (4, 6), mode="c" if change == "private" else "r+")
    if change == "private":
        x[0] = 77
    else:
        path.unlink()
    if change == "replaced":
        path.write_bytes(bytes(96))
    of = source("a", x)
    assert (read(of, (), slice(0, 4), slice(0, 6)) == x).all()
    assert not sink(x, x.shape, x.dtype).persistent


@pytest.mark.parametrize("rows", [slice(0, 400), slice(300, 400)])
def test_a_file_cut_in_mid_run_is_an_error(rows, tmp_path):
    x = mapped(tmp_path / "x", (400, 30))
    of, to = source("a", x), sink(x, x.shape, x.dtype)
    os.truncate(tmp_path / "x", 20000)
    for columns in (slice(0, 30), slice(1, 3)):
        with pytest.raises(StorageError, match=rf"a: rows {rows.start}:400, columns .*cut after"):
            read(of, (), rows, columns)
    with pytest.raises(StorageError, match=r"out: rows 300:400.*cut after"):
        write(to, np.zeros((100, 30), "f4"), slice(300, 400), slice(0, 30))
    assert (read(of, (), slice(0, 9), slice(0, 30)) == numbers((400, 30))[:9]).all()
    for make in (lambda: source("a", x), lambda: sink(x, x.shape, x.dtype)):
        with pytest.raises(StorageError, match="cut after"):
            make()


def test_a_map_that_is_closed_is_named(tmp_path):
    x = mapped(tmp_path / "x", (4, 4))
    x._mmap.close()
    for name in "ab":
        given = {"a": numbers((4, 4)), "b": numbers((4, 4))} | {name: x}
        with pytest.raises(StorageError, match=rf"^{name}: .*closed"):
            pyclmm.matmul(given["a"], given["b"], memory_limit="1 MiB")


def test_a_sparse_file_gets_its_blocks_first(tmp_path):
    x = np.memmap(tmp_path / "x", "f4", "w+", shape=(1000, 1000))
    sink(x, x.shape, x.dtype)
    assert os.stat(tmp_path / "x").st_blocks * 512 >= x.nbytes
    x = np.memmap(tmp_path / "y", "f4", "w+", shape=(1000, 1000))
    full = failing(os, "posix_fallocate", OSError(errno.ENOSPC, "No space left on device"), library="")
    with full, pytest.raises(StorageError, match=r"out: .*No space left") as caught:
        sink(x, x.shape, x.dtype)
    assert caught.value.errno == errno.ENOSPC


def gemm_with(name, x):
    """A product of 4 x 4 matrices, of which *x* is the operand of that name."""
    given = {"a": numbers((4, 4)), "b": numbers((4, 4)), "c": None} | {name: x}
    keywords = {"beta": 1.0} if name == "c" else {name: given.pop(name)} if name in ("bias", "out") else {}
    return pyclmm.gemm(*given.values(), **keywords)


@pytest.mark.parametrize("name", ["a", "b", "c", "bias", "out"])
def test_a_product_names_what_is_in_a_closed_file(name, tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        closed = file.create_dataset("x", data=numbers((4, 4)))
    with pytest.raises(StorageError, match=rf"^{name} is an HDF5 dataset whose file is closed"):
        gemm_with(name, closed)


@pytest.mark.parametrize("name", ["a", "b", "c", "bias", "out"])
@pytest.mark.parametrize("how", ["removed", "another working directory"])
def test_a_product_names_a_zarr_array_that_is_no_longer_there(name, how, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    zarr.open_array("x", mode="w", shape=(4, 4), chunks=(4, 4), dtype="f4")[...] = numbers((4, 4))
    gone = zarr.open_array("x", mode="r+")
    if how == "removed":
        shutil.rmtree("x")
    else:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir("elsewhere")
    with pytest.raises(StorageError, match=rf"^{name} is the Zarr array .*x.* no longer there"):
        gemm_with(name, gone)


class Keeping:
    """It writes by and by, and copies nothing."""

    def __init__(self, shape, dtype):
        self.shape, self.dtype, self.written = shape, np.dtype(dtype), {}

    def __setitem__(self, where, value):
        self.written[str(where)] = where, value

    def __getitem__(self, _):
        array = np.zeros(self.shape, self.dtype)
        for where, value in self.written.values():
            array[where] = value
        return array


@pytest.mark.usefixtures("lane", "small_tiles")
@pytest.mark.parametrize("kind", ["zarr", "of a user"])
def test_an_array_that_keeps_what_it_is_given_gets_memory_of_its_own(kind):
    a, b = numbers((120, 20)), numbers((20, 96))
    out = Keeping((120, 96), "f4")
    if kind == "zarr":
        out = zarr.create_array({}, shape=out.shape, dtype="f4", chunks=(40, 32), compressors=None)
    assert np.array_equal(pyclmm.matmul(a, b, out=out)[:], a @ b)


@pytest.mark.parametrize("place", ["here", "in another thread"])
def test_a_read_of_an_array_may_multiply_another_one(place):
    """In tiles: their threads wait for no read that waits for them."""
    a, b = numbers((4, 5), "i4"), numbers((5, 5), "i4")

    class Lazy:
        def __init__(self, of):
            self.of, self.shape, self.dtype = of, of.shape, of.dtype

        def __getitem__(self, where):
            if place == "here":
                return pyclmm.matmul(self.of, b)[where]
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(pyclmm.matmul, self.of, b).result()[where]

    assert np.array_equal(pyclmm.matmul(Lazy(Lazy(Stored(a))), b), a @ b @ b @ b)


def test_a_zarr_array_whose_folder_may_not_be_read_is_named(tmp_path):
    a = zarr.create_array(tmp_path / "z", data=numbers((4, 5)))
    denied = PermissionError(errno.EACCES, "Permission denied")
    unreadable = failing(Path, "is_file", denied, library="", always=True)
    with unreadable, pytest.raises(StorageError, match=r"^a: its metadata could not be read: .*denied"):
        pyclmm.matmul(a, numbers((5, 4)))


def test_a_zarr_array_whose_folder_may_be_entered_and_not_listed_is_read(tmp_path):
    x, b = numbers((4, 5)), numbers((5, 4))
    a = zarr.create_array(tmp_path / "z", data=x)
    with failing(datasets, "open", PermissionError(errno.EACCES, "Permission denied"), "os") as asked:
        assert np.array_equal(pyclmm.matmul(a, b), x @ b)
    assert asked.calls


def test_other_products_refuse_what_is_in_a_closed_file(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        closed = file.create_dataset("x", data=numbers((4, 64)))
    q = pyclmm.quantize(numbers((3, 64)))
    calls = (
        lambda: pyclmm.matmul_many([(closed, numbers((64, 4)))]),
        lambda: pyclmm.ragged_matmul(closed, numbers((1, 64, 4)), [4]),
        lambda: pyclmm.matmul(closed, q.T),
        lambda: pyclmm.linalg.einsum("mk,nk->mn", closed, q),
    )
    for call in calls:
        words = r"(a|operands\[0\]) is a Dataset: .*; pass a NumPy array"
        with pytest.raises(pyclmm.DTypeError, match=words):
            call()


def test_what_no_product_in_tiles_takes_is_refused_with_what_would_do():
    a, b = Stored(numbers((4, 5))), numbers((1, 5, 4))
    with pytest.raises(ArgumentError, match=r"group_sizes is .* or read a first, a\[\.\.\.\]$"):
        pyclmm.ragged_matmul(a, b, [4])
    with pytest.raises(DTypeError, match=r"^out is a Stored; pass a NumPy array or"):  # a copy would be lost
        pyclmm.linalg.dot(numbers((4, 5)), b[0], out=Stored(numbers((4, 4))))


def test_a_bias_that_cannot_be_read_is_named():
    class Broken(Stored):
        def __getitem__(self, _):
            raise ValueError("no such disk")

    a, b, bias = numbers((4, 5)), numbers((5, 4)), numbers((4,))
    np.testing.assert_allclose(pyclmm.gemm(a, b, bias=Stored(bias)), a @ b + bias, rtol=1e-5)
    with pytest.raises(StorageError, match=r"bias: its values could not be read: .*no such disk"):
        pyclmm.gemm(a, b, bias=Broken(bias))


def test_what_cannot_be_an_operand_or_out(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = numbers((4, 5))
        file["s"] = np.array([[b"ab"]])
        file["v"] = np.zeros((2, 2), [("re", "f4"), ("im", "f4")])
        file.create_dataset("o", (2, 2), h5py.string_dtype())
        for name in "svo":
            with pytest.raises(DTypeError, match="b has dtype"):
                source("b", file[name])
    with h5py.File(tmp_path / "x.h5", "r") as file, pytest.raises(ArgumentError, match="out is read-only"):
        sink(file["x"], (4, 5), np.dtype("f4"))
    with pytest.raises(ShapeError, match=r"\(4, 5\).*\(5, 4\)"):
        sink(numbers((4, 5)), (5, 4), np.dtype("f4"))
    with pytest.raises(DTypeError, match="same_kind"):
        sink(np.zeros((4, 5), "i4"), (4, 5), np.dtype("f4"))
    words = r"^out .*'same_kind', the only one for a dataset; pass a NumPy array"
    with pytest.raises(DTypeError, match=words):
        pyclmm.matmul(numbers((4, 5)), numbers((5, 4)), out=Stored(np.zeros((4, 4), "i4")), casting="unsafe")


@pytest.mark.parametrize(
    "shape", [(None, 5), (-1, 5), (4.0, 5), ("4", 5), (10**30, 5), (1 << 60, 5)], ids=str
)
def test_a_shape_that_is_none_of_an_array_is_named(shape):
    b, odd = numbers((5, 4)), Stored(numbers((4, 5)))
    odd.shape = shape
    with pytest.raises(ShapeError, match=r"^a has shape \(.*, 5\); pass an array whose lengths"):
        pyclmm.matmul(odd, b)


@pytest.mark.parametrize(
    "chunks", [(np.inf, 4), (np.nan, 4), "ab", 7, np.ones((2, 2)), property(lambda _: 1 / 0)]
)
def test_chunks_that_are_none_of_an_array_are_ignored(chunks):
    b, odd = numbers((5, 4)), type("Odd", (Stored,), {"chunks": chunks})(numbers((4, 5)))
    assert np.array_equal(pyclmm.matmul(odd, b), numbers((4, 5)) @ b)


def test_a_group_of_arrays_is_no_sequence_of_its_names(tmp_path):
    group, file = zarr.open_group(tmp_path / "z", mode="w"), h5py.File(tmp_path / "x.h5", "w")
    np.savez(tmp_path / "x.npz", x=numbers((5, 4)))
    for x in (group, file, np.load(tmp_path / "x.npz"), {"x": numbers((5, 4))}):
        with pytest.raises(DTypeError, match=r"^b is a \w+; pass a NumPy array, such as b\[KEY\], or"):
            pyclmm.matmul(numbers((4, 5)), x)
    with pytest.raises(DTypeError, match=r"^a is a list"):
        pyclmm.matmul([group], numbers((5, 4)))


def test_tiles_that_share_zarr_chunks_lose_nothing(tmp_path):
    x = zarr.create_array(tmp_path / "z", shape=(60, 40), dtype="f4", chunks=(16, 40))
    wanted = numbers((60, 40))
    to = sink(x, x.shape, x.dtype)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda r: write(to, wanted[r : r + 3], slice(r, r + 3), slice(0, 40)), range(0, 60, 3)))
    assert (x[...] == wanted).all()
    assert source("a", x).row_step() == 16


@pytest.mark.parametrize("compressors", [None, "auto"])
def test_a_part_of_a_zarr_shard_is_read_while_another_is_written(compressors, tmp_path):
    wanted, how = numbers((64, 32)), {"dtype": "f4", "compressors": compressors}
    x = zarr.create_array(tmp_path / "z", shape=(64, 32), chunks=(8, 8), shards=(64, 32), **how)
    to = sink(x, x.shape, x.dtype)
    upper, lower = (slice(0, 32), slice(0, 32)), (slice(32, 64), slice(0, 32))
    write(to, wanted[32:], *lower)
    with ThreadPoolExecutor(1) as pool:
        # Zarr keeps no chunk of zeros, so those behind them in the shard move.
        done = pool.map(lambda i: write(to, wanted[:32] * (i % 2), *upper), range(100))
        for _ in range(100):
            assert (read(to, (), *lower) == wanted[32:]).all()
        list(done)


def test_masked_elements_are_refused():
    class Masked(Stored):
        limit = np.inf

        def __getitem__(self, where):
            return np.ma.masked_greater(super().__getitem__(where), self.limit)

    a, b, bias = numbers((4, 5)), numbers((5, 4)), numbers((4,))
    read, added = Masked(a), Masked(bias)
    want = a @ b + bias
    np.testing.assert_allclose(pyclmm.gemm(read, b, bias=added), want, rtol=1e-5)  # none is masked
    read.limit = np.sort(a, axis=None)[-2]
    with pytest.raises(StorageError, match=r"a: rows .* could not be read: .*masked.*fill them"):
        pyclmm.matmul(read, b)
    added.limit = np.sort(bias)[-2]
    with pytest.raises(StorageError, match=r"bias: its values could not be read: .*masked"):
        pyclmm.gemm(a, b, bias=added)


def test_a_slice_of_another_shape_dtype_or_an_error_is_named():
    x = Stored(numbers((6, 5)))
    of = source("b", x)
    wrong = {r"shape \(1, 5\)": np.zeros((1, 5), "f4"), "dtype float64": np.zeros((2, 5))}
    for text, made in wrong.items():
        x.array = type("Wrong", (), {"__getitem__": lambda _, where, made=made: made})()
        with pytest.raises(StorageError, match=rf"b: rows 0:2, columns 0:5 came as .*{text}"):
            read(of, (), slice(0, 2), slice(0, 5))
    x.array = {}
    with pytest.raises(StorageError, match="b: rows 0:2"):
        read(of, (), slice(0, 2), slice(0, 5))


@pytest.mark.parametrize("as_row", [True, False])
def test_one_axis(as_row, tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = numbers(7)
        for x in (file["x"], numbers(7), Stored(numbers(7))):
            of = source("a", x, as_row=as_row)
            assert of.shape == ((1, 7) if as_row else (7, 1))
            got = read(of, (), *((slice(0, 1), slice(2, 5)) if as_row else (slice(2, 5), slice(0, 1))))
            assert got.ravel().tolist() == [2, 3, 4]


def test_what_is_stored(queue, tmp_path):
    no = [np.zeros(3), pd.Series([1.0]), pd.DataFrame([[1.0]]), memoryview(b"a"), [1], "a", 1, np.float32(1)]
    no += [mapped(tmp_path / "x", (2, 2)), cla.zeros(queue, 3, "f4"), pd.Index([1]), ml_dtypes.bfloat16(1)]
    assert not any(map(is_stored, no))
    assert is_stored(Stored(np.zeros(3)))


def test_a_dataset_of_hdf5_for_which_the_disk_has_no_room_is_refused_before_the_first_tile(tmp_path):
    side = 1 << 22
    column = np.broadcast_to(np.float32(1), (side, 1))
    with h5py.File(tmp_path / "c.h5", "w") as file:
        out = file.create_dataset("c", (side, side), "f4")  # of 64 TiB, none of which is allocated
        with pytest.raises(StorageError, match=r"^out: the \d+ bytes of .*c\.h5:/c could not be reserved: "):
            pyclmm.matmul(column, column.T, out=out)


@pytest.mark.parametrize("why", ["removed", "relative to a folder that the process has left"])
def test_a_dataset_of_hdf5_whose_file_is_not_found_by_its_name_is_written(why, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with h5py.File("c.h5", "w") as file:
        out = file.create_dataset("c", (3, 5), "f4")
        if why == "removed":
            os.unlink("c.h5")
        else:
            (tmp_path / "below").mkdir()
            monkeypatch.chdir(tmp_path / "below")
        pyclmm.matmul(numbers((3, 4)), numbers((4, 5)), out=out)
        np.testing.assert_array_equal(out[...], numbers((3, 4)) @ numbers((4, 5)))
