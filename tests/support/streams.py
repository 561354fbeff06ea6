"""Operands of the tests of products in tiles."""

import errno

import numpy as np

RNG = np.random.default_rng(11)


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def integers(*shape, dtype=np.float32):
    """Small ones, whose products are exact in every order of the sums."""
    return RNG.integers(-4, 5, shape).astype(dtype)


def ctrl_c_at(tiles, seen=None):
    """What is told of progress, until Ctrl-C comes with so many *tiles*. *seen* gets all that is told."""

    def progress(done):
        if seen is not None:
            seen.append(done)
        if done.tiles == tiles:
            raise KeyboardInterrupt

    return progress


class Stored:
    """A user's own kind of array in storage. It counts reads and writes; those beyond the limits fail."""

    chunks = None

    def __init__(self, array, reads=10**9, writes=10**9):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        self.limits, self.reads, self.writes = (reads, writes), 0, 0

    def __getitem__(self, where):
        self.reads += 1
        if self.reads > self.limits[0]:
            raise OSError("the disk is gone")
        return self.array[where]

    def __setitem__(self, where, value):
        self.writes += 1
        if self.writes > self.limits[1]:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.array[where] = value
