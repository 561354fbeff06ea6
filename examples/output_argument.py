"""out=: the result goes into your array, which may be a view or overlap an operand."""

import numpy as np

import pyclmm

a = np.arange(9, dtype=np.float32).reshape(3, 3)
b = np.ones((3, 3), np.float32)

canvas = np.zeros((5, 8), np.float32)
result = pyclmm.matmul(a, b, out=canvas[1:4, 2:8:2])  # every second column: the others stay zero
assert result.base is canvas
assert np.array_equal(canvas[1:4, 2:8:2], a @ b)
assert canvas.sum() == (a @ b).sum()
print(canvas)

square = a.copy()
pyclmm.matmul(square, square, out=square)  # as if operands and out did not overlap
assert np.array_equal(square, a @ a)

try:
    pyclmm.matmul(a, b, out=np.zeros((3, 4), np.float32))
except pyclmm.ShapeError as error:
    print(error)
else:
    raise AssertionError("a 3 x 3 result does not fit a 3 x 4 out")
