"""Sources use every macro that the host passes to them."""

import re
from dataclasses import replace
from itertools import product

import pytest

from pyclmm.kernels import KERNELS
from pyclmm.kernels.device import AmxSupport, Target
from pyclmm.opencl.compiler import expanded
from tests.conformance.offline import TARGETS, problems
from tests.support.made_up import DEVICE

CPU = replace(DEVICE, kind="cpu", vendor="pocl", local_mem_size=1 << 19)
WITH_AMX = replace(CPU, target=Target(512), amx=AmxSupport(("int8", "bfloat16")))
DEVICES = [*(target.device for target in TARGETS), CPU, WITH_AMX]
DTYPES = ("float16", "float32", "float64", "int8", "complex64")
NOT_CODE = re.compile(
    r"/\*.*?\*/|^#(?:line|error)[^\n]*|^#if !defined(?:[^\n]*\\\n)*[^\n]*|^#ifndef[^\n]*", re.S | re.M
)


def programs(family):
    """The programs of all its configurations, for a few products on every made-up device."""
    for device, dtype, precision in product(DEVICES, DTYPES, ("highest", "high", "medium")):
        for shape in problems(dtype):
            for problem in (replace(shape, precision=precision), replace(shape, precision=precision, m=1)):
                if family.refuses(problem, device) is None:
                    for config in family.configs(problem, device):
                        yield from (x.program for x in family.launches(problem, config, device).launches)


def used(source):
    """The words of a source, without comments and without checks that macros are defined."""
    return set(re.findall(r"\w+", NOT_CODE.sub("", expanded(source))))


@pytest.mark.parametrize("family", KERNELS, ids=lambda family: family.name)
def test_every_macro_is_used(family):
    seen = {(p.source, tuple(name for name, _ in p.defines)) for p in programs(family)}
    assert seen
    for source, names in seen:
        assert len(set(names)) == len(names), source
        assert set(names) <= used(source), f"{source} does not use {set(names) - used(source)}"
