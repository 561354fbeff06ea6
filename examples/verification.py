"""verify=True notices a bit that a device flips; verify="repair" computes the wrong part again."""

import warnings
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

import pyclmm

queue = cl.CommandQueue(
    pyclmm.default_queue().context,
    properties=cl.command_queue_properties.PROFILING_ENABLE,  # then each launch is PyOpenCL's function
)
rng = np.random.default_rng(20)
a, b = (cla.to_device(queue, rng.standard_normal((200, 200)).astype(np.float32)) for _ in range(2))
out = cla.empty(queue, (200, 200), np.float32)
memory: Any = out.data
pyclmm.matmul(a, b, out=out, verify=True)
right = out.get()


@contextmanager
def faulty_device(row: int, column: int, bit: int) -> Any:
    """No device errs when asked. So this comes between pyclmm and the driver, once: after the kernels of
    the product, and before the one that looks at `out`, it flips a bit of `out` in the device's memory.
    """
    real: Callable[..., Any] = cl.enqueue_nd_range_kernel
    word, place = np.zeros(1, np.uint32), 4 * (200 * row + column)

    def launch(queue: Any, kernel: Any, *sizes: Any) -> Any:
        if kernel.function_name == "verify_out":
            cl.enqueue_nd_range_kernel = real
            cl.enqueue_copy(queue, word, memory, src_offset=place)
            cl.enqueue_copy(queue, memory, word ^ np.uint32(1 << bit), dst_offset=place)
        return real(queue, kernel, *sizes)

    cl.enqueue_nd_range_kernel = launch  # type: ignore[assignment]
    try:
        yield
    finally:
        cl.enqueue_nd_range_kernel = real


with faulty_device(row=70, column=130, bit=29):
    pyclmm.matmul(a, b, out=out, verify=True)  # returns at once
found = None
try:
    pyclmm.finish()
except pyclmm.VerificationError as error:
    found = error
assert found is not None
print(f"noticed: rows {found.rows}, columns {found.columns}, computed by {found.kernel!r}")
print(f"  its sum is off by {found.error:.3g}, where {found.limit:.3g} is allowed")
assert (found.rows, found.columns) == ((70, 71), (130, 131))
assert abs(out.get()[70, 130] - right[70, 130]) > 1e9  # the wrong result stays in out

with faulty_device(row=70, column=130, bit=29), warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    pyclmm.matmul(a, b, out=out, verify="repair")
(warning,) = caught
print(f"repaired: {warning.message}")
assert issubclass(warning.category, pyclmm.VerificationWarning)
assert np.allclose(out.get(), right, atol=1e-3)

with faulty_device(row=70, column=130, bit=3):
    pyclmm.matmul(a, b, out=out, verify=True)
pyclmm.finish()
print("not noticed: bit 3, whose error is far below what rounding may do to the row")

print(pyclmm.health())
assert pyclmm.health() == {"wrong": 2, "repaired": 1}
