"""`pyclmm selftest`: it finds wrong kernels, reports crashes and hangs, and its report names nobody."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
from functools import partial
from pathlib import Path
from string import Template

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyclmm.checks import fixed_products
from pyclmm.formats import FORMATS, ORDERS, format_named
from pyclmm.kernels import KERNELS, kernel_named
from pyclmm.opencl.devices import default_device, device_info
from pyclmm.opencl.queues import default_queue
from pyclmm.problem import dtypes
from pyclmm.problem.canonical import problem_of
from pyclmm.tools import laws, selftest
from pyclmm.tools.terminal import Stage
from tests.checks.test_selfcheck import WRONG
from tests.conformance.offline import TARGETS
from tests.support import made_up
from tests.support.commands import command
from tests.support.contexts import new_queue
from tests.support.faults import changed_source, changed_sources

DEVICE = device_info(default_device())
SEVERAL = (DEVICE, made_up.H200, made_up.MI250, made_up.ARC, *(target.device for target in TARGETS))
FEW = laws.LAWS[:3:2]  # of the laws, which take seconds to compile; each is broken below
LAW_NAMES = [*(law.name for law in FEW), laws.INTERFACE, laws.BITS]

# Faults in the children: the compiler aborts on tiled, launches of naive never end, flat leaves out a
# product, and builds of sequential fail with a log that names user, host and paths.
ROOT = Path(__file__).parents[2]
SITE = Template(
    """
import os, time
import pyopencl as cl
import pyclmm.opencl.compiler as compiler
import pyclmm.opencl.program as program
from pyclmm.tools import laws

laws.LAWS = laws.LAWS[:3:2]
source, build, enqueue = compiler.read_source, program._build, cl.enqueue_nd_range_kernel

def wrong_source(name):
    text = source(name)
    return text.replace("k < K; ++k", "k < K - 1; ++k") if name == "textbook/flat.cl" else text

def bad_build(context, what, detour):
    if what.source == "textbook/tiled.cl":
        os.abort()
    if what.source == "textbook/sequential.cl":
        raise program.BuildError("d", "-I /opt/things", $told)
    return build(context, what, detour)

def endless(queue, kernel, *rest, **more):
    if kernel.function_name == "matmul_naive":
        time.sleep(600)
    return enqueue(queue, kernel, *rest, **more)

compiler.read_source, program._build, cl.enqueue_nd_range_kernel = wrong_source, bad_build, endless
"""
)


run = partial(command, "selftest")


@pytest.fixture
def secrets(monkeypatch, tmp_path):
    """The names of a made-up user and host, and paths, none of which may be shown."""
    home = tmp_path / "home" / "jane"
    home.mkdir(parents=True)
    monkeypatch.setattr(socket, "gethostname", lambda: "box17.example.org")
    monkeypatch.setenv("LOGNAME", "jane")
    monkeypatch.setenv("HOME", str(home))
    return ["jane", "box17", "example.org", str(tmp_path), str(home), "passwd", "/opt/things", "C:\\Users"]


@pytest.fixture
def sabotage(monkeypatch, tmp_path, secrets, use_laws):
    told = f"by jane on BOX17 in {tmp_path}/home/jane/x y.cl, see /etc/passwd; C:\\Users\\jane\\a.txt:3: no"
    (tmp_path / "sitecustomize.py").write_text(SITE.substitute(told=repr(told)))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(ROOT))))
    use_laws(FEW)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_refusal_has_its_reason(kernel, queue):
    found = [
        laws.check(queue, kernel, law) for law in laws.LAWS if law.name in ("transposes", "element types")
    ]
    assert all(x.cases or x.refused for x in found)


def test_each_way_to_fail_is_told_and_the_next_kernel_goes_on(sabotage):
    verdicts = {"tiled": "crashed", "flat": "wrong", "sequential": "failed", "single_group": "passed"}
    steps = []
    found = {one.kernel: one for one in selftest.run(DEVICE, 600.0, steps.append, asked=tuple(verdicts))}
    assert {name: one.verdict for name, one in found.items()} == verdicts
    [crash] = found["tiled"].laws
    assert crash.law == LAW_NAMES[0]
    assert "SIGABRT" in crash.reason
    assert "integer data gave an inexact result" in found["flat"].laws[0].reason
    assert "SHA-256" in found["flat"].laws[-1].reason  # the self-check does not refuse it before
    assert [v.law for v in found["sequential"].laws] == LAW_NAMES
    assert [v.law for v in found["single_group"].laws] == LAW_NAMES
    assert 0 < found["single_group"].worst < 1
    total = 4 * len(LAW_NAMES)
    assert steps[-1] == Stage(f"single_group: {LAW_NAMES[-1]}", total - 1, total)
    assert [step.done for step in steps] == sorted(step.done for step in steps)


@pytest.mark.slow
def test_a_kernel_that_hangs_is_told_with_its_law(limits, sabotage):
    limits(law=1.0)
    for budget in (3.0, 29.0, 299.0):  # until the child has begun, on a busy machine too
        [tested] = selftest.run(DEVICE, budget, lambda _: None, asked=("naive",))
        assert tested.verdict == "hung"
        assert re.search(r"did not end within [0-9.]+ seconds", tested.laws[-1].reason)
        if tested.laws[-1].law == LAW_NAMES[0]:
            return
    pytest.fail(f"it hung at {tested.laws[-1].law!r}")


def test_the_command_writes_a_report_that_names_nobody(sabotage, secrets, tmp_path):
    file = tmp_path / "report.json"
    done = run("--kernel", "sequential", "--kernel", "tiled", "--report", file, status=1)
    assert "Error: sequential, tiled did not pass" in done.output
    text = file.read_text()
    for secret in secrets:
        assert secret.lower() not in text.lower(), secret
    content = json.loads(text)
    assert "<path>" in content["kernels"][0]["laws"][0]["reason"]
    assert {"pyclmm", "pyopencl", "numpy", "python"} <= set(content["host"])
    assert content["device"]["driver_version"] == selftest.anonymous(DEVICE.driver_version)
    assert content["device"]["max_mem_alloc_size"] == DEVICE.max_mem_alloc_size
    assert [k["verdict"] for k in content["kernels"]] == ["failed", "crashed"]
    for row in content["kernels"][0]["laws"]:
        known = {"law", "verdict", "cases", "error_ratio", "error_limit", "reason"}
        assert set(row) == known | {"left_out", "number", "repeat"}


def test_the_command_reports_success(tmp_path):
    file = tmp_path / "report.json"
    done = run("--quick", "--kernel", "naive", "--report", file)
    assert "passed" in done.output
    assert json.loads(file.read_text())["kernels"][0]["verdict"] == "passed"


def test_only_the_kernels_that_were_named_are_tested(tmp_path):
    """Two that most devices refuse, which takes a moment."""
    file = tmp_path / "report.json"
    run("--kernel", "wgmma", "--kernel", "dpas", "--report", file)
    assert [each["kernel"] for each in json.loads(file.read_text())["kernels"]] == ["wgmma", "dpas"]
    unknown = run("--kernel", "dpsa", "--report", file, status=2)
    assert "unknown kernel 'dpsa': did you mean 'dpas'" in unknown.output


def test_a_refusal_is_no_failure():
    refused = selftest.Tested("k", [selftest.LawVerdict("l", "refused", reason="no float64")])
    assert (refused.verdict, refused.is_bad) == ("refused", False)
    both = selftest.Tested("k", [*refused.laws, selftest.LawVerdict("m", "passed", 3, 8.0, 16.0)])
    assert (both.verdict, both.worst) == ("passed", 0.5)
    bad = selftest.Tested("k", [*both.laws, selftest.LawVerdict("n", "wrong", 3, None, 16.0)])
    assert (bad.verdict, bad.is_bad) == ("wrong", True)


@pytest.mark.parametrize("kernel", ["naive", "mma_double"])
def test_a_package_that_is_not_installed_is_no_fault_of_a_kernel(use_laws, without_ml_dtypes, kernel):
    fixed = [p for p in fixed_products.PRODUCTS if p.dtype == "bfloat16" or p.name == "float32 normal"]
    use_laws(FEW, fixed)
    found = laws.check_bits(default_queue(), kernel_named(kernel), full=True)
    can_run = laws.first_taken(kernel_named(kernel), DEVICE) is not None
    assert (found.cases, found.wrong) == (int(can_run), None)
    assert found.cases or "mma_double" in found.refused


def test_a_package_that_is_not_installed_is_named(without_ml_dtypes, tmp_path):
    file = tmp_path / "report.json"
    done = run("--kernel", "dpas", "--json", file)
    assert 'skipped: bfloat16 needs ml_dtypes: pip install "pyclmm[bfloat16]"' in done.output
    assert list(json.loads(file.read_text())["skipped"]) == ["bfloat16"]


# -- names and paths


@given(st.text(max_size=60))
@example("see /home/jane/x.cl:3:4: no")
@example('File "/usr/lib/python3/x.py", line 3')
@example("C:\\Users\\jane\\x and \\\\box17\\share and ~/x")
@example("-I/opt/include -DX=1")
@example("JANE@BOX17.example.org")
@example("a\nb\x1b[2J\u202ec")
def test_no_text_names_user_host_or_path(secrets, text):
    shown = selftest.anonymous(f"{text} jane (box17) /home/jane/a.cl {text}")
    assert shown.isprintable()
    assert "/home" not in shown
    words = shown.lower().replace("<", " ").replace(">", " ")
    assert " jane " not in f" {words} " or "jane" in text.lower()
    assert "(box17)" not in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("19 x 21 is not thin: a/b, 5 / 3", "19 x 21 is not thin: a/b, 5 / 3"),
        ("float32 @ float32 NN", "float32 @ float32 NN"),
        ("at /usr/include/x.h:3: no", "at <path>:3: no"),
        ("janet and boxes stay", "janet and boxes stay"),
        ("-I/opt/include -DX=1", "-I<path> -DX=1"),
        ("-I/home/x/jane/y", "-I<path>"),
    ],
)
def test_text_without_secrets_is_kept(secrets, text, shown):
    assert selftest.anonymous(text) == shown


def test_a_user_without_name_home_or_folder(monkeypatch):
    def fail(*_):
        raise KeyError("uid not found")

    for owner, name in ((getpass, "getuser"), (Path, "home"), (Path, "cwd")):
        monkeypatch.setattr(owner, name, fail)
    assert selftest.anonymous("all is well") == "all is well"


# -- the laws themselves


OF_LISTS = "lists, and groups of rows"


@pytest.mark.parametrize(
    ("name", "law"),
    [
        (name, law)
        for law in laws.LAWS
        for name in (("register", "dequantized") if law.name == OF_LISTS else ("tiled", "naive"))
    ],
    ids=lambda x: getattr(x, "name", x),
)
def test_right_kernels_obey_every_law(name, law):
    found = laws.check(default_queue(), kernel_named(name), law)
    assert found.wrong is None
    assert found.cases > 0
    assert 0 <= found.ratio < found.limit


@pytest.mark.parametrize("fault", WRONG)
def test_wrong_kernels_break_a_law(monkeypatch, fault):
    changed_source(monkeypatch, *WRONG[fault])
    queue = new_queue()
    found = [laws.check(queue, kernel_named("tiled"), law) for law in laws.LAWS[:2]]
    assert any(f.wrong for f in found)


# For each law a fault that it must find: (source file, right text, wrong text)
GEMM, EXTRAS, NAIVE = "include/gemm.h", "include/extras.h", "textbook/naive.cl"
FLAWS = {
    "error bound of random numbers": (GEMM, "SCALE(alpha, acc);", "SCALE(alpha, acc) * 1.0001f;"),
    "exact integers, far from the start": (NAIVE, "k < K; ++k", "k < min(K, 9000); ++k"),
    "strides, offsets, and operands that a stack shares": (EXTRAS, "all_bias + bias_offset", "all_bias + 0"),
    "transposes": (GEMM, "#if TRANS_A", "#if 0"),
    "element types": ("include/types.h", "vload_half", "2 * vload_half"),
    "stacks": (GEMM, "[4 * (z) + (which)]", "[4 * min((long)(z), 3L) + (which)]"),
    "beta, and C not read where it is 0": (GEMM, "SCALE(beta, old)", "SCALE(alpha, old)"),
    "bias and activation": (GEMM, "BIAS == 1 ? (j) : (i)", "BIAS == 1 ? (i) : (j)"),
}


@pytest.mark.parametrize("name", FLAWS)
def test_each_law_finds_its_fault(monkeypatch, name):
    changed_source(monkeypatch, *FLAWS[name])
    queue = new_queue()
    [law] = [law for law in laws.LAWS if law.name == name]
    found = laws.check(queue, kernel_named("naive"), law)
    assert found.wrong is not None
    assert not found.ratio < found.limit


@pytest.mark.parametrize("device", SEVERAL, ids=lambda device: device.name)
def test_every_kernel_is_tested_on_a_product_that_it_takes(device):
    """Those for matrix units too, which multiply other types or in a lower precision."""
    suited = [kernel for kernel in KERNELS if kernel.unsuited(device) is None]
    missed = [kernel.name for kernel in suited if laws.first_taken(kernel, device) is None]
    assert not missed


@pytest.mark.parametrize("kernel", ["quantized", "dequantized"])
def test_families_for_weights_are_tested_on_weights(kernel):
    names = [name for name, _ in laws.checks(default_queue(), kernel_named(kernel), full=False)]
    assert names == [*(law.name for law in laws.LAWS), laws.OF_WEIGHTS.name]
    taken = laws.first_taken(kernel_named(kernel), DEVICE)
    formats = {case.problem.b_format for case in laws.OF_WEIGHTS.cases(laws.Setting(taken, None))}
    assert {(format_named(name).mode, format_named(name).bits) for name in formats} == {
        (form.mode, form.bits) for form in FORMATS
    }
    assert {format_named(name).order for name in formats} == set(ORDERS)
    for law in laws.LAWS:
        if law.name in ("transposes", "stacks", "error bound of random numbers"):
            cases = [case.problem for case in law.cases(laws.Setting(taken, None))]
            assert all(problem.b_format == taken.b_format for problem in cases)


def test_a_wrong_header_of_a_format_is_told(monkeypatch):
    monkeypatch.setattr(laws, "FORMATS", (format_named("q4_1"), format_named("q8_0")))

    def change(name, text):
        return text.replace("block + 18", "block + 2") if name == "formats/q8_0.h" else text

    changed_sources(monkeypatch, change)
    found = laws.check(new_queue(), kernel_named("dequantized"), laws.OF_WEIGHTS)
    assert found.cases == 7  # these two, and five in the order of fragments
    assert "q8_0 NT: random data gave an error over the bound" in found.wrong


def test_the_interface_is_checked_too(monkeypatch):
    found = laws.check_interface(default_queue(), kernel_named("naive"))
    assert (found.cases, found.wrong) == (12, None)
    # Not of 18 rows, which the device checks: it would refuse them.
    changed_source(monkeypatch, NAIVE, "k < K; ++k", "k < K - (M != 18); ++k")
    found = laws.check_interface(new_queue(), kernel_named("naive"))
    assert "views of every second column" in found.wrong


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_rows_of_each_laws_problem_begin_where_it_says(dtype):
    """A kernel may copy as many bytes at a time as rows are aligned to."""
    taken = problem_of(9, 8, 7, np.dtype(dtype))
    config = kernel_named("register").configs(taken, made_up.H200)[0]
    for problem in (case.problem for law in laws.LAWS for case in law.cases(laws.Setting(taken, config))):
        along = problem.ragged.begins_along(problem.trans_a, problem.trans_b) if problem.ragged else ()
        places = (("a", "lda"), ("b", "ldb"), ("out", "ldo"))
        for (name, rows), is_along in zip(places, (*along, False, False, False), strict=False):
            nbytes = dtypes.dtype_of(getattr(problem, f"{name}_type")).itemsize
            align = getattr(problem, f"{name}_align")
            assert getattr(problem, rows) * nbytes % align == 0, (str(problem), name)
            assert align == nbytes or not is_along, (str(problem), name)
