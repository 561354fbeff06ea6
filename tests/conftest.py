"""Fixtures that every test file shares: the device under test, and random numbers with a seed."""

from __future__ import annotations

import gc
import logging
import os
import time
import zlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import HealthCheck, settings

from pyclmm.api import release
from pyclmm.kernels import kernel_named
from pyclmm.kernels.config import Ranked
from pyclmm.kernels.device import DeviceInfo
from pyclmm.opencl import processor
from pyclmm.opencl.devices import default_device, device_info
from pyclmm.opencl.queues import default_queue
from pyclmm.problem import dtypes
from pyclmm.problem.gemm import GemmProblem
from tests.support import driver, optional, selection, spoiled
from tests.support.limits import limited
from tests.support.processes import as_in_a_new_process, nothing_compiled

UNOPTIMIZED = "POCL_EXTRA_BUILD_FLAGS"  # PoCL reads it at each build
# Two devices of JAX's, where it is there: it reads this at its first use.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
_cache = TemporaryDirectory(prefix="pyclmm-tests-")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", type=int, default=1, metavar="N", help="run one of N tests")


def pytest_configure(config: pytest.Config) -> None:
    """A run has its own cache folder, and one driver. Modules of tests look at the device when collected.

    Workers of pytest-xdist inherit both: what one has compiled and checked the other need not.
    """
    selection.fast = config.option.markexpr == "not slow"
    # No deadline, as builds are slow. Each run draws the same examples; `make fuzz` looks for new ones.
    usual = {"deadline": None, "derandomize": True, "print_blob": False}
    settings.register_profile(
        "pyclmm", selection.examples(100), suppress_health_check=list(HealthCheck), **usual
    )
    settings.load_profile("pyclmm")
    if not hasattr(config, "workerinput"):
        os.environ["PYCLMM_CACHE_DIR"] = _cache.name
        driver.name_it(_cache.name)
        # NumPy's threads spin after a product; the workers need the cores.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if selection.fast:  # PoCL's optimizer takes two thirds of the time of a run
        os.environ.setdefault(UNOPTIMIZED, "-cl-opt-disable")
    os.environ["PYCLMM_TRIAL"] = "off"  # a child process for each program takes too long
    os.environ["PYCLMM_SELFCHECK"] = "off"  # a wrong kernel gives its wrong result instead of being refused


def pytest_itemcollected(item: pytest.Item) -> None:
    """A set may come in another order in another worker, which would then name the test differently."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    sets = [name for name, value in params.items() if isinstance(value, set | frozenset)]
    if sets and "{" in item.name:
        raise pytest.UsageError(f"{item.nodeid}: {', '.join(sets)} is a set; pass a list, or other ids=")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    selection.mark_combinations(items)
    selection.mark_rounds(items)
    selection.take_share(config, items)


def pytest_collection_finish() -> None:
    """A collection of garbage need not look at modules, tests and what the last file left: seconds in all."""
    gc.freeze()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails because an optional package is missing is skipped by the package's name."""
    report = yield
    if report.failed and (name := optional.named_in(str(report.longrepr))):
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, f"Skipped: needs {name}")
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    from tests.support import summary  # noqa: PLC0415 - it reads the device, which pytest_configure names

    if terminalreporter.stats.get("passed"):
        terminalreporter.write_sep("-", "what was shown")
        for line in summary.lines(terminalreporter.stats, selection.fast):
            terminalreporter.write_line(line)


def pytest_unconfigure() -> None:
    _cache.cleanup()


@pytest.fixture(scope="session")
def queue() -> cl.CommandQueue:
    """pyclmm's default queue. PYOPENCL_CTX chooses another device."""
    return default_queue()


@pytest.fixture(scope="session")
def context(queue: cl.CommandQueue) -> cl.Context:
    return queue.context


@pytest.fixture(scope="session")
def device(queue: cl.CommandQueue) -> DeviceInfo:
    return device_info(queue.device)


@pytest.fixture
def two_devices(queue: cl.CommandQueue) -> list[cl.Device]:
    """Two parts of the default device."""
    whole = queue.device
    if whole.partition_max_sub_devices < 2 or whole.max_compute_units < 2:
        pytest.skip(f"{whole.name.strip()} cannot be divided (CL_DEVICE_PARTITION_MAX_SUB_DEVICES)")
    return list(whole.create_sub_devices([cl.device_partition_property.EQUALLY, 1])[:2])


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers: the same in each run, others in each test."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


class Compiled(logging.Handler):
    """What pyclmm compiles, as its log tells: ``found`` has (source, options) of each program."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.found: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg.startswith("options for "):
            source, options = record.args or ()
            self.found.append((str(source), str(options)))


@pytest.fixture
def builds() -> Iterator[list[tuple[str, str]]]:
    """The programs that are compiled during the test: their sources and the compiler's options."""
    handler, log = Compiled(), logging.getLogger("pyclmm.opencl.program")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    yield handler.found
    log.removeHandler(handler)
    log.setLevel(level)


@pytest.fixture
def contests(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Contests between kernels, whose runs a test may replace (tests/support/contests.py)."""
    from tests.support.contests import Contests  # noqa: PLC0415 - the tools take long to import

    return Contests(monkeypatch)


@pytest.fixture
def rounds() -> Callable[[int], int]:
    """So often a test repeats what it does: ``rounds(100)`` is 100, and an eighth of it in `make test`."""
    return selection.rounds


@pytest.fixture
def without_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's own install, which has no bfloat16."""
    monkeypatch.setattr(dtypes, "ml_dtypes", None)


class Clock:
    """The clocks of this process stand still: both say ``now``, in seconds."""

    now = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Time that passes only where a test says so. Not for tests in which a thread waits."""
    found = Clock()
    for name in ("perf_counter", "monotonic"):
        monkeypatch.setattr(time, name, lambda: found.now)
    return found


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes limits small until the end of the test: ``limits(launch=3)`` (tests/support/limits.py)."""
    return partial(limited, monkeypatch)


@pytest.fixture
def own_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """As in a new process with the self-check: no plan, program, verdict or detour, empty caches.

    The context is the one of all tests, since drivers of GPUs allow about a hundred on a machine.
    """
    folder = tmp_path / "caches"
    monkeypatch.setenv("PYCLMM_CACHE_DIR", str(folder))
    monkeypatch.delenv("PYCLMM_SELFCHECK", raising=False)
    as_in_a_new_process(monkeypatch)
    return folder


@pytest.fixture
def optimized(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are compiled as a user's are; other tests of `make test` leave PoCL's optimizer out."""
    if os.environ.get(UNOPTIMIZED):
        monkeypatch.delenv(UNOPTIMIZED)
        nothing_compiled(monkeypatch)


@pytest.fixture
def device_read_anew() -> Iterator[None]:
    """The facts about the device are read in this test and again after it; the next test may break compilers.

    Name it before `own_caches`, so that the second reading finds the caches of all tests.
    """
    device_info.cache_clear()
    yield
    device_info.cache_clear()
    device_info(default_device())


@pytest.fixture
def known_target(own_caches: Path) -> Path:
    """The same, but the compiler's answer about its target is kept, so that no child asks for it."""
    processor.target_of(default_device())
    return own_caches


@pytest.fixture
def two_rungs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ladder of two kernels: naive comes after tiled. Neither has workspace."""
    _ladder(monkeypatch, "tiled")


@pytest.fixture
def workspace_rung(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ladder of two kernels: naive comes after register, which splits K, so that it has workspace."""
    register = kernel_named("register")
    plain = register.ranked

    def split(problem: GemmProblem, device: DeviceInfo) -> list[Ranked]:
        return [Ranked(seconds, replace(config, split_k=7)) for seconds, config in plain(problem, device)]

    monkeypatch.setattr(register, "ranked", split)
    _ladder(monkeypatch, "register")


def _ladder(monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    ladder = (kernel_named(first), kernel_named("naive"))
    monkeypatch.setattr("pyclmm.selection.select.KERNELS", ladder)
    monkeypatch.setattr(type(ladder[1]), "estimate", lambda *_: 1.0)  # seconds


@pytest.fixture
def spoiler() -> Iterator[spoiled.Spoiler]:
    """Makes checked results wrong (verify=)."""
    with spoiled.installed(spoiled.Spoiler()) as found:
        yield found


@pytest.fixture(params=["processor", "gpu"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Both forms of cl/verify/: a work-item to a group, and groups that share sums."""
    release()
    if request.param == "gpu":
        spoiled.gpu_form(monkeypatch)
    yield request.param
    release()
