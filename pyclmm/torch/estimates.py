"""Whether pyclmm computes a product of PyTorch's: because that is demanded, or because its estimate is lower.

pyclmm's estimate is that by which it chooses kernels (selection/). cuBLAS's is a simple model from the same
rates of the device, in which no shape is slow: it gives cuBLAS the benefit of the doubt.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ..cuda.streams import context_of
from ..errors import UnsupportedError
from ..kernels.device import DeviceInfo
from ..opencl.devices import default_device, device_info
from ..problem.canonical import Epilogue, checked_gemm
from ..problem.gemm import GemmProblem
from ..selection.select import candidates
from .products import layout

TYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
# The part of the device's rate (kernels/rates.py) that cuBLAS reaches on large products: on an H200 51.2 of
# 53.2 TFLOP/s in float32, 62.7 of 64 in float64 (driver 580.159.04, 2026-11-20).
_OF_RATE = 0.96
# Seconds of the host for a call. The device's work hides them, or they hide it. torch.mm(out=) took 9.6 us
# beside an H200, pyclmm.matmul(out=) 15.2 (docs/design.md), and a kernel in Python takes 5 more.
_THEIR_HOST, _OUR_HOST = 10e-6, 20e-6
# By less the two may change places: estimates are 10 % and more from what is measured (docs/estimates.md).
_LEAST_GAIN = 1.1


@dataclass(frozen=True)
class Asked:
    """What a block asks of its products. ``tf32``: PyTorch's own float32 products may be of TF32."""

    precision: str
    reproducible: bool
    tf32: bool
    verify: bool | str = False


@dataclass(frozen=True)
class Decision:
    """Whether pyclmm computes a product, and why."""

    ours: bool
    reason: str


def decide(a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, asked: Asked) -> Decision:
    """Who computes ``a b + c + bias``. Raises NoDeviceError where no OpenCL device is the tensors' device."""
    unfit = _unfit(a, b, *(x for x in (c, bias) if x is not None))
    if unfit:
        return Decision(False, unfit)
    device = device_of(a.device)
    demand = _demand(a, asked)
    extras = {"c": c, "bias": bias}
    epilogue = Epilogue({name: layout(x) for name, x in extras.items() if x is not None})
    ways: dict[str, Any] = {"precision": asked.precision, "reproducible": asked.reproducible}
    try:
        problem = checked_gemm(layout(a), layout(b), epilogue=epilogue, **ways).problem
        choice = next(candidates(problem, device, "auto"))
    except UnsupportedError as error:
        if demand:
            raise
        return Decision(False, f"pyclmm cannot: {error}")
    if demand:
        return Decision(True, f"{demand}; kernel {choice.kernel.name}")
    ours = max(_OUR_HOST, choice.kernel.estimate(problem, choice.config, device) or 0.0)
    theirs = max(_THEIR_HOST, cublas_seconds(problem, device, asked.tf32))
    said = f"estimated {ours * 1e6:.0f} us by {choice.kernel.name}, {theirs * 1e6:.0f} us by cuBLAS"
    return Decision(ours * _LEAST_GAIN <= theirs, said)


def cublas_seconds(problem: GemmProblem, device: DeviceInfo, tf32: bool = False) -> float:
    """The model of cuBLAS: the longer of arithmetic and memory traffic, and a launch."""
    rates = device.rates
    is_complex, single = problem.acc_type.startswith("complex"), problem.acc_type in ("float32", "complex64")
    if single:
        rate = rates.matrix("singles") if tf32 else rates.float32
    else:
        rate = max(rates.matrix64, rates.float64)
    products = problem.m * problem.n * problem.k * problem.batch * (4 if is_complex else 1)
    arithmetic = products / (rate * _OF_RATE) if rate else 0.0
    return max(arithmetic, rates.moved(problem.nbytes)) + rates.launch


@lru_cache(maxsize=64)
def device_of(device: torch.device) -> DeviceInfo:
    """The facts of the device that computes for *device* of PyTorch's. Raises NoDeviceError without one."""
    if device.type == "cpu":
        return device_info(default_device())
    return device_info(context_of(device.index).device)


def _unfit(a: Tensor, b: Tensor, *rest: Tensor) -> str | None:
    """Why PyTorch gets the product, or the call that it refuses; None if pyclmm could compute it."""
    if any(x.dtype != a.dtype or x.device != a.device for x in (b, *rest)):
        return "dtypes or devices differ"
    if a.ndim != b.ndim or a.ndim < 2 or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        return "the shapes do not multiply"
    return None if a.numel() and b.numel() else "nothing is to be multiplied"


def _demand(a: Tensor, asked: Asked) -> str | None:
    if asked.reproducible:
        return "reproducible=True demands it"
    if asked.verify:
        return f"verify={asked.verify!r} demands it"
    if asked.tf32 and asked.precision != "medium" and a.dtype in (torch.float32, torch.complex64):
        return f"precision={asked.precision!r} demands it, as PyTorch is set to TF32"
    return None
