"""`pyclmm road`: what it runs, shows, writes and draws, and how it ends. Rates are given, to save time."""

import itertools
import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from pyclmm.errors import LaunchError
from pyclmm.kernels import KERNELS, kernel_named
from pyclmm.kernels.rates import MEANINGS
from pyclmm.kernels.traffic import traffic
from pyclmm.opencl.devices import default_device, device_info
from pyclmm.problem.canonical import problem_of
from pyclmm.selection.select import refusal
from pyclmm.tools import plots, terminal
from pyclmm.tools import road as module
from pyclmm.tools.bench import Others, Point, Row
from pyclmm.tools.road import KERNELS_OF_THE_ROAD, Road
from pyclmm.tools.timing import Sample
from tests.support.commands import command
from tests.support.optional import optional
from tests.support.probes import RATES

agg, mpl_text = optional("matplotlib.backends.backend_agg"), optional("matplotlib.text")

SIDE = 24
run = partial(command, "road", "--size", SIDE)


pytestmark = pytest.mark.usefixtures("measured")


@pytest.fixture
def short(monkeypatch):
    """A function: the road has these kernels only."""

    def cut(*names, _LEAST=16, _CALL=0.25):
        for name, value in {"KERNELS_OF_THE_ROAD": names, "_LEAST": _LEAST, "_CALL": _CALL}.items():
            monkeypatch.setattr(module, name, value)

    return cut


def points(shown):
    return json.loads(shown.stdout)["points"]


def able():
    """The kernels of the road that compute float32 or float16 here at the tests' size."""
    device = device_info(default_device())
    for name in KERNELS_OF_THE_ROAD:
        problems = [problem_of(SIDE, SIDE, SIDE, np.dtype(kind)) for kind in ("float32", "float16")]
        if any(refusal(kernel_named(name), problem, device) is None for problem in problems):
            yield name


def test_every_kernel_that_can_runs_and_is_judged_by_its_own_limit(tmp_path, measured):
    file, picture = tmp_path / "road.json", tmp_path / "road.png"
    shown = run("--json", file, "--plot", picture)
    data = json.loads(file.read_text())
    names = [point["kernel"] for point in data["points"]]
    assert names == list(able())
    assert set(names) | set(data["absent"]) == set(KERNELS_OF_THE_ROAD)
    assert all(data["absent"].values())
    lines = [line.split() for line in shown.stdout.splitlines() if line.strip()]
    rows = {words[0]: words for words in reversed(lines)}  # a remark below may begin with a name, too
    for point, before in zip(data["points"], [None, *data["points"]], strict=False):
        assert point["correct"] is True
        rate = point["operations"] / point["median_s"]
        assert point["operations_per_s"] == pytest.approx(rate)
        assert before is None or point["gain"] == pytest.approx(rate / before["operations_per_s"])
        if point["dtype"] == "float32" and point["n"] == SIDE:
            roof = min(2 * RATES.float32, RATES.cache * point["operations"] / point["nbytes"])
            assert point["limit_per_s"] == pytest.approx(roof)
            assert point["limited_by"] == ("arithmetic" if roof == 2 * RATES.float32 else "cache")
        assert rows[point["kernel"]][1:3] == [str(point["n"]), point["dtype"]]
    assert data["points"][0]["gain"] is None
    assert measured.calls == 1
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert f"cannot run here: {', '.join(data['absent'])}" in " ".join(shown.stdout.split())


def test_the_table_and_all_lines_fit_a_narrow_terminal(monkeypatch):
    monkeypatch.setattr(terminal, "width_of", lambda stream: 60)
    lines = run().stdout.splitlines()
    assert max(map(len, lines)) <= 60
    names = [line.split()[0] for line in lines if line.startswith(("naive ", "tiled "))]
    assert names == ["naive", "tiled"] * 2


def test_every_kernel_for_learning_is_on_the_road():
    """What auto never chooses is there to be learned from."""
    assert len(set(KERNELS_OF_THE_ROAD)) == len(KERNELS_OF_THE_ROAD)
    assert {kernel.name for kernel in KERNELS if not kernel.automatic} <= set(KERNELS_OF_THE_ROAD)


def test_a_slow_kernel_runs_at_a_smaller_size(short):
    short("naive", "tiled", _LEAST=6, _CALL=0.0)
    assert [point["n"] for point in points(run("--json", "-"))] == [6, 6]
    words = " ".join(run().stdout.split())
    assert f"too slow at {SIDE}, or made for less, so at a smaller N: naive, tiled" in words


def test_a_fast_kernel_climbs_to_the_asked_size(short):
    short("naive", _LEAST=6)
    assert [point["n"] for point in points(run("--json", "-"))] == [SIDE]


def test_a_wrong_result_is_exit_code_1(short, contests):
    short("naive", "tiled")
    contests.result = lambda right: right + 7
    shown = run(status=1)
    assert "WRONG results: naive, tiled" in shown.stdout
    assert "Error: wrong results from naive, tiled" in shown.stderr


def test_a_kernel_that_fails_is_named_and_the_others_run(short, contests):
    short("naive", "tiled")
    contests.fail("naive", LaunchError("the driver is tired"))
    shown = run("--json", "-")
    assert json.loads(shown.stdout)["failed"].keys() == {"naive"}
    assert [point["kernel"] for point in points(shown)] == ["tiled"]
    assert "WARNING: naive failed: the driver is tired" in shown.stderr


def test_ctrl_c_keeps_the_samples_that_were_taken(short, contests):
    short("naive", "tiled", "flat")
    contests.fail("tiled", KeyboardInterrupt(), at=4)
    shown = run("--json", "-", status=130)
    assert json.loads(shown.stdout)["interrupted"] is True
    assert [point["kernel"] for point in points(shown)] == ["naive", "tiled"]
    assert len(points(shown)[-1]["walls_s"]) == 2, "the first run is checked and not timed"
    assert "Interrupted; what was measured is shown" in shown.stderr


def test_ctrl_c_before_the_first_kernel_says_so(measured):
    measured.pressed = True
    shown = run(status=130)
    assert shown.stderr == "Interrupted; nothing was measured yet\n"
    data = json.loads(run("--json", "-", status=130).stdout)
    assert (data["interrupted"], data["rates"], data["points"]) == (True, None, [])


def test_a_road_that_no_kernel_can_walk_is_exit_code_2(short):
    if not {"mfma", "dpas"}.isdisjoint(able()):
        pytest.skip("this device runs one of them")
    short("mfma", "dpas")
    shown = run(status=2)
    assert "Error: no kernel of the road could run here" in shown.stderr


def test_rates_that_a_kernel_exceeds_are_measured_again(measured, short):
    """The first measurement is of a busy machine. The higher of two rates counts."""
    measured.found = [replace(RATES, float32=1e3, memory=21e9, matrix16=4.0), replace(RATES, cache=1.0)]
    short("naive")
    data = json.loads(run("--json", "-").stdout)
    assert (data["command"], data["interrupted"], data["side"]) == ("road", False, SIDE)
    rates = data["rates"]
    best = replace(RATES, memory=21e9, matrix16=4.0)
    assert {name: rates[name] for name in MEANINGS} == {name: getattr(best, name) for name in MEANINGS}
    assert measured.calls == 2


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"float32": 1e3}, "multiply-adds were measured too low"),
        ({"cache": 1e-3}, "nearer caches served"),
        ({"memory": 1e-3, "cache_size": 1}, "the memory's, but caches served"),
    ],
)
def test_a_limit_that_is_passed_is_no_percentage_and_its_fault_is_told(measured, short, wrong, told):
    measured.found = [replace(RATES, **wrong)] * 2
    short("naive", "sequential")
    shown = run().stdout
    row = next(line.split() for line in shown.splitlines() if line.startswith("naive"))
    assert "passed" in row
    assert "%" not in "".join(row)
    assert told in " ".join(shown.split("limit passed by naive, sequential: ")[1].split())


def test_a_busy_machine_is_told_before_the_table(short, contests):
    short("naive")
    contests.beside(Others(1.0, 2.0))
    shown = run().stdout
    assert shown.index("WARNING: the machine is busy") < shown.index("kernel ")


def test_a_step_that_is_slower_than_the_row_above_is_named_unless_it_may_be_scatter(short, contests):
    """The fastest sample of flat and of block is slower than half of those above; that of strip is not."""
    seconds = {"naive": 0.01, "flat": 0.012, "tiled": 0.005, "strip": 0.0054, "block": 0.02}
    short(*seconds)
    contests.take(**{name: (each, 1.1 * each, 1.3 * each) for name, each in seconds.items()})
    assert "a step back here (reasons: docs/road/index.md): flat, block\n" in run().stdout


# The picture


def point(name, side, seconds):
    problem = problem_of(side, side, side, np.dtype("float32"))
    device = device_info(default_device())
    kernel = kernel_named(name)
    config = kernel.configs(problem, device)[0]
    samples = tuple(Sample(seconds * slower) for slower in (1.0, 1.1, 1.3))
    row = Row(name, config, samples, problem.flops, 0.1, 1.0)
    return Point(kernel, problem, row, traffic(kernel, problem, config, device))


CROWD = ("naive", "flat", "tiled", "strip", "block", "double_buffer")


def test_labels_do_not_collide_and_stand_in_the_picture(monkeypatch, tmp_path):
    """Six kernels of nearly the same speed, one at a smaller size, and one over the roof."""
    drawn = []
    made = plots.figure_of
    monkeypatch.setattr(plots, "figure_of", lambda *size: drawn.append(made(*size)) or drawn[-1])
    walked = Road(512, RATES, [point(name, 512, 0.1 + 0.001 * i) for i, name in enumerate(CROWD)])
    walked.points += [point("sequential", 256, 0.1), point("register", 512, 1e-4)]
    plots.under_roofs(walked.points, RATES, 512, "a device", tmp_path / "road.png")
    figure = drawn[-1]
    (axes,) = figure.axes
    canvas = agg.FigureCanvasAgg(figure)
    canvas.draw()
    boxes = [
        mpl_text.Text.get_window_extent(text, canvas.get_renderer()) for text in axes.texts
    ]  # without the line to its point
    assert len(boxes) == len(walked.points)
    assert {text.get_text().split()[0] for text in axes.texts} == {p.kernel.name for p in walked.points}
    assert any("at N = 256" in text.get_text() for text in axes.texts)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    width, height = canvas.get_width_height()
    assert all(b.x0 >= axes.bbox.x1 and b.x1 <= width and b.y0 >= 0 and b.y1 <= height for b in boxes)
    roof = max(p.rate for p in walked.points) / 1e9
    assert axes.get_ylim()[1] > roof > 2 * RATES.float32 / 1e9


@pytest.mark.parametrize(
    ("heights", "gap", "wanted"),
    [
        ([0.1, 0.5], 0.1, [0.1, 0.5]),
        ([0.1, 0.12, 0.5], 0.1, [0.1, 0.2, 0.5]),
        ([0.9, 0.95, 0.99], 0.1, [0.8, 0.9, 1.0]),
        ([], 0.1, []),
    ],
)
def test_labels_are_moved_no_more_than_needed(heights, gap, wanted):
    assert plots.spread(heights, gap) == pytest.approx(wanted)
