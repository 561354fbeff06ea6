"""pyopencl Arrays: queues, events, contexts, memory, process exit and reproducible results."""

import gc
import sys
from functools import partial

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from tests.support.cases import defaults, numbers, small_integers
from tests.support.plans import kept_plans

OUT_OF_ORDER = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE


@pytest.fixture
def pair(rng):
    """Operands with integer values: every order of summation gives the same bits."""
    return small_integers(rng, (23, 31), "f4"), small_integers(rng, (31, 19), "f4")


def to_device(queue, *arrays):
    return [cla.to_device(queue, x) for x in arrays]


# ---- events and queues -----------------------------------------------------------------------


@pytest.mark.parametrize("properties", [0, OUT_OF_ORDER], ids=["in-order", "out-of-order"])
def test_a_chain_of_products_keeps_its_order(properties, context, rng):
    """Each product reads the last one's result, and a strided operand makes each use workspace."""
    queue = cl.CommandQueue(context, properties=properties)
    turn = np.roll(np.eye(16, dtype="f4"), 1, axis=1)
    x = small_integers(rng, (16, 16), "f4")
    wide = np.zeros((32, 32), "f4")
    wide[::2, ::2] = turn
    spread = cla.to_device(queue, wide)
    spread = cla.Array(queue, (16, 16), np.float32, data=spread.base_data, strides=(256, 8))
    state = cla.to_device(queue, x)
    for _ in range(40):
        state = pyclmm.matmul(spread, state)
    assert np.array_equal(state.get(), np.linalg.matrix_power(turn, 40) @ x)


def test_more_queues_than_a_plan_keeps_workspace_for(context, pair):
    a, b = to_device(cl.CommandQueue(context), *pair)
    plan, queues = pyclmm.Matmul(a, b), [cl.CommandQueue(context) for _ in range(12)]
    before = [sys.getrefcount(queue) for queue in queues]
    for queue in queues:
        assert np.array_equal(plan(a, b, queue=queue).get(queue=queue), pair[0] @ pair[1])
    del queue
    gc.collect()
    assert sum(now > then for now, then in zip(map(sys.getrefcount, queues), before, strict=True)) <= 8


def test_arrays_in_shared_virtual_memory(queue, pair):
    if not getattr(queue.device, "svm_capabilities", 0):
        pytest.skip("the driver has no shared virtual memory")
    if "PoCL 3.0" in queue.device.platform.version:
        pytest.skip("PoCL 3.0 may end the process over shared virtual memory (docs/faults.md)")
    flags = cl.svm_mem_flags.READ_WRITE
    allocator = cl.tools.SVMAllocator(queue.context, alignment=0, flags=flags, queue=queue)
    a, b = (cla.to_device(queue, x, allocator=allocator) for x in pair)
    assert np.array_equal(pyclmm.matmul(a, b).get(), pair[0] @ pair[1])
    square = cla.to_device(queue, pair[0][:, :23].copy(), allocator=allocator)
    want = square.get() @ square.get()
    assert np.array_equal(pyclmm.matmul(square, square, out=square).get(), want), "out overlaps both"


@pytest.mark.parametrize("kept", [True, False])
def test_out_may_overlap_an_operand_through_sub_buffers(queue, rng, kept):
    """Sub-buffers of one allocation can share memory though the buffer objects differ. Of an allocation that
    nobody else keeps, Intel's runtime does not tell.
    """
    step = queue.device.mem_base_addr_align // 8
    whole = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 8 * step)
    n = int((step // 4) ** 0.5)
    first, second = whole[0 : 4 * step], whole[step : 5 * step]
    a = cla.Array(queue, (n, n), np.float32, data=first, offset=step)  # the same bytes as out
    out = cla.Array(queue, (n, n), np.float32, data=second)
    x, b = small_integers(rng, (n, n), "f4"), small_integers(rng, (n, n), "f4")
    whole = whole if kept else None
    b = cla.to_device(queue, b)
    for _ in range(2):
        a.set(x)
        pyclmm.matmul(a, b, out=out)
        assert np.array_equal(out.get(), x @ b.get())
    (apart,) = pyclmm.matmul_many([(b, out)], [cla.empty(queue, (n, n), np.float32)])
    assert np.array_equal(apart.get(), b.get() @ out.get())
    del out, second, a, first, whole  # in this order: docs/faults.md, "Limits"


@pytest.mark.parametrize("memory", ["short", "none"])
@pytest.mark.parametrize("warm", [False, True], ids=["the first call", "like the last call"])
@pytest.mark.parametrize("name", ["a", "b", "c", "bias", "out"])
def test_an_array_beyond_its_buffer_is_named(queue, name, warm, memory):
    """Kernels read and wrote what lies behind the buffer: the process aborted with a corrupted heap. Without
    a buffer they wrote to address 0.
    """

    def product(**other):
        given = {"a": x, "b": x, "c": x, "bias": row, "out": out} | other
        a, b, c = (given.pop(key) for key in "abc")
        return pyclmm.gemm(a, b, c, beta=1.0, **given)

    x, row, out = (cla.zeros(queue, shape, np.float32) for shape in ((20, 20), (20,), (20, 20)))
    if warm:
        product()
    wrong = cla.empty(queue, row.shape if name == "bias" else x.shape, np.float32)
    wrong.base_data = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 76) if memory == "short" else None
    what = "elements outside of its buffer" if memory == "short" else "no memory, its base_data is None"
    with pytest.raises(pyclmm.ArgumentError, match=f"^{name} has {what}"):
        product(**{name: wrong})
    product()


@pytest.mark.parametrize(
    "product", [pyclmm.matmul, lambda a, b: pyclmm.matmul_many([(a, b)])], ids=["matmul", "matmul_many"]
)
@pytest.mark.parametrize("memory", ["none", "short", "read-only"])
def test_memory_of_an_allocator_that_takes_no_result_is_refused(queue, memory, product):
    """In a call like the last one kernels wrote behind it, or to address 0."""
    x, flags = cla.zeros(queue, (20, 20), np.float32), cl.mem_flags
    for _ in range(2):
        product(x, x)
    x.allocator, gave = {
        "none": (lambda _: None, "no bytes where out needs 1600"),
        "short": (lambda _: cl.Buffer(queue.context, flags.READ_WRITE, 76), "76 bytes where out needs 1600"),
        "read-only": (lambda size: cl.Buffer(queue.context, flags.READ_ONLY, size), "a READ_ONLY buffer"),
    }[memory]
    with pytest.raises(pyclmm.ArgumentError, match=f"^an operand's allocator gave {gave}"):
        product(x, x)
    x.allocator = None
    product(x, x)


@pytest.mark.parametrize("name", ["a", "b", "out"])
def test_views_of_an_array_without_a_buffer_get_none(queue, name):
    """PyOpenCL gave them one: numbers of it were summed, or the result was lost in it."""
    xs = {name: cla.zeros(queue, (4, 4), np.float32) for name in ("a", "b", "out")}
    xs[name].base_data = None
    with pytest.raises(pyclmm.ArgumentError, match=f"^{name} has no memory"):
        pyclmm.linalg.einsum("ij,kj->ik", xs["a"], xs["b"], out=xs["out"])


@pytest.mark.parametrize("name", ["a", "b", "out"])
def test_an_array_in_an_image_is_refused(queue, name):
    """Kernels read and wrote the driver's own record of it."""
    if not queue.device.image_support:
        pytest.skip("the device has no images")
    form = cl.ImageFormat(cl.channel_order.R, cl.channel_type.FLOAT)
    xs = {name: cla.zeros(queue, (4, 4), np.float32) for name in ("a", "b", "out")}
    image = cl.create_image(queue.context, cl.mem_flags.READ_WRITE, form, shape=(4, 4))
    xs[name] = cla.Array(queue, (4, 4), np.float32, data=image)
    for product in (pyclmm.matmul, partial(pyclmm.linalg.einsum, "ij,jk->ik")):
        with pytest.raises(pyclmm.ArgumentError, match=f"^{name} has an image as its base_data"):
            product(xs["a"], xs["b"], out=xs["out"])


@pytest.mark.parametrize("side", [4, 200], ids=["copied", "in place"])
@pytest.mark.parametrize("memory", ["none", "short", "read-only"])
def test_arrays_of_the_last_list_with_other_buffers_are_looked_at_again(queue, memory, side):
    """Kernels read and wrote behind them, or PyOpenCL's errors came out."""
    xs = [cla.zeros(queue, (side, side), np.float32) for _ in range(6)]
    pairs, outs = [(xs[0], xs[1]), (xs[2], xs[3])], xs[4:] if memory == "read-only" else None
    for _ in range(2):
        pyclmm.matmul_many(pairs, out=outs)
    flags = cl.mem_flags
    buffer, number, says = {
        "none": (None, 2, "a has no memory"),
        "short": (cl.Buffer(queue.context, flags.READ_WRITE, 32), 2, "a has elements outside of its buffer"),
        "read-only": (cl.Buffer(queue.context, flags.READ_ONLY, xs[5].nbytes), 5, "out has a READ_ONLY"),
    }[memory]
    own, xs[number].base_data = xs[number].base_data, buffer
    with pytest.raises(pyclmm.ArgumentError, match=rf"^pairs\[1\]: {says}"):
        pyclmm.matmul_many(pairs, out=outs)
    xs[number].base_data = own
    pyclmm.matmul_many(pairs, out=outs)


def test_a_view_that_begins_before_its_buffer_or_a_list_with_one_beyond_it(queue):
    x = cla.zeros(queue, (4, 4), np.float32)
    before = cla.Array(queue, (4, 4), np.float32, data=x.base_data, strides=(-16, 4))
    with pytest.raises(pyclmm.ArgumentError, match=r"^b has elements outside of its buffer"):
        pyclmm.matmul(x, before)
    with pytest.raises(pyclmm.ArgumentError, match=r"^pairs\[1\]: b has elements outside of its buffer"):
        pyclmm.matmul_many([(x, x), (x, before)])


@pytest.mark.parametrize("warm", [False, True], ids=["the first call", "like the last call"])
def test_a_buffer_that_kernels_may_not_write_is_no_out(queue, warm):
    x = cla.zeros(queue, (20, 20), np.float32)
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    memory = cl.Buffer(queue.context, flags, hostbuf=np.zeros((20, 20), np.float32))
    out = cla.Array(queue, x.shape, x.dtype, data=memory)
    if warm:
        pyclmm.matmul(x, x, out=cla.empty_like(x))
    with pytest.raises(pyclmm.ArgumentError, match=r"^out has a READ_ONLY buffer"):
        pyclmm.matmul(x, x, out=out)
    with pytest.raises(pyclmm.ArgumentError, match=r"^pairs\[0\]: out has a READ_ONLY buffer"):
        pyclmm.matmul_many([(x, x)], out=[out])
    assert not pyclmm.matmul(out, x).get().any(), "it may be read"


def test_an_array_without_a_queue_uses_the_calls_queue(queue, pair):
    a, b = (x.with_queue(None) for x in to_device(queue, *pair))
    c = pyclmm.matmul(a, b, queue=queue)
    assert np.array_equal(c.get(queue=queue), pair[0] @ pair[1])


def test_views_are_consumed_without_a_copy(queue, rng):
    x = numbers(rng, (20, 24), "f4")
    whole = cla.to_device(queue, x)
    for view, host in ((whole.T, x.T), (whole[2:, 4:], x[2:, 4:]), (whole[::2], x[::2])):
        plan = pyclmm.Matmul(view, view.T, kernel="tiled")
        assert plan.workspace_nbytes <= 64, "the table of offsets, and no copy"
        assert np.allclose(plan(view, view.T).get(), host @ host.T, atol=1e-4)


# ---- memory and exit -------------------------------------------------------------------------


def test_the_plan_cache_is_bounded(limits):
    limits(plans=10)
    for n in range(1, 30):
        x = np.ones((n, n), "f4")
        assert (pyclmm.matmul(x, x) == n).all()
    assert len(kept_plans()) <= 10


def test_a_plan_does_not_keep_the_callers_arrays(queue, pair):
    a, b = to_device(queue, *pair)
    c = pyclmm.matmul(a, b)
    c.get()
    buffer_ = c.base_data
    count = sys.getrefcount(buffer_)
    del c
    gc.collect()
    assert sys.getrefcount(buffer_) < count
    assert sys.getrefcount(buffer_) <= 2, "only this test has it now"


# ---- plans and reproducibility ---------------------------------------------------------------


@defaults
def test_the_same_plan_gives_the_same_bits(subject, queue, rng, rounds):
    m, n, k = subject.shape(37, 29, 301)
    a, b = to_device(queue, numbers(rng, (m, k), "f4"), numbers(rng, (k, n), "f4"))
    plan = pyclmm.Matmul(a, b, kernel=subject.kernel.name)
    first = plan(a, b).get().tobytes()
    assert all(plan(a, b).get().tobytes() == first for _ in range(rounds(100)))


def test_a_plan_describes_itself(queue, rng):
    a, b = numbers(rng, (20, 30), "f4"), numbers(rng, (30, 10), "f4")
    plan = pyclmm.Matmul(*to_device(queue, a, b), kernel="naive")
    assert plan.kernel == "naive"
    assert isinstance(plan.config, pyclmm.TileConfig)
    estimate = plan.estimate()
    assert estimate.flops == 2 * 20 * 30 * 10
    assert estimate.nbytes == 4 * (20 * 30 + 30 * 10 + 20 * 10)
    assert estimate.intensity == estimate.flops / estimate.nbytes
    assert estimate.workspace_nbytes == plan.workspace_nbytes
    assert "20 x 10 x 30" in repr(plan)
    assert "naive" in repr(plan)


def test_a_plan_of_an_empty_result_enqueues_nothing(queue):
    a, b = cla.Array(queue, (0, 3), np.float32), cla.to_device(queue, np.ones((3, 4), "f4"))
    plan = pyclmm.Matmul(a, b)
    assert (plan.kernel, plan.config) == (None, None)
    assert plan(a, b).shape == (0, 4)


def test_a_plan_takes_new_scalars(queue, pair):
    a, b = to_device(queue, *pair)
    c = cla.zeros(queue, (23, 19), np.float32) + 1
    plan = pyclmm.Matmul(a, b, c, alpha=2.0, beta=3.0)
    assert np.array_equal(plan(a, b, c).get(), 2 * (pair[0] @ pair[1]) + 3)
    assert np.array_equal(plan(a, b, c, alpha=-1.0, beta=0.5).get(), 0.5 - pair[0] @ pair[1])


LAYOUTS = [
    ((4, 4), (0, 4)), ((4, 4), (16, 0)), ((4, 4), (4, 4)), ((4, 4), (12, 4)), ((4, 4), (-12, 4)),
    ((2, 4, 4), (0, 16, 4)), ((2, 4, 4), (16, 16, 4)), ((3, 4), (8, 12)),  # these share elements
    ((4, 4), (16, 4)), ((4, 4), (4, 16)), ((4, 4), (-16, 4)), ((3, 2), (8, 12)), ((1, 4), (0, 4)),
    ((4, 0), (0, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "strides"), LAYOUTS, ids=str)
@pytest.mark.parametrize("call", ["matmul", "einsum", "a list", "a plan"])
def test_an_out_whose_elements_share_memory_is_refused(call, shape, strides, queue):
    """And no other, however its elements lie between each other."""
    a, b = (cla.zeros(queue, its, np.float32) for its in ((*shape[:-1], 5), (5, shape[-1])))
    start = sum((length - 1) * -step for length, step in zip(shape, strides, strict=True) if step < 0)
    memory = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 512)
    out = cla.Array(queue, shape, np.float32, data=memory, strides=strides, offset=start)
    calls = {
        "matmul": lambda: pyclmm.matmul(a, b, out=out),
        "einsum": lambda: pyclmm.linalg.einsum("...ij,jk", a, b, out=out),
        "a list": lambda: pyclmm.matmul_many([(a, b)], out=[out]),
        "a plan": lambda: pyclmm.Matmul(a, b, out=out)(a, b, out=out),
    }
    indices = np.indices(shape).reshape(len(shape), -1)
    if len(np.unique(np.array(strides) @ indices)) == indices.shape[1]:
        calls[call]()
        return
    with pytest.raises(pyclmm.ArgumentError, match=r"elements of out share memory, .*; pass an out that has"):
        calls[call]()
