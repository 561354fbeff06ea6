"""The solutions of docs/road/15_hopper.md are right, and agree with the kernel."""

import re
from pathlib import Path

import numpy as np

from examples.road import hopper
from pyclmm.kernels.rates import MEASURED
from pyclmm.opencl.compiler import read_source

PAGE = Path(__file__).parents[2] / "docs/road/15_hopper.md"
EVERY = [(line, k) for line in range(64) for k in range(64)]


def test_each_element_has_a_place_of_its_own():
    assert sorted(hopper.place(line, k) for line, k in EVERY) == list(range(0, 8192, 2))


def test_the_kernel_has_the_same_places():
    source = read_source("nvidia/wgmma_bare.cl")
    (formula,) = re.findall(r"INLINE int place\(.*return (.*); }", source)
    formula = formula.replace("TILE", "64").replace("/", "//").replace("k // 8 ^", "(k // 8) ^")
    formula = formula.replace("^ line % 8", "^ (line % 8)")
    for line, k in EVERY:
        assert 2 * eval(formula) == hopper.place(line, k)


def test_a_chunk_of_eight_lines_lies_in_all_banks():
    for k in range(0, 64, 8):
        for swizzled, wanted in ((True, 1), (False, 8)):
            assert hopper.ways([hopper.place(line, k, swizzled) for line in range(8)]) == wanted


def test_a_descriptor_finds_what_place_has_stored(rng):
    values = rng.integers(0, 1 << 16, (64, 64)).astype(np.uint16)
    memory, start = np.zeros(16384, np.uint8), 5 * 1024
    for line, k in EVERY:
        at = start + hopper.place(line, k)
        memory[at : at + 2] = values[line, k] & 255, values[line, k] >> 8
    for first in (0, 16, 32, 48):  # an instruction takes 16 of K, 32 bytes
        described = hopper.descriptor(start + 2 * first)
        found = [hopper.read(memory, described, line, k) for line in range(64) for k in range(16)]
        assert np.array_equal(np.reshape(found, (64, 16)), values[:, first : first + 16])


def test_the_kernel_has_the_same_descriptor():
    source = read_source("nvidia/wgmma_bare.cl")
    (formula,) = re.findall(r"return \(ulong\)(.*);", source)
    formula = re.sub(r"\(ulong\)|UL", "", formula).replace("local_address(tile)", "address")
    for address in (0, 1024, 5 * 1024 + 32, 0x3FC00):
        assert eval(formula, {"address": address}) == hopper.descriptor(address)


def test_the_cache_allows_what_the_page_says():
    rates = MEASURED["NVIDIA H200"]
    text = PAGE.read_text(encoding="utf-8")
    for bm, bn in ((64, 64), (128, 256)):
        each = hopper.intensity(bm, bn)
        rate = rates.cache * each / 1e12
        assert f"| {bm} x {bn} | {each:.0f} | {rate:.0f} TFLOP/s |" in text
    sizes = tuple(range(64, 513, 64))
    assert hopper.smallest_square(990e12, rates.cache, sizes) == 320
    assert hopper.smallest_square(1e18, rates.cache, sizes) == float("inf")
