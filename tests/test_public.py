"""The public interface: its names, KERNELS, devices and types."""

from pathlib import Path
from typing import get_args

import numpy as np
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm import KERNELS
from pyclmm.execution.host_path import HostPath
from pyclmm.opencl import devices as devices_module
from pyclmm.opencl import queues
from pyclmm.problem import literals
from pyclmm.problem.dtypes import CASTINGS
from pyclmm.problem.settings import PRECISIONS
from pyclmm.tools import tuner
from tests.support.processes import python, without_queues

X = np.ones((3, 3), np.float32)


def said(code):
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_every_public_name_is_there():
    for name in pyclmm.__all__:
        assert getattr(pyclmm, name) is not None, name
    assert set(pyclmm.__all__) <= set(dir(pyclmm))
    with pytest.raises(AttributeError, match="no attribute 'nosuch'"):
        _ = pyclmm.nosuch  # type: ignore[attr-defined]


def test_tools_are_imported_when_they_are_used():
    heavy = ("pyclmm.tools", "rich", "click")
    assert said(f"import sys, pyclmm; print(*[m for m in sys.modules if m.startswith({heavy})])") == []
    assert said("from pyclmm import tune, Tuning; print(tune.__module__)") == ["pyclmm.tools.tuner"]
    for name in ("tune", "Tuning"):
        assert getattr(pyclmm, name) is getattr(tuner, name)


def test_kernels_show_names_and_summaries():
    lines = repr(KERNELS).splitlines()
    assert len(lines) == len(KERNELS)
    for line, kernel in zip(lines, KERNELS, strict=True):
        assert line.split(maxsplit=1) == [kernel.name, kernel.summary]
    assert isinstance(KERNELS, tuple)
    assert KERNELS[0].name == "matvec"


def test_literals_list_the_words_that_are_taken():
    x = np.ones((2, 2), np.float32)
    for name, words_of in (("trans_a", literals.Trans), ("activation", literals.Activation)):
        for word in get_args(words_of):
            pyclmm.Matmul(x, x, **{name: word})
    assert get_args(literals.Casting) == CASTINGS
    assert get_args(literals.Precision) == PRECISIONS == ("highest", "high", "medium")


# ---- devices ---------------------------------------------------------------------------------


def test_devices_lists_every_device_and_the_default(queue):
    found = pyclmm.devices()
    assert [d.number for d in found] == list(devices_module.device_labels())
    (own,) = [d for d in found if d.device == queue.device]
    info = devices_module.device_info(queue.device)
    assert (own.name, own.platform, own.kind, own.memory) == (
        info.name,
        info.platform,
        info.kind,
        info.global_mem_size,
    )
    assert own.default
    assert sum(d.default for d in found) == 1
    for part in (own.number, own.name, own.platform, own.kind, "compute units", "default"):
        assert part in str(own)


def test_no_device_is_the_default_where_pyopencl_ctx_is_wrong(monkeypatch):
    monkeypatch.setenv("PYOPENCL_CTX", "nosuch")
    assert not any(d.default for d in pyclmm.devices())


def ways_to_name(queue):
    """Every value of ``device`` that names the device under test."""
    found = pyclmm.devices()
    place = [d.device for d in found].index(queue.device)
    ways = [place, found[place].number, found[place], queue.device]
    if sum(d.kind == found[place].kind for d in found) == 1 and found[place].kind in ("cpu", "gpu"):
        ways += [found[place].kind, found[place].kind.upper()]
    if sum(found[place].name.lower() in d.name.lower() for d in found) == 1:
        ways.append(found[place].name[2:])
    return ways


def test_a_device_by_every_name(queue, monkeypatch):
    used = []
    monkeypatch.setattr(HostPath, "run", lambda path, operands, queue, *_: used.append(queue.device))
    ways = ways_to_name(queue)
    for way in ways:
        pyclmm.matmul(X, X, device=way)
        pyclmm.gemm(X, X, device=way)
        used.append(pyclmm.Matmul(X, X, device=way)._product._queue.device)
    assert used == [queue.device] * 3 * len(ways)


def test_the_queue_on_a_device_is_kept(queue, monkeypatch):
    without_queues(monkeypatch)
    number = pyclmm.devices()[0].number
    kept = queues.queue_on(number)
    monkeypatch.setattr(queues, "find_device", None)  # is not asked again
    assert queues.queue_on(number) is kept
    queues.forget(kept.context)
    with pytest.raises(TypeError, match="not callable"):
        queues.queue_on(number)


def test_arrays_on_the_named_device(queue):
    x = cla.to_device(queue, X)
    assert (pyclmm.matmul(x, x, device=queue.device).get() == 3).all()


def test_arrays_of_another_device(queue, two_devices):
    """A sub-device stands for the other device."""
    other = two_devices[0]
    x = cla.to_device(queue, X)
    for call in (pyclmm.matmul, pyclmm.gemm, pyclmm.Matmul):
        with pytest.raises(pyclmm.ArgumentError, match=r"but the Arrays are on .*leave device out"):
            call(x, x, device=other)


def test_tune_takes_every_name(queue, monkeypatch):
    for way in ways_to_name(queue):
        tuning = pyclmm.tune([(8, 8, 8)], layouts=["NN"], budget=1e-9, device=way)
        assert tuning.device == devices_module.device_info(queue.device)


# ---- types -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_mypy_finds_the_marked_calls_and_no_other():
    """The marks are in tests/support/typed_calls.py."""
    pytest.importorskip("mypy", reason="needs mypy")
    file = Path(__file__).parent / "support/typed_calls.py"
    done = python("-m", "mypy", file, timeout=300, cwd=file.parents[2])
    assert done.returncode == 0, done.stdout + done.stderr
