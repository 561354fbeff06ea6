"""A resumed product believes nothing: not that out holds its tiles, nor that operands are as they were."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import time
import warnings
import zlib
from pathlib import Path

import numpy as np
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm import CheckpointError, CheckpointWarning, DTypeError
from pyclmm.streaming import journal, storage, tiles
from pyclmm.streaming.fingerprints import WrittenTile, fingerprint, tile_digest
from pyclmm.streaming.storage import DatasetStorage, sink, source
from pyclmm.streaming.tiles import Region
from tests.support.faults import noted
from tests.support.optional import optional
from tests.support.processes import as_user, python, with_this_package
from tests.support.streams import ctrl_c_at

h5py, numcodecs, zarr = optional("h5py"), optional("numcodecs"), optional("zarr")

M, K, N, TILES = 200, 70, 90, 15  # tiles of 40 x 32
RNG = np.random.default_rng(37)
A, B = (RNG.integers(-4, 5, shape).astype("f4") for shape in ((M, K), (K, N)))
WANTED = A @ B  # exact
EVERY = tiles.tiles(tiles.TiledProduct(M, N, K, 4, 4, 4, 4), tiles.Blocking(1, 40, 32, 24, 2, 3, 3, 2))
DOCS = Path(__file__).parents[2] / "docs/scale.md"

pytestmark = pytest.mark.usefixtures("small_tiles")


class Npy:
    """c.npy, mapped."""

    name = "c.npy"

    def __init__(self, folder):
        self.path = folder / self.name

    def new(self):
        """The array, anew, as somebody else makes it who knows nothing of the old one."""
        np.save(self.path, np.zeros((M, N), "f4"))

    @contextlib.contextmanager
    def opened(self):
        yield np.load(self.path, mmap_mode="r+")

    def replaced(self):
        """Another file at the same place; the old one exists while it is made, so its inode is another."""
        np.save(self.path.with_name("new.npy"), np.zeros((M, N), "f4"))
        os.replace(self.path.with_name("new.npy"), self.path)


class Hdf5(Npy):
    name = "c.h5"

    def new(self):
        with h5py.File(self.path, "a") as file:
            if "c" in file:
                del file["c"]
            file.create_dataset("c", (M, N), "f4", chunks=(16, 16), compression="gzip")

    @contextlib.contextmanager
    def opened(self):
        with h5py.File(self.path, "r+") as file:
            yield file["c"]

    replaced = new


class Zarr(Npy):
    name = "c.zarr"

    def new(self):
        zarr.create_array(self.path, shape=(M, N), chunks=(16, 16), dtype="f4", overwrite=True)

    @contextlib.contextmanager
    def opened(self):
        yield zarr.open_array(self.path, mode="r+")

    replaced = new


def made(kind, folder):
    """A new array of that kind."""
    array = kind(folder)
    array.new()
    return array


@pytest.fixture(params=[Npy, Hdf5, Zarr], ids=["npy", "hdf5", "zarr"])
def out(request, tmp_path):
    return made(request.param, tmp_path)


@pytest.fixture
def npy(tmp_path):
    return made(Npy, tmp_path)


def multiply(out, a=A, **keywords):
    """A @ B into *out*, with the checkpoint beside it; what it has then, and the warnings."""
    with warnings.catch_warnings(record=True) as found, out.opened() as target:
        warnings.simplefilter("always")
        pyclmm.matmul(a, B, out=target, checkpoint=out.path.with_name("tiles"), **keywords)
        return np.array(target[:]), [each for each in found if each.category is CheckpointWarning]


def begun(out, **keywords):
    """A run that ends after four tiles; the numbers of the finished ones."""
    with pytest.raises(KeyboardInterrupt):
        multiply(out, progress=ctrl_c_at(4), **keywords)
    return journalled(out)


def journalled(out):
    lines = (out.path.with_name("tiles") / "pyclmm-journal").read_text().splitlines()[1:]
    return [int(line.split()[0]) for line in lines]


def place(number):
    """Rows and columns of a tile that the journal names."""
    tile = EVERY[number]
    return slice(*tile.rows), slice(*tile.columns)


def changed(out, where, value):
    with out.opened() as target:
        target[where] = value
        if isinstance(target, np.memmap):
            target.flush()


def check_goes_on(out, lost, **keywords):
    """A run computes the tiles *lost* again, with one warning, and keeps the others."""
    before, seen = set(journalled(out)), []
    got, found = multiply(out, progress=seen.append, **keywords)
    assert np.array_equal(got, WANTED)
    assert len(found) == bool(lost)
    if lost:
        assert re.search(rf"out was changed.* {lost} of the {len(before)} tiles", str(found[0].message))
        assert Path(found[0].filename).parent == Path(__file__).parent, "it points at the caller"
    assert [each.resumed for each in seen] == [len(before) - lost] * (TILES - len(before) + lost)
    assert not out.path.with_name("tiles").exists()


# ---- what is noted of a dataset


@pytest.fixture(params=[Hdf5, Zarr], ids=["hdf5", "zarr"])
def dataset(request, tmp_path):
    return made(request.param, tmp_path)


def test_a_dataset_is_not_read_back_while_it_is_written(dataset, monkeypatch):
    """Only one block of Zarr's, to learn whether it keeps what is written."""
    reads = noted(monkeypatch, DatasetStorage, "read")
    assert np.array_equal(multiply(dataset)[0], WANTED)
    assert len(reads) == isinstance(dataset, Zarr)


def test_two_devices_read_one_block_back_too(tmp_path, two_devices, monkeypatch):
    out = made(Zarr, tmp_path)
    # Slow, so that the other device's first tile is written meanwhile
    reads = noted(monkeypatch, DatasetStorage, "read", lambda *_: time.sleep(0.2))
    assert np.array_equal(multiply(out, devices=two_devices)[0], WANTED)
    assert len(reads) == 1


def test_a_dataset_that_rounds_what_is_written_goes_on(tmp_path):
    made = Zarr(tmp_path)
    rounds = numcodecs.Quantize(digits=1, dtype="f4")
    keywords = {"zarr_format": 2} if int(zarr.__version__.partition(".")[0]) > 2 else {}
    zarr.open_array(
        str(made.path), mode="w", shape=(M, N), chunks=(40, 32), dtype="f4", filters=[rounds], **keywords
    )
    a = A + np.float32(0.01)
    begun(made, a=a)
    got, found = multiply(made, a=a)
    assert not found
    assert not np.array_equal(got, a @ B)
    np.testing.assert_allclose(got, a @ B, atol=0.1)


@pytest.mark.parametrize("dtype", ["f4", ">f8"])
@pytest.mark.parametrize("shape", [(200, 90), (2500, 1200), (1300, 7, 600)])
def test_a_digest_is_that_of_the_blocks_in_any_order(shape, dtype, tmp_path):
    x = np.random.default_rng(1).standard_normal(shape).astype("f4")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        made = file.create_dataset("x", data=x, dtype=dtype)
        stored = source("out", made)
        index = tuple(slice(0, length) for length in shape[:-2])
        region = Region(index, slice(0, shape[-2]), slice(0, shape[-1]))
        whole, parts = WrittenTile(stored.dtype, region), WrittenTile(stored.dtype, region)
        whole.add(region, x)
        for piece in [*parts.pieces(region)][::-1]:
            parts.add(piece, x[piece.where])
        assert whole.is_in(stored)
        assert tile_digest(stored, region) == whole.digest() == parts.digest()
        made[(0,) * len(shape)] += 1
        assert tile_digest(stored, region) != whole.digest()
        assert not whole.is_in(stored)


# ---- out was written by somebody else


def test_the_snippet_of_the_docs_goes_on_after_c_npy_was_deleted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", A)
    np.save("b.npy", B)
    code = re.search(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)[1]
    with pytest.raises(KeyboardInterrupt):
        exec(code, {"print": ctrl_c_at(4)})
    os.unlink("c.npy")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:  # some file systems give the new file the number of the old one
            exec(code, {"print": str})
        except CheckpointError:
            shutil.rmtree("c-tiles")
            exec(code, {"print": str})
        else:
            assert [each.category for each in found].count(CheckpointWarning) == 1
    assert np.array_equal(np.load("c.npy"), WANTED)


def test_out_that_is_another_array_is_refused_and_left_alone(out):
    begun(out)
    out.replaced()
    changed(out, slice(0, 3), 7)
    with out.opened() as target:
        theirs = np.array(target[:])
    with pytest.raises(CheckpointError, match=r"out is another array .*lacks .*delete the folder"):
        multiply(out)
    with out.opened() as target:
        assert np.array_equal(target[:], theirs)
    shutil.rmtree(out.path.with_name("tiles"))
    assert np.array_equal(multiply(out)[0], WANTED)


def cut_and_made_longer(npy):
    size = npy.path.stat().st_size
    os.truncate(npy.path, size - 4 * N * M)
    os.truncate(npy.path, size)


@pytest.mark.parametrize(
    "emptied",
    [Npy.new, lambda npy: np.lib.format.open_memmap(npy.path, "w+", "f4", (M, N)), cut_and_made_longer],
    ids=["np.save", "a map of mode w+", "cut and made longer"],
)
def test_a_file_that_was_emptied_loses_all_tiles_with_one_warning(npy, emptied):
    done = begun(npy)
    emptied(npy)
    check_goes_on(npy, len(done))


def test_one_changed_element_is_one_tile_that_is_computed_again(out):
    done = begun(out)
    rows, columns = place(done[2])
    changed(out, (rows.stop - 1, columns.start), 1e9)
    check_goes_on(out, 1)


def test_what_lies_beside_the_finished_tiles_may_change(out):
    rows, columns = place(min(set(range(TILES)) - set(begun(out))))
    changed(out, (rows, columns), 1e9)
    check_goes_on(out, 0)


def test_a_second_kill_after_the_warning_loses_nothing(out):
    lost = begun(out)[0]
    changed(out, place(lost), -1)
    with pytest.raises(ZeroDivisionError):
        multiply(out, progress=lambda _: 1 / 0)
    check_goes_on(out, int(journalled(out).count(lost) == 1))  # a second line is of a tile that was made good


def test_exchanged_tiles_are_noticed(out):
    first, second = (place(number) for number in begun(out)[:2])
    with out.opened() as target:
        one, two = np.array(target[first]), np.array(target[second])
        width = min(one.shape[1], two.shape[1])
        two[:, :width], one[:, :width] = one[:, :width].copy(), two[:, :width].copy()
        target[first], target[second] = one, two
    check_goes_on(out, 2)


def test_another_nan_is_another_tile(npy):
    a = A.copy()
    a[:, 3] = np.nan
    done = begun(npy, a=a)
    rows, columns = place(done[0])
    with npy.opened() as target:
        assert np.isnan(target[rows, columns]).all()
        target.view("u4")[rows.start, columns.start] ^= 1
    got, found = multiply(npy, a=a)
    assert np.isnan(got).all()
    assert len(found) == 1


@pytest.mark.parametrize(("written", "taken"), [("f4", ">f4"), ("i4", "f4")])
def test_out_that_takes_the_same_bytes_for_other_numbers_is_refused(written, taken, npy):
    np.save(npy.path, np.zeros((M, N), written))
    a, b = A.astype(written), B.astype(written)
    tiles = npy.path.with_name("tiles")
    with pytest.raises(KeyboardInterrupt), npy.opened() as target:
        pyclmm.matmul(a, b, out=target, checkpoint=tiles, progress=ctrl_c_at(4))
    before = npy.path.read_bytes()
    refused = pytest.raises(CheckpointError, match=f"another product: out was .*{written}")
    with npy.opened() as target, refused:
        pyclmm.matmul(a, b, out=target.view(taken), checkpoint=tiles)
    assert npy.path.read_bytes() == before


def test_a_file_that_was_restored_from_a_copy_goes_on(npy):
    begun(npy)
    shutil.copy(npy.path, npy.path.with_name("copy.npy"))
    os.replace(npy.path.with_name("copy.npy"), npy.path)
    check_goes_on(npy, 0)


def test_a_copy_with_a_change_is_another_array(npy):
    done = begun(npy)
    shutil.copy(npy.path, npy.path.with_name("copy.npy"))
    os.replace(npy.path.with_name("copy.npy"), npy.path)
    changed(npy, place(done[1]), 0.5)
    with pytest.raises(CheckpointError, match="out is another array"):
        multiply(npy)


def test_a_damaged_chunk_is_a_tile_that_is_computed_again(tmp_path):
    out = Zarr(tmp_path)
    zarr.create_array(out.path, shape=(M, N), chunks=(40, 32), dtype="f4")
    begun(out)
    (out.path / "c/0/0").write_bytes(b"no chunk")
    check_goes_on(out, 1)


@pytest.mark.parametrize("kind", [Hdf5, Zarr])
def test_a_complete_product_leaves_no_mark_in_the_file(kind, tmp_path):
    out = made(kind, tmp_path)
    begun(out)
    with out.opened() as target:
        assert "pyclmm-checkpoint" in target.attrs
    multiply(out)
    with out.opened() as target:
        assert not dict(target.attrs)


def test_several_devices_verify_and_go_on(npy, two_devices):
    done = begun(npy, devices=two_devices)
    changed(npy, place(done[0]), 3)
    check_goes_on(npy, 1, devices=two_devices)


def test_out_in_memory_gets_its_tiles_from_the_folder_whatever_it_has(tmp_path):
    folder, target = tmp_path / "tiles", np.zeros((M, N), "f4")
    with pytest.raises(KeyboardInterrupt):
        pyclmm.matmul(A, B, out=target, checkpoint=folder, progress=ctrl_c_at(4))
    target[:] = 9
    pyclmm.matmul(A, B, out=target, checkpoint=folder)
    assert np.array_equal(target, WANTED)


def test_an_array_of_a_device_takes_no_checkpoint(queue, tmp_path):
    with pytest.raises(DTypeError, match=r"out is a pyopencl Array.*checkpoint"):
        pyclmm.matmul(A, B, out=cla.zeros(queue, (M, N), "f4"), checkpoint=tmp_path / "tiles")


@pytest.mark.parametrize("shape", [(0, 70), (200, 0)])
def test_a_product_of_no_elements_leaves_no_folder(shape, npy, tmp_path):
    got = pyclmm.matmul(np.ones(shape, "f4"), np.ones((shape[1], 90), "f4"), checkpoint=tmp_path / "tiles")
    assert not got.any()
    assert not (tmp_path / "tiles").exists()


# ---- nothing is noted, or removed, before it is safe


def into_integers(folder, a=A, **keywords):
    """A @ B into a file of integers: tiles are computed elsewhere, and copied when all are finished."""
    counts = np.memmap(folder / "counts", "i4", "r+", shape=(M, N))
    keywords |= {"out": counts, "casting": "unsafe", "checkpoint": folder / "tiles"}
    return pyclmm.matmul(a, B, **keywords)


def test_tiles_are_kept_until_their_copy_is_in_out(tmp_path):
    (tmp_path / "counts").write_bytes(bytes(4 * M * N))
    large = np.where(np.arange(M) == 5, 1e12, 1).astype("f4")[:, None] * A
    with np.errstate(invalid="raise"), pytest.raises(FloatingPointError, match="cast"):
        into_integers(tmp_path, a=large)
    seen = []
    with np.errstate(invalid="ignore"):
        got = into_integers(tmp_path, a=large, progress=seen.append)
    assert [(each.tiles, each.resumed) for each in seen] == [(TILES, TILES)]
    assert np.array_equal(got[6:], WANTED[6:])
    assert not (tmp_path / "tiles").exists()


def test_an_out_that_was_cut_before_the_copy_is_named(tmp_path):
    (tmp_path / "counts").write_bytes(bytes(4 * M * N))

    def cut(done):
        if done.tiles == TILES:
            os.truncate(tmp_path / "counts", 0)

    with pytest.raises(pyclmm.StorageError, match=r"out: the whole array of .*counts could not be reached"):
        into_integers(tmp_path, progress=cut)
    os.truncate(tmp_path / "counts", 4 * M * N)
    assert np.array_equal(into_integers(tmp_path), WANTED)


def test_the_copy_in_out_is_flushed_before_tiles_are_removed(tmp_path, monkeypatch):
    (tmp_path / "counts").write_bytes(bytes(4 * M * N))
    events = []
    noted(monkeypatch, storage.MappedStorage, "flush", lambda out: events.append(np.array(out.x)))
    noted(monkeypatch, journal.Journal, "done", lambda log: events.append("done"))
    into_integers(tmp_path)
    flushed, done = events
    assert np.array_equal(flushed, WANTED)
    assert done == "done"


def test_a_tile_is_noted_only_after_out_was_flushed(out, monkeypatch):
    events, kind = [], {Npy: storage.MappedStorage}.get(type(out), storage.DatasetStorage)
    flush, add, new = kind.flush, journal.Journal.add, vars(journal.Journal)["new"].__func__
    synced = []

    def record(name, real):
        def wrapper(*given):
            done = real(*given)
            events.append(name)
            return done

        return wrapper

    noted(monkeypatch, os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    monkeypatch.setattr(kind, "set_mark", record("settled", kind.set_mark))
    monkeypatch.setattr(kind, "flush", record("flush", flush))
    monkeypatch.setattr(journal.Journal, "add", record("line", add))
    monkeypatch.setattr(journal.Journal, "new", classmethod(record("journal", new)))
    multiply(out)
    events = events[events.index("settled") :]
    assert events[:2] == ["settled", "journal"]
    assert events.count("line") == TILES
    assert all(before == "flush" for before, what in itertools.pairwise(events) if what == "line")
    if isinstance(out, Zarr):
        files = [path for path in out.path.rglob("*") if path.is_file() and path.name != "zarr.json"]
        assert files
        assert {path.stat().st_ino for path in [*files, out.path, *out.path.rglob("c*")]} <= set(synced)
    else:
        assert out.path.stat().st_ino in synced
        assert out.path.parent.stat().st_ino in synced


@pytest.mark.parametrize("keywords", [{"zarr_format": 2}, {"shards": (32, 32)}], ids=["format 2", "shards"])
def test_the_files_of_zarr_chunks_are_waited_for(keywords, tmp_path, monkeypatch):
    x = zarr.create_array(tmp_path / "z/x", shape=(100, 60), chunks=(16, 16), dtype="f4", **keywords)
    to, synced = sink(x, x.shape, np.dtype("f4")), []
    noted(monkeypatch, os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    to.write(np.ones((50, 30), "f4"), tiles.Region((), slice(40, 90), slice(20, 50)))
    to.flush()
    files = {path.stat().st_ino for path in (tmp_path / "z").rglob("*") if path.is_file()}
    assert len(files) >= 5
    assert files <= set(synced)


KILLED = """
import os, signal, sys
import h5py, numpy as np, pyclmm
from pyclmm.streaming import machines, streamed
from pyclmm.streaming.tiles import Blocking

def blocking(self, kept=None):
    return Blocking(1, 40, 32, 24, 2, 3, 3, 2)

machines.Fit.blocking = blocking
a, b = np.load("a.npy"), np.load("b.npy")
out = h5py.File("c.h5", "w").create_dataset("c", (len(a), b.shape[1]), "f4")
kill = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "early":
    streamed.run = kill
pyclmm.matmul(a, b, out=out, checkpoint="tiles", progress=kill)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.parametrize("when", ["early", "after a tile"])
def test_a_new_hdf5_file_can_be_read_after_a_kill(when, tmp_path):
    out = Hdf5(tmp_path)
    np.save(tmp_path / "a.npy", A)
    np.save(tmp_path / "b.npy", B)
    done = python("-c", KILLED, when, cwd=tmp_path, env=with_this_package(PYCLMM_SELFCHECK="off"), timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert bool(journalled(out)) == (when != "early")
    check_goes_on(out, 0)


# ---- the operands


@pytest.mark.parametrize("at", [(0, 0), (1150, 77), (2999, 299)])
@pytest.mark.parametrize("folder", ["tmp", "/dev/shm"])
def test_a_mapped_operand_that_was_changed_without_a_flush_is_noticed(folder, at, npy, tmp_path):
    """The maps of /dev/shm never move the file's time; elsewhere a page that is dirty does not."""
    if not os.path.isdir(folder) and folder != "tmp":
        pytest.skip(f"this system has no {folder}")
    path = tmp_path / "a" if folder == "tmp" else Path(folder, f"pyclmm-test-{os.getpid()}")
    a = np.memmap(path, "f4", "w+", shape=(3000, 300))
    try:
        a[:] = 1
        target = np.zeros((3000, 2), "f4")
        keywords = {"out": target, "checkpoint": tmp_path / "tiles"}
        with pytest.raises(KeyboardInterrupt):
            pyclmm.matmul(a, np.ones((300, 2), "f4"), progress=ctrl_c_at(4), **keywords)
        a[at] = 2
        with pytest.raises(CheckpointError, match=r"another product: operands\.a\."):
            pyclmm.matmul(a, np.ones((300, 2), "f4"), **keywords)
    finally:
        path.unlink()


def test_the_digest_of_an_operand_tells_every_change(tmp_path):
    x = RNG.integers(0, 100, (2100, 300)).astype("f4")
    stored = zarr.create_array(tmp_path / "x", data=x, chunks=(100, 100))
    for make in (lambda: x, lambda: np.asfortranarray(x), lambda: x[None], lambda: x[:, 1:], lambda: stored):
        before = fingerprint(source("a", make()))
        assert before == fingerprint(source("a", make()))
        for at in zip(RNG.integers(0, 2100, 5), RNG.integers(1, 300, 5), strict=True):
            old, x[at] = x[at], -1
            stored[at] = -1
            assert before["digest"] != fingerprint(source("a", make()))["digest"]
            stored[at] = x[at] = old
        assert before == fingerprint(source("a", make()))


@pytest.mark.parametrize("dtype", ["i1", "f2", ">f4", "f8", "c16"])
@pytest.mark.parametrize("shape", [(1100, 1601), (3, 500, 1001), (700000, 3), (1, 2000003)])
def test_the_digest_of_a_large_tile_tells_every_change(shape, dtype):
    x = RNG.integers(0, 100, shape).astype(dtype)
    index = (slice(0, shape[0]),) if len(shape) == 3 else ()
    region = Region(index, slice(0, shape[-2]), slice(0, shape[-1]))
    before, flat = tile_digest(source("out", x), region), x.reshape(-1)
    for at in (0, x.size - 1, *RNG.integers(0, x.size, 5)):
        old, flat[at] = flat[at], -1
        assert tile_digest(source("out", x), region) != before
        flat[at] = old
    exchanged = x.copy()
    exchanged[..., [0, -1], :] = x[..., [-1, 0], :]  # the sums are as they were
    assert shape[-2] == 1 or tile_digest(source("out", exchanged), region) != before
    assert tile_digest(source("out", x), region) == before


def test_of_an_operand_beyond_the_limit_every_row_and_column_block_is_read(limits):
    limits(digest=1 << 21)
    x = np.zeros((4096, 2048), "f4")  # 16 limits
    before = fingerprint(source("a", x))["digest"]
    for where in ((slice(1234, 1235),), (slice(None), 77)):
        x[where] = 1
        assert fingerprint(source("a", x))["digest"] != before
        x[where] = 0
    assert fingerprint(source("a", x))["digest"] == before


# ---- whose folder it is


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners")
@pytest.mark.parametrize("has_tiles", [False, True])
def test_a_folder_of_another_owner_is_refused(has_tiles, npy, tmp_path, monkeypatch):
    folder = tmp_path / "tiles"
    if has_tiles:
        begun(npy)
    else:
        folder.mkdir()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    if os.geteuid() == 0:  # root's files are trusted
        os.chown(folder, 65534, -1)
    else:
        as_user(monkeypatch, 12345)
    with pytest.raises(CheckpointError, match="tiles is not trusted: another user owns it; name a folder"):
        multiply(npy)
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners")
def test_a_folder_that_every_user_can_write_is_refused(npy, tmp_path):
    (tmp_path / "tiles").mkdir()
    (tmp_path / "tiles").chmod(0o777)
    with pytest.raises(CheckpointError, match="tiles is not trusted: others can write it"):
        multiply(npy)


@pytest.mark.parametrize("name", ["pyclmm-journal", "pyclmm-lock"])
def test_a_link_in_the_folder_is_refused(name, npy, tmp_path):
    begun(npy)
    path = tmp_path / "tiles" / name
    shutil.move(path, tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    before = (tmp_path / "elsewhere").read_bytes()
    with pytest.raises(CheckpointError, match=f"{name} is not trusted: it is a link"):
        multiply(npy)
    assert (tmp_path / "elsewhere").read_bytes() == before


@pytest.mark.parametrize("version", [2, 3, journal.VERSION + 1])
def test_a_folder_of_another_version_is_refused(version, npy, tmp_path):
    begun(npy)
    path = tmp_path / "tiles/pyclmm-journal"
    other = json.dumps({"version": version, "problem": {}})
    first = f"pyclmm 2 {'0f' * 16}" if version == 2 else f"{other} {zlib.crc32(other.encode()):08x}"
    path.write_text(f"{first}\n")
    with pytest.raises(CheckpointError, match=r"another version of pyclmm; .*delete the folder"):
        multiply(npy)
