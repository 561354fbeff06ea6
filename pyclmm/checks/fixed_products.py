"""Products whose bits are known for ever: their SHA-256 stand in fixed_products.json.

`python -m tests.support.digests` computed them by :func:`.fma_reference.chain`. Every kernel that offers
reproducible sums must give these bits, on every device. The operands come from integer arithmetic modulo 2^64
alone, so that no version of NumPy changes them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from ..problem import dtypes
from .fma_reference import Array, chain, parts_of

FILE = "fixed_products.json"
# In the order in which they came: a product's shape depends on its place.
_FLOATS = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
_TIE_BITS = 4  # of the significands of "ties"
DATA = ("normal", "wide", "tiny", "huge", "cancelling")


@dataclass(frozen=True)
class FixedProduct:
    """act(alpha a b + beta c + bias). ``stack``: of a; b is one matrix. ``data``: one of ``DATA``."""

    name: str
    dtype: str
    shape: tuple[int, int, int]  # M, N, K
    data: str = "normal"
    stack: tuple[int, ...] = ()
    alpha: complex = 1.0
    beta: complex = 0.0
    has_bias: bool = False
    activation: str | None = None

    def operands(self) -> dict[str, Any]:
        """a and b, and c and bias where it has them."""
        m, n, k = self.shape
        shapes = {"a": (*self.stack, m, k), "b": (k, n)}
        shapes |= {"c": (*self.stack, m, n)} if self.beta else {}
        shapes |= {"bias": (n,)} if self.has_bias else {}
        seeds = (f"{self.name} {name}" for name in shapes)
        found = {
            name: numbers(seed, shape, self.dtype, self.data)
            for seed, (name, shape) in zip(seeds, shapes.items(), strict=True)
        }
        if self.data == "cancelling":
            found["a"][..., 1::2] = found["a"][..., : k - 1 : 2]
            found["b"][1::2] = -_nearly(found["b"][: k - 1 : 2])
        return found

    @property
    def options(self) -> dict[str, Any]:
        """The keywords of gemm that are not operands."""
        given = {"alpha": self.alpha, "activation": self.activation, "dtype": dtypes.dtype_of(self.dtype)}
        return given | ({"beta": self.beta} if self.beta else {})

    def on_host(self) -> Array:
        """The result by NumPy."""
        return self._by(chain)

    def on_device(self, gemm: Callable[..., Array], **how: Any) -> Array:
        """The result by pyclmm's *gemm*, with further keywords *how*."""
        return self._by(gemm, reproducible=True, **how)

    def _by(self, function: Callable[..., Array], **how: Any) -> Array:
        operands = self.operands()
        arrays = [operands[name] for name in ("a", "b", "c") if name in operands]
        return function(*arrays, bias=operands.get("bias"), **self.options, **how)


def _listed() -> Iterator[FixedProduct]:
    shapes = ((17, 23, 301), (1, 37, 129), (31, 1, 77), (5, 29, 200), (13, 6, 64))
    for number, dtype in enumerate(_FLOATS):
        for place, data in enumerate(DATA):
            yield FixedProduct(f"{dtype} {data}", dtype, shapes[(number + place) % len(shapes)], data)
    last: dict[str, Any] = {"has_bias": True, "shape": (19, 21, 33)}
    yield FixedProduct("float16 epilogue", "float16", alpha=0.3, beta=0.7, activation="relu", **last)
    yield FixedProduct("float32 epilogue", "float32", alpha=-1.3, beta=0.1, activation="relu", **last)
    yield FixedProduct("float64 epilogue", "float64", alpha=0.7, beta=-3.1, activation="leaky_relu", **last)
    yield FixedProduct("complex64 epilogue", "complex64", alpha=0.3 - 0.4j, beta=1.7, **last)
    yield FixedProduct("float32 stack", "float32", (9, 18, 70), stack=(3, 2))
    yield FixedProduct("complex128 stack", "complex128", (7, 5, 40), stack=(3,))
    for dtype in ("bool", "int8", "int32", "uint64"):
        yield FixedProduct(f"{dtype} normal", dtype, (17, 23, 61))


PRODUCTS = tuple(_listed())


@cache
def digests() -> dict[str, str]:
    """The SHA-256 of each product, by name."""
    text = resources.files(__package__).joinpath(FILE).read_text("utf-8")
    found: dict[str, str] = json.loads(text)
    return found


@cache
def host_fault(accumulator: str) -> str | None:
    """Why this process cannot compute chains of *accumulator* on the host, or None. A library that makes the
    processor flush subnormal numbers to zero would change NumPy's float64.
    """
    product = next(p for p in PRODUCTS if p.name == f"{accumulator} cancelling")
    if digest(product.on_host()) == digests()[product.name]:
        return None
    return "NumPy does not compute the fixed product here: its float64 is not IEEE's in this process"


def digest(result: Array) -> str:
    """The SHA-256 of a result's type, shape and bytes, little-endian. All NaN count as one."""
    parts = parts_of(result)
    plain = np.where(np.isnan(parts), parts.dtype.type(np.nan), parts) if parts.dtype.kind in "fV" else parts
    content = plain.astype(plain.dtype.newbyteorder("<") if plain.dtype.kind != "V" else plain.dtype)
    about = f"{result.dtype.name} {'x'.join(map(str, result.shape))}\n"
    return hashlib.sha256(about.encode() + content.tobytes()).hexdigest()


def _nearly(x: Array) -> Array:
    """*x* with the last bit of each real number turned over."""
    parts = np.ascontiguousarray(x).view(x.real.dtype if x.dtype.kind == "c" else x.dtype)
    bits = parts.view(f"u{parts.itemsize}") ^ 1
    return np.asarray(bits.view(parts.dtype).view(x.dtype))


def _random_bits(seed: str, count: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """*count* numbers of 64 bits: Steele, Lea and Flood's SplitMix64, from a digest of *seed*."""
    start = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "little")
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = steps + np.uint64(start)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def numbers(seed: str, shape: tuple[int, ...], dtype: str, data: str = "normal") -> Array:
    """An array of fixed numbers. *data*: which exponents they have, for floats; see ``_exponents``."""
    element, kind = dtypes.ELEMENTS[dtype], dtypes.dtype_of(dtype)
    if element.planes == 2:
        own = f"float{8 * element.nbytes_of_real}"
        parts = [numbers(f"{seed} {part}", (*shape, 1), own, data) for part in ("real", "imag")]
        return np.concatenate(parts, axis=-1).view(kind)[..., 0]
    bits = _random_bits(seed, 2 * math.prod(shape)).reshape(2, *shape)
    if not element.significand:
        return np.asarray((bits[0] & np.uint64(1)).astype(bool) if dtype == "bool" else bits[0].astype(kind))
    significand, (least, end) = element.significand, element.exponents
    if data == "ties":
        significand, end = _TIE_BITS, max(significand, dtypes.ELEMENTS["float32"].significand)
    whole = (bits[0] >> np.uint64(64 - significand)).astype(np.float64)  # exact
    sign = 1.0 - 2.0 * (bits[1] & np.uint64(1)).astype(np.float64)
    low, high = _exponents(data, least, end)
    exponents = low + ((bits[1] >> np.uint64(8)) % np.uint64(high - low + 1)).astype(np.int64)
    return np.asarray((sign * np.ldexp(whole, exponents - significand)).astype(kind))


def _exponents(data: str, least: int, end: int) -> tuple[int, int]:
    """The least and the greatest exponent of numbers. Products of "tiny" are subnormal. Those of "ties" have
    few bits, some of which end just below the last bit of a sum of *end* bits.
    """
    return {
        "wide": (-end // 4, end // 4),
        "tiny": (least // 2 - 6, least // 2 + 5),
        "ties": (-(end // 2) - 1, 0),
        "huge": (end // 2 - 5, end // 2),
    }.get(data, (-1, 2))
