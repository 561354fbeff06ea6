"""What a process of the campaign does: products, compared with NumPy, exactly.

    python child.py [--queue in-order|out-of-order] [--dtype NAME ...]

Prints one line of JSON: the kernels used and the warnings given. Exit code 1 if a product is wrong.
"""

import argparse
import json
import warnings

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

import pyclmm


def operands(dtype):
    rng = np.random.default_rng(7)
    return [rng.integers(-3, 4, (70, 70)).astype(dtype) for _ in range(2)]


def product(dtype, queue):
    """Multiply NumPy arrays, or Arrays on *queue*; the kernel's name."""
    a, b = operands(dtype)
    if queue is None:
        plan = pyclmm.Matmul(a, b)
        result = plan(a, b)
    else:
        x, y = cla.to_device(queue, a), cla.to_device(queue, b)
        plan = pyclmm.Matmul(x, y, queue=queue)
        result = plan(x, y).get(queue)
    if not np.array_equal(result, a @ b):
        raise SystemExit(f"a wrong product of {dtype} by {plan.kernel}")
    return plan.kernel


def new_queue(order):
    if order is None:
        return None
    kind = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    context = pyclmm.default_queue().context
    return cl.CommandQueue(context, properties=kind if order == "out-of-order" else 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--queue", choices=["in-order", "out-of-order"])
    parser.add_argument("--dtype", nargs="+", default=["float32", "int32"])
    options = parser.parse_args()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        queue = new_queue(options.queue)
        kernels = {dtype: product(dtype, queue) for dtype in options.dtype}
    said = [
        f"{w.category.__name__}: {w.message}"
        for w in caught
        if not issubclass(w.category, cl.CompilerWarning)
    ]
    print(json.dumps({"kernels": kernels, "warnings": said}))


if __name__ == "__main__":
    main()
