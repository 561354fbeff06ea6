"""install: `a @ b` and `np.matmul(a, b)` for PyOpenCL's Arrays, for a block or for the whole program."""

import numpy as np
import pyopencl.array as cla

import pyclmm

queue = pyclmm.default_queue()
x = np.arange(6, dtype=np.float32).reshape(2, 3)
a, b = cla.to_device(queue, x), cla.to_device(queue, x.T.copy())

with pyclmm.installed():
    assert np.array_equal((a @ b).get(), x @ x.T)
    assert np.array_equal(np.matmul(a, a.T).get(), x @ x.T)
    square = a @ b
    square @= square
    print(square.get())
    try:
        a @ x.T
    except TypeError as error:
        print(error)
    else:
        raise AssertionError("a NumPy array beside an Array is refused")

try:
    a @ b
except TypeError as error:
    print(f"after the block: {error}")
else:
    raise AssertionError("the class is as it was")

pyclmm.install()  # for the whole program
assert (a @ b).shape == (2, 2)
pyclmm.uninstall()
