"""Sources use every macro that the host passes to them, and headers no name that only their includer has."""

import re
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from pyclmm.formats import format_named
from pyclmm.kernels import KERNELS
from pyclmm.kernels.device import AmxSupport, Target
from pyclmm.kernels.interface import Work
from pyclmm.kernels.verification import verified
from pyclmm.opencl import compiler
from pyclmm.opencl.compiler import expanded
from tests.conformance.offline import TARGETS, problems
from tests.support.made_up import DEVICE

CL = Path(__file__).parents[2] / "cl"
CPU = replace(DEVICE, kind="cpu", vendor="pocl", local_mem_size=1 << 19)
WITH_AMX = replace(CPU, target=Target(512), amx=AmxSupport(("int8", "bfloat16")))
DEVICES = [*(target.device for target in TARGETS), CPU, WITH_AMX]
DTYPES = ("float16", "float32", "float64", "int8", "complex64")
NOT_CODE = re.compile(
    r"/\*.*?\*/|^#(?:line|error)[^\n]*|^#if !defined(?:[^\n]*\\\n)*[^\n]*|^#ifndef[^\n]*", re.S | re.M
)


def launches(family):
    """The launches of its configurations for a few products on made-up devices. None: those of verify=."""
    for device, dtype, precision in product(DEVICES, DTYPES, ("highest", "high", "medium")):
        for shape in problems(dtype):
            asked = replace(shape, precision=precision)
            weights = replace(asked, b_type="uint8", trans_b=True, k=512, b_format="q8_0")
            affine = replace(weights, b_format="affine4_g128_float16")
            name = "affine4_g128_float16_fragments"
            blocks = replace(affine, b_format=name, ldb=format_named(name).row_nbytes(512))
            if family is None:
                for problem in (shape, weights, blocks) if dtype.startswith("float") else (shape,):
                    yield from verified(problem, Work(()), device).launches
                continue
            rounded = replace(weights, quantize_a="int8")
            few = [replace(x, m=1) for x in (asked, weights, affine, blocks)]
            for problem in (asked, weights, rounded, *few):
                if family.refuses(problem, device) is None:
                    for config in family.configs(problem, device):
                        yield from family.launches(problem, config, device).launches


def programs(family):
    return (launch.program for launch in launches(family))


def used(source):
    """The words of a source, without comments and without checks that macros are defined."""
    return set(re.findall(r"\w+", NOT_CODE.sub("", expanded(source))))


@pytest.mark.parametrize("family", [*KERNELS, None], ids=lambda family: family.name if family else "verify")
def test_every_macro_is_used(family):
    seen = {(p.source, tuple(name for name, _ in p.defines)) for p in programs(family)}
    assert seen
    for source, names in seen:
        assert len(set(names)) == len(names), source
        assert set(names) <= used(source), f"{source} does not use {set(names) - used(source)}"


@pytest.mark.parametrize("family", [*KERNELS, None], ids=lambda family: family.name if family else "verify")
def test_a_kernel_has_the_arguments_that_its_program_reads(family):
    """Of C and the bias. A driver takes time for each, and refuses a launch without one that is declared."""
    seen = {(launch.program.defines, launch.args) for launch in launches(family)}
    for defines, args in seen:
        macros = dict(defines)
        assert ("c" in args) == bool(macros.get("HAS_C")), macros
        assert ("bias" in args) == bool(macros.get("BIAS")), macros


_DEFINED = re.compile(
    r"^\s*#\s*define (\w+)|^INLINE [^;{]*?(\w+)\("
    r"|^typedef [^;{]*?(\w+)(?: (?:ALIGNED|__attribute__)\(.*\))?;|^\} (\w+);",
    re.M,
)


@cache
def code(name):
    """A file of cl/ without comments, and without checks that macros are defined."""
    return NOT_CODE.sub("", compiler.read_source(name))


@cache
def included(name):
    """The files that a file of cl/ includes, and those that they include, with itself."""
    return {name}.union(*map(included, re.findall(r'^#include "(.*)"', code(name), re.M)))


def given(files):
    """The macros, functions and types that files of cl/ define."""
    return {"".join(names) for file in files for names in _DEFINED.findall(code(file))}


@pytest.mark.slow
def test_headers_use_no_name_that_only_their_includer_has():
    """Macros of the host apart, whatever a header uses is in it or in headers that it includes."""
    files = {path.relative_to(CL).as_posix() for path in CL.rglob("*.*")}
    host = {
        name for family in (*KERNELS, None) for program in programs(family) for name, _ in program.defines
    }
    host |= given({file for file in files if file.startswith("formats/")})  # one comes before a source
    for header in sorted(file for file in files if file.endswith(".h")):
        names = set(re.findall(r"\b[A-Z][A-Z_0-9]+\b|\b\w+_t\b|\b\w+(?=\()", code(header)))
        missing = names & given(files) - given(included(header)) - host
        assert not missing, f"{header} does not include what defines {sorted(missing)}"
