"""Runs a plan on JAX's arrays: XLA calls back with its stream, addresses, and memory for the result.

Technique: a foreign function of XLA's (docs.jax.dev, "Foreign function interface") in one of jax.jit's.
"""

from __future__ import annotations

import itertools
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

import jax
import numpy as np
import pyopencl as cl

from ..cuda import xla
from ..cuda.arrays import CudaArray
from ..cuda.streams import Context, Stream
from ..errors import DTypeError, UnsupportedError, WorkspaceError
from ..opencl import forks
from ..opencl.last_call import same
from ..opencl.single_flight import LastUsed
from ..opencl.steps import Scales, scalars_of
from ..problem.gemm import alignment
from .cuda_path import CudaPath
from .execute import Executable
from .operands import Operands

_TARGET, _PLATFORM = "pyclmm_product", "CUDA"
_places = itertools.count(1 << 64, 1 << 44)  # addresses for results that have none yet: no two overlap


class Made:
    """A result, whose array JAX makes when it is launched; a later launch into it makes another."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], ordinal: int) -> None:
        self.shape, self.dtype = shape, dtype
        self.device = _device(ordinal)
        self.address = next(_places)
        self.array: Any = None

    def read(self) -> Any:
        """The array of JAX's."""
        if self.array is None:  # nothing is launched for a result without elements
            with jax.ensure_compile_time_eval():
                self.array = jax.device_put(np.empty(self.shape, self.dtype), self.device)
        return self.array


def _device(ordinal: int) -> Any:
    ours = jax.local_devices(backend=_PLATFORM.lower())
    return next(device for device in ours if device.local_hardware_id == ordinal)


MOVED = "JAX moved an array as it called; pass jax.numpy.copy of each"


class MovedError(UnsupportedError):
    """An array lies at an address, or a kernel needs workspace, that the product was not compiled for."""


_numbers = itertools.count()
_launches: weakref.WeakValueDictionary[int, XlaLaunch] = weakref.WeakValueDictionary()


class XlaLaunch(ABC):
    """Launches in a device's *context* that XLA calls."""

    def __init__(self, context: Context) -> None:
        self.context, self._device = context, _device(context.ordinal)
        self._usual = None if self._device == jax.local_devices()[0] else self._device  # as JAX's setting
        self.error: BaseException | None = None  # of the launch: XLA tells only the text
        self._number = next(_numbers)
        _launches[self._number] = self

    def compile(
        self, results: Sequence[Any], workspace_nbytes: int = 0, aliases: Mapping[int, int] | None = None
    ) -> None:
        """Make the function that JAX compiles, which gives *results*, by their shapes and dtypes. *aliases*:
        the numbers of arrays with whose content results begin. Raises UnsupportedError."""
        _register()
        of_all = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in results]
        if workspace_nbytes:
            of_all.append(jax.ShapeDtypeStruct((workspace_nbytes,), np.uint8))
        foreign = jax.ffi.ffi_call(_TARGET, of_all, input_output_aliases=aliases)
        self.workspace_nbytes = workspace_nbytes
        number, dtypes = np.int64(self._number), [x.dtype for x in results]

        def launched(*arrays: Any) -> Any:
            made = foreign(*arrays, number=number)[: len(dtypes)]
            for x, dtype in zip(made, dtypes, strict=True):
                if x.dtype != dtype:
                    raise DTypeError(
                        f"the result has dtype {dtype}, which JAX has only with "
                        "jax.config.update('jax_enable_x64', True); set that, or pass dtype="
                    )
            return made

        self._compiled = jax.jit(launched)

    def __call__(self, *arrays: Any) -> list[Any]:
        """The results. Raises what the launch raised, or WorkspaceError."""
        try:
            # JAX computes on its default device, unless an array is committed to another one
            is_default = jax.config.jax_default_device == self._usual
            with nullcontext() if is_default else jax.default_device(self._device):
                made: list[Any] = self._compiled(*arrays)
            if isinstance(made[0], jax.core.Tracer):  # jax.jit's function may outlive the plan
                with jax.ensure_compile_time_eval():
                    return self(*arrays)
            if not arrays:
                made = jax.device_put(made, self._device)
        except Exception as error:  # JAX raises JaxRuntimeError, or ValueError where it need not trace
            cause, self.error = self.error, None
            if cause is not None:
                raise cause from None
            if "RESOURCE_EXHAUSTED" in str(error):
                raise WorkspaceError(f"JAX's allocator: {error}") from error
            raise
        return made

    @abstractmethod
    def enqueue(self, stream: int, operands: list[int], results: list[int]) -> None:
        """Launch in the *stream* of this handle on arrays at these addresses; behind those of the results is
        that of workspace, if it was asked for."""


class _XlaProduct(XlaLaunch):
    """The launches of *executable*.

    *aligned*: of JAX's arrays, in their order, the problem's names, and what each address must be a multiple
    of. *fixed*: the addresses of pyclmm's own arrays, by the problem's names.
    """

    def __init__(
        self,
        executable: Executable,
        context: Context,
        aligned: Mapping[str, int],
        fixed: Mapping[str, int],
        scales: Scales,
    ) -> None:
        super().__init__(context)
        self._executable = executable
        self._aligned, self._fixed = tuple(aligned.items()), fixed
        self._scalars = scalars_of(*scales)

    def enqueue(self, stream: int, operands: list[int], results: list[int]) -> None:
        addresses = dict(self._fixed)
        for (name, aligned), address in zip(self._aligned, operands, strict=False):
            if address % aligned:
                raise MovedError(MOVED)
            addresses[name] = address
        addresses["out"], *workspace = results
        binding = self._executable.latest_binding()
        if binding is None or binding.is_busy or binding.context is not self.context:
            binding = self._executable.idle_binding(Stream(self.context, stream))
        if binding.workspace_nbytes > self.workspace_nbytes:  # of the next kernel, in another thread's call
            raise MovedError("another thread's call has changed the kernel meanwhile; call again")
        binding.enqueue(stream, addresses, self._scalars, *workspace)


def _launched(number: int, stream: int, operands: list[int], results: list[int]) -> None:
    launch = _launches.get(number)
    if launch is None:
        raise UnsupportedError("the plan of this product was dropped before XLA launched it; call it again")
    try:
        launch.enqueue(stream, operands, results)
    except BaseException as error:
        launch.error = error
        raise


@cache
def _register() -> Any:
    if not hasattr(jax, "ffi"):
        raise UnsupportedError("arrays of JAX's on CUDA devices need JAX 0.5 or later; update it")
    handler = xla.handler(_launched)
    jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(handler), platform=_PLATFORM)
    return handler


class XlaPath(CudaPath):
    """Launches one planned product of JAX's arrays on a CUDA device."""

    def __init__(self, *planned: Any) -> None:
        super().__init__(*planned)
        if self.executable.repairs:
            raise UnsupportedError("verify='repair' is not for JAX's arrays on CUDA; pass verify=True")
        self._products: LastUsed[Any, _XlaProduct] = LastUsed(16)  # for other scalars, say
        self._last: _Last | None = None

    def again(
        self, given: Operands, queue: Any, scales: Scales, wait_for: list[cl.Event] | None
    ) -> tuple[Any, list[cl.Event]] | None:
        last = self._last
        if last is None or queue is not None or wait_for is not None:
            return None
        if not (same(scales, last.scales) and last.fits(given, self.executable.work)):
            return None
        forks.check_process()
        try:
            return last.product(*[given[name] for name in last.names])[0], []
        except MovedError:
            return None

    def run(self, operands: Operands, queue: Stream, scales: Scales, wait_for: list[cl.Event]) -> CudaArray:
        out: CudaArray = self._begin(operands, queue, wait_for)
        if self._is_empty:
            return out
        read = {name: operands[name] for name, _ in self._arrays if name != "out"}
        ours = {name: x for name, x in read.items() if isinstance(x.owner, Made | jax.Array)}
        product = self._product(read, ours, out, queue, scales)
        arrays = [_array(x) for x in ours.values()]
        begun = [] if out.owner.array is None else [out.owner.array]
        (out.owner.array,) = product(*arrays, *begun)
        if self._repeats and ours.keys() == operands.keys():
            self._last = _Last(product, operands, self.executable.work, queue.context, scales)
        return out

    def _product(
        self, read: Operands, ours: Operands, out: CudaArray, queue: Stream, scales: Scales
    ) -> _XlaProduct:
        """The product of these scalars, from XLA's arrays *ours* and pyclmm's own, made if there is none."""
        made: Made = out.owner
        fixed = {self._names[name]: x.address for name, x in read.items() if name not in ours}
        begun = made.array is not None
        key = (repr(scales), made.shape, begun, *fixed.items(), queue.context, self.executable.choice)

        def compiled() -> _XlaProduct:
            binding = self.executable.binding(queue)
            aligned = {self._names[name]: alignment(x.address) for name, x in ours.items()}
            product = _XlaProduct(self.executable, queue.context, aligned, fixed, scales)
            product.compile([made], binding.workspace_nbytes, {len(ours): 0} if begun else None)
            return product

        return self._products.get(key, compiled)


class _Last:
    """The arrays and scalars of a call, to compare the next with."""

    __slots__ = ("_context", "_layouts", "_work", "names", "product", "scales")

    def __init__(
        self, product: _XlaProduct, operands: Operands, work: Any, context: Context, scales: Scales
    ) -> None:
        self.product, self._work, self._context = product, work, context
        self.scales, self.names = scales, tuple(operands)
        arrays = {name: _array(x) for name, x in operands.items()}
        self._layouts = {name: (type(x), x.aval, x.sharding) for name, x in arrays.items()}

    def fits(self, given: Operands, work: Any) -> bool:
        """Whether *given* has such arrays on the same device, and *work* is still the plan's."""
        if work is not self._work or not self._context.is_known or len(given) != len(self.names):
            return False
        for name, layout in self._layouts.items():
            x: Any = given.get(name)
            # Tuples compare what is not the same object alone; JAX compares in Python.
            if type(x) is not layout[0] or (type(x), x.aval, x.sharding) != layout or x.is_deleted():
                return False
        return True


def _array(x: CudaArray) -> Any:
    """JAX's array that *x* is, or is a view of."""
    return x.owner.read() if isinstance(x.owner, Made) else x.owner
