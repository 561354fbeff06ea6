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
from math import ceil, gcd, log2, prod
from typing import Any

import numpy as np

LARGEST = 256  # a residue is one byte
MOST = 15  # moduli: the sums of their digits fit the words of cl/residues/combine.cl
GROUP = 3  # moduli whose digits are added first; divides MOST
_ROW = 8  # words of a row of a table
_GROUPS = MOST // GROUP
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

    @cached_property
    def half_bits(self) -> tuple[float, ...]:
        """log2(P / 2) for each count: whole numbers of a lesser magnitude are known by their residues."""
        return tuple(log2(self.product(count)) - 1 for count in range(1, MOST + 1))

    def factor(self, count: int, number: int) -> int:
        """The inverse of P / p modulo p, the modulus *number*."""
        p = self.numbers[number]
        return pow(self.product(count) // p, -1, p)

    @cached_property
    def conversion(self) -> Words:
        """The table of cl/residues/convert.cl: [N][operand][product] has a row of words.

        p, 1 / p as a float32, a constant c, the weights of real parts in two words, of imaginary parts in
        two. The weights of A include :meth:`factor`, and for complex numbers 1 / 2.
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

        [N] has a row for each group, one for P, and one for each modulus. A group of moduli with the product
        q: P / q in three words, q / p of each; 2^d / q as a float32, and d, where the sum of digits times
        q / p has at most 23 + d bits. P: 2^128 - P in four words. A modulus: p, with 1 / i modulo p from bit
        16 on if numbers are complex, and 1 / p as a float32.
        """
        table = np.zeros((MOST + 1, _GROUPS + 1 + MOST, _ROW), np.uint32)
        for count in range(1, MOST + 1):
            whole = self.product(count)
            table[count, _GROUPS, :4] = _words(2**128 - whole, 4)
            for group in range(ceil(count / GROUP)):
                members = self.numbers[group * GROUP : min(count, (group + 1) * GROUP)]
                q = prod(members)
                table[count, group, : 3 + len(members)] = (*_words(whole // q, 3), *(q // p for p in members))
                down = max(0, (3 * q).bit_length() - 22)  # w is below 6 q
                table[count, group, 6:] = (_float_bits(2**down / q), down)
            for number, p in enumerate(self.numbers[:count]):
                inverse = pow(self.roots(p)[0], -1, p) if self.planes == 2 else 0
                table[count, _GROUPS + 1 + number, :2] = (p | inverse << 16, _float_bits(1 / p))
        return table.reshape(-1, _ROW).view(np.int64)


def _row_of(p: int, real: int, imaginary: int) -> tuple[int, ...]:
    """A row of :attr:`Moduli.conversion` for residues of *real* re + *imaginary* im.

    c makes up for the 2^63 that convert.cl adds to each part, and is so large that no sum is negative. Added
    to the bits of 2^23, a sum is those of a float.
    """
    weights = [_signed(2 ** (8 * byte) * part, p) for part in (real, imaginary) for byte in range(_BYTES)]
    least = -sum(min(0, weight) * (LARGEST - 1) for weight in weights)
    c = -(2**63) * (real + imaginary) % p + -(-least // p) * p
    words = [
        sum((weight & 0xFF) << 8 * byte for byte, weight in enumerate(weights[at : at + 4]))
        for at in (0, 4, 8, 12)
    ]
    return (p, _float_bits(1 / p), c + _float_bits(2**23), *words, 0)


def _float_bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def _signed(value: int, p: int) -> int:
    """*value* modulo *p*, between -128 and 127."""
    rest = value % p
    return rest - p if rest > LARGEST // 2 - 1 else rest


def _words(value: int, count: int) -> list[int]:
    return [value >> 32 * word & 0xFFFFFFFF for word in range(count)]


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
