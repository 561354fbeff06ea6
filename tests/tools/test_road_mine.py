"""`pyclmm road FILE`: a reader's own kernel is checked and timed; what is wrong with it is shown.

Most tests ask the child's code in this process. To save time, rates are given, and one law is tried.
"""

import json
import os
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from pyclmm import kernels
from pyclmm.kernels import kernel_named
from pyclmm.opencl import compiler
from pyclmm.opencl.devices import default_device, device_info
from pyclmm.problem.canonical import problem_of
from pyclmm.selection.select import refusal
from pyclmm.tools import laws, own_kernel, road
from pyclmm.tools.own_kernel import STARTS
from tests.support.commands import command
from tests.support.selection import slow

ROOT = Path(__file__).parents[2]
DEVICE = device_info(default_device())
LAWS = laws.LAWS
SOLUTIONS = sorted((ROOT / "examples/road").glob("*.cl"))
# Faults in the child: launches of matmul_naive never end, the compiler aborts on
# deadly.cl.
SITE = """
import os, time
import pyopencl as cl
import pyclmm.opencl.compiler as compiler
from pyclmm.tools import laws

laws.LAWS = laws.LAWS[:1]
enqueue, expanded = cl.enqueue_nd_range_kernel, compiler.expanded

def endless(queue, kernel, *rest, **more):
    if kernel.function_name == "matmul_naive":
        time.sleep(600)
    return enqueue(queue, kernel, *rest, **more)

def deadly(name):
    text = expanded(name)
    if name.endswith("/deadly.cl"):
        os.abort()
    return text

cl.enqueue_nd_range_kernel, compiler.expanded = endless, deadly
"""

run = partial(command, "road")


@pytest.fixture(autouse=True)
def in_a_folder(monkeypatch, use_laws, measured, tmp_path):
    """An empty working folder, one law in children too, and probes that measure nothing."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(site), str(ROOT))))
    use_laws(LAWS[:1])


def started(step, old="", new="", name="mine.cl"):
    """A starter's text with a change, in a file."""
    file = Path(name)
    own_kernel.start(step, file)
    return changed(file, old, new)


def changed(file, old, new):
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")
    return file


def asked(monkeypatch, file, *beside):
    """What the child answers, after "begins"; the kernel is known in this process until the test ends."""
    monkeypatch.setattr(kernels, "KERNELS", kernels.KERNELS)
    request = {"device": DEVICE.identity, "path": str(file.resolve()), "limit": 60.0}
    said = own_kernel.answers(request | {"beside": beside, "side": 16})
    return [answer for answer in said if "begins" not in answer]


@pytest.mark.parametrize("step", STARTS)
def test_a_starter_is_right_as_it_is(monkeypatch, step):
    said = asked(monkeypatch, started(step))
    law, *_, row = said
    assert (law["law"], law["cases"] > 0) == (laws.LAWS[0].name, True)
    assert row["kernel"] == "mine.cl"
    assert row["walls"]
    assert row["error_ratio"] < row["error_limit"]


@pytest.mark.parametrize("step", [9, 10])
def test_a_starter_with_another_kernel_than_its_step_says_why(step):
    done = run("--start", step)
    name, task = STARTS[step]
    assert f"step{step}.cl is written, with the kernel {name}:" in " ".join(done.stdout.split())
    assert " ".join(task.split()) in " ".join(Path(f"step{step}.cl").read_text().replace("*", " ").split())
    assert road.KERNELS_OF_THE_ROAD[step - 1] in task


@pytest.mark.parametrize("step", range(11, 16))
def test_a_step_without_a_starter_says_why(step):
    done = run("--start", step, status=2)
    said = f"step {step} has no starter file: the kernels of steps 11 to 15 are of several files and launches"
    assert said in " ".join(done.stderr.split())
    assert not list(Path().iterdir())


@pytest.mark.parametrize(
    ("file", "step"), [("step9.cl", 9), ("step10.cl", 10), ("mine.cl", 5), ("step11.cl", 5)]
)
def test_a_file_that_is_missing_says_what_writes_it(file, step):
    done = run(file, status=2)
    said = f"Error: {file}: there is no such file; `pyclmm road --start {step}` writes one to change"
    assert said in " ".join(done.stderr.split())


def test_a_starter_replaces_no_file():
    Path("step3.cl").write_text("mine")
    done = run("--start", 3, status=2)
    assert "step3.cl: File exists" in done.output
    assert Path("step3.cl").read_text() == "mine"
    done = run("--start", 3, "other one.cl", "--json", "-")
    assert "`pyclmm road 'other one.cl'`" in done.stdout
    assert "void matmul_naive(" in Path("other one.cl").read_text()


def test_a_right_kernel_is_timed_beside_its_neighbours_and_judged(monkeypatch, tmp_path):
    monkeypatch.setenv("PYCLMM_CACHE_DIR", str(tmp_path / "cache"))
    file = started(5, name='my "5%".cl')
    file.write_text(file.read_text(encoding="utf-8"), encoding="utf-8-sig")  # as Windows' editor does
    done = run(file, "--size", 32, "--json", "road.json")
    assert f"right: {laws.LAWS[0].name}" in done.stdout
    content = json.loads(Path("road.json").read_text())
    assert [point["kernel"] for point in content["points"]] == ["flat", "tiled", file.name, "strip"]
    assert content["points"][1]["limit_per_s"] == content["points"][2]["limit_per_s"]
    assert (content["step"], content["failure"]) == ("tiled", None)
    said = " ".join(done.stdout.split())
    assert re.search(r'my "5%"\.cl: [\d.]+ GFLOP/s, [\d.]+ times tiled.*; [\d.]+% of its limit', said)
    assert not (tmp_path / "cache/selfcheck").exists(), "no verdict on it is kept"


# Element (1, 2) is wrong. Who stores it, as work-group and work-item, follows from the pages' index maps.
@pytest.mark.parametrize(
    ("name", "tile", "group", "item"),
    [
        ("sequential", "", (0, 0), (0, 0)),
        ("single_group", "", (0, 0), (2, 1)),
        ("naive", "bm=4 bn=4", (0, 0), (2, 1)),
        ("flat", "bn=16", (1, 0), (3, 0)),
        ("tiled", "bm=4 bn=4 bk=4", (0, 0), (2, 1)),
        ("strip", "bm=4 bn=4 bk=4 tm=4", (0, 0), (2, 0)),
        ("block", "bm=4 bn=4 bk=4 tm=2 tn=2", (0, 0), (0, 0)),
        ("vector", "bm=4 bn=4 bk=4 tm=2 tn=2", (0, 0), (1, 0)),
        ("double_buffer", "bm=4 bn=4 bk=4 tm=2 tn=2", (0, 0), (0, 0)),
    ],
)
def test_the_first_wrong_element_is_drawn_with_who_stores_it(monkeypatch, name, tile, group, item):
    if refusal(kernel_named(name), problem_of(4, 4, 4, np.dtype("float32")), DEVICE):
        pytest.skip(f"{name} does not run here")
    off = "#define OFF(i, j, acc) STORE_RESULT(i, j, (acc) + (ACC_T)((i) == 1 && (j) == 2), RESULT)\n"
    text = compiler.read_source(f"textbook/{name}.cl")
    text = re.sub(r"STORE_RESULT\((.*), RESULT\)", r"OFF(\1)", text)
    text = re.sub(r'(#include ".*"\n)', rf"\1{off}", text) + (f"/* tile: {tile} */" if tile else "")
    file = Path("mine.cl")
    file.write_text(text)
    [failure] = asked(monkeypatch, file)
    assert failure["wrong"]
    assert failure["failure"].startswith(laws.LAWS[0].name)
    first, who, *picture, legend = failure["lines"]
    got = re.match(
        r"first wrong element: row 1, column 2: (\S+) in place of (\S+); 1 of \d+ are wrong", first
    )
    assert float(got[1]) != float(got[2])
    assert f"work-item {item} of work-group {group} stores it" in who
    (row,) = [line for line in picture if "#" in line]
    left = int(picture[0].split()[-1])
    assert re.match(r"  row     1  (.*)", row)[1].index("#") == 2 - left
    assert "x" not in "".join(picture), "no other is wrong"
    assert "#" in legend


def test_an_element_that_nobody_stores_is_told(monkeypatch):
    file = started(3, "  STORE_RESULT(i, j", "  if (i != 2 || j != 1) STORE_RESULT(i, j")
    [failure] = asked(monkeypatch, file)
    assert "row 2, column 1:" in failure["lines"][0]
    assert failure["lines"][1].startswith("no work-item stores it")


def test_a_kernel_that_stores_in_its_own_way_is_drawn_too(monkeypatch):
    file = started(3, "STORE_RESULT(i, j, acc, RESULT);", "out[i * ldo + j] = acc + 1;")
    [failure] = asked(monkeypatch, file)
    assert failure["lines"][1].startswith("who stores it is not known")
    assert "#" in "".join(failure["lines"][2:-1])


def test_a_file_with_the_name_of_a_kernel_is_not_taken_for_it():
    done = run(started(3, name="packed"), status=2)
    assert "call the file packed.cl" in done.stderr


def test_what_the_compiler_refuses_is_shown_with_the_line_of_the_file(monkeypatch):
    file = started(4, "ACC_T acc = ACC_ZERO;", "ACC_T acc = no_such_name;", name='my "4%".cl')
    number = 1 + file.read_text().splitlines().index("  ACC_T acc = no_such_name;")
    [failure] = asked(monkeypatch, file)
    assert not failure["wrong"]
    told = "\n".join(failure["lines"])
    assert "no_such_name" in told
    assert re.search(rf'(?<![\w/])my "4%"\.cl\W+{number}\b', told), told


def test_a_kernel_for_one_type_says_so(monkeypatch, use_laws):
    use_laws([law for law in LAWS if law.name == "element types"])
    wrong = started(3, "ACC_T acc = ACC_ZERO;", "float acc = 0;")
    changed(wrong, "MAC(acc, x, y)", "acc + (float)x * (float)y")
    failure = asked(monkeypatch, wrong)[-1]
    assert failure["failure"].startswith("element types: ")
    assert "say so in a line of a comment: types: float32" in failure["lines"][-1]
    changed(wrong, "| types: float32", " types: float32")
    assert "walls" in asked(monkeypatch, wrong)[-1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "mine.cl has no kernel"),
        ("/* __kernel void matmul_naive() */ // __kernel void matmul_naive()", "mine.cl has no kernel"),
        ("__kernel void other() {}", "mine.cl has the kernels other; it needs one"),
        ("kernel void matmul_packed() {}", "matmul_sequential, matmul_single_group, matmul_naive"),
        (
            "__kernel void matmul_flat() {} __kernel void matmul_naive() {}",
            "matmul_flat, matmul_naive; it needs one",
        ),
        (
            '#include "nowhere.h"\n__kernel void matmul_flat() {}',
            "mine.cl includes nowhere.h, which is not there",
        ),
        (
            "// tile: TW=8\n__kernel void matmul_tiled() {}",
            "'TW=8' is no tile of tiled; write it as tile: bm=",
        ),
        ("// tile: bm=8 bn=8 bk=4\n__kernel void matmul_tiled() {}", "bm, bn and bk must be equal"),
        ("// tile: bm=0\n__kernel void matmul_naive() {}", "TileConfig.bm must be an integer of 1 or more"),
        ("// tile: bm=8\n__kernel void matmul_sequential() {}", "no tile of sequential; sequential has none"),
        ("// types: int8\n__kernel void matmul_naive() {}", "types: int8: float32, in which it is timed"),
        ("// types: float32 single\n__kernel void matmul_naive() {}", "types: float32 single: float32, in"),
    ],
)
def test_a_file_that_cannot_be_tried_is_refused_with_the_reason(text, reason):
    Path("mine.cl").write_text(text)
    done = run("mine.cl", status=2)
    assert reason in " ".join(done.stderr.split())


def test_no_text():
    Path("mine.cl").write_bytes(b"\xff\xfe\x00")
    assert "mine.cl: it is no text in UTF-8" in run("mine.cl", status=2).stderr


def test_a_pipe_is_refused():
    """It would be waited for."""
    os.mkfifo("mine.cl")
    assert "mine.cl: it is no regular file" in run("mine.cl", status=2).stderr


def test_a_kernel_that_hangs_is_ended(limits):
    file = started(3)
    for limit in (4, 30, 300):  # until the child has begun, on a busy machine too
        limits(own_kernel=limit)
        done = run(file, status=2)
        said = " ".join(done.stdout.split())
        assert f"it did not end in {limit} s; is it slow, a loop without an end" in said
        if f"FAILED: {laws.LAWS[0].name}: it did not end" in said:
            return
    pytest.fail(said)


def test_a_kernel_that_ends_its_process_is_told():
    done = run(started(4, name="deadly.cl"), status=2)
    said = " ".join(done.stdout.split())
    assert "FAILED: its build: it ended with SIGABRT; does it read or write outside of its arrays?" in said
    assert "Error: deadly.cl did not pass" in done.stderr


def test_a_wrong_kernel_is_exit_code_1_and_not_timed():
    done = run(started(6, "k < BK; ++k", "k < BK - 1; ++k"), "--json", "road.json", status=1)
    assert "first wrong element: row 0, column 0:" in done.stdout
    content = json.loads(Path("road.json").read_text())
    assert content["points"] == []
    assert content["lines"][0].startswith("first wrong element")
    assert content["failure"].startswith(laws.LAWS[0].name)


def test_ctrl_c_keeps_the_laws_that_were_right(children):
    def pressed(request):
        yield {"law": "a law", "cases": 3}
        raise KeyboardInterrupt

    children.answers = pressed
    done = run(started(3, name="my kernel"), "--json", "road.json", status=130)
    assert "right: a law (3)" in done.stdout
    assert "what was measured is shown" in done.stderr
    assert json.loads(Path("road.json").read_text())["laws"] == {"a law": 3}


def test_a_child_that_says_nothing_is_no_success(children):
    children.scripts = [((), None)]
    done = run(started(3), status=2)
    assert "FAILED: its start: the child process gave no answer" in done.stdout


def test_what_other_processes_used_may_be_less_than_nothing(children):
    """The system counts in steps."""
    row = {"kernel": "naive", "side": 8, "walls": [0.1], "others": [1.0, -0.1]}
    judged = {"error_ratio": 0.1, "error_limit": 1.0, "reason": None}
    names = ("single_group", "naive", "flat", "mine.cl")
    children.scripts = [([row | judged | {"kernel": name} for name in names], None)]
    done = run(started(3))
    assert "mine.cl: " in done.stdout


@pytest.mark.parametrize("tried", ["first", *slow("every")])
@pytest.mark.parametrize("file", SOLUTIONS, ids=lambda file: file.stem)
def test_a_solution_is_right(monkeypatch, use_laws, file, tried):
    use_laws(LAWS if tried == "every" else LAWS[:1])
    assert "walls" in asked(monkeypatch, file)[-1]
