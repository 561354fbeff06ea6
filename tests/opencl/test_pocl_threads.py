"""PoCL has as many bound threads as it may use CPUs, unless the user says otherwise; none takes Ctrl-C."""

import json
import os
import signal
from types import SimpleNamespace

import pytest

from pyclmm.errors import ArgumentError
from pyclmm.opencl import pocl
from pyclmm.opencl.devices import all_devices, device_info
from tests.support.processes import python, with_this_package

# Prints how many threads PoCL started, how many of them are bound to one CPU, and the variable afterwards.
REPORT = """
import json, os
{before}
os.cpu_count = lambda: {cpus}
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


def report(before="", allowed=CPUS, cpus=None, **variables):
    env = {key: value for key, value in os.environ.items() if not key.startswith("POCL_")} | variables
    code = REPORT.format(before=before, allowed=allowed, cpus=cpus or len(CPUS))
    done = python("-c", code, check=True, env=env)
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


def test_in_a_process_that_may_use_some_cpus_each_of_these_has_a_thread():
    assert report(cpus=64) == [len(CPUS), len(CPUS), None]
    assert report(cpus=64, POCL_AFFINITY="0") == [len(CPUS), 0, "0"]
    assert report(cpus=64, POCL_MAX_PTHREAD_COUNT="1") == [1, 0, None]


def test_in_a_process_that_may_use_one_cpu_there_is_one_thread_and_it_is_not_bound():
    started, bound, variable = report(allowed={1})
    assert started == 1
    assert variable is None
    assert bound == 1, "to what the process may use, as all threads of the process"


COUNTS = ["POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT", "POCL_MAX_COMPUTE_UNITS"]


def test_more_threads_than_cpus_are_not_bound():
    """PoCL would abort, as there is no CPU to bind the last one to."""
    assert report(POCL_MAX_PTHREAD_COUNT=str(len(CPUS) + 1)) == [len(CPUS) + 1, 0, None]
    assert report(POCL_MAX_PTHREAD_COUNT="1") == [1, 1, None]
    started, bound, _ = report(POCL_PTHREAD_MIN_THREADS=str(len(CPUS) + 1))
    assert (started, bound) in ((len(CPUS) + 1, 0), (len(CPUS), 0)), "PoCL 7 has no least number"


@pytest.mark.parametrize("name", ["POCL_MAX_PTHREAD_COUNT", "POCL_PTHREAD_MIN_THREADS"])
@pytest.mark.parametrize("value", ["-1", " -1", "4294967295", "999999999", "9" * 5000])
def test_a_number_of_threads_that_pocl_crashes_with_is_refused_by_name(name, value):
    if not any("PoCL 3." in device.platform.version for device in all_devices()):
        pytest.skip("needs PoCL 3")
    done = python("-m", "pyclmm", "info", env=os.environ | {name: value})
    assert done.returncode == 2
    assert done.stderr.startswith(f"Error: {name} is {value[:9]!r}"[:-1]), done.stderr
    assert "set a number of threads of 1 or more" in done.stderr


@pytest.mark.parametrize(
    ("version", "crashes", "works"),
    [
        ("3.1", {"POCL_MAX_PTHREAD_COUNT": "-1"}, {"POCL_CPU_MAX_CU_COUNT": "-1"}),
        ("3.1", {"POCL_PTHREAD_MIN_THREADS": "-1"}, {"POCL_MAX_PTHREAD_COUNT": "0000000002"}),
        ("5.0", {"POCL_CPU_MAX_CU_COUNT": "-1"}, {"POCL_MAX_PTHREAD_COUNT": "-1"}),
        ("6.0", {"POCL_CPU_MIN_CU_COUNT": "-2"}, {"POCL_PTHREAD_MIN_THREADS": "-1"}),
        (
            "6.0",
            {"POCL_MAX_PTHREAD_COUNT": "9" * 8},
            {"POCL_CPU_MAX_CU_COUNT": "-1", "POCL_MAX_PTHREAD_COUNT": "3"},
        ),
        ("7.1", {"POCL_MAX_COMPUTE_UNITS": "-1"}, {"POCL_CPU_MAX_CU_COUNT": "-1"}),
        ("10.0-pre", {"POCL_MAX_COMPUTE_UNITS": "-1"}, {"POCL_PTHREAD_MIN_THREADS": "-1"}),
    ],
)
def test_each_version_of_pocl_refuses_what_it_crashes_with_alone(monkeypatch, version, crashes, works):
    """Later versions take a number that is not above 0 as one that is not set, if another name follows."""
    for name in [name for name in os.environ if name.startswith("POCL_")]:
        monkeypatch.delenv(name)
    platform = SimpleNamespace(
        name="Portable Computing Language", version=f"OpenCL 3.0 PoCL {version}  Linux"
    )
    with monkeypatch.context() as patch:
        for name, value in crashes.items():
            patch.setenv(name, value)
        with pytest.raises(ArgumentError, match=next(iter(crashes))), pocl.placed(platform):
            pass
    for name, value in works.items():
        monkeypatch.setenv(name, value)
    with pocl.placed(platform):
        pass


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("POCL_DEVICES", "", "and PoCL has no such device: unset it, or name"),
        ("POCL_DEVICES", "pthread,cpu", "and PoCL has no such device: unset it, or name"),
        ("POCL_CACHE_DIR", "", "with which PoCL has no device: unset it, or set a folder"),
        ("POCL_CACHE_DIR", "file/below", "set POCL_CACHE_DIR to a folder that can be written"),
    ],
)
def test_a_variable_for_which_pocl_has_no_device_is_named(tmp_path, name, value, says):
    (tmp_path / "file").touch()
    env = with_this_package(PYOPENCL_CTX="", **{name: value})
    done = python("-m", "pyclmm", "info", env=env, cwd=tmp_path)
    if done.returncode == 0:
        pytest.skip("another platform has a device, or another PoCL takes it")
    assert (done.returncode, done.stdout) == (2, "")
    assert name in done.stderr
    assert repr(value) in done.stderr or f" {value} " in done.stderr
    assert says in done.stderr


@pytest.mark.parametrize("value", ["0", "none", ""])
def test_a_work_group_without_work_items_is_refused_by_name_before_any_verdict(tmp_path, value):
    env = with_this_package(POCL_MAX_WORK_GROUP_SIZE=value, PYCLMM_CACHE_DIR=str(tmp_path))
    product = "import numpy, pyclmm; print(pyclmm.matmul(numpy.eye(9), numpy.eye(9)).sum())"
    done = python("-c", product, env=env)
    assert done.returncode != 0
    said = f"ArgumentError: POCL_MAX_WORK_GROUP_SIZE is {value!r}, and device '"
    assert said in done.stderr
    assert "set a number of 1 or more, or leave it unset" in done.stderr
    assert not list(tmp_path.rglob("*.json"))
    env["POCL_MAX_WORK_GROUP_SIZE"] = "1"
    again = python("-c", product, env=env)
    assert (again.returncode, again.stdout, again.stderr) == (0, "9.0\n", "")


SMALL_GROUPS = """
import numpy as np, pyopencl.array as cla
import pyclmm
queue, a, gaps = pyclmm.default_queue(), np.eye(64, 128, dtype="f4"), np.zeros((256, 128), "f4")
assert queue.device.max_work_group_size <= 16
gaps[::2] = 3
x, y, *doubles = (cla.to_device(queue, z) for z in (a, gaps, a.astype("f8"), gaps[::2].astype("f8")))
found = [
    pyclmm.matmul(x, pyclmm.quantize(gaps[::2]).to(queue, order="fragments").T),
    pyclmm.gemm(x, y[::2], activation="relu", verify=True),
    pyclmm.ragged_matmul(x, cla.to_device(queue, np.full((2, 128, 128), 3, "f4")), [40, 24], verify=True),
    pyclmm.matmul(*doubles, precision="medium", kernel="limbs"),
    pyclmm.matmul(*(z.astype("c16") for z in doubles), precision="medium", kernel="limbs"),
]
print(*((z.get() == 3).all() for z in found))
"""


@pytest.mark.parametrize("most", ["16", "4"])
def test_a_product_has_no_larger_work_groups_than_the_device(tmp_path, most):
    env = with_this_package(POCL_MAX_WORK_GROUP_SIZE=most, PYCLMM_CACHE_DIR=str(tmp_path))
    done = python("-c", SMALL_GROUPS, env=env)
    assert (done.returncode, done.stdout) == (0, "True True True True True\n"), done.stderr


@pytest.mark.parametrize("name", COUNTS)
def test_a_number_of_threads_that_the_user_set_is_kept(monkeypatch, name):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    monkeypatch.setenv(name, "2")
    with pocl.bound():
        assert os.environ[name] == "2"
        assert len({*COUNTS, "POCL_AFFINITY"} & set(os.environ)) == 1
    assert os.environ[name] == "2"


def test_the_number_of_threads_is_gone_afterwards(monkeypatch):
    for name in COUNTS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3, 5, 9})
    with pocl.bound():
        assert os.environ["POCL_MAX_PTHREAD_COUNT"] == "3"
        assert "POCL_AFFINITY" not in os.environ
    assert "POCL_MAX_PTHREAD_COUNT" not in os.environ


def test_a_failure_leaves_no_variable(monkeypatch):
    monkeypatch.delenv("POCL_AFFINITY", raising=False)
    with pytest.raises(KeyError, match="1"), pocl.bound():
        raise KeyError(os.environ["POCL_AFFINITY"])
    assert "POCL_AFFINITY" not in os.environ


def test_a_system_that_cannot_bind(monkeypatch):
    monkeypatch.delenv("POCL_AFFINITY", raising=False)
    monkeypatch.delattr("os.sched_getaffinity")
    with pocl.bound():
        assert "POCL_AFFINITY" not in os.environ


SIGNALS = """
import os, signal
from pyclmm.opencl.devices import all_devices
old = set(os.listdir("/proc/self/task"))
all_devices()
for thread in set(os.listdir("/proc/self/task")) - old:
    status = open(f"/proc/self/task/{thread}/status").read()
    print(int(status.split("SigBlk:")[1].split()[0], 16) >> (signal.SIGINT - 1) & 1)
print("main", signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""


def test_threads_of_the_driver_do_not_take_ctrl_c():
    """Their linkers would get it from a terminal, and PoCL would end the process."""
    done = python("-c", SIGNALS, check=True)
    *blocked, main, taken = done.stdout.split()
    assert blocked == ["1"] * len(CPUS)
    assert (main, taken) == ("main", "False")


@pytest.fixture
def takes_ctrl_c():
    """A shell starts commands in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("takes_ctrl_c")
def test_ctrl_c_while_devices_are_listed_comes_afterwards():
    done = []

    def listing():
        with pocl.uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        listing()
    assert done


def test_a_system_without_masks_of_signals(monkeypatch):
    monkeypatch.delattr("signal.pthread_sigmask")
    with pocl.uninterrupted():
        pass
