"""Finished tiles of a product, kept in a folder, so that a run that was killed goes on where it ended.

===================  =======================================================================================
``pyclmm-journal``   what is computed, then a line for each finished tile, each with a check sum and the
                     digest of the tile, in its file or in ``out``
``pyclmm-tile-N``    a tile whose ``out`` does not survive the process; written before its line
``pyclmm-lock``      locked by the process at work, however that ends
===================  =======================================================================================

A line is in the journal only after the tile is safe, and is not believed: the digest is compared with what
``out`` has. The journal is removed last, with a last line "done": so no moment of a kill looks like damage.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CheckpointError, CheckpointWarning, StorageError, warn_caller
from . import journal
from .datasets import failing_as, is_hdf5
from .fingerprints import WrittenTile, tile_digest
from .journal import ANEW, FolderLock, Journal, damaged, unusable, write_whole
from .storage import DatasetStorage, Storage
from .tiles import Region

JOURNAL, LOCK, TILE = "pyclmm-journal", "pyclmm-lock", "pyclmm-tile-"


class Checkpoint:
    """The finished tiles of one product; see :meth:`open`. Several threads may call its methods."""

    def __init__(self, folder: Path, lock: FolderLock, log: Journal, sink: Storage) -> None:
        self.folder, self._sink = folder, sink
        self._lock, self._journal, self._guard = lock, log, threading.Lock()
        # Filters of a dataset may round what is written. HDF5's cache would not show it.
        self._was_read = isinstance(sink, DatasetStorage) and is_hdf5(sink.x)
        self._is_exact = True

    @classmethod
    def open(cls, path: Path, problem: Mapping[str, Any], tiles: int, sink: Storage) -> Checkpoint:
        """A new folder, for this user only, or one that goes on. *problem* is what JSON can say. Raises
        CheckpointError if it is of another product, ``out`` or owner, damaged, in use, not writable, or has
        other files.
        """
        asked = {"version": journal.VERSION, "problem": problem, "tiles": tiles, "out": sink.place}
        asked = json.loads(json.dumps(asked))
        with unusable(path, "cannot be written"):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _stored(path) is None:
                _refuse_others(path)  # before the lock: nothing is left in a folder of someone else
            lock = FolderLock(path / LOCK)
            try:
                return cls._opened(path, lock, asked, sink)
            except BaseException:
                lock.release(remove=not (path / JOURNAL).exists())
                raise

    @classmethod
    def _opened(cls, path: Path, lock: FolderLock, asked: dict[str, Any], sink: Storage) -> Checkpoint:
        stored = _stored(path)
        if stored is None:
            _empty(path)
            log = Journal.new(path / JOURNAL, {**asked, "mark": sink.set_mark()})
        else:
            _compare(path, stored.head, asked)
            log = Journal(path / JOURNAL, stored)
        # Tiles that no line names, and halves of files, are of a kill that came before the line.
        kept = {f"{TILE}{tile}" for tile, (size, _) in log.records.items() if size}
        for left in (*path.glob(f"{TILE}*"), *path.glob(".pyclmm-new-*")):
            if left.name not in kept:
                left.unlink()
        return cls(path, lock, log, sink)

    @staticmethod
    def peek(folder: Path) -> Mapping[str, Any] | None:
        """The stored problem, without opening; None if none. Raises CheckpointError if it is damaged."""
        stored = _stored(folder)
        return None if stored is None else stored.head["problem"]

    @property
    def finished(self) -> frozenset[int]:
        """The numbers of the tiles that need not be computed again."""
        return frozenset(self._journal.records)

    def verify(self, region_of: Callable[[int], Region]) -> None:
        """Compare ``out`` with the digests of the tiles that lie in it; *region_of*: where a tile lies.

        One that differs, or cannot be read, is not finished any more, and a CheckpointWarning says so. Raises
        CheckpointError instead if ``out`` is another array: its mark is another, and a tile differs.
        """
        noted = {tile: digest for tile, (size, digest) in self._journal.records.items() if not size}
        if not noted:
            return
        lost = [tile for tile, digest in noted.items() if self._digest_now(region_of(tile)) != digest]
        if not lost:
            return
        what = f"{len(lost)} of the {len(noted)} tiles that checkpoint {self.folder} notes as finished"
        if self._sink.mark != self._journal.head["mark"]:
            raise CheckpointError(
                f"out is another array than the one that the run began with ({self._sink.place}), and lacks "
                f"{what}; put that one back, or {ANEW}"
            )
        for tile in lost:
            del self._journal.records[tile]
        warn_caller(
            f"out was changed since it was written: it lacks {what}; they are computed again",
            CheckpointWarning,
        )

    def _digest_now(self, region: Region) -> str | None:
        """The digest of a part of ``out``; None for one that cannot be read: a damaged chunk, say."""
        with contextlib.suppress(StorageError):
            return self.digest(region)
        return None

    def written(self, region: Region, dtype: np.dtype[Any]) -> WrittenTile | None:
        """What notes a tile while its blocks, of *dtype*, are written; None where ``out`` is read back."""
        fits = isinstance(self._sink, DatasetStorage) and self._sink.dtype.itemsize == dtype.itemsize
        return WrittenTile(self._sink.dtype, region) if fits and self._is_exact else None

    def digest(self, region: Region, written: WrittenTile | None = None) -> str:
        """The digest of a part of ``out``, as it was *written* if it has that. Raises StorageError."""
        if written is not None:
            with self._guard:  # of threads that end their first tiles at once, one looks
                if not self._was_read:
                    self._was_read, self._is_exact = True, written.is_in(self._sink)
        if written is not None and self._is_exact:
            return written.digest()
        return tile_digest(self._sink, region)

    def finish(self, tile: int, block: NDArray[Any] | None, digest: str = "-") -> None:
        """Record that *tile* is finished. *block*, in C order, is kept; None: ``out`` has it, by *digest*,
        and is flushed. Raises StorageError if the folder cannot be written. What was finished before stays
        finished.
        """
        size = 0
        with failing_as(f"checkpoint {self.folder}", f"tile {tile}", "kept"):
            if block is not None:
                content = memoryview(block.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
                size, digest = write_whole(self.folder / f"{TILE}{tile}", content)
            with self._guard:
                self._journal.add(tile, size, digest)

    def blocks(self) -> Iterator[tuple[int, bytearray]]:
        """The kept tiles by number, as bytes. Raises CheckpointError if one was changed."""
        for tile, (size, digest) in sorted(self._journal.records.items()):
            if size:
                yield tile, _read(self.folder / f"{TILE}{tile}", digest)

    def __enter__(self) -> None:
        """Close it at the end of the block, after which the product is complete if nothing was raised."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(remove=kind is None)

    def close(self, remove: bool) -> None:
        """End. *remove* says that the product is complete: its own files are removed."""
        try:
            if remove:
                with failing_as("checkpoint", f"the content of {self.folder}", "removed"):
                    self._sink.remove_mark()
                    self._sink.flush()
                    with contextlib.suppress(FileNotFoundError):  # somebody has removed the folder
                        self._journal.done()
                        _empty(self.folder)
        finally:
            self._journal.close()
            self._lock.release(remove)
        if remove:
            with contextlib.suppress(OSError):  # a link, a mount, or one that holds another's file by now
                if not os.path.samefile(self.folder, os.curdir):  # without which nothing relative is found
                    self.folder.rmdir()


def _stored(folder: Path) -> journal.Contents | None:
    """What the folder's journal says; None if it holds no product, or a complete one."""
    path = folder / JOURNAL
    journal.refuse_untrusted(folder)
    with unusable(folder, "cannot be read"):
        if journal.is_done(path):
            return None
        try:
            return journal.contents(path)
        except FileNotFoundError:
            if next(folder.glob(f"{TILE}*"), None) is not None:
                raise damaged(path, "it is missing") from None
            return None


def _empty(folder: Path) -> None:
    """Remove what a product has left, the journal last. Raises CheckpointError if there are other files."""
    own = [*folder.glob(f"{TILE}*"), *folder.glob(".pyclmm-new-*"), folder / JOURNAL]
    _refuse_others(folder)
    for path in own:
        path.unlink(missing_ok=True)


def _refuse_others(folder: Path) -> None:
    """Raises CheckpointError if the folder holds files that no product has left."""
    names = sorted(path.name for path in folder.iterdir())
    others = [
        name for name in names if name not in (JOURNAL, LOCK) and not name.startswith((TILE, ".pyclmm-new-"))
    ]
    if others and not journal.is_done(folder / JOURNAL):
        raise CheckpointError(
            f"checkpoint folder {folder} holds other files ({others[0]}); name one of its own"
        )


def _compare(folder: Path, stored: Any, asked: Any) -> None:
    for field in asked:
        found = _difference(field, stored[field], asked[field])
        if found is not None:
            raise CheckpointError(
                f"checkpoint {folder} is of another product: {found}; pass the same operands and out, name "
                f"another folder, or {ANEW}"
            )


def _difference(field: str, old: Any, new: Any) -> str | None:
    """The first field in which two problems differ, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        both = (_difference(f"{field}.{key}", old.get(key), new.get(key)) for key in {**old, **new})
        return next(filter(None, both), None)
    return None if old == new else f"{field.removeprefix('problem.')} was {old!r} and is {new!r}"


def _read(path: Path, digest: str) -> bytearray:
    try:
        content = bytearray(path.read_bytes())
    except FileNotFoundError:
        raise damaged(path, "it is missing") from None
    except OSError as error:
        raise damaged(path, str(error)) from error
    if journal.digest_of(content) != digest:
        raise damaged(path, "its digest is not the one that was written")
    return content
