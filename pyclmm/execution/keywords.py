"""The keywords of matmul, gemm, Matmul and linalg's functions, for their overloads."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import pyopencl as cl
from numpy.typing import DTypeLike

from ..opencl.devices import DeviceChoice
from ..problem.literals import Activation, Casting, Precision, Rounded, Trans, Verify
from ..selection.select import KernelChoice


class ProductKeywords(TypedDict, total=False):
    """Keywords of every product."""

    queue: cl.CommandQueue | None
    device: DeviceChoice | None
    kernel: KernelChoice
    precision: Precision | None
    reproducible: bool | None
    verify: Verify | None


class CallKeywords(ProductKeywords, total=False):
    """Keywords of matmul, gemm and Matmul."""

    dtype: DTypeLike | None
    casting: Casting
    quantize_a: Rounded | None


class TileKeywords(CallKeywords, total=False):
    """Keywords of a product in tiles, of matmul and gemm."""

    memory_limit: int | str | None
    devices: Sequence[DeviceChoice] | str | None
    progress: Callable[[Any], Any] | None
    checkpoint: str | os.PathLike[str] | None


class MatmulKeywords(TileKeywords, total=False):
    """Keywords of matmul."""

    axes: list[Any] | None
    wait_for: list[cl.Event] | None


class EpilogueKeywords(CallKeywords, total=False):
    """Keywords of gemm and Matmul that are not operands."""

    alpha: complex
    beta: complex | None
    trans_a: Trans
    trans_b: Trans
    activation: Activation | None


class GemmKeywords(EpilogueKeywords, TileKeywords, total=False):
    """Keywords of gemm."""

    wait_for: list[cl.Event] | None


class PlanKeywords(EpilogueKeywords, total=False):
    """Keywords of Matmul."""

    workspace_limit: int | str | None
    constant_b: bool
