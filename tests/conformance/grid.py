"""Every kernel, every element type, every edge: exact products of small integers.

Every pair of kernel, element type and edge is run, but not every triple: a kernel gets every third or fifth
combination of the other two. The first one follows from its place in KERNELS, so that kernels complement
each other.

    OCL_ICD_VENDORS=... pytest tests/conformance/grid.py

With CONFORMANCE_FEW it is one edge for each kernel and element type. Families for quantised weights have a
grid of their own: each kernel and each kind of weights.

Except in dense cases, operands and result are views inside larger arrays, at odd offsets and with padded
rows. What surrounds the result must not change. Under Oclgrind a test also fails if the simulator reports
anything. test_bits compares the bits of reproducible products.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator, Sequence
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
from pyclmm.checks import reference
from pyclmm.checks.fixed_products import PRODUCTS, FixedProduct, digest, digests
from pyclmm.formats import FORMATS, RUN, Format
from pyclmm.kernels import KERNELS, Kernel
from pyclmm.problem.dtypes import ELEMENT_TYPES, dtype_of
from pyclmm.quantized import QuantizedArray
from tests.support import oracle

from . import simulator
from .implementations import FOR_CPUS, MATRIX_UNITS
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


OF_NUMBERS = tuple(kernel for kernel in KERNELS if "b_format" not in kernel.accepts.fields)
OF_ROUNDED = tuple(kernel for kernel in KERNELS if "quantize_a" in kernel.accepts.fields)
OF_WEIGHTS = tuple(k for k in KERNELS if k not in OF_NUMBERS + OF_ROUNDED and k.name not in MATRIX_UNITS)


def takes(kernel: Kernel, m: int, n: int, trans: str = "NN") -> bool:
    """Whether a product is thin enough for a kernel of thin products."""
    if kernel.name == "matvec":
        return min(m, n) == 1 or trans == "NT"
    return kernel.name != "thin" or min(m, n) <= 8


def grid() -> Iterator[Any]:
    """The (kernel, dtype, case) that are run. They contain every pair.

    A kernel's first cases of the types that it needs at least are in every share: it must pass one of them.
    """
    for place, kernel in enumerate(OF_NUMBERS):
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
    extras: dict[str, Any] = {"c": c, "alpha": 2, "beta": 3, "bias": bias} if case.epilogue else {}
    want = oracle.gemm(a, b, **extras, activation="relu" if relu else None).value
    expected[window(c.shape, case.step)] = want.astype(numpy_type)
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
    for place, kernel in enumerate(OF_NUMBERS):
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


@dataclass(frozen=True)
class WeightsCase:
    """A product of (m, k) by the transpose of (n, k) weights; operands and result are views."""

    form: Format
    m: int
    k: int
    epilogue: bool
    reproducible: bool
    n: int = 21

    def __str__(self) -> str:
        more = "-epilogue" * self.epilogue + "-bits" * self.reproducible
        return f"{self.form.name}-{self.m}x{self.k}{more}"


# Of affine weights each bits, group and type of scales, but not every triple.
KINDS_OF_WEIGHTS = tuple(form for i, form in enumerate(FORMATS) if form.mode != "affine" or i % 4 == 2)


def weights_grid() -> Iterator[Any]:
    """The (kernel, dtype, case) of quantised weights: each kind in float32, a third in a type of 16 bits.

    Each kind is for one kernel; those of 4 bits, which may have code of their own for CPUs, for all. With FEW
    half of this is left out. Under Oclgrind it is more, and the device counts as a CPU: there Oclgrind takes
    what rows.cl has in private memory for uninitialized.
    """
    few = 4 if OCLGRIND_LOG else 2 if FEW else 1
    every = len(OF_WEIGHTS) * few
    for place, kernel in enumerate(OF_WEIGHTS):
        for i, form in enumerate(KINDS_OF_WEIGHTS):
            is_own = i % every == place % every
            if not (is_own or (few == 1 and form.bits == 4)):
                continue
            k = (2 + i % 2) * max(form.block, RUN) + (2304 if i % 7 == 0 and not OCLGRIND_LOG else 0)
            in_order = kernel.accepts.fields >= {"reproducible"} and i % 4 == 1
            case = WeightsCase(form, (1, 5, 19)[i % 3], k, i % 5 == 2 and not in_order, in_order)
            is_narrow = is_own and i % 3 == place and not in_order and not OCLGRIND_LOG
            for dtype in ("float32", *[("float16", "bfloat16")[i // 6 % 2]] * is_narrow):
                marks = pytest.mark.every_share if dtype == "float32" and i == place else ()
                yield pytest.param(kernel, dtype, case, marks=marks, id=f"{kernel.name}-{dtype}-{case}")
    for kernel, (i, form) in itertools.product(OF_ROUNDED, enumerate(KINDS_OF_WEIGHTS)):
        if form.has_codes:
            case = WeightsCase(
                form, (1, 5, 19)[i % 3], (3 + i % 2) * math.lcm(form.block, 64), i % 5 == 2, False
            )
            dtype, marks = ("float32", "float16", "bfloat16")[i % 3], pytest.mark.every_share
            yield pytest.param(kernel, dtype, case, marks=marks, id=f"{kernel.name}-{dtype}-{case}")


@pytest.mark.parametrize(("kernel", "dtype", "case"), [*weights_grid()])
def test_weights(kernel: Kernel, dtype: str, case: WeightsCase) -> None:
    """x @ q.T is x @ q.dequantize(x.dtype).T, within the bound of float32 sums or in the bits of chains.

    With quantize_a it is that of the rounded x, and of weights as they are.
    """
    rng, kind = np.random.default_rng(20), dtype_of(dtype)
    rows = case.form.drawn(rng, case.n + 4, case.k)
    q = QuantizedArray.of_rows(rows, case.form, case.k).to(queue())[2 : 2 + case.n]
    x, c = small(rng, (case.m, case.k), kind), small(rng, (case.m, case.n), kind)
    bias = small(rng, (case.n,), kind)
    third = on_device(c, 1)[0] if case.epilogue else None
    more: dict[str, Any] = {"alpha": 2, "beta": 3, "bias": cla.to_device(queue(), bias), "activation": "relu"}
    out, around = on_device(np.full_like(c, 1), 1)
    options = {"kernel": kernel.name, "reproducible": case.reproducible, **(more if case.epilogue else {})}
    options |= {"quantize_a": "int8"} if kernel in OF_ROUNDED else {}
    try:
        with simulator.called_a_cpu() if OCLGRIND_LOG else nullcontext():
            pyclmm.gemm(on_device(x, 1)[0], q.T, third, out=out, **options)
    except pyclmm.UnsupportedError as error:
        pytest.skip(str(error))
    queue().finish()
    got = around.get()
    inner = got[window(c.shape, 1)].copy()
    got[window(c.shape, 1)] = 1
    assert (got == 1).all()
    w = case.form.dequantize(rows[2 : 2 + case.n], case.k).T
    x, w = (reference.int8_groups(x, case.form), w) if kernel in OF_ROUNDED else (x, w.astype(kind))
    if case.reproducible:
        np.testing.assert_array_equal(inner, reference.chain(x, w, dtype=kind))
    result = reference.matmul(x, w)
    if case.epilogue:
        result = np.maximum(2 * result + 3 * c.astype("f8") + bias.astype("f8"), 0)
    assert reference.error_ratio(inner, 2 * x, w, result=result) <= reference.limit(case.k)


@pytest.mark.parametrize("form", KINDS_OF_WEIGHTS[:: 9 if FEW else 3], ids=lambda form: form.name)
def test_groups_of_weights(form: Format) -> None:
    """ragged_matmul multiplies the rows of each group by its weights."""
    rng, k, n = np.random.default_rng(20), 2 * max(form.block, RUN), 21
    rows = form.drawn(rng, len(SIZES_OF_GROUPS) * n, k)
    q = QuantizedArray.of_rows(rows.reshape(len(SIZES_OF_GROUPS), n, -1), form, k)
    x = small(rng, (50, k), np.dtype("f4"))
    there = [cla.to_device(queue(), x), q.to(queue()).mT, cla.to_device(queue(), np.array(SIZES_OF_GROUPS))]
    got, start = pyclmm.ragged_matmul(*there, kernel="dequantized").get(), 0
    for weights, size in zip(q.dequantize("f4"), SIZES_OF_GROUPS, strict=True):
        group, start = slice(start, start + size), start + size
        assert reference.error_ratio(got[group], x[group], weights.T) <= reference.limit(k)
    assert not got[start:].any()


SIZES_OF_LIST = ((17, 19, 18), (16, 16, 16), (20, 30, 5), (24, 17, 0), (9, 31, 33))  # one launch's
SIZES_OF_GROUPS = (10, 0, 25, 7)  # of 50 rows


def lists_grid() -> Iterator[Any]:
    """The (kernel, dtype, what): lists of products, and rows and K that are divided among products."""
    for kernel in OF_NUMBERS:
        if kernel.name in MATRIX_UNITS or "products" not in kernel.accepts.fields:
            continue
        for dtype in ("float32", *(() if FEW else ("float16", "float64", "complex64", "int32"))):
            marks = pytest.mark.every_share if dtype == "float32" else ()
            for what in ("list", "rows", "K"):
                yield pytest.param(kernel, dtype, what, marks=marks, id=f"{kernel.name}-{dtype}-{what}")


def slices(xs: Sequence[Any]) -> list[cla.Array]:
    """*xs* as parts of one Array. Copies behind the start of a buffer are uninitialized for Oclgrind."""
    whole, ends = cla.to_device(queue(), np.concatenate(xs, axis=None)), np.cumsum([x.size for x in xs])
    return [whole[end - x.size : end].reshape(x.shape) for x, end in zip(xs, ends.tolist(), strict=True)]


@pytest.mark.parametrize(("kernel", "dtype", "what"), [*lists_grid()])
def test_lists(kernel: Kernel, dtype: str, what: str) -> None:
    """matmul_many and ragged_matmul give what a loop of products gives."""
    rng, kind = np.random.default_rng(20), dtype_of(dtype)
    if what == "list":
        pairs = [(small(rng, (m, k), kind), small(rng, (k, n), kind)) for m, n, k in SIZES_OF_LIST]
        given: Any = list(zip(*map(slices, zip(*pairs, strict=True)), strict=True))
        multiply: Any = pyclmm.matmul_many
    else:
        a = small(rng, (50, 18) if what == "rows" else (18, 50), kind)
        b = small(rng, (4, 18, 19) if what == "rows" else (50, 19), kind)
        ends = np.cumsum(SIZES_OF_GROUPS)
        rows = [slice(end - size, end) for end, size in zip(ends, SIZES_OF_GROUPS, strict=True)]
        pairs = [(a[r], b[g]) if what == "rows" else (a[:, r], b[r]) for g, r in enumerate(rows)]
        given = [cla.to_device(queue(), x) for x in (a, b, np.array(SIZES_OF_GROUPS, np.int32))]
        multiply = pyclmm.ragged_matmul
    try:
        with simulator.called_a_cpu() if OCLGRIND_LOG and kernel.name in FOR_CPUS else nullcontext():
            found = multiply(*([given] if what == "list" else given), kernel=kernel.name)
    except pyclmm.UnsupportedError as error:
        pytest.skip(str(error))
    queue().finish()
    whole = [x.get() for x in found] if what == "list" else found.get()
    got = [whole[r] for r in rows] if what == "rows" else whole
    for mine, (x, y) in zip(got, pairs, strict=True):
        np.testing.assert_array_equal(mine, np.matmul(x, y))
    assert what != "rows" or not whole[rows[-1].stop :].any()


@pytest.mark.skipif(bool(OCLGRIND_LOG), reason="Oclgrind takes a filled buffer for uninitialized")
@pytest.mark.parametrize("trans", ["NN", "TT"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int16"])
def test_right_products_pass_their_check(dtype: str, trans: str) -> None:
    """verify= says nothing of a right product, whichever way its operands lie."""
    rng, kind = np.random.default_rng(20), dtype_of(dtype)
    for m, n, k in ((5, 3, 2), (17, 37, 70)):
        a, b = small(rng, (m, k), kind), small(rng, (k, n), kind)
        stored = [x.T.copy() if letter == "T" else x for x, letter in zip((a, b), trans, strict=True)]
        there = [cla.to_device(queue(), x) for x in stored]
        try:
            got = pyclmm.gemm(*there, trans_a=trans[0], trans_b=trans[1], verify=True)
        except pyclmm.UnsupportedError as error:
            pytest.skip(str(error))
        pyclmm.finish()
        np.testing.assert_array_equal(got.get(), np.matmul(a, b))
