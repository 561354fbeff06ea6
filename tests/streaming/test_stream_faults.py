"""Faults of streamed products: each names the argument, keeps what is finished, leaves the rest of out."""

from __future__ import annotations

import errno
import itertools
import os
import re
import shutil
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pyclmm
from pyclmm import (
    ArgumentError,
    CheckpointError,
    DeviceLostError,
    DTypeError,
    ShapeError,
    StorageError,
    UnsupportedError,
)
from pyclmm.opencl import mappings
from pyclmm.streaming import checkpoint, machines
from pyclmm.streaming.tiles import Blocking
from tests.support.faults import failing
from tests.support.made_up import seen_as
from tests.support.processes import python, with_this_package
from tests.support.streams import Stored, ctrl_c_at, integers

M, K, N, TILES = 200, 70, 90, 15
UNTOUCHED = 0.5  # no element of the product

pytestmark = pytest.mark.usefixtures("small_tiles")


A, B = integers(M, K), integers(K, N)
WANTED = A @ B


@pytest.fixture
def no_tile(runs):
    """Fails the test when a run begins."""
    runs.refused = AnyDevice()


class AnyDevice:
    def __contains__(self, device):
        return True

    def __getitem__(self, device):
        return AssertionError("a run has begun")


def fresh_out():
    return np.full((M, N), UNTOUCHED, "f4")


def check_out(out):
    """Each element is right or as it was."""
    assert ((out == WANTED) | (out == UNTOUCHED)).all()


def started(folder, five_tiles, out=None, a=A):
    """A run of a @ B that was interrupted after its first tile."""
    with pytest.raises(KeyboardInterrupt):
        pyclmm.matmul(a, B, out=out, checkpoint=folder, progress=ctrl_c_at(1))
    five_tiles.clear()


def finished(folder):
    """The numbers of the tiles in a journal."""
    return {int(line.split()[0]) for line in (folder / "pyclmm-journal").read_text().splitlines()[1:]}


def resumes(folder, a=A, out=None, **keywords):
    """Whether a run takes up what is in *folder* and ends right."""
    before, seen = finished(folder), []
    got = pyclmm.matmul(a, B, out=out, checkpoint=folder, progress=seen.append, **keywords)
    assert np.array_equal(got[:], WANTED)
    assert not folder.exists()
    assert [each.resumed for each in seen] == [len(before)] * (TILES - len(before))
    return True


# ---- checkpoints


OTHERS: dict[str, Any] = {
    "content": (lambda: (A + (np.arange(M) == 5)[:, None], B), {}, r"operands\.a\.digest"),
    "shape": (lambda: (A[:, :9], B[:9]), {}, r"operands\.a"),
    "taller": (lambda: (np.ones((4000, K), "f4"), B), {}, r"shape was \[200, 90\]"),
    "dtype": (lambda: (A.astype("f8"), B), {}, "dtype was 'float32' and is 'float64'"),
    "stack": (lambda: (A[None], B), {}, r"shape was .* is \[1, 200, 90\]"),
    "out": (lambda: (A, B), {"alpha": 2.0}, r"alpha was '1\.0' and is '2\.0'"),
    "beta": (lambda: (A, B), {"c": True, "beta": 2.0}, r"beta was '0\.0' and is '2\.0'"),
    "activation": (lambda: (A, B), {"activation": "relu"}, "activation was 'none' and is 'relu'"),
    "reproducible": (lambda: (A, B), {"reproducible": True}, "reproducible was False and is True"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_checkpoint_of_another_product_is_refused_before_the_first_tile(
    name, tmp_path, five_tiles, monkeypatch, request
):
    started(tmp_path / "c", five_tiles)
    request.getfixturevalue("no_tile")
    operands, keywords, words = OTHERS[name]
    keywords = dict(keywords)
    given = (*operands(), WANTED) if keywords.pop("c", False) else operands()
    before = finished(tmp_path / "c")
    monkeypatch.setattr("pyclmm.streaming.tiles.tiles", None)  # small tiles of a huge product fill the memory
    with pytest.raises(CheckpointError, match=rf"checkpoint .*another product: {words}.*folder"):
        pyclmm.gemm(*given, checkpoint=tmp_path / "c", **keywords)
    assert finished(tmp_path / "c") == before


# (the arguments that a run begins with, others that mean the same)
ALIKE: dict[str, Any] = {
    "alpha": ({"alpha": 2}, {"alpha": np.float64(2)}),
    "alpha of a complex product": ({"alpha": 2, "dtype": "c8"}, {"alpha": 2 + 0j, "dtype": "c8"}),
    "a long alpha": ({"alpha": 7**6000, "dtype": "i4", "casting": "unsafe"},) * 2,
    "beta": ({"beta": 0}, {}),
    "activation": ({"activation": "none"}, {}),
}


@pytest.mark.parametrize("name", ALIKE)
def test_a_checkpoint_goes_on_with_equal_arguments(name, tmp_path, five_tiles):
    first, then = ALIKE[name]
    with pytest.raises(KeyboardInterrupt):
        pyclmm.gemm(A, B, checkpoint=tmp_path / "c", progress=ctrl_c_at(1), **first)
    five_tiles.clear()
    seen = []
    got = pyclmm.gemm(A, B, checkpoint=tmp_path / "c", progress=seen.append, **then)
    assert seen[0].resumed
    assert np.array_equal(got, pyclmm.gemm(A, B, **then))


def test_after_a_refusal_the_right_product_goes_on(tmp_path, five_tiles):
    started(tmp_path / "c", five_tiles)
    with pytest.raises(CheckpointError, match="another product"):
        pyclmm.matmul(A, -B, checkpoint=tmp_path / "c")
    assert resumes(tmp_path / "c")


@pytest.mark.parametrize("name", ["pyclmm-journal", "pyclmm-tile-0"])
def test_a_damaged_or_half_written_file_is_refused_before_the_first_tile(name, tmp_path, five_tiles, request):
    started(tmp_path / "c", five_tiles)
    request.getfixturevalue("no_tile")
    path, out = tmp_path / "c" / name, fresh_out()
    content = path.read_bytes()
    damaged = [b"", content[:30] + b"\n", content[:30] + b"???" + content[33:]]
    damaged.append(content[:-5] + (b"1" if content[-5:-4] == b"0" else b"0") + content[-4:])
    for each in damaged:
        path.write_bytes(each)
        with pytest.raises(CheckpointError, match=rf"checkpoint: .*{name} is damaged: .*delete the folder"):
            pyclmm.matmul(A, B, out=out, checkpoint=tmp_path / "c")
    path.unlink()
    with pytest.raises(CheckpointError, match=rf"checkpoint: .*{name} is damaged: .*delete the folder"):
        pyclmm.matmul(A, B, out=out, checkpoint=tmp_path / "c")
    check_out(out)


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        (5, DTypeError, "checkpoint is 5; pass the path of a folder"),
        ("", ArgumentError, "checkpoint is ''; pass the path of a folder"),
        ("a\0b", ArgumentError, "checkpoint is .*; pass the path of a folder"),
        ("file", CheckpointError, "checkpoint .*file is a file, or lies in one; name a folder"),
        ("file/c", CheckpointError, "checkpoint .*file/c is a file, or lies in one; name a folder"),
        ("link", CheckpointError, "checkpoint .*link is a link that leads nowhere, or lies in one; name a"),
        ("link/x", CheckpointError, "checkpoint .*link/x is a link that leads nowhere, or lies in one; name"),
        ("x" * 300, CheckpointError, "checkpoint folder .*; name another"),
        ("others", CheckpointError, r"checkpoint folder .* holds other files \(mine\)"),
    ],
    ids=["number", "empty", "nul", "file", "below a file", "link", "below a link", "long", "others"],
)
@pytest.mark.usefixtures("no_tile")
def test_a_folder_that_cannot_be_one_is_named(path, error, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "others").mkdir()
    (tmp_path / "others/mine").touch()
    out = fresh_out()
    with pytest.raises(error, match=words):
        pyclmm.matmul(A, B, out=out, checkpoint=path)
    assert (out == UNTOUCHED).all()


@pytest.mark.usefixtures("no_tile")
def test_a_folder_that_may_not_be_written_is_named(tmp_path, monkeypatch):
    real = os.open

    def refused(path, flags, *others, **named):
        if flags & os.O_CREAT and str(tmp_path) in os.fspath(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, flags, *others, **named)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(CheckpointError, match=r"checkpoint folder .* cannot be written: .*denied.*another"):
        pyclmm.matmul(A, B, checkpoint=tmp_path / "c")


def test_the_tiles_of_a_checkpoint_are_kept_whatever_would_be_best(tmp_path, five_tiles, blocks):
    started(tmp_path / "c", five_tiles)
    blocks(lambda product: Blocking(1, 64, 64, 70, 1, 2, 2, 2))
    assert resumes(tmp_path / "c")


def test_a_memory_limit_below_the_tiles_of_the_checkpoint_is_refused(tmp_path, five_tiles, monkeypatch):
    monkeypatch.setattr(machines, "_link", lambda *_: (1e9, 1e9))  # as on a device with its own memory
    started(tmp_path / "c", five_tiles)
    words = r"memory_limit is 9.*checkpoint need .*; pass as much, or another"
    with pytest.raises(ArgumentError, match=words):
        pyclmm.matmul(A, B, checkpoint=tmp_path / "c", memory_limit="9 KiB")
    assert resumes(tmp_path / "c")


def test_a_file_system_without_locks_is_said_to_be_so(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    without = failing(fcntl, "flock", OSError(errno.ENOLCK, "no locks here"), library="", always=True)
    with without, pytest.raises(CheckpointError, match=r"cannot be written: .*no locks here"):
        pyclmm.matmul(A, B, checkpoint=tmp_path / "c")
    assert pyclmm.matmul(A, B, checkpoint=tmp_path / "c").tobytes() == WANTED.tobytes()


def test_a_lock_that_cannot_be_removed_is_released(tmp_path):
    interrupted = failing(Path, "unlink", KeyboardInterrupt(), library="", always=True)
    with interrupted, pytest.raises(KeyboardInterrupt):
        pyclmm.matmul(A, B, checkpoint=tmp_path / "c")
    assert pyclmm.matmul(A, B, checkpoint=tmp_path / "c").tobytes() == WANTED.tobytes()


def test_a_full_disk_under_the_checkpoint_keeps_what_is_finished(tmp_path):
    full, out = OSError(errno.ENOSPC, "No space left on device"), fresh_out()
    said = r"checkpoint .*: tile \d+ could not be kept: .*No sp"
    fault = failing(checkpoint, "write_whole", full, library="", at=5, always=True)
    with fault, pytest.raises(StorageError, match=said) as caught:
        pyclmm.matmul(Stored(A), B, out=out, checkpoint=tmp_path / "c")
    assert caught.value.errno == errno.ENOSPC
    check_out(out)
    assert len(finished(tmp_path / "c")) == 4
    got = pyclmm.matmul(Stored(A), B, checkpoint=tmp_path / "c")
    assert np.array_equal(got, WANTED)


# ---- files and datasets


@pytest.mark.parametrize("name", ["a", "b", "out"])
@pytest.mark.usefixtures("no_tile")
def test_a_file_shorter_than_its_shape_is_named_before_the_first_tile(name, tmp_path):
    given = {"a": A, "b": B, "out": fresh_out()}
    whole = given[name]
    given[name] = np.memmap(tmp_path / "x", "f4", "w+", shape=whole.shape)
    given[name][:] = whole
    given[name].flush()
    os.truncate(tmp_path / "x", whole.nbytes // 2)
    with pytest.raises(StorageError, match=rf"{name}: .*cut after it was opened"):
        pyclmm.matmul(given["a"], given["b"], out=given["out"], checkpoint=tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_a_bias_in_a_file_that_is_cut_ends_no_process(tmp_path):
    """It is read before the first tile. In a process of its own: a mapped read is a SIGBUS."""
    python("-c", CUT_BIAS, check=True, env=with_this_package(), cwd=tmp_path, timeout=120)


CUT_BIAS = """
import os
import numpy as np
import pyclmm

def cut(_):
    os.truncate("bias", 0)

a, b = np.ones((60, 10), "f4"), np.ones((10, 9000), "f4")
bias = np.memmap("bias", "f4", "w+", shape=9000)
assert (pyclmm.gemm(a, b, bias=bias, memory_limit="100 KB", progress=cut) == 10).all()
try:
    pyclmm.gemm(a, b, bias=bias, memory_limit="100 KB")
except pyclmm.StorageError as error:
    assert "bias: " in str(error) and "cut after it was opened" in str(error), error
else:
    raise AssertionError
"""


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", ["a", "out"])
@pytest.mark.parametrize("how", ["removed", "replaced", "written anew"])
def test_a_zarr_array_removed_in_mid_run_is_named(how, name, zarr_format, tmp_path, runs):
    """Zarr reads what is missing as zeros, and makes the folder anew for what it writes."""
    zarr = pytest.importorskip("zarr", minversion="3")
    arrays = {
        each: zarr.create_array(tmp_path / each, data=x, chunks=(16, 16), zarr_format=zarr_format)
        for each, x in (("a", A), ("out", fresh_out()))
    }

    begun, removed = [], threading.Event()

    def wait(state):
        begun.append(state)
        assert len(begun) == 1 or removed.wait(60), "all tiles but the first find it removed"

    def remove(_):
        if removed.is_set():
            return
        if how == "written anew":
            again = {"shape": A.shape, "dtype": "f4", "chunks": (16, 16), "zarr_format": zarr_format}
            zarr.create_array(tmp_path / name, overwrite=True, **again)
        else:
            copy = shutil.copytree(tmp_path / name, tmp_path / "copy")
            shutil.rmtree(tmp_path / name)
            if how == "replaced":
                os.rename(copy, tmp_path / name)
        removed.set()

    runs.before_tile = wait
    with pytest.raises(StorageError, match=rf"^{name}: rows .*somebody has .*{name}.* meanwhile"):
        pyclmm.matmul(arrays["a"], B, out=arrays["out"], progress=remove)


def test_a_zarr_array_resized_in_mid_run_is_named(runs):
    """Zarr drops what is written behind its end."""
    zarr = pytest.importorskip("zarr", minversion="3")
    out = zarr.create_array(zarr.storage.MemoryStore(), data=fresh_out(), chunks=(16, 16))
    begun, resized = [], threading.Event()

    def wait(state):
        begun.append(state)
        assert len(begun) == 1 or resized.wait(60), "all tiles but the first find it resized"

    def resize(_):
        out.resize((16, 16))
        resized.set()

    runs.before_tile = wait
    with pytest.raises(StorageError, match=r"^out: rows .* be written: its shape became \(16, 16\)"):
        pyclmm.matmul(A, B, out=out, progress=resize)


@pytest.mark.filterwarnings("ignore:fs .* was not created with:UserWarning")
def test_a_local_folder_of_the_name_of_a_remote_zarr_array_is_another(tmp_path, monkeypatch):
    zarr, fsspec = pytest.importorskip("zarr", minversion="3"), pytest.importorskip("fsspec")
    wrapped = pytest.importorskip("fsspec.implementations.asyn_wrapper").AsyncFileSystemWrapper
    remote = zarr.storage.FsspecStore(wrapped(fsspec.filesystem("memory")), path="bucket/a")
    a = zarr.create_array(remote, shape=A.shape, chunks=(16, 16), dtype="f4", overwrite=True)
    a[...] = A
    monkeypatch.chdir(tmp_path)
    zarr.create_array("bucket/a", shape=A.shape, chunks=(16, 16), dtype="f4")
    got = pyclmm.matmul(a, B, progress=lambda _: shutil.rmtree("bucket", ignore_errors=True))
    assert got.tobytes() == WANTED.tobytes()


@pytest.mark.parametrize("name", ["a", "out"])
def test_a_dataset_closed_in_mid_run_is_named_and_the_next_run_goes_on(name, tmp_path, runs):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"] = A
    with h5py.File(tmp_path / "out.h5", "w") as file:
        file.create_dataset("out", data=fresh_out(), chunks=(16, 16))
    files = {"a": h5py.File(tmp_path / "a.h5", "r"), "out": h5py.File(tmp_path / "out.h5", "r+")}
    begun, closed = [], threading.Event()

    def wait(state):
        begun.append(state)
        assert len(begun) == 1 or closed.wait(60), "all tiles but the first find the file closed"

    def close(_):
        files[name].close()
        closed.set()

    runs.before_tile = wait
    operand, out = files["a"]["a"], files["out"]["out"]
    with pytest.raises(StorageError, match=rf"^{name}: .*closed"):
        pyclmm.matmul(operand, B, out=out, checkpoint=tmp_path / "c", progress=close)
    for file in files.values():
        file.close()
    assert finished(tmp_path / "c") == {0}
    with h5py.File(tmp_path / "out.h5", "r+") as file, h5py.File(tmp_path / "a.h5", "r") as of:
        check_out(file["out"][:])
        assert resumes(tmp_path / "c", of["a"], file["out"])


@pytest.mark.parametrize("name", ["a", "out"])
def test_a_function_that_h5py_calls_is_told_that_it_cannot_wait_for_other_threads(name, tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "all.h5", "w") as file:
        file["x"] = A if name == "a" else fresh_out()

        def multiply(_, x):
            return pyclmm.matmul(*((x, B) if name == "a" else (A, B)), out=x if name == "out" else None)

        with pytest.raises(ArgumentError, match=f"^{name} would be .* multiply afterwards"):
            file.visititems(multiply)
        assert multiply("x", file["x"])[:].tobytes() == WANTED.tobytes()


@pytest.mark.skipif(not mappings.MAPS.exists(), reason="the system does not tell which file is open")
def test_an_hdf5_file_of_a_relative_path_goes_on_in_another_folder(tmp_path, five_tiles, monkeypatch):
    h5py = pytest.importorskip("h5py")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with h5py.File("out.h5", "w") as file:
        out = file.create_dataset("out", data=fresh_out())
        monkeypatch.chdir("elsewhere")
        started(tmp_path / "c", five_tiles, out)
        monkeypatch.chdir(tmp_path)
        assert resumes(tmp_path / "c", A, out)


def in_file(kind, folder, mode, **given):
    """The arrays a and out of a file or group in *folder*, which is made with what is *given*."""
    if kind == "npy":
        for name, x in given.items():
            np.save(folder / f"{name}.npy", x)
        return [np.load(f"{folder}/{name}.npy", mmap_mode="r+") for name in ("a", "out")]
    if kind == "hdf5":
        file = pytest.importorskip("h5py").File(folder / "all.h5", mode)
        found = [file.create_dataset(name, data=x) for name, x in given.items()]
    else:
        made = {"zarr_format": int(kind[-1])} if given else {}
        file = pytest.importorskip("zarr", minversion="3").open_group(folder / "all", mode=mode, **made)
        found = [file.create_array(name, data=x, chunks=(16, 16)) for name, x in given.items()]
    return found or [file["a"], file["out"]]


@pytest.mark.parametrize("kind", ["npy", "hdf5", "zarr 2", "zarr 3"])
def test_files_go_on_by_whatever_path_they_are_opened(kind, tmp_path, five_tiles, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    a, out = in_file(kind, Path("real"), "w", a=A, out=fresh_out())
    started(tmp_path / "c", five_tiles, out, a)
    if kind == "hdf5":
        out.file.close()
    a, out = in_file(kind, tmp_path / "link", "r+")
    assert resumes(tmp_path / "c", a, out)


def test_a_full_disk_under_out_is_named_and_what_is_finished_stays():
    out = Stored(fresh_out(), writes=4)
    with pytest.raises(StorageError, match=r"^out: rows \d+:\d+, columns .* written: .*No space") as caught:
        pyclmm.matmul(A, B, out=out)
    assert caught.value.errno == errno.ENOSPC
    check_out(out.array)
    written = [
        (out.array[r : r + 40, c : c + 32] == UNTOUCHED).all() for r in range(0, M, 40) for c in (0, 32, 64)
    ]
    assert written.count(False) == 4
    out = Stored(out.array)
    assert np.array_equal(pyclmm.matmul(A, B, out=out).array, WANTED)


LIMITED = """
import resource, signal, sys
import numpy as np, pyclmm
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = sys.argv[1]
a = np.ones((2000, 3), "f4")
pyclmm.matmul(a, a.T, memory_limit="1 GiB")  # the limit is for no compiler
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    pyclmm.matmul(a, a.T, checkpoint=folder + "/c")
except pyclmm.StorageError as error:
    print("named", error.errno, error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on this system")
def test_a_limit_on_the_length_of_files_is_an_error_of_the_checkpoint(tmp_path):
    done = python("-c", LIMITED, tmp_path, env=with_this_package())
    assert done.stdout.startswith(f"named {errno.EFBIG} checkpoint "), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (
            lambda path: np.memmap(path, "f4", "r", shape=(M, N)),
            ArgumentError,
            "out is a memmap of mode 'r', which is read-only",
        ),
        (lambda path: np.memmap(path, "f4", "r+", shape=(N, M)), ShapeError, r"out has shape \(90, 200\)"),
        (lambda path: np.memmap(path, "i4", "r+", shape=(M, N)), DTypeError, "same_kind"),
        (lambda path: Stored(np.zeros((M, N + 1), "f4")), ShapeError, r"out has shape \(200, 91\)"),
        (lambda path: Stored(np.zeros((M, N), "i4")), DTypeError, "same_kind"),
        (lambda path: Stored(np.zeros((M, N), "U3")), DTypeError, "out has dtype"),
    ],
    ids=["read-only", "shape", "dtype", "dataset's shape", "dataset's dtype", "text"],
)
@pytest.mark.usefixtures("no_tile")
def test_an_out_that_cannot_take_the_product_is_refused_before_the_first_tile(make, error, words, tmp_path):
    (tmp_path / "x").write_bytes(bytes(4 * M * N))
    out = make(tmp_path / "x")
    with pytest.raises(error, match=words):
        pyclmm.matmul(A, B, out=out, checkpoint=tmp_path / "c", memory_limit="1 GiB")
    assert (tmp_path / "x").read_bytes() == bytes(4 * M * N)
    assert not (tmp_path / "c").exists()


# ---- devices


@pytest.fixture
def narrow(two_devices, monkeypatch):
    """The first of them, without float64."""
    seen_as(monkeypatch, two_devices[0], name="narrow", has_fp64=False)
    return two_devices[0]


@pytest.mark.usefixtures("no_tile")
def test_a_device_without_the_dtype_is_named_before_the_first_tile(two_devices, narrow):
    a, b = A.astype("f8"), B.astype("f8")
    for used in (two_devices, two_devices[::-1], [narrow]):
        words = r"devices: float64 needs .* device 'narrow' .*; leave it out"
        with pytest.raises(UnsupportedError, match=words):
            pyclmm.matmul(a, b, devices=used)
    with pytest.raises(UnsupportedError, match=r"device: float64 needs .* device 'narrow' .*; name another"):
        pyclmm.matmul(a, b, device=narrow, memory_limit="1 GiB")


@pytest.mark.usefixtures("narrow")
def test_all_devices_are_those_that_know_the_dtype(two_devices, runs, monkeypatch):
    records = [SimpleNamespace(kind="gpu", device=device) for device in two_devices]
    monkeypatch.setattr(machines, "all_devices", lambda: records)
    assert np.array_equal(pyclmm.matmul(A.astype("f8"), B, devices="all"), WANTED)
    assert runs.devices == [two_devices[1]]


@pytest.mark.parametrize("kind", ["numpy", "memmap"])
@pytest.mark.filterwarnings("ignore::pyclmm.DeviceWarning")
def test_after_all_devices_are_lost_a_second_run_goes_on(kind, two_devices, runs, tmp_path):
    out = None if kind == "numpy" else np.memmap(tmp_path / "out", "f4", "w+", shape=(M, N))
    if out is not None:
        out[:] = UNTOUCHED
    counts = [itertools.count(), itertools.count()]

    def stop(step, number):
        if step == "multiply" and next(counts[number]) == 3 * 3:  # after three tiles of three chunks
            raise DeviceLostError("it stopped")

    runs.before = stop
    with pytest.raises(DeviceLostError, match="it stopped"):
        pyclmm.matmul(A, B, out=out, devices=two_devices, checkpoint=tmp_path / "c")
    runs.before = lambda step, number: None
    assert 0 < len(finished(tmp_path / "c")) <= 6
    if out is not None:
        check_out(out)
    assert resumes(tmp_path / "c", out=out, devices=two_devices)


@pytest.mark.parametrize("step", ["begin", "multiply", "deliver"])
def test_an_error_after_the_last_tile_was_handed_out_ends_the_run(step, runs):
    begun, asked, woken = [], threading.Event(), []
    watchdog = threading.Timer(20, lambda: (woken.append(1), begun[0].stop()))
    watchdog.daemon = True

    def ask(state):
        begun.append(state)
        if len(begun) == 2:  # there is one tile, and the worker asks for another
            watchdog.start()
            asked.set()

    def stop(at, number):
        if at == step:
            assert asked.wait(60)
            raise DeviceLostError("it stopped")

    runs.before_tile, runs.before = ask, stop
    with pytest.raises(DeviceLostError, match="it stopped"):
        pyclmm.matmul(A[:40], B[:, :32], memory_limit="1 GiB")
    watchdog.cancel()
    assert not woken, "the run would have waited forever"


PRODUCT = """
import numpy as np, pyclmm
x = np.ones((50, 50), "f4")
assert (pyclmm.matmul(x, x, memory_limit="10 kB") == 50).all()
"""


def test_a_warning_of_another_thread_names_the_line_of_the_call(tmp_path):
    environment = with_this_package(PYCLMM_CACHE_DIR=str(tmp_path), PYCLMM_SELFCHECK="on")
    assert python("-c", PRODUCT, env=environment).returncode == 0
    verdicts = list((tmp_path / "selfcheck").glob("*.json"))
    assert verdicts
    for verdict in verdicts:
        verdict.write_text("")
    ended = python("-c", PRODUCT, env=environment)
    assert ended.returncode == 0
    assert re.search("^<string>:4: CacheWarning: cache file .* was set aside", ended.stderr, re.M)
    assert "thread.py" not in ended.stderr
