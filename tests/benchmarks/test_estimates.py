"""Products drawn at random, and the estimates against the times of the published surveys."""

import json
import statistics
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from pyclmm.kernels.rates import as_numbers
from pyclmm.selection import select
from tests.support.made_up import EPYC_POCL, H200, XEON_POCL

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield
    for name in ("products", "survey", "estimates", "tuned", "burst"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("scripts")
def test_the_same_seed_draws_the_same_products():
    import products  # noqa: PLC0415

    first = list(products.drawn(5, 60))
    assert first == list(products.drawn(5, 60))
    assert first != list(products.drawn(6, 60))
    assert {one.kind for one in first} == set(products.KINDS)
    assert {one.layout for one in first} == {"NN", "NT", "TN", "TT"}
    assert any(len(one.shape) == 4 for one in first), "stacks"
    assert any(one.shape[-1] % 8 for one in first), "rows of any alignment"
    assert all(side >= 32 for one in first for side in one.shape[-3:])
    assert all(min(one.shape[-3:-1]) < 32 for one in products.drawn(5, 12, thin=True))


@pytest.mark.usefixtures("scripts")
def test_a_drawn_product_is_what_its_stored_operands_multiply_to():
    import products  # noqa: PLC0415

    for one in products.drawn(7, 24, ("highest", "float64")):
        problem, (a, b) = one.problem, one.stored
        m, n, k = one.shape[-3:]
        assert a[-2:] == ((k, m) if problem.trans_a else (m, k))
        assert b[-2:] == ((n, k) if problem.trans_b else (k, n))
        assert one.flops == problem.flops


@pytest.mark.usefixtures("scripts")
@pytest.mark.parametrize("device", [H200, EPYC_POCL, XEON_POCL], ids=lambda device: device.name)
def test_a_device_comes_back_from_a_surveys_file(device):
    import survey  # noqa: PLC0415

    assert survey.device_from(json.loads(json.dumps(survey.device_json(device)))) == device


@pytest.mark.usefixtures("scripts")
def test_every_choice_is_timed_and_judged_by_its_own_rates(tmp_path):
    import estimates  # noqa: PLC0415
    import products  # noqa: PLC0415
    import survey  # noqa: PLC0415
    import tuned  # noqa: PLC0415

    slow = {**as_numbers(H200.rates), "matrix16": 4e12, "matrix32": 2e12}  # other kernels are chosen
    sets = tuned.sets_of(H200, slow)
    assert list(sets) == ["datasheet", "shipped", "tuned"]
    rows = []
    for one in products.drawn(5, 8, ("float16", "medium")):
        those = tuned.wanted(one, sets, 1)
        for device in sets.values():
            choice = next(select.candidates(one.problem, device, "auto", tables=()))
            assert (choice.kernel.name, choice.config) in those
        times = [{"kernel": name, "config": asdict(config), "seconds": 1.0} for name, config in those]
        rows.append(asdict(one) | {"candidates": times})
    rates = {name: as_numbers(device.rates) for name, device in sets.items()}
    file = tmp_path / "tuned.json"
    file.write_text(json.dumps({"device": survey.device_json(H200), "rates": rates, "rows": rows}))
    picks = {name: [str(one.pick) for one in estimates.judged(file, name)] for name in sets}
    assert picks["tuned"] != picks["shipped"]


@pytest.mark.usefixtures("scripts")
def test_the_estimates_hold_on_the_published_surveys():
    """No time is measured here. A change that makes the estimates worse on those products is noticed."""
    import estimates  # noqa: PLC0415

    surveys = sorted((BENCHMARKS / "results").glob("h200-survey*.json"))
    judged = [one for survey in surveys for one in estimates.judged(survey)]
    assert len(judged) == 438
    assert statistics.median(one.error for one in judged) <= 0.08
    assert sum(one.loss <= 1.1 for one in judged) >= 0.88 * len(judged)
    assert statistics.geometric_mean(one.loss for one in judged) <= 1.035
    assert max(one.loss for one in judged) <= 1.8
