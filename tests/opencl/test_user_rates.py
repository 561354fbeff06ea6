"""The user's own rates: kept for one device and driver, checked when read, and used by every later choice."""

import json
import warnings

import pytest

from pyclmm.errors import CacheWarning
from pyclmm.kernels.rates import as_numbers
from pyclmm.opencl import user_rates
from pyclmm.opencl.devices import default_device, device_info

HERE = default_device()
IDENTITY = device_info(HERE).identity
NUMBERS = as_numbers(device_info(HERE).rates)


@pytest.fixture(autouse=True)
def own(device_read_anew, own_caches):
    return own_caches


def written(**changes):
    """A file of rates with *changes*, as it was read by the next process."""
    path = user_rates.file_of(IDENTITY).path
    assert user_rates.write(IDENTITY, NUMBERS, "2026-11-22")
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, **changes}))
    return user_rates.read(IDENTITY)


def test_rates_are_used_by_the_next_process():
    assert user_rates.read(IDENTITY) is None
    assert user_rates.write(IDENTITY, {**NUMBERS, "launch": 1.25e-6}, "2026-11-22")
    device_info.cache_clear()
    assert device_info(HERE).rates.launch == 1.25e-6
    assert device_info(HERE).rates.source == "measured here, 2026-11-22"


def test_the_switch_that_ignores_tables_ignores_rates(monkeypatch):
    assert written() is not None
    monkeypatch.setenv("PYCLMM_TUNED", "off")
    assert user_rates.read(IDENTITY) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"schema": 1}, "schema is 1, not 2"),
        ({"more": 1}, "its keys are not"),
        ({"date": 7}, "date"),
        ({"rates": {}}, "rates: its keys are not"),
        ({"rates": {**NUMBERS, "launch": "1"}}, "launch is '1'"),
        ({"rates": {**NUMBERS, "launch": 0.0}}, "launch is 0.0"),
        ({"rates": {**NUMBERS, "memory": -1.0}}, "memory is -1.0"),
        ({"rates": {**NUMBERS, "memory": 10**400}}, "memory is 1000.*not a number from 1e.06 to 1e.18"),
        ({"rates": {**NUMBERS, "float32": 0}}, "float32 is 0"),
        ({"rates": {**NUMBERS, "matrix16": 5e-324}}, "matrix16 is 5e-324"),
        ({"device": {**IDENTITY, "driver_version": "0"}}, "run `pyclmm tune --device` again"),
    ],
    ids=lambda x: str(x)[:40],
)
def test_a_wrong_file_is_set_aside_with_a_reason(changes, reason):
    with pytest.warns(CacheWarning, match=reason):
        assert written(**changes) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert user_rates.read(IDENTITY) is None, "it was renamed"


def test_a_rate_that_a_device_may_lack_may_be_zero():
    assert written(rates={**NUMBERS, "matrix16": 0.0}) is not None
