"""The self-check of lists and ragged products: small ones of many sizes notice faults of their tables."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from pyclmm.checks.layouts import resized
from pyclmm.checks.lists import in_short
from pyclmm.checks.small_problems import first_wrong_result
from pyclmm.formats import format_named
from pyclmm.kernels import kernel_named
from pyclmm.opencl.devices import device_info
from pyclmm.problem.canonical import problem_of
from pyclmm.problem.gemm import ListedProduct, Ragged
from tests.support.contexts import new_queue
from tests.support.faults import changed_source

LISTED, RAGGED, DEQUANTIZE = "include/listed.h", "ragged.cl", "quantized/dequantize.cl"
AT = "const long at = starts[g]"
SOONER = AT + " - (g == 2 && starts[g])"
# What is wrong, the file, what stands there, and what in its place: of each kind of product.
# fmt: off
FAULTS = {
    "list": [
        ("the third A is the second", LISTED, "a_offset + own[0]",
         "a_offset + (own - PRODUCT * (tile_listed.x == 2))[0]"),
        ("results lie without gaps", LISTED, "out_offset + own[3]",
         "out_offset + own[3] - (tile_listed.x == 1)"),
        ("N is that of the first", LISTED, "N = is_listed ? own[6]", "N = is_listed ? products[6]"),
        ("K is that of the first", LISTED, "K = is_listed ? own[7]", "K = is_listed ? products[7]"),
        ("alpha is that of the first", LISTED, "*(__global const ACC_T *)(own + 14)",
         "*(__global const ACC_T *)(products + 14)"),
        ("beta is alpha", LISTED, "*(__global const ACC_T *)(own + 16)", "alpha"),
        ("rows of C lie as those of out", LISTED, "EXTRAS_BEGIN(own[2]", "EXTRAS_BEGIN(own[3]"),
    ],
    "groups": [
        ("groups share two matrices", RAGGED, "g * stride : 0", "(g & 1) * stride : 0"),
        ("the rest has steps", RAGGED, "g < groups ? K : 0", "K"),
        ("the rest is not written", RAGGED, "AXIS_K ? groups : groups + 1", "groups"),
        ("a group begins one row sooner", RAGGED, AT, SOONER),
    ],
    "divided depths": [
        ("a group begins one step sooner", RAGGED, AT, SOONER),
        ("the second size of a work-item is lost", RAGGED, "i < each; ++i) own", "i < 1; ++i) own"),
        ("all results are the first", RAGGED, "AXIS_K ? g * stride : at * ldo", "AXIS_K ? 0 : at * ldo"),
        ("steps end with all rows", RAGGED, "AXIS_K ? size :", "AXIS_K ? size + (g == 1) :"),
    ],
    "groups of weights": [
        ("groups share two matrices of bytes", DEQUANTIZE, "(2) * apart", "(2) % 2 * apart"),
        ("matrices of bytes have no gap", DEQUANTIZE, "(2) * apart", "(2) * N * ldb"),
        ("all numbers lie with the first", DEQUANTIZE, "get_global_id(2) * N + j", "j"),
        ("groups share two matrices", RAGGED, "g * stride : 0", "(g & 1) * stride : 0"),
    ],
}
# fmt: on


def found(kernel, problem):
    """What the self-check finds."""
    family, queue = kernel_named(kernel), new_queue()
    device = device_info(queue.device)
    config = family.configs(problem, device)[0]
    return first_wrong_result(queue, problem, family, config, family.launches(problem, config, device))


def ragged(axis):
    plain = problem_of(40, 44, 60, np.dtype("f4"), "NN" if axis == "m" else "TN")
    return replace(plain, ragged=Ragged(axis, 4, 44 * 60))


def of_weights(name="q8_0"):
    nbytes = format_named(name).row_nbytes(256)
    plain = replace(problem_of(40, 44, 256, np.dtype("f4"), "NT"), b_type="uint8", ldb=nbytes)
    align = format_named(name).align
    return replace(plain, b_format=name, b_align=align, ragged=Ragged("m", 4, 44 * nbytes))


def of_kind(kind):
    if kind == "list":
        return replace(problem_with(*many((40, 44, 35), (50, 44, 35))), has_c=True)
    return of_weights() if kind == "groups of weights" else ragged("m" if kind == "groups" else "k")


@pytest.mark.parametrize(
    ("kernel", "kind", "file", "old", "new"),
    [
        pytest.param(kernel, kind, *fault, id=f"{kernel}-{kind}: {name}")
        for kind, faults in FAULTS.items()
        for name, *fault in faults
        for kernel in (("dequantized",) if kind == "groups of weights" else ("packed", "register"))
    ],
)
def test_a_fault_is_noticed(monkeypatch, kernel, kind, file, old, new):
    changed_source(monkeypatch, file, old, new)
    assert re.search("wrong|overwritten", found(kernel, of_kind(kind)))


def test_right_groups_of_weights_pass():
    for name in ("q8_0", "affine4_g64_float16"):
        assert found("dequantized", of_weights(name)) is None
    assert found("dequantized", replace(of_weights(), reproducible=True)) is None


@pytest.mark.parametrize("kernel", ["packed", "register"])
def test_what_is_right_passes(kernel):
    for problem in (problem_with(*many((40, 44, 35), (50, 44, 35))), ragged("m"), ragged("k")):
        assert found(kernel, problem) is None


def many(*sizes):
    """A problem of products of these sizes."""
    products = tuple(ListedProduct(m, n, k, 0, 0, 0, k, n, n, alpha=2.5) for m, n, k in sizes)
    return problem_of(1, 1, 1, np.dtype("f4")), products


def test_a_list_is_checked_as_those_products_on_which_programs_depend(rng):
    plain, products = many(*[(8 * int(m), int(n), 12) for m, n in rng.integers(1, 99, (500, 2))])
    problem = problem_with(plain, products)
    short = in_short(problem)
    assert len(short.products) < 40
    assert short.divisors == problem.divisors
    for axis in range(3):
        mine, whole = ([one[:3][axis] for one in x.products] for x in (short, problem))
        assert (min(mine), max(mine)) == (min(whole), max(whole))


def problem_with(plain, products):
    sizes = [max(one[axis] for one in products) for axis in range(3)]
    return type(plain)(*sizes, *(plain.a_type,) * 4, products=products)


def test_small_lists_have_products_of_several_sizes():
    small = resized(problem_with(*many((5, 6, 7))), 19, 21, 33, 4)
    assert [one[:3] for one in small.products] == [(19, 21, 33), (18, 20, 32), (17, 19, 31), (16, 18, 0)]
    assert len({one.alpha for one in small.products}) > 1
    whole = resized(problem_with(*many((5, 6, 7))), 64, 64, 64, 3)
    assert whole.divisors == (16, 16, 16), "programs for whole tiles run"


def test_small_ragged_products_have_groups():
    plain = problem_of(5, 6, 7, np.dtype("f4"))
    for axis in "mk":
        wanted = type(plain)(5, 6, 7, *("float32",) * 4, ragged=Ragged(axis, 9, 42))
        small = resized(wanted, 40, 50, 60, 4)
        assert (small.ragged.axis, small.ragged.groups) == (axis, 4)
