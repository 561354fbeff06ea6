"""Calls for a type checker; they never run. An unneeded `ignore` is an error too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray
from pyopencl.array import Array

import pyclmm
from pyclmm import linalg

if TYPE_CHECKING:
    from typing_extensions import assert_type


def on_numpy(a: NDArray[np.float32], b: NDArray[np.float64], queue: cl.CommandQueue) -> None:
    assert_type(pyclmm.matmul(a, b), NDArray[Any])
    assert_type(pyclmm.matmul(a, b, a, queue=queue, kernel="tiled", precision="high"), NDArray[Any])
    axes = [(1, 0), (0, 1), (1, 0)]
    assert_type(pyclmm.matmul(a, b, axes=axes, casting="unsafe"), NDArray[Any])
    assert_type(pyclmm.matmul(a, b, axes=[0, (0, 1), 0]), NDArray[Any])
    assert_type(pyclmm.gemm(a, b, a, beta=1.0, trans_a="T", activation="relu", device=0), NDArray[Any])
    plan = pyclmm.Matmul(
        a, b, casting="safe", kernel=("naive", pyclmm.TileConfig(bm=8, bn=8, options={"held": 1}))
    )
    assert_type(plan(a, b), NDArray[Any])
    assert_type(plan.explain(), pyclmm.Explanation)


def on_arrays(a: Array, b: Array) -> None:
    assert_type(pyclmm.matmul(a, b, device="gpu"), Array)
    assert_type(pyclmm.gemm(a, b, bias=b, device=pyclmm.devices()[0]), Array)
    with pyclmm.Matmul(a, b) as plan:
        assert_type(plan(a, b), Array)
        assert_type(plan.enqueue(a, b, out=a), list[cl.Event])


def like_arrays(a: NDArray[np.float32], x: Array) -> None:
    assert_type(pyclmm.matmul([[1.0]], a), NDArray[Any])
    assert_type(pyclmm.matmul(a, (1.0, 2.0), out=(a,)), NDArray[Any])
    assert_type(pyclmm.matmul(x, x, out=(x,)), Array)
    pyclmm.matmul(a, x, mixed="copy")
    pyclmm.gemm(a, x, bias=[1.0], mixed="copy")


def products(a: NDArray[np.float32], x: Array) -> None:
    assert_type(linalg.dot(x, x, x), Array)
    assert_type(linalg.vdot(x, x, precision="high"), Array)
    assert_type(linalg.outer(x, x, queue=None), Array)
    assert_type(linalg.vecdot(x, x, axis=0, dtype="f8", out=(x,)), Array)
    assert_type(linalg.tensordot(x, x, ([0], [1])), Array)
    assert_type(linalg.einsum("ij,jk->ik", x, x, out=x, optimize=False), Array)
    linalg.einsum(a, [0, 1], a, [1, 2])
    linalg.dot(a, [[1.0]], a)
    linalg.matvec(a, x, mixed="copy")
    linalg.multi_dot([a, a, a])
    linalg.matrix_power(x, 3)
    with pyclmm.installed():
        pyclmm.uninstall()
    verifies = pyclmm.verified("repair")(linalg.matrix_power)
    reproduces = pyclmm.installed()(pyclmm.default_reproducible()(pyclmm.default_precision("high")(len)))
    with pyclmm.default_reproducible() as nothing:
        assert_type(reproduces([verifies(a, 3)]), int)
    assert_type(nothing, None)


def wrong(a: NDArray[np.float32], x: Array) -> None:
    pyclmm.matmul(a, x)  # type: ignore[call-overload]
    pyclmm.matmul(a, object())  # type: ignore[call-overload]
    pyclmm.matmul(a, x, mixed="move")  # type: ignore[call-overload]
    pyclmm.matmul(x, x, out=a)  # type: ignore[call-overload]
    linalg.dot(a, x)  # type: ignore[call-overload]
    linalg.dot(x, x, a)  # type: ignore[call-overload]
    linalg.inner(a, a, out=a)  # type: ignore[call-overload]
    linalg.tensordot(a, a, kernel=3)  # type: ignore[call-overload]
    pyclmm.matmul(a, a, precision="hi")  # type: ignore[call-overload]
    pyclmm.matmul(a, a, casting="sane_kind")  # type: ignore[call-overload]
    pyclmm.matmul(a, a, axis=0)  # type: ignore[call-overload]
    pyclmm.gemm(a, a, axes=[(0, 1)] * 3)  # type: ignore[call-overload]
    pyclmm.gemm(a, a, trans_a="X")  # type: ignore[call-overload]
    pyclmm.gemm(a, a, activation="rellu")  # type: ignore[call-overload]
    pyclmm.matmul(a, a, device=1.5)  # type: ignore[call-overload]
    pyclmm.Matmul(x, x)(a, a)  # type: ignore[arg-type]
    pyclmm.default_precision("low")  # type: ignore[arg-type]
    pyclmm.tune(precisions=["low"])  # type: ignore[list-item]
    pyclmm.nosuch()  # type: ignore[attr-defined]
