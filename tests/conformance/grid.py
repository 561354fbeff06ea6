"""Every kernel, every element type, every edge: exact products of small integers.

Every pair of kernel, element type and edge is run, but not every triple: a kernel gets every third or fifth
combination of the other two. The first one follows from its place in KERNELS, so that kernels complement
each other.

    OCL_ICD_VENDORS=... pytest tests/conformance/grid.py

With CONFORMANCE_FEW it is one edge for each kernel and element type.

Except in dense cases, operands and result are views inside larger arrays, at odd offsets and with padded
rows. What surrounds the result must not change. Under Oclgrind a test also fails if the simulator reports
anything. test_bits compares the bits of reproducible products.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.checks.fixed_products import PRODUCTS, FixedProduct, digest, digests
from pyclmm.kernels import KERNELS, Kernel
from pyclmm.problem.dtypes import ELEMENT_TYPES, dtype_of

from . import simulator
from .implementations import FOR_CPUS
from .oclgrind_log import Log, summary

Array = np.ndarray[Any, Any]
OCLGRIND_LOG = os.environ.get("OCLGRIND_LOG")
FEW = "CONFORMANCE_FEW" in os.environ


@dataclass(frozen=True)
class Case:
    """A product of shapes (m, k) and (k, n), stored transposed where *trans* has a T."""

    name: str
    m: int
    n: int
    k: int
    trans: str = "NN"
    stack: tuple[int, ...] = ()
    step: int = 1  # elements between neighbours of a row; 0: dense arrays, no views
    epilogue: str = ""  # "row" or "column": that kind of bias, with alpha, beta C and relu

    def __str__(self) -> str:
        return self.name


CASES = (
    Case("one", 1, 1, 1),
    Case("below_a_tile", 5, 3, 2),
    Case("divides", 32, 32, 32, step=0),
    Case("divides_views", 32, 32, 32),
    Case("beyond_a_tile", 17, 19, 18),
    Case("column", 35, 1, 9),
    Case("row", 1, 37, 33),
    Case("no_k", 3, 4, 0),
    Case("every_second", 17, 9, 18, step=2),
    Case("transposed_nt", 18, 21, 17, "NT", step=0),
    Case("transposed_tn", 18, 21, 17, "TN"),
    Case("transposed_tt", 33, 20, 16, "TT"),
    Case("stack", 9, 17, 5, stack=(2, 3)),
    Case("epilogue_row", 17, 18, 19, epilogue="row"),
    Case("epilogue_column", 16, 20, 7, "TN", stack=(2,), epilogue="column"),
)

# For kernels that divide a long K, and give a work-group many products. Oclgrind takes minutes for others.
LONG_CASES = (Case("few_and_long", 3, 2, 9001), Case("small_stack", 3, 5, 4, "TN", stack=(2, 20)))

EDGES_A_TYPE = 3  # of a kernel for learning one: the cases of all its types are every case


def takes(kernel: Kernel, m: int, n: int, trans: str = "NN") -> bool:
    """Whether a product is thin enough for a kernel of thin products."""
    if kernel.name == "matvec":
        return min(m, n) == 1 or trans == "NT"
    return kernel.name != "thin" or min(m, n) <= 8


def grid() -> Iterator[Any]:
    """The (kernel, dtype, case) that are run. They contain every pair.

    A kernel's first cases of the types that it needs at least are in every share: it must pass one of them.
    """
    for place, kernel in enumerate(KERNELS):
        cases = CASES + LONG_CASES * (kernel.name in FOR_CPUS)
        cases = tuple(c for c in cases if takes(kernel, c.m, c.n, c.trans))
        step = max(1, len(cases) // (EDGES_A_TYPE if kernel.automatic and not FEW else 1))
        for i, dtype in enumerate(ELEMENT_TYPES):
            chosen = [case for j, case in enumerate(cases) if (i + j + place) % step == 0]
            for case in chosen:
                always = case is chosen[0] and dtype in ("float32", "float64")
                marks = pytest.mark.every_share if always else ()
                yield pytest.param(kernel, dtype, case, marks=marks, id=f"{kernel.name}-{dtype}-{case}")


@cache
def context() -> cl.Context:
    """Kept for the whole run, as a queue of Intel's runtime does not keep its context alive."""
    return cl.Context(cl.get_platforms()[0].get_devices()[:1])


@cache
def queue() -> cl.CommandQueue:
    return cl.CommandQueue(context())


def small(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Small integers, so that every order of summation gives the same bits."""
    low = 0 if dtype.kind in "bu" else -2
    values = rng.integers(low, 3 if dtype.kind != "b" else 2, shape)
    if dtype.kind == "c":
        return (values + 1j * rng.integers(-2, 3, shape)).astype(dtype)
    return values.astype(dtype)


def window(shape: tuple[int, ...], step: int) -> tuple[Any, ...]:
    """The indices at which a stack of matrices of *shape* lies in the larger array."""
    rows, cols = shape[-2:]
    return (..., slice(2, 2 + rows), slice(3, 3 + cols * step, step)) if step else (...,)


def on_device(values: Array, step: int) -> tuple[cla.Array, cla.Array]:
    """(view of *values* on the device, the array that it is a view of). Both are one array if it is dense."""
    rows, cols = values.shape[-2:]
    larger = (*values.shape[:-2], rows + 3, cols * step + 5)
    around = np.ones(larger if step else values.shape, values.dtype)
    around[window(values.shape, step)] = values
    whole = cla.to_device(queue(), around)
    return whole[window(values.shape, step)] if step else whole, whole


@pytest.fixture(scope="module", autouse=True)
def _buffers_are_kept() -> Iterator[None]:
    with simulator.buffers_are_kept() if OCLGRIND_LOG else nullcontext():
        yield


@pytest.fixture(autouse=True)
def nothing_reported() -> Iterator[None]:
    """Fails the test if Oclgrind reported anything during it."""
    if OCLGRIND_LOG is None:
        yield
        return
    context()  # a new context starts the log again
    log = Log(Path(OCLGRIND_LOG))
    yield
    found = log.findings()
    assert not found, summary(found)


@pytest.mark.parametrize(("kernel", "dtype", "case"), [*grid()])
def test_exact(kernel: Kernel, dtype: str, case: Case) -> None:
    if OCLGRIND_LOG and kernel.name in ("residues", "limbs"):
        pytest.skip("Oclgrind takes copies of structures for uninitialized, and minutes for each product")
    rng = np.random.default_rng(20)
    numpy_type = dtype_of(dtype)
    a = small(rng, (*case.stack, case.m, case.k), numpy_type)
    b = small(rng, (*case.stack, case.k, case.n), numpy_type)
    c = small(rng, (*case.stack, case.m, case.n), numpy_type)
    bias = small(rng, (case.n,) if case.epilogue == "row" else (case.m, 1), numpy_type)
    relu = case.epilogue and numpy_type.kind in "fV"
    options: dict[str, Any] = {}
    third = on_device(c, case.step)[0] if case.epilogue else None
    if case.epilogue:
        options = {
            "alpha": 2,
            "beta": 3,
            "bias": cla.to_device(queue(), bias),
            "activation": "relu" if relu else None,
        }
    out, around = on_device(np.full_like(c, 1), case.step)
    expected = around.get()
    expected[window(c.shape, case.step)] = _expected(a, b, c, bias, bool(case.epilogue), bool(relu))
    stored = [
        np.swapaxes(x, -1, -2).copy() if letter == "T" else x
        for x, letter in zip((a, b), case.trans, strict=True)
    ]
    left, right = (on_device(x, case.step)[0] for x in stored)
    for_cpu = OCLGRIND_LOG and kernel.name in FOR_CPUS
    try:
        with simulator.called_a_cpu() if for_cpu else nullcontext():
            pyclmm.gemm(
                left,
                right,
                third,
                trans_a=case.trans[0],
                trans_b=case.trans[1],
                out=out,
                kernel=kernel.name,
                dtype=numpy_type,
                precision="high" if kernel.name in ("residues", "limbs") else None,
                **options,
            )
    except pyclmm.UnsupportedError as error:
        pytest.skip(str(error))
    queue().finish()
    np.testing.assert_array_equal(around.get(), expected)


def offers() -> Iterator[Any]:
    """Every pair of a kernel and a fixed product that some kernel for CPUs or all devices may offer.

    With FEW a kernel that takes all of them gets every third, which have each float type, kind of data and
    shape. Oclgrind takes seconds for a product: there a kernel gets four or five. Kernels complement each
    other.
    """
    for place, kernel in enumerate(KERNELS):
        mine = (
            [p for p in PRODUCTS if takes(kernel, *p.shape[:2])] if not kernel.matrix_units else PRODUCTS[:1]
        )
        every = 9 if OCLGRIND_LOG else 3 if FEW and len(mine) == len(PRODUCTS) else 1
        for product in mine[place % every % len(mine) :: every]:
            yield pytest.param(kernel, product.dtype, product, id=f"{kernel.name}-{product.name}")


@pytest.mark.parametrize(("kernel", "dtype", "product"), [*offers()])
def test_bits(kernel: Kernel, dtype: str, product: FixedProduct) -> None:
    """Every kernel that offers reproducible products gives the digests in the package."""
    for_cpu = OCLGRIND_LOG and kernel.name in FOR_CPUS
    try:
        with simulator.called_a_cpu() if for_cpu else nullcontext():
            got = product.on_device(pyclmm.gemm, kernel=kernel.name, queue=queue())
    except pyclmm.UnsupportedError as error:
        pytest.skip(str(error))
    assert digest(got) == digests()[product.name]


def _expected(a: Array, b: Array, c: Array, bias: Array, epilogue: bool, relu: bool) -> Array:
    kind = a.dtype.kind
    if kind == "b":
        either: Array = np.matmul(a, b)
        return either | c | bias if epilogue else either
    wide = np.complex128 if kind == "c" else np.float64 if kind in "fV" else np.int64
    product: Array = np.matmul(a.astype(wide), b.astype(wide))
    if epilogue:
        product = 2 * product + 3 * c.astype(wide) + bias.astype(wide)
    return np.asarray((np.maximum(product, 0) if relu else product).astype(a.dtype))
