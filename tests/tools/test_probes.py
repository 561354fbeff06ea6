"""`pyclmm tune --device`: the rates of this machine's device, measured, kept and shown."""

import json
from pathlib import Path

import pytest

from pyclmm.errors import CacheWarning
from pyclmm.kernels.rates import MEANINGS, as_numbers
from pyclmm.opencl import steps, user_rates
from pyclmm.opencl.devices import default_device, device_info
from pyclmm.tools import probes
from tests.support.commands import command
from tests.support.faults import noted

HERE = default_device()


@pytest.fixture(autouse=True)
def own(device_read_anew, own_caches, monkeypatch):
    short = {"_TURN": 0.002, "_REPEATS": 1, "_READ": (1 << 16, 1 << 20), "_SIDES": (256,)}
    for name, value in short.items():
        monkeypatch.setattr(probes, name, value)
    return own_caches


@pytest.fixture
def found_at_once(measured):
    """The command finds these rates: what it measures on a busy machine may be nothing that is kept."""
    measured.found = [device_info(HERE).rates]
    return measured


def test_every_rate_is_measured_and_kept():
    datasheet = as_numbers(device_info(HERE).rates)
    for _ in range(20):  # others may disturb so short a measurement; rates that cannot be are not kept
        steps, refused = [], []
        groups = probes.measure(HERE, steps.append, refused.append)
        rates = {name: rate for group in groups for name, rate in group.items()}
        assert [(step.done, step.total) for step in steps] == [(0, 4), (1, 4), (2, 4), (3, 4)]
        if not refused and probes.keep(HERE, rates):
            break
    content = json.loads(user_rates.file_of(device_info(HERE).identity).path.read_text())
    assert content["rates"] == rates == as_numbers(device_info(HERE).rates)
    measured = {"launch", "latency", "memory", "cache", "local", "float32"}
    assert all(content["rates"][name] > 0 for name in measured)
    assert all(content["rates"][name] != datasheet[name] for name in measured), (
        "a measurement, not the datasheet"
    )


@pytest.mark.skipif(not device_info(HERE).is_cpu, reason="a work-item reads a run of its own on CPUs only")
def test_no_compiler_makes_one_vector_of_several_runs(monkeypatch):
    launched = noted(monkeypatch, steps, "eventless")
    list(probes.measure(HERE, lambda _: None, lambda _: None))
    runs = {(size, local) for _, kernel, size, local, *_ in launched if kernel.function_name == "read_all"}
    assert runs == {((4 * device_info(HERE).units,), (1,))}


@pytest.mark.usefixtures("found_at_once")
def test_a_device_without_a_name_measures_rates_only():
    result = command("tune", "--device")
    assert all(name in result.output for name in MEANINGS)
    assert "product" not in result.output, "no product was tuned"


@pytest.mark.usefixtures("found_at_once")
def test_the_rates_of_a_named_device():
    result = command("tune", "--rates", "--device", HERE.name.strip())
    assert HERE.name.strip() in result.output
    assert user_rates.file_of(device_info(HERE).identity).path.exists()


@pytest.mark.usefixtures("found_at_once")
def test_rates_that_cannot_be_kept_are_a_failure(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PYCLMM_CACHE_DIR", str(tmp_path / "file"))
    with pytest.warns(CacheWarning, match="not all can be kept"):
        result = command("tune", "--rates", status=2)
    assert "nothing is kept" in result.output


def test_a_rate_that_cannot_be_is_named_and_the_others_are_kept(monkeypatch, found_at_once, tmp_path):
    monkeypatch.chdir(tmp_path)
    found_at_once.refusals = ["matrix16: 6.56e+14 multiply-adds a second were measured. 4e+14 stays."]
    result = command("tune", "--rates", "--json", "rates.json")
    assert "matrix16: 6.56e+14 multiply-adds" in result.output
    assert json.loads(Path("rates.json").read_text())["refused"][0].startswith("matrix16")
