"""No program for a processor with vectors of 256 bits calls a function of the library that takes one of 512.
PoCL has none: such a program has no kernels, or ends the process."""

import re
from dataclasses import replace

import pytest

from pyclmm.formats import FORMATS
from pyclmm.kernels import KERNELS, kernel_named
from pyclmm.kernels.device import Target
from pyclmm.opencl.compiler import expanded
from pyclmm.opencl.program import build_options
from pyclmm.problem.dtypes import ELEMENTS
from pyclmm.problem.gemm import GemmProblem
from tests.simulators.interleaved import CLANG
from tests.support.made_up import EPYC_POCL, dense_problem
from tests.support.processes import ended

HASWELL = replace(EPYC_POCL, target=Target(256, ("fma",)))
FLAGS = "-x cl -O1 -S -emit-llvm -target x86_64-unknown-linux -march=haswell -Wno-everything -o -"
HEADER = ("-Xclang", "-finclude-default-header")
WIDE = re.compile(r"declare .*@(?!llvm)(\S*(?:Dv16_[fij]|Dv8_[dlm])\S*)\(")
WORK = re.compile(r"^define internal .*?^}", re.S | re.M)  # of a function that is no entry
LOADS = re.compile(r"declare .*@(_Z\d+v(?:load|store)\S*)\(")
# One affine form of each number of bits.
KINDS = [form for form in FORMATS if form.mode != "affine" or "_g64_float32" in form.name]
pytestmark = pytest.mark.skipif(CLANG is None, reason="needs clang")


def compiled(program):
    flags = (*FLAGS.split(), *HEADER, *build_options(program), "-")
    return ended(CLANG, *flags, input=expanded(program.source), check=True).stdout


def called(program, *patterns):
    """The names of the library's functions that *program* calls, if they are like one of *patterns*."""
    text = compiled(program)
    return [name for pattern in patterns for name in pattern.findall(text)]


def programs(kernel, problem):
    for config in kernel.configs(problem, HASWELL)[:2]:
        for launch in kernel.launches(problem, config, HASWELL).launches:
            yield launch.program


@pytest.mark.parametrize("form", KINDS, ids=lambda form: form.name)
@pytest.mark.parametrize("family", ["quantized", "dequantized"])
def test_of_weights(form, family):
    nbytes = form.row_nbytes(256)
    types = {"a_type": "bfloat16", "b_type": "uint8", "out_type": "bfloat16", "acc_type": "float32"}
    layout = {"lda": 256, "ldb": nbytes, "ldo": 33, "b_align": nbytes & -nbytes}
    # A load that is a call saves every vector register in the inner loop.
    problem = GemmProblem(3, 33, 256, **types, **layout, trans_b=True, b_format=form.name)
    found = {p for p in programs(kernel_named(family), problem) if "formats/" in p.source}
    assert found
    assert not [name for program in found for name in called(program, WIDE, LOADS)]


DENSE = ["float16", "bfloat16", "float32", "float64", "complex64", "int32", "int64"]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DENSE)
def test_of_dense_matrices(dtype):
    acc = ELEMENTS[dtype].accumulator
    problem = GemmProblem(70, 33, 65, dtype, dtype, dtype, acc, lda=65, ldb=33, ldo=33)
    offered = [kernel for kernel in KERNELS if kernel.automatic and not kernel.refuses(problem, HASWELL)]
    found = {program for kernel in offered for program in programs(kernel, problem)}
    assert found
    assert not [name for program in found for name in called(program, WIDE)]


@pytest.mark.parametrize("split_k", [1, 3])
def test_functions_for_the_processor_itself_ask_for_no_work_group(split_k):
    """PoCL 3.0 would compile what asks without AVX-512 (attributes.h): two to three times as long."""
    device = replace(HASWELL, target=replace(HASWELL.target, beyond=512))
    problem, packed = dense_problem(16, 64, 20_000), kernel_named("packed")
    for config in packed.configs(problem, device):
        for launch in packed.launches(problem, replace(config, split_k=split_k), device).launches:
            bodies = WORK.findall(compiled(launch.program))
            assert bodies
            assert not [name for body in bodies for name in re.findall(r"@_Z\d+(get_\w+)\(", body)]
