"""`fused`: one launch trains many steps. Its work-groups meet between layers instead of ending (fused.cl)."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import cast

import numpy as np
import pyopencl as cl
from pyopencl.array import Array, to_device

import pyclmm

from . import occupancy
from .fused_layout import Choice, Layout
from .model import FusedRefused, Parameters

_FOLDER = Path(__file__).parent
_LAUNCH_SECONDS = 0.5  # of one launch: watchdogs of drivers that also draw end what takes some seconds
_FIRST_STEPS = 8  # of the launch that is timed
_MOST_STEPS = 1 << 18  # of a launch: 32 bits count all arrivals of 1,000 work-groups, 15 a step
_MOST_CLASSES = 64  # a work-item of the output has one register for each
# Bytes of local memory that NVIDIA gives a static array of a work-group, by compute capability (CUDA C++
# Programming Guide, Technical Specifications), less 1 KiB for the driver. local_mem_size says 48 KiB.
_NVIDIA_LOCAL = {(8, 0): 162 << 10, (8, 6): 98 << 10, (8, 7): 162 << 10, (8, 9): 98 << 10, (9, 0): 226 << 10}


class Fused:
    """Trains on the device of *queue*, which must be in order. *groups* caps the work-groups.

    *choice* replaces how the kernel is compiled; the default suits the device.
    """

    name = "fused"

    def __init__(
        self,
        queue: cl.CommandQueue,
        parameters: Parameters,
        images: Array,
        labels: Array,
        *,
        batch: int,
        learning_rate: float,
        groups: int | None = None,
        choice: Choice | None = None,
    ) -> None:
        sizes = parameters.sizes
        _check(sizes, images, labels, batch, groups)
        self._queue, self._images, self._labels = queue, _buffer(images), _buffer(labels)
        self._rate = np.float32(learning_rate / batch)
        self._seconds: float | None = None  # of a step, once one launch has been timed
        self._layout = _layout(queue.device, sizes, batch, choice, groups)
        self._kernel = _kernel(queue, self._layout)
        self._allocate(parameters)
        self.groups = self._find_groups()

    def _allocate(self, parameters: Parameters) -> None:
        context, layout = self._queue.context, self._layout
        flags = cl.mem_flags.READ_WRITE
        self._store = cl.Buffer(context, flags | cl.mem_flags.COPY_HOST_PTR, hostbuf=layout.pack(parameters))
        self._exchange = cl.Buffer(context, flags, 4 * layout.exchange_floats)
        cl.enqueue_fill_buffer(
            self._queue, self._exchange, np.zeros(1, np.float32), 0, 4 * layout.exchange_floats
        )
        self._meeting = occupancy.Meeting(context, layout.groups)
        self._clocks = cl.Buffer(context, flags, 8 * layout.groups * 8 * len(layout.sizes))

    def _find_groups(self) -> int:
        """How many work-groups run at once: a launch of no step says it."""
        nothing = cl.Buffer(self._queue.context, cl.mem_flags.READ_WRITE, 4)
        try:
            self._launch(nothing, 0, 0, nothing)
            found = self._meeting.found(self._queue)
        except cl.Error as error:
            raise FusedRefused(f"the device does not run the kernel: {error}") from error
        self._check_held()
        return found

    def _check_held(self) -> None:
        if found := self._meeting.refused(self._queue):
            asked = self._layout.groups
            raise FusedRefused(f"of {asked} work-groups that hold the weights, {found} ran at once")

    def _launch(self, order: cl.Buffer, first: int, steps: int, losses: cl.Buffer) -> None:
        layout = self._layout
        self._meeting.clear(self._queue)
        self._kernel(
            self._queue, (layout.groups * layout.choice.local,), (layout.choice.local,),
            self._images, self._labels, order, self._store, self._exchange, self._meeting.buffer,
            losses, self._clocks, np.int32(first), np.int32(steps), self._rate,
        )  # fmt: skip

    def train(self, order: Array, first: int, steps: int, losses: Array) -> None:
        """Enqueue *steps* steps (Model.train). The first call waits for its first launch and times it."""
        _check_steps(self._layout.batch, order, first, steps, losses)
        end = first + steps
        while first < end:
            count = min(self._steps_of_launch(), end - first)
            begin = time.perf_counter()
            self._launch(_buffer(order), first, count, _buffer(losses))
            if self._seconds is None:
                self._queue.finish()
                self._seconds = (time.perf_counter() - begin) / count
            first += count

    def _steps_of_launch(self) -> int:
        if self._seconds is None:
            return _FIRST_STEPS
        return max(1, min(_MOST_STEPS, int(_LAUNCH_SECONDS / self._seconds)))

    def _read(self) -> np.ndarray:
        store = np.empty(self._layout.store_floats, np.float32)
        cl.enqueue_copy(self._queue, store, self._store)
        self._check_held()
        return store

    def parameters(self) -> Parameters:
        """The parameters, read back once all steps have ended."""
        return self._layout.unpack(self._read())

    def predict(self, images: Array) -> Array:
        """The class of each picture, int32 (count,)."""
        parameters = self.parameters()
        layers = list(zip(parameters.weights, parameters.biases, strict=True))
        values = images
        for layer, (weights, bias) in enumerate(layers):
            values = pyclmm.gemm(
                values,
                to_device(self._queue, weights),
                bias=to_device(self._queue, bias),
                activation="relu" if layer + 1 < len(layers) else None,
                queue=self._queue,
            )
        return to_device(self._queue, values.get(self._queue).argmax(axis=1).astype(np.int32))


def _buffer(array: Array) -> cl.Buffer:
    return cast(cl.Buffer, array.data)


def _check(sizes: tuple[int, ...], images: Array, labels: Array, batch: int, groups: int | None) -> None:
    if batch < 1:
        raise ValueError(f"batch is {batch}; a batch has at least one picture")
    if groups is not None and groups < 1:
        raise ValueError(f"groups is {groups}; at least one work-group computes")
    if images.dtype != np.float32 or images.ndim != 2 or images.shape[1] != sizes[0]:
        raise ValueError(f"images are {images.dtype} {images.shape}; float32 (count, {sizes[0]}) would do")
    if labels.dtype != np.int32 or labels.shape != images.shape[:1]:
        raise ValueError(f"labels are {labels.dtype} {labels.shape}; int32 ({images.shape[0]},) would do")
    if not (images.flags.c_contiguous and labels.flags.c_contiguous) or images.offset or labels.offset:
        raise ValueError("images and labels must be contiguous and begin where their buffers begin")
    if len(sizes) < 3:
        raise FusedRefused("there is no hidden layer")
    if sizes[-1] > _MOST_CLASSES:
        raise FusedRefused(f"{sizes[-1]} classes are more than {_MOST_CLASSES}")


def _check_steps(batch: int, order: Array, first: int, steps: int, losses: Array) -> None:
    if first < 0 or steps < 0:
        raise ValueError(f"first is {first} and steps is {steps}; both are at least 0")
    if order.dtype != np.int32 or order.size < (first + steps) * batch:
        raise ValueError(
            f"order is {order.dtype} of {order.size}; int32 of {(first + steps) * batch} would do"
        )
    if losses.dtype != np.float32 or losses.size < first + steps:
        raise ValueError(f"losses are {losses.dtype} of {losses.size}; float32 of {first + steps} would do")
    if order.offset or losses.offset:
        raise ValueError("order and losses must begin where their buffers begin")


def _layout(
    device: cl.Device, sizes: tuple[int, ...], batch: int, choice: Choice | None, cap: int | None
) -> Layout:
    """The layout for *device*; weights stay in local memory where they fit."""
    most = cap or device.max_compute_units
    options = [choice] if choice else _choices(device, sizes, most)
    for option in options:
        widest = Layout(sizes, batch, option, 1).tiles
        layout = Layout(sizes, batch, option, min(most, widest))
        if layout.local_bytes <= _local_memory(device) and option.local <= device.max_work_group_size:
            return layout
    raise FusedRefused(
        f"a work-group needs {layout.local_bytes} bytes of local memory, {layout.choice.local} work-items; "
        f"the device has {_local_memory(device)} and {device.max_work_group_size}"
    )


def _choices(device: cl.Device, sizes: tuple[int, ...], groups: int) -> list[Choice]:
    """What suits *device*, the fastest first."""
    if device.type & cl.device_type.CPU:
        return [Choice()]
    tile = 1
    while tile < 16 and tile * groups < max(sizes[1:-1]):
        tile *= 2
    coherent = 2 if "NVIDIA" in device.vendor else 1
    held = Choice(
        tile=tile, local=256, vb=1, vw=4, vk=1, in_flight=4, hold=True, coherent=coherent, patience=2000
    )
    return [held, Choice(**{**held.__dict__, "hold": False})]


def _local_memory(device: cl.Device) -> int:
    """Bytes of local memory that a work-group may declare."""
    if "NVIDIA" not in device.vendor:
        return int(device.local_mem_size)
    capability = (device.compute_capability_major_nv, device.compute_capability_minor_nv)
    return _NVIDIA_LOCAL.get(capability, int(device.local_mem_size))


def _source(name: str) -> str:
    """The text of *name* with what it includes."""
    text = (_FOLDER / name).read_text(encoding="utf-8")
    return re.sub(r'^#include "(.+)"$', lambda line: _source(line[1]), text, flags=re.M)


def _kernel(queue: cl.CommandQueue, layout: Layout) -> cl.Kernel:
    try:
        program = cl.Program(queue.context, layout.macros() + _source("fused.cl")).build(
            devices=[queue.device]
        )
        return cl.Kernel(program, "train")
    except cl.Error as error:
        raise FusedRefused(f"the device's compiler refuses the kernel: {error}") from error
