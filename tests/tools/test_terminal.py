"""Commands on terminals of 60, 80 and 200 columns: nothing is wider, nothing is cut. Progress, and Ctrl-C."""

from __future__ import annotations

import json
import re
from functools import partial

import pytest
from rich.console import Console

from pyclmm.kernels import KERNELS
from pyclmm.opencl.devices import default_device, device_info
from pyclmm.tools import laws, report, terminal, tuner
from pyclmm.tools.bench import Row, Rung
from pyclmm.tools.terminal import Stage, TextTable, broken, progress, progress_line
from pyclmm.tools.timing import Sample, Size
from tests.support.selection import slow_rows

pseudo = pytest.importorskip("tests.support.terminal", reason="Windows has no pseudo-terminals")

WIDTHS = (60, 80, 200)
# The longest names that we have seen, and one that is longer.
LONG_NAMES = (
    "Intel(R) Xeon(R) Platinum 8480C CPU @ 2.00GHz (Intel(R) OpenCL, driver 2025.20.8.0.06_160000)",
    "NVIDIA H200 NVL Multi-Instance GPU 7g.141gb (NVIDIA CUDA, driver 580.159.04)",
    "AMD Instinct MI300X OAM " * 6,
)
ON_TERMINAL = {
    "help": ["--help"],
    "help-bench": ["bench", "--help"],
    "help-tune": ["tune", "--help"],
    "help-selftest": ["selftest", "--help"],
    "help-info": ["info", "--help"],
    "help-road": ["road", "--help"],
    "info": ["info", "--reasons"],
    "bench": ["bench", 40, 30, 20, "--rounds", 1, "--reasons"],
    "ladder": ["bench", "--ladder", "--max-work", 2e4, "--rounds", 1],
    "error": ["bench", 3, 3, 3, "--device", "abacus"],
    "usage": ["tune", "--shapes", "3x3"],
}
ALIKE = ("help-bench", "help-tune", "help-selftest", "help-info", "help-road", "usage")
WIDER = slow_rows(
    *((name, WIDTHS[0]) for name in ALIKE),
    *((name, width) for name in ("info", "bench") for width in WIDTHS[1:]),
)


@pytest.mark.parametrize(
    ("command", "columns"), [*((name, WIDTHS[0]) for name in ON_TERMINAL if name not in ALIKE), *WIDER]
)
def test_nothing_is_wider_than_the_terminal(command, columns):
    shown = pseudo.run(*ON_TERMINAL[command], columns=columns)
    assert shown.status == (2 if command in ("error", "usage") else 0), shown.raw
    assert "Traceback" not in shown.raw
    wide = [line for line in shown.lines if len(line) > columns]
    assert not wide
    assert "…" not in shown.raw
    if command == "info":
        assert default_device().name.strip() in shown.words
        assert all(kernel.name in shown.words for kernel in KERNELS)
    if command == "bench":
        rows = [line for line in shown.lines if re.match("naive .*[0-9]", line)]
        assert len(rows) == (2 if columns == 60 else 1)
        assert len("".join(rows).replace("naive", "").split()) == 7, "seven numbers, on one page or on two"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", LONG_NAMES)
def test_long_names_are_broken_and_whole(name, width):
    lines = broken(name, width).splitlines()
    assert max(map(len, lines)) <= width
    assert " ".join(broken(name, width).split()) == " ".join(name.split())


def tuning_grid():
    """A search whose product, reason and tile are as long as they come."""
    problem = tuner.product((16384, 16384, 16384), "complex128", "NN", "highest")
    lost = tuner.Search(
        problem, 57, reason="at other shapes, it ended with SIGABRT: 'free(): invalid pointer'"
    )
    return report.tuning_table([lost, lost])


def bench_grid():
    row = Row(
        "mma_double_bulk", samples=(Sample(1.234e-6, 1e-6),), flops=10**12, error_ratio=1.0, error_limit=16
    )
    return report.bench_table(Rung(Size(9, 9, 9), "float32", (row, Row("sequential", reason="slow")), 9))


def ladder_grid():
    measured = {"samples": (Sample(1.234e-3, 1e-3),), "flops": 10**12, "error_ratio": 1.0, "error_limit": 16}
    rows = tuple(Row(kernel.name, **measured, speedup=123456.7, extrapolated=True) for kernel in KERNELS)
    return report.ladder_table([Rung(Size(2154, 2154, 2154), "float32", rows, 9)], "speed-up")


TABLES = {
    "tuning": tuning_grid,
    "ladder": ladder_grid,
    "bench": bench_grid,
    "rates": lambda: report.rates_table({"launch": 1e-6, "cache_size": 0.0}),
    "many columns": lambda: TextTable(
        ("size", "work", *(f"kernel{i}" for i in range(20))), (("10", "1e3", *"x" * 20),), keys=2
    ),
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", TABLES)
def test_tables_fit_and_keep_every_cell(name, width):
    grid = TABLES[name]()
    lines = [line for page in grid.pages(width) for line in page.splitlines()]
    assert max(map(len, lines)) <= width
    words = {word for row in (grid.head, *grid.rows) for cell in row for word in cell.split()}
    assert words <= set(" ".join(lines).split())


def test_pages_repeat_the_columns_that_name_a_row():
    pages = TABLES["many columns"]().pages(60)
    assert len(pages) > 1
    assert all(page.split()[:2] == ["size", "work"] for page in pages)


# progress


@pytest.mark.parametrize(
    ("step", "seconds", "each", "line"),
    [
        (Stage("starting"), 1.2, None, "starting  1 s"),
        (Stage("naive: round 3", 30, 120), 20.0, 1 / 3, "naive: round 3  20 s, 30 of 120, 3/s, 30 s left"),
        (Stage("selftest", 2, 20), 100.0, 50.0, "selftest  1:40, 2 of 20, 50 s each, 15:00 left"),
        (Stage("tune", 2, 20, 61.0), 100.0, 50.0, "tune  1:40, 2 of 20, 50 s each, 1:01 left"),
        (Stage("ladder", 1, 4000), 7200.0, 7200.0, "ladder  2:00:00, 1 of 4000, 7.2e+03 s each"),
    ],
)
def test_progress_has_rate_and_time_left(step, seconds, each, line):
    assert progress_line(step, seconds, each, 80) == line


@pytest.mark.parametrize("width", [20, 40, 60])
def test_progress_is_one_line(width):
    step = Stage("16384 x 16384 x 16384 complex128 @ complex128 NN, best 1.23 ms", 17, 57, 3600.0)
    line = progress_line(step, 12.3, 0.725, width)
    assert len(line) <= width
    assert width < 60 or line.endswith("12 s, 17 of 57, 1.38/s, 1:00:00 left")


def test_the_pace_is_that_of_the_present_series(monkeypatch, clock, capsys):
    """Lines of a dumb terminal. 100 seconds pass before the second series, which has another total."""
    monkeypatch.setenv("TERM", "dumb")
    console = partial(Console, get_time=lambda: clock.now, force_terminal=True, width=80)
    monkeypatch.setattr(terminal, "Console", console)
    steps = {
        10: Stage("a", 0, 8), 12: Stage("a", 1, 8), 20: Stage("a", 5, 8),
        120: Stage("b", 2, 9), 130: Stage("b", 4, 9), 134: Stage("b", 6, 9), 140: Stage("c", 0, 9),
    }  # fmt: skip
    with progress() as on_stage:
        for clock.now, step in steps.items():
            on_stage(step)
    assert capsys.readouterr().err.splitlines() == [
        "a  10 s, 0 of 8", "a  20 s, 5 of 8, 2 s each, 6 s left", "b  2:00, 2 of 9",
        "b  2:10, 4 of 9, 5 s each, 25 s left", "c  2:20, 0 of 9",
    ]  # fmt: skip


def test_a_dumb_terminal_gets_no_control_sequences():
    shown = pseudo.run("bench", 8, 8, 8, "--rounds", 1, "--kernel", "naive", columns=80, TERM="dumb")
    assert shown.status == 0
    assert "\x1b" not in shown.raw


def test_no_color_is_obeyed():
    shown = pseudo.run("bench", 8, 8, 8, "--rounds", 1, "--kernel", "naive", columns=80, NO_COLOR="1")
    assert not re.search("\x1b\\[(3|4|9|10)[0-7]", shown.raw)


# Ctrl-C, by the key, at each long command: what is shown and written, and exit code 130. A line of progress
# is drawn ten times a second, so any number may never be shown: `at` has those behind it, too.


def interrupted(*command, at, tmp_path, columns=80):
    file = tmp_path / "kept.json"
    caches = {"PYCLMM_CACHE_DIR": str(tmp_path)}
    shown = pseudo.run(*command, "--json", file, columns=columns, press_at=at, **caches)
    assert shown.status == 130, shown.raw
    assert "Traceback" not in shown.raw
    assert shown.lines[-1] == "Interrupted; what was measured is shown"
    assert max(map(len, shown.lines)) <= columns
    data = json.loads(file.read_text())
    assert data["interrupted"] is True
    assert data["command"] == command[0]
    return shown, data


@pytest.mark.slow
def test_ctrl_c_in_bench_keeps_the_samples(tmp_path):
    command = ("bench", 64, 64, 64, "--rounds", 900, "--kernel", "naive")
    shown, data = interrupted(*command, at="round ([3-9][0-9]|[0-9]{3}) of 900", tmp_path=tmp_path)
    (product,) = data["products"]
    counts = [len(row["wall_samples_s"]) for row in product["rows"]]
    assert 20 <= min(counts) <= max(counts) < 900
    assert re.search(r" of 1802, [0-9.]+/s, .* left", shown.words)
    assert re.search(r"^naive +[0-9.]+ ", "\n".join(shown.lines), re.M)


@pytest.mark.slow
def test_ctrl_c_on_the_ladder_keeps_the_sizes(tmp_path):
    command = ("bench", "--ladder", "--kernel", "naive", "--rounds", 30)
    _, data = interrupted(*command, at="100 x 100 x 100: round", tmp_path=tmp_path)
    assert [p["m"] for p in data["products"]] == [10, 22, 46, 100]
    assert all(row["correct"] for p in data["products"][:-1] for row in p["rows"])
    assert all(row["correct"] is not False for row in data["products"][-1]["rows"])  # perhaps not checked yet


@pytest.mark.slow
def test_ctrl_c_in_selftest_keeps_the_kernels(tmp_path):
    device = device_info(default_device())
    first, second = [kernel.name for kernel in KERNELS if laws.refused(kernel, device) is None][:2]
    shown, data = interrupted("selftest", at=f"{second}: ", tmp_path=tmp_path)
    ran = [one["kernel"] for one in data["kernels"] if one["verdict"] != "refused"]
    assert ran in ([first], [first, second])  # if a law has ended
    assert re.search(rf"{second}: .* [0-9]+ of [0-9]+, .* left", shown.words)


def test_ctrl_c_in_tune_keeps_what_was_found(tmp_path):
    shapes = "64x64x64,99x99x99,100x100x100,128x128x128,140x140x140"  # the signal may come late
    command = ("tune", "--shapes", shapes, "--layout", "NN", "--budget", "60s")
    shown, data = interrupted(*command, at=" ([2-9]|[1-9][0-9]) of [0-9]", tmp_path=tmp_path)
    assert data["kept"] is True
    assert any(one["won"] for one in data["products"][0]["tried"])
    assert list(tmp_path.glob("**/*tuned*")) or list(tmp_path.glob("**/*.json"))
    assert re.search("[1-4] of 5 products not begun: interrupted", shown.words)
    assert "not tried: interrupted" in shown.words


@pytest.mark.slow
def test_ctrl_c_in_rates_shows_what_was_measured(tmp_path):
    shown, data = interrupted("tune", "--rates", at="global memory", tmp_path=tmp_path)
    assert set(data["rates"]) == {"launch", "group"}
    assert data["kept"] is False
    assert "not kept for later calls" in shown.words
    assert not list(tmp_path.glob(f"**/*{device_info(default_device()).name[:8]}*rates*"))
