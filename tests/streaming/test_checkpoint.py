"""Checkpoints: killed at any moment they go on; of another product, damaged or in use they are refused."""

import random
import subprocess
import sys
import time

import numpy as np
import pytest

from pyclmm.errors import CheckpointError, StorageError
from pyclmm.problem.dtypes import ELEMENT_TYPES, dtype_of
from pyclmm.streaming import checkpoint as module
from pyclmm.streaming.checkpoint import Checkpoint
from pyclmm.streaming.fingerprints import fingerprint
from pyclmm.streaming.storage import sink, source
from tests.support.optional import optional
from tests.support.selection import slow

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
    one.finish(7, block.T)
    one.close(remove=False)
    again = opened(tmp_path / "c")
    assert again.finished == {7}
    ((tile, got),) = again.blocks()
    assert tile == 7
    assert got.dtype == block.dtype
    assert (got == block.T).all()
    assert Checkpoint.peek(tmp_path / "c") == PROBLEM
    again.close(remove=True)
    assert not (tmp_path / "c").exists()
    assert Checkpoint.peek(tmp_path / "c") is None


LOOP = """
import sys
import numpy as np
from pyclmm.streaming.checkpoint import Checkpoint
from pyclmm.streaming.storage import sink
one = Checkpoint.open(sys.argv[1], {"k": 1}, 10**6, sink(np.zeros((2, 2), "f4"), (2, 2), np.dtype("f4")))
print("open", flush=True)
for tile in range(10**6):
    if tile not in one.finished:
        one.finish(tile, np.full((3, 5), tile, "f4") if tile % 2 else None)
        print(tile, flush=True)
"""


@pytest.mark.parametrize("kills", [4, *slow(20)])
def test_killed_again_and_again_it_has_exactly_the_finished_tiles(kills, tmp_path):
    finished, r = set(), random.Random(1)
    for _ in range(kills):
        child = subprocess.Popen(
            [sys.executable, "-c", LOOP, str(tmp_path / "c")], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout.readline() == "open\n"
        time.sleep(r.random() * 0.02)
        child.kill()
        said = {int(line) for line in child.stdout.read().splitlines(keepends=True) if line.endswith("\n")}
        child.stdout.close()
        child.wait()
        assert not said & finished, "no tile twice"
        finished |= said
        one = Checkpoint.open(tmp_path / "c", {"k": 1}, 10**6, out((2, 2)))
        assert finished <= one.finished
        assert len(one.finished - finished) <= 1, "the one that was kept and not yet said"
        finished = set(one.finished)
        blocks = dict(one.blocks())
        assert blocks.keys() == {tile for tile in finished if tile % 2}
        assert all((block == tile).all() for tile, block in blocks.items())
        one.close(remove=False)


def test_another_product_is_refused_with_the_field_and_both_values(tmp_path):
    kept(tmp_path / "c")
    other = {**PROBLEM, "operands": {"a": {"shape": [3, 9]}, "b": {"shape": [4, 6]}}}
    with pytest.raises(CheckpointError, match=r"operands\.a\.shape was \[3, 4\] and is \[3, 9\]"):
        opened(tmp_path / "c", other)
    with pytest.raises(CheckpointError, match="tiles was 500 and is 6"):
        opened(tmp_path / "c", tiles=6)
    x = np.memmap(tmp_path / "m", "f4", "w+", shape=(2, 2))
    with pytest.raises(CheckpointError, match=r"out was None and is '.*/m"):
        opened(tmp_path / "c", to=sink(x, x.shape, x.dtype))
    assert opened(tmp_path / "c").finished == {1, 4}


@pytest.mark.parametrize("name", ["pyclmm-problem.json", "pyclmm-journal", "pyclmm-tile-4"])
@pytest.mark.parametrize("how", ["cut", "changed", "missing", "empty"])
def test_damage_names_the_file(name, how, tmp_path):
    kept(tmp_path / "c")
    path = tmp_path / "c" / name
    content = path.read_bytes()
    half = len(content) // 2
    new = {"cut": content[:half], "changed": content[:half] + b"?" + content[half + 1 :], "empty": b""}
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(new[how])
    if (name, how) == ("pyclmm-journal", "cut"):
        path.write_bytes(content[:half] + b"\n")
    with pytest.raises(CheckpointError, match=rf"{name} is damaged.*delete the folder"):
        list(opened(tmp_path / "c").blocks())


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
    (tmp_path / "d").mkdir()
    (tmp_path / "d/mine").touch()
    with pytest.raises(CheckpointError, match=r"holds other files .mine"):
        opened(tmp_path / "d")
    assert [path.name for path in (tmp_path / "d").iterdir()] == ["mine"]
    with pytest.raises(CheckpointError, match="name another"):
        opened(tmp_path / "d/mine")
    one = opened(tmp_path / "c")
    (tmp_path / "c/mine").touch()
    one.close(remove=True)
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["mine"]


def test_a_full_disk_keeps_what_was_finished(tmp_path, monkeypatch):
    kept(tmp_path / "c")
    one = opened(tmp_path / "c")

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(module, "write_whole", full)
        with pytest.raises(StorageError, match=r"tile 5 could not be kept: .*No space"):
            one.finish(5, np.zeros((1, 1), "f4"))
    one.close(remove=False)
    assert opened(tmp_path / "c").finished == {1, 4}


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
    assert names == {"pyclmm-problem.json", "pyclmm-journal", "pyclmm-lock", "pyclmm-tile-1", "pyclmm-tile-4"}
