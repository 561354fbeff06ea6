"""`fused`: one launch trains many steps. Its work-groups meet between layers instead of ending (fused.cl)."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np
import pyopencl as cl
from pyopencl.array import Array, to_device

import pyclmm

from . import occupancy
from .device import built
from .fused_layout import Choice, Layout
from .model import FusedRefused, Parameters

_CPU_WEIGHTS = 1 << 20  # bytes
_FOLDER = Path(__file__).parent
_LAUNCH_SECONDS = 0.5  # of one launch: watchdogs of drivers that also draw end what takes some seconds
_FIRST_STEPS = 8  # of the launch that is timed
_MOST_STEPS = 1 << 18  # of a launch: 32 bits count all arrivals of 1,000 work-groups, 15 a step
_MOST_CLASSES = 64  # a work-item of the output has one register for each
_PATIENCE = (
    20_000  # looks of 0.35 us (a read of L2 on an H200): 7 ms until a launch gives up waiting for more
)
# Bytes of local memory that NVIDIA gives a static array of a work-group, by compute capability: from the CUDA
# C++ Programming Guide, Technical Specifications, with 1 KiB left for the driver. local_mem_size says 48 KiB.
_NVIDIA_LOCAL = {(8, 0): 162 << 10, (8, 6): 98 << 10, (8, 7): 162 << 10, (8, 9): 98 << 10, (9, 0): 226 << 10}


class Fused:
    """Trains on the device of *queue*, which must be in order. *groups* caps the work-groups.

    *choices*: how the kernel may be compiled, the best first; by default what suits the device.
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
        choices: Sequence[Choice] = (),
    ) -> None:
        sizes = parameters.sizes
        _check(sizes, images, labels, batch, groups)
        self._queue, self._images, self._labels = queue, _buffer(images), _buffer(labels)
        self._rate = np.float32(learning_rate / batch)
        self._seconds: float | None = None  # of a step, once one launch has been timed
        if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
            raise FusedRefused("the queue is out of order; a queue in order would do")
        self._start(layouts_for(queue.device, sizes, batch, choices, groups), parameters)

    @property
    def suits(self) -> bool:
        """Whether it is likely to be faster than `layers`.

        On a GPU it is where weights stay in local memory: on an H200, 2048 hidden neurons do not fit and take
        280 us a step, and `layers` 229. On a CPU it is where they fit the caches: 0.5 MB take 0.7 of the time
        of `layers`, 12 MB 1.3 (Zen 4).
        """
        if self._queue.device.type & cl.device_type.CPU:
            return 4 * sum(a * b for a, b in pairwise(self.layout.sizes)) <= _CPU_WEIGHTS
        return self.layout.choice.hold

    def _start(self, layouts: list[Layout], parameters: Parameters) -> None:
        """Prepare the first layout that the device runs."""
        for rest, layout in enumerate(layouts, 1 - len(layouts)):
            self.layout = layout
            try:
                self._kernel = _kernel(self._queue, layout)
                self._allocate(parameters)
                self.groups = self._find_groups()
                return
            except FusedRefused:
                if rest == 0:
                    raise

    def _allocate(self, parameters: Parameters) -> None:
        context, layout = self._queue.context, self.layout
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
            asked = self.layout.groups
            raise FusedRefused(f"of {asked} work-groups that hold the weights, {found} ran at once")

    def _launch(self, order: cl.Buffer, first: int, steps: int, losses: cl.Buffer) -> None:
        layout = self.layout
        self._meeting.clear(self._queue)
        self._kernel(
            self._queue, (layout.groups * layout.choice.local,), (layout.choice.local,),
            self._images, self._labels, order, self._store, self._exchange, self._meeting.buffer,
            losses, self._clocks, np.int32(first), np.int32(steps), self._rate,
        )  # fmt: skip

    def train(self, order: Array, first: int, steps: int, losses: Array) -> None:
        """Enqueue *steps* steps (Model.train). The first call waits for its first launch and times it."""
        _check_steps(self.layout.batch, order, first, steps, losses)
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
        store = np.empty(self.layout.store_floats, np.float32)
        cl.enqueue_copy(self._queue, store, self._store)
        self._check_held()
        return store

    def parameters(self) -> Parameters:
        """The parameters, read back once all steps have ended."""
        return self.layout.unpack(self._read())

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


def layouts_for(
    device: cl.Device, sizes: tuple[int, ...], batch: int, choices: Sequence[Choice], cap: int | None
) -> list[Layout]:
    """The layouts that fit *device*, the fastest first."""
    most = cap or device.max_compute_units
    options = choices or _choices(device, sizes, most)
    layouts = [
        Layout(sizes, batch, option, min(most, Layout(sizes, batch, option, 1).tiles)) for option in options
    ]
    local, work_items = _local_memory(device), device.max_work_group_size
    fit = [one for one in layouts if one.local_bytes <= local and one.choice.local <= work_items]
    if not fit:
        least = layouts[-1]
        raise FusedRefused(
            f"a work-group needs {least.local_bytes} bytes of local memory, {least.choice.local} work-items; "
            f"the device has {local} and {work_items}"
        )
    return fit


def _choices(device: cl.Device, sizes: tuple[int, ...], groups: int) -> list[Choice]:
    """What suits *device*, the fastest first. No choice is timed, so the same device gives the same bits."""
    if device.type & cl.device_type.CPU:
        return [Choice()]
    widest = max(sizes[1:-1])
    tile = next((n for n in (1, 2, 4, 8) if n * groups >= widest), 16)
    held = Choice(
        tile=tile, local=256, vb=1, vw=4, vk=1, in_flight=4, hold=True, coherent=1, patience=_PATIENCE
    )
    if "NVIDIA" in device.vendor:
        return _nvidia_choices(replace(held, coherent=2), device, widest)
    return [held, replace(held, hold=False)]


def _nvidia_choices(held: Choice, device: cl.Device, widest: int) -> list[Choice]:
    """Staged, held, and neither: docs/mlp_fused.md has the measurements of all numbers."""
    staged = replace(held, local=512, stage=True, asynchronous=True, in_flight=2)
    if widest < 512:
        held = replace(held, tile=max(2, held.tile), vb=4)
        loose = replace(held, vb=1, local=512, vk=2, hold=False)
    else:
        held = replace(held, tile=max(2, held.tile), local=512, vb=2 if widest < 1024 else 1, vk=2)
        loose = replace(held, vb=1, vk=4 if widest >= 2048 else 2, hold=False)
    return [staged, held, loose] if _capability(device) >= (8, 0) else [held, loose]  # 8.0 begins cp.async


def _local_memory(device: cl.Device) -> int:
    """Bytes of local memory that a work-group may declare."""
    if "NVIDIA" not in device.vendor:
        return int(device.local_mem_size)
    return _NVIDIA_LOCAL.get(_capability(device), int(device.local_mem_size))


def _capability(device: cl.Device) -> tuple[int, int]:
    """The compute capability of an NVIDIA device."""
    return device.compute_capability_major_nv, device.compute_capability_minor_nv


def _source(name: str) -> str:
    """The text of *name* with what it includes."""
    text = (_FOLDER / name).read_text(encoding="utf-8")
    return re.sub(r'^#include "(.+)"$', lambda line: _source(line[1]), text, flags=re.M)


def _kernel(queue: cl.CommandQueue, layout: Layout) -> cl.Kernel:
    try:
        return cl.Kernel(built(queue, layout.macros() + _source("fused.cl")), "train")
    except cl.Error as error:
        raise FusedRefused(f"the device's compiler refuses the kernel: {error}") from error
