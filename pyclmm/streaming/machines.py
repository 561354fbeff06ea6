"""The devices of a streamed product: which, how fast, and the tiles that suit them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from ..byte_sizes import format_bytes
from ..errors import ArgumentError, CheckpointError, DTypeError, PyclmmError, UnsupportedError, brief
from ..execution.operands import checked
from ..execution.options import Options
from ..kernels import verification
from ..kernels.device import DeviceInfo
from ..kernels.interface import Work
from ..kernels.launches import complete
from ..opencl import host_memory, staging
from ..opencl.devices import DeviceChoice, device_info, find_device
from ..opencl.devices import devices as all_devices
from ..opencl.queues import at_release, check_queue, default_queue, queue_on
from ..opencl.single_flight import LastUsed
from ..problem.dtypes import ELEMENTS
from ..problem.gemm import MAX_DIMENSION, GemmProblem
from ..selection import select
from ..selection.explanation import Explanation, explain
from .choice import choose
from .operands import Shapes
from .prediction import DeviceModel, count_of, describe, memory, step_seconds
from .run import DeviceQueue
from .tiles import Blocking, TiledProduct, chunks

_Dtypes = tuple[np.dtype[Any], np.dtype[Any]]  # of A and B

_COPIES = 1e10  # bytes a second that threads copy within the host's memory
_FILES = 2e9  # bytes a second: what a solid-state disk gives; only the choice of tiles depends on it
# Of the link's rate, what threads that copy to and from pinned memory reach beside one another: measured on
# an H200 and 16 cores of a Xeon (2026-11-23).
_UP_SHARE, _DOWN_SHARE = 0.6, 0.5
_TRIES = 6  # choices of tiles until there is room for workspace
_MOST_TILES = 1 << 24  # with a record of each in a list
_chosen: LastUsed[Any, Blocking] = LastUsed(256)  # a choice takes up to 0.1 s
at_release(_chosen.forget)


def places(
    devices: Sequence[DeviceChoice] | str | None, queue: cl.CommandQueue | None, device: DeviceChoice | None
) -> list[DeviceQueue]:
    """The devices to use. Raises ArgumentError, DTypeError and NoDeviceError."""
    if devices is not None and (queue is not None or device is not None):
        raise ArgumentError("devices is given beside queue or device; pass one of them")
    if queue is not None:
        check_queue(queue, device)
        return [(queue.device, queue)]
    if devices is None:
        found = [default_queue().device if device is None else find_device(device)]
    else:
        found = _named(devices)
    if not found:
        raise ArgumentError('devices is empty; pass a list of devices, or "all"')
    if len(set(found)) < len(found):
        twice = next(each for each in found if found.count(each) > 1)
        raise ArgumentError(f"devices names {twice.name.strip()!r} twice; pass each device once")
    return [(each, None) for each in found]


def _named(devices: Any) -> list[cl.Device]:
    """The devices that the argument *devices* names."""
    if isinstance(devices, str) and devices == "all":
        records = all_devices()
        cpus = sorted((each for each in records if each.kind == "cpu"), key=lambda x: not x.default)
        # One CPU, as drivers for the same one would only take turns.
        return [each.device for each in (*(x for x in records if x.kind != "cpu"), *cpus[:1])]
    advice = f'devices is {brief(devices)}; pass "all", or a list of devices'
    if isinstance(devices, str):
        raise ArgumentError(advice)
    try:
        given = [*devices]
    except TypeError:
        raise DTypeError(advice) from None
    found = []
    for place, each in enumerate(given):
        try:
            found.append(find_device(each))
        except (ArgumentError, DTypeError) as error:
            raise type(error)(f"devices[{place}]: {error}") from error
    return found


def able(places: list[DeviceQueue], shapes: Shapes, devices: object) -> list[DeviceQueue]:
    """The places whose devices know the dtypes; of *devices* "all" the others are left out. Raises
    UnsupportedError.
    """
    dtypes = tuple(x.name for x in (*shapes.dtypes, shapes.gemm.dtype))
    lacks = {place: device_info(place[0]).missing_type(dtypes) for place in places}
    found = [place for place, why in lacks.items() if why is None]
    if len(found) < len(places) and (not isinstance(devices, str) or not found):
        why = next(filter(None, lacks.values()))
        name, advice = ("device", "name another") if devices is None else ("devices", "leave it out")
        raise UnsupportedError(f"{name}: {why}; {advice}, or pass operands of another dtype")
    return found


class Fit:
    """The tiles that suit a product and its devices."""

    def __init__(
        self, shapes: Shapes, options: Options, places: Sequence[DeviceQueue], limit: int | None
    ) -> None:
        self._shapes = shapes
        self._infos = [device_info(device) for device, _ in places]
        self._given_limit = limit
        holding = [info for info in self._infos if not _in_place(info, shapes)] or self._infos
        # Without a limit: half of memory that is the host's too, three quarters of a device's own.
        parts = (x.global_mem_size * (2 if x.unified_memory else 3) // 4 for x in holding)
        self.limit = min(parts) if limit is None else limit
        self._options, product = options, shapes.product
        if self._keeps_k and product.k > MAX_DIMENSION:
            raise UnsupportedError(
                f"K is {product.k}: a reproducible sum, and one of bools, is made at once, and of at "
                "most 2^31 - 2^16 products; leave reproducible out, or convert bools to another dtype"
            )
        # A kernel that is named may compute no larger product.
        sizes = [min(1024, max(1, length)) for length in (product.m, product.n, product.k)]
        self._each = [self.seconds(number)(*sizes) for number in range(len(places))]
        self._fastest = self._each.index(min(self._each))
        self._up, self._down = _link(places[self._fastest], self._infos[self._fastest], shapes)

    def seconds(self, number: int) -> Callable[[int, int, int], float]:
        """What estimates a product m x n x k on device *number*."""
        return lambda *sizes: _estimate(self._infos[number], self._shapes.dtypes, self._options, *sizes)

    def product(self, blocking: Blocking | None) -> TiledProduct:
        """The product as the tiles see it. *blocking* None: one chunk of K for each tile."""
        found = replace(self._shapes.product, whole_k=self._keeps_k)
        if blocking is None:
            return found
        acc_size = self.acc_dtype(blocking).itemsize
        return replace(found, acc_size=acc_size, whole_k=found.whole_k or blocking.k >= found.k)

    @property
    def _keeps_k(self) -> bool:
        """Whether each element is summed at once: a reproducible sum is one chain, and bool knows no sum."""
        return self._options.reproducible or self._shapes.gemm.dtype.kind == "b"

    def acc_dtype(self, blocking: Blocking) -> np.dtype[Any]:
        """The dtype of a tile between two chunks of K."""
        dtype = self._shapes.gemm.dtype
        in_parts = blocking.k < self._shapes.product.k and self._is_narrow
        return np.dtype(ELEMENTS[dtype.name].parts) if in_parts else dtype

    @property
    def _is_narrow(self) -> bool:
        """Whether sums over parts of K need a wider type than the result's."""
        name = self._shapes.gemm.dtype.name
        return ELEMENTS[name].parts != name

    def options(self, blocking: Blocking) -> Options:
        """The options of a tile's products: kernels may use as workspace what the slots leave."""
        return replace(self._options, workspace_limit=max(0, self.limit - self._held(blocking)))

    def _held(self, blocking: Blocking) -> int:
        """Bytes of the slots. Arrays in memory that the device reads in place need none."""
        product = self.product(blocking)
        return memory(product, blocking) if self._up and not product.is_empty else 0

    def _device(self, room: int) -> DeviceModel:
        """The fastest device, as the choice of tiles sees it."""
        seconds = self.seconds(self._fastest)
        as_many = round(sum(min(self._each) / one for one in self._each))  # as the fastest
        largest = min(info.max_mem_alloc_size for info in self._infos)
        return DeviceModel(room, self._up, self._down, seconds, max(1, as_many), largest=largest)

    def blocking(self, kept: Any = None) -> Blocking:
        """The sizes of tiles: those *kept* in a checkpoint, or the best. Raises ArgumentError."""
        if kept is not None:
            return self._kept(kept)
        product = self.product(None)
        key = (product, self._shapes.dtypes, self._options, self.limit, *self._infos, self._up, self._down)
        found = _chosen.get(key, self._best)
        count = count_of(product, replace(found, k=product.k))
        if count > _MOST_TILES:
            raise ArgumentError(
                f"the product would be cut into {count} tiles, more than {_MOST_TILES}; pass a larger "
                "memory_limit, and a stack whose last axis is long"
            )
        return found

    def _kept(self, kept: Any) -> Blocking:
        """The tiles of a checkpoint. Raises CheckpointError and, if too large, ArgumentError."""
        try:
            found = Blocking.from_json(kept)
        except ArgumentError as error:
            raise CheckpointError(f"checkpoint: {error}; delete the folder to start anew") from error
        if self._held(found) > self.limit:
            raise ArgumentError(
                f"memory_limit is {format_bytes(self.limit)}, and the tiles of the checkpoint need "
                f"{format_bytes(self._held(found))}; pass as much, or another folder"
            )
        return found

    def _best(self) -> Blocking:
        """The best tiles whose slots leave their kernel its workspace."""
        room = self.limit
        found = self._within(room)
        for _ in range(_TRIES):
            need = self._workspace(found)
            if self._held(found) + need <= self.limit:
                return found
            room = max(self.limit - need, room * 2 // 3)
            with suppress(ArgumentError):  # there are no smaller tiles
                found = self._within(room)
        least = self._held(found) + self._workspace(found, "least_nbytes")
        if least > self.limit:
            check, cure = (" and their check", ", or leave verify out") if self._options.verify else ("", "")
            raise ArgumentError(
                f"memory_limit is {format_bytes(self.limit)}; tiles of {found.m} x {found.n}{check} "
                f"need {format_bytes(least)}: pass more{cure}"
            )
        return found

    def _workspace(self, at: Blocking, part: str = "workspace_nbytes") -> int:
        """Bytes of workspace that the products of whole tiles and of those at the edges need."""
        product = self._shapes.product
        if product.is_empty:
            return 0
        whole = (at.m, product.m), (at.n, product.n), (at.k, product.k)  # K may be 0: sums of nothing
        lengths = [{tile, length % max(1, tile) or tile} for tile, length in whole]
        which = self._infos[self._fastest], self._shapes.dtypes, self._options
        need: int = max(getattr(_chunk(*which, *each), part) for each in itertools.product(*lengths))
        return at.batch * need

    def _within(self, room: int) -> Blocking:
        product, device = self.product(None), self._device(room)
        if self._is_narrow:
            try:
                return choose(replace(product, whole_k=True), device)
            except ArgumentError:  # K is too long for one chunk: tiles are kept in float32
                product = replace(product, acc_size=4)
        return choose(product, device)

    def tile_seconds(self, blocking: Blocking) -> list[float]:
        """Predicted seconds of a tile on each device."""
        product = self.product(blocking)
        steps = len(chunks(product, blocking))
        every = range(len(self._infos))
        return [steps * step_seconds(product, blocking, self.seconds(number)) for number in every]

    def rows(self, blocking: Blocking) -> list[tuple[str, str]]:
        """Rows for ``explain()``."""
        names = ", ".join(info.name for info in self._infos)
        given = "" if self._given_limit is not None else " (the default)"
        return [
            ("devices", names),
            ("memory limit", f"{format_bytes(self.limit)} of each device{given}"),
            *describe(self.product(blocking), self._device(self.limit), blocking),
        ]

    def kernel(self, blocking: Blocking) -> Explanation | None:
        """Why one chunk of a whole tile gets its kernel on the fastest device."""
        sizes = blocking.m, blocking.n, blocking.k
        if 0 in sizes:
            return None
        info = self._infos[self._fastest]
        found = _chunk(info, self._shapes.dtypes, self._options, *sizes)
        return explain(
            found.problem, info, found.choice, requested=self._options.kernel,
            launches=[launch.kernel for launch in found.work.launches],
            workspace_nbytes=found.work.workspace_nbytes, check_seconds=found.check_seconds,
        )  # fmt: skip


def seconds_of(info: DeviceInfo, dtypes: _Dtypes, options: Options, sizes: tuple[int, int, int]) -> float:
    """Estimated seconds of a product m x n x k; 0 if no kernel can compute it."""
    a, b = (each.newbyteorder("=") for each in dtypes)
    try:
        return _estimate(info, (a, b), options, *sizes)
    except PyclmmError:  # the call itself will say what is wrong
        return 0.0


def _in_place(info: DeviceInfo, shapes: Shapes) -> bool:
    """Whether a device needs no slots: it reads operands, and writes the result, where they are."""
    return info.unified_memory and shapes.in_memory and shapes.reach <= info.max_mem_alloc_size


def _link(place: DeviceQueue, info: DeviceInfo, shapes: Shapes) -> tuple[float, float]:
    """Bytes a second to and from a device; 0 where nothing is moved."""
    if info.unified_memory:
        if _in_place(info, shapes):
            return 0.0, 0.0
        return (_COPIES if shapes.in_memory else _FILES), 0.0
    device, queue = place
    up, down = staging.link_rates(queue or queue_on(device))
    up, down = _UP_SHARE * up, _DOWN_SHARE * down
    return (up if shapes.in_memory else min(up, _FILES)), down


class _Chunk(NamedTuple):
    """One chunk of a tile on a device: its kernel, the launches with those that check it, the estimated
    seconds of all and of the check, and the most bytes of workspace, also by a kernel that needs none.
    """

    problem: GemmProblem
    choice: select.Choice
    work: Work
    seconds: float
    check_seconds: float
    workspace_nbytes: int
    least_nbytes: int


@lru_cache(maxsize=1024)
def _chunk(info: DeviceInfo, dtypes: _Dtypes, options: Options, m: int, n: int, k: int) -> _Chunk:
    """A chunk as the lane of this device computes it; the last one is checked, and activated."""
    a = (m, k) if options.trans_a == "N" else (k, m)
    b = (k, n) if options.trans_b == "N" else (n, k)
    shaped = {"a": (a, dtypes[0]), "b": (b, dtypes[1])}
    layouts = {name: host_memory.dense_layout(*own, info) for name, own in shaped.items()}
    plain, align = replace(options, activation=None), host_memory.new_align(info)
    gemm = checked(layouts, plain, (1.0, 0.0), out_is_copied=False, host_align=align)
    choice = next(select.candidates(gemm.problem, info, options.kernel))
    work, check = choice.kernel.launches(gemm.problem, choice.config, info), 0.0
    nbytes, least = (complete(gemm, its, info).workspace_nbytes for its in (work, Work(())))
    if options.verify:
        ending = replace(gemm.problem, activation=options.activation or "none")
        work, check = verification.verified(ending, work, info), verification.seconds(ending, info)
        least += verification.most_workspace(ending, info)
        nbytes += least
    seconds = float(choice.kernel.estimate(gemm.problem, choice.config, info)) + check
    return _Chunk(gemm.problem, choice, work, seconds, check, nbytes, least)


def _estimate(info: DeviceInfo, dtypes: _Dtypes, options: Options, m: int, n: int, k: int) -> float:
    """Seconds of a product on a device by the estimate of its best kernel."""
    return 0.0 if 0 in (m, n, k) else _chunk(info, dtypes, options, m, n, k).seconds
