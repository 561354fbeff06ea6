"""PoCL's threads are bound to CPUs when pyclmm lists its devices first, unless the user says otherwise."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from pyclmm.opencl import affinity
from pyclmm.opencl.devices import all_devices, device_info

# Prints how many threads PoCL started, how many of them are bound to one CPU, and the variable afterwards.
REPORT = """
import json, os
{before}
os.sched_setaffinity(0, {allowed})
import pyopencl
from pyclmm.opencl.devices import all_devices
old = set(os.listdir("/proc/self/task"))
devices = all_devices()
new = set(os.listdir("/proc/self/task")) - old
bound = sum(len(os.sched_getaffinity(int(thread))) == 1 for thread in new)
print(json.dumps([len(new), bound, os.environ.get("POCL_AFFINITY")]))
"""
CPUS = set(range(os.cpu_count() or 1))


def report(before="", allowed=CPUS, **variables):
    env = {key: value for key, value in os.environ.items() if key != "POCL_AFFINITY"} | variables
    code = REPORT.format(before=before, allowed=allowed)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    return json.loads(done.stdout)


@pytest.fixture(autouse=True)
def _pocl():
    if not hasattr(os, "sched_getaffinity") or len(CPUS) < 2 or os.sched_getaffinity(0) != CPUS:
        pytest.skip("needs Linux and two CPUs, all allowed")
    if not any(device_info(device).vendor == "pocl" for device in all_devices()):
        pytest.skip("needs PoCL")


def test_threads_are_bound_and_the_variable_is_gone():
    started, bound, variable = report()
    assert started == bound == len(CPUS)
    assert variable is None


@pytest.mark.parametrize(("value", "each"), [("0", 0), ("1", 1)])
def test_what_the_user_set_is_kept(value, each):
    assert report(POCL_AFFINITY=value) == [len(CPUS), each * len(CPUS), value]


def test_a_process_that_may_not_use_every_cpu_is_left_alone(monkeypatch):
    monkeypatch.delenv("POCL_AFFINITY", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    with affinity.bound():
        assert "POCL_AFFINITY" not in os.environ


def test_a_failure_leaves_no_variable(monkeypatch):
    monkeypatch.delenv("POCL_AFFINITY", raising=False)
    with pytest.raises(KeyError, match="1"), affinity.bound():
        raise KeyError(os.environ["POCL_AFFINITY"])
    assert "POCL_AFFINITY" not in os.environ


def test_a_system_that_cannot_bind(monkeypatch):
    monkeypatch.delenv("POCL_AFFINITY", raising=False)
    monkeypatch.delattr("os.sched_getaffinity")
    with affinity.bound():
        assert "POCL_AFFINITY" not in os.environ
