"""Weights and biases on the device, for `layers`."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyopencl.array as cla
from pyopencl.array import Array

from .device import Kernels, padded
from .model import Parameters, Sizes

_LINE = 128  # elements: 256 bytes of float16, where the fastest loads of every kernel may begin


class Weights:
    """Parameters on the device. All weights are in one Array, so that one launch rounds them all.

    masters
        The float32 weights of each layer, as views.
    operands
        What products read: the masters, or float16 copies of them.
    between
        The masters between hidden layers as one stack, (hidden layers - 1, h, h), if these have one size.
    biases
        float32 (outputs,) of each layer.
    """

    def __init__(self, kernels: Kernels, parameters: Parameters, dtype: np.dtype[np.floating]) -> None:
        self._kernels, self._kernel = kernels, kernels.new("round_weights")
        self._sizes = sizes = parameters.sizes
        flat = np.zeros(_starts(sizes)[-1], np.float32)
        self._all = cla.to_device(kernels.queue, flat)
        self.masters, self.between = _views(self._all, sizes)
        self.operands = self.masters
        self._rounded: Array | None = None
        if dtype != np.float32:
            self._rounded = cla.empty(kernels.queue, flat.size, dtype)
            self.operands, _ = _views(self._rounded, sizes)
        for master, weights in zip(self.masters, parameters.weights, strict=True):
            master.set(np.ascontiguousarray(weights, np.float32))
        self.biases = [
            cla.to_device(kernels.queue, np.ascontiguousarray(b, np.float32)) for b in parameters.biases
        ]
        self.round()

    def round(self) -> None:
        """Copy the masters to the float16 operands, if products read those."""
        if self._rounded is not None:
            count = self._all.size
            self._kernels.run(self._kernel, count, self._all.data, self._rounded.data, np.int64(count))

    def read(self) -> Parameters:
        """The parameters on the host."""
        return Parameters([w.get() for w in self.masters], [b.get() for b in self.biases])


def _starts(sizes: Sizes) -> list[int]:
    """Where each layer's weights start, and the end. Those between hidden layers of one size are a stack."""
    starts, layers = [0], len(sizes) - 1
    for layer, (rows, columns) in enumerate(pairwise(sizes)):
        in_stack = one_width(sizes) and 1 <= layer < layers - 2
        starts.append(starts[-1] + (rows * columns if in_stack else padded(rows * columns, _LINE)))
    return starts


def one_width(sizes: Sizes) -> bool:
    """Whether all hidden layers have one size."""
    return len(set(sizes[1:-1])) == 1


def _views(flat: Array, sizes: Sizes) -> tuple[list[Array], Array | None]:
    """The weights of each layer in *flat*, and the stack of those between hidden layers, if they are one."""
    starts, hidden = _starts(sizes), len(sizes) - 2

    def part(layer: int, *shape: int) -> Array:
        start = starts[layer]
        view: Array = flat[start : start + int(np.prod(shape))].reshape(shape)
        return view

    each = [part(layer, *shape) for layer, shape in enumerate(pairwise(sizes))]
    stack = hidden > 1 and one_width(sizes)
    return each, part(1, hidden - 1, *sizes[1:3]) if stack else None
