"""`layers`: each layer is a product of pyclmm, for any device and any size.

There are hidden layers 0 ... H - 1. x is the batch, h[l] are activations, d[l] is batch times the gradient:

    forward     h[0] = relu(x W[0] + b[0]),  h[l] = relu(h[l-1] W[l] + b[l]),  logits = h[H-1] W[H] + b[H]
    loss        d_out = softmax(logits) - one hot;  b[H] -= rate sum(d_out)
    backward    d[l] = d[l+1] W[l+1]^T where h[l] > 0;  b[l] -= rate sum(d[l])
    update      W[0] -= rate x^T d[0],  W[l] -= rate h[l-1]^T d[l],  W[H] -= rate h[H-1]^T d_out

Each line but the loss is a product: bias and ReLU are its epilogue, and an update is alpha = -rate, beta = 1,
out = W. The updates come last, so those between hidden layers of one size are one product of stacks. Then a
step is 3 H + 6 launches, one more with float16 operands.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
from pyopencl.array import Array

import pyclmm

from .device import Kernels, padded
from .model import Parameters, Sizes
from .weights import Weights

_FLOAT = np.dtype(np.float32)
_LATER, _ZERO = None, np.int64(0)  # arguments that `train` sets
_PREDICTED = 1024  # pictures that are predicted at a time, so that memory does not grow with their number
Launch = Callable[[], object]


class Layers:
    """A `Model` that enqueues one product for each line of the arithmetic above.

    Operands are float16 if *images* are: pictures, activations, their gradients, and a copy of the weights.
    Weights, biases and sums are float32 then too.
    """

    name = "layers"

    def __init__(
        self,
        queue: cl.CommandQueue,
        parameters: Parameters,
        images: Array,
        labels: Array,
        *,
        batch: int,
        learning_rate: float,
    ) -> None:
        sizes = parameters.sizes
        if len(sizes) < 3:
            raise ValueError(f"sizes are {sizes}; `layers` takes one hidden layer or more")
        self._queue, self._images, self._labels, self._batch = queue, images, labels, batch
        self._rate = learning_rate / batch
        self._kernels = kernels = Kernels(queue, images.dtype == np.float16)
        self._gather_kernel, self._loss_kernel = kernels.new("gather"), kernels.new("cross_entropy")
        self._class_kernel = kernels.new("classes_of")
        self._weights = Weights(kernels, parameters, images.dtype)
        self._step = self._planned(sizes)

    def train(self, order: Array, first: int, steps: int, losses: Array) -> None:
        gather, cross_entropy = self._gather_kernel, self._loss_kernel
        indexes: Any = order.data
        to: Any = losses.data
        gather.set_arg(1, indexes)
        cross_entropy.set_arg(2, indexes)
        cross_entropy.set_arg(7, to)
        for step in range(first, first + steps):
            at = np.int64(step * self._batch)
            gather.set_arg(2, at)
            cross_entropy.set_arg(3, at)
            cross_entropy.set_arg(8, np.int64(step))
            for enqueue in self._step:
                enqueue()
        self._queue.flush()

    def predict(self, images: Array) -> Array:
        weights, biases = self._weights.operands, self._weights.biases
        found = cla.empty(self._queue, len(images), np.int32)
        for first in range(0, len(images), _PREDICTED):
            x = images[first : first + _PREDICTED]
            for w, b in zip(weights[:-1], biases[:-1], strict=True):
                out = cla.empty(self._queue, (len(x), w.shape[1]), w.dtype)
                x = pyclmm.gemm(x, w, bias=b, activation="relu", out=out, dtype=_FLOAT)
            logits = pyclmm.gemm(x, weights[-1], bias=biases[-1], dtype=_FLOAT)
            count, classes = logits.shape
            args = logits.data, np.int32(count), np.int32(classes), found.data, np.int64(first)
            self._kernels.run(self._class_kernel, count, *args)
        return found

    def parameters(self) -> Parameters:
        return self._weights.read()

    def _planned(self, sizes: Sizes) -> list[Launch]:
        """What a step enqueues, in order."""
        inputs, *hidden, classes = sizes
        count, between = len(hidden), self._weights.between
        dtype, queue = self._images.dtype, self._queue
        x = cla.empty(queue, (self._batch, inputs), dtype)
        if between is None:
            h = [cla.empty(queue, (self._batch, width), dtype) for width in hidden]
            d = [cla.empty_like(a) for a in h]
        else:  # hidden layers of one size are stacks, so that their updates are one product
            all_h = cla.empty(queue, (count, self._batch, hidden[0]), dtype)
            all_d = cla.empty_like(all_h)
            h, d = ([a[layer] for layer in range(count)] for a in (all_h, all_d))
        logits = cla.empty(queue, (self._batch, classes), _FLOAT)
        d_out = cla.empty(queue, (self._batch, classes), dtype)
        w, b = self._weights.operands, self._weights.biases

        steps = [self._gather(x)]
        for layer in range(count):
            before = h[layer - 1] if layer else x
            steps.append(_product(before, w[layer], out=h[layer], bias=b[layer], activation="relu"))
        steps.append(_product(h[-1], w[-1], out=logits, bias=b[-1]))
        steps.append(self._cross_entropy(logits, d_out))
        for layer in reversed(range(count)):
            after = d_out if layer == count - 1 else d[layer + 1]
            steps.append(_product(after, w[layer + 1], out=d[layer], trans_b="T"))
            steps.append(self._backward(h[layer], d[layer], layer))
        steps.append(self._update(x, d[0], self._weights.masters[0]))
        if between is None:
            steps += [self._update(h[n - 1], d[n], self._weights.masters[n]) for n in range(1, count)]
        else:
            steps.append(self._update(all_h[:-1], all_d[1:], between))
        steps.append(self._update(h[-1], d_out, self._weights.masters[-1]))
        if dtype != _FLOAT:
            steps.append(self._weights.round)
        return steps

    def _gather(self, x: Array) -> Launch:
        kernel, inputs = self._gather_kernel, x.shape[1]
        _set_args(kernel, self._images.data, _LATER, _ZERO, np.int32(inputs), x.data)
        items = min(self._kernels.items, padded(inputs, 32))
        return self._launch(kernel, (padded(inputs, items), self._batch), (items, 1))

    def _cross_entropy(self, logits: Array, d: Array) -> Launch:
        kernel, classes = self._loss_kernel, logits.shape[1]
        items = min(self._kernels.items, padded(max(self._batch, classes), 32))
        sizes = np.int32(self._batch), np.int32(classes)
        fixed = logits.data, self._labels.data, _LATER, _ZERO, *sizes, d.data, _LATER, _ZERO
        _set_args(kernel, *fixed, *self._bias(-1, items))
        return self._launch(kernel, (items,), (items,))

    def _backward(self, h: Array, d: Array, layer: int) -> Launch:
        kernel = self._kernels.new("backward")  # each layer keeps its own arguments
        width, tile, columns = h.shape[1], self._kernels.tile, self._kernels.columns
        sizes = np.int64(h.offset // h.dtype.itemsize), np.int32(self._batch), np.int32(width)
        _set_args(kernel, h.base_data, d.base_data, *sizes, *self._bias(layer, tile[0] * tile[1] * columns))
        return self._launch(kernel, (padded(-(-width // columns), tile[0]), tile[1]), tile)

    def _bias(self, layer: int, items: int) -> tuple[Any, ...]:
        """The last arguments of a kernel that updates the bias of *layer* with *items* partial sums."""
        local = cl.LocalMemory(items * _FLOAT.itemsize)
        return self._weights.biases[layer].data, np.float32(self._rate), local

    def _launch(self, kernel: cl.Kernel, size: tuple[int, ...], group: tuple[int, ...]) -> Launch:
        return partial(cl.enqueue_nd_range_kernel, self._queue, kernel, size, group)

    def _update(self, a: Array, d: Array, weights: Array) -> Launch:
        """weights -= rate a^T d, for each product of a stack."""
        plan = pyclmm.Matmul(
            a, d, weights, trans_a="T", alpha=-self._rate, beta=1.0, out=weights, dtype=_FLOAT
        )
        return partial(plan.enqueue, a, d, weights, out=weights)


def _product(a: Array, b: Array, *, out: Array, bias: Array | None = None, **options: Any) -> Launch:
    """out = op(a b + bias), planned now and enqueued when called."""
    plan = pyclmm.Matmul(a, b, bias=bias, out=out, dtype=_FLOAT, **options)
    return partial(plan.enqueue, a, b, bias=bias, out=out)


def _set_args(kernel: cl.Kernel, *args: Any) -> None:
    """Set the arguments that stay. PyOpenCL's set_args wants values of all types at once."""
    for index, arg in enumerate(args):
        kernel.set_arg(index, arg)
