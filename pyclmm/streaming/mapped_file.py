"""The file behind a memory map: where an array lies in it, whether it is long enough, reads past the map.

To touch a page of a map behind the file's end, or one that a full disk has no block for, ends the process by
SIGBUS. So the file's length is compared before each access, and blocks are reserved before the first.
"""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from ..opencl.mappings import MAPS, bounds, place_at
from .journal import sync

_CANNOT_RESERVE = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV, errno.EPERM}


class MappedFile:
    """The file of the memory map *owner*. Its methods may be called by several threads at once."""

    def __init__(self, owner: np.memmap[Any, Any]) -> None:
        self._mmap: mmap.mmap = owner._mmap  # type: ignore[attr-defined]
        self.mode = str(owner.mode)
        self._address = int(np.frombuffer(self._mmap, np.uint8).__array_interface__["data"][0])
        self._start = owner.offset - owner.offset % mmap.ALLOCATIONGRANULARITY  # of the map, in the file
        name = owner.filename
        self.path = None if name is None else Path(os.fsdecode(name)).absolute()
        self._handle = self._open()
        if self._handle is not None:
            finalize(self, os.close, self._handle).atexit = False

    def _open(self) -> int | None:
        """A handle of the very file that is mapped; None if it is not known to be there."""
        if self.path is None:
            return None
        place = place_at(self._address)
        try:
            handle = os.open(self.path, os.O_RDONLY if self.mode in ("r", "c") else os.O_RDWR)
        except OSError:
            return None
        if place is None or os.fstat(handle).st_ino != place.inode:
            os.close(handle)
            return None
        return handle

    @property
    def has_name(self) -> bool:
        """Whether a later process can open the file."""
        return self._handle is not None or (
            not MAPS.exists() and self.path is not None and self.path.is_file()
        )

    def place(self, x: NDArray[Any]) -> tuple[int, int]:
        """The first byte of the view *x* in the file, and the byte behind its last. *x* is not empty."""
        low, high = bounds(x)
        return self._start + low - self._address, self._start + high - self._address

    def check(self, x: NDArray[Any]) -> None:
        """Raise OSError if the file ends before *x* does, or its length cannot be read."""
        if not x.size:
            return
        try:
            length = self._mmap.size()
        except ValueError as error:
            raise OSError("its memory map is closed") from error
        end = self.place(x)[1]
        if length < end:
            raise OSError(f"the file has {length} bytes and would need {end}; it was cut after it was opened")

    def can_read(self) -> bool:
        """Whether :meth:`read` works: not for private pages, which the file does not have."""
        return self._handle is not None and self.mode != "c" and hasattr(os, "preadv")

    def read(self, target: NDArray[Any], x: NDArray[Any]) -> None:
        """Read *x* into *target*, both of consecutive bytes. Raises OSError."""
        at = self.place(x)[0]
        left = memoryview(target.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        while left:
            count = os.preadv(self._handle, [left], at)  # type: ignore[arg-type]
            if count == 0:
                raise OSError(f"the file ends at byte {at}; it was cut after it was opened")
            left, at = left[count:], at + count

    def reserve(self, x: NDArray[Any]) -> None:
        """Give the bytes of *x* blocks on the disk, where the system can. Raises OSError if it is full. File
        systems that write elsewhere each time (btrfs, ZFS) may still be full later.
        """
        if self._handle is None or not x.size or not hasattr(os, "posix_fallocate"):
            return
        status = os.fstat(self._handle)
        if status.st_blocks * 512 >= status.st_size:
            return
        first, end = self.place(x)
        try:
            os.posix_fallocate(self._handle, first, end - first)
        except OSError as error:
            if error.errno not in _CANNOT_RESERVE:
                raise

    def settle(self) -> None:
        """Wait until the file has on the disk what any map of it was given, and its name. Raises OSError."""
        if self._handle is not None and self.path is not None:
            os.fsync(self._handle)
            sync(self.path.parent)

    def flush(self) -> None:
        """Wait until what was written is on the disk. Raises OSError, and ValueError if the map is closed."""
        self._mmap.flush()
