"""Streamed products that are interrupted and go on, by the public functions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import pyclmm
from pyclmm import CheckpointError, StreamedMatmul

from . import killed_runs

needs_fork = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="runs are forked, to save the time of imports"
)
RNG = np.random.default_rng(23)
A = RNG.standard_normal((520, 90)).astype(np.float32)
B = RNG.standard_normal((90, 460)).astype(np.float32)


@pytest.fixture
def files(tmp_path):
    """A folder with a.npy and b.npy."""
    for name, x in (("a", A), ("b", B)):
        np.save(tmp_path / name, x)
    return tmp_path


def mapped(folder):
    return [np.load(folder / f"{name}.npy", mmap_mode="r") for name in "ab"]


def at_one_go(folder):
    """The product in the same tiles, without a break."""
    return pyclmm.matmul(*mapped(folder), memory_limit=killed_runs.LIMIT)


@needs_fork
@pytest.mark.parametrize(("kind", "runs"), [("mapped", 20), ("memory", 4), ("zarr", 4), ("hdf5", 4)])
def test_a_run_that_is_killed_goes_on(files, kind, runs):
    """In the middle of writes, too. A tile that is finished is not written again."""
    script = [sys.executable, killed_runs.__file__, kind, str(files), str(runs)]
    done = subprocess.run(script, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(files / "result.npy"), at_one_go(files))
    assert not (files / "tiles").exists()
    written, finished = defaultdict(int), set()
    lines = (files / "log").read_text().splitlines()
    assert lines.count("R") == runs + 1
    for line in lines:
        what, _, place = line.partition(" ")
        if what == "W":
            written[place] += 1
            assert kind == "memory" or place not in finished
        elif what == "F":
            assert place not in finished
            finished.add(place)
    assert len(written) > 2 * runs  # so that every run had tiles left
    if kind == "mapped":
        again = sum(written.values()) - len(written)
        assert 0 < again <= runs * 3  # those that a kill came before: at most what was under way


def test_ctrl_c_ends_a_run_and_the_next_goes_on(files):
    seen = []

    def third(at):
        seen.append(at)
        if len(seen) == 3:
            raise KeyboardInterrupt

    a, b = mapped(files)
    keywords = {"memory_limit": killed_runs.LIMIT, "checkpoint": files / "tiles"}
    with pytest.raises(KeyboardInterrupt):
        pyclmm.matmul(a, b, progress=third, **keywords)
    last = []
    result = pyclmm.matmul(a, b, progress=last.append, **keywords)
    np.testing.assert_array_equal(result, at_one_go(files))
    resumed = {at.resumed for at in last}
    assert len(resumed) == 1
    assert 3 <= resumed.pop() < last[-1].all_tiles == last[-1].tiles
    assert len(last) == last[-1].all_tiles - last[-1].resumed
    assert not (files / "tiles").exists()


@pytest.fixture
def broken_off(files):
    """(a, b, out, folder) of a run that ended after two tiles."""
    a, b = mapped(files)
    out = np.lib.format.open_memmap(files / "out.npy", "w+", np.float32, (len(A), B.shape[1]))
    out[:] = 7
    stop_after(2, a, b, out, files / "tiles")
    return a, b, out, files / "tiles"


def stop_after(count, a, b, out, folder, **keywords):
    def stop(at):
        if at.tiles - at.resumed == count:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pyclmm.matmul(
            a, b, out=out, checkpoint=folder, progress=stop, memory_limit=killed_runs.LIMIT, **keywords
        )


def test_tiles_that_are_not_finished_are_as_they_were(broken_off):
    a, b, out, _ = broken_off
    exact = a.astype(float) @ b
    done = np.isclose(out, exact, rtol=1e-4, atol=1e-4)
    assert np.all(done | (out == 7))
    assert done.any()
    assert not done.all()


def test_another_limit_goes_on_with_the_tiles_of_the_first(broken_off, files):
    a, b, out, folder = broken_off
    seen = []
    pyclmm.matmul(a, b, out=out, checkpoint=folder, memory_limit="1 MiB", progress=seen.append)
    assert seen[0].resumed >= 2
    np.testing.assert_array_equal(out, at_one_go(files))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a, b, out: {"a": np.array(a) + 1}, "operands.a"),
        (lambda a, b, out: {"b": np.array(b)[::-1]}, "operands.b"),
        (
            lambda a, b, out: {"a": np.array(a)[:-1], "out": out[:-1]},
            r"shape was \[520, 460\] and is \[519, 460\]",
        ),
        (lambda a, b, out: {"out": np.empty_like(out)}, "out was .*out.npy.* and is None"),
        (lambda a, b, out: {"out": out.T, "a": b.T, "b": a.T}, "is of another product"),
        (lambda a, b, out: {"precision": "high"}, "precision was 'highest' and is 'high'"),
        (lambda a, b, out: {"reproducible": True}, "reproducible was False and is True"),
        (lambda a, b, out: {"kernel": "tiled"}, "kernel was 'auto' and is 'tiled'"),
        (lambda a, b, out: {"dtype": np.float64}, "is of another product"),
    ],
)
def test_a_checkpoint_of_another_product_is_refused(broken_off, change, words):
    a, b, out, folder = broken_off
    before, kept = np.array(out), {path.name: path.read_bytes() for path in folder.iterdir()}
    given = {"a": a, "b": b, "out": out, "precision": "highest"} | change(a, b, out)
    a, b = given.pop("a"), given.pop("b")
    with pytest.raises((CheckpointError, pyclmm.DTypeError), match=words) as raised:
        pyclmm.matmul(a, b, checkpoint=folder, **given)
    assert str(folder) in str(raised.value)
    np.testing.assert_array_equal(out, before)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == kept


def test_a_changed_file_is_refused(broken_off, files):
    """Its time of change tells, even where the pieces that are digested do not."""
    a, b, out, folder = broken_off
    del a
    os.utime(files / "a.npy", (1, 1))
    with pytest.raises(CheckpointError, match=r"operands\.a\.mtime"):
        pyclmm.matmul(np.load(files / "a.npy", mmap_mode="r"), b, out=out, checkpoint=folder)


@pytest.mark.parametrize("name", ["pyclmm-problem.json", "pyclmm-journal"])
@pytest.mark.parametrize("how", ["halved", "changed", "gone"])
def test_a_damaged_checkpoint_is_refused(broken_off, name, how):
    a, b, out, folder = broken_off
    before, path = np.array(out), folder / name
    content = path.read_bytes()
    middle = len(content) // 2
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(content[:middle] + (b"" if how == "halved" else b"#" + content[middle + 1 :]))
    with pytest.raises(CheckpointError, match="delete the folder to start anew"):
        pyclmm.matmul(a, b, out=out, checkpoint=folder, memory_limit=killed_runs.LIMIT)
    np.testing.assert_array_equal(out, before)


def test_a_plan_goes_on_too(files):
    a, b = mapped(files)
    plan = StreamedMatmul(a, b, memory_limit=killed_runs.LIMIT, checkpoint=files / "tiles")

    def stop(at):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan(progress=stop)
    again = StreamedMatmul(a, b, memory_limit="1 GiB", checkpoint=files / "tiles")
    assert again.blocking == plan.blocking  # the folder's tiles, whatever the limit
    np.testing.assert_array_equal(again(), at_one_go(files))


def test_a_checkpoint_folder_that_cannot_be_made_is_refused(files):
    a, b = mapped(files)
    (files / "file").write_text("")
    for folder in (files / "file", files / "file" / "below", Path("/proc/tiles")):
        with pytest.raises(CheckpointError, match="checkpoint"):
            pyclmm.matmul(a, b, checkpoint=folder)
