"""`flat`: a 1-D NDRange. A work-item divides its number by N to find its row and column."""

import numpy as np

import pyclmm

a = np.arange(6, dtype=np.float32).reshape(2, 3)
b = np.arange(12, dtype=np.float32).reshape(3, 4)

c = pyclmm.matmul(a, b, kernel="flat")

for work_item in range(8):
    row, column = divmod(work_item, 4)
    print(f"work-item {work_item}: row {row}, column {column}, {c[row, column]:g}")
assert c.tolist() == [[20, 23, 26, 29], [56, 68, 80, 92]]
