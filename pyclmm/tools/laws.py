"""The laws that every matrix product must obey, each as small problems with known answers.

In all of them padding, workspace and everything that must not be read are filled with poison values. The
memory between and after the rows of the result must not change (see checks/known_answers.py).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

from ..api import gemm
from ..checks import reference
from ..checks.drawn import Drawn
from ..checks.drawn_products import skipped
from ..checks.fixed_products import PRODUCTS, digest, digests
from ..checks.known_answers import Outcome, Wrong, outcome
from ..checks.layouts import Decks, rearranged, resized
from ..errors import UnsupportedError
from ..formats import FORMATS, format_named
from ..formats.fragments import FRAGMENTS
from ..kernels import Kernel
from ..kernels.config import TileConfig
from ..kernels.device import DeviceInfo
from ..kernels.interface import fitted
from ..opencl.devices import device_info
from ..problem import dtypes
from ..problem.gemm import GemmProblem, ListedProduct, Ragged
from ..selection.select import refusal

SEED = 20
Shape = tuple[int, int, int]  # M, N, K
# A little more than one tile of most kernels; for kernels of thin shapes alone; for those of whole steps of K
_SHAPES = ((19, 21, 33), (19, 4, 33), (4, 21, 33), (19, 1, 33), (1, 21, 33), (1, 1, 33), (19, 21, 256))
# Element type, precision and format of weights: matrix units do not multiply float32 as it is.
_TAKEN = (
    *(("float32", "highest", ""), ("float16", "highest", ""), ("float32", "high", "")),
    *(("float32", "medium", ""), ("float64", "highest", ""), ("float64", "high", "")),
    *(("int8", "highest", ""), ("float32", "highest", "q8_0"), ("float16", "highest", "q8_0")),
    *(("float16", "highest", "affine4_g64_float16"), ("float16", "highest", "affine4_g64_float16_fragments")),
)
_LARGEST = 160  # the most that M, N and K follow a tile's size


@dataclass(frozen=True)
class LawCase:
    """One problem, and the numbers to run it on."""

    problem: GemmProblem
    drawn: Drawn = Drawn.INTEGERS


@dataclass
class Found:
    """The result of a law: how many *cases* ran, the *first* *wrong* one, why others were *refused*, and how
    many were *left_out* as time was up. ``ratio``: the error that is the largest share of its ``limit``.
    """

    cases: int = 0
    left_out: int = 0
    wrong: str | None = None
    refused: str | None = None
    ratio: float = 0.0
    limit: float = reference.NETLIB_RATIO
    first: Wrong | None = None

    def add(self, case: object, outcome: Outcome) -> None:
        self.cases += 1
        if outcome.reason is not None and self.wrong is None:
            self.wrong, self.first = f"{case}: {outcome.reason}", outcome.wrong
        if outcome.ratio / outcome.limit > self.ratio / self.limit:
            self.ratio, self.limit = outcome.ratio, outcome.limit


@dataclass(frozen=True)
class Setting:
    """What cases depend on: a product that the kernel takes, and a configuration."""

    taken: GemmProblem
    config: TileConfig

    @property
    def shape(self) -> Shape:
        return self.taken.m, self.taken.n, self.taken.k

    @property
    def is_whole(self) -> bool:
        return dtypes.dtype_of(self.taken.a_type).kind in "iu"

    def problem(self, m: int, n: int, k: int, name: str = "", **rest: object) -> GemmProblem:
        """A product of other sizes, perhaps another type, as the first has its precision, weights and A."""
        own = {name: getattr(self.taken, name) for name in ("precision", "b_format", "quantize_a")}
        return _problem(m, n, k, name or self.taken.a_type, **{**own, **rest})


@dataclass(frozen=True)
class Law:
    """A law by name, its cases, and in words what they cover."""

    name: str
    cases: Callable[[Setting], Iterator[LawCase]]
    covers: str


def _problem(m: int, n: int, k: int, name: str = "float32", **rest: object) -> GemmProblem:
    """A product of matrices of one element type, in that type, or by the weights of a ``b_format``."""
    sums = dtypes.ELEMENTS[name].accumulator
    if form := rest.get("b_format"):
        rest |= {"b_type": "uint8", "trans_b": True, "b_align": format_named(str(form)).align}
    own = GemmProblem(m, n, k, name, name, name, sums, c_type=name, bias_type=name)
    dense = replace(own, lda=m if rest.get("trans_a") else k, ldb=k if rest.get("trans_b") else n, ldo=n)
    return resized(replace(dense, **rest), m, n, k)  # type: ignore[arg-type]


def _sizes(config: TileConfig) -> list[tuple[int, int, int]]:
    """Sizes of a tile, one more and less, each side alone, 1 anywhere, primes, K = 0, long and thin ones."""
    bm, bn, bk = (min(size, _LARGEST) for size in (config.bm, config.bn, config.bk))
    around = [(bm + d, bn + d, bk + d) for d in (-1, 0, 1)] + [(2 * bm, 2 * bn, 2 * bk), (bm, bn, 4 * bk)]
    rest = [(1, 9, 9), (9, 1, 9), (9, 9, 1), (1, 1, 1), (13, 17, 31), (37, 29, 41), (4, 5, 0)]
    thin = [(1, 200, 1), (200, 1, 3), (3, 2, 301), (1, 64, 64), (150, 2, 1)]
    alone = [(bm + d, 7, 5) for d in (-1, 1)] + [(6, bn + d, 5) for d in (-1, 1)]
    alone += [(6, 7, bk + d) for d in (-1, 1)]
    return list(dict.fromkeys(s for s in (*around, *rest, *thin, *alone) if s[0] > 0 and s[1] > 0))


def _exact(at: Setting) -> Iterator[LawCase]:
    for m, n, k in _sizes(at.config):
        yield LawCase(at.problem(m, n, k))


def _long(at: Setting) -> Iterator[LawCase]:
    """One length long at a time, of those that the kernel takes. Beside a long K the others are short: a
    kernel of one work-item takes seconds for more.
    """
    m, n, k = at.shape
    for shape in ((2503, n, k), (m, 2503, k), (min(m, 4), min(n, 5), 70_001)):
        yield LawCase(at.problem(*shape))


def _bounded(at: Setting) -> Iterator[LawCase]:
    for m, n, k in ((33, 35, 67), (5, 4, 1000), (1, 17, 300), (18, 1, 129)):
        yield LawCase(at.problem(m, n, k), Drawn.REALS)


def _transposed(at: Setting) -> Iterator[LawCase]:
    for trans_a, trans_b in ((False, True), (True, False), (True, True)):
        yield LawCase(at.problem(*at.shape, trans_a=trans_a, trans_b=trans_b))


def _typed(at: Setting) -> Iterator[LawCase]:
    names = ("float64", "float16", "int8", "uint8", "int32", "complex64")
    for name in names:
        for drawn in (Drawn.INTEGERS, Drawn.REALS, Drawn.EXTREMES):
            yield LawCase(at.problem(*at.shape, name), drawn)


def _stacked(at: Setting) -> Iterator[LawCase]:
    for stack in (3, 5):
        problem = at.problem(*at.shape, batch_shape=(stack,))
        yield LawCase(resized(problem, *at.shape, stack))


def _laid_out(at: Setting) -> Iterator[LawCase]:
    """Every layout of C comes twice."""
    decks = Decks(np.random.default_rng(SEED))
    for number in range(16):
        dtype = (at.taken.a_type, "complex64")[number // 8]
        more = {"bias": ("row", "column")[number % 2], "has_c": True, "batch_shape": (3,)}
        problem = resized(replace(at.problem(*at.shape, dtype), **more), *at.shape, 3)  # type: ignore[arg-type]
        yield LawCase(rearranged(problem, decks))


def _scaled(at: Setting) -> Iterator[LawCase]:
    """With C: beta C is added. Without: a C full of NaN exists and must not be read."""
    for has_c in (True, False):
        yield LawCase(at.problem(*at.shape, has_c=has_c))


def _epilogues(at: Setting) -> Iterator[LawCase]:
    names = ("none", "none") if at.is_whole else ("relu", "gelu")
    for activation, bias, has_c in zip(names, ("row", "column"), (False, True), strict=True):
        for drawn in (Drawn.INTEGERS, Drawn.REALS, Drawn.EXTREMES):
            yield LawCase(at.problem(*at.shape, bias=bias, activation=activation, has_c=has_c), drawn)


def _lists(at: Setting) -> Iterator[LawCase]:
    one = ListedProduct(1, 1, 1, 0, 0, 0, 1, 1, 1)
    for more in ({"products": (one,)}, {"ragged": Ragged("m", 1, 0)}, {"ragged": Ragged("k", 1, 0)}):
        yield LawCase(resized(at.problem(*at.shape, **more), 3 * at.shape[0], at.shape[1], 90, 4))


def _formats(at: Setting) -> Iterator[LawCase]:
    for form in (f for i, f in enumerate(FORMATS) if f.mode != "affine" or i % 4 == 2):
        yield LawCase(at.problem(5, 21, 2 * form.block, b_format=form.name), Drawn.REALS)
    for form in FRAGMENTS[::4]:
        yield LawCase(at.problem(5, 85, 2 * form.block, b_format=form.name), Drawn.REALS)


LAWS = (
    Law("exact integers, at the edges of tiles", _exact,
        "a tile's size, one more and one less, each side alone, 1 in each place, primes, K = 0"),
    Law("exact integers, far from the start", _long, "M and N of 2,503, K of 70,001"),
    Law("error bound of random numbers", _bounded, "K up to 1,000"),
    Law("transposes", _transposed, "NT, TN, TT"),
    Law("element types", _typed, "float64, float16, int8, uint8, int32, complex64: their least and greatest "
        "integers, NaN, infinity, overflow to it"),
    Law("stacks", _stacked, "3 and 5 products"),
    Law("lists, and groups of rows", _lists, "4 products of different sizes"),
    Law("strides, offsets, and operands that a stack shares", _laid_out,
        "16 layouts of C, bias and stacks of 3, in two element types"),
    Law("beta, and C not read where it is 0", _scaled, "alpha and beta below and above 1, negative"),
    Law("bias and activation", _epilogues, "relu and gelu, of NaN and infinity too"),
)  # fmt: skip
# Of families for them, to which the interface and the bits below do not apply.
OF_WEIGHTS = Law(
    "formats of quantised weights",
    _formats,
    "all but three of four affine ones, in rows and in the order of fragments",
)
INTERFACE = "NumPy interface"
BITS = "bits of fixed products"
TILES = "products in tiles"
AUTO = "auto"
_EVERY = 4  # --quick takes one fixed product of so many


def check(queue: cl.CommandQueue, kernel: Kernel, law: Law, until: float = math.inf) -> Found:
    """Run the law's cases with the kernel's default configuration. None begins after the time *until*."""
    device, taken = device_info(queue.device), first_taken(kernel, device_info(queue.device))
    decks, found = Decks(np.random.default_rng(SEED)), Found()
    if taken is None:
        found.refused = refused(kernel, device)
        return found
    config = kernel.configs(taken, device)[0]
    for case in law.cases(Setting(taken, config)):
        if time.monotonic() >= until:
            found.left_out += 1
            continue
        got = _run(queue, kernel, config, case, decks)
        if isinstance(got, str):
            found.refused = found.refused or got
        else:
            found.add(case.problem, got)
    return found


def checks(
    queue: cl.CommandQueue, kernel: Kernel | None, full: bool
) -> Iterator[tuple[str, Callable[[float], Found]]]:
    """Every law, the interface and the bits: the name, and what checks it until a time. *kernel*: None for
    the kernels that "auto" chooses. They are asked for what the others have in common.
    """
    taken = None if kernel is None else first_taken(kernel, device_info(queue.device))
    by_weights = taken is not None and bool(taken.b_format)
    if kernel is not None:
        for law in (*LAWS, *[OF_WEIGHTS] * by_weights):
            yield law.name, partial(check, queue, kernel, law)
    if by_weights:
        return
    yield INTERFACE, lambda _: check_interface(queue, kernel)
    yield BITS, partial(check_bits, queue, kernel, full)
    if kernel is None:
        yield TILES, lambda _: check_tiles(queue)


def coverage() -> list[str]:
    """What the laws cover, a line for each."""
    return [f"{law.name}: {law.covers}" for law in (*LAWS, OF_WEIGHTS)]


def check_bits(queue: cl.CommandQueue, kernel: Kernel | None, full: bool, until: float = math.inf) -> Found:
    """Fixed products by :func:`pyclmm.gemm` with ``reproducible=True``: their SHA-256 are in the package.
    Raises the errors of gemm, but UnsupportedError only if *kernel* takes none of them.
    """
    found, missing = Found(), skipped()
    for fixed in (p for p in PRODUCTS[:: 1 if full else _EVERY] if p.dtype not in missing):
        if time.monotonic() >= until:
            found.left_out += 1
            continue
        try:
            got = digest(fixed.on_device(gemm, kernel=kernel.name if kernel else AUTO, queue=queue))
        except UnsupportedError as error:
            found.refused = found.refused or str(error)
            continue
        wanted = digests()[fixed.name]
        found.add(fixed.name, Outcome(None if got == wanted else f"SHA-256 {got}, not {wanted}"))
    return found


def first_taken(kernel: Kernel, device: DeviceInfo) -> GemmProblem | None:
    """The first product that the kernel takes, of usual ones; None if it takes none."""
    rounds = {"quantize_a": "int8"} if "quantize_a" in kernel.accepts.fields else {}
    if kernel.unsuited(device) is None:
        for (name, precision, b_format), shape in product(_TAKEN, _SHAPES):
            own: dict[str, Any] = {**rounds, "precision": precision, "b_format": b_format}
            problem = fitted(_problem(*shape, name, **own), device)
            if kernel.refuses(problem, device) is None and kernel.configs(problem, device):
                return problem
    return None


def refused(kernel: Kernel, device: DeviceInfo) -> str | None:
    """Why *device* runs the kernel for no product; None if it runs it."""
    taken = first_taken(kernel, device)
    return None if taken is not None else refusal(kernel, _problem(*_SHAPES[0]), device)


def _run(
    queue: cl.CommandQueue, kernel: Kernel, config: TileConfig, case: LawCase, decks: Decks
) -> Outcome | str:
    """The outcome, or the kernel's refusal."""
    device = device_info(queue.device)
    problem = fitted(case.problem, device)
    reason = kernel.refuses(problem, device)
    if reason is not None:
        return reason
    if kernel.violations(problem, config, device):  # not a tile for this element type
        fitting = kernel.configs(problem, device)
        if not fitting:
            return "no configuration fits the device's limits"
        config = fitting[0]
    work = kernel.launches(problem, config, device)
    return outcome(queue, problem, work, device, decks, case.drawn)


def check_interface(queue: cl.CommandQueue, kernel: Kernel | None) -> Found:
    """Products by :func:`pyclmm.gemm` with a C full of poison as ``out``: NumPy arrays and Arrays, strided
    views, NaN, infinity, signs of zeros, a check by the device. Raises gemm's errors but UnsupportedError.
    """
    rng, found = np.random.default_rng(SEED), Found()
    taken = (first_taken(kernel, device_info(queue.device)) if kernel else None) or _problem(*_SHAPES[0])
    (m, n, k), dtype = (taken.m, taken.n, taken.k), dtypes.dtype_of(taken.a_type)
    a, b = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((m, 2 * k), (k, 2 * n)))
    special, cancel = a[:, :k].copy(), np.zeros((m, k), dtype)
    special[0, 0], special[-1, -1] = (np.nan, np.inf) if dtype.kind == "f" else (7, 8)
    cancel[:, 0], cancel[:, -1] = -3, 3
    ones, zeros, whole = np.ones((k, n), dtype), np.zeros((m, k), dtype), (..., ...)
    second, turned = (np.s_[:, ::2],) * 2, (np.s_[::-1, k - 1 :: -1], np.s_[:, n - 1 :: -1])
    products: dict[str, tuple[Any, Any, tuple[Any, Any], dict[str, Any]]] = {
        "views of every second column": (a, b, second, {}),
        "views turned round": (a, b, turned, {}),
        "NaN and infinity": (special, ones, whole, {}),
        "terms of -0.0": (-zeros, ones, whole, {}),
        "terms that cancel": (cancel, ones, whole, {}),
        "checked by the device": (special[:-1], ones, whole, {"verify": True}),
    }
    options: dict[str, Any] = {"kernel": kernel.name if kernel else AUTO, "queue": queue, "beta": 0}
    options |= {"precision": taken.precision}
    for (name, (x, y, (of_x, of_y), more)), place in product(
        products.items(), (np.asarray, partial(cla.to_device, queue))
    ):
        right = reference.matmul(x[of_x], y[of_y]).astype(dtype)
        out = place(np.full(right.shape, np.nan if dtype.kind == "f" else 99, dtype))
        try:
            gemm(place(x)[of_x], place(y)[of_y], out, out=out, **options, **more)
        except UnsupportedError as error:
            found.refused = found.refused or str(error)
            continue
        found.add(f"{name}, {type(out).__module__}", _equal(out, right))
    return found


def check_tiles(queue: cl.CommandQueue) -> Found:
    """A product of NumPy arrays that has less of the device's memory than it needs."""
    rng, found = np.random.default_rng(SEED), Found()
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((400, 700), (700, 300)))
    got = gemm(a, b, device=queue.device, memory_limit=1 << 19)
    found.add("float32 in half a MiB", _equal(got, a @ b))
    return found


def _equal(out: Any, right: np.ndarray[Any, Any]) -> Outcome:
    """Whether a NumPy array or an Array has these numbers, NaN at these places, and no zero of -0.0."""
    got = out if isinstance(out, np.ndarray) else out.get()
    where = (got != right) & ~(np.isnan(got) & np.isnan(right)) | (right == 0) & np.signbit(got)
    return Outcome("a wrong result", wrong=Wrong(where, got, right)) if where.any() else Outcome(None)
