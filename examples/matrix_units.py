"""Matrix units by name: which of their kernels this device has, and why it does not have the others."""

from typing import Any, Literal

import numpy as np

import pyclmm

rng = np.random.default_rng(1)


def show(
    kernel: str,
    dtype: str,
    precision: Literal["highest", "high"] = "highest",
    order: str | None = None,
    **weights: Any,
) -> None:
    a, b = (rng.integers(-4, 5, (128, 128)).astype(dtype) for _ in "ab")
    if "bits" in weights:
        b[::64], b[1::64] = -7, 8  # in each group 4 bits reach from -7 to 8, so their scale is 1
    given: Any = pyclmm.quantize(b.T, **weights).to(b, order).T if weights else b
    try:
        c = pyclmm.matmul(a, given, kernel=kernel, precision=precision)
    except pyclmm.UnsupportedError as error:
        print(f"{kernel:16} {dtype:8} no: {error}")
    else:
        assert np.array_equal(c, a @ b)  # small whole numbers are exact in every one of these types
        print(f"{kernel:16} {dtype:8} {precision}: right")


for kernel in ("wgmma", "mma", "mfma", "wmma", "dpas"):  # NVIDIA sm_90a, sm_80 on; AMD CDNA, RDNA 3; Intel
    show(kernel, "float16")
for kernel in ("split", "mma_split"):  # float32 in two parts
    show(kernel, "float32", "high")
for kernel in ("mma_double", "mma_double_bulk"):
    show(kernel, "float64")
show("mma_quantized", "float16", mode="mxfp4")  # weights whose 4 bits hold these numbers exactly
show("wgmma_quantized", "float16", bits=4, group_size=64)
show("wgmma_fragments", "float16", bits=4, group_size=64, order="fragments")
show("amx", "int8")  # CPUs
show("residues", "float64", "high")  # on any device: matrix units of 8-bit integers where there are some
show("limbs", "float64", "high")  # on any device: 32-bit integers
