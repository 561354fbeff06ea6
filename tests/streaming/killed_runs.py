"""Run by test_resume.py: one product with a checkpoint, in a child process for each run, killed but the last.

Arguments: the folder, the kind of out, the number of kills. Each run is a fork of a process that has imported
everything and used no device. A run kills itself by SIGKILL at a point that its number decides. The log has a
line for each thing that happened, in order.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from pathlib import Path

import numpy as np

import pyclmm
from pyclmm.streaming import checkpoint, journal, lanes, machines, storage
from pyclmm.streaming.tiles import Blocking

TILE = 8
M, K, N = 20 * TILE, 24, 10 * TILE
WAYS = ("progress", "write", "begin", "line", "safe")
COMPLETE = 3  # exit status of a run that was to be killed and was not

folder, kind, kills = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(*words: object) -> None:
    os.write(log, (" ".join(map(str, words)) + "\n").encode())


class Kill:
    """Ends this process at the n-th *way*; what was half done stays so."""

    def __init__(self, number: int) -> None:
        self.way, self.left = WAYS[number % len(WAYS)], random.Random(number).randint(1, 4)
        self.room = threading.Semaphore(8)  # tiles between begin and progress: few more than n are finished

    def due(self, way: str) -> bool:
        if way == self.way:
            self.left -= 1
        return way == self.way and self.left == 0

    def now(self) -> None:
        note("killed", self.way)
        os.kill(os.getpid(), signal.SIGKILL)


def blocking(_fit: object, kept: object = None) -> Blocking:
    return Blocking(1, TILE, TILE, K // 2, 2, 3, 3, 2) if kept is None else Blocking.from_json(kept)


def place_of(rows: slice, columns: slice) -> str:
    return f"{rows.start // TILE},{columns.start // TILE}"


def watch(kill: Kill) -> None:
    """Log what happens, and kill in the middle of it."""
    for sink in (storage.ArrayStorage, storage.MappedStorage, storage.DatasetStorage):
        patch_write(sink, kill)
    patch_journal(kill)
    patch_folder(kill)
    for lane in (lanes.HostLane, lanes.DeviceLane):
        patch_begin(lane, kill)


def patch_begin(kind, kill: Kill) -> None:
    begin = kind.begin

    def begun(lane, tile, slot):
        kill.room.acquire()
        note("begin", tile.number, place_of(slice(*tile.rows), slice(*tile.columns)))
        begin(lane, tile, slot)
        if kill.due("begin"):
            kill.now()

    kind.begin = begun


def patch_journal(kill: Kill) -> None:
    add, put = journal.Journal.add, journal.Journal._write

    def added(self, tile, size, digest):
        add(self, tile, size, digest)
        note("kept", tile)

    def line(self, text):
        if kill.due("line"):
            os.write(self._handle, text.encode()[: len(text) // 2])
            kill.now()
        put(self, text)

    journal.Journal.add, journal.Journal._write = added, line


def patch_folder(kill: Kill) -> None:
    own, kept = vars(checkpoint), vars(checkpoint.Checkpoint)
    whole, opened = own["write_whole"], kept["_opened"].__func__

    def safe(path, content):
        if path.name.startswith("pyclmm-tile") and kill.due("safe"):
            (path.parent / ".pyclmm-new-half").write_bytes(bytes(content)[:9])
            kill.now()
        found = whole(path, content)
        if path.name.startswith("pyclmm-tile") and kill.due("safe"):
            kill.now()
        return found

    def resumed(cls, *given):
        found = opened(cls, *given)
        note("resumed", *sorted(found.finished))
        return found

    own["write_whole"] = safe
    checkpoint.Checkpoint._opened = classmethod(resumed)


def patch_write(sink, kill: Kill) -> None:
    write = sink.write

    def written(self, block, region):
        note("write", place_of(region.rows, region.columns))
        if kill.due("write") or (self.persistent and kill.due("safe")):
            half = len(block) // 2
            write(self, block[:half], region.cut(-2, 0, half))
            kill.now()
        write(self, block, region)

    sink.write = written


def opened():
    """The out of a run, and what keeps it open."""
    if kind == "memmap":
        return np.load(folder / "out.npy", mmap_mode="r+")
    if kind == "hdf5":
        import h5py  # noqa: PLC0415

        return h5py.File(folder / "out.h5", "r+")["x"]
    if kind == "zarr":
        import zarr  # noqa: PLC0415

        return zarr.open_array(folder / "out.zarr", mode="r+")
    return None


def product(number: int) -> None:
    """Run *number* of the product. The last one ends."""
    machines.Fit.blocking = blocking
    a, b = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in "ab")
    if number < 0:
        np.save(folder / "expected.npy", pyclmm.matmul(a, b, memory_limit=1 << 30))
        return
    kill = Kill(number)
    if number == kills:
        kill.way = "none"
    watch(kill)
    note("run", number)

    def progress(done):
        kill.room.release()
        if kill.due("progress"):
            kill.now()

    got = pyclmm.matmul(a, b, out=opened(), checkpoint=folder / "checkpoint", progress=progress)
    np.save(folder / "got.npy", got[:])


def forked(number: int) -> int:
    """The exit status of run *number*."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        product(number)
        os._exit(COMPLETE if 0 <= number < kills else 0)
    except BaseException:
        import traceback  # noqa: PLC0415

        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    for run in range(-1, kills + 1):
        wanted = -signal.SIGKILL if 0 <= run < kills else 0
        status = forked(run)
        if status != wanted:
            sys.exit(f"run {run} ended with {status}, not {wanted}")
