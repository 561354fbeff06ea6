"""The command line: output, files, exit codes and invalid arguments."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import pyclmm
from pyclmm.kernels import KERNELS, kernel_named
from pyclmm.opencl.devices import all_devices, default_device, device_info, device_labels
from pyclmm.problem.canonical import problem_of
from pyclmm.problem.dtypes import ELEMENT_TYPES
from pyclmm.tools import bench, bench_command, cli, output, timing
from tests.support.commands import command as run
from tests.support.faults import failing, noted
from tests.support.processes import python

MESSAGE = re.compile(r"^Error: .+$", re.M)


def in_process(*arguments, **environment):
    return python("-m", "pyclmm", *arguments, env=os.environ | environment)


def test_pyclmm_alone_shows_its_help_once():
    done = in_process()
    assert "Commands:" in done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("Usage:") == 1


# info


def test_info_names_every_device_and_kernel():
    shown = run("info")
    for device in all_devices():
        assert device.name.strip() in shown.output
    assert shown.output.count("(default)") == 1
    words = " ".join(shown.output.split())
    for device in map(device_info, all_devices()):
        able = [k for k in KERNELS if any(answer["refusal"] is None for answer in cli.answers(k, device))]
        unable = [k.name for k in KERNELS if k not in able]
        assert all(re.search(rf"kernel {k.name}( \(some shapes\))?: {k.summary[:8]}", words) for k in able)
        assert f"cannot run {', '.join(unable)} (--reasons says why)" in words


def test_info_gives_reasons_when_asked():
    words = " ".join(run("info", "--reasons").output.split())
    assert re.search(r"(wgmma: wgmma|dpas: dpas) needs an (NVIDIA|Intel) device", words), "one is another's"
    assert "not 1024 x 1024 x 1024 float32, 1024 x 1024 x 1024 float64: M x N is 1024 x 1024" in words
    assert "says why" not in words


@pytest.mark.parametrize("name", ["matvec", "thin"])
def test_info_says_that_a_kernel_computes_some_shapes(name, device):
    vector = problem_of(512, 1, 512, np.dtype(np.float32))
    if kernel_named(name).refuses(vector, device) is not None:
        pytest.skip(f"{name} is not for this device")
    assert f"kernel         {name} (some shapes): " in run("info").output


def test_info_json_has_limits_and_refusals():
    data = json.loads(run("info", "--json").output)
    devices = [d for platform in data["platforms"] for d in platform["devices"]]
    assert [d["label"] for d in devices] == list(device_labels())
    assert [d["label"] for d in devices if d["default"]] == [
        label for label, d in device_labels().items() if d == default_device()
    ]
    for shown, device in zip(devices, device_labels().values(), strict=True):
        assert shown["max_work_group_size"] == device.max_work_group_size
        assert shown["extensions"] == sorted(set(device.extensions.split()))
        kernels = {k["name"]: k for k in shown["kernels"]}
        assert list(kernels) == [k.name for k in KERNELS]
        small, large = (
            next(p for p in kernels["single_group"]["problems"] if p["m"] == m and p["dtype"] == "float32")
            for m in (16, 1024)
        )
        assert small["refusal"] is None
        assert "work-group" in large["refusal"]


# bench


def test_bench_writes_table_json_and_plot(tmp_path):
    files = tmp_path / "b.json", tmp_path / "b.png"
    shown = run("bench", 33, 20, 17, "--rounds", 2, "--json", files[0], "--plot", files[1])
    assert "33 x 20 x 17" in shown.output
    refused = re.search(
        r"cannot compute this here: (.*) \(--reasons says why\)", " ".join(shown.output.split())
    )
    for name in (*(k.name for k in KERNELS), "numpy"):
        assert (name in refused[1].split(", ")) != bool(re.search(rf"^{name} ", shown.output, re.M)), name
    (product,) = json.loads(files[0].read_text())["products"]
    assert (product["m"], product["n"], product["k"]) == (33, 20, 17)
    assert all(r["correct"] for r in product["rows"] if r["reason"] is None)
    assert files[1].read_bytes().startswith(b"\x89PNG")


def test_bench_runs_only_the_kernels_asked_for():
    kernels = ("--kernel", "naive", "--kernel", "auto", "--kernel", "naive")
    shown = run("bench", 5, 5, 5, *kernels, "--dtype", "float64", "--rounds", 1)
    first_words = [line.split()[0] for line in shown.output.splitlines() if line.strip()]
    known = {"naive", "auto", "sequential", "numpy", "tiled", "flat"}
    assert [w for w in first_words if w in known] == ["naive", "auto", "numpy"]
    assert "float64" in shown.output
    naive = next(line for line in shown.output.splitlines() if line.startswith("naive "))
    assert naive.split()[5] == "1.00", "speed-ups are over the first kernel"


def test_bench_says_where_its_clock_runs_from(tmp_path):
    shown = run("bench", 5, 5, 5, "--kernel", "naive", "--rounds", 1)
    assert "Wall time of a call, host to host (NumPy arrays in and out)." in shown.output
    assert re.search(r"^numpy ", shown.output, re.M)
    shown = run("bench", 5, 5, 5, "--kernel", "naive", "--rounds", 1, "--arrays")
    assert "Wall time of a call, device to device (Arrays in and out, and the wait)." in shown.output
    assert not re.search(r"^numpy ", shown.output, re.M | re.I)


def test_bench_takes_layout_precision_batch_and_seed(tmp_path, monkeypatch):
    drawn = noted(monkeypatch, bench_command, "random_pair")
    shown = run(
        *("bench", 5, 6, 7, "--kernel", "naive", "--rounds", 1, "--json", tmp_path / "b.json"),
        *("--layout", "TN", "--precision", "high", "--batch", 3, "--seed", 9),
    )
    assert '3 of 5 x 6 x 7 float32 TN "high"' in shown.output
    assert drawn == [(timing.Size(5, 6, 7, 3), np.dtype(np.float32), 9, "TN")]
    data = json.loads((tmp_path / "b.json").read_text())
    assert data["seed"] == 9
    (product,) = data["products"]
    assert (product["batch"], product["layout"], product["precision"]) == (3, "TN", "high")
    assert all(r["correct"] for r in product["rows"])


def test_the_ladder_names_kernels_that_are_too_slow(tmp_path, contests):
    """A kernel that takes 1 s for 1,000 multiply-adds is dropped after the first size."""
    contests.take(naive=1.0)
    files = tmp_path / "l.json", tmp_path / "l.svg"
    shown = run(
        *("bench", "--ladder", "--max-work", "1e5", "--limit", 5, "--rounds", 1),
        *("--kernel", "naive", "--kernel", "sequential", "--json", files[0], "--plot", files[1]),
    )
    said = " ".join(shown.output.split())
    assert "naive: not run from 22 x 22 x 22 on: would take about 10.6 s, over the limit of 5 s" in said
    assert "too slow" in shown.output
    assert [p["work"] for p in json.loads(files[0].read_text())["products"]] == [1000, 10648, 97336]
    assert "</svg>" in files[1].read_text()


def test_the_ladder_ends_when_every_kernel_is_too_slow(contests):
    contests.take(naive=4.9, tiled=4.9)
    shown = run("bench", "--ladder", "--limit", 5, "--rounds", 1, "--kernel", "naive", "--kernel", "tiled")
    assert re.search(r"^ +22 .* too slow +too slow ", shown.output, re.M)
    assert "9.73e+04" not in shown.output


def test_a_wrong_result_is_exit_code_1(contests):
    contests.result = lambda right: right + 7
    shown = run("bench", 4, 4, 4, "--kernel", "naive", "--rounds", 1, status=1)
    assert "WRONG" in shown.stdout
    assert "Error: wrong results from naive" in shown.stderr


@pytest.mark.parametrize(
    "words",
    [("1x20x30",), ("1", "20", "30"), ("1 20 30",), ("1 x 20 x 30",), ("1", "x", "20", "x", "30")],
    ids=" ".join,
)
def test_every_command_takes_a_product_in_either_form(words, own_caches):
    for command in (["bench", "--kernel", "naive"], ["compare"], ["warm"]):
        shown = run(*command, *words)
        assert "1 x 20 x 30" in " ".join(shown.stdout.split()) or "1x20x30" in shown.stdout


def test_products_are_separated_by_commas_or_spaces():
    for text in ("1x2x3,4x5x6", "1x2x3 4x5x6", "1 2 3, 4 5 6", "1 x 2 x 3, 4 x 5 x 6"):
        assert output.shapes(None, None, text) == [(1, 2, 3), (4, 5, 6)]


def test_kernels_asked_for_that_cannot_run_are_exit_code_2():
    shown = run("bench", 1000, 1000, 1, "--kernel", "single_group", "--rounds", 1, status=2)
    assert "Error: single_group could not run here: M x N is 1000 x 1000" in shown.stderr


# wrong calls


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["bench", "0", "5", "5"],
            "'0 5 5' is no product; write M N K or MxNxK in whole numbers of 1 or more",
        ),
        (["bench", "-5", "3", "3"], "-5: M, N and K are whole numbers of 1 or more"),
        (["bench", "3", "3", "-3"], "-3: M, N and K are whole numbers of 1 or more"),
        (["bench", "3", "y", "3"], "'3 y 3' is no product"),
        (["bench", "3", "3"], "'3 3' is no product"),
        (["bench", "3x3x3,4x4x4"], "'3x3x3,4x4x4' names 2 products; give one"),
        (["bench", "3x3", "3"], "'3x3' is no product"),
        (["compare"], "Missing argument 'M N K'"),
        (["warm", "3,3,3"], "'3' is no product"),
        (["bench"], "or --ladder"),
        (["bench", "1000000", "1", "1000000"], "a needs a buffer of 4000000000000 bytes"),
        (["bench", "99999999999999999999", "1", "1"], "must be at most 2^31 - 2^16"),
        (["bench", "3", "3", "3", "--ladder"], "--ladder has its own sizes"),
        (["bench", "3", "3", "3", "--max-work", "1e9"], "M N K goes without --max-work"),
        (["tune", "--rates", "--export", "x.json"], "to measure rates only goes without --export"),
        (["tune", "--plot", "x.png", "--device"], "to measure rates only goes without --plot"),
        (["tune", "--rates", "--dtype", "float64"], "to measure rates only goes without --dtype"),
        (["bench", "3", "3", "3", "--layout", "NX"], "'NX' is not one of 'NN', 'NT', 'TN', 'TT'"),
        (["bench", "3", "3", "3", "--precision", "low"], "'low' is not one of 'highest', 'high', 'medium'"),
        (["bench", "3", "3", "3", "--batch", "0"], "0 is not in the range x>=1"),
        (["bench", "3", "3", "3", "--kernel", "tyled"], "unknown kernel 'tyled': did you mean 'tiled'?"),
        (["bench", "3", "3", "3", "--dtype", "flot32"], "unknown dtype 'flot32': did you mean 'float32'"),
        (
            ["bench", "3", "3", "3", "--json", "-", "--device", "abacus"],
            "unknown device 'abacus': valid are '0:0'",
        ),
        (["bench", "3", "3", "3", "--limit", "0"], "0.0 is not in the range x>0"),
        (["bench", "3", "3", "3", "--plot", "x.pgn"], "unknown picture format '.pgn'"),
        (["bench", "3", "3", "3", "--plot", "no/such/x.png"], "there is no folder"),
        (["bench", "3", "3", "3", "--json", "no/such/x.json"], "there is no folder"),
        (["bench", "3", "3", "3", "--limit", "nan"], "'nan' is no number to measure with"),
        (["bench", "3", "3", "3", "--limit", "inf"], "'inf' is no number to measure with"),
        (["bench", "--ladder", "--max-work", "nan"], "'nan' is no number to measure with"),
        (["bench", "1e3", "1", "1"], "'1e3 1 1' is no product"),
        (["bench", "3", "3", "3", "--json", ""], "the name of a file is empty"),
        (["bench", "3", "3", "3", "--plot", "/"], "'/' is a directory"),
        (["selftest", "--report", "no/such/r.json"], "there is no folder"),
        (["tune", "--shapes", ","], "',' names nothing"),
        (["tune", "--shapes", "24x20"], "MxNxK"),
        (["tune", "--shapes", "0x1x1"], "MxNxK"),
        (["tune", "--budget", "soon"], "such as 120s"),
        (["tune", "--budget", "0"], "such as 120s"),
        (["tune", "--dtype", "float23"], "float32"),
        (["tune", "--layout", "XX"], "layout"),
        (["tune", "--device", "no such"], "no such"),
        (["tune", "--plot", "x.doc"], "picture"),
        (["becnh"], "unknown command 'becnh': did you mean 'bench'?"),
        (["info", "--jsn"], "--jsn"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_invalid_arguments_give_one_line_and_exit_code_2(arguments, says):
    shown = run(*arguments, status=2)
    assert shown.stdout == ""
    assert says in MESSAGE.search(shown.stderr)[0]
    assert "Traceback" not in shown.stderr


def test_an_unknown_dtype_lists_all_dtypes():
    message = run("bench", 3, 3, 3, "--dtype", "x", status=2).stderr
    assert all(repr(name) in message for name in ELEMENT_TYPES)


def test_a_file_that_cannot_be_written_is_reported(tmp_path):
    with failing(Path, "write_text", PermissionError(13, "Permission denied"), library=""):
        shown = run(
            "bench", 2, 2, 2, "--rounds", 1, "--kernel", "naive", "--json", tmp_path / "x.json", status=2
        )
    assert "x.json: Permission denied" in shown.stderr


def test_out_of_memory_is_one_line():
    with failing(bench.Track, "race", MemoryError(), library=""):
        shown = run("bench", 2, 2, 2, status=2)
    assert "Error: out of memory" in shown.stderr


# as a process


def test_python_m_pyclmm_and_version():
    done = in_process("--version")
    assert done.stdout == f"pyclmm, version {pyclmm.__version__}\n"


def test_piped_output_is_plain_and_whole():
    done = in_process("bench", "65", "3", "17", "--rounds", "1", COLUMNS="20", TERM="xterm-256color")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert "…" not in done.stdout
    assert re.search(r"^tiled( +[0-9.]+){6} +[<0-9.]+%$", done.stdout, re.M)
    assert re.search(r"^tiled: bm=\d+ bn=\d+ bk=\d+$", done.stdout, re.M)


def test_no_driver_says_what_to_do(tmp_path):
    for command in (["info"], ["info", "--json"], ["bench", "2", "2", "2"]):
        done = in_process(*command, OCL_ICD_VENDORS=str(tmp_path / "none"), PYOPENCL_CTX="")
        assert done.returncode == 2, command
        assert "unset it, or name an .icd file" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_warning_is_one_line_without_a_place_in_the_code(tmp_path):
    done = python("-m", "pyclmm", "warm", "8x8x8", env=os.environ | {"PYCLMM_CACHE_DIR": os.devnull})
    assert done.returncode == 2
    warned, error = done.stderr.splitlines()
    assert warned.startswith(f"CacheWarning: {os.devnull}: not all can be kept")
    assert error.startswith("Error: not all is kept: cannot write")


def test_a_bad_default_device_does_not_hide_the_others():
    done = in_process("info", PYOPENCL_CTX="97")
    assert done.returncode == 0
    assert "no default device: PYOPENCL_CTX='97' names no device" in done.stdout
    assert default_device().name.strip() in done.stdout


@pytest.mark.slow
def test_an_ascii_terminal_is_enough():
    done = in_process("bench", "2", "2", "2", "--rounds", "1", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "naive" in done.stdout
