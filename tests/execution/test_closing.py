"""The end of a plan: close, release, and the error when it is pickled."""

import copy
import gc
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.opencl.binding import Binding
from tests.support.plans import kept_plans

X = np.ones((8, 8), np.float32)
CLOSED = r"the plan is closed.*make another pyclmm.Matmul"


@pytest.fixture
def alive():
    """A function: how many Bindings more than before the test there are."""
    pyclmm.release()
    before = bindings()
    return lambda: bindings() - before


def bindings():
    gc.collect()
    return sum(isinstance(x, Binding) for x in gc.get_objects())


def test_a_plan_is_closed_by_the_end_of_its_block():
    with pyclmm.Matmul(X, X) as planned:
        assert (planned(X, X) == 8).all()
    with pytest.raises(pyclmm.ArgumentError, match=CLOSED):
        planned(X, X)
    with pytest.raises(pyclmm.ArgumentError, match=CLOSED), planned:
        pass


def test_a_closed_plan_refuses_calls_and_may_be_closed_again(queue):
    x = cla.to_device(queue, X)
    planned = pyclmm.Matmul(x, x, out=x.copy())
    planned.close()
    planned.close()
    for call in (planned, planned.enqueue):
        with pytest.raises(pyclmm.ArgumentError, match=CLOSED):
            call(x, x, out=x.copy())
    assert planned.kernel, "what it was can still be asked"


@pytest.mark.parametrize("way", ["release", "close"])
def test_release_and_close_free_the_workspace_of_every_thread(way, alive, queue):
    planned = pyclmm.Matmul(X, X, kernel="naive", queue=queue)
    ready, done = threading.Barrier(4), threading.Event()

    def work():
        planned(X, X)
        ready.wait(60)
        done.wait(60)  # the thread must live on: what it owns ends with it

    with ThreadPoolExecutor(3) as pool:
        threads = [pool.submit(work) for _ in range(3)]
        ready.wait(60)
        try:
            assert alive() == 4
            getattr(planned, way)()
            assert alive() == 0
        finally:
            done.set()
        for thread in threads:
            thread.result()
    if way == "release":
        assert (planned(X, X) == 8).all()


def test_release_frees_what_matmul_and_gemm_keep(own_caches, alive):
    with ThreadPoolExecutor(1) as pool:
        pool.submit(pyclmm.matmul, X, X).result()
        pyclmm.matmul(X, X)
        pyclmm.gemm(X, X, trans_a="T")
        assert alive() >= 3
        pyclmm.release()
        assert alive() == 0
    assert not kept_plans()
    assert (pyclmm.matmul(X, X) == 8).all()


def test_release_does_not_disturb_a_running_product(queue):
    x = cla.to_device(queue, np.ones((300, 300), np.float32))
    planned = pyclmm.Matmul(x, x)
    results = []
    for _ in range(20):
        results.append(planned(x, x))
        planned.release()
    assert all((result.get() == 300).all() for result in results)


@pytest.mark.parametrize("way", [pickle.dumps, copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"])
def test_a_plan_is_not_pickled(queue, way):
    x = cla.to_device(queue, X)
    planned = pyclmm.Matmul(x, x, out=x)
    for one in (planned, planned.bind(x, x, out=x), pyclmm.ManyMatmul([(X, X)]), pyclmm.StreamedMatmul(X, X)):
        name = type(one).__name__
        words = rf"a {name} .* cannot be pickled or copied.*make one there"
        with pytest.raises(pyclmm.DTypeError, match=words):
            way(one)
