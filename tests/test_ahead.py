"""warm: after it the first call compiles nothing, and its errors say what would do."""

import json

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.checks import selfcheck
from pyclmm.opencl import program
from pyclmm.plan import programs_of
from tests.support.commands import command
from tests.support.contexts import new_queue
from tests.support.faults import (
    BUILD_FAILURE,
    OUT_OF_RESOURCES,
    cl_error,
    failing,
    noted,
    noted_launches,
    refuse_kernels,
)
from tests.support.processes import nothing_checked, python

A, B = ((37, 41), "float32"), ((41, 30), "float32")


@pytest.fixture
def own_queue(queue, own_caches):
    return new_queue(queue.device)


@pytest.fixture
def checks(monkeypatch):
    """The kernels whose self-check is run."""
    found = []
    noted(monkeypatch, selfcheck, "first_wrong_result", lambda *args: found.append(args[2].name))
    nothing_checked(monkeypatch)
    return found


def ones(spec, queue=None):
    array = np.ones(*spec)
    return array if queue is None else cla.to_device(queue, array)


def test_the_first_call_compiles_nothing(own_queue, builds):
    plans = pyclmm.warm((A, B), (((7, 5, 3), "int16"), ((3, 4), "int16")), queue=own_queue)
    made = len(builds)
    assert made >= 2
    assert (pyclmm.matmul(ones(A), ones(B), queue=own_queue) == 41).all()
    assert (pyclmm.matmul(np.ones((7, 5, 3), "i2"), np.ones((3, 4), "i2"), queue=own_queue) == 3).all()
    assert len(builds) == made
    assert [plan.kernel for plan in plans] == [
        pyclmm.Matmul(ones(A), ones(B), queue=own_queue).kernel,
        pyclmm.Matmul(np.ones((7, 5, 3), "i2"), np.ones((3, 4), "i2"), queue=own_queue).kernel,
    ]
    assert (plans[0](ones(A), ones(B)) == 41).all()


def test_all_keywords_of_a_plan_are_taken(own_queue, builds):
    bias, c = ((30,), "float32"), ((37, 30), "float32")
    keywords = {"beta": 2.0, "activation": "relu", "trans_b": "T", "kernel": "naive", "queue": own_queue}
    [plan] = pyclmm.warm((A, ((30, 41), "float32"), c), bias=bias, **keywords)
    assert plan.kernel == "naive"
    del builds[:]
    b = np.ones((30, 41), "f4")
    assert (pyclmm.gemm(ones(A), b, ones(c), bias=ones(bias), **keywords) == 44).all()
    assert not builds


def test_arrays_on_the_device_have_their_copies_compiled_too(own_queue, builds):
    """float32 with float64 needs a copy."""
    b = ((41, 30), "float64")
    pyclmm.warm((A, b), on_device=True, queue=own_queue, out=((37, 30), "float32"))
    assert "copy.cl" in [source for source, _ in builds]
    del builds[:]
    out = cla.zeros(own_queue, (37, 30), np.float32)
    pyclmm.matmul(ones(A, own_queue), ones(b, own_queue), out=out)
    assert (out.get() == 41).all()
    assert not builds


def test_every_copy_is_run(monkeypatch, own_queue):
    """PoCL compiles a kernel when it is launched."""
    launches = noted_launches(monkeypatch)
    [plan] = pyclmm.warm((A, ((41, 30), "float64")), on_device=True, queue=own_queue)
    [copy] = [program.built(own_queue.context, one) for one in programs_of(plan) if one.source == "copy.cl"]
    assert copy in [kernel.program for kernel, _, _ in launches]


def test_nothing_is_allocated_for_a_shape_on_the_device(monkeypatch, own_queue):
    """Neither on the host: the arrays may be larger than its memory."""
    sizes = []

    class Recorded(cl.Buffer):
        def __init__(self, context, flags, size=0, hostbuf=None):
            sizes.append(size)
            super().__init__(context, flags, size, hostbuf)

    monkeypatch.setattr(cl, "Buffer", Recorded)
    large = ((1 << 20, 1 << 20), "float32")  # 4 TiB
    [plan] = pyclmm.warm((large, ((1 << 20, 1), "float32")), on_device=True, queue=own_queue, kernel="naive")
    assert plan.kernel == "naive"
    assert 0 < sum(sizes) < 1 << 20


def test_arrays_stand_for_their_layout(own_queue, builds):
    a, b = ones(A, own_queue), ones(B, own_queue)
    [plan] = pyclmm.warm((a[::2], b))
    del builds[:]
    assert (plan(a[::2], b).get() == 41).all()
    assert (pyclmm.matmul(a[::2], b).get() == 41).all()
    assert not builds


@pytest.mark.parametrize("on_device", [False, True], ids=["NumPy", "Arrays"])
def test_the_order_of_a_shape_counts(own_queue, on_device):
    [rows, columns] = pyclmm.warm((A, B), ((*A, "F"), B), queue=own_queue, on_device=on_device)
    assert "NN" in repr(rows)
    assert "TN" in repr(columns)


def test_a_verdict_that_is_kept_is_run_all_the_same_once(monkeypatch, own_queue, checks):
    """Else a driver that compiles at the first launch would do it in the first call."""
    pyclmm.Matmul(ones(A), ones(B), kernel="naive", queue=own_queue)
    assert checks == ["naive"]
    del checks[:]
    pyclmm.warm((A, B), (A, B), kernel="naive", queue=own_queue)
    assert not checks, "it ran in this process"
    nothing_checked(monkeypatch)
    pyclmm.Matmul(ones(A), ones(B), kernel="naive", queue=own_queue)
    assert not checks, "it is kept on disk"
    pyclmm.warm((A, B), (A, B), kernel="naive", queue=own_queue)
    pyclmm.Matmul(ones(A), ones(B), kernel="naive", queue=own_queue)
    assert checks == ["naive"]


def test_without_self_checks_the_programs_run_all_the_same(monkeypatch, own_queue, checks):
    monkeypatch.setenv("PYCLMM_SELFCHECK", "off")
    pyclmm.warm((A, B), kernel="naive", queue=own_queue)
    assert checks == ["naive"]
    pyclmm.Matmul(ones(A), ones(B), kernel="naive", queue=own_queue)
    assert checks == ["naive"]


def test_a_kernel_found_wrong_is_refused_though_its_verdict_was_good(monkeypatch, own_queue, checks):
    pyclmm.Matmul(ones(A), ones(B), kernel="naive", queue=own_queue)
    nothing_checked(monkeypatch)
    refuse_kernels(monkeypatch, "wrong today")
    with pytest.raises(pyclmm.UnsupportedError, match="wrong today"):
        pyclmm.warm((A, B), kernel="naive", queue=own_queue)


def test_a_device_is_found_by_its_name(own_caches):
    device = pyclmm.devices()[0]
    [plan] = pyclmm.warm((A, B), device=device.number, on_device=True)
    assert plan.kernel
    with pytest.raises(pyclmm.ArgumentError, match="queue and device are both given"):
        pyclmm.warm((A, B), device=device.number, queue=pyclmm.default_queue())


def test_no_products_need_nothing():
    assert pyclmm.warm() == []


X = np.ones((3, 3), "f4")


@pytest.mark.parametrize(
    ("products", "error", "words"),
    [
        ((X, X), pyclmm.DTypeError, r"product 1 is a ndarray; pass .* tuple: warm\(\(a, b\)"),
        (((X, X), (X,)), pyclmm.ArgumentError, r"product 2 has 1 operand; pass \(a, b\) or \(a, b, c\)"),
        (((X, X, X, X),), pyclmm.ArgumentError, "product 1 has 4 operands"),
        (((X, "f4"),), pyclmm.DTypeError, r"b of product 1 is a str; pass an array, \(shape, dtype\)"),
        (((X, (3, 3)),), pyclmm.DTypeError, r"b of product 1 is \(3, 3\) \(.*\); pass an array"),
        (((X, ((3, 3), "float33")),), pyclmm.DTypeError, r"b of product 1 is .*float33.*; pass an array"),
        (((X, ((3, -3), "f4")),), pyclmm.DTypeError, r"b of product 1 .*negative.*; pass an array"),
        (((X, ((3, 3),)),), pyclmm.DTypeError, r"b of product 1 is .*; pass an array"),
        (([(X, X), (X, X)],), pyclmm.DTypeError, r"a of product 1 is [^\n]{,200}; pass an array"),
        (((X, ((4, 3), "f4")),), pyclmm.ShapeError, "3"),
        (((X, X, X),), pyclmm.ArgumentError, "c is given without beta"),
        (((((1 << 46, 3), "f4"), X),), pyclmm.DeviceMemoryError, "a of product 1 is .*too large here"),
    ],
)
def test_what_cannot_be_multiplied_is_named(products, error, words):
    with pytest.raises(error, match=words):
        pyclmm.warm(*products)


ON_DEVICE = r"on_device is .*; pass True or False"


@pytest.mark.parametrize(
    ("name", "value", "error", "words"),
    [
        *(("on_device", x, pyclmm.DTypeError, ON_DEVICE) for x in (None, 1, "yes", np.array([1, 2]))),
        ("bias", 1.0, pyclmm.DTypeError, "bias is a float; pass an array"),
        ("wait_for", [], TypeError, "wait_for"),
    ],
    ids=str,
)
def test_a_keyword_that_is_not_taken_is_named(name, value, error, words):
    with pytest.raises(error, match=words):
        pyclmm.warm((X, X), **{name: value})


@pytest.mark.parametrize("on_device", [True, False])
def test_a_device_that_is_lost_is_told(own_queue, on_device):
    fault = failing("opencl.launcher", "enqueue_copy", cl_error(OUT_OF_RESOURCES))
    with fault, pytest.raises(pyclmm.DeviceLostError):
        pyclmm.warm((A, ((41, 30), "float64")), on_device=on_device, queue=own_queue)


def test_the_command_warms_later_processes(own_caches, tmp_path):
    """Nothing is checked again by a process that finds what `pyclmm warm` kept."""
    shown = command("warm", "33x29x31,5x7x9", "--dtype", "float32", "--layout", "NT")
    assert shown.stdout.count("Matmul 33 x 29 x 31 float32 @ float32 NT:") == 1
    assert shown.stdout.count("Matmul 5 x 7 x 9 float32 @ float32 NT:") == 1
    code = (
        "import numpy as np, pyclmm; from pyclmm.checks import small_problems as s;"
        "s.first_wrong_result = lambda *a, **k: 1 / 0;"
        "x, y = np.ones((33, 31), 'f4'), np.ones((29, 31), 'f4');"
        "assert (pyclmm.matmul(x, y.T) == 31).all()"
    )
    python("-c", code, check=True)


@pytest.mark.parametrize(("options", "status"), [((), 0), (("--strict",), 1)])
def test_the_command_says_that_a_kernel_fell_back(own_caches, options, status):
    # twice: its build is repeated past a damaged cache
    fault = failing("opencl", "Program", cl_error(BUILD_FAILURE), times=2)
    with fault, pytest.warns(pyclmm.KernelWarning, match="is used instead"):
        shown = command("warm", "33x45x31", "--json", *options, status=status)
    assert json.loads(shown.stdout)["failed"]
    assert ("Error: another kernel is used instead: " in shown.stderr) == bool(status)


def test_the_command_says_if_nothing_is_kept(own_caches, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PYCLMM_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(pyclmm.CacheWarning, match="not all can be kept"):
        shown = command("warm", "3x4x5", "--dtype", "float32", status=2)
    assert "not all is kept" in shown.stderr
    assert f"cannot write {tmp_path}/file/cache/" in shown.stderr
    assert "kept in" not in shown.stdout
