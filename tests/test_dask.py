"""pyclmm.dask in one process, on Dask's threads: products against NumPy's, graphs, errors, backend()."""

import os
import re
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyclmm
from pyclmm import ArgumentError, DTypeError, ShapeError, file_locks
from pyclmm.opencl import staging
from pyclmm.opencl.devices import default_device, device_info
from tests.support.faults import failing, replace_driver
from tests.support.processes import python
from tests.support.selection import examples

dask = pytest.importorskip("dask", reason="needs dask")
da = pytest.importorskip("dask.array", reason="needs dask")

import pyclmm.dask  # noqa: E402 - it needs dask
from pyclmm.dask import block, workers  # noqa: E402

# Few, as each pair has programs of its own to compile.
DTYPES = [(name, name) for name in ("float32", "float16", "int8", "bool")] + [("int8", "float32")]


@pytest.fixture(autouse=True)
def threads():
    with dask.config.set(scheduler="threads", num_workers=2):
        yield


class Work:
    """What tasks multiply: the ``keywords`` of each product, and the chunks of x and y of each ``task``."""

    def __init__(self, patch):
        self.keywords, self.tasks, multiply = [], [], block.multiply

        def product(*operands, **keywords):
            self.keywords.append(keywords)
            return pyclmm.gemm(*operands, **keywords)

        def task(product, xs, ys, *rest):
            self.tasks.append((xs, ys))
            return multiply(product, xs, ys, *rest)

        patch.setattr(block, "gemm", product)
        patch.setattr("pyclmm.dask.graph.multiply", task)


@pytest.fixture
def work(monkeypatch):
    return Work(monkeypatch)


@pytest.fixture(params=[None])
def small(request, limits):
    """Chunks of so many bytes are multiplied together; None: as always."""
    if request.param is not None:
        limits(dask=request.param)
    return request.param


def numbers(rng, shape, dtype="float32"):
    """Small integers: their products are exact in every dtype, whatever the order."""
    found = rng.integers(0, 4, shape)
    return found.astype(dtype) if dtype == "bool" or dtype[0] == "u" else (found - 2).astype(dtype)


def tasks_of(product):
    """The tasks of pyclmm in a graph."""
    return [key for key in dict(product.dask) if str(key[0]).startswith("pyclmm-")]


def same(product, expected):
    got = product.compute()
    assert product.shape == np.shape(got) == expected.shape
    assert product.dtype == got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


# products


def cut(draw, length):
    """Chunks of a length, some of them empty."""
    edges = sorted(draw(st.lists(st.integers(0, length), max_size=3)))
    return tuple(np.diff([0, *edges, length]).tolist())


@st.composite
def products(draw):
    """Operands of numpy.matmul with their chunks."""
    m, k, n = (draw(st.integers(0, 9)) for _ in range(3))
    left, right = draw(st.sampled_from([(0, 0), (1, 0), (0, 2), (1, 2), (2, 2)]))
    stack = [draw(st.integers(1, 3)) for _ in range(2)]
    xs = [draw(st.sampled_from([1, s])) for s in stack[2 - left :]] if left else []
    ys = [draw(st.sampled_from([1, s])) for s in stack[2 - right :]] if right else []
    x = (k,) if not left and draw(st.booleans()) else (*xs, m, k)
    y = (k,) if not right and draw(st.booleans()) else (*ys, k, n)
    chunks = [tuple(cut(draw, length) for length in shape) for shape in (x, y)]
    return (x, y), chunks, draw(st.sampled_from(DTYPES))


@pytest.mark.parametrize("small", [0, None], indirect=True, ids=["each chunk", "merged"])
@given(drawn=products(), seed=st.integers(0, 99), limit=st.sampled_from([None, 64, 600]), merge=st.booleans())
@examples(20)
def test_matmul_is_numpys(small, drawn, seed, limit, merge):
    shapes, chunks, dtypes = drawn
    rng = np.random.default_rng(seed)
    a, b = (numbers(rng, shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True))
    x, y = (da.from_array(z, chunks=c) for z, c in zip((a, b), chunks, strict=True))
    product = pyclmm.dask.matmul(x, y, memory_limit=limit, host_limit=limit, merge_chunks=merge)
    same(product, np.asarray(np.matmul(a, b)))


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize(
    ("shapes", "chunks"),
    [
        ([(1, 3, 3), (2, 3, 3)], [((0, 1), 3, 3), ((1, 1), 3, 3)]),  # a stack of one in several chunks
        ([(2, 3, 3), (1, 3, 3)], [(2, 3, 3), ((1, 0, 0), 3, 3)]),
        ([(0, 3), (3, 3)], [((0, 0), 3), (3, 3)]),
        ([(3, 3), (3, 3)], [(3, (0, 2, 1)), ((1, 2, 0), 3)]),
        ([(2, 0), (0, 2)], [(2, (0, 0)), ((0, 0, 0), 2)]),
        ([(0,), (0,)], [((0, 0, 0),), ((0,),)]),
        ([(0,), (0,)], [((0, 0, 0),), ((0, 0),)]),
    ],
)
def test_chunks_may_be_empty(rng, shapes, chunks, merge):
    """As those are that a mask has selected, once their sizes are computed."""
    arrays = [numbers(rng, shape, "int32") for shape in shapes]
    x, y = (da.from_array(a, chunks=c) for a, c in zip(arrays, chunks, strict=True))
    same(pyclmm.dask.matmul(x, y, merge_chunks=merge), np.asarray(np.matmul(*arrays)))


@pytest.mark.parametrize(("small", "each"), [(800, 1), (799, 2), (399, 16)], indirect=["small"])
def test_small_chunks_are_multiplied_together(rng, work, small, each):
    """A task has 8 x 2 chunks in each of two steps; those of x have 400 bytes, those of y 800."""
    a, b = numbers(rng, (80, 20)), numbers(rng, (20, 160))
    x, y = da.from_array(a, chunks=10), da.from_array(b, chunks=(10, 20))
    product = pyclmm.dask.matmul(x, y, memory_limit="1 GiB", host_limit="1 GiB")
    same(product, a @ b)
    assert len(work.keywords) == len(tasks_of(product)) * 2 * each


@pytest.mark.parametrize(
    "axes", [2, 1, 0, -1, ([0, 1], [1, 0]), ([1, 0], [0, 1]), (0, 1), ([-1], [-1]), ([2], (2,))], ids=str
)
def test_tensordot_is_numpys(rng, axes):
    a, b = numbers(rng, (4, 6, 5)), numbers(rng, (6, 4, 5))
    if isinstance(axes, int):
        b = numbers(rng, {2: (6, 5, 3), 1: (5, 7, 2)}.get(axes, (2, 3)))
    x, y = da.from_array(a, chunks=(2, 4, 3)), da.from_array(b, chunks=3)
    same(pyclmm.dask.tensordot(x, y, axes), np.tensordot(a, b, axes))
    same(pyclmm.dask.tensordot(x, y, axes, memory_limit=300, host_limit=300), np.tensordot(a, b, axes))


def test_numpy_arrays_and_lists_become_dask_arrays(rng):
    a = numbers(rng, (3, 4))
    same(pyclmm.dask.matmul(a, da.from_array(a.T, chunks=2)), a @ a.T)
    same(pyclmm.dask.matmul([[1.0, 2.0]], da.from_array(np.ones((2, 1)), chunks=1)), np.array([[3.0]]))


def test_chunks_in_any_byte_order_and_memory_order(rng):
    a, b = numbers(rng, (6, 8)).astype(">f4"), np.asfortranarray(numbers(rng, (8, 5)))
    got = pyclmm.dask.matmul(da.from_array(a, chunks=3), da.from_array(b, chunks=4)).compute()
    np.testing.assert_array_equal(got, a @ b)


def test_float16_is_summed_in_float32_over_chunks_of_k():
    """2048 + 1 is no float16: sums in float16 would stay at 2048."""
    a = np.ones((1, 2050), np.float16)
    x, y = (da.from_array(z, chunks=((1,), (2048, 1, 1))[:: 1 if z is a else -1]) for z in (a, a.T))
    one = pyclmm.dask.matmul(x, y)
    assert len(tasks_of(one)) == 1
    chain = pyclmm.dask.matmul(x, y, host_limit=4000)  # a task for each part of K
    assert len(tasks_of(chain)) > 2
    for product in (one, chain):
        assert product.dtype == np.float16
        assert product.compute()[0, 0] == 2050


def test_bfloat16(rng):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a = numbers(rng, (4, 6)).astype(ml_dtypes.bfloat16)
    same(pyclmm.dask.matmul(da.from_array(a, chunks=2), da.from_array(a.T, chunks=3)), np.matmul(a, a.T))


def test_keywords_reach_the_workers(rng, work):
    x = da.from_array(numbers(rng, (4, 4)), chunks=(4, 2))
    pyclmm.dask.matmul(x, x, kernel="naive", reproducible=True).compute()
    with pyclmm.default_precision("medium"), pyclmm.default_reproducible(), pyclmm.verified():
        later = pyclmm.dask.matmul(x, x)
    later.compute()
    asked = {"kernel": "naive", "precision": "highest", "reproducible": True, "verify": False}
    assert work.keywords[0].items() >= asked.items()
    asked |= {"kernel": "auto", "precision": "medium", "verify": True}
    assert work.keywords[-1].items() >= asked.items()


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_a_wrong_chunk_raises_in_its_task(rng, spoiler, scheduler):
    a = numbers(rng, (12, 12))
    product = pyclmm.dask.matmul(da.from_array(a, chunks=4), da.from_array(a, chunks=4), verify=True)
    before = pyclmm.health()["wrong"]
    spoiler.element(5, "f4", lambda x: x + 90)
    with pytest.raises(pyclmm.VerificationError, match="off by 90"):
        product.compute(scheduler=scheduler)
    pyclmm.finish()  # nobody is told twice
    same(product, a @ a)
    assert pyclmm.health()["wrong"] == before + 1


@pytest.mark.parametrize(
    ("turned", "said"),
    [
        (lambda x: np.ma.masked_array(x, mask=x == x[0, 0]), "MaskedArray"),
        (lambda x: x.tolist(), "list"),
        (lambda x: type("Sparse", (), {"shape": x.shape})(), "Sparse"),
    ],
)
def test_chunks_that_are_no_arrays_are_refused(rng, turned, said):
    x = da.from_array(numbers(rng, (6, 6)), chunks=3)
    odd = x.map_blocks(turned, meta=np.empty((0, 0), "f4"))
    for product, name in ((pyclmm.dask.matmul(odd, x), "x"), (pyclmm.dask.matmul(x, odd), "y")):
        with pytest.raises(DTypeError, match=f"a chunk of {name} is a {said}"):
            product.compute()


@pytest.mark.parametrize(
    ("turned", "said"),
    [
        (lambda x: x[0], r"a chunk of NAME has shape \(.,\)"),
        (lambda x: x[None], r"a chunk of NAME has shape \(1, ., .\)"),
        (lambda x: x.T, r"a chunk of x has shape \(., .\), one of y \(., .\)"),
        (lambda x: x.astype(object), "a chunk of NAME has dtype object"),
    ],
)
def test_chunks_of_another_shape_or_dtype_than_promised_are_refused(rng, turned, said):
    x = da.from_array(numbers(rng, (6, 4)), chunks=(3, 2))
    y = da.from_array(numbers(rng, (4, 6)), chunks=(2, 3))
    for name in "xy":
        odd, other = (x, y) if name == "x" else (y, x)
        odd = odd.map_blocks(turned, chunks=odd.chunks, meta=np.empty((0, 0), "f4"))
        product = pyclmm.dask.matmul(odd, other) if name == "x" else pyclmm.dask.matmul(other, odd)
        with pytest.raises((ShapeError, DTypeError), match=said.replace("NAME", name)):
            product.compute()


def test_chunks_with_as_many_numbers_along_several_axes_of_k_are_refused(rng):
    x, y = (da.from_array(numbers(rng, shape)) for shape in ((4, 2, 3), (2, 3, 5)))
    odd = x.map_blocks(lambda chunk: chunk.swapaxes(1, 2), chunks=x.chunks, meta=x._meta)
    with pytest.raises(ShapeError, match=r"a chunk of x has shape \(4, 3, 2\), one of y \(2, 3, 5\)"):
        pyclmm.dask.tensordot(odd, y, 2).compute()


@pytest.mark.parametrize("short", [0, 1])
def test_chunks_of_other_shapes_than_those_before_along_k_are_refused(rng, short):
    """What they are added to would be read from memory that nobody wrote."""

    def turned(chunk, block_info):
        return chunk[:2] if block_info[0]["chunk-location"][1] == short else chunk

    x = da.from_array(numbers(rng, (3, 8)), chunks=(3, 4))
    y = da.from_array(numbers(rng, (8, 5)), chunks=(4, 5))
    odd = x.map_blocks(turned, chunks=x.chunks, meta=np.empty((0, 0), "f4"))
    product = pyclmm.dask.matmul(odd, y, host_limit=100)  # a task for each chunk of K
    with pytest.raises(ShapeError, match=r"shape \(., 5\), those before them along K \(., 5\)"):
        product.compute()


# graphs


def test_one_task_for_each_output_chunk_and_none_for_partial_sums():
    x, y = da.zeros((80, 90), chunks=10), da.zeros((90, 70), chunks=10)
    product = pyclmm.dask.matmul(x, y, memory_limit="1 GiB", host_limit="1 GiB")
    blocks = product.numblocks
    assert blocks[0] * blocks[1] == len(tasks_of(product)) == 4
    assert len(dict(product.dask)) == 4 + 8 * 9 + 9 * 7
    small = pyclmm.dask.matmul(x, y, memory_limit=10 * 20 * 8 * 2, host_limit="1 GiB")
    assert len(tasks_of(small)) == 8 * 7  # a block of 20 columns fits, but not two steps of its operands
    for one in (product, small):
        assert one.sum().compute() == 0


def test_large_chunks_are_split_to_fit_the_device():
    x, y = da.ones((64, 64), chunks=64), da.ones((64, 64), chunks=64)
    limit = 4096
    product = pyclmm.dask.matmul(x, y, memory_limit=limit, host_limit="1 GiB")
    assert max(product.chunks[0]) * max(product.chunks[1]) * 8 <= limit // 2
    same(product, np.full((64, 64), 64.0))


def test_chunks_of_long_k_are_split_to_fit_the_device(rng, work):
    a = numbers(rng, (4, 1000))
    x = da.from_array(a, chunks=(4, 1000))
    same(pyclmm.dask.matmul(x, x.T, memory_limit=4096, host_limit="1 MiB"), a @ a.T)
    steps = [x.nbytes + y[0].nbytes for xs, ys in work.tasks for x, y in zip(xs[0], ys, strict=True)]
    assert max(steps) <= 4096 // 4


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_task_has_no_more_in_host_memory_than_its_limit(rng, work, dtype):
    a, b = numbers(rng, (6, 200), dtype), numbers(rng, (200, 6), dtype)
    x, y = da.from_array(a, chunks=(3, 10)), da.from_array(b, chunks=(10, 6))
    limit = 50 * (6 + 6) * a.itemsize
    product = pyclmm.dask.matmul(x, y, host_limit=limit, memory_limit="1 GiB")
    same(product, a @ b)
    most = [sum(z.nbytes for row in (*xs, *ys) for z in row) for xs, ys in work.tasks]
    assert max(most) <= limit
    assert len(most) > 2


def test_k_in_other_chunks_rechunks_the_smaller_operand(rng):
    a, b = numbers(rng, (40, 12)), numbers(rng, (12, 5))
    x, y = da.from_array(a, chunks=(10, 5)), da.from_array(b, chunks=(4, 5))
    product = pyclmm.dask.matmul(x, y)
    used = product.dask.dependencies[product.name]
    assert x.name in used
    assert y.name not in used
    same(product, a @ b)
    turned = pyclmm.dask.matmul(y.T, x.T)
    assert x.T.name in turned.dask.dependencies[turned.name]
    same(turned, (a @ b).T)


def test_the_same_product_has_the_same_name():
    x = da.ones((4, 4), chunks=2)
    assert pyclmm.dask.matmul(x, x).name == pyclmm.dask.matmul(x, x).name
    assert pyclmm.dask.matmul(x, x).name != pyclmm.dask.matmul(x, x, precision="high").name


def test_tasks_of_one_shape_share_their_plans(caplog):
    def plans():
        """What the log tells of the choice of kernels."""
        return [text for text in caplog.messages if re.match(r"\d+ x \d+ x \d+ float32 .* on .*: ", text)]

    x = da.ones((48, 44), chunks=11, dtype=np.float32)
    product = pyclmm.dask.matmul(x[:44], x[:44], memory_limit=11 * 11 * 4 * 9, host_limit="1 GiB")
    assert len(tasks_of(product)) == 16
    with dask.config.set(num_workers=1), caplog.at_level("DEBUG", "pyclmm"):
        product.compute()
        made = len(plans())
        assert 0 < made <= 2  # the first product writes, later ones add
        product.compute()
    assert len(plans()) == made


def test_a_step_waits_until_the_one_before_the_last_has_ended(rng, monkeypatch):
    """So that no more than two steps' operands are on the device."""
    events = []
    plain = cl.enqueue_marker

    class Marker:
        def __init__(self, queue):
            self.event, self.number = plain(queue), len([e for e in events if e[0] == "made"])
            events.append(("made", self.number))

        def wait(self):
            events.append(("waited", self.number))
            self.event.wait()

    replace_driver(monkeypatch, "dask", enqueue_marker=Marker)
    monkeypatch.setattr(staging, "download", lambda queue, memory, buffer, after: queue.finish())
    a = numbers(rng, (3, 10))
    pyclmm.dask.matmul(da.from_array(a, chunks=(3, 2)), a.T.copy()).compute()
    assert events[:4] == [("made", 0), ("made", 1), ("waited", 0), ("made", 2)]


# bad input


matmul, tensordot = pyclmm.dask.matmul, pyclmm.dask.tensordot
BAD = [
    (lambda x: matmul(x, x[:3]), ShapeError, r"\(4, 4\) and y \(3, 4\)"),
    (lambda x: matmul(x, 2.0), ShapeError, r"y has shape \(\)"),
    (lambda x: matmul(x[x > 1], x), ArgumentError, "compute_chunk_sizes"),
    (lambda x: matmul(x, x.astype("U3")), DTypeError, "dtype <U3"),
    (lambda x: matmul(x, x.astype(object)), DTypeError, "y has dtype object"),
    (lambda x: matmul(x, x, kernel="nosuch"), ArgumentError, "unknown kernel 'nosuch'"),
    (lambda x: matmul(x, x, kernel=np.array([1, 2])), DTypeError, "kernel is array.*; pass a kernel's"),
    (lambda x: matmul(x, x, precision="hi"), ArgumentError, "unknown precision"),
    (lambda x: matmul(x, x, memory_limit="much"), ArgumentError, "memory_limit is 'much'"),
    (lambda x: matmul(x, x, host_limit=7), ArgumentError, "host_limit is 7.* of 8 or more"),
    (lambda x: matmul(x, x, memory_limit=31), ArgumentError, "memory_limit is 31.* of 32 or more"),
    (lambda x: matmul(x, dask.delayed(np.ones)(4)), DTypeError, "y is a Delayed; pass a dask array"),
    (lambda x: matmul(object(), x), DTypeError, "x is a object; pass a dask array"),
    (lambda x: matmul(x, x, merge_chunks="no"), DTypeError, "merge_chunks is 'no'; pass True or False"),
    (lambda x: matmul(da.ma.masked_less(x, 1), x), DTypeError, "MaskedArray"),
    (lambda x: matmul(da.ones((2, 4, 4)), da.ones((3, 4, 4))), ShapeError, "broadcast"),
    (lambda x: tensordot(x, x[:3], 1), ShapeError, "axis 1 of x and axis 0 of y"),
    (lambda x: tensordot(x, x, 3), pyclmm.AxisError, "pass 0 to 2, as x"),
    (lambda x: tensordot(x, x, ([0, 0], [0, 1])), ArgumentError, "of x has an axis twice"),
    (lambda x: tensordot(x, x, ([0], [0, 1])), ShapeError, "1 of x and 2 of y"),
    (lambda x: tensordot(x, x, "ab"), DTypeError, "of x: .*an integer"),
    (lambda x: tensordot(x, x, 1.5), DTypeError, "axes is 1.5"),
    (lambda x: pyclmm.dask.DevicePlugin(devices=[]), ArgumentError, "devices is empty"),
    (lambda x: pyclmm.dask.DevicePlugin(devices="gpu"), DTypeError, "a list"),
]


@pytest.mark.parametrize(("call", "error", "words"), BAD)
def test_what_cannot_be_is_said_before_any_task_runs(call, error, words, monkeypatch):
    monkeypatch.setattr(da.Array, "compute", lambda *_, **__: pytest.fail("a task ran"))
    x = da.from_array(np.ones((4, 4), np.float32), chunks=2)
    with pytest.raises(error, match=words):
        call(x)


def test_arrays_by_expressions_are_refused(monkeypatch):
    monkeypatch.setattr(da, "_array_expr_enabled", lambda: True, raising=False)
    with pytest.raises(pyclmm.UnsupportedError, match="query-planning"):
        pyclmm.dask.matmul(np.ones((2, 2)), np.ones((2, 2)))


def test_pyclmm_does_not_import_dask():
    done = python(
        "-W", "error", "-c", "import sys, pyclmm; print({'dask', 'distributed'} & set(sys.modules))"
    )
    assert done.stdout.strip() == "set()", done.stderr


def test_without_dask_the_error_says_what_to_install():
    done = python("-W", "error", "-c", "import sys; sys.modules['dask'] = None; import pyclmm.dask")
    assert done.returncode == 1
    assert "ImportError: pyclmm.dask needs dask" in done.stderr
    assert "pip install 'pyclmm[dask]'" in done.stderr


# backend()


def test_backend_serves_every_spelling_of_a_product(rng):
    a = numbers(rng, (4, 4))
    x = da.from_array(a, chunks=2)
    before = da.matmul, da.tensordot, da.routines.matmul, da.routines.tensordot
    calls = (
        lambda: da.matmul(x, x), lambda: x @ x, lambda: a @ x, lambda: x @ a, lambda: np.matmul(x, x),
        lambda: da.dot(x, x), lambda: x.dot(x), lambda: da.tensordot(x, x, axes=1),
        lambda: np.tensordot(x, x, 1),
    )  # fmt: skip
    for call in calls:
        assert not tasks_of(call())
        with pyclmm.dask.backend():
            product = call()
        assert tasks_of(product)
        same(product, a @ a)
    assert (da.matmul, da.tensordot, da.routines.matmul, da.routines.tensordot) == before


@pytest.mark.parametrize(
    ("function", "shapes", "chunks"),
    [
        ("matmul", [(9, 8), (8, 7)], [(2, 3), (3, 2)]),
        ("matmul", [(4, 6, 5), (4, 5, 6)], [((1, 3), 2, 5), ((2, 2), 5, 1)]),  # stacks in other chunks
        ("matmul", [(1, 6, 5), (3, 5, 4)], [(1, 2, 2), (2, 4, 3)]),  # one stack broadcasts
        ("dot", [(9, 8), (8, 9)], [2, 2]),
        ("tensordot", [(4, 3, 6, 5), (6, 5, 4)], [2, 3]),
        ("vdot", [(9,), (9,)], [2, 3]),
    ],
)
def test_products_under_backend_have_the_chunks_of_dask(rng, function, shapes, chunks):
    arrays = [numbers(rng, shape) for shape in shapes]
    x, y = (da.from_array(a, chunks=c) for a, c in zip(arrays, chunks, strict=True))
    dasks = getattr(da, function)(x, y)
    for limit in ("1 MiB", 32):  # with the second chunks are split
        with pyclmm.dask.backend(kernel="naive", memory_limit=limit):
            product = getattr(da, function)(x, y)
        assert tasks_of(product)
        assert product.chunks == dasks.chunks
        same(product, dasks.compute())


def test_linear_algebra_of_dask_takes_products_under_backend(rng):
    """Its functions need blocks of one size, which merged chunks are not."""
    host = numbers(rng, (24, 24), "float64") + 40 * np.eye(24)
    x = da.from_array(host, chunks=4)
    with pyclmm.dask.backend(kernel="naive"):
        square = da.dot(x.T, x)
        found = da.linalg.solve(square, x), da.linalg.inv(square), *da.linalg.lu(square)
    want = np.linalg.solve(host.T @ host, host), np.linalg.inv(host.T @ host)
    solved, inverse, order, lower, upper = dask.compute(*found)
    np.testing.assert_allclose(solved, want[0], atol=1e-9)
    np.testing.assert_allclose(inverse, want[1], atol=1e-9)
    np.testing.assert_allclose(order @ lower @ upper, host.T @ host, atol=1e-9)


def test_backend_merges_chunks_where_it_is_told():
    x = da.ones((80, 80), chunks=10)
    with pyclmm.dask.backend(merge_chunks=True, memory_limit="1 GiB", host_limit="1 GiB"):
        assert (x @ x).numblocks == pyclmm.dask.matmul(x, x, memory_limit="1 GiB").numblocks != (8, 8)
    assert pyclmm.dask.matmul(x, x, merge_chunks=False).numblocks == (8, 8)


def test_backend_nests_and_is_gone_after_an_error(rng):
    x = da.from_array(numbers(rng, (4, 4)), chunks=2)
    before = da.matmul
    with pyclmm.dask.backend(precision="medium"):
        outer = (x @ x).name
        with pyclmm.dask.backend():
            inner = (x @ x).name
        assert inner != outer == (x @ x).name
    with pytest.raises(ZeroDivisionError), pyclmm.dask.backend():
        _ = 1 / 0
    assert da.matmul is before
    assert not tasks_of(x @ x)


def test_backend_belongs_to_its_thread(rng):
    x = da.from_array(numbers(rng, (4, 4)), chunks=2)
    inside, leave = threading.Event(), threading.Event()

    def other():
        with pyclmm.dask.backend():
            inside.set()
            leave.wait(30)
            return tasks_of(x @ x)

    with ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(other)
        assert inside.wait(30)
        assert not tasks_of(x @ x)
        with pyclmm.dask.backend():
            pass
        leave.set()
        assert theirs.result(30)


def test_a_block_of_backend_that_ends_in_another_thread_is_refused():
    def work():
        with pytest.raises(ArgumentError, match=r"dask\.backend ends in another thread"):
            mine.__exit__(None, None, None)

    mine, theirs = pyclmm.dask.backend(), da.matmul
    for _ in range(2):
        with mine:
            ours = da.matmul
            with ThreadPoolExecutor(1) as pool:
                pool.submit(work).result(30)
            assert da.matmul is ours is not theirs
        assert da.matmul is theirs


def test_backend_leaves_to_dask_what_it_cannot_multiply():
    x = da.from_array(np.arange(16.0).reshape(4, 4), chunks=2)
    with pyclmm.dask.backend():
        objects = da.tensordot(x.astype(object), x.astype(object), axes=1)
        unknown = x[x[:, 0] > 1] @ x
    assert not tasks_of(objects)
    assert not tasks_of(unknown)
    assert unknown.compute().shape == (3, 4)


def test_backend_names_an_option_that_it_does_not_have():
    before = da.matmul
    with pytest.raises(TypeError, match=r"no option \['presicion'\]"), pyclmm.dask.backend(presicion="high"):
        pass
    assert da.matmul is before


# workers


def test_threads_have_queues_of_their_own_in_one_context():
    kept = []
    gate = threading.Barrier(2)

    def queues(_):
        found, again = (block._queues() for _ in range(2))
        assert found == again  # else each task would bind its kernels anew
        gate.wait(30)
        return found

    with ThreadPoolExecutor(2) as pool:
        kept = list(pool.map(queues, range(2)))
    (up, run), (other_up, other_run) = kept
    assert len({q.int_ptr for q in (up, run, other_up, other_run)}) == 4
    assert up.context == run.context == other_run.context == pyclmm.default_queue().context


def test_limits_are_of_this_process_without_a_client():
    found = workers.limits()
    assert found.tasks == 1
    assert found.device == device_info(default_device()).global_mem_size // 2
    with failing(workers, "default_device", pyclmm.NoDeviceError("none"), library=""):
        assert workers.limits().device == 1 << 30
    assert workers.limits(5, 6) == workers.Limits(5, 6, 1)


class Worker:
    def __init__(self, name):
        self.name = self.id = name


@pytest.fixture
def lent(tmp_path, monkeypatch):
    """The devices of the workers in this process, by their names. The host has two devices."""
    found = {}
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(workers, "_given", found)
    real = [*(one.device for one in pyclmm.devices()[:1]), None]
    two = [SimpleNamespace(kind="gpu", number=f"0:{i}", device=device) for i, device in enumerate(real)]
    monkeypatch.setattr(workers, "devices", lambda: two)
    return found


def started(*names):
    """A plugin for each worker of these names."""
    plugins = [workers.DevicePlugin() for _ in names]
    for plugin, name in zip(plugins, names, strict=True):
        plugin.setup(Worker(name))
    return plugins


def test_workers_take_one_device_each_and_give_it_back(tmp_path, lent, caplog):
    first, *others = started("tcp://0", "tcp://1")
    assert lent == {"tcp://0": "0:0", "tcp://1": "0:1"}
    assert len(list((tmp_path / "pyclmm").glob("device-*.lock"))) == 2
    others += started("5")
    assert lent["5"] == "0:1"  # 5 is odd; shared
    assert "all taken: worker 5 shares 0:1" in caplog.text
    first.teardown(Worker("tcp://0"))
    others += started("late")
    assert lent["late"] == "0:0"
    for plugin, name in zip(others, ("tcp://1", "5", "late"), strict=True):
        plugin.teardown(Worker(name))
    assert not lent


def test_locks_beside_temporary_files_are_of_this_user_only(tmp_path, lent, monkeypatch):
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    [plugin] = started("w")
    [folder] = tmp_path.iterdir()
    assert folder.name == f"pyclmm-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    [lock] = folder.iterdir()
    plugin.teardown(Worker("w"))
    lock.unlink()
    lock.symlink_to(tmp_path / "precious")
    with pytest.warns(pyclmm.CacheWarning, match="is ignored: it is a link"):
        plugin.setup(Worker("w"))
    assert lent == {"w": "0:1"}, "the next lock is good"
    assert not (tmp_path / "precious").exists()


def test_without_locks_the_name_counts(lent, monkeypatch):
    monkeypatch.setattr(file_locks, "CAN_LOCK", False)
    started("0", "1", "2")
    assert lent == {"0": "0:0", "1": "0:1", "2": "0:0"}


def test_devices_are_named_as_everywhere(lent):
    for named in (0, "0:0"):
        plugin = workers.DevicePlugin(devices=[named])
        plugin.setup(Worker("w"))
        assert lent == {"w": "0:0"}
        plugin.teardown(Worker("w"))
    with pytest.raises(ArgumentError, match="nosuch"):
        workers.DevicePlugin(devices=["nosuch"]).setup(Worker("w"))
