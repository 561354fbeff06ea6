"""Lists of JAX's arrays on a CUDA device: XLA gives each result memory, and says where each array lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..cuda.streams import Context, Stream
from ..errors import UnsupportedError
from ..execution.xla_path import MOVED, MovedError, XlaLaunch
from ..problem.gemm import alignment, dense
from .apart import Lists
from .cuda import CudaMany
from .lists import CallLists
from .planned import ListEntry


class XlaMany(CudaMany):
    """A planned list of JAX's arrays on a CUDA device."""

    new = 0  # results lie anywhere too

    def __init__(self, *planned: Any) -> None:
        self._launches: dict[Context, _XlaList] = {}
        super().__init__(*planned)
        if any(one.verify for one in self.executables):
            raise UnsupportedError("verify= is not for lists of JAX's arrays on CUDA; multiply one by one")

    def place(self, entries: Sequence[ListEntry], lists: Lists, queue: Any) -> None:
        self.made = {one.pair: dense(one.gemm.shape, one.gemm.dtype) for one in entries}
        every = [(key.name, one.pair) for one in entries for key in one.keys.values()]
        self.read = [lists.number(name, pair) for name, pair in every if name != "out"]

    def multiply_in(self, given: CallLists, stream: Stream, kind: Any) -> list[tuple[int, Any]]:
        launch = self._launches.get(stream.context)
        if launch is None:
            launch = self._launches[stream.context] = _XlaList(self, given.lists, stream.context)
        arrays = [given.arrays.arrays[at] for at in self.read]
        return list(zip(self.made, launch(*arrays), strict=True))


class _XlaList(XlaLaunch):
    """The launches of *many*."""

    def __init__(self, many: XlaMany, lists: Lists, context: Context) -> None:
        super().__init__(context)
        self._many = many
        self._aligned = [alignment(lists.arrays[at].address) for at in many.read]
        self._made = [lists.number("out", pair) for pair in many.made]
        self.compile([*many.made.values()])

    def enqueue(self, stream: int, operands: list[int], results: list[int]) -> None:
        if np.any(np.array(operands) % self._aligned):
            raise MovedError(MOVED)
        addresses = np.zeros(self._made[-1] + 1, np.int64)
        addresses[self._many.read], addresses[self._made] = operands, results
        self._many.launch(addresses, Stream(self.context, stream), {}, None)
