"""Whether NVIDIA's matrix units for float64 are fused multiply-adds over K in order.

    python benchmarks/reproducible_units.py

Runs every fixed product of float64, and hard ones of its own, by `mma_double` with each instruction and by
`mma_double_bulk`, and compares the bits with the host's. They are the same as long as DOUBLE of
pyclmm/kernels/nvidia/matrix_units.py may accept reproducible products, as it does.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

os.environ["PYCLMM_SELFCHECK"] = "off"  # it would refuse a unit before its bits are counted

import pyclmm
from pyclmm.checks.fixed_products import DATA, FixedProduct
from pyclmm.kernels import kernel_named
from pyclmm.kernels.config import TileConfig
from pyclmm.kernels.device import DeviceInfo
from pyclmm.opencl.devices import device_info, find_device
from pyclmm.problem.canonical import problem_of

SHAPE = (70, 66, 333)
MMA_K = (4, 8)


def configs(name: str, device: DeviceInfo) -> Iterator[TileConfig]:
    """Configurations without split-K and slices, with every instruction."""
    problem = problem_of(*SHAPE, np.dtype("float64"), reproducible=True)
    first, *_ = kernel_named(name).configs(problem, device)
    if name == "mma_double":
        yield from (replace(first, options={**dict(first.options), "mma_k": k}) for k in MMA_K)
    else:
        yield first


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    device = find_device("nvidia")
    print(device.name, device.driver_version)
    wrong = 0
    for name in ("mma_double", "mma_double_bulk"):
        for config in configs(name, device_info(device)):
            for data in DATA:
                product = FixedProduct(f"unit {data}", "float64", SHAPE, data)
                got = product.on_device(pyclmm.gemm, kernel=(name, config), device=device)
                want = product.on_host()
                other = int(np.sum((got.view(np.uint64) != want.view(np.uint64)) & ~np.isnan(want)))
                wrong += other
                print(f"{name} {config}: {data}: {other} of {want.size} elements have other bits", flush=True)
    print("not in order: DOUBLE must not accept it" if wrong else "in order")


if __name__ == "__main__":
    main()
