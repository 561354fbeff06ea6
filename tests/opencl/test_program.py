"""Programs: sources keep their line numbers, all shapes share a build, all threads share a build."""

from __future__ import annotations

import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest

import pyclmm
from pyclmm import BuildError
from pyclmm.kernels import Program
from pyclmm.kernels.interface import gemm_program
from pyclmm.opencl import program
from pyclmm.opencl.single_flight import SingleFlight
from tests.support.cases import DEVICE, SAMPLE, problem_of
from tests.support.made_up import DEVICE as MADE_UP

CL = Path(__file__).parents[2] / "cl"
NVIDIA = replace(MADE_UP, vendor="nvidia", compute_capability=(9, 0), compute_units=132)
NVIDIA = replace(NVIDIA, max_work_group_size=1024, max_work_item_sizes=(1024, 1024, 64), local_mem_size=49152)
FORMS = {"matvec": 8, "packed": 20, "thin": 48, "register": 60}  # most programs of a family for one dtype
NAIVE = gemm_program(SAMPLE, "textbook/naive.cl")


@pytest.fixture
def own_queue(queue):
    """A queue of a new context, in which no program is built yet."""
    return cl.CommandQueue(cl.Context([queue.device]))


@pytest.fixture
def builds(monkeypatch):
    """The programs compiled during the test."""
    found = []
    real = program._build

    def build(context, what, detour):
        found.append(what)
        return real(context, what, detour)

    monkeypatch.setattr(program, "_build", build)
    return found


def test_sources_name_their_files_and_lines():
    text = program.expanded("textbook/naive.cl")
    files = ["textbook/naive.cl", "include/types.h", "include/attributes.h", "include/gemm.h"]
    assert re.findall(r'^#line 1 "(.*)"$', text, re.MULTILINE) == files, (
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


@pytest.mark.parametrize("path", sorted(CL.rglob("*.[ch]*")), ids=lambda p: p.name)
def test_sources_keep_to_their_limits(path):
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert len(lines) <= 250
    assert text.startswith("/* "), "a header comment"
    words = re.compile(r"\b(warps?|thread blocks?|__shared__|shared memory)\b", re.IGNORECASE)
    assert "asm volatile" in text or not words.search(text), "OpenCL's words, but where PTX is written"


@pytest.mark.parametrize(
    "missing",
    [name for name, _ in NAIVE.defines],
)
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
def test_one_program_serves_all_shapes(kernel):
    """Families with tuned tiles have a few programs, for a few kinds of shapes."""
    r, programs, shapes = random.Random(5), set(), 0
    while shapes < 500:
        m, n, k = (r.choice((1, 3, 8, 64, 1000)) + r.randint(0, 20) for _ in "mnk")
        problem = problem_of(m, n, k)
        if kernel.supports(problem, DEVICE) is None:
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
    together = threading.Barrier(8)

    def build(_):
        together.wait(60)
        return program.built(own_queue.context, NAIVE)

    with ThreadPoolExecutor(8) as pool:
        results = set(map(id, pool.map(build, range(8))))
    assert len(results) == len(builds) == 1


def test_the_program_cache_is_bounded(own_queue, builds, monkeypatch):
    monkeypatch.setattr(program, "_programs", SingleFlight(1))
    other = gemm_program(SAMPLE, "textbook/flat.cl")
    for what in (NAIVE, other, other, NAIVE):
        program.built(own_queue.context, what)
    assert builds == [NAIVE, other, NAIVE]


def test_compiler_warnings_do_not_reach_the_user(own_queue, recwarn, monkeypatch):
    source = program.expanded(NAIVE.source) + "\n#warning this is a warning\n"
    monkeypatch.setattr(program, "expanded", lambda name: source)
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
    if kernel.supports(problem, device) is None:
        for config in kernel.configs(problem, device):
            for launch in kernel.launches(problem, config, device).launches:
                yield launch.program.source
