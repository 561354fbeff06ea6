"""Programs: sources keep their line numbers, all shapes share a build, all threads share a build."""

from __future__ import annotations

import gc
import linecache
import random
import re
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm import BuildError
from pyclmm.kernels import Program, kernel_named
from pyclmm.kernels.interface import gemm_program
from pyclmm.opencl import compiler, program
from pyclmm.plan import programs_of
from tests.support.cases import DEVICE, SAMPLE, problem_of
from tests.support.contexts import new_queue
from tests.support.faults import changed_source, replace_driver
from tests.support.made_up import DEVICE as MADE_UP
from tests.support.processes import nothing_compiled, pyopencls_cache
from tests.support.threads import in_threads

CL = Path(__file__).parents[2] / "cl"
NVIDIA = replace(MADE_UP, vendor="nvidia", compute_capability=(9, 0), compute_units=132)
NVIDIA = replace(NVIDIA, max_work_group_size=1024, max_work_item_sizes=(1024, 1024, 64), local_mem_size=49152)
# Most programs of a family for one dtype. Those before register have a small tile for small products.
FORMS = {"matvec": 8, "small": 12, "packed": 20, "thin": 48, "register": 60}
FORMS |= dict.fromkeys(("strip", "block", "vector", "double_buffer"), 2)
NAIVE = gemm_program(SAMPLE, "textbook/naive.cl")


@pytest.fixture
def own_queue(queue):
    own = new_queue(queue.device)
    yield own
    own.finish()


def test_sources_name_their_files_and_lines():
    text = compiler.expanded("textbook/naive.cl")
    types = ["include/types.h", "include/attributes.h", "include/soft_fma.h", "include/soft_double.h"]
    headers = ["include/gemm.h", *types, "include/dot_bytes.h", "include/moduli.h", "include/activation.h"]
    headers += ["include/extras.h", "include/listed.h"]
    assert re.findall(r'^#line 1 "(.*)"$', text, re.MULTILINE) == ["textbook/naive.cl", *headers], (
        "each once, though two files include attributes.h"
    )
    name, number = "", 0
    for line in text.splitlines():
        mark = re.fullmatch(r'#line (\d+) "(.*)"', line)
        if mark:
            name, number = mark[2], int(mark[1])
        else:
            written = (CL / name).read_text(encoding="utf-8").splitlines()[number - 1]
            assert line == ("" if written.startswith("#include") else written)
            number += 1


def test_an_error_behind_a_header_that_is_not_read_names_its_line(monkeypatch, own_queue):
    """The compiler obeys no #line of a branch that is not taken, as that of FRAGMENTS in split_k.cl."""
    lines = (CL / "split_k.cl").read_text(encoding="utf-8").splitlines()
    entry = next(number for number, line in enumerate(lines, 1) if line.startswith("__kernel"))
    changed_source(monkeypatch, "split_k.cl", lines[entry - 1], f"#error odd\n{lines[entry - 1]}")
    problem, thin = problem_of(4, 4, 20_000), kernel_named("thin")
    split = replace(thin.configs(problem, DEVICE)[0], split_k=3)
    added = thin.launches(problem, split, DEVICE).launches[1].program
    with pytest.raises(BuildError, match=rf"split_k.cl:{entry}.*odd"):
        program.built(own_queue.context, added)


@pytest.mark.parametrize("path", sorted(CL.rglob("*.[ch]*")), ids=lambda p: p.name)
def test_sources_keep_to_their_limits(path):
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert len(lines) <= 300
    assert text.startswith("/* "), "a header comment"
    words = re.compile(r"\b(warps?|thread blocks?|__shared__|shared memory)\b", re.IGNORECASE)
    assert "asm volatile" in text or not words.search(text), "OpenCL's words, but where PTX is written"


@pytest.mark.parametrize("missing", [name for name, _ in NAIVE.defines])
def test_a_missing_macro_is_an_error(missing, own_queue):
    defines = tuple((name, value) for name, value in NAIVE.defines if name != missing)
    with pytest.raises(BuildError) as caught:
        program.built(own_queue.context, Program(NAIVE.source, defines))
    assert "#error" in caught.value.log or "needs" in caught.value.log
    assert missing in caught.value.log


def test_build_options():
    options = program.build_options(Program("x.cl", (("TW", 8), ("A_TYPE", "float32"))))
    assert options == ("-cl-std=CL1.2", "-DTW=8", "-DA_TYPE=float32")


def test_the_digest_follows_source_and_macros():
    other = gemm_program(SAMPLE, "textbook/naive.cl", [("TW", 8)])
    assert program.source_hash(NAIVE) == program.source_hash(gemm_program(SAMPLE, "textbook/naive.cl"))
    assert (
        len({program.source_hash(p) for p in (NAIVE, other, gemm_program(SAMPLE, "textbook/flat.cl"))}) == 3
    )


@pytest.mark.parametrize("kernel", pyclmm.KERNELS, ids=lambda kernel: kernel.name)
def test_one_program_serves_all_shapes(kernel, rounds):
    """Families with tuned tiles have a few programs, for a few kinds of shapes."""
    r, programs, shapes = random.Random(5), set(), 0
    while shapes < rounds(200):
        m, n, k = (r.choice((1, 3, 8, 64, 1000)) + r.randint(0, 20) for _ in "mnk")
        problem = problem_of(m, n, k)
        if kernel.refuses(problem, DEVICE) is None:
            config = kernel.configs(problem, DEVICE)[0]
            programs |= {x.program for x in kernel.launches(problem, config, DEVICE).launches}
            shapes += 1
        elif m * n > DEVICE.max_work_group_size:
            shapes += 0.2
    assert len(programs) <= FORMS.get(kernel.name, 1)


def test_a_new_shape_never_recompiles(own_queue, builds, rng):
    for m, n, k in ((5, 6, 7), (50, 60, 70), (1, 1, 1), (100, 3, 0), (16, 16, 16)):
        a, b = rng.integers(-3, 4, (m, k)).astype("f4"), rng.integers(-3, 4, (k, n)).astype("f4")
        for name in ("tiled", "naive", "flat"):
            assert np.array_equal(pyclmm.matmul(a, b, kernel=name, queue=own_queue), a @ b)
    assert len(builds) == 3


def test_one_build_for_all_threads(own_queue, builds):
    results = in_threads(8, lambda _: program.built(own_queue.context, NAIVE))
    assert len(set(map(id, results))) == len(builds) == 1


def test_the_program_cache_is_bounded(own_queue, builds, monkeypatch):
    nothing_compiled(monkeypatch, programs=1)
    other = gemm_program(SAMPLE, "textbook/flat.cl")
    for what in (NAIVE, other, other, NAIVE):
        program.built(own_queue.context, what)
    assert [source for source, _ in builds] == [what.source for what in (NAIVE, other, NAIVE)]


def test_a_program_that_is_not_kept_is_gone(own_queue, monkeypatch):
    """Without the garbage collector: a driver's memory must not wait for it."""
    nothing_compiled(monkeypatch, programs=1)
    a = np.ones((3, 4), "f4")
    plan = pyclmm.Matmul(a, a.T, kernel="naive", queue=own_queue)
    (own,) = programs_of(plan)
    alive = weakref.ref(program.built(own_queue.context, own))
    gc.collect()
    gc.disable()
    try:
        program.built(own_queue.context, gemm_program(SAMPLE, "textbook/flat.cl"))
        assert alive() is not None, "the plan holds it"
        assert np.array_equal(plan(a, a.T), a @ a.T)
        del plan
        assert alive() is None
    finally:
        gc.enable()


def test_a_text_for_another_loader_leaves_no_context_behind(own_queue, own_caches, monkeypatch):
    """The driver has room for some tens of contexts, each with memory of the device."""
    made, real = [], cl.Context
    replace_driver(monkeypatch, "opencl", Context=lambda devices: made.append(real(devices)) or made[-1])
    before = program.count()
    first = program.text(own_queue.device, NAIVE)
    assert len(made) == 1
    assert first
    assert program.text(own_queue.device, NAIVE) == first
    assert len(made) == 1, "it was kept on disk"
    assert program.count() == before


def test_no_kernel_object_leaves_generated_source_behind(own_queue, monkeypatch):
    """PyOpenCL generates code for each kernel object, and without its cache keeps the source for ever."""
    pyopencls_cache(monkeypatch, False)
    a = np.ones((3, 4), "f4")
    before = set(linecache.cache)
    plan = pyclmm.Matmul(a, a.T, kernel="naive", queue=own_queue)
    for _ in range(3):
        assert np.array_equal(plan(a, a.T), a @ a.T)
        plan.release()  # so that the next call makes new kernel objects
    assert {name for name in set(linecache.cache) - before if "pyopencl" in name} == set()


def test_a_program_that_a_plan_holds_is_not_built_again(own_queue, builds, monkeypatch):
    nothing_compiled(monkeypatch, programs=1)
    a = np.ones((3, 4), "f4")
    plans = [pyclmm.Matmul(a, a.T, kernel=name, queue=own_queue) for name in ("naive", "flat", "naive")]
    assert len(builds) == 2
    assert programs_of(plans[0]) == programs_of(plans[2])


def test_the_plans_of_matmul_hold_a_bounded_number_of_programs(own_queue, monkeypatch, builds):
    nothing_compiled(monkeypatch, programs=2, plans_programs=3)
    x = np.ones((3, 3), "f4")
    mine = pyclmm.Matmul(x, x, kernel="tiled", queue=own_queue)
    for count, dtype in enumerate(("f4", "f8", "i4", "u4", "i8", "c8", "c16"), 1):
        for n in (4, 3, 2):  # plans of one program
            a = np.ones((n, 3), dtype)
            assert np.array_equal(pyclmm.matmul(a, a.T, kernel="naive", queue=own_queue), a @ a.T)
        assert program.count() == 1 + min(count, 3), "and that of mine"
    assert np.array_equal(mine(x, x), x @ x)


def test_programs_of_several_contexts_are_counted_apart(own_queue, monkeypatch, builds):
    nothing_compiled(monkeypatch, programs=2, plans_programs=3)
    x = np.ones((3, 3), "f4")
    for count in range(1, 7):
        pyclmm.matmul(x, x, kernel="naive", queue=new_queue(own_queue.device))
        assert program.count() == min(count, 3)


def test_the_newest_plan_is_kept_whatever_it_needs(own_queue, monkeypatch, builds):
    nothing_compiled(monkeypatch, programs=1, plans_programs=0)
    x = np.ones((3, 3), "f4")
    for _ in range(2):
        pyclmm.matmul(x, x, kernel="flat", queue=own_queue)
        program.built(own_queue.context, NAIVE)
    assert [source for source, _ in builds].count("textbook/flat.cl") == 1


@pytest.mark.parametrize("kind", ["matmul", "out", "c and bias"])
@pytest.mark.parametrize("on_device", [False, True], ids=["NumPy", "Arrays"])
def test_a_rare_mixed_pair_builds_copies_only(own_queue, builds, on_device, kind):
    def run(left, right, extra):
        arrays: Any = np.ones((5, 4), left), np.ones((4, 3), right), np.ones((5, 3), extra)
        want = arrays[0] @ arrays[1]
        a, b, x = (cla.to_device(own_queue, each) for each in arrays) if on_device else arrays
        if kind == "matmul":
            got = pyclmm.matmul(a, b, kernel="naive", queue=own_queue)
        elif kind == "out":
            got = pyclmm.matmul(a, b, x, kernel="naive", queue=own_queue)
        else:
            got = pyclmm.gemm(a, b, x, beta=1, bias=x[0], kernel="naive", queue=own_queue)
            want = want + 2
        assert np.array_equal(got.get() if on_device else got, want)

    run("f8", "f8", "f8")
    assert [source for source, _ in builds] == ["textbook/naive.cl"]
    del builds[:]
    run("i2", "f8", "f4")
    types = re.compile("-DA_TYPE=([a-z0-9]+) .*-DOUT_TYPE=([a-z0-9]+)")
    made = [types.search(options).groups() for source, options in builds if source == "copy.cl"]
    assert len(made) == len(builds)
    expected = {"matmul": [], "out": [("float64", "float32")], "c and bias": [("float32", "float64")]}
    assert sorted(made) == (sorted([("int16", "float64"), *expected[kind]]) if on_device else [])


def test_compiler_warnings_do_not_reach_the_user(own_queue, recwarn, monkeypatch):
    changed_source(monkeypatch, NAIVE.source, "__kernel void", "#warning odd\n__kernel void")
    program.built(own_queue.context, gemm_program(SAMPLE, "textbook/naive.cl", [("TW", 77)]))
    assert not recwarn.list


def test_sources_that_kernels_name_exist():
    used = {"copy.cl"}
    for kernel in pyclmm.KERNELS:
        for shape in ((4, 4, 4), (3, 50, 9000), (500, 4, 100), (500, 500, 500)):
            for device in (DEVICE, NVIDIA):
                used |= set(sources_of(kernel, problem_of(*shape), device))
    assert used <= {p.relative_to(CL).as_posix() for p in CL.rglob("*.cl")}
    assert len(used) > 10


def sources_of(kernel, problem, device):
    if kernel.refuses(problem, device) is None:
        for config in kernel.configs(problem, device):
            for launch in kernel.launches(problem, config, device).launches:
                yield launch.program.source


def test_a_log_that_counts_the_lines_of_the_whole_text_names_files():
    """As NVIDIA's compiler does."""
    text = compiler.expanded("textbook/naive.cl").splitlines()
    entry = next(n for n, line in enumerate(text, 1) if "__kernel void matmul_naive" in line)
    source = compiler.read_source("textbook/naive.cl").splitlines()
    own = next(n for n, line in enumerate(source, 1) if "__kernel void" in line)
    log = compiler.located(f"<kernel>:{entry}:9: error: x\n<kernel>:2:1: note", "\n".join(text))
    assert log == f"textbook/naive.cl:{own}:9: error: x\ntextbook/naive.cl:1:1: note"
    for number, line in enumerate(text, 1):
        if line.startswith("#line") or not line:
            continue
        name, at = compiler.located(f"<kernel>:{number}", "\n".join(text)).rsplit(":", 1)
        assert compiler.read_source(name).splitlines()[int(at) - 1] == line
