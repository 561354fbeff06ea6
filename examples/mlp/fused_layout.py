"""Where `fused` keeps everything in its buffers, as numbers for fused.cl. Pure: it asks no device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from .model import Parameters, Sizes

_ALIGNMENT = 16  # floats: 64 bytes, the widest vector and a cache line
_X_PLACES = 3  # of a batch: this step's, the next one's, and the one that is gathered
_A_PLACES = 2  # of activations: a slow work-group may read this step's while a fast one writes the next one's


@dataclass(frozen=True)
class Choice:
    """How fused.cl is compiled. Its head says what each macro means; every number is a power of two."""

    tile: int = 8
    local: int = 1
    vb: int = 8
    vw: int = 1
    vk: int = 8
    in_flight: int = 1
    row_loads: int = 8
    hold: bool = False
    stage: bool = False
    asynchronous: bool = False
    coherent: int = 0
    meet: int = 0
    unroll_layers: bool = False
    patience: int = 1_000_000
    clocks: bool = False


class Layout:
    """The padded sizes, the parts of each buffer, and the macros, for work-groups up to *groups*."""

    def __init__(self, sizes: Sizes, batch: int, choice: Choice, groups: int) -> None:
        self.sizes, self.batch, self.choice, self.groups = sizes, batch, choice, groups
        step = max(choice.tile, choice.vw, choice.vk)
        self.pitches = [_padded(n, step) for n in sizes[:-1]]
        self.pictures = _padded(batch, max(choice.vb, 4))
        self.hidden = len(sizes) - 2
        self.outputs = sizes[-1]
        self._place_store()
        self._place_exchange()
        self._place_held()
        self._place_staged()

    def _place_store(self) -> None:
        """Weights by columns and by rows, as the kernel copies them, and the last layer."""
        parts = _Parts()
        self.columns_at = [parts.add(a * b) for a, b in pairwise(self.pitches)]
        self.rows_at = [
            parts.add(a * b if layer else 0) for layer, (a, b) in enumerate(pairwise(self.pitches))
        ]
        self.bias_at = [parts.add(pitch) for pitch in self.pitches[1:]]
        self.last_floats, self.last_d_at = self._last()
        self.last_at = parts.add(self.last_floats)
        self.copies_at = parts.add(0 if self.choice.hold else self.groups * self.last_floats)
        self.store_floats = parts.end

    def _last(self) -> tuple[int, int]:
        """(floats, where D[last] begins) of a work-group's copy of the last layer."""
        parts = _Parts()
        parts.add(self.outputs * (self.pitches[-1] + 1))
        d_at = parts.add(self.outputs * self.pictures)
        return parts.end, d_at

    def _place_exchange(self) -> None:
        """What work-groups give each other, each matrix twice: across and along."""
        parts, both = _Parts(), 2 * self.pictures
        self.x_at = parts.add(_X_PLACES * both * self.pitches[0])
        self.a_at = [parts.add(_A_PLACES * both * pitch) for pitch in self.pitches[1:]]
        self.d_at = [parts.add(both * pitch) for pitch in self.pitches[1:]]
        self.exchange_floats = parts.end

    def _place_held(self) -> None:
        """The local memory that holds the tiles of one work-group."""
        parts, tile = _Parts(), self.choice.tile
        slots = [-(-pitch // (tile * self.groups)) for pitch in self.pitches[1:]]
        self.held_columns_at = [parts.add(n * tile * p) for n, p in zip(slots, self.pitches, strict=False)]
        ahead = zip(
            [0, *slots], self.pitches[1:], strict=False
        )  # of the layer before: its columns are my rows
        self.held_rows_at = [parts.add(n * tile * p) for n, p in ahead]
        self.held_bias_at = [parts.add(n * tile) for n in slots]
        self.held_a_at = [parts.add(n * tile * self.pictures) for n in slots]
        self.held_d_at = [parts.add(n * tile * self.pictures) for n in slots]
        self.held_last_at = parts.add(self.last_floats)
        self.held_floats = parts.end

    def _place_staged(self) -> None:
        """The local memory for copies of X, of each A, and of one D."""
        parts = _Parts()
        self.staged_at = [parts.add(self.pictures * pitch) for pitch in self.pitches]
        self.staged_d_at = parts.add(self.pictures * max(self.pitches[1:]))
        self.staged_floats = parts.end

    @property
    def tiles(self) -> int:
        """The tiles of the widest layer: more work-groups would have nothing to do."""
        return max(self.pitches[1:]) // self.choice.tile

    @property
    def local_bytes(self) -> int:
        """Local memory of a work-group."""
        lanes = self.pictures // self.choice.vb
        slices = max(1, self.choice.local // lanes)
        partial = slices * max(self.choice.tile, self.outputs) * self.pictures
        held = self.held_floats if self.choice.hold else 0
        staged = self.staged_floats if self.choice.stage else 0
        return 4 * (partial + 2 * self.pictures + 2 + held + staged) + 64

    def macros(self) -> str:
        """Lines of OpenCL C that stand before fused.cl: not every driver takes braces in its options."""
        row_loads = self.choice.row_loads
        while self.pictures % row_loads:
            row_loads //= 2
        values: dict[str, int | list[int]] = {
            "LAYERS": self.hidden + 1, "INPUTS": self.sizes[0], "OUTPUTS": self.outputs,
            "BATCH": self.batch, "PICTURES": self.pictures, "PITCHES": self.pitches,
            "COLUMNS_AT": self.columns_at, "ROWS_AT": self.rows_at, "BIAS_AT": self.bias_at,
            "LAST_AT": self.last_at, "LAST_D_AT": self.last_d_at, "LAST_FLOATS": self.last_floats,
            "COPIES_AT": self.copies_at, "X_AT": self.x_at, "A_AT": self.a_at, "D_AT": self.d_at,
            "TILE": self.choice.tile, "LOCAL": self.choice.local, "VB": self.choice.vb, "VW": self.choice.vw,
            "VK": self.choice.vk, "IN_FLIGHT": self.choice.in_flight, "ROW_LOADS": row_loads,
            "HOLD": int(self.choice.hold), "STAGE": int(self.choice.stage),
            "ASYNC": int(self.choice.asynchronous), "COHERENT": self.choice.coherent,
            "MEET": self.choice.meet, "PATIENCE": self.choice.patience,
            "CLOCKS": int(self.choice.clocks), "UNROLL_LAYERS": int(self.choice.unroll_layers),
        }  # fmt: skip
        if self.choice.hold:
            values |= {
                "HELD_COLUMNS_AT": self.held_columns_at, "HELD_ROWS_AT": self.held_rows_at,
                "HELD_BIAS_AT": self.held_bias_at, "HELD_A_AT": self.held_a_at, "HELD_D_AT": self.held_d_at,
                "HELD_LAST_AT": self.held_last_at, "HELD_FLOATS": self.held_floats,
            }  # fmt: skip
        if self.choice.stage:
            fours = self.pictures // 4
            values |= {
                "STAGED_AT": self.staged_at, "STAGED_D_AT": self.staged_d_at,
                "STAGED_FLOATS": self.staged_floats, "SWIZZLE": min(8, fours & -fours) - 1,
            }  # fmt: skip
        return "".join(f"#define {name} {_text(value)}\n" for name, value in values.items())

    def pack(self, parameters: Parameters) -> NDArray[np.float32]:
        """The store that holds *parameters*."""
        store = np.zeros(self.store_floats, np.float32)
        for view, source in zip(self._views(store), _pieces(parameters), strict=True):
            view[tuple(slice(n) for n in source.shape)] = source
        return store

    def unpack(self, store: NDArray[np.float32]) -> Parameters:
        """The parameters in *store*, from the columns."""
        views = list(self._views(store))
        weights = [*views[: self.hidden], views[-2]]
        biases = [*views[-2 - self.hidden : -2], views[-1]]
        pairs = list(pairwise(self.sizes))
        return Parameters(
            [np.ascontiguousarray(w[:n, :m].T) for w, (m, n) in zip(weights, pairs, strict=True)],
            [b[:n].copy() for b, (_, n) in zip(biases, pairs, strict=True)],
        )

    def rows(self, store: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """The weights of the hidden layers but the first, from the copies by rows."""
        views = list(self._views(store))[self.hidden : 2 * self.hidden - 1]
        return [v[:m, :n] for v, (m, n) in zip(views, list(pairwise(self.sizes))[1:-1], strict=True)]

    def _views(self, store: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
        """Columns of each hidden layer, rows of each but the first, each bias; the last layer, its bias."""
        pairs = list(pairwise(self.pitches))
        for at, (inputs, outputs) in zip(self.columns_at, pairs, strict=True):
            yield _view(store, at, outputs, inputs)
        for at, (inputs, outputs) in list(zip(self.rows_at, pairs, strict=True))[1:]:
            yield _view(store, at, inputs, outputs)
        for at, pitch in zip(self.bias_at, self.pitches[1:], strict=True):
            yield _view(store, at, pitch)
        yield _view(store, self.last_at, self.outputs, self.pitches[-1])
        yield _view(store, self.last_at + self.outputs * self.pitches[-1], self.outputs)


class _Parts:
    """Parts of a buffer, one behind the other, each aligned."""

    def __init__(self) -> None:
        self.end = 0

    def add(self, floats: int) -> int:
        """Where a new part of *floats* begins."""
        begin = self.end
        self.end += _padded(floats, _ALIGNMENT)
        return begin


def _pieces(parameters: Parameters) -> Iterator[NDArray[np.float32]]:
    """What the views of `_views` hold."""
    weights, biases = parameters.weights, parameters.biases
    yield from (w.T for w in weights[:-1])
    yield from weights[1:-1]
    yield from biases[:-1]
    yield weights[-1].T
    yield biases[-1]


def _view(store: NDArray[np.float32], at: int, *shape: int) -> NDArray[np.float32]:
    return store[at : at + prod(shape)].reshape(shape)


def _padded(n: int, step: int) -> int:
    return -(-n // step) * step


def _text(value: int | list[int]) -> str:
    return str(value) if isinstance(value, int) else "{" + ",".join(map(str, value)) + "}"
