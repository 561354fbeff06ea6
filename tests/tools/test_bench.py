"""Contests: which kernels run, how results are checked, what is left out, and what the reports say."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest

from pyclmm.errors import DeviceMemoryError, UnsupportedError
from pyclmm.kernels import KERNELS
from pyclmm.opencl.devices import default_device, device_info
from pyclmm.opencl.queues import new_queue
from pyclmm.plan import Matmul
from pyclmm.tools import plots, report, terminal, timing
from pyclmm.tools.bench import Others, Row, Rung, Track, kernel_names
from pyclmm.tools.timing import NUMPY, Sample, Size, Terms, check_memory, ladder, random_pair
from tests.support import contexts
from tests.support.commands import command
from tests.support.faults import changed_source
from tests.support.selection import slow

F32 = np.dtype(np.float32)


@pytest.fixture(scope="module")
def queue():
    return new_queue(default_device(), profiling=True)


def row(kernel, seconds, work=1000):
    return Row(kernel, samples=(Sample(seconds, seconds),), flops=2 * work, error_ratio=1.0, error_limit=16.0)


# sizes


def test_the_ladder_has_the_sizes_of_the_course():
    sizes = ladder()
    assert [s.m for s in sizes] == [10, 22, 46, 100, 215, 464, 1000, 2154]
    for exponent, size in enumerate(sizes, start=3):
        assert size.m == size.n == size.k
        assert size.work == pytest.approx(10**exponent, rel=0.07)
    assert [s.m for s in ladder(1e4)] == [10, 22]


@pytest.mark.parametrize(
    ("size", "work"),
    [
        (Size(4096, 4096, 4096), 1e6), (Size(16, 2048, 2048), 1e7), (Size(1, 4096, 4096), 1e6),
        (Size(1, 1, 10**8), 1e6), (Size(5000, 3, 5000), 1e6), (Size(20, 30, 40, 1000), 1e6),
        (Size(100, 200, 300, 1000), 1e6),
    ],
    ids=str,
)  # fmt: skip
def test_a_shrunk_product_keeps_its_short_sides(size, work):
    small = size.shrunk(work)
    assert small.work == pytest.approx(work, rel=0.05)
    for side, own in zip((small.m, small.n, small.k), (size.m, size.n, size.k), strict=True):
        assert side == own or side >= max(s for s in (small.m, small.n, small.k)) * 0.99


def test_shrinking_never_grows():
    assert Size(3, 4, 5).shrunk(1e6) == Size(3, 4, 5)


# races


@pytest.mark.parametrize(
    "dtype", ["float32", *slow("bool", "int8", "uint64", "float16", "float64", "complex64")]
)
def test_every_kernel_is_measured_and_right(queue, dtype):
    rung = Track(queue, kernel_names([]), Terms(rounds=2)).race(*random_pair(Size(9, 7, 21), np.dtype(dtype)))
    assert [r.kernel for r in rung.rows] == [*(k.name for k in KERNELS), NUMPY]
    assert rung.checked_rows == 9
    for result in rung.rows:
        if result.reason is None:
            assert result.correct, result
            assert len(result.samples) == 2
            assert 0 < result.walls[0] <= result.seconds <= result.walls[1]
            assert math.isclose(result.gflops, result.flops / result.seconds / 1e9)
            assert result.flops == 2 * 9 * 7 * 21 * (4 if dtype.startswith("complex") else 1)
    assert rung.row("naive").reason is None
    assert rung.row("sequential").speedup == 1.0


@pytest.mark.parametrize("terms", [Terms(arrays=True), Terms()], ids=["arrays", "numpy"])
def test_the_device_has_a_time_of_its_own(queue, terms):
    rung = Track(queue, ["naive"], replace(terms, rounds=3)).race(*random_pair(Size(64, 64, 64), F32))
    assert all(sample.device > 0 for sample in rung.row("naive").samples)
    assert [r.kernel for r in rung.rows] == (["naive"] if terms.arrays else ["naive", NUMPY])
    assert all(r.device is None for r in rung.rows if r.kernel == NUMPY)


def test_speeds_follow_from_wall_time():
    """One clock for all sides: NumPy has no other."""
    fast = Row("naive", samples=(Sample(4e-6, 1e-6), Sample(2e-6, 1e-6), Sample(9e-6, 3e-6)), flops=8000)
    assert fast.walls == [2e-6, 4e-6, 9e-6]
    assert (fast.seconds, fast.device, fast.scatter) == (4e-6, 1e-6, 4.5)
    assert fast.gflops == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("costs", "timed"),
    [([1e-6] * 12000, 10000), ([1e-3] * 19, 10), ([0.19, 0.19], 1), ([0.5], 0)],
    ids=["us", "ms", "0.19 s", "long"],
)
def test_a_sample_is_the_mean_of_a_slice_of_calls(clock, costs, timed):
    """The first call of a sample is timed only if it is long."""
    left = iter(costs)

    def call():
        clock.now += next(left)

    assert timing.seconds_of(call) == pytest.approx(costs[0])
    assert len(costs) - len(list(left)) == pytest.approx(1 + timed, abs=1)


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("arrays", [True, False], ids=["arrays", "numpy"])
def test_layouts_stacks_and_precisions_are_measured_and_right(queue, layout, arrays):
    pair = random_pair(Size(9, 7, 21, batch=3), F32, layout=layout)
    assert (pair[0].shape, pair[1].shape) == ((3, 9, 21), (3, 21, 7))
    track = Track(queue, ["naive", "auto"], Terms("medium", arrays, rounds=1))
    rung = track.race(*pair)
    assert all(r.correct for r in rung.rows)
    assert rung.title == f'3 of 9 x 7 x 21 float32 {layout} "medium"'
    assert rung.row("naive").flops == 2 * 3 * 9 * 7 * 21
    assert rung.row("auto").chosen in {k.name for k in KERNELS}


@pytest.mark.parametrize(
    ("arrays", "kinds"), [(True, ["Array"]), (False, ["Array", "ndarray"])], ids=["arrays", "numpy"]
)
def test_plans_have_the_precision_and_the_layout_that_was_asked_for(queue, monkeypatch, arrays, kinds):
    seen = []

    def plan(a, b, **keywords):
        seen.append((type(a).__name__, a.strides, b.strides, keywords["precision"]))
        return Matmul(a, b, **keywords)

    monkeypatch.setattr(timing, "Matmul", plan)
    pair = random_pair(Size(9, 7, 21), F32, layout="TN")
    Track(queue, ["naive"], Terms("high", arrays, rounds=1)).race(*pair)
    assert seen == [(kind, (4, 36), (28, 4), "high") for kind in kinds]


def test_another_seed_draws_other_numbers():
    one, same, other = (random_pair(Size(3, 3, 3), F32, seed)[0] for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_rounds_are_interleaved(queue, contests):
    Track(queue, ["naive", "flat"], Terms(rounds=3)).race(*random_pair(Size(4, 4, 4), F32))
    assert contests.order == ["naive", "flat", NUMPY] * 4  # the first round is not counted


@pytest.mark.parametrize("arrays", [True, False], ids=["arrays", "numpy"])
def test_a_kernel_that_writes_nothing_is_found(queue, contests, arrays):
    """The buffer may hold the right result of another kernel."""
    contests.instead["flat"] = lambda real: Sample(1e-6)
    track = Track(queue, ["naive", "flat"], Terms(arrays=arrays, rounds=1))
    rung = track.race(*random_pair(Size(8, 8, 8), F32))
    assert [r.kernel for r in rung.wrong] == ["flat"]
    assert any("flat: WRONG RESULT at 8 x 8 x 8" in line for line in report.notes([rung]))


@pytest.mark.parametrize("batch", [1, 4])
def test_one_wrong_element_is_found(queue, contests, batch):
    def result(right):
        right[..., -1, -1] += 1e-3
        return right

    contests.result = result
    rung = Track(queue, ["naive"], Terms(rounds=1)).race(*random_pair(Size(30, 20, 10, batch), F32))
    assert [r.kernel for r in rung.wrong] == ["naive"]


def test_large_products_are_checked_in_part_with_first_and_last_row(limits):
    limits(checked=50)
    check = timing.Expected(*random_pair(Size(20, 5, 2), np.dtype(np.float64)))
    assert list(check.rows) == [0, 4, 9, 14, 19]
    assert check.ratio(np.full((20, 5), np.nan)) == math.inf


def test_a_refusal_is_a_row_with_its_reason(queue):
    limit = device_info(queue.device).max_work_group_size
    rung = Track(queue, ["single_group", "sequential"]).race(*random_pair(Size(limit + 1, 1, 1), F32))
    refused = rung.row("single_group")
    assert f"the device's limit is {limit}" in refused.reason
    assert refused.seconds is refused.gflops is refused.speedup is refused.correct is None
    assert not refused.too_slow


def test_a_product_that_would_exceed_the_limit_does_not_run(queue, contests):
    track = Track(queue, ["naive", "sequential"], Terms(rounds=1, limit=10.0))
    contests.take(sequential=9.0)
    track.race(*random_pair(Size(10, 10, 10), F32))
    rung = track.race(*random_pair(Size(20, 10, 10), F32))
    slow = rung.row("sequential")
    assert slow.too_slow
    assert slow.reason == "would take about 18 s, over the limit of 10 s"
    fast = rung.row("naive")
    assert fast.extrapolated
    assert fast.speedup == pytest.approx(18.0 / fast.seconds)


@pytest.mark.parametrize(("seconds", "samples"), [(0.4, 3), (0.6, 2)])  # a long first run counts
def test_repetitions_end_at_the_limit(queue, contests, seconds, samples):
    contests.take(naive=seconds)
    rung = Track(queue, ["naive"], Terms(rounds=100, limit=1.0)).race(*random_pair(Size(2, 2, 2), F32))
    assert len(rung.row("naive").samples) == samples


def test_a_failing_driver_ends_one_contestant_only(queue, contests):
    contests.fail("flat", cl.RuntimeError("lost\nthe device"))
    rung = Track(queue, ["naive", "flat"], Terms(rounds=1)).race(*random_pair(Size(4, 4, 4), F32))
    assert rung.row("flat").reason == "lost"
    assert rung.row("naive").correct


def test_a_kernel_that_does_not_build_names_the_compilers_error(monkeypatch):
    changed_source(monkeypatch, "textbook/naive.cl", "ACC_T acc = ACC_ZERO;", "no_such_type acc;")
    own = contexts.new_queue(properties=cl.command_queue_properties.PROFILING_ENABLE)
    rung = Track(own, ["naive"]).race(*random_pair(Size(4, 4, 4), F32))
    assert re.match("does not build: .*naive.cl.*no_such_type", rung.row("naive").reason)
    assert rung.row(NUMPY).correct


def test_probing_goes_up_in_tenfold_steps_and_stops_short_of_the_size(queue):
    for side, probed in ((464, [100, 215]), (100, [])):
        stages, track = [], Track(queue, ["tiled"])
        track.on_stage = stages.append
        track.probe(Size(side, side, side), F32)
        assert [stage.text for stage in stages if "build" in stage.text] == [
            f"tiled at {each} x {each} x {each}: build" for each in probed
        ]


def test_memory_is_checked_before_anything_is_drawn(queue):
    info = device_info(queue.device)
    with pytest.raises(DeviceMemoryError, match="a needs a buffer of 4000000000000 bytes"):
        check_memory(Size(10**6, 1, 10**6), F32, info, Terms())
    with pytest.raises(DeviceMemoryError, match="a needs a buffer of 4000000000000 bytes"):
        check_memory(Size(1000, 1, 1000, batch=10**6), F32, info, Terms())
    small = replace(info, max_mem_alloc_size=1000, global_mem_size=2000)
    check_memory(Size(10, 10, 10), F32, small, Terms(arrays=True))
    with pytest.raises(DeviceMemoryError, match="a, b and out need 2700 bytes"):
        check_memory(Size(15, 15, 15), F32, small, Terms(arrays=True))
    with pytest.raises(DeviceMemoryError, match="a, b and out need 2400 bytes"):
        check_memory(Size(10, 10, 10), F32, small, Terms())


# reports


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (1234567, "1234567"), (123.4, "123"), (0.01234, "0.0123"), (9.99, "9.99"),
        (0.000123, "0.000123"), (1e-7, "1.00e-07"),
    ],
)  # fmt: skip
def test_three_significant_digits(value, text):
    assert terminal.significant(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.0, "2.00 s"), (0.0123, "12.3 ms"), (4.56e-5, "45.6 us"), (3e-9, "0.00300 us")]
)
def test_durations_have_a_unit_that_suits(seconds, text):
    assert terminal.duration(seconds) == text


def printed(*grids):
    return "".join(f"{page}\n" for grid in grids for page in grid.pages(80))


def test_the_printed_speed_times_the_printed_time_is_the_work(queue):
    size = Size(33, 65, 47, 2)
    rung = Track(queue, ["naive", "tiled"], Terms(rounds=3)).race(*random_pair(size, F32))
    lines = [line.split() for line in printed(report.bench_table(rung)).splitlines()[3:]]
    assert [line[0] for line in lines] == ["naive", "tiled", NUMPY]
    for _, least, median, most, gflops, *_ in lines:
        assert float(gflops) * 1e9 * float(median) * 1e-3 == pytest.approx(2 * size.work, rel=0.01)
        assert float(least) <= float(median) <= float(most)


def test_times_that_scatter_give_a_warning():
    def spread(kernel, *walls):
        return replace(row(kernel, 1.0), samples=tuple(Sample(wall) for wall in walls))

    rows = (spread("naive", 1.0, 1.2, 1.5), spread("flat", 3.0, 1.0, 1.2))
    (line,) = report.notes([Rung(Size(3, 3, 3), "float32", rows, 3)])
    assert line.startswith("WARNING: times at 3 x 3 x 3 scatter by more than 1.5 (max/min): flat 3.0.")


def test_what_was_built_and_what_auto_chose_stand_below_the_table(queue):
    rung = Track(queue, ["tiled", "auto"], Terms(rounds=1)).race(*random_pair(Size(64, 64, 64), F32))
    tiled, auto = report.configurations(rung)
    assert tiled.startswith("tiled: bm=")
    assert auto.startswith(f"auto: {rung.row('auto').chosen}, bm=")


def test_tables_keep_every_number_and_mark_estimates():
    rows = (
        replace(row("naive", 0.5), speedup=123456.0, extrapolated=True),
        Row("sequential", reason="would take long", too_slow=True),
    )
    rungs = [Rung(Size(10, 10, 10), "float32", rows, 10)]
    text = printed(report.bench_table(rungs[0]), report.ladder_table(rungs, "time"))
    text += printed(report.ladder_table(rungs, "speed-up"))
    for part in ("~123456", "500 ms", "1.00e+03"):
        assert part in text
    assert report.notes(rungs) == [
        "sequential: not run: would take long",
        "~: sequential was too slow to run; its time is extrapolated from a smaller product",
    ]


def test_notes_say_from_which_size_a_kernel_no_longer_runs():
    there, gone = row("naive", 1.0), Row("naive", reason="too big")
    rungs = [
        Rung(Size(s, s, s), "float32", (r,), s) for s, r in ((1, gone), (2, there), (3, gone), (4, gone))
    ]
    assert report.notes(rungs) == [
        "naive: not run at 1 x 1 x 1: too big",
        "naive: not run from 3 x 3 x 3 on: too big",
    ]


def test_json_has_samples_device_versions_and_date(queue):
    track = Track(queue, ["naive"], Terms(rounds=2))
    rung = track.race(*random_pair(Size(4, 5, 6), F32))
    data = json.loads(json.dumps(report.bench_json(track, [rung])))
    assert data["device"]["name"] == queue.device.name.strip()
    assert data["host"]["numpy"] == np.__version__
    assert data["date"].endswith("+00:00")
    (product,) = data["products"]
    assert (product["m"], product["n"], product["k"], product["work"]) == (4, 5, 6, 120)
    assert (product["batch"], product["layout"], product["precision"]) == (1, "NN", "highest")
    assert product["wall"] == "host to host"
    naive = product["rows"][0]
    assert naive["kernel"] == "naive"
    assert naive["correct"] is True
    assert len(naive["wall_samples_s"]) == 2


def test_json_has_no_infinity(queue):
    wrong = replace(row("naive", 1.0), error_ratio=math.inf)
    rungs = [Rung(Size(1, 1, 1), "float32", (wrong,), 1)]
    (product,) = report.bench_json(Track(queue, ["naive"]), rungs)["products"]
    assert product["rows"][0]["error_ratio"] is None
    assert product["rows"][0]["correct"] is False


# plots


def rungs_for_plots():
    sizes = ladder(1e5)
    rungs = []
    for index, size in enumerate(sizes):
        rows = [replace(row(k, size.work / 1e9, size.work), speedup=2.0) for k in ("naive", "flat", NUMPY)]
        if index == len(sizes) - 1:
            rows[0] = Row("naive", reason="slow", too_slow=True)
            rows[1:] = [replace(r, extrapolated=True) for r in rows[1:]]
        rungs.append(Rung(size, "float32", tuple(rows), size.m))
    return rungs


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_plots_are_drawn(tmp_path, suffix):
    rungs, files = rungs_for_plots(), [tmp_path / f"{name}.{suffix}" for name in ("bench", "ladder")]
    plots.bench(rungs[0], "toy", files[0])
    plots.ladder(rungs, "toy", files[1])
    for file in files:
        assert file.stat().st_size > 5000
        assert suffix != "svg" or "</svg>" in file.read_text()


# compare


@pytest.mark.parametrize(
    ("ours", "numpy", "said"),
    [
        (2.0, 1.0, "Use NumPy here: 2.00 times as fast as pyclmm ("),
        (1.0, 3.0, "Use pyclmm here: 3.00 times as fast as NumPy ("),
        (1.0, 1.05, "Use NumPy here: both are as fast ("),
    ],
)
def test_compare_says_what_to_use(contests, ours, numpy, said):
    contests.take(auto=ours, numpy=numpy)
    shown = command("compare", "9", "8", "7")
    assert " ".join(shown.stdout.split()).startswith(said)
    assert "9 x 8 x 7 float32 NN: pyclmm" in " ".join(shown.stdout.split())


@pytest.mark.parametrize(("busy", "why"), [(1.0, "the machine was busy"), (0.0, "the times overlap")])
def test_compare_is_not_certain_of_what_it_could_not_measure(contests, busy, why):
    contests.take(auto=(0.01, 0.01, 0.09), numpy=(0.02, 0.02, 0.05))
    contests.beside(Others(1.0, busy))
    shown = command("compare", "9x8x7")
    lines = shown.stdout.split("Not certain, as ")
    assert " ".join(lines[1].split()).startswith(f"{why}: use pyclmm here: ")
    assert ("the machine is busy" in " ".join(lines[0].split())) == bool(busy)


def test_compare_measures(own_caches):
    shown = command("compare", "20", "30", "40", "--dtype", "float64", "--json", "-")
    data = json.loads(shown.stdout)
    assert {row["kernel"] for row in data["products"][0]["rows"]} == {"auto", "numpy"}
    assert all(row["wall_s"] > 0 and row["correct"] for row in data["products"][0]["rows"])


def test_compare_answers_where_nothing_can_run(monkeypatch):
    def refused(*_, **__):
        raise UnsupportedError("no kernel could be used")

    monkeypatch.setattr(timing, "Matmul", refused)
    shown = command("compare", "9", "8", "7")
    assert "Use NumPy here: pyclmm cannot compute 9 x 8 x 7 float32 NN: no kernel could be used" in " ".join(
        shown.stdout.split()
    )
