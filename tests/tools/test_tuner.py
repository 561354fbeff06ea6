"""The tuner: its candidates, its decisions, failures it survives, and the table it keeps."""

import itertools
import json
import os
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest

import pyclmm
from pyclmm import TileConfig
from pyclmm.checks.worker import Failure
from pyclmm.errors import ArgumentError
from pyclmm.kernels import KERNELS, kernel_named
from pyclmm.kernels.config import Ranked
from pyclmm.kernels.textbook.elements import Naive
from pyclmm.opencl.devices import default_device, device_info
from pyclmm.opencl.queues import new_queue
from pyclmm.selection import select, tables
from pyclmm.tools import plots, report, timing, tuner
from tests.support.commands import command
from tests.support.faults import changed_source
from tests.support.made_up import H200
from tests.support.selection import slow

HERE = device_info(default_device())
SHAPE = (24, 20, 16)
# Python imports this when a child starts. Its driver then does *action* at work-groups of 4 x 4.
SITE = """
import pyopencl as cl
real = cl.enqueue_nd_range_kernel

def enqueue(queue, kernel, global_size, local_size, *args, **kwargs):
    import os, time
    if tuple(local_size) == (4, 4):
        {action}
    return real(queue, kernel, global_size, local_size, *args, **kwargs)

cl.enqueue_nd_range_kernel = enqueue
"""


class Few(Naive):
    """`naive` with three tiles. A sabotaged driver cannot run the second."""

    def ranked(self, problem, device):
        return [
            Ranked(seconds, TileConfig(bm=side, bn=side)) for seconds, side in ((1.0, 2), (2.0, 4), (3.0, 8))
        ]


@pytest.fixture
def few(monkeypatch, own_caches):
    """One family with three candidates."""
    monkeypatch.setattr(Naive, "ranked", Few.ranked)
    naive = tuple(k for k in KERNELS if k.name == "naive")
    for module in (select, tuner):
        monkeypatch.setattr(module, "KERNELS", naive)
    return own_caches


def timed(index, seconds, incumbent=()):
    return [{"trying": index}, {"index": index, "seconds": list(seconds), "incumbent": list(incumbent)}]


def tuned(budget=60.0, **other):
    return pyclmm.tune([SHAPE], layouts=["NN"], budget=budget, **other)


def kept():
    return list(tables.own_table(HERE).values())


# deciding


def test_a_challenger_wins_only_by_more_than_the_spread():
    incumbent = [1.00, 1.02, 0.98, 1.01, 0.99]
    assert timing.beats([0.9, 0.91, 0.89], incumbent)
    assert not timing.beats([0.995] * 3, incumbent)
    assert not timing.beats([0.5, 0.9, 1.4], incumbent)
    assert not timing.beats(incumbent, incumbent)


def test_the_incumbent_is_todays_choice_and_every_configuration_is_tried_once():
    problem = tuner.product((64, 64, 64), "float32", "NN")
    choices = tuner.choices(problem, HERE)
    assert choices[0] == next(select.candidates(problem, HERE, "auto"))
    automatic = [k for k in KERNELS if k.automatic and select.refusal(k, problem, HERE) is None]
    every = {(k.name, c) for k in automatic for c in k.configs(problem, HERE)}
    assert {(c.kernel.name, c.config) for c in choices} == every
    assert len(choices) == len(every)


def test_the_fastest_is_kept(few, children):
    answers = timed(0, [1.0]) + timed(1, [3.0], [1.0]) + timed(2, [0.5], [1.0])
    children.scripts.append((answers, None))
    tuning = tuned()
    assert [(t.seconds, t.won) for t in tuning.searches[0].tried] == [(1.0, True), (3.0, False), (0.5, True)]
    assert tuning.searches[0].gain == 2.0
    assert kept() == tuning.entries
    assert kept()[0].config == TileConfig(bm=8, bn=8)
    problem = tuner.product(SHAPE, "float32", "NN")
    assert next(select.candidates(problem, HERE, "auto")).config == TileConfig(bm=8, bn=8)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ([{"outclassed": 1}, {"outclassed": 2}], "1 of 3 tried; the rest were outclassed"),
        ([{"outclassed": 2}], "1 of 3 tried; 1 outclassed; 1 not tried: time was up"),
        ([], "1 of 3 tried; 2 not tried: time was up"),
    ],
)
def test_candidates_that_were_not_tried_are_told(few, children, extra, said):
    children.scripts.append((timed(0, [1.0]) + extra, None))
    tuning = tuned()
    assert tuning.searches[0].untried == said
    assert report.tuning_notes(tuning) == [f"{tuning.searches[0].problem}: {said}"]
    (told,) = report.tuning_json(tuning, 60.0)["products"]
    assert (told["outclassed"], told["candidates"], len(told["tried"])) == (len(extra), 3, 1)


def test_a_search_that_tried_all_says_nothing(few, children):
    children.scripts.append((timed(0, [1.0]) + timed(1, [9.0], [1.0]) + timed(2, [9.0], [1.0]), None))
    assert tuned().searches[0].untried is None


def test_the_child_tells_who_is_outclassed(few, monkeypatch):
    """The second configuration of the family takes ten times as long as the first."""
    monkeypatch.setattr(
        timing.TimedProduct, "challenge", lambda ring, choice: ring.outclassed.add("naive") or {}
    )
    problem = tuner.product(SHAPE, "float32", "NN")
    searching = tuner._Searching(problem, HERE, 1e9, 1e9, lambda _: None)
    answers = tuner.answers(searching.request | {"order": [0, 1, 2], "seconds": 60.0})
    assert list(answers) == [{"trying": 0}, {"index": 0}, {"outclassed": 1}, {"outclassed": 2}]


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (Failure("it ended with SIGABRT", crashed=True), "SIGABRT"),
        (Failure("it did not end within 99 seconds", hung=True), "did not end within 30 seconds"),
    ],
)
def test_a_lost_child_loses_only_its_candidate(few, children, failure, said):
    children.scripts.append(([*timed(0, [1.0]), {"trying": 1}], failure))
    children.scripts.append((timed(0, [1.0]) + timed(2, [0.5], [1.0]), None))
    search = tuned().searches[0]
    assert [t.choice.config.bm for t in search.tried] == [2, 4, 8]
    assert said in search.tried[1].reason
    assert [r["order"] for r in children.requests] == [[0, 1, 2], [0, 2]]
    assert search.entry.config.bm == 8


def test_an_incumbent_that_fails_later_is_dropped(few, children):
    crash = Failure("gone", crashed=True)
    children.scripts.append(([*timed(0, [1.0]), {"trying": 1}], crash))
    children.scripts.append(([{"trying": 0}], crash))
    children.scripts.append((timed(2, [2.0]), None))
    search = tuned().searches[0]
    assert search.entry.config.bm == 8
    assert [r["order"] for r in children.requests] == [[0, 1, 2], [0, 2], [2]]
    assert [(t.choice.config.bm, t.reason) for t in search.tried] == [(4, "gone"), (2, "gone"), (8, None)]


def test_a_child_that_cannot_start_ends_the_search_with_its_reason(few, children):
    children.scripts.append(([], Failure("there is no Python interpreter")))
    search = tuned().searches[0]
    assert (search.entry, search.reason) == (None, "there is no Python interpreter")
    assert kept() == []


def test_ctrl_c_keeps_what_was_found(few, children):
    """The interrupt comes in the second product, after its first candidate."""
    children.scripts.append((timed(0, [1.0]) + timed(1, [0.5], [1.0]), None))
    children.scripts.append((timed(0, [1.0]) + timed(1, [0.5], [1.0]), None))
    calls = itertools.count(1)

    def press(progress):
        if next(calls) == 3:
            raise KeyboardInterrupt

    shapes = [SHAPE, (50, 50, 50), (90, 90, 90)]
    tuning = pyclmm.tune(shapes, layouts=["NN"], budget=60, on_progress=press)
    assert tuning.interrupted
    assert len(tuning.searches) == 2
    assert sorted((e.m, e.config.bm) for e in kept()) == [(24, 4), (50, 2)]


def test_the_budget_is_divided_and_ends(few, children):
    """No search starts after the budget is spent."""
    children.scripts.extend([(timed(0, [1.0]), None)] * 2)
    tuning = pyclmm.tune([SHAPE, (50, 50, 50)], layouts=["NN"], budget=60)
    assert len(tuning.searches) == 2
    shares = [r["seconds"] for r in children.requests]
    assert 29 < shares[0] <= 30
    assert 59 < shares[1] <= 60
    assert pyclmm.tune([SHAPE], layouts=["NN"], budget=1e-9).searches == []


def test_a_budget_may_be_a_number_of_numpys(few, children):
    children.scripts += [(timed(0, [1.0]), None)]
    tuned(budget=np.float32(60))
    assert [json.dumps(request) for request in children.requests]


@pytest.mark.parametrize(
    "wrong",
    [
        {"shapes": [(1, 2)]}, {"shapes": [(0, 1, 1)]}, {"shapes": (8, 8, 8)}, {"shapes": [("8", "8", "8")]},
        {"shapes": [(8.0, 8, 8)]}, {"dtypes": ["float31"]}, {"layouts": ["NX"]}, {"precisions": ["higher"]},
        {"budget": 0.0}, {"budget": float("nan")}, {"budget": float("inf")}, {"budget": 10**30},
    ],
)  # fmt: skip
def test_invalid_arguments_are_refused(wrong):
    with pytest.raises(ArgumentError):
        pyclmm.tune(**wrong)


def test_a_product_that_does_not_fit_the_device_is_refused_before_the_first_is_tried(children):
    with pytest.raises(pyclmm.DeviceMemoryError, match="a needs a buffer of"):
        pyclmm.tune([SHAPE, (10**6, 10**6, 10**6)])
    assert not children.requests


@pytest.mark.parametrize(
    "wrong",
    [
        {"shapes": "8x8x8"}, {"shapes": 8}, {"shapes": np.array(8)}, {"dtypes": "float32"}, {"dtypes": None},
        {"layouts": "NN"}, {"precisions": "high"}, {"budget": "1s"}, {"on_progress": 3},
    ],
)  # fmt: skip
def test_what_is_no_list_number_or_function_is_refused_by_name(wrong):
    with pytest.raises(pyclmm.DTypeError, match=f"^{next(iter(wrong))} is .*; pass a "):
        pyclmm.tune(**{"shapes": [SHAPE], "budget": 1e-9, **wrong})


def test_each_precision_is_tuned(few, children):
    children.scripts += [(timed(0, [1.0]), None)] * 2
    tuned(precisions=["highest", "medium"])
    assert [r["problem"]["precision"] for r in children.requests] == ["highest", "medium"]


# the child's side, in this process


@pytest.fixture
def ring(few):
    return timing.TimedProduct(
        new_queue(default_device(), profiling=True), tuner.product(SHAPE, "float32", "TN")
    )


def choice(tile):
    return select.Choice(next(k for k in KERNELS if k.name == "naive"), TileConfig(bm=tile, bn=tile))


def test_launches_wait_until_all_are_enqueued(ring, monkeypatch):
    enqueued, real = [], pyclmm.Matmul.enqueue

    def enqueue(plan, *operands, **keywords):
        events = real(plan, *operands, **keywords)
        ring.board.queue.flush()
        time.sleep(0.1)  # it would have ended by now if it had not to wait
        enqueued.extend(event.command_execution_status for event in events)
        return events

    monkeypatch.setattr(pyclmm.Matmul, "enqueue", enqueue)
    ring.challenge(choice(2))
    assert enqueued
    assert cl.command_execution_status.COMPLETE not in enqueued  # GPUs may call what waits running


def test_rounds_alternate_with_the_incumbent(ring, monkeypatch, limits):
    alone = ring.challenge(choice(2))
    assert alone["incumbent"] == []
    limits(hopeless=1e9)
    order, real = [], timing.Contestant.gated
    monkeypatch.setattr(timing.Contestant, "gated", lambda one: order.append(one) or real(one))
    both = ring.challenge(choice(4))
    assert len(both["seconds"]) == len(both["incumbent"]) >= 5
    assert all(seconds > 0 for seconds in both["seconds"] + both["incumbent"])
    rounds = order[1:]
    assert len({id(b) for b in rounds[::2]}) == len({id(b) for b in rounds[1::2]}) == 1
    assert rounds[0] is not rounds[1]


def test_a_hopeless_candidate_runs_once_and_ends_its_family(ring):
    ring.challenge(choice(2))
    ring.to_beat = 1e-12
    assert len(ring.challenge(choice(4))["seconds"]) == 1
    assert ring.outclassed == {"naive"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [("k < K - 1; ++k", "in the self-check"), ("k < K - (M == 24); ++k", "at 24 x 20 x 16")],
    ids=["always", "at its own size"],
)
def test_a_wrong_result_is_never_timed(monkeypatch, ring, wrong, said):
    changed_source(monkeypatch, "textbook/naive.cl", "k < K; ++k", wrong)
    try:
        answer = ring.challenge(choice(2))
    except pyclmm.UnsupportedError as error:  # of the self-check
        answer = {"reason": str(error)}
    assert f"wrong result {said}" in answer["reason"]
    assert "seconds" not in answer
    assert ring.incumbent is None


# with children


def sabotage(monkeypatch, tmp_path, action):
    (tmp_path / "sitecustomize.py").write_text(SITE.format(action=action))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.parametrize("action", ["os.abort()", *slow("time.sleep(100)")], ids=["dies", "hangs"])
def test_a_candidate_that_dies_or_hangs_does_not_stop_the_tuner(few, monkeypatch, limits, tmp_path, action):
    sabotage(monkeypatch, tmp_path, action)
    if "sleep" in action:
        limits(tuned=30.0)
    search = tuned().searches[0]
    outcomes = {t.choice.config.bm: t.reason for t in search.tried}
    assert outcomes[2] is None
    assert outcomes[8] is None
    assert ("SIGABRT" if "abort" in action else "did not end within 30 seconds") in outcomes[4]
    assert search.entry is not None
    assert [e.config for e in kept()] == [search.entry.config]
    assert search.entry.config.bm != 4


# the command line


run = partial(command, "tune")


def test_the_command_shows_exports_and_draws(few, children, tmp_path, monkeypatch):
    children.scripts.append(
        ([*timed(0, [1.0]), {"index": 1, "reason": "no good"}, *timed(2, [0.5], [1.0])], None)
    )
    export, plot = tmp_path / "table.json", tmp_path / "plot.png"
    shown = run(
        "--shapes", "24x20x16", "--layout", "NN", "--budget", "1m", "--export", export, "--plot", plot
    )
    assert "3 of 3" in shown.output
    assert "2.00" in shown.output
    assert "no good" in shown.output
    content = json.loads(export.read_text())
    tables.check("table", content)
    assert [e["kernel"] for e in content["entries"]] == ["naive"]
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("when", ["a child answers", "candidates are listed"])
def test_ctrl_c_on_the_command_line(few, children, tmp_path, monkeypatch, when):
    def pressed(*_):
        raise KeyboardInterrupt

    if when == "a child answers":
        children.answers = pressed
    else:
        monkeypatch.setattr(tuner, "choices", pressed)
    shown = run("--shapes", "24x20x16", "--export", tmp_path / "table.json", status=130)
    assert shown.stderr.endswith("Interrupted; nothing was measured yet\n")
    assert json.loads((tmp_path / "table.json").read_text())["entries"] == []


def test_the_plot_names_kernels_and_has_the_device_s_roof(monkeypatch, tmp_path):
    problem = tuner.product((512, 512, 512), "float32", "NN")
    search, drawn = tuner.Search(problem, total=3), []
    for name, seconds in (("naive", 2e-2), ("tiled", 1e-2), ("naive", 3e-2)):
        choice = select.Choice(kernel_named(name), TileConfig(bm=8, bn=8))
        search.tried.append(tuner.Tried(choice, seconds, won=name == "tiled"))
    search.entry = tuner._entry(problem, search.best)
    monkeypatch.setattr(plots, "save", lambda figure, path: drawn.append(figure))
    plots.tuning([search], H200, tmp_path / "unused.png")
    order, roof = drawn[0].axes
    assert [text.get_text() for text in order.get_legend().get_texts()] == ["naive", "tiled"]
    assert [text.get_text() for text in roof.texts] == [str(problem)]
    flat = next(line for line in roof.lines if line.get_label().startswith("float32 multiply-adds"))
    assert max(flat.get_ydata()) == pytest.approx(2 * H200.rates.float32 / 1e9)


@pytest.mark.parametrize(
    ("option", "file", "said"),
    [
        ("--export", "absent/table.json", "there is no folder"),
        ("--plot", "absent/plot.png", "there is no folder"),
        ("--export", "locked/table.json", "it cannot be written"),
        ("--plot", "locked/plot.png", "it cannot be written"),
        ("--plot", "plot.png", r'pip install "pyclmm[plot]"'),
    ],
)
def test_files_are_checked_before_anything_is_measured(monkeypatch, children, tmp_path, option, file, said):
    (tmp_path / "locked").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK or "locked" not in Path(path).name)
    if said.startswith("pip"):
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    shown = run("--shapes", "24x20x16", option, tmp_path / file, status=2)
    assert said in shown.output
    assert not children.requests
    assert [p.name for p in tmp_path.rglob("*")] == ["locked"]


def test_a_table_that_cannot_be_written_is_reported(few, children, monkeypatch, tmp_path):
    children.scripts.append((timed(0, [1.0]), None))
    (tmp_path / "file").touch()
    monkeypatch.setenv("PYCLMM_CACHE_DIR", str(tmp_path / "file"))
    with pytest.warns(pyclmm.CacheWarning, match="not all can be kept"):
        shown = run("--shapes", "24x20x16", "--layout", "NN", status=2)
    assert "nothing is kept" in shown.output
