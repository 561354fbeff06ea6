"""Operands are read after what ``wait_for`` names: by a kernel, by a copy or by NumPy."""

import threading

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm import linalg

EYE = np.eye(4, dtype=np.float32)


def unaligned(x):
    made = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    made[...] = x
    return made


LAYOUTS = {
    "dense": np.array,
    "with gaps": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "of the other byte order": lambda x: x.astype(x.dtype.newbyteorder()),
    "unaligned": unaligned,
}
CALLS = {
    "matmul": (pyclmm.matmul, np.matmul),
    "Matmul": (lambda a, b, **ways: pyclmm.Matmul(a, b)(a, b, **ways), np.matmul),
    "c": (
        lambda a, b, **ways: pyclmm.gemm(EYE, EYE, a, beta=1.0, bias=b[0], **ways),
        lambda a, b: EYE + a + b[0],
    ),
    "ragged": (lambda a, b, **ways: pyclmm.ragged_matmul(a, b[None], [4], **ways), np.matmul),
    "tiles": (lambda a, b, **ways: pyclmm.matmul(a, b, memory_limit=1 << 20, **ways), np.matmul),
    "products of elements": (
        lambda a, b, **ways: linalg.einsum("ij,ij->ij", a, b, **ways),
        lambda a, b: a * b,
    ),
    "a copy, then a product": (
        lambda a, b, **ways: linalg.einsum("ijk,kji->", a[None], b[..., None], **ways),
        lambda a, b: np.einsum("ijk,kji->", a[None], b[..., None]),
    ),
    "flattened": (lambda a, b, **ways: linalg.vdot(a.T, b.reshape(-1), **ways), lambda a, b: np.vdot(a.T, b)),
    "inverse": (
        lambda a, b, **ways: linalg.matrix_power(a, -1, **ways),
        lambda a, b: np.linalg.inv(a.astype("f4")),
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CALLS)
def test_numpy_operands_are_read_after_what_is_waited_for(queue, rng, name, layout):
    call, wanted = CALLS[name]
    a, b = (LAYOUTS[layout](rng.integers(1, 4, (4, 4)).astype(np.float32)) for _ in "ab")
    later = 8 * EYE + a
    got = written_meanwhile(queue, a, later, lambda **ways: call(a, b, **ways))
    np.testing.assert_array_equal(got, wanted(later.astype(np.float32), b.astype(np.float32)))


@pytest.mark.parametrize(
    "call", [pyclmm.matmul, lambda *xs, **ways: linalg.einsum("ij,jk", *xs, **ways)], ids=["matmul", "einsum"]
)
def test_what_is_copied_beside_arrays_is_read_after_what_is_waited_for(queue, rng, call):
    a = rng.integers(1, 4, (4, 4)).astype(np.float32)
    b = cla.to_device(queue, EYE)
    got = written_meanwhile(queue, a, a + 1, lambda **ways: call(a, b, mixed="copy", **ways))
    np.testing.assert_array_equal(got.get(), a)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y, **ways: linalg.vdot(x.T, y.ravel(), **ways),
        lambda x, y, **ways: linalg.einsum("ijk,kji->", x.reshape(1, 4, 4), y.reshape(4, 4, 1), **ways),
        lambda x, y, **ways: linalg.multi_dot([y, y, x], **ways),
    ],
    ids=["flattened", "a copy, then a product", "steps"],
)
def test_arrays_are_read_after_what_is_waited_for(queue, rng, call):
    x, y, later = (cla.to_device(queue, rng.integers(1, 4, (4, 4)).astype("f4")) for _ in range(3))
    call(x, y).get()  # compiled before
    gate, other = cl.UserEvent(queue.context), cl.CommandQueue(queue.context)
    copied = cl.enqueue_copy(other, x.base_data, later.base_data, wait_for=[gate])
    got = call(x, y, wait_for=[copied])
    queue.flush()
    writer = threading.Timer(0.1, gate.set_status, [cl.command_execution_status.COMPLETE])
    writer.start()
    assert np.array_equal(got.get(), call(later, y).get())
    writer.join()


def written_meanwhile(queue, a, later, call):
    """What *call* returns while *a* becomes *later*, which it is to wait for."""
    gate = cl.UserEvent(queue.context)

    def write():
        a[...] = later
        gate.set_status(cl.command_execution_status.COMPLETE)

    writer = threading.Timer(0.1, write)
    writer.start()
    result = call(wait_for=[gate])
    writer.join()
    return result


@pytest.mark.parametrize("subscripts", ["ij->ji", "ij->i", "ij,ij->ij", "ij,jk->ik"])
@pytest.mark.parametrize(
    "wrong",
    [{"wait_for": 3}, {"kernel": "nosuch"}, {"precision": "best"}, {"reproducible": "a"}, {"verify": "a"}],
)
def test_linalg_checks_what_numpy_has_no_use_for(subscripts, wrong):
    operands = [EYE for _ in subscripts.partition("->")[0].split(",")]
    with pytest.raises(pyclmm.PyclmmError, match=next(iter(wrong))):
        linalg.einsum(subscripts, *operands, **wrong)
    for n in range(3):
        with pytest.raises(pyclmm.PyclmmError, match=next(iter(wrong))):
            linalg.matrix_power(EYE, n, **wrong)
