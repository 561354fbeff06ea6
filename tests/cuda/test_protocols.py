"""Arrays with CUDA's array interface or DLPack alone, as numba's, and pyclmm's own results for them."""

import ctypes
import gc

import numpy as np
import pytest

import pyclmm
from pyclmm import linalg
from pyclmm.cuda import device_array, dlpack
from pyclmm.cuda.device_array import DeviceArray
from pyclmm.problem.dtypes import dtype_of
from tests.support.linalg_calls import CALLS

A = np.arange(12, dtype=np.float32).reshape(3, 4)


class Interface:
    """Numba's arrays have no more than this."""

    def __init__(self, cuda, x, **more):
        self.cuda, self.address = cuda, cuda.allocated(x.nbytes)
        cuda.view(self.address, x.shape, x.dtype)[...] = x
        self.told = {"shape": x.shape, "typestr": x.dtype.str, "data": (self.address, False), "version": 3}
        self.told |= more

    @property
    def __cuda_array_interface__(self):
        return self.told


class OnlyDlpack:
    def __init__(self, cuda, x):
        self.address, self.shape, self.dtype, self.streams = cuda.allocated(x.nbytes), x.shape, x.dtype, []
        cuda.view(self.address, x.shape, x.dtype)[...] = x

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, *, stream=None):
        self.streams.append(stream)
        return dlpack.capsule(self.address, self.shape, self.dtype, 0, self)


def elements(cuda, x):
    told = x.__cuda_array_interface__
    return cuda.view(told["data"][0], told["shape"], told["typestr"])


class Silent(OnlyDlpack):
    """Its library does not lend it."""

    def __dlpack__(self, *, stream=None):
        raise BufferError("it is busy")


class Failing(OnlyDlpack):
    """Its library has an exception of its own for what goes wrong."""

    class Error(Exception):
        pass

    def __dlpack__(self, *, stream=None):
        raise self.Error("it is broken")


class FailingInterface(Failing):
    @property
    def __cuda_array_interface__(self):
        return self.__dlpack__()


class Nowhere(OnlyDlpack):
    """Its library does not say where it is."""

    def __dlpack_device__(self):
        return None


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda cuda: Silent(cuda, A), "a is a Silent: it is busy; pass a "),
        (lambda cuda: Nowhere(cuda, A), "a is a Nowhere: .*; pass a "),
        (lambda cuda: Failing(cuda, A), "a is a Failing: it is broken; pass a "),
        (lambda cuda: FailingInterface(cuda, A), "a is a FailingInterface: it is broken; pass a "),
        (lambda cuda: Interface(cuda, A, data=None), "a is a Interface: .*; pass a "),
        (lambda cuda: Interface(cuda, A, typestr="x"), "a is a Interface: .*; pass a "),
    ],
)
def test_what_another_library_refuses_is_an_error_of_the_argument(made, words, cuda):
    with pytest.raises(pyclmm.DTypeError, match=words):
        pyclmm.matmul(made(cuda), made(cuda))


@pytest.mark.parametrize("told", [None, (), 3])
def test_an_interface_that_is_no_dict_is_refused(told, cuda):
    x = Interface(cuda, A)
    x.told = told
    with pytest.raises(pyclmm.DTypeError, match=r"b is a Interface: .*; pass a "):
        pyclmm.matmul(Interface(cuda, A.T.copy()), x)


# A field of the interface, a value that it cannot have, and what is said.
WRONG: dict[str, list[tuple[object, str]]] = {
    "version": [(4, "has version 4, and 0 to 3 are known"), ("3", "has version 3")],
    "stream": [
        (0, "has stream 0; 1 is the legacy default stream"), (-1, "has stream -1"), ("1", "integer"),
        (1 << 64, "stream 18"),
    ],
    "data": [
        ((0, False), "has address 0, where no elements are"), ((None, False), "has address 0"),
        ((-8, False), "has address -8"), ((1 << 64, False), "has address 18"), (("x", False), "integer"),
        (5, "unpack"),
    ],
    "shape": [((-3, 4), r"has shape \(-3, 4\)"), ((3.0, 4), "integer"), (None, "iterable")],
    "strides": [
        ((16,), r"strides \(16,\)"), ((1 << 63, 4), r"strides \(9"), ((16, 4, 4), "strides"),
        ((), "strides"), ((16.0, 4), "integer"),
    ],
    "typestr": [(None, "None")],
}  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [(field, *wrong) for field, values in WRONG.items() for wrong in values],
    ids=str,
)
def test_fields_that_no_array_has_are_refused(field, value, said, cuda):
    for name in ("a", "b", "out"):
        given = {"a": Interface(cuda, A), "b": Interface(cuda, A.T.copy())}
        given["out"] = Interface(cuda, np.zeros((3, 3), np.float32))
        given[name].told[field] = value
        with pytest.raises(pyclmm.DTypeError, match=f"{name} is a Interface: .*{said}"):
            pyclmm.matmul(given["a"], given["b"], out=given["out"])


def test_fields_as_other_libraries_write_them(cuda):
    y = Interface(cuda, A.T.copy())
    for fields in (
        {"version": 0}, {"stream": None}, {"stream": 2}, {"stream": np.int64(1)}, {"strides": [16, 4]},
        {"shape": [3, 4]}, {"shape": tuple(map(np.int64, A.shape))}, {"descr": [("", "<f4")]}, {"mask": None},
    ):  # fmt: skip
        assert np.array_equal(elements(cuda, pyclmm.matmul(Interface(cuda, A, **fields), y)), A @ A.T)
    x = Interface(cuda, A)
    x.told |= {"data": (x.address + 32, False), "strides": (-16, 4)}
    assert np.array_equal(elements(cuda, pyclmm.matmul(x, y)), A[::-1] @ A.T)
    x.told |= {"data": (None, False), "shape": (0, 4), "strides": None}
    assert pyclmm.matmul(x, y).shape == (0, 3)


class Changed(OnlyDlpack):
    """What it lends has a field with another value."""

    def __init__(self, cuda, x, field, value):
        super().__init__(cuda, x)
        self.field, self.value = field, value

    def __dlpack__(self, *, stream=None):
        made = super().__dlpack__(stream=stream)
        setattr(dlpack._managed(made).tensor, self.field, self.value)
        return made


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("device_type", 1, "on one of DLPack's type 1"),
        ("ndim", -1, "a tensor of -1 axes"),
        ("data", None, r"of shape \(3, 4\) has no memory"),
    ],
)
def test_a_capsule_of_no_array_is_refused(field, value, said, cuda):
    with pytest.raises(pyclmm.DTypeError, match=said):
        pyclmm.matmul(Changed(cuda, A, field, value), OnlyDlpack(cuda, A.T.copy()))


def test_the_array_interface_in_and_out(cuda):
    x, y = Interface(cuda, A), Interface(cuda, A.T.copy())
    result = pyclmm.matmul(x, y)
    assert type(result) is DeviceArray
    assert repr(result).startswith("<pyclmm array (3, 3) of float32 on ")
    assert np.array_equal(elements(cuda, result), A @ A.T)
    assert np.array_equal(elements(cuda, pyclmm.matmul(result, x)), A @ A.T @ A)  # it is taken, too
    told = result.__cuda_array_interface__
    assert told["stream"] == 1
    assert told["version"] == 3
    assert told["strides"] is None


def test_a_result_of_bfloat16_is_taken_by_dlpack(cuda):
    """CUDA's array interface has no name for the type."""
    x = OnlyDlpack(cuda, A.astype(dtype_of("bfloat16")))
    result = pyclmm.gemm(x, x, trans_b="T")
    assert not hasattr(result, "__cuda_array_interface__")
    for again in (pyclmm.matmul(result, x), linalg.dot(result, x), pyclmm.matmul_many([(result, x)])[0]):
        assert again.dtype == dtype_of("bfloat16")
        got = cuda.view(again.address, (3, 4), again.dtype).astype(np.float32)
        np.testing.assert_allclose(got, A @ A.T @ A, rtol=2**-6)


def test_no_copy_is_lent(cuda):
    result = pyclmm.gemm(Interface(cuda, A), Interface(cuda, A), trans_b="T")
    for asked in ({"copy": True}, {"dl_device": (1, 0)}):
        with pytest.raises(BufferError, match="copy what your library makes of it"):
            result.__dlpack__(**asked)
    for asked in ({"copy": False}, {"dl_device": (2, 0)}):
        assert dlpack.read(result.__dlpack__(**asked))[0] == result.address


def test_out_is_written_where_it_lies(cuda):
    x, out = Interface(cuda, A), Interface(cuda, np.zeros((3, 3), np.float32))
    assert pyclmm.gemm(x, x, trans_b="T", out=out) is out
    assert np.array_equal(elements(cuda, out), A @ A.T)
    out.told["data"] = (out.address, True)
    with pytest.raises(pyclmm.ArgumentError, match="out is read-only"):
        pyclmm.gemm(x, x, trans_b="T", out=out)


def test_strides_and_masks(cuda):
    x = Interface(cuda, A, shape=(2, 4), strides=(32, 4))
    assert np.array_equal(elements(cuda, pyclmm.gemm(x, x, trans_b="T")), A[::2] @ A[::2].T)
    with pytest.raises(pyclmm.DTypeError, match="a has a mask"):
        pyclmm.matmul(Interface(cuda, A, mask=x), x)


def test_the_producers_stream_is_waited_for_on_the_device(cuda):
    x, y = Interface(cuda, A, stream=0x55), Interface(cuda, A.T.copy(), stream=1)
    cuda.calls.clear()
    pyclmm.matmul(x, y)
    order = [
        given[:2] if name == "cuStreamWaitEvent" else given[1::-1]  # a stream and an event
        for name, given in cuda.calls
        if name in ("cuEventRecord", "cuStreamWaitEvent")
    ]
    recorded_then_waiting = [(order[i][0], order[i + 1][0]) for i in (0, -2)]
    assert recorded_then_waiting == [(0x55, 1), (1, 0x55)]  # the product is between theirs
    assert cuda.launches[-1][-1] == 1


def test_dlpack_in(cuda):
    x, y = OnlyDlpack(cuda, A), OnlyDlpack(cuda, A.T.copy())
    assert np.array_equal(elements(cuda, pyclmm.matmul(x, y)), A @ A.T)
    assert x.streams == [1]


def lent():
    """How many capsules are held."""
    return sum(type(x) is dlpack._Lent for x in gc.get_objects())


def test_a_type_that_is_on_both_sides(cuda):
    class Either(OnlyDlpack):
        where = 2

        def __dlpack_device__(self):
            return self.where, 0

        def __dlpack__(self, **keywords):
            return A.__dlpack__() if self.where == 1 else super().__dlpack__(stream=keywords["stream"])

    x, y = Either(cuda, A), Either(cuda, A)
    y.where = 1
    for _ in range(2):
        assert isinstance(pyclmm.gemm(y, y, trans_b="T"), np.ndarray)
        assert isinstance(pyclmm.gemm(x, x, trans_b="T"), DeviceArray)


def test_operands_are_held_until_the_work_has_ended(cuda):
    x = Interface(cuda, A)
    pyclmm.gemm(x, x, trans_b="T")
    assert not lent()
    cuda.fail["cuEventQuery"] = 600  # it has not
    for _ in range(3):
        pyclmm.matmul(OnlyDlpack(cuda, A), OnlyDlpack(cuda, A.T.copy()))
    gc.collect()
    assert lent() == 6
    cuda.fail.clear()
    pyclmm.gemm(x, x, trans_b="T")
    assert not lent()  # capsules that nobody took are let go


def test_operands_are_held_while_an_event_cannot_be_asked(cuda):
    with cuda.failing(cuEventQuery=900):  # another thread captures a stream
        for _ in range(2):
            pyclmm.matmul(OnlyDlpack(cuda, A), OnlyDlpack(cuda, A.T.copy()))
        gc.collect()
        assert lent() == 4
    pyclmm.release()
    assert not lent()


def test_operands_are_held_after_a_launch_that_failed(cuda):
    x, y = OnlyDlpack(cuda, A), OnlyDlpack(cuda, A.T.copy())
    plan = pyclmm.Matmul(x, y, kernel="naive")
    cuda.fail |= {"cuLaunchKernelEx": 1, "cuEventQuery": 600}
    gc.collect()
    before = lent()
    with pytest.raises(pyclmm.LaunchError):
        plan(x, y)
    gc.collect()
    assert lent() == before + 2


def test_memory_of_the_host_is_refused(cuda):
    x = Interface(cuda, A)
    x.told["data"] = (A.ctypes.data, False)
    with pytest.raises(pyclmm.DTypeError, match=r"b is at 0x.*, which is no memory of a CUDA device"):
        pyclmm.matmul(Interface(cuda, A.T.copy()), x)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16", "bfloat16", "float64", "complex64"])
def test_a_capsule_says_what_was_given(dtype):
    memory = ctypes.create_string_buffer(64)
    at = ctypes.addressof(memory)
    made = dlpack.capsule(at, (2, 0, 3), dtype_of(dtype), 1, memory)
    size = dtype_of(dtype).itemsize
    assert dlpack.read(made) == (at, (2, 0, 3), (3 * size, 3 * size, size), dtype_of(dtype), 1)


def test_a_taken_capsule_lives_until_the_taker_lets_go():
    memory, before = ctypes.create_string_buffer(64), lent()
    made = dlpack.capsule(ctypes.addressof(memory), (4,), np.dtype("f4"), 0, memory)
    managed = dlpack._managed(made)
    used = ctypes.create_string_buffer(b"used_dltensor")
    ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(made), used)
    del made
    assert lent() == before + 1
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(managed.deleter)(ctypes.addressof(managed))
    assert lent() == before


def test_a_capsule_that_nobody_took_loses_no_exception():
    def failing():
        raise KeyError("its taker's")

    memory, before = ctypes.create_string_buffer(64), lent()
    with pytest.raises(KeyError, match="its taker's"):
        (dlpack.capsule(ctypes.addressof(memory), (4,), np.dtype("f4"), 0, memory), failing())
    assert lent() == before


def test_an_element_type_that_is_unknown():
    memory = ctypes.create_string_buffer(64)
    made = dlpack.capsule(ctypes.addressof(memory), (4,), np.dtype("f4"), 0, memory)
    tensor = dlpack._managed(made).tensor
    tensor.code, tensor.bits = 10, 8  # float8_e4m3fn
    with pytest.raises(pyclmm.DTypeError, match=r"DLPack's type \(10, 8 bits, 1 lanes\)"):
        dlpack.read(made)


def test_what_is_exported_is_ordered_behind_the_result(cuda):
    result = pyclmm.matmul(Interface(cuda, A), Interface(cuda, A.T.copy()))
    for stream, waits in ((None, 0), (1, 0), (0x88, 1), (-1, 0)):
        cuda.calls.clear()
        assert result.__dlpack_device__() == (2, 0)
        dlpack.read(result.__dlpack__(stream=stream, max_version=(1, 0)))
        assert [name for name, _ in cuda.calls].count("cuStreamWaitEvent") == waits


@pytest.fixture
def much_is_dropped(cuda, limits):
    """Ten results that nobody has any more; a call beside them."""
    limits(dropped=100)
    x = Interface(cuda, A)
    for _ in range(10):
        pyclmm.gemm(x, x, trans_b="T")
    gc.collect()
    return lambda: pyclmm.gemm(x, x, trans_b="T")


def test_memory_of_results_is_freed_when_much_is_dropped(cuda, much_is_dropped):
    much_is_dropped()
    assert cuda.synchronized.count("all") >= 1
    assert sum(name == "cuMemFreeAsync" for name, _ in cuda.calls) > 5


@pytest.mark.parametrize(
    "name", ["outer", "vecdot that keeps its axis", "a transpose", "a sum", "matrix_power 0"]
)
def test_linalg_gives_arrays_of_its_own(cuda, name):
    """Also where the result has another shape than the product, or would be a view."""
    shapes, call = CALLS[name]
    xs = [np.arange(np.prod(shape), dtype=np.float32).reshape(shape) for shape in shapes]
    result = call(linalg, *(Interface(cuda, x) for x in xs))
    assert type(result) is DeviceArray
    assert np.array_equal(elements(cuda, result), call(np, *xs))


def test_an_array_of_another_shape_holds_the_memory(cuda, limits):
    limits(dropped=0)
    x, y = Interface(cuda, A), Interface(cuda, A.T.copy())
    first = pyclmm.matmul(x, y)
    second = first.viewed((9,))
    del first
    gc.collect()
    other = pyclmm.matmul(y, x)  # frees what was dropped
    assert other.address != second.address
    assert np.array_equal(elements(cuda, second), (A @ A.T).reshape(9))


def test_memory_stays_where_the_device_cannot_be_waited_for(cuda, much_is_dropped):
    cuda.calls.clear()
    with cuda.failing(cuCtxSynchronize=900):
        much_is_dropped()
    assert "cuMemFreeAsync" not in [name for name, _ in cuda.calls]
    pyclmm.release()
    assert sum(name == "cuMemFreeAsync" for name, _ in cuda.calls) >= 2


def test_an_array_that_is_freed_at_the_end_of_the_process(cuda, monkeypatch):
    """Python has emptied the module by then."""
    made = pyclmm.matmul(Interface(cuda, A), Interface(cuda, A.T.copy()))
    with monkeypatch.context() as patch:
        patch.setattr(device_array, "_dropped", None)
        made.__del__()
