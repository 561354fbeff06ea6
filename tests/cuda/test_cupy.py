"""CuPy's adapter on a made-up CuPy: memory of its pool, captures, errors. CuPy's own needs a GPU."""

import contextlib
import gc
import importlib
import sys
import weakref
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pyclmm


class Pool:
    """Gives the memory that was let go of last to the next that asks for as much, as CuPy's does."""

    class OutOfMemoryError(Exception):
        pass

    def __init__(self, cuda):
        self.cuda, self.free, self.full = cuda, {}, False

    def alloc(self, nbytes):
        if self.full:
            raise self.OutOfMemoryError("out of memory")
        free = self.free.setdefault(nbytes, [])
        code, made = 0, SimpleNamespace()
        if free:
            address = free.pop()
        else:
            code = self.cuda.forbidden()
            assert not code, "a capture forbids it"
            address = self.cuda.allocated(nbytes)
        made = Pointer(address)
        weakref.finalize(made, free.append, address)
        return made


class Pointer:
    device_id = 0

    def __init__(self, address, whole=None):
        self.ptr, self.whole = address, whole

    def __add__(self, nbytes):
        return Pointer(self.ptr + nbytes, self)


class Ndarray:
    device = SimpleNamespace(id=0)

    def __init__(self, shape, dtype, data, strides=None):
        self.shape, self.dtype, self.data = shape, np.dtype(dtype), data
        self.strides = strides or np.empty(shape, dtype).strides
        self.ndim = len(shape)


@pytest.fixture
def cupy(cuda, monkeypatch):
    """The module, and its adapter in the module of that name."""
    pool: Any = Pool(cuda)
    made: Any = ModuleType("cupy")
    made.ndarray, made.pool = Ndarray, pool
    made.empty = lambda shape, dtype: Ndarray(
        shape, dtype, pool.alloc(int(np.prod(shape)) * np.dtype(dtype).itemsize)
    )
    made.cuda = SimpleNamespace(
        Device=lambda _: contextlib.nullcontext(),
        alloc=pool.alloc,
        get_current_stream=lambda _: SimpleNamespace(ptr=0x70),
        memory=Pool,
        runtime=SimpleNamespace(is_hip=False),
    )
    monkeypatch.setitem(sys.modules, "cupy", made)
    monkeypatch.delitem(sys.modules, "pyclmm.execution.cupy_arrays", raising=False)
    yield made, importlib.import_module("pyclmm.execution.cupy_arrays")
    sys.modules.pop("pyclmm.execution.cupy_arrays", None)


def placed(cupy, x):
    made = cupy.empty(x.shape, x.dtype)
    cupy.pool.cuda.view(made.data.ptr, x.shape, x.dtype)[...] = x
    return made


def test_arrays_of_cupy_give_arrays_of_cupy(cupy):
    module, _ = cupy
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    result = pyclmm.gemm(placed(module, a), placed(module, a), trans_b="T")
    assert type(result) is Ndarray
    assert np.array_equal(module.pool.cuda.view(result.data.ptr, (3, 3), np.float32), a @ a.T)
    turned = pyclmm.linalg.einsum("ij->ji", placed(module, a))
    assert (type(turned), turned.shape, turned.strides) == (Ndarray, (4, 3), (4, 16))


def test_lists_give_parts_of_one_array(cupy):
    module, _ = cupy
    sizes = [(3, 4), (5, 2), (1, 7)]
    xs = [np.arange(m * n, dtype=np.float32).reshape(m, n) for m, n in sizes]
    pairs = [(placed(module, x), placed(module, x.T.copy())) for x in xs]
    for _ in range(2):
        results = pyclmm.matmul_many(pairs)
        assert len({id(x.data.whole) for x in results}) == 1
        for x, result in zip(xs, results, strict=True):
            assert type(result) is Ndarray
            assert np.array_equal(module.pool.cuda.view(result.data.ptr, result.shape, np.float32), x @ x.T)


def test_workspace_goes_back_to_the_pool(cupy):
    module, adapter = cupy
    block, address = adapter.CUPY.block(4096, 0)
    del block
    gc.collect()
    assert module.pool.alloc(4096).ptr == address


def test_memory_that_a_captured_graph_uses_is_given_to_nobody_else(cupy, cuda):
    module, adapter = cupy
    with cuda.capture(0x70):  # also where the pool has none, which a capture forbids
        block, address = adapter.CUPY.block(4096, 0)
        made, other = adapter.CUPY.new((32, 32), np.dtype("f4"), 0)
    del block, made
    gc.collect()
    assert not {address, other} & {module.pool.alloc(4096).ptr, module.pool.alloc(4096).ptr}


def test_a_full_pool_and_cupy_for_rocm_are_named(cupy):
    module, _ = cupy
    a = placed(module, np.ones((3, 3), np.float32))
    module.pool.full = True
    with pytest.raises(pyclmm.DeviceMemoryError, match="CuPy's memory pool: out of memory"):
        pyclmm.matmul(a, a)
    module.cuda.runtime.is_hip = True
    with pytest.raises(pyclmm.DTypeError, match=r"CuPy for ROCm.*pass a\.get\(\)"):
        pyclmm.matmul(a, a)
