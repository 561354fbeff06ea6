"""A product that is killed again and again, for test_resume.py: `python killed_runs.py KIND FOLDER RUNS`.

This process imports pyclmm and uses no device. It forks a child for each run, which multiplies FOLDER/a.npy
and b.npy with the checkpoint FOLDER/tiles, and kills itself at a point drawn from a seed; the last run ends.
FOLDER/log gets a line for each write of a tile ("W place"), for each that is finished ("F place"), and for
each run ("R").
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from pathlib import Path

import h5py
import numpy as np
import zarr

import pyclmm
from pyclmm.streaming import checkpoint, sinks

LIMIT = 24 << 10
_here = threading.local()


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class Fate:
    """Ends the process at the point *how*, once it was passed *count* times. Notes what happens in *log*."""

    def __init__(self, log, how, count):
        self._log, self._how, self._left, self._lock = log, how, count, threading.Lock()

    def note(self, line):
        os.write(self._log, f"{line}\n".encode())

    def has_come(self, point):
        with self._lock:
            self._left -= point == self._how
            return point == self._how and self._left < 0

    def over_writes(self, kind):
        """Have it in each write of a kind of sink."""
        plain = kind.__dict__["write"]

        def write(sink, block, index, rows, columns):
            _here.place = f"{rows.start} {columns.start}"
            self.note(f"W {_here.place}")
            if self.has_come("in a write"):
                half = slice(rows.start, (rows.start + rows.stop) // 2)
                plain(sink, block[: half.stop - half.start], index, half, columns)
                die()
            plain(sink, block, index, rows, columns)

        kind.write = write

    def over_notes(self):
        """Have it before and after a finished tile is noted."""
        finish = checkpoint.Checkpoint.finish

        def finished(kept, tile, block):
            if self.has_come("before it is noted"):
                die()
            finish(kept, tile, block)
            if block is None:
                self.note(f"F {_here.place}")
            if self.has_come("after it is noted"):
                die()

        checkpoint.Checkpoint.finish = finished


def result(kind, folder, shape):
    """``out`` of a run, and what closes it."""
    if kind == "memory":
        return None, None
    if kind == "mapped":
        path = folder / "out.npy"
        mode = "r+" if path.exists() else "w+"
        return np.lib.format.open_memmap(path, mode, np.float32, None if mode == "r+" else shape), None
    if kind == "zarr":
        path = folder / "out.zarr"
        if path.exists():
            return zarr.open_array(path, mode="r+"), None
        return zarr.open_array(path, mode="w", shape=shape, dtype="f4", chunks=(32, 32)), None
    file = h5py.File(folder / "out.h5", "a")
    if "out" not in file:
        file.create_dataset("out", shape, "f4")
        file.flush()
    return file["out"], file


def run(kind, folder, fatal):
    """One run; it dies at the *fatal* (point, after how many times)."""
    log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    fate = Fate(log, *fatal)
    fate.note("R")
    fate.over_notes()
    for sink in (sinks.MappedSink, sinks.DatasetSink, sinks.ArraySink):
        fate.over_writes(sink)
    a, b = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in "ab")
    out, file = result(kind, folder, (a.shape[0], b.shape[1]))
    got = pyclmm.matmul(a, b, out=out, memory_limit=LIMIT, checkpoint=folder / "tiles")
    np.save(folder / "result.npy", got[()] if kind != "memory" else got)
    if file is not None:
        file.close()


def main():
    kind, folder, runs = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    draw = random.Random(folder.name)
    points = ["in a write", "before it is noted", "after it is noted"]
    if kind == "hdf5":
        points.remove("in a write")  # it can damage an HDF5 file itself
    for number in range(runs + 1):
        is_last = number == runs
        fatal = ("never" if is_last else points[number % len(points)], draw.randrange(3))
        child = os.fork()
        if not child:
            status = 1
            try:
                run(kind, folder, fatal)
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        wanted = 0 if is_last else signal.SIGKILL
        if status != wanted:
            sys.exit(f"run {number}, which was to die {fatal}, ended with status {status}")


if __name__ == "__main__":
    main()
