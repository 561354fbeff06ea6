"""The self-check: a kernel that gives wrong results on a device is not used there."""

import itertools
import json
import math
import os
import random
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.checks import isolation, selfcheck, small_problems
from pyclmm.checks.layouts import Decks
from pyclmm.kernels import kernel_named
from pyclmm.kernels.config import TileConfig
from pyclmm.opencl import crash_marks
from pyclmm.opencl.devices import default_device, device_info
from pyclmm.opencl.queues import default_queue
from pyclmm.problem.canonical import checked_gemm
from pyclmm.problem.dtypes import dtype_of
from pyclmm.problem.gemm import dense
from tests.conformance.offline import TARGETS
from tests.kernels.nvidia.test_matrix_units import problem as nvidia_problem
from tests.support.cases import SAMPLE, problem_of, refused, taken_by
from tests.support.faults import changed_source, changed_sources, failing, noted, refuse_kernels
from tests.support.made_up import EPYC_POCL, H200, XEON_POCL
from tests.support.processes import as_in_a_new_process, python

DEVICE = device_info(default_device())

# Faults of a driver: (source file, right text, text that computes what the driver would)
WRONG = {
    "a product left out": ("textbook/tiled.cl", "k < TW; ++k", "k < TW - 1; ++k"),
    "a bound shifted": ("textbook/tiled.cl", "t < K; t += TW", "t + TW < K; t += TW"),
    "edges not guarded": ("include/gemm.h", "if ((i) < (M) && (j) < (N))", "if ((i) < (M))"),
    "padding read": ("include/gemm.h", "((i) < (M) && (k) < (K) ?", "((i) < (M) ?"),
    "alpha forgotten": ("include/gemm.h", "ACC_T value = SCALE(alpha, acc);", "ACC_T value = acc;"),
}


@pytest.fixture(autouse=True)
def fresh(own_caches):
    return own_caches


@pytest.fixture
def queue(fresh):
    """A queue of a new context, in which no program is built yet."""
    return default_queue()


def operands(m=19, k=21, n=18):
    rng = np.random.default_rng(3)
    return rng.standard_normal((m, k), dtype=np.float32), rng.standard_normal((k, n), dtype=np.float32)


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_kernel_is_refused_when_asked_for(monkeypatch, queue, fault):
    changed_source(monkeypatch, *WRONG[fault])
    a, b = operands()
    with pytest.raises(pyclmm.UnsupportedError, match="tiled: wrong result in the self-check"):
        pyclmm.matmul(a, b, kernel="tiled", queue=queue)


def test_a_term_alone_is_not_drawn_as_zero(monkeypatch, queue):
    changed_source(monkeypatch, "textbook/naive.cl", "k < K; ++k", "k < K - (K == 1); ++k")
    a, b = operands(k=1)
    with pytest.raises(pyclmm.UnsupportedError, match="1 x 1 x 1 float32"):
        pyclmm.matmul(a, b, kernel="naive", queue=queue)


def test_auto_steps_down_the_ladder_with_one_warning(monkeypatch, two_rungs, queue):
    changed_source(monkeypatch, *WRONG["a product left out"])
    a, b = operands()
    with pytest.warns(pyclmm.KernelWarning, match=r"tiled: wrong result.*'naive' is used") as caught:
        c = pyclmm.matmul(a, b, queue=queue)
    assert len(caught) == 1
    assert queue.device.name.strip() in str(caught[0].message)
    assert pyclmm.checks.reference.error_ratio(c, a, b) < pyclmm.checks.reference.limit(21)


def test_when_every_kernel_is_wrong_the_call_raises(monkeypatch, queue):
    def forgotten(_name, text):  # alpha, where vectors are stored too
        return text.replace("SCALE(alpha, acc)", "acc").replace("alpha * FINAL_SUM", "FINAL_SUM")

    changed_sources(monkeypatch, forgotten)
    a, b = operands()
    with pytest.raises(pyclmm.UnsupportedError, match="no kernel could be used"):
        pyclmm.matmul(a, b, queue=queue)


def checked(*shapes, kernel="tiled"):
    """How many small problems are run for products of these shapes, each multiplied in its own thread."""
    pairs = [operands(*shape) for shape in shapes or [()]]
    with (
        failing("opencl.launcher", "enqueue_copy", None, times=0) as results,
        ThreadPoolExecutor(len(pairs)) as pool,
    ):
        list(pool.map(lambda pair: pyclmm.matmul(*pair, kernel=kernel), pairs))
    return results.calls


def test_a_verdict_is_kept_in_the_process_and_on_disk(monkeypatch, fresh):
    assert checked()
    assert not checked((9, 21, 18))
    as_in_a_new_process(monkeypatch)
    assert not checked((8, 21, 18))
    files = list((fresh / "selfcheck").glob("*.json"))
    assert len(files) == 1
    assert files[0].stat().st_mode & 0o077 == 0
    assert json.loads(files[0].read_text())["reason"] is None


def test_a_changed_source_is_checked_again(monkeypatch):
    assert checked()
    changed_source(monkeypatch, "textbook/tiled.cl", "/* tiled:", "/* changed:")
    assert checked((8, 21, 18))


def test_threads_that_need_one_verdict_wait_for_one_check(monkeypatch, fresh):
    alone = checked()
    shutil.rmtree(fresh)
    as_in_a_new_process(monkeypatch)
    assert checked(*((m, 21, 18) for m in range(1, 9))) == alone
    assert not checked((9, 21, 18)), "no thread is left to wait for"


SHAPES = [
    (6, 5, 7), (64, 64, 64), (1000, 1001, 999), (1, 4096, 4096), (4096, 1, 4096), (7, 5000, 300),
    (8192, 8192, 8192),
]  # fmt: skip
KINDS = [
    *((name, "highest") for name in ("float32", "float64", "float16", "bfloat16")),
    *(("float32", precision) for precision in ("medium", "high")),
    ("float64", "high"),
]


def programs(work):
    return {launch.program for launch in work.launches}


def cases(problem, kernel, config, device):
    """The small problems of a check, with their launches."""
    wanted = kernel.launches(problem, config, device)
    return small_problems.cases(problem, kernel, config, device, wanted, Decks(np.random.default_rng(1)))


@pytest.mark.parametrize("device", [DEVICE, H200], ids=["this device", "H200"])
@pytest.mark.parametrize("kernel", pyclmm.KERNELS, ids=lambda k: k.name)
def test_a_check_takes_little_arithmetic(kernel, device):
    """A check must end in 50 ms: `naive` makes 50 million products meanwhile on a CPU, others more."""
    problem = taken_by(kernel, problem_of(1 if kernel.name == "matvec" else 1000, 777, 513))
    if kernel.refuses(problem, device) is not None or not kernel.configs(problem, device):
        pytest.skip("not for that device")
    config = kernel.configs(problem, device)[0]
    work = [p.m * p.n * p.k for p in (case.problem for case in cases(problem, kernel, config, device))]
    # packed, by which dequantized multiplies on CPUs: 84 to 94 million with AVX-512.
    most = {"naive": 20e6, "packed": 95e6, "dequantized": 95e6}.get(kernel.name, 70e6)
    assert 0 < sum(work) <= most


@pytest.mark.parametrize("layout", ["NN", "NT", "TT"])
@pytest.mark.parametrize(
    ("kind", "out"),
    [("float16", "float16"), ("float16", "float32"), ("float32", "float32"), ("int8", "int32")],
)
def test_the_end_of_a_tile_that_overlaps_the_next_is_checked(kind, out, layout):
    """A lone work-group gets enough tiles and blocks of K for that (`drains` in cl/nvidia/wgmma_drain.cl)."""
    kernel = kernel_named("wgmma")
    problem = nvidia_problem(kind, 8192, 8192, 8192, layout, out_type=out, precision="medium")
    config = next(c for c in kernel.configs(problem, H200) if c.option("drain"))
    first = next(cases(problem, kernel, config, H200))
    small = first.problem
    alone = replace(H200, compute_units=1)
    wanted = programs(kernel.launches(problem, config, H200))
    given = (small.n, small.m) if config.option("swapped") else (small.m, small.n)
    sides = sorted(np.subtract(given, (config.bm, config.bn)))
    assert sides == [0, 16], "a whole tile and a part of one"
    assert math.ceil(small.k / config.bk) > 4 * (config.bn // 64 - 1) - 4, "CHUNK_STEP of the last chunk"
    assert programs(kernel.launches(small, config, alone)) == wanted
    groups = [math.prod(one.global_size) // math.prod(one.local_size) for one in first.work.launches]
    assert min(groups) == 1
    assert 2 * small.m * small.n * small.k <= 80e6, "13 ms of NumPy on two cores of a Zen 5"


@pytest.mark.parametrize("kernel", pyclmm.KERNELS, ids=lambda k: k.name)
def test_every_program_that_a_product_runs_is_checked(kernel, rounds):
    """Where macros depend on the sizes, small problems are not enough, so larger ones are checked too."""
    devices = (DEVICE, EPYC_POCL, XEON_POCL, H200, *(target.device for target in TARGETS))
    every = list(itertools.product(SHAPES, KINDS, (64, 4), devices))
    random.Random(8).shuffle(every)
    chosen, most = 0, rounds(len(every)) // 4
    for (m, n, k), (name, precision), align, device in every:
        a, b = (replace(dense(s, dtype_of(name)), align=align) for s in ((m, k), (k, n)))
        problem = taken_by(kernel, replace(checked_gemm(a, b).problem, precision=precision))
        if chosen == most or kernel.refuses(problem, device) or not kernel.configs(problem, device):
            continue
        chosen += 1
        config = kernel.configs(problem, device)[0]
        wanted = programs(kernel.launches(problem, config, device))
        for case in cases(problem, kernel, config, device):
            wanted -= programs(case.work)
            if not wanted:
                break
        assert not wanted, (problem, config)
    assert chosen, "no device here runs this kernel"


def test_a_kernel_that_cannot_be_checked_is_not_used(monkeypatch, queue):
    monkeypatch.setattr(small_problems, "cases", lambda *_: iter(()))
    a, b = operands()
    with pytest.raises(pyclmm.UnsupportedError, match="cannot be checked"):
        pyclmm.matmul(a, b, kernel="tiled", queue=queue)


def test_the_check_can_be_turned_off(monkeypatch, queue):
    changed_source(monkeypatch, *WRONG["a product left out"])
    monkeypatch.setenv("PYCLMM_SELFCHECK", "off")
    a, b = operands()
    c = pyclmm.matmul(a, b, kernel="tiled", queue=queue)
    assert pyclmm.checks.reference.error_ratio(c, a, b) > pyclmm.checks.reference.limit(21)


def test_the_check_has_an_in_order_queue_of_its_own(monkeypatch, queue):
    """The caller's queue may be out of order, or hold commands that wait for the caller."""
    used = noted(monkeypatch, selfcheck, "first_wrong_result")
    kind = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    own = cl.CommandQueue(queue.context, properties=kind)
    a, b = operands()
    pyclmm.matmul(a, b, kernel="tiled", queue=own)
    [(checking, *_)] = used
    assert checking.context == own.context
    assert not checking.properties & kind


def test_an_out_of_order_queue_admits_the_same_kernels(monkeypatch, queue, recwarn):
    kind = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    own = cl.CommandQueue(queue.context, properties=kind)
    for name in ("f4", "f8", "c8", "c16", "i1", "i4", "u2", "i8"):
        a = cla.to_device(own, (np.arange(70 * 70) % 5).reshape(70, 70).astype(name))
        plans = [pyclmm.Matmul(a, a, queue=each) for each in (own, queue)]
        assert plans[0].kernel == plans[1].kernel
        assert np.array_equal(plans[0](a, a).get(), a.get() @ a.get())
    assert not [w for w in recwarn if issubclass(w.category, pyclmm.KernelWarning)]


def reasons(folder):
    return [json.loads(path.read_text())["reason"] for path in (folder / "selfcheck").glob("*.json")]


def tried(patch, reason):
    """A child finds that wrong with every kernel."""
    patch.setattr(isolation, "trial", lambda *_: isolation.TrialResult(reason))


@pytest.fixture
def wrong(monkeypatch):
    """A function: what this process refuses `tiled` for. *trial*: a child finds that wrong, too."""
    changed_source(monkeypatch, *WRONG["a product left out"])
    a, b = operands()

    def refusal(trial=None):
        if trial is not None:
            tried(monkeypatch, trial)
        with pytest.raises(pyclmm.UnsupportedError) as caught:
            pyclmm.matmul(a, b, kernel="tiled")
        return str(caught.value)

    return refusal


@pytest.mark.parametrize("trials", ["on", "off"])
def test_what_is_wrong_only_here_is_not_kept(monkeypatch, wrong, fresh, trials):
    """A child finds nothing wrong, or is not asked: the fault may lie with this process."""
    monkeypatch.setenv("PYCLMM_TRIAL", trials)
    for _ in range(2):
        assert "tiled: wrong result in the self-check" in wrong()
    assert not reasons(fresh)
    assert crash_marks.detour(DEVICE) == 0


def test_what_is_wrong_in_a_child_too_is_kept(monkeypatch, wrong, fresh):
    monkeypatch.setenv("PYCLMM_TRIAL", "on")
    assert "there too" in wrong("wrong result in the self-check, there too")
    assert reasons(fresh) == ["wrong result in the self-check, there too"]


def test_nothing_is_kept_against_a_kernel_while_the_disk_is_full(monkeypatch, wrong, fresh):
    """PoCL ends its process then, whatever the kernel is."""
    monkeypatch.setenv("PYCLMM_TRIAL", "on")
    monkeypatch.setattr(selfcheck, "pocl_fault", lambda _: "no room")
    assert "SIGABRT" in wrong("it ended with SIGABRT")
    assert not reasons(fresh)


def test_a_verdict_against_a_kernel_dies_with_the_version(monkeypatch, queue, fresh):
    """A ban that an older pyclmm kept by mistake ends with the update."""
    monkeypatch.setenv("PYCLMM_TRIAL", "on")
    a, b = operands()
    with monkeypatch.context() as patch:
        patch.setattr(selfcheck, "__version__", "0.0.1")
        tried(patch, "wrong, it says")
        refuse_kernels(patch, "wrong, it says")
        with pytest.raises(pyclmm.UnsupportedError, match="wrong, it says"):
            pyclmm.matmul(a, b, kernel="tiled", queue=queue)
    [ban] = (fresh / "selfcheck").iterdir()
    as_in_a_new_process(monkeypatch)
    c = pyclmm.matmul(a, b, kernel="tiled", queue=queue)
    assert pyclmm.checks.reference.error_ratio(c, a, b) < pyclmm.checks.reference.limit(21)
    [new] = set((fresh / "selfcheck").iterdir()) - {ban}
    assert json.loads(ban.read_text())["reason"] == "wrong, it says"
    assert json.loads(new.read_text())["reason"] is None


@pytest.mark.parametrize("kernel", pyclmm.KERNELS, ids=lambda k: k.name)
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "tanh"])
def test_right_kernels_pass_with_every_epilogue(queue, kernel, activation):
    m = 1 if kernel.name == "matvec" else 6
    a, b = operands(m, 7, 5)
    c, bias = np.ones((m, 5), np.float32), np.ones(5, np.float32)
    call = {"alpha": 2.0, "beta": 0.5, "bias": bias, "activation": activation, "kernel": kernel.name}
    try:
        got = pyclmm.gemm(a, b, c, queue=queue, **call)
    except pyclmm.UnsupportedError as error:
        refused(kernel, str(error))
    assert np.isfinite(got).all()


def test_each_work_group_size_has_a_verdict_of_its_own(queue):
    """One program can be right with one size of work-group and wrong with another."""
    naive, device = kernel_named("naive"), device_info(queue.device)
    works = [naive.launches(SAMPLE, TileConfig(bm=tile, bn=tile), device) for tile in (8, 4)]
    assert works[0].launches[0].program == works[1].launches[0].program
    assert all(checked(kernel=("naive", TileConfig(bm=tile, bn=tile))) for tile in (8, 4))


LOGGED = """
import logging, sys
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
import numpy, pyclmm
x = numpy.ones((4, 4), numpy.float32)
pyclmm.matmul(x, x, kernel="naive")
"""


def test_a_verdict_of_other_code_of_the_checks_does_not_count(tmp_path):
    package, own = Path(pyclmm.__file__).parent, tmp_path / "pyclmm"
    own.mkdir()
    (tmp_path / "cl").symlink_to(package.parent / "cl")
    for path in package.iterdir():
        if path.name != "checks":
            (own / path.name).symlink_to(path)
    shutil.copytree(package / "checks", own / "checks")

    def comes_from_disk():
        env = os.environ | {"PYTHONPATH": str(tmp_path)}
        shown = python("-c", LOGGED, check=True, cwd=tmp_path, env=env).stdout
        assert "self-check of naive" in shown
        return re.search("self-check of naive on .*, from disk: right", shown) is not None

    assert [comes_from_disk(), comes_from_disk()] == [False, True]
    with (own / "checks/small_problems.py").open("a") as file:
        file.write("# another check")
    assert not comes_from_disk()


def test_a_check_does_not_raise_where_the_callers_arithmetic_would():
    """The numbers of a check are too small or large for float16, also as copies."""
    x = np.ones((5, 6), np.float16)
    with np.errstate(all="raise"):
        for queue, keywords in itertools.product((None, default_queue()), ({}, {"dtype": "f8"})):
            given = x if queue is None else cla.to_device(queue, x)
            product = pyclmm.matmul(given, given.T, reproducible=True, kernel="naive", **keywords)
            assert np.array_equal(x @ x.T, product if queue is None else product.get())
