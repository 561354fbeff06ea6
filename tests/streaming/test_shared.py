"""What shares memory or bytes of a file with ``out``: the product is NumPy's, in tiles as without."""

import ctypes
import mmap
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import pyclmm
from pyclmm.errors import ArgumentError
from pyclmm.execution.operands import collect, signature
from pyclmm.execution.options import Options
from pyclmm.opencl import mappings
from pyclmm.streaming.operands import Given
from tests.support.optional import optional

h5py, zarr = optional("h5py"), optional("zarr")

N = 40
LIMITS = pytest.mark.parametrize("limit", [None, "3 KiB"])


def matrix(seed):
    return np.random.default_rng(seed).integers(-3, 4, (N, N)).astype(np.float32)


def check(limit, out, **shared):
    """gemm with one operand that shares memory with *out*, against NumPy on copies."""
    given = {"a": matrix(1), "b": matrix(2)} | shared
    plain = {name: np.array(x[...]) for name, x in given.items()}
    want = plain["a"] @ plain["b"] + plain.get("c", 0) + plain.get("bias", 0)
    c = [given["c"]] if "c" in given else []
    keywords = {} if limit is None else {"memory_limit": limit}
    got = pyclmm.gemm(
        given["a"], given["b"], *c, beta=1.0 if c else None, bias=given.get("bias"), out=out, **keywords
    )
    assert got is out
    assert np.array_equal(out[...], want)


VIEWS = {
    "bias is a row": lambda o: {"bias": o[0]},
    "bias is a row from its end": lambda o: {"bias": o[3, ::-1]},
    "bias is a column": lambda o: {"bias": o[:N, 3:4]},
    "a begins later": lambda o: {"a": o[5 : N + 5]},
    "b is the transpose": lambda o: {"b": o[:N].T},
    "c is the transpose": lambda o: {"c": o[:N].T},
    "c begins later": lambda o: {"c": o[1 : N + 1]},
    "c is another view of the same": lambda o: {"c": o[:N]},
}


@LIMITS
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views(view, limit):
    memory = np.concatenate([matrix(3), matrix(4)])
    check(limit, memory[:N], **view(memory))


@LIMITS
def test_a_result_that_overlaps_itself_is_written_in_numpys_order(limit):
    outs = [
        np.lib.stride_tricks.as_strided(np.zeros(N * N, np.float32), (N, N), (4 * (N - 1), 4))
        for _ in range(2)
    ]
    np.copyto(outs[0], matrix(1) @ matrix(2))
    pyclmm.matmul(matrix(1), matrix(2), out=outs[1], **({} if limit is None else {"memory_limit": limit}))
    assert np.array_equal(*outs)


SHOWN = {
    "a": lambda x: x[:N], "b": lambda x: x[2 : N + 2], "c": lambda x: x[1 : N + 1], "bias": lambda x: x[3],
}  # fmt: skip


class Tensor:
    """Shows the file as ``torch.from_file(shared=True)`` does: no object of Python's module owns the map."""

    def __init__(self, path):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        length = path.stat().st_size
        with path.open("r+b") as file:
            self.address = libc.mmap(
                None, length, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, file.fileno(), 0
            )
        self.path = path
        data = (self.address, False)
        self.__array_interface__ = {
            "shape": (length // 4 // N, N),
            "typestr": "<f4",
            "data": data,
            "version": 3,
        }

    def untyped_storage(self):
        return SimpleNamespace(filename=str(self.path))


def mapped_again(path, how):
    if how in ("mmap", "memoryview"):  # the latter as of multiprocessing.shared_memory
        with path.open("rb") as file:
            raw = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return np.ndarray((2 * N, N), np.float32, raw if how == "mmap" else memoryview(raw))
    if how == "another library":
        return np.asarray(Tensor(path))
    if how == "hard link":
        link = path.with_suffix(".link")
        os.link(path, link)
        path, how = link, "r"
    return np.memmap(path, np.float32, how, shape=(2 * N, N))


@LIMITS
@pytest.mark.parametrize("how", ["r", "r+", "c", "hard link", "mmap", "memoryview", "another library"])
@pytest.mark.parametrize("name", SHOWN)
def test_a_second_map_of_the_file(name, how, limit, tmp_path):
    path = tmp_path / "x"
    path.write_bytes(np.concatenate([matrix(3), matrix(4)]).tobytes())
    out = np.memmap(path, np.float32, "r+", shape=(N, N))
    check(limit, out, **{name: SHOWN[name](mapped_again(path, how))})


@LIMITS
@pytest.mark.parametrize("how", ["r", "another library"])
def test_a_result_in_a_map_of_pytorch(how, limit, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor))
    path = tmp_path / "x"
    path.write_bytes(np.concatenate([matrix(3), matrix(4)]).tobytes())
    check(limit, np.asarray(Tensor(path))[:N], b=SHOWN["b"](mapped_again(path, how)))


def test_maps_of_other_parts_or_private_pages_share_nothing(tmp_path):
    """They need no copy of the result."""
    path = tmp_path / "x"
    path.write_bytes(np.concatenate([matrix(3), matrix(4)]).tobytes())
    again = np.memmap(path, np.float32, "r", shape=(2 * N, N))
    for mode, a in (("r+", again[N:]), ("c", again[:N])):
        out = np.memmap(path, np.float32, mode, shape=(N, N))
        assert not Given.of(a, matrix(2), None, None, out, 0.0, Options()).is_in_place
        assert not signature(collect({"a": a, "out": out})).overlapping


def hdf5(tmp_path, how):
    """(the dataset x of a file, something that shows the same elements)."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"], file["other"] = matrix(3), matrix(4)
        file["y"] = file["5%"] = file["x"]
        file["soft"] = h5py.SoftLink("/x")
        start = file["x"].id.get_offset()
        shown = {"virtual": "x", "of virtual": "virtual", "of y": "y", "of 5%": "5%%", "of other": "other"}
        for name, of in shown.items():
            layout = h5py.VirtualLayout((N, N), np.float32)
            layout[:] = h5py.VirtualSource(".", of, (N, N))
            file.create_virtual_dataset(name, layout)
    if how == "hard link":
        os.link(path, tmp_path / "y.h5")
    file = h5py.File(path, "r+")
    if how == "a map of the file":
        return file["x"], np.memmap(path, np.float32, "r", start, (N, N))
    if how == "hard link":
        return file["x"], h5py.File(tmp_path / "y.h5", "r+")["x"]
    return file["x"], file[how]


VIRTUAL = ["virtual", "of virtual", "of y", "of 5%"]


@pytest.mark.parametrize("how", ["x", "y", "soft", *VIRTUAL, "hard link", "a map of the file"])
def test_an_hdf5_dataset_that_is_also_an_operand_is_refused(how, tmp_path):
    out, again = hdf5(tmp_path, how)
    for name in ("a", "c") if how in (*VIRTUAL, "a map of the file") else ("a", "b"):
        with pytest.raises(ArgumentError, match="out is a dataset that is also an operand"):
            check("3 KiB", out, **{name: again})
    assert np.array_equal(out[...], matrix(3))


def test_a_virtual_dataset_of_others_in_the_file_of_out_is_an_operand(tmp_path):
    out, other = hdf5(tmp_path, "of other")
    check("3 KiB", out, a=other)
    check("3 KiB", other, a=out)


@pytest.mark.skipif(not mappings.MAPS.exists(), reason="the system does not tell which file is open")
@pytest.mark.parametrize("how", ["virtual", "a map of the file"])
def test_a_dataset_of_a_relative_path_is_known_from_another_folder(how, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out, again = hdf5(Path(), how)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    with pytest.raises(ArgumentError, match="out is a dataset that is also an operand"):
        check("3 KiB", out, a=again)
    assert np.array_equal(out[...], matrix(3))


def test_a_view_of_h5pys_is_its_dataset(tmp_path):
    h5py = pytest.importorskip("h5py")
    out = h5py.File(tmp_path / "x.h5", "w").create_dataset("x", data=matrix(3))
    with pytest.raises(ArgumentError, match="out is a dataset that is also an operand"):
        check("3 KiB", out, b=out.astype("f8"))
    assert np.array_equal(out[...], matrix(3))


class Rows:
    """Some rows of a dataset, by a class of somebody else's."""

    def __init__(self, dataset, first):
        self._dset, self._first = dataset, first
        self.shape, self.dtype = (N, N), dataset.dtype

    def _at(self, where):
        rows, columns = (slice(0, N), slice(0, N)) if where is ... else where
        return slice(rows.start + self._first, rows.stop + self._first), columns

    def __getitem__(self, where):
        return self._dset[self._at(where)]

    def __setitem__(self, where, value):
        self._dset[self._at(where)] = value


def test_a_class_of_others_shows_what_it_likes_of_a_dataset(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        both = file.create_dataset("x", data=np.concatenate([matrix(1), matrix(2)]))
        check("3 KiB", Rows(both, N), b=Rows(both, 0))


def virtual(path, of, name="x", **how):
    """A virtual dataset in a new file."""
    layout = h5py.VirtualLayout((N, N), np.float32)
    layout[:] = h5py.VirtualSource(of, name, (N, N))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("x", layout)
    return h5py.File(path, "r", **how)["x"]


def test_a_virtual_dataset_of_out_through_a_file_that_is_open_in_another_way_is_refused(tmp_path):
    """HDF5 opens no file in two ways, of which one has locks."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"], layout = matrix(3), h5py.VirtualLayout((N, N), np.float32)
        layout[:] = h5py.VirtualSource(".", "x", (N, N))
        file.create_virtual_dataset("of x", layout)
    out = h5py.File(tmp_path / "x.h5", "r+", locking=False)["x"]
    a = virtual(tmp_path / "y.h5", tmp_path / "x.h5", "of x", locking=False)
    assert np.array_equal(a[...], matrix(3))
    with pytest.raises(ArgumentError, match="out is a dataset that is also an operand"):
        check("3 KiB", out, a=a)


@pytest.mark.parametrize("how", ["found from here", "found by the environment", "virtual of virtual"])
def test_a_virtual_dataset_of_out_in_other_files_is_refused(how, tmp_path, monkeypatch):
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    out = h5py.File(tmp_path / "here/x.h5", "w").create_dataset("x", data=matrix(3))
    if how == "virtual of virtual":
        virtual("y.h5", "x.h5").file.close()
        a = virtual("z.h5", "y.h5")
    else:
        a = virtual(tmp_path / "there/y.h5", "x.h5")
    if how == "found by the environment":
        monkeypatch.setenv("HDF5_VDS_PREFIX", str(tmp_path / "here"))
        monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError, match="out is a dataset that is also an operand"):
        check("3 KiB", out, a=a)
    assert np.array_equal(out[...], matrix(3))


@LIMITS
def test_a_map_of_the_raw_file_of_a_dataset(limit, tmp_path):
    path = tmp_path / "raw"
    path.write_bytes(matrix(3).tobytes())
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (N, N), np.float32, external=[("raw", 0, 4 * N * N)])
    a = h5py.File(tmp_path / "x.h5", "r")["x"]
    out = np.memmap(path, np.float32, "r+", shape=(N, N))
    with pytest.MonkeyPatch.context() as at:
        at.chdir(tmp_path)
        check(limit, out, a=a)


@LIMITS
def test_a_map_of_an_hdf5_file_that_has_an_operand(limit, tmp_path):
    dataset, again = hdf5(tmp_path, "a map of the file")
    out = np.memmap(tmp_path / "x.h5", np.float32, "r+", again.offset, (N, N))
    check(limit, out, a=dataset)
    check(limit, out, a=dataset.file["other"])
    check(limit, dataset.file["other"], a=again)


@pytest.mark.parametrize("how", ["again", "symbolic link", "relative path", "in a log", "without the group"])
def test_a_zarr_array_that_is_also_an_operand_is_refused(how, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    group = zarr.open_group(tmp_path / "z", mode="w")
    group.create_array("x", data=matrix(3), chunks=(16, 16))
    os.symlink(tmp_path / "z", tmp_path / "link")
    places = {"again": tmp_path / "z", "symbolic link": tmp_path / "link", "relative path": "z"}
    places["in a log"] = zarr.storage.LoggingStore(zarr.storage.LocalStore(tmp_path / "z"), "CRITICAL")
    if how in places:
        again = zarr.open_group(places[how], mode="r+")["x"]
    else:
        again = zarr.open_array(tmp_path / "z" / "x", mode="r+")
    with pytest.raises(ArgumentError, match="out is a dataset that is also an operand"):
        check("3 KiB", group["x"], a=again)
    assert np.array_equal(group["x"][...], matrix(3))


@pytest.mark.parametrize("how", ["r", "mmap", "another library", "link"])
def test_a_map_of_a_zarr_arrays_chunk_is_refused(how, tmp_path):
    shape = (2 * N, N)
    out = zarr.create_array(tmp_path / "o.zarr", shape=shape, chunks=shape, dtype="f4", compressors=None)
    before = np.concatenate([matrix(1), matrix(2)])
    out[...] = before
    [chunk] = (path for path in (tmp_path / "o.zarr/c").rglob("*") if path.is_file())
    if how == "link":
        (tmp_path / "link").symlink_to(chunk)
        chunk, how = tmp_path / "link", "r"
    a = mapped_again(chunk, how)
    with pytest.raises(ArgumentError, match="out is a dataset that is also an operand"):
        pyclmm.gemm(a, matrix(2), out=out)
    assert np.array_equal(out[...], before)
