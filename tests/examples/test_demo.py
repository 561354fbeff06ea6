"""``python -m examples.demo``: its output and its exit codes."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

from examples.demo import __main__ as demo
from examples.demo import digits, image, tables, tour, workloads
from pyclmm.kernels import kernel_named
from pyclmm.opencl.devices import default_device
from pyclmm.tools import bench
from tests.support.cases import NEVER_SKIPPED, missing
from tests.support.processes import python

ROOT = Path(__file__).parents[2]


def in_process(*arguments, **environment):
    return python("-m", "examples.demo", *map(str, arguments), cwd=ROOT, env=os.environ | environment)


def small_workloads(data):
    pictures = digits.draw(60) if data is None else digits.load(data)
    return [
        workloads.jpeg_block(),
        workloads.turned_points(100),
        workloads.nearest_digits(pictures, "drawn", 50, 10),
    ]


@pytest.fixture
def run(monkeypatch, capsys):
    """A function that runs `make demo-all` on small products in this process: (exit code, output)."""

    def run(workloads=small_workloads):
        monkeypatch.setattr(tables, "products", workloads)
        code = demo.main(["--all"])
        return code, capsys.readouterr().out

    return run


@pytest.fixture
def toured(monkeypatch, capsys, tmp_path):
    """A function that runs `make demo` on a small product in an empty folder: (exit code, output)."""

    def toured(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(tour, "SIDES", (128,))
        code = demo.main(arguments)
        return code, capsys.readouterr().out

    return toured


def bars(output):
    return re.findall(r"^  (\w+) +#+ [\d.e-]+(  <- auto)?(?:  \(a step back: .*\))?$", output, re.M)


def test_the_tour_shows_six_steps_and_numpy_in_thirty_lines(toured, contests, monkeypatch, tmp_path):
    contests.beside(bench.Others(1.0, 0.0))  # a busy machine is two lines more
    monkeypatch.setattr(bench.Row, "overlaps", lambda *_: False)  # times that overlap half a line
    code, output = toured()
    assert code == 0, output
    assert len(output.splitlines()) <= 31  # a device with a long name takes a line more
    assert default_device().name.strip() in output.replace("\n    ", " ").partition("Is it right?")[0]
    names = [name for name, _ in bars(output)]
    assert len(names) == 7
    assert names[-1] == "numpy"
    (auto,) = [name for name, mark in bars(output) if mark]
    assert kernel_named(auto).automatic
    assert "All results are right." in output
    assert "WRONG" not in output
    assert output.count("make demo-all") == 1
    head = (tmp_path / tour.PICTURE).read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert head[16:] == (1280).to_bytes(4, "big") + (480).to_bytes(4, "big")


def test_the_tour_is_not_certain_on_a_busy_machine_and_marks_steps_back(toured, contests, monkeypatch):
    compared = []
    contests.beside(bench.Others(1.0, 2.0))
    monkeypatch.setattr(tour, "steps_back", lambda rows: compared.extend(rows) or ["tiled"])
    shown = toured()[1]
    (back,) = re.findall(r"^  (\w+) .*  \(a step back: docs/road/index.md\)$", shown, re.M)
    assert back == "tiled"
    assert len(compared) == 6, "NumPy is no step"
    said = " ".join(shown.split())
    assert said.index("WARNING: the machine is busy") < said.index("Not certain, as the machine was busy: ")


@pytest.mark.slow
def test_the_steps_of_a_gpu_run_too_and_auto_is_among_them(toured, monkeypatch):
    monkeypatch.setitem(tour.STEPS, "cpu", tour.STEPS["gpu"])
    code, output = toured()
    assert code == 0, output
    assert len(bars(output)) == 7
    assert output.count("<- auto") == 1


@pytest.mark.slow
def test_the_tour_tells_what_is_wrong(toured, contests):
    contests.result = np.zeros_like
    code, output = toured()
    assert code == 1
    assert re.search(r"WRONG: [\w, ]*(packed|register)", " ".join(output.split()))


@pytest.mark.parametrize(
    ("asked", "environment", "says"),
    [(None, "", "GPU"), ("cpu", "", "asked for by --device cpu"), (None, "0", "PYOPENCL_CTX names it")],
)
def test_the_tour_says_why_this_device(monkeypatch, asked, environment, says):
    monkeypatch.setenv("PYOPENCL_CTX", environment)
    assert says in tour.why(default_device(), asked)


def test_an_image_comes_back_without_details():
    before = image.image(None)
    after = image.without_details(before, np.matmul)
    assert after.shape == before.shape
    assert 0.001 < np.abs(after - before).mean() < 0.02
    flat = np.full((48, 64), 0.5, np.float32)
    assert np.allclose(image.without_details(flat, np.matmul), flat, atol=1e-6)


@pytest.mark.slow
def test_demo_lists_devices_multiplies_and_checks(run):
    code, output = run()
    assert code == 0, output
    assert re.search(rf"^\* .*{re.escape(default_device().name.strip())}", output, re.M)
    assert "DCT of an 8 x 8 block: 8 x 8 x 8 float32" in output
    assert output.count("GFLOP/s") == 3
    assert "host to host" in output
    for name in NEVER_SKIPPED:
        if missing(kernel_named(name)) is not None:
            continue
        assert re.search(rf"^{name} ", output, re.M)
    assert "of 10 drawn digits are recognized" in output
    assert re.search(r"^\d+ products by [^:]*: \d+ right, 0\s+wrong$", output, re.M)  # a line may break there


def test_demo_counts_what_is_wrong(run, contests):
    contests.result = np.zeros_like
    code, output = run(lambda data: small_workloads(data)[:1])
    assert code == 1
    assert re.search(r": 0 right, \d+ wrong$", output, re.M)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--data", "no/such"], "Error: cannot read"),
        (["--device", "abacus"], "Error: unknown device 'abacus'"),
        (["--dvice", "0"], "error: unrecognized arguments: --dvice 0"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_invalid_arguments_give_exit_code_2(arguments, says):
    done = in_process(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_no_driver_says_what_to_do(tmp_path):
    done = in_process(OCL_ICD_VENDORS=str(tmp_path / "none"), PYOPENCL_CTX="")
    assert done.returncode == 2
    assert "unset it, or name an .icd file" in done.stderr
    assert len(done.stderr.splitlines()) == 1
