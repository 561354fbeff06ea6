"""Checkpoints: killed at any moment they go on; of another product, damaged or in use they are refused."""

import os
import shutil
import sys

import numpy as np
import pytest

import pyclmm
from pyclmm.errors import CheckpointError
from pyclmm.problem.dtypes import ELEMENT_TYPES, dtype_of
from pyclmm.streaming.checkpoint import Checkpoint
from pyclmm.streaming.fingerprints import fingerprint
from pyclmm.streaming.storage import sink, source
from tests.support.optional import optional

h5py = optional("h5py")

PROBLEM = {"alpha": 1.0, "operands": {"a": {"shape": [3, 4]}, "b": {"shape": [4, 5]}}}


def out(shape=(8, 8)):
    return sink(np.zeros(shape, "f4"), shape, np.dtype("f4"))


def opened(folder, problem=PROBLEM, tiles=500, to=None):
    return Checkpoint.open(folder, problem, tiles, to or out())


def kept(folder, tiles=(1, 4)):
    one = opened(folder)
    for tile in tiles:
        one.finish(tile, np.full((2, 3), tile, "f4"))
    one.close(remove=False)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
def test_blocks_come_back(dtype, tmp_path):
    block = np.arange(12).reshape(3, 4).astype(dtype_of(dtype))
    one = opened(tmp_path / "c")
    one.finish(7, block)
    one.close(remove=False)
    again = opened(tmp_path / "c")
    assert again.finished == {7}
    ((tile, got),) = again.blocks()
    assert tile == 7
    assert got == block.tobytes()
    assert Checkpoint.peek(tmp_path / "c") == PROBLEM
    again.close(remove=True)
    assert not (tmp_path / "c").exists()
    assert Checkpoint.peek(tmp_path / "c") is None


@pytest.mark.parametrize("cut", range(1, 20))
def test_a_torn_last_line_is_dropped(cut, tmp_path):
    kept(tmp_path / "c")
    path = tmp_path / "c/pyclmm-journal"
    path.write_bytes(path.read_bytes()[:-cut])
    one = opened(tmp_path / "c")
    assert one.finished == {1}
    one.finish(4, np.zeros((1, 1), "f4"))
    one.close(remove=False)
    assert opened(tmp_path / "c").finished == {1, 4}


def test_a_folder_is_for_one_at_a_time_and_for_nothing_else(tmp_path):
    one = opened(tmp_path / "c")
    with pytest.raises(CheckpointError, match="in use"):
        opened(tmp_path / "c")
    one.close(remove=False)
    one = opened(tmp_path / "c")
    (tmp_path / "c/mine").touch()
    one.close(remove=True)
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["mine"]


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be removed")
def test_a_lock_that_another_takes_at_once_stays_its_own(tmp_path, monkeypatch):
    """The next run may begin between the end of the lock and the end of the call that held it."""
    first, close, others = opened(tmp_path / "c"), os.close, []

    def closed(handle):
        close(handle)
        if not others and not (tmp_path / "c/pyclmm-lock").exists():
            others.append(None)  # what it opens and closes itself comes here too
            others.append(opened(tmp_path / "c"))

    with monkeypatch.context() as patched:
        patched.setattr(os, "close", closed)
        first.close(remove=True)
    with pytest.raises(CheckpointError, match="in use"):
        opened(tmp_path / "c")
    others[1].close(remove=True)


def test_a_folder_that_is_a_link_is_emptied(tmp_path):
    """A link, like a place where something is mounted, cannot be removed as a folder."""
    (tmp_path / "c").mkdir()
    (tmp_path / "link").symlink_to("c")
    opened(tmp_path / "link").close(remove=True)
    assert not list((tmp_path / "link").iterdir())


def test_the_working_directory_is_emptied_and_stays(tmp_path, monkeypatch):
    (tmp_path / "c").mkdir()
    monkeypatch.chdir(tmp_path / "c")
    x = np.ones((4, 4), "f4")
    pyclmm.matmul(x, x, checkpoint=".")
    assert (tmp_path / "c").is_dir()
    assert not list((tmp_path / "c").iterdir())


def test_a_folder_that_is_removed_meanwhile_is_no_error_of_a_complete_product(tmp_path):
    x, out = np.ones((4, 4), "f4"), np.memmap(tmp_path / "out", "f4", "w+", shape=(4, 4))
    folder = tmp_path / "c"
    pyclmm.matmul(x, x, out=out, checkpoint=folder, progress=lambda at: shutil.rmtree(folder))
    np.testing.assert_array_equal(out, x @ x)


def test_a_relative_folder_in_a_deleted_working_directory_is_named(monkeypatch, tmp_path):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    x = np.ones((4, 4), "f4")
    with pytest.raises(CheckpointError, match="checkpoint folder c cannot be reached"):
        pyclmm.matmul(x, x, checkpoint="c")


def test_fingerprints(tmp_path):
    x = np.zeros((600, 700), "f4")
    before = fingerprint(source("a", x))
    assert before == fingerprint(source("a", x.copy()))
    x[-1, -1] = 1
    assert before["digest"] != fingerprint(source("a", x))["digest"]
    assert before != fingerprint(source("a", x.view("i4")))
    assert fingerprint(source("a", np.zeros((0, 4)))) != before
    fingerprint(source("a", np.asfortranarray(x)))
    fingerprint(source("a", np.zeros((300, 5, 2, 3))))
    m = np.memmap(tmp_path / "m", "f4", "w+", shape=(4, 4))
    assert fingerprint(source("a", m)).keys() >= {"path", "size", "mtime"}
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = x
        assert fingerprint(source("a", file["x"]))["path"].endswith("x.h5:/x")


def test_a_tile_without_its_line_is_removed(tmp_path):
    kept(tmp_path / "c")
    for name in ("pyclmm-tile-9", ".pyclmm-new-abc"):
        (tmp_path / "c" / name).write_bytes(b"half")
    opened(tmp_path / "c").close(remove=False)
    names = {path.name for path in (tmp_path / "c").iterdir()}
    assert names == {"pyclmm-journal", "pyclmm-lock", "pyclmm-tile-1", "pyclmm-tile-4"}
