"""Files that are mapped into memory: whether two arrays show the same bytes of one, through two maps.

NumPy compares addresses, and two maps of a file (np.memmap, mmap, PyTorch's) have different ones.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ..errors import ArgumentError

Array = np.ndarray[Any, Any]
MAPS = Path("/proc/self/maps")  # Linux's list of this process's maps
_SOMEWHERE = 1 << 46  # an address for a layout alone
_HARD: Any = 100_000  # the most steps to find out whether strided arrays share an element


@dataclass(frozen=True)
class Place:
    """Where a map lies: the address of one of its bytes, the file and the place of that byte in it.
    ``private``: what is written to the map is not written to the file.
    """

    address: int
    file: Hashable
    path: str
    inode: int
    offset: int
    private: bool

    def span(self, x: Array) -> tuple[int, int]:
        """The first byte of *x* in the file, and the byte behind its last. *x* is not empty."""
        low, high = bounds(x)
        return low - self.address + self.offset, high - self.address + self.offset


def bounds(x: Array) -> tuple[int, int]:
    """The addresses of the first byte of *x* and of the one behind its last. *x* is not empty."""
    return reach(x, int(x.__array_interface__["data"][0]))


def reach(x: Any, start: int) -> tuple[int, int]:
    """:func:`bounds` of an array of any kind whose first element lies at *start*."""
    low = high = start
    for length, stride in zip(x.shape, x.strides, strict=True):
        span = (length - 1) * stride
        low, high = (low + span, high) if span < 0 else (low, high + span)
    return low, high + x.dtype.itemsize


def meet(x: Any, x_at: int, y: Any, y_at: int) -> bool:
    """Whether the bytes of two arrays of any kind overlap, whose first elements lie at *x_at* and *y_at*."""
    if x.size == 0 or y.size == 0:
        return False
    (x_low, x_high), (y_low, y_high) = reach(x, x_at), reach(y, y_at)
    return x_low < y_high and y_low < x_high


def extent(x: Array) -> int:
    """Bytes from the first element of *x* to the last, gaps included."""
    if x.flags.forc or not x.size:
        return x.nbytes
    low, high = reach(x, 0)
    return high - low


def laid_at(address: int, x: Any) -> Array:
    """A NumPy array of the layout of *x*, of any kind, at an address, not 0, that nobody reads."""
    layout = {"shape": x.shape, "strides": x.strides, "typestr": f"|V{x.dtype.itemsize}", "version": 3}
    return np.asarray(SimpleNamespace(__array_interface__={**layout, "data": (int(address), True)}))


def share_elements(x: Array, y: Array) -> bool:
    """Whether two arrays have bytes in common, by their addresses. True where that is hard to tell."""
    try:
        return np.shares_memory(x, y, max_work=_HARD)
    except np.exceptions.TooHardError:
        return True


def overlaps_itself(x: Any) -> bool:
    """Whether elements of *x*, an array of any kind, share memory. True where that is hard to tell."""
    reach, steps = x.dtype.itemsize, sorted(zip(map(abs, x.strides), x.shape, strict=True))
    for stride, length in steps:
        if length > 1 and stride < reach:
            break
        reach += (length - 1) * stride  # bytes that the axes so far span
    else:
        return False
    part = laid_at(_SOMEWHERE, x)
    while part.size and part.ndim:  # two elements that meet differ first in one of the axes
        first = part[0, ...]  # a view: part[0] of a vector would be read
        if share_elements(part[1:], first):
            return True
        part = first
    return False


def check_out(x: Any) -> None:
    """Raise ArgumentError if elements of *x*, an ``out`` that is not NumPy's, share memory: nothing says
    which of them is written last."""
    if overlaps_itself(x):
        raise ArgumentError(
            "elements of out share memory, as those of an expanded or broadcast array do; pass an out that "
            "has memory for each, or none to get a new one"
        )


def map_of(x: Any) -> np.memmap[Any, Any] | None:
    """The np.memmap that *x* is, or is a view of; None for any other array."""
    while isinstance(x, np.ndarray) or isinstance(getattr(x, "base", None), np.ndarray):  # as_strided's
        if isinstance(x, np.memmap) and isinstance(getattr(x, "_mmap", None), mmap.mmap):
            return x
        x = x.base
    return None


def place_at(address: int) -> Place | None:
    """The map that begins at, or holds, *address*. None if no file is mapped there, or nobody can tell."""
    try:
        with MAPS.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                span, access, offset, device, inode, *path = line.split(maxsplit=5)
                first, last = (int(end, 16) for end in span.split("-"))
                if first <= address < last:
                    at = int(offset, 16) + address - first
                    name = "".join(path).rstrip("\n")
                    found = Place(address, (device, inode), name, int(inode), at, "p" in access)
                    return found if found.inode else None
    except (OSError, ValueError):
        pass
    return None


def shares_file(x: Array, out: Array) -> bool:
    """Whether writing *out* changes an element of *x* because both show the same bytes of a file. True where
    that is hard to tell.
    """
    theirs = _place(out) if out.size and x.size and not out.flags.owndata else None
    mine = None if theirs is None or theirs.private else place_of(x)
    if theirs is None or mine is None or mine.file != theirs.file:
        return False  # a private map shows what is written to the file until its own pages are written
    return share_elements(_in_file(x, mine), _in_file(out, theirs))


def in_files(xs: Sequence[Any], addresses: Any, first_out: int) -> Any:
    """The *addresses* of the arrays *xs*, some None, as if each file were mapped once, far from all memory.
    From *first_out* on they are written: there private maps stay."""
    found, files = addresses.copy(), dict[Hashable, int]()
    for at, x in enumerate(xs):
        place = None if x is None or x.flags.owndata else _place(x)
        if place is not None and not (place.private and at >= first_out):
            found[at] += files.setdefault(place.file, len(files) + 1 << 48) + place.offset - place.address
    return found


def _in_file(x: Array, place: Place) -> Array:
    """An array like *x* whose addresses are places in the file, a page further on."""
    at = int(x.__array_interface__["data"][0]) - place.address + place.offset
    return laid_at(at + mmap.PAGESIZE, x)


def span_in(x: Array, path: Path) -> tuple[int, int] | None:
    """The first byte of *x* in the file at *path*, and the one behind its last; None if it is not there."""
    place = place_of(x)
    try:
        return place.span(x) if place is not None and os.stat(path).st_ino == place.inode else None
    except OSError:
        return None


_places: WeakKeyDictionary[mmap.mmap, Place | None] = WeakKeyDictionary()  # the system's list is long


def place_of(x: Array) -> Place | None:
    """The place of the map that *x* shows, whoever has made it; None for plain memory, or without elements.
    For memory that neither NumPy nor mmap owns the system's list is read: about a millisecond.
    """
    if not x.size:
        return None
    root = _root(x)
    if root is None or isinstance(root, mmap.mmap):
        return _place(x)
    return place_at(bounds(x)[0])


def _place(x: Array) -> Place | None:
    """:func:`place_of` for maps that are known at once: Python's, and those of PyTorch."""
    root = _root(x)
    if _is_mapped_by_torch(root):
        return place_at(bounds(x)[0])
    if not isinstance(root, mmap.mmap):
        return None
    if root not in _places:
        try:
            address = int(np.frombuffer(root, np.uint8).__array_interface__["data"][0])
        except ValueError:  # it is closed: there is nothing to read or write
            return None
        _places[root] = place_at(address) or _by_name(map_of(x), address)
    return _places[root]


def _root(x: Array) -> Any:
    """What owns the memory that *x* shows; None if an array does."""
    root: Any = x
    while isinstance(root, np.ndarray) or isinstance(getattr(root, "base", None), np.ndarray):
        root = root.base  # the base of what as_strided returns is no array, and has one
    return root.obj if isinstance(root, memoryview) else root


def _is_mapped_by_torch(x: Any) -> bool:
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    if tensor is None or not isinstance(x, tensor):
        return False
    return getattr(x.untyped_storage(), "filename", None) is not None


def _by_name(owner: np.memmap[Any, Any] | None, address: int) -> Place | None:
    """The place by the file's name, where the system has no list of maps."""
    if owner is None or owner.filename is None or MAPS.exists():
        return None
    try:
        status = os.stat(owner.filename)
    except OSError:
        return None
    start = owner.offset - owner.offset % mmap.ALLOCATIONGRANULARITY
    file = status.st_dev, status.st_ino
    return Place(address, file, os.fspath(owner.filename), status.st_ino, start, owner.mode == "c")
