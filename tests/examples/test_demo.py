"""``python -m examples.demo``: its output and its exit codes."""

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from examples.demo import __main__ as demo
from examples.demo import digits, workloads
from pyclmm.kernels import kernel_named
from pyclmm.opencl.devices import default_device
from pyclmm.tools import timing
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
    """A function that runs the demo on small products in this process: (exit code, output)."""

    def run(workloads=small_workloads):
        monkeypatch.setattr(demo, "products", workloads)
        monkeypatch.setattr(sys, "argv", ["demo"])
        code = demo.main()
        return code, capsys.readouterr().out

    return run


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
    assert re.search(r"^\d+ products by [^:]*: \d+ right, 0 wrong$", output, re.M)


def test_demo_counts_what_is_wrong(run, monkeypatch):
    monkeypatch.setattr(timing.OnHost, "result", lambda self: np.zeros((8, 8), np.float32))
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
