"""What every result of a command does: it refuses places that hold something else, begins, and ends."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..streaming.journal import digest_of
from .matrix_files import KINDS, Files, MatrixPlace, is_zarr_array, read_of, reading
from .output import CommandError
from .paths import overlap, real


class Result(ABC):
    """A result that takes its place when it is complete. Call refuse_overlaps and check, then begin or go_on,
    then finish or give_up.
    """

    def __init__(self, place: MatrixPlace, checkpoint: Path | None) -> None:
        self.place, self.checkpoint = place, checkpoint
        named = [place.name, str(checkpoint and real(checkpoint))]
        self.tag = f"unfinished-{digest_of(json.dumps(named).encode())[:8]}"

    def refuse_overlaps(
        self, files: Files, operands: Iterable[tuple[MatrixPlace, Any]], others: Mapping[str, Path | None]
    ) -> None:
        """Raise CommandError if the result, or one of *others* by option, shares bytes with what is read."""
        written = {name: path for name, path in others.items() if path is not None}
        for place, x in operands:
            for path, name in read_of(place, x):
                if self._holds(files, path, name):
                    raise CommandError(
                        f"{self.place.text}: OUT is an operand too, or lies in or around {place.text}, or is "
                        f"first written there; name another, of {KINDS}"
                    )
                _refuse(written, path, place.text)
        for root in self.roots:
            _refuse(written, root, self.place.text)
        for name, path in written.items():
            _refuse({other: at for other, at in written.items() if other != name}, path, name)

    @property
    def roots(self) -> tuple[Path, ...]:
        """The files and folders that are written."""
        return (self.place.root,)

    def _holds(self, files: Files, path: Path, name: str) -> bool:
        """Whether what an operand is read from shares bytes with the result."""
        return any(overlap(path, root) for root in self.roots)

    def check(self, files: Files, dtype: np.dtype[Any], overwrite: bool) -> None:
        """Raise CommandError unless the place is free, or has such a matrix and *overwrite* is set."""
        text, root = self.place.text, self.place.root
        if dtype.isbuiltin == 2:  # of ml_dtypes
            raise CommandError(f"{text}: files have no name for {dtype}; pass --dtype float32")
        store = real(self.place.path)
        if not store.parent.is_dir():
            raise CommandError(f"{text}: there is no folder {store.parent}")
        around = next((at for at in root.parents if is_zarr_array(at)), None)
        if around is not None:
            raise CommandError(f"{text}: it lies within the Zarr array {around}; name a place beside it")
        with reading(self.place, text):
            there = self._found(files)
        if there is not None and (there.dtype.kind not in "biufc" or not there.shape):
            raise self._no_matrix(f"it holds {there.dtype} of shape {there.shape}")
        if there is not None and not overwrite:
            raise CommandError(f"{text} is there; name another, or pass --overwrite")

    @abstractmethod
    def _found(self, files: Files) -> Any:
        """The matrix at the result's place, or None. Raises CommandError, or anything, for no matrix."""

    @abstractmethod
    def begin(self, files: Files, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A new matrix, which is not yet at its place, in place of what a killed run has left of one."""

    @abstractmethod
    def go_on(self, files: Files) -> Any:
        """What the same command has begun. Raises CommandError if it is gone."""

    @abstractmethod
    def finish(self) -> None:
        """Give the matrix, which is complete, its place."""

    @abstractmethod
    def give_up(self, keep: bool) -> None:
        """End before the matrix is complete: *keep* what there is of it, to go on, or remove it."""

    def _gone(self) -> CommandError:
        return CommandError(
            f"{self.place.text}: {self.checkpoint} holds finished tiles of another OUT, or of one that is "
            "gone; delete that folder to start anew"
        )

    def _no_matrix(self, what: str) -> CommandError:
        return CommandError(f"{self.place.text}: {what}; name another, of {KINDS}")


def _refuse(written: Mapping[str, Path], path: Path, text: str) -> None:
    for name, at in written.items():
        if overlap(at, path):
            raise CommandError(f"{at}: {name} is, or lies in or around, {text}; name another")
