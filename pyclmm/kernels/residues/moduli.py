"""The moduli of `residues`, and the tables of whole numbers that its kernels read.

A count N of moduli means the first N of a :class:`Moduli`; P is their product. All tables have a part for
each N. Their words have 32 bits; two of them are an element of an array of int64.

Complex numbers are multiplied modulo p by two real products, not by four or three. Where a number i with
i^2 = -1 mod p exists, re + i im and re - i im of a complex product are the products of these of its factors.
It exists for odd p all of whose prime factors are 1 modulo 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from math import gcd, log2, prod
from typing import Any

import numpy as np

LARGEST = 256  # a residue is one byte
MOST = 15  # moduli: the sums of their digits fit the limbs of cl/residues/combine.cl
LIMBS, LIMB_BITS = 6, 20  # of these sums
_ROW = 8  # words of a row of a table
_BYTES = 8  # of an integer that cl/residues/convert.cl reduces

Words = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Moduli:
    """Pairwise coprime numbers, the largest first. ``planes``: products modulo each of them, 2 if complex."""

    numbers: tuple[int, ...]
    planes: int

    @cached_property
    def of_products(self) -> tuple[int, ...]:
        """The modulus of each product."""
        return tuple(p for p in self.numbers for _ in range(self.planes))

    def product(self, count: int) -> int:
        """P, the product of the first *count* moduli."""
        return prod(self.numbers[:count])

    def half_bits(self, count: int) -> float:
        """log2(P / 2): whole numbers of a lesser magnitude are known by their residues."""
        return log2(self.product(count)) - 1

    def factor(self, count: int, number: int) -> int:
        """The inverse of P / p modulo p, the modulus *number*."""
        p = self.numbers[number]
        return pow(self.product(count) // p, -1, p)

    @cached_property
    def conversion(self) -> Words:
        """The table of cl/residues/convert.cl: [N][operand][product] has a row of words.

        p and 1 / p as float32, a constant c, the weights of real parts in two words, of imaginary parts in
        two.
        The weights of A include :meth:`factor`, and for complex numbers 1 / 2.
        """
        table = np.zeros((MOST + 1, 2, MOST * self.planes, _ROW), np.uint32)
        for count in range(1, MOST + 1):
            for number, p in enumerate(self.numbers[:count]):
                scale = self.factor(count, number) * (pow(2, -1, p) if self.planes == 2 else 1)
                for plane, i in enumerate(self.roots(p)):
                    for operand, own in enumerate((scale, 1)):
                        row = _row_of(p, own, own * i)
                        table[count, operand, number * self.planes + plane] = row
        return table.reshape(-1, _ROW).view(np.int64)

    def roots(self, p: int) -> tuple[int, ...]:
        """The factors of the imaginary part in each product modulo *p*: i and -i; 0 for real numbers."""
        return (root_of_minus_one(p), -root_of_minus_one(p)) if self.planes == 2 else (0,)

    @cached_property
    def combination(self) -> Words:
        """The table of cl/residues/combine.cl.

        [N][number] has a row of words: the limbs of P / p; p, with 1 / i modulo
        p from bit 16 on if numbers are complex; 1 / p as a float32. [N][MOST] has the limbs of P, and 1 / P.
        """
        table = np.zeros((MOST + 1, MOST + 1, _ROW), np.uint32)
        for count in range(1, MOST + 1):
            whole = self.product(count)
            table[count, MOST, :LIMBS] = _limbs(whole)
            table[count, MOST, -1] = _float_bits(1 / whole)
            for number, p in enumerate(self.numbers[:count]):
                inverse = pow(self.roots(p)[0], -1, p) if self.planes == 2 else 0
                table[count, number] = (*_limbs(whole // p), p | inverse << 16, _float_bits(1 / p))
        return table.reshape(-1, _ROW).view(np.int64)


def _row_of(p: int, real: int, imaginary: int) -> tuple[int, ...]:
    """A row of :attr:`Moduli.conversion` for residues of *real* re + *imaginary* im.

    c makes up for the 2^63 that convert.cl adds to each part, and is so large that no sum is negative.
    """
    weights = [_signed(2 ** (8 * byte) * part, p) for part in (real, imaginary) for byte in range(_BYTES)]
    least = -sum(min(0, weight) * (LARGEST - 1) for weight in weights)
    c = -(2**63) * (real + imaginary) % p + -(-least // p) * p
    words = [
        sum((weight & 0xFF) << 8 * byte for byte, weight in enumerate(weights[at : at + 4]))
        for at in (0, 4, 8, 12)
    ]
    return (_float_bits(p), _float_bits(1 / p), c, *words, 0)


def _float_bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def _signed(value: int, p: int) -> int:
    """*value* modulo *p*, between -128 and 127."""
    rest = value % p
    return rest - p if rest > LARGEST // 2 - 1 else rest


def _limbs(value: int) -> list[int]:
    return [value >> LIMB_BITS * limb & (1 << LIMB_BITS) - 1 for limb in range(LIMBS)]


@cache
def root_of_minus_one(p: int) -> int:
    """The least i with i^2 = -1 modulo *p*; 0 if there is none."""
    return next((i for i in range(1, p) if (i * i + 1) % p == 0), 0)


def _coprime(candidates: Iterator[int]) -> tuple[int, ...]:
    """The first numbers that are coprime to all before them."""
    found: list[int] = []
    for candidate in candidates:
        if len(found) < MOST and all(gcd(candidate, other) == 1 for other in found):
            found.append(candidate)
    return tuple(found)


REAL = Moduli(_coprime(iter(range(LARGEST, 1, -1))), 1)
COMPLEX = Moduli(_coprime(p for p in range(LARGEST - 1, 1, -2) if root_of_minus_one(p)), 2)
