"""The laws that every matrix product must obey, each as small problems with known answers.

In all of them padding, workspace and everything that must not be read are filled with poison values. The
memory between and after the rows of the result must not change (see checks/known_answers.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyopencl as cl

from ..api import gemm
from ..checks import reference
from ..checks.drawn import Drawn
from ..checks.fixed_products import PRODUCTS, digest, digests
from ..checks.known_answers import Outcome, Wrong, outcome
from ..checks.layouts import Decks, rearranged, resized
from ..errors import DTypeError, UnsupportedError
from ..kernels import Kernel
from ..kernels.config import TileConfig
from ..kernels.device import DeviceInfo
from ..opencl.devices import device_info
from ..problem import dtypes
from ..problem.gemm import ACTIVATIONS, GemmProblem
from ..selection.select import refusal

SEED = 20
Shape = tuple[int, int, int]  # M, N, K
# A few rows and columns more than one tile of most kernels; thin shapes for kernels that support only those.
_SHAPES: tuple[Shape, ...] = ((19, 21, 33), (19, 4, 33), (4, 21, 33), (19, 1, 33), (1, 21, 33), (1, 1, 33))
_LARGEST = 160  # the most that M, N and K follow a tile's size


@dataclass(frozen=True)
class LawCase:
    """One problem, and the numbers to run it on."""

    problem: GemmProblem
    drawn: Drawn = Drawn.INTEGERS


@dataclass
class Found:
    """The result of a law: how many *cases* ran, the first *wrong* one, why others were *refused*.

    ``ratio``: the error that is the largest share of its ``limit``. ``first``: the wrong elements of that
    case.
    """

    cases: int = 0
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
    """What cases depend on: a configuration, a shape that the kernel supports, many cases or a few."""

    config: TileConfig
    shape: Shape
    full: bool


@dataclass(frozen=True)
class Law:
    """A law by name, its cases, and in words what they cover, with --quick and more with --full."""

    name: str
    cases: Callable[[Setting], Iterator[LawCase]]
    covers: str
    in_full: str = ""


def _problem(m: int, n: int, k: int, name: str = "float32", **rest: object) -> GemmProblem:
    """A product of matrices of one element type, in that type."""
    sums = dtypes.ELEMENTS[name].accumulator
    own = GemmProblem(m, n, k, name, name, name, sums, c_type=name, bias_type=name)
    dense = replace(own, lda=m if rest.get("trans_a") else k, ldb=k if rest.get("trans_b") else n, ldo=n)
    return resized(replace(dense, **rest), m, n, k)  # type: ignore[arg-type]


def _sizes(config: TileConfig, full: bool) -> list[tuple[int, int, int]]:
    """Sizes of a tile and one more and less, 1 in each place, primes, K = 0, long and thin ones."""
    bm, bn, bk = (min(size, _LARGEST) for size in (config.bm, config.bn, config.bk))
    around = [(bm + d, bn + d, bk + d) for d in (-1, 0, 1)] + [(2 * bm, 2 * bn, 2 * bk), (bm, bn, 4 * bk)]
    rest = [(1, 9, 9), (9, 1, 9), (9, 9, 1), (1, 1, 1), (13, 17, 31), (37, 29, 41), (4, 5, 0)]
    thin = [(1, 200, 1), (200, 1, 3), (3, 2, 301), (1, 64, 64), (150, 2, 1)]
    alone = [(bm + d, 7, 5) for d in (-1, 1)] + [(6, bn + d, 5) for d in (-1, 1)]
    alone += [(6, 7, bk + d) for d in (-1, 1)]
    sizes = [*around, *rest, *thin, *alone] if full else [*around, *rest[:7:2], *thin[:3]]
    return list(dict.fromkeys(s for s in sizes if s[0] > 0 and s[1] > 0))


def _exact(at: Setting) -> Iterator[LawCase]:
    for m, n, k in _sizes(at.config, at.full):
        yield LawCase(_problem(m, n, k))


def _long(at: Setting) -> Iterator[LawCase]:
    """One length long at a time, of those that the kernel takes."""
    m, n, k = at.shape
    far = 5003 if at.full else 2503
    for shape in ((far, n, k), (m, far, k), (m, n, 70_001 if at.full else 12_345)):
        yield LawCase(_problem(*shape))


def _bounded(at: Setting) -> Iterator[LawCase]:
    for m, n, k in [(33, 35, 67), (5, 4, 1000), (1, 17, 300), (18, 1, 129)][: 4 if at.full else 2]:
        yield LawCase(_problem(m, n, k), Drawn.REALS)


def _transposed(at: Setting) -> Iterator[LawCase]:
    for trans_a, trans_b in ((False, True), (True, False), (True, True)):
        for shape in [at.shape, (5, 17, 33), (19, 1, 2)][: 3 if at.full else 1]:
            yield LawCase(_problem(*shape, trans_a=trans_a, trans_b=trans_b))
    if at.full:
        yield LawCase(_problem(*at.shape, "complex64", trans_a=True, conj_a=True))
        yield LawCase(_problem(*at.shape, "complex64", trans_b=True, conj_b=True))


def _typed(at: Setting) -> Iterator[LawCase]:
    names = dtypes.ELEMENT_TYPES if at.full else ("float64", "float16", "int8", "uint8", "int32", "complex64")
    for name in (name for name in names if name not in skipped()):
        for drawn in (Drawn.INTEGERS, Drawn.REALS, Drawn.EXTREMES):
            yield LawCase(_problem(*at.shape, name), drawn)


def _stacked(at: Setting) -> Iterator[LawCase]:
    for stack in (3, 5, *((40,) if at.full else ())):
        for drawn in (Drawn.INTEGERS, Drawn.REALS)[: 2 if at.full else 1]:
            problem = _problem(*at.shape, batch_shape=(stack,))
            yield LawCase(resized(problem, *at.shape, stack), drawn)


def _laid_out(at: Setting) -> Iterator[LawCase]:
    """Every layout of C comes eight times with --full, twice without."""
    decks = Decks(np.random.default_rng(SEED))
    for number in range(64 if at.full else 16):
        dtype = ("float32", "complex64")[number // 8 % 2]
        more = {"bias": ("row", "column")[number % 2], "has_c": True, "batch_shape": (3,)}
        problem = resized(replace(_problem(*at.shape, dtype), **more), *at.shape, 3)  # type: ignore[arg-type]
        yield LawCase(rearranged(problem, decks))


def _scaled(at: Setting) -> Iterator[LawCase]:
    """With C: beta C is added. Without: a C full of NaN exists and must not be read."""
    for has_c in (True, False):
        yield LawCase(_problem(*at.shape, has_c=has_c))
    if at.full:
        yield LawCase(_problem(*at.shape, "float64", has_c=True), Drawn.REALS)
        yield LawCase(_problem(*at.shape, "int32", has_c=True))


def _epilogues(at: Setting) -> Iterator[LawCase]:
    chosen = ACTIVATIONS if at.full else ("relu", "gelu")
    for number, activation in enumerate(chosen):
        bias = ("row", "column")[number % 2]
        for drawn in (Drawn.INTEGERS, Drawn.REALS, Drawn.EXTREMES):
            yield LawCase(_problem(*at.shape, bias=bias, activation=activation, has_c=number % 2 == 1), drawn)


LAWS = (
    Law("exact integers, at the edges of tiles", _exact,
        "a tile's size, one more and one less, 1 in each place, K = 0", "each side alone, primes"),
    Law("exact integers, far from the start", _long, "M and N of 2,503, K of 12,345",
        "M and N of 5,003, K of 70,001"),
    Law("error bound of random numbers", _bounded, "K up to 1,000"),
    Law("transposes", _transposed, "NT, TN, TT", "conjugated too"),
    Law("element types", _typed, "float64, float16, int8, uint8, int32, complex64: their least and greatest "
        "integers, NaN, infinity, overflow to it", "every type"),
    Law("stacks", _stacked, "3 and 5 products", "40 products"),
    Law("strides, offsets, and operands that a stack shares", _laid_out,
        "16 layouts of C, bias and stacks of 3, in float32 and complex64", "64 layouts"),
    Law("beta, and C not read where it is 0", _scaled, "alpha and beta below and above 1, negative"),
    Law("bias and activation", _epilogues, "relu and gelu, of NaN and infinity too", "every activation"),
)  # fmt: skip
INTERFACE = "NumPy interface"
BITS = "bits of fixed products"
_EVERY = 4  # --quick takes one fixed product of so many


def check(queue: cl.CommandQueue, kernel: Kernel, law: Law, full: bool) -> Found:
    """Run the law's cases with the kernel's default configuration, or with all if *full*."""
    device = device_info(queue.device)
    decks, found, shape = Decks(np.random.default_rng(SEED)), Found(), _shape(kernel, device)
    configs = [] if kernel.unsuited(device) else kernel.configs(_problem(*shape), device)
    if not configs:
        found.refused = refusal(kernel, _problem(*shape), device)
    for config in configs[: None if full else 1]:
        for case in law.cases(Setting(config, shape, full)):
            got = _run(queue, kernel, config, case, device, decks)
            if isinstance(got, str):
                found.refused = found.refused or got
            else:
                found.add(case.problem, got)
    return found


def checks(queue: cl.CommandQueue, kernel: Kernel, full: bool) -> Iterator[tuple[str, Callable[[], Found]]]:
    """Every law, the interface and the bits: the name, and what checks it."""
    for law in LAWS:
        yield law.name, partial(check, queue, kernel, law, full)
    yield INTERFACE, partial(check_interface, queue, kernel)
    yield BITS, partial(check_bits, queue, kernel, full)


def coverage(full: bool) -> list[str]:
    """What the laws cover, a line for each."""
    more = [f"; {law.in_full}" if full and law.in_full else "" for law in LAWS]
    return [f"{law.name}: {law.covers}{rest}" for law, rest in zip(LAWS, more, strict=True)]


def skipped() -> dict[str, str]:
    """The element types that are not tested because they need a package that is not installed, with it."""
    found = {}
    for name in dtypes.ELEMENT_TYPES:
        try:
            dtypes.dtype_of(name)
        except DTypeError as error:
            found[name] = str(error)
    return found


def check_bits(queue: cl.CommandQueue, kernel: Kernel, full: bool) -> Found:
    """Fixed products by :func:`pyclmm.gemm` with ``reproducible=True``: their SHA-256 are in the package.

    Raises the errors of gemm, but UnsupportedError only if *kernel* takes none of them.
    """
    found, missing = Found(), skipped()
    for product in (p for p in PRODUCTS[:: 1 if full else _EVERY] if p.dtype not in missing):
        try:
            got = digest(product.on_device(gemm, kernel=kernel.name, queue=queue))
        except UnsupportedError as error:
            found.refused = found.refused or str(error)
            continue
        wanted = digests()[product.name]
        found.add(product.name, Outcome(None if got == wanted else f"SHA-256 {got}, not {wanted}"))
    return found


def _shape(kernel: Kernel, device: DeviceInfo) -> Shape:
    """The first shape that the kernel supports."""
    taken = (shape for shape in _SHAPES if kernel.refuses(_problem(*shape), device) is None)
    return next(taken, _SHAPES[0])


def _run(
    queue: cl.CommandQueue,
    kernel: Kernel,
    config: TileConfig,
    case: LawCase,
    device: DeviceInfo,
    decks: Decks,
) -> Outcome | str:
    """The outcome, or the kernel's refusal."""
    problem = case.problem
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


def check_interface(queue: cl.CommandQueue, kernel: Kernel) -> Found:
    """Products by :func:`pyclmm.gemm`: strided views, NaN and infinity, and a C full of NaN as ``out``.

    Raises the errors of gemm.
    """
    rng = np.random.default_rng(SEED)
    m, n, k = _shape(kernel, device_info(queue.device))
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((m, 2 * k), (k, 2 * n)))
    special = a[:, :k].copy()
    special[0, 3], special[-1, 5] = np.nan, np.inf
    products = {
        "views of every second column": (a[:, ::2], b[:, ::2]),
        "views turned round": (a[::-1, k - 1 :: -1], b[:, n - 1 :: -1]),
        "NaN and infinity": (special, np.ones((k, n), np.float32)),
    }
    found = Found()
    for name, (x, y) in products.items():
        out = np.full((m, n), np.nan, np.float32)
        gemm(x, y, out, beta=0, out=out, kernel=kernel.name, queue=queue)
        right = reference.matmul(x, y).astype(np.float32)
        where = (out != right) & ~(np.isnan(out) & np.isnan(right))
        wrong = Outcome("a wrong result", wrong=Wrong(where, out, right))
        found.add(name, wrong if where.any() else Outcome(None))
    return found
