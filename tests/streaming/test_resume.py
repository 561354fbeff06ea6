"""Products that were killed or interrupted go on: no finished tile is computed or written again."""

import os
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import pyclmm
from pyclmm.streaming import lanes
from pyclmm.streaming.checkpoint import Checkpoint
from tests.support.processes import python, with_this_package
from tests.support.selection import slow_rows
from tests.support.streams import Stored, ctrl_c_at

RUNS = Path(__file__).parent / "killed_runs.py"
M, K, N, TILES = 160, 24, 80, 200  # as in killed_runs.py
RNG = np.random.default_rng(5)


def empty_out(folder, kind):
    if kind == "memmap":
        np.lib.format.open_memmap(folder / "out.npy", "w+", "f4", (M, N)).flush()
    if kind == "hdf5":
        h5py = pytest.importorskip("h5py")
        with h5py.File(folder / "out.h5", "w") as file:
            # Room for all chunks is made now: a kill while HDF5 enters a new one could damage the file.
            chunks = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            chunks.set_chunk((8, 16))
            chunks.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((M, N)), chunks)
    if kind == "zarr":
        zarr = pytest.importorskip("zarr")
        zarr.create_array(folder / "out.zarr", shape=(M, N), chunks=(8, 8), dtype="f4")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a run is a fork")
@pytest.mark.parametrize(
    ("kind", "kills"), [("memmap", 5), *slow_rows(("memmap", 20), ("numpy", 5), ("hdf5", 5), ("zarr", 5))]
)
def test_killed_again_and_again_it_computes_each_tile_once(kind, kills, tmp_path):
    for name, shape in (("a", (M, K)), ("b", (K, N))):
        np.save(tmp_path / f"{name}.npy", RNG.standard_normal(shape).astype("f4"))
    empty_out(tmp_path, kind)
    done = python(RUNS, tmp_path, kind, kills, env=with_this_package())
    assert done.returncode == 0, done.stdout + done.stderr
    expected, got = np.load(tmp_path / "expected.npy"), np.load(tmp_path / "got.npy")
    assert got.tobytes() == expected.tobytes()
    assert not (tmp_path / "checkpoint").exists()
    check_log([line.split() for line in (tmp_path / "log").read_text().splitlines()], kills, kind)


def check_log(events, kills, kind):
    """No tile is computed after its line was in the journal, nor written where out keeps what it has."""
    kept, number_at, resumed = set(), {}, set()
    for what, *words in events:
        if what == "resumed":
            assert kept <= set(words), "what was kept is found again"
            resumed = set(words)
            kept |= resumed  # with one whose line was the last thing before a kill
        elif what == "kept":
            assert words[0] not in kept, "finished twice"
            kept.add(words[0])
        elif what == "begin":
            assert words[0] not in kept, "a finished tile is computed"
            number_at[words[1]] = words[0]
        elif what == "write" and kind != "numpy":
            assert number_at[words[0]] not in kept, "a finished tile is written"
    assert kept == {str(number) for number in range(TILES)}
    assert 0 < len(resumed) < TILES
    runs = [words[0] for what, *words in events if what == "run"]
    assert runs == [str(number) for number in range(kills + 1)]
    ways = {words[0] for what, *words in events if what == "killed"}
    assert ways == {"progress", "write", "begin", "line", "safe"}


@pytest.mark.parametrize("kind", ["memmap", "numpy"])
@pytest.mark.usefixtures("small_tiles")
def test_ctrl_c_in_progress_ends_the_run_and_the_next_goes_on(kind, five_tiles, tmp_path):
    a = Stored(RNG.standard_normal((200, 70)).astype("f4"))
    b = RNG.standard_normal((70, 90)).astype("f4")
    folder, seen = tmp_path / "checkpoint", []
    mapped = np.memmap(tmp_path / "out", "f4", "w+", shape=(200, 90)) if kind == "memmap" else None

    with pytest.raises(KeyboardInterrupt):
        pyclmm.matmul(a, b, out=mapped, checkpoint=folder, progress=ctrl_c_at(4, seen))
    reads, before = a.reads, None if mapped is None else mapped.copy()
    lanes.release()
    assert a.reads == reads, "no thread reads on"
    if mapped is not None:
        assert mapped.tobytes() == before.tobytes()
    assert [each.tiles for each in seen] == [1, 2, 3, 4]
    lines = (folder / "pyclmm-journal").read_text().splitlines()
    seen.clear()
    five_tiles.clear()
    got = pyclmm.matmul(a, b, out=mapped, checkpoint=folder, progress=seen.append)
    resumed = len(lines) - 1
    assert resumed in (4, 5)
    assert [each.tiles for each in seen] == list(range(resumed + 1, 16))
    assert {(each.resumed, each.all_tiles) for each in seen} == {(resumed, 15)}
    assert seen[-1].flops == seen[-1].all_flops < 2 * 200 * 70 * 90
    assert got.tobytes() == pyclmm.matmul(a, b).tobytes()
    assert not folder.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
@pytest.mark.usefixtures("lane", "small_tiles")
def test_ctrl_c_twice_ends_the_call_after_its_threads(tmp_path):
    heard, writing, over = [], [], threading.Event()

    def hear(number, frame):
        heard.append(number)
        raise KeyboardInterrupt

    class Slow(Stored):
        """While its first part is being written, Ctrl-C comes twice."""

        def __setitem__(self, where, value):
            writing.append(where)
            for count in range(len(heard), 2):
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                while len(heard) == count:
                    over.wait(0.2)  # a call that does not wait for its threads ends meanwhile
            super().__setitem__(where, value)
            if not over.is_set():
                writing.remove(where)

    a, b = (RNG.standard_normal(shape).astype("f4") for shape in ((200, 70), (70, 90)))
    out = Slow(np.zeros((200, 90), "f4"))
    standing = signal.signal(signal.SIGINT, hear)
    try:
        with pytest.raises(KeyboardInterrupt):
            pyclmm.matmul(a, b, out=out, checkpoint=tmp_path / "checkpoint")
        over.set()
        assert not writing, "a thread still writes"
    finally:
        over.set()
        signal.signal(signal.SIGINT, standing)
    assert len(heard) == 2
    assert out.writes > 0


FORKED = """
import os
import numpy as np
import pyclmm

def fork(done):
    if done.tiles < 3:
        child = os.fork()
        if child:
            ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        elif done.tiles == 1:
            raise SystemExit(7)

ended, a = [], np.ones((100, 100), "f4")
try:
    c = pyclmm.matmul(a, a, memory_limit="60 KB", checkpoint="checkpoint", progress=fork)
except pyclmm.ForkError:
    raise SystemExit(8)
assert (c == 100).all()
assert ended == [7, 8], ended
"""


FORKED_LAST = """
import os
import numpy as np
import pyclmm

def fork(done):
    child = os.fork()
    if child:
        ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        ended.append(os.path.exists("checkpoint"))

def stop(done):
    if done.tiles == done.all_tiles:
        raise KeyboardInterrupt

ended, a = [], np.ones((100, 100), "f4")
for progress in (stop, fork):
    try:
        pyclmm.matmul(a, a, memory_limit="60 KB", checkpoint="checkpoint", progress=progress)
    except KeyboardInterrupt:
        continue
    except pyclmm.ForkError:
        raise SystemExit(8)
assert ended == [8, True], ended
"""


OUTLIVED = """
import os, signal
import numpy as np
import pyclmm

def fork(done):
    children.append(os.fork())
    if not children[-1]:
        signal.pause()
    raise KeyboardInterrupt

children, a = [], np.ones((100, 100), "f4")
try:
    pyclmm.matmul(a, a, memory_limit="60 KB", checkpoint="checkpoint", progress=fork)
except KeyboardInterrupt:
    pass
try:
    assert (pyclmm.matmul(a, a, memory_limit="60 KB", checkpoint="checkpoint") == 100).all()
finally:
    os.kill(children[0], signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    "program",
    [FORKED, FORKED_LAST, OUTLIVED],
    ids=["waits for no thread", "leaves the checkpoint to its parent", "does not keep the folder of a run"],
)
def test_a_process_forked_in_a_run(tmp_path, program):
    """It has none of the run's threads. Its error or a ForkError ends it, and the run goes on."""
    python("-c", program, check=True, env=with_this_package(), cwd=tmp_path, timeout=120)


@pytest.mark.usefixtures("small_tiles")
def test_a_run_that_has_nothing_left_to_do_says_so(tmp_path):
    a, b = (RNG.standard_normal(shape).astype("f4") for shape in ((200, 70), (70, 90)))
    out, seen = np.memmap(tmp_path / "out", "f4", "w+", shape=(200, 90)), []

    with pytest.raises(KeyboardInterrupt):
        pyclmm.matmul(a, b, out=out, checkpoint=tmp_path / "checkpoint", progress=ctrl_c_at(15))
    pyclmm.matmul(a, b, out=out, checkpoint=tmp_path / "checkpoint", progress=seen.append)
    assert [(each.tiles, each.resumed, each.all_tiles) for each in seen] == [(15, 15, 15)]


@pytest.mark.usefixtures("small_tiles")
def test_the_set_of_finished_tiles_is_made_once(monkeypatch, tmp_path):
    """Made for each tile, its time grew by the square of their number."""
    own, made = vars(Checkpoint)["finished"].fget, []
    monkeypatch.setattr(Checkpoint, "finished", property(lambda self: made.append(1) or own(self)))
    a, b = (RNG.standard_normal(shape).astype("f4") for shape in ((200, 70), (70, 90)))
    with pytest.raises(KeyboardInterrupt):
        pyclmm.matmul(a, b, checkpoint=tmp_path / "checkpoint", progress=ctrl_c_at(8))
    made.clear()
    pyclmm.matmul(a, b, checkpoint=tmp_path / "checkpoint")
    assert len(made) == 1


@pytest.mark.usefixtures("small_tiles")
def test_the_bits_of_a_resumed_float64_product_with_c_and_bias_are_the_same(five_tiles, tmp_path):
    a, b, c = (RNG.standard_normal(shape) for shape in ((200, 70), (70, 90), (200, 90)))
    bias = RNG.standard_normal(90)

    def product(**keywords):
        return pyclmm.gemm(a, b, c, alpha=0.5, beta=2.0, bias=bias, activation="relu", **keywords)

    def fail(done):
        raise ZeroDivisionError

    for _ in range(2):  # of 15 tiles they finish 10 at most
        with pytest.raises(ZeroDivisionError):
            product(checkpoint=tmp_path / "checkpoint", progress=fail)
    five_tiles.clear()
    got = product(checkpoint=tmp_path / "checkpoint")
    assert got.tobytes() == product(memory_limit="1 GiB").tobytes()


def test_a_run_goes_on_in_the_tiles_that_it_began_in(tmp_path):
    a, b = (RNG.standard_normal(shape).astype("f4") for shape in ((200, 70), (70, 90)))
    seen = []

    with pytest.raises(KeyboardInterrupt):
        pyclmm.matmul(
            a, b, memory_limit="32 KiB", checkpoint=tmp_path / "checkpoint", progress=ctrl_c_at(1, seen)
        )
    pyclmm.matmul(a, b, memory_limit="1 GiB", checkpoint=tmp_path / "checkpoint", progress=seen.append)
    assert seen[-1].tiles == seen[-1].all_tiles == seen[0].all_tiles > seen[-1].resumed > 0
