"""The moduli of `residues` and their tables, against whole numbers of Python."""

import itertools
import math
from math import gcd

import numpy as np
import pytest

from pyclmm.kernels.residues import decision, moduli, products
from pyclmm.kernels.residues.moduli import COMPLEX, MOST, REAL

BOTH = pytest.mark.parametrize("own", [REAL, COMPLEX], ids=["real", "complex"])
COUNTS = (1, 2, 7, MOST)
TO_FLOAT = 0x4B000000  # of cl/residues/residues.h: the bits of 2^23


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
            total = int(row[2]) - TO_FLOAT + sum(w * byte for w, byte in zip(weights, lifted, strict=False))
            i = own.roots(p)[plane]
            expected = sum(part * i**power for power, part in enumerate(parts))
            scale = own.factor(count, number) if operand == 0 else 1
            scale *= pow(2, -1, p) if own.planes == 2 and operand == 0 else 1
            assert 0 <= total < 2**21
            assert (total - scale * expected) % p == 0
            assert (row[0], as_float(row[1])) == (p, float(np.float32(1 / p)))


@BOTH
@pytest.mark.parametrize("count", COUNTS)
def test_the_words_give_back_the_number(own, count):
    groups = MOST // moduli.GROUP
    table = words(own.combination, MOST + 1, groups + 1 + MOST)[count]
    whole = own.product(count)

    def value(row):
        return sum(int(word) << 32 * place for place, word in enumerate(row))

    assert value(table[groups, :4]) == 2**128 - whole
    for number, p in enumerate(own.numbers[:count]):
        row = table[number // moduli.GROUP]
        assert value(row[:3]) * int(row[3 + number % moduli.GROUP]) * p == whole
        assert int(table[groups + 1 + number, 0]) & 0xFFFF == p
    rng = np.random.default_rng(count)
    for _ in range(20):
        wanted = int(rng.integers(0, 2**62)) * int(rng.integers(0, 2**62)) % (whole - 1) - (whole // 2 - 1)
        digits = [own.factor(count, n) * wanted % p for n, p in enumerate(own.numbers[:count])]
        digits += [0] * (MOST - count)
        sums, quotient = [0, 0, 0], 0.0
        for group, row in enumerate(table[:groups].tolist()):
            own_digits = digits[group * moduli.GROUP : (group + 1) * moduli.GROUP]
            w = sum(y * factor for y, factor in zip(own_digits, row[3:6], strict=True))
            sums = [s + w * word for s, word in zip(sums, row[:3], strict=True)]
            quotient += (w >> row[7]) * as_float(row[6])
        total = value(sums)
        assert quotient == pytest.approx(total / whole, abs=2**-12)
        assert total - round(total / whole) * whole == wanted


@BOTH
def test_sums_of_all_blocks_fit_64_bits(own):
    blocks = products.MOST_BLOCKS
    assert blocks > decision._LONGEST // own.planes // products.BYTES.most, "bytes serve every K"
    most = [(own.planes * p - 1) for p in own.numbers]  # digits of complex numbers are below 2 p
    for count, row in enumerate(words(own.combination, MOST + 1, -1)):
        factors = row[: MOST // moduli.GROUP, 3:6].reshape(-1).tolist()
        w = sum(y * factor for y, factor in zip(most[:count], factors, strict=False))
        assert blocks * w * (2**32 - 1) < 2**64


@BOTH
def test_the_quotients_of_all_blocks_err_by_less_than_is_left_to_one_half(own):
    """choose.cl takes SLACK_BITS twice from |C'| < P / 2: 1 / 2 - 2^-1.04 is more than 2^-7."""
    rows = words(own.combination, MOST + 1, -1)[MOST, : MOST // moduli.GROUP].tolist()
    rng = np.random.default_rng(1)
    for draw in range(20):
        quotient, exact = np.float32(0), 0.0
        for _ in range(products.MOST_BLOCKS):
            for group, row in enumerate(rows):
                numbers = own.numbers[group * moduli.GROUP : (group + 1) * moduli.GROUP]
                digits = [own.planes * p - 1 - int(draw and rng.integers(0, p)) for p in numbers]
                w = sum(y * factor for y, factor in zip(digits, row[3:6], strict=True))
                quotient += np.float32(w >> row[7]) * np.float32(as_float(row[6]))
                exact += w / math.prod(numbers)
        assert exact < 660
        assert abs(float(quotient) - exact) < 2**-7 < 0.5 - 2**-1.04


def test_the_bits_known_by_residues_are_those_of_the_product():
    assert REAL.half_bits[0] == 7.0
    assert REAL.product(2) == 256 * 255
    assert REAL.half_bits[MOST - 1] > 116
    assert COMPLEX.half_bits[MOST - 1] > 110
