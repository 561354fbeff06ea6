"""The moduli of `residues` and their tables, against whole numbers of Python."""

import itertools
from math import gcd

import numpy as np
import pytest

from pyclmm.kernels.residues import moduli
from pyclmm.kernels.residues.moduli import COMPLEX, MOST, REAL

BOTH = pytest.mark.parametrize("own", [REAL, COMPLEX], ids=["real", "complex"])
COUNTS = (1, 2, 7, MOST)


def words(table, *shape):
    return table.view(np.uint32).reshape(*shape, 8)


def conversion(own):
    return words(own.conversion, MOST + 1, 2, MOST * own.planes)


def as_float(word):
    return float(np.uint32(word).view(np.float32))


@BOTH
def test_the_moduli_are_coprime_and_fit_a_byte(own):
    assert all(gcd(p, q) == 1 for p, q in itertools.combinations(own.numbers, 2))
    assert max(own.numbers) <= 256
    assert len(own.numbers) == MOST


def test_minus_one_has_a_root_modulo_each_number_of_complex_products():
    for p in COMPLEX.numbers:
        assert moduli.root_of_minus_one(p) ** 2 % p == p - 1


@BOTH
@pytest.mark.parametrize("count", COUNTS)
def test_the_weights_give_the_residue_of_any_whole_number(own, count):
    rng = np.random.default_rng(count)
    table = conversion(own)[count]
    for real, imaginary in [(0, 0), (2**62, -(2**62)), *rng.integers(-(2**62), 2**62, (20, 2)).tolist()]:
        parts = (real, imaginary)[: own.planes]
        lifted = [byte for part in parts for byte in (part + 2**63).to_bytes(8, "little")]
        for operand, number, plane in itertools.product(range(2), range(count), range(own.planes)):
            p = own.numbers[number]
            row = table[operand, number * own.planes + plane]
            weights = row[3:7].view(np.int8).tolist()
            total = int(row[2]) + sum(w * byte for w, byte in zip(weights, lifted, strict=False))
            i = own.roots(p)[plane]
            expected = sum(part * i**power for power, part in enumerate(parts))
            scale = own.factor(count, number) if operand == 0 else 1
            scale *= pow(2, -1, p) if own.planes == 2 and operand == 0 else 1
            assert 0 <= total < 2**21
            assert (total - scale * expected) % p == 0
            assert (as_float(row[0]), as_float(row[1])) == (p, float(np.float32(1 / p)))


@BOTH
@pytest.mark.parametrize("count", COUNTS)
def test_the_limbs_give_back_the_number(own, count):
    table = words(own.combination, MOST + 1, MOST + 1)[count]
    whole = own.product(count)

    def value(row):
        return sum(int(limb) << 20 * place for place, limb in enumerate(row[:6]))

    assert value(table[MOST]) == whole
    assert as_float(table[MOST, 7]) == float(np.float32(1 / whole))
    for number, p in enumerate(own.numbers[:count]):
        assert value(table[number]) * p == whole
        assert int(table[number, 6]) & 0xFFFF == p
    rng = np.random.default_rng(count)
    for _ in range(20):
        wanted = int(rng.integers(0, 2**62)) * int(rng.integers(0, 2**62)) % (whole - 1) - (whole // 2 - 1)
        digits = [own.factor(count, n) * wanted % p for n, p in enumerate(own.numbers[:count])]
        sums = [sum(y * int(table[n, limb]) for n, y in enumerate(digits)) for limb in range(6)]
        assert max(sums) + 2**12 < 2**32, "a limb's sum must leave room for a carry"
        total = sum(s << 20 * place for place, s in enumerate(sums))
        assert total - round(total / whole) * whole == wanted


def test_the_bits_known_by_residues_are_those_of_the_product():
    assert REAL.half_bits(1) == 7.0
    assert REAL.product(2) == 256 * 255
    assert REAL.half_bits(MOST) > 116
    assert COMPLEX.half_bits(MOST) > 110
