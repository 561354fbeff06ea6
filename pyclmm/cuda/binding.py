"""CudaBinding: the launches of one plan by one thread. The only module that launches on CUDA."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..errors import DeviceLostError, LaunchError
from ..kernels.interface import ALARM, VERDICT, Launch, Work
from ..opencl.steps import OFFSET, SCALES, Scalars, spans
from ..problem.dtypes import converter_of, dtype_of
from . import driver
from .driver import LaunchConfig
from .streams import Context, constant, forget, own_stream, written
from .watch import CudaWatch

_SLOT = 16  # bytes for a parameter; the longest is a complex128
_ALIGN = 1024  # of each workspace in a call's block; a tensor map's is 64
_MOST_GROUPS = 65535  # in dimensions 1 and 2 of CUDA's grid
_MOST_KEPT = 64  # streams and captures whose workspace a binding keeps
_CONSTANT = 64  # bytes of a table of zeros up to which it stays for the process
Addresses = Mapping[str, int]  # where arrays lie, by the problem's names
_Order = tuple[int, int]  # a stream's handle, and the number of the capture that it is in, 0 for none


def _is_constant(table: np.ndarray[Any, Any]) -> bool:
    """Whether *table* is one of few: the offsets of a product without a stack. Those of stacks differ."""
    return table.nbytes <= _CONSTANT and not table.any()


class _GridPart(NamedTuple):
    """A launch of CUDA's: its work-groups, the work-items of each, and the values of ptx.PARAMETERS."""

    groups: tuple[int, ...]
    local: tuple[int, ...]
    parameters: tuple[int, ...]


def _parts(launch: Launch) -> Iterator[_GridPart]:
    """The parts of a launch, each of at most so many work-groups as a dimension of CUDA's grid can have."""
    local = (*launch.local_size, 1, 1)[:3]
    for size, first in spans(launch):
        x, y, z = (-(-whole // its) for whole, its in zip((*size, 1, 1)[:3], local, strict=True))
        for at in range(0, y, _MOST_GROUPS):
            part = min(_MOST_GROUPS, y - at)
            yield _GridPart((x, part, z), local, (first, at, at * local[1], y))


class _CudaStep:
    """One launch: its sizes, its parameters in memory, and which of these vary between calls."""

    def __init__(self, context: Context, launch: Launch, fixed: Addresses, part: _GridPart) -> None:
        function, dynamic, waits = context.function(launch.program, launch.kernel)
        self.config = LaunchConfig(*part.groups, *part.local, dynamic)
        attributes = [driver.OVERLAP] if waits and driver.overlaps() else []
        if launch.cluster > 1:
            attributes.append(driver.clustered(launch.cluster))
        self.attributes = (driver.LaunchAttribute * len(attributes))(*attributes)
        self.config.attributes, self.config.number = ctypes.addressof(self.attributes), len(attributes)
        arguments = [*launch.args, *map(np.uint32, part.parameters)]
        self.memory = np.zeros(_SLOT * len(arguments), np.uint8)
        start = self.memory.ctypes.data
        at = range(start, start + _SLOT * len(arguments), _SLOT)
        self.pointers = (ctypes.c_void_p * len(arguments))(*at)
        self.varying: list[tuple[str, Any]] = []  # a name and the parameter's 8 bytes
        self.scales: list[tuple[bool, np.ndarray[Any, Any]]] = []
        self.offsets: list[tuple[str, Any]] = []
        acc_type = str(launch.program.define("ACC_TYPE") or "float32")
        self.convert, scale = converter_of(acc_type), dtype_of(acc_type)
        for number, argument in enumerate(arguments):
            own = self.memory[_SLOT * number : _SLOT * (number + 1)]
            if not isinstance(argument, str):
                own[: argument.nbytes] = np.frombuffer(argument.tobytes(), np.uint8)
            elif argument in SCALES:
                self.scales.append((argument == "alpha", own[: scale.itemsize].view(scale)))
            else:
                word = ctypes.c_uint64.from_address(at[number])
                if argument.endswith(OFFSET):
                    self.offsets.append((argument.removesuffix(OFFSET), word))
                else:
                    word.value = fixed.get(argument, 0)  # a call may name another place
                    self.varying.append((argument, word))
        self.call = (
            ctypes.c_void_p(ctypes.addressof(self.config)),
            ctypes.c_void_p(function),
            ctypes.c_void_p(ctypes.addressof(self.pointers)),
            None,
        )
        self.name = launch.kernel

    def set_scalars(self, scalars: Scalars) -> None:
        alpha, beta, offsets = scalars
        for is_alpha, own in self.scales:
            with np.errstate(over="ignore"):
                own[0] = self.convert(alpha if is_alpha else beta)
        for name, word in self.offsets:
            word.value = offsets.get(name, 0)


class CudaBinding:
    """The launches of *work* by one thread, with the tables and what must stay between calls.

    A call is in the stream that it names. Other workspace lies in one block that it gives, of
    ``workspace_nbytes``. *absent*: operands that no kernel reads. Raises BuildError, DeviceMemoryError and
    DeviceLostError.
    """

    def __init__(self, context: Context, work: Work, absent: Collection[str] = ()) -> None:
        self.context, self.last_call = context, None
        self._launch = driver.library().cuLaunchKernelEx
        self._current, self._find_current = ctypes.c_void_p(), driver.library().cuCtxGetCurrent
        self._where = ctypes.byref(self._current)
        self._handle, self._status = ctypes.c_void_p(), ctypes.c_int()
        self._is_capturing = driver.library().cuStreamIsCapturing
        self._to_status = ctypes.byref(self._status)
        self._zeroed = [space for space in work.workspace if space.zeroed]
        self._places, self.workspace_nbytes = {}, 0
        for space in work.workspace:
            if not space.zeroed:
                self._places[space.symbol] = self.workspace_nbytes
                self.workspace_nbytes += -(-space.nbytes // _ALIGN) * _ALIGN
        with self.context.current(), driver.uncaptured():
            made = {name: self._table(table) for name, table in work.tables.items()}
            fixed = {name: table.address for name, table in made.items()}
            fixed |= dict.fromkeys(absent, fixed["batch_offsets"])  # any address will do: it is not read
            self._steps = [
                _CudaStep(self.context, launch, fixed, part)
                for launch in work.launches
                for part in _parts(launch)
            ]
            self._words: dict[str, list[Any]] = {}
            for step in self._steps:
                for name, word in step.varying:
                    self._words.setdefault(name, []).append(word)
        self._kept: dict[_Order, list[Any]] = {}
        self.watch = CudaWatch(self.context) if ALARM in work.workspace else None
        # What a capture's graph needs beyond this binding; other launches need not know of captures.
        self._tables = [made[name] for name, table in work.tables.items() if not _is_constant(table)]
        self._minds_captures = bool(self._tables or self._zeroed)
        self._order: _Order = (-1, 0)  # of the call before
        self._addresses: Addresses | None = None  # what the parameters hold
        self._scalars: Scalars | None = None
        self._block = -1
        self.is_busy = False  # a call is setting parameters and launching

    def _table(self, table: np.ndarray[Any, Any]) -> driver.Memory:
        make = constant if _is_constant(table) else written
        return make(self.context, table)

    def _follow(self, order: _Order) -> None:
        """Launch in the stream of *order*, with the workspace that is zeroed once for all its calls.

        A graph may run beside other calls of this binding, so each capture has its own. It stays for the
        process with the tables, as the graph may.
        """
        self._order = (-1, 0)
        stream, capture = order
        for step in self._steps:
            step.config.stream = stream
        if order not in self._kept:
            while len(self._kept) >= _MOST_KEPT:
                del self._kept[next(iter(self._kept))]  # a context keeps what a capture uses
            self._kept[order] = self._filled(*order) if self._zeroed else []
            if capture:
                self.context.kept += [*self._kept[order], *self._tables]
        for space, memory in zip(self._zeroed, self._kept[order], strict=True):
            self._set(space.symbol, memory.address)
        self._order = order

    def _filled(self, stream: int, capture: int) -> list[Any]:
        """New workspace of zeros."""
        made: list[Any] = []
        filling = own_stream(self.context).handle if capture else stream
        with driver.uncaptured():
            for space in self._zeroed:
                if space.watched:
                    made.append(driver.SharedWord())
                    continue
                made.append(driver.Memory(space.nbytes, space.symbol))
                made[-1].fill(0, filling)
            if capture:  # else what fills comes first in the stream anyway
                driver.wait(filling, "the filling of workspace")
        if self.watch is not None:
            by_name = {space.symbol: memory for space, memory in zip(self._zeroed, made, strict=True)}
            self.watch.add(by_name[ALARM.symbol], by_name[VERDICT.symbol], _MOST_KEPT)
        return made

    def _set(self, name: str, address: int) -> None:
        for word in self._words.get(name, ()):
            word.value = address

    def enqueue(
        self, stream: int, addresses: Addresses, scalars: Scalars | None = None, block: int = 0
    ) -> None:
        """Launch everything in *stream*, a handle, on arrays at *addresses*, those of all that vary.

        *scalars*: None for those of the call before. *block*: where the call's workspace is.

        Raises LaunchError, DeviceMemoryError or DeviceLostError.
        """
        self._find_current(self._where)
        if self._current.value != self.context.handle:
            with self.context.current():
                self.enqueue(stream, addresses, scalars, block)
            return
        if self.watch is not None:
            self.watch.begin()
        self.is_busy, begun = True, False
        try:
            order = (stream, self._capture(stream) if self._minds_captures else 0)
            if order != self._order:
                self._follow(order)
            if addresses != self._addresses or block != self._block or scalars is not None:
                self._set_arguments(addresses, scalars, block)
            for step in self._steps:
                code = self._launch(*step.call)
                if code:
                    raise self._rejection(code, step, begun)
                begun = True
        except BaseException as error:  # Ctrl-C too
            if isinstance(error, DeviceLostError):
                forget(self.context)
            self._kept.pop(self._order, None)  # where checks have marked rows and columns
            self._order = (-1, 0)
            raise
        finally:
            self.is_busy = False
            if self.watch is not None:
                self.watch.end()

    def _capture(self, stream: int) -> int:
        """The number of the capture that *stream* is in, 0 for none."""
        self._handle.value = stream
        self._is_capturing(self._handle, self._to_status)
        return driver.capture_of(stream) if self._status.value else 0

    def _set_arguments(self, addresses: Addresses, scalars: Scalars | None, block: int) -> None:
        self._addresses = None  # until all are set, as Ctrl-C may come
        for name, address in addresses.items():
            for word in self._words.get(name, ()):
                word.value = address
        if block != self._block:
            self._block = -1
            for symbol, place in self._places.items():
                self._set(symbol, block + place)
            self._block = block
        if scalars is not None and scalars != self._scalars:
            self._scalars = None
            for step in self._steps:
                step.set_scalars(scalars)
            self._scalars = scalars
        self._addresses = addresses

    def _rejection(self, code: int, step: _CudaStep, begun: bool) -> Exception:
        local = tuple(getattr(step.config, name) for name in ("bx", "by", "bz"))
        error = driver.fault(code, f"kernel {step.name!r} with work-groups of {local}")
        if isinstance(error, LaunchError):
            error.begun = begun
        return error
