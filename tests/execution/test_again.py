"""Calls that follow one with the same or like operands: what may be left out, and what may not."""

import gc
import sys
import time
import weakref

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm import TileConfig, api, plan_cache
from pyclmm.execution.options import Options, options_of
from pyclmm.execution.prepared import Prepared
from pyclmm.opencl import steps
from tests.support.cases import small_integers
from tests.support.contexts import new_queue
from tests.support.faults import INVALID_KERNEL_ARGS, OUT_OF_RESOURCES, failing, noted, refused_launch
from tests.support.habits import same
from tests.support.plans import as_after_a_fork, executable, last_options

COMPLETE = cl.command_execution_status.COMPLETE
OUT_OF_ORDER = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
N = 16
WAYS = ("plan", "enqueue", "matmul")


@pytest.fixture
def product(queue, rng):
    return Product(queue, rng)


class Product:
    """Operands of a product with their values, and ways to call it."""

    def __init__(self, queue, rng, kernel="naive"):
        self.queue, self.rng, self.kernel = queue, rng, kernel
        self.a, self.b = self.new(), self.new()
        self.out = cla.zeros(queue, (N, N), np.float32)
        self.plan = pyclmm.Matmul(self.a, self.b, out=self.out, kernel=kernel)

    def new(self):
        return cla.to_device(self.queue, small_integers(self.rng, (N, N), "f4"))

    def call(self, way, **keywords):
        a, b, out = (keywords.pop(name, getattr(self, name)) for name in ("a", "b", "out"))
        if way == "plan":
            return self.plan(a, b, out=out, **keywords)
        if way == "enqueue":
            self.plan.enqueue(a, b, out=out, **keywords)
            return out
        return pyclmm.matmul(a, b, out=out, kernel=self.kernel, **keywords)

    def check(self, way, a=None, b=None, out=None, **keywords):
        a, b = self.a if a is None else a, self.b if b is None else b
        out = self.out if out is None else out
        want = a.get() @ b.get()
        out.fill(-1)
        assert np.array_equal(self.call(way, a=a, b=b, out=out, **keywords).get(), want)


@pytest.fixture
def arguments(monkeypatch):
    """What pyclmm sets in kernel objects: a "buffer" or a "scalar", argument by argument."""
    log = []

    def noting(owner, name, word):
        real = getattr(owner, name)

        def noted(*args):
            if sys._getframe(1).f_globals["__name__"].startswith("pyclmm."):  # not Array.fill
                log.append(word)
            return real(*args)

        monkeypatch.setattr(owner, name, noted)

    noting(cl.Kernel, "set_arg", "buffer")
    noting(steps, "_set_scalar", "scalar")
    return log


# ---- what is left out --------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_the_same_operands_again_set_no_argument(product, arguments, way):
    product.call(way)
    arguments.clear()
    product.check(way)
    product.check(way)
    assert not arguments


@pytest.mark.parametrize("way", WAYS)
def test_other_arrays_of_the_same_layout_set_buffers_only(product, arguments, way):
    product.call(way)
    arguments.clear()
    other = product.new()
    product.check(way, a=other)
    product.check(way, a=other, out=cla.zeros(product.queue, (N, N), np.float32))
    product.check(way)
    assert arguments == ["buffer"] * 4


def test_a_new_result_sets_its_buffer_only(product, arguments):
    plan = pyclmm.Matmul(product.a, product.b, kernel="naive")
    for multiply in (plan, lambda a, b: pyclmm.matmul(a, b, kernel="naive")):
        first = multiply(product.a, product.b)
        arguments.clear()
        second = multiply(product.a, product.b)
        assert arguments == ["buffer"]
        assert second.base_data != first.base_data
        assert np.array_equal(second.get(), product.a.get() @ product.b.get())
        first.fill(0)
        assert np.array_equal(second.get(), product.a.get() @ product.b.get())


def test_every_launch_of_a_product_is_made_again(queue, rng, arguments):
    """A strided operand is packed by a launch of its own."""
    wide = cla.to_device(queue, small_integers(rng, (N, 2 * N), "f4"))
    a, b = wide[:, ::2], cla.to_device(queue, small_integers(rng, (N, N), "f4"))
    out = cla.zeros(queue, (N, N), np.float32)
    plan = pyclmm.Matmul(a, b, out=out, kernel="naive")
    plan(a, b, out=out)
    arguments.clear()
    wide.fill(3)  # in place: a is the same Array in the same buffer
    assert np.array_equal(plan(a, b, out=out).get(), np.full((N, N), 3, "f4") @ b.get())
    assert not arguments


def test_gemm_again(queue, rng, arguments):
    a, b, c = (cla.to_device(queue, small_integers(rng, (N, N), "f4")) for _ in range(3))
    out = cla.zeros(queue, (N, N), np.float32)
    for alpha, beta, differ in ((2.0, 3.0, None), (2.0, 3.0, 0), (2, 3, 0), (2.5, 3.0, 1)):
        arguments.clear()
        pyclmm.gemm(a, b, c, alpha=alpha, beta=beta, out=out)
        assert differ in (None, arguments.count("scalar")), (alpha, beta)
        assert np.array_equal(out.get(), alpha * (a.get() @ b.get()) + beta * c.get())
    pyclmm.gemm(a, b, out=out)
    assert np.array_equal(out.get(), a.get() @ b.get())


def test_c_without_beta_is_refused_after_a_call_with_it(queue, rng):
    a, b, c = (cla.to_device(queue, small_integers(rng, (N, N), "f4")) for _ in range(3))
    for _ in range(2):
        pyclmm.gemm(a, b, c, beta=3.0)
        with pytest.raises(pyclmm.ArgumentError, match="c is given without beta"):
            pyclmm.gemm(a, b, c)


def test_c_in_place_again(queue, rng, arguments):
    a, b, c = (cla.to_device(queue, small_integers(rng, (N, N), "f4")) for _ in range(3))
    want = c.get()
    for _ in range(3):
        arguments.clear()
        pyclmm.gemm(a, b, c, beta=1.0, out=c)
        want += a.get() @ b.get()
        assert np.array_equal(c.get(), want)
    assert not arguments


def test_an_array_that_died_is_not_taken_for_an_operand_that_is_not_given(queue, rng):
    """A weak reference to a freed Array gives None, which is also what stands for no bias."""
    a, b, bias = (cla.to_device(queue, small_integers(rng, shape, "f4")) for shape in ((N, N), (N, N), (N,)))
    pyclmm.gemm(a, b, bias=bias).get()
    del bias
    gc.collect()
    for _ in range(2):
        assert np.array_equal(pyclmm.gemm(a, b).get(), a.get() @ b.get())


def test_a_call_that_warns_warns_again(queue):
    a = cla.to_device(queue, np.ones((N, N), np.complex64))
    out = cla.zeros(queue, (N, N), np.float32)
    for _ in range(3):
        with pytest.warns(np.exceptions.ComplexWarning):
            pyclmm.matmul(a, a, out=out, casting="unsafe")


def test_operands_that_are_not_read_are_not_waited_for(context, rng, held):
    """With alpha 0 neither a nor b is read."""
    queue = cl.CommandQueue(context)
    a, c = (cla.to_device(queue, small_integers(rng, (N, N), "f4")) for _ in range(2))
    want = 2 * c.get()
    a.add_event(held)
    for _ in range(3):
        assert np.array_equal(pyclmm.gemm(a, a, c, alpha=0.0, beta=2.0).get(), want)


def test_numpy_calls_in_turn(queue, rng):
    """What the plan of the last call was made for changes in each call, in one property."""
    x, y = (small_integers(rng, (N, N), "f4") for _ in range(2))
    other = new_queue(queue.device)
    for a in (x, x.T, x[: N // 2], x):
        for at in (queue, other, queue):
            assert np.array_equal(pyclmm.matmul(a, y, queue=at), a @ y)
    out = x.copy()
    assert np.array_equal(pyclmm.matmul(x, y, out=np.zeros_like(x)), x @ y)
    assert np.array_equal(pyclmm.matmul(out, y, out=out), x @ y), "out overlaps an operand"


def test_numpy_operands_are_not_read_where_a_scalar_is_zero_in_this_call(rng):
    x, y, c = (small_integers(rng, (N, N), "f4") for _ in range(3))
    nan = np.full((N, N), np.nan, "f4")
    for _ in range(2):
        pyclmm.gemm(x, y, c, alpha=2.0, beta=2.0)
        assert np.array_equal(pyclmm.gemm(nan, y, c, alpha=0.0, beta=2.0), 2 * c)
        pyclmm.gemm(x, y, c, alpha=2.0, beta=2.0)
        assert np.array_equal(pyclmm.gemm(x, y, nan, alpha=2.0, beta=0.0), 2 * (x @ y))


# ---- Arrays are mutable ------------------------------------------------------------------------


def _another_buffer(x):
    x.base_data = cla.to_device(x.queue, np.full((N, N), 2, np.float32)).base_data


def _another_offset(x):
    x.offset = 4 * N * N  # a multiple of every alignment that plans tell apart


@pytest.mark.parametrize("change", [_another_buffer, _another_offset])
@pytest.mark.parametrize("name", ["a", "b", "out"])
@pytest.mark.parametrize("way", WAYS)
def test_an_array_in_other_memory_than_last_time(product, way, name, change):
    for each in ("a", "b", "out"):  # in buffers of two matrices
        x = cla.to_device(product.queue, small_integers(product.rng, (2, N, N), "f4"))[0]
        setattr(product, each, x)
    product.check(way)
    product.check(way)
    change(getattr(product, name))
    product.check(way)
    product.check(way)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("shape", (N // 2, N)), ("strides", (4, 4 * N)), ("dtype", np.dtype(np.int32)), ("offset", 4)],
)
@pytest.mark.parametrize("name", ["a", "out"])
def test_an_array_of_another_layout_than_last_time(product, name, attribute, value):
    for _ in range(2):
        product.check("plan")
    setattr(getattr(product, name), attribute, value)
    for _ in range(2):
        with pytest.raises(pyclmm.ArgumentError, match=f"{name} is not what the plan was made for"):
            product.call("plan")


def test_a_dtype_that_only_compares_equal(queue):
    """longlong and int64 are equal dtypes, but their products have different dtypes."""
    a = cla.to_device(queue, np.ones((N, N), np.int64))
    for _ in range(2):
        assert pyclmm.matmul(a, a).dtype.char == np.dtype(np.int64).char
    a.dtype = np.dtype(np.longlong)
    for _ in range(2):
        assert pyclmm.matmul(a, a).dtype.char == np.dtype(np.longlong).char


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("way", WAYS)
def test_out_put_into_the_memory_of_an_operand(product, way, name):
    for _ in range(2):
        product.check(way)
    operand = getattr(product, name)
    a, b = product.a.get(), product.b.get()
    product.out.base_data = operand.base_data
    if way == "matmul":
        assert np.array_equal(product.call(way).get(), a @ b)
        return
    with pytest.raises(pyclmm.ArgumentError, match="out overlaps other operands"):
        product.call(way)


def test_a_plan_for_overlapping_operands_takes_no_others(queue, rng):
    a, b = (cla.to_device(queue, small_integers(rng, (N, N), "f4")) for _ in range(2))
    plan = pyclmm.Matmul(a, b, out=a)
    for _ in range(2):
        x = a.get()
        assert np.array_equal(plan(a, b, out=a).get(), x @ b.get())
        a.set(small_integers(rng, (N, N), "f4"))
    with pytest.raises(pyclmm.ArgumentError, match="out overlaps other operands"):
        plan(a, b, out=cla.zeros(queue, (N, N), np.float32))


# ---- life and death ----------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_operands_of_the_last_call_are_not_kept_alive(product, way):
    product.check(way)
    product.check(way)
    product.queue.finish()
    memory = product.a.base_data
    seen = weakref.ref(product.a)
    held = sys.getrefcount(memory)
    product.a = None
    gc.collect()
    assert seen() is None
    assert sys.getrefcount(memory) == 2, f"only this test has it now; before there were {held}"


@pytest.mark.parametrize("way", WAYS)
def test_a_new_array_with_the_id_of_a_freed_one(product, way):
    ids = set()
    for _ in range(40):
        product.a = product.new()
        ids.add(id(product.a))
        product.check(way)
        product.a = None
    assert len(ids) < 40, "no id came back"


# ---- what else changes from call to call -------------------------------------------------------


def test_scalars_given_to_a_plan(product):
    plan = pyclmm.Matmul(product.a, product.b, out=product.out, alpha=2.0)
    want = product.a.get() @ product.b.get()
    for alpha in (None, 2.0, 3.0, 3.0, None, np.float32(0.5), 0.5, None):
        plan(product.a, product.b, out=product.out, alpha=alpha)
        assert np.array_equal(product.out.get(), (2.0 if alpha is None else alpha) * want), alpha


def test_complex_scalars_are_refused_again(product):
    plan = pyclmm.Matmul(product.a, product.b, out=product.out)
    for _ in range(2):
        plan(product.a, product.b, out=product.out)
    with pytest.raises(pyclmm.DTypeError, match="alpha is complex"):
        plan(product.a, product.b, out=product.out, alpha=1 + 0j)


def test_options_that_change_between_calls(product):
    """The thread's last plan is taken only for the same options."""
    for _ in range(2):
        product.check("matmul")
    first = product.a.get() @ product.b.get()
    assert pyclmm.matmul(product.a, product.b, dtype=np.float64).dtype == np.float64
    assert pyclmm.matmul(product.a, product.b).dtype == np.float32
    with pytest.raises(pyclmm.ArgumentError, match="unknown kernel 'nave'"):
        pyclmm.matmul(product.a, product.b, kernel="nave")
    turned = pyclmm.gemm(product.a, product.b, trans_a="T")
    assert np.array_equal(turned.get(), product.a.get().T @ product.b.get())
    assert np.array_equal(pyclmm.gemm(product.a, product.b).get(), first)
    with pytest.raises(pyclmm.DTypeError, match="cast"):
        pyclmm.matmul(product.a, product.b, dtype=np.int32, casting="no")


def test_default_precision_changes_between_calls(product, arguments):
    """Each precision has a plan, with kernel objects of its own."""
    product.call("matmul")
    arguments.clear()
    with pyclmm.default_precision("medium"):
        product.call("matmul")
    assert "scalar" in arguments
    arguments.clear()
    product.call("matmul")
    assert "scalar" not in arguments


def test_a_call_without_options_looks_none_up(queue, rng, monkeypatch):
    a, b, other, out = (cla.to_device(queue, small_integers(rng, (N, N), "f4")) for _ in range(4))
    ways = ({}, {"out": out})
    for way in ways:
        pyclmm.matmul(a, b, **way)
    for number in range(1, 300):  # so many options are kept, and those in use
        options_of(kernel=("tiled", TileConfig.square(number)))
    pyclmm.matmul(a[1:], b)
    pyclmm.matmul(a, b[:, 1:])
    looked = noted(monkeypatch, api, "options_of")
    np.testing.assert_array_equal(pyclmm.matmul(a[1:], b).get(), a.get()[1:] @ b.get())
    for x in (a, other):
        for way in ways:
            np.testing.assert_array_equal(pyclmm.matmul(x, b, **way).get(), x.get() @ b.get())
    assert not looked


@pytest.mark.parametrize(
    ("name", "block", "value"),
    [
        ("precision", pyclmm.default_precision, "medium"),
        ("reproducible", pyclmm.default_reproducible, True),
        ("verify", pyclmm.verified, True),
    ],
)
def test_a_call_without_options_has_those_of_its_block(rng, name, block, value):
    a, b = (rng.random((N, N), "f4") for _ in "ab")
    decorated = block(value)(pyclmm.matmul)
    for _ in range(3):
        pyclmm.matmul(a, b)
        assert getattr(last_options(), name) != value
        decorated(a, b)
        assert getattr(last_options(), name) == value


def test_a_closed_plan_is_refused_though_a_call_had_begun_before(product):
    """A call in another thread can take up its kernel objects after close() has dropped them."""
    product.check("plan")
    bound = executable(product.plan)._bound
    kept = bound.mine
    product.plan.close()
    bound.mine = kept
    for way in ("plan", "enqueue"):
        with pytest.raises(pyclmm.ArgumentError, match="the plan is closed"):
            product.call(way)


def test_a_forked_process_gets_an_error_for_an_equal_call_too(product, monkeypatch):
    for _ in range(2):
        product.check("plan")
    as_after_a_fork(monkeypatch)
    for way in WAYS:
        with pytest.raises(pyclmm.ForkError):
            product.call(way)


def test_axes_and_device_are_seen_after_an_equal_call(product):
    for _ in range(2):
        product.check("matmul")
    a, b = product.a.get(), product.b.get()
    product.call("matmul", axes=[(-1, -2), (-2, -1), (-2, -1)])
    assert np.array_equal(product.out.get(), a.T @ b)
    with pytest.raises(pyclmm.ArgumentError, match="unknown device"):
        product.call("matmul", device="no such device")


def test_a_plan_that_is_dropped_is_freed_though_it_was_the_last(product):
    def plans():
        gc.collect()
        return sum(isinstance(x, Prepared) for x in gc.get_objects())

    pyclmm.release()
    before = plans()
    product.check("matmul")
    assert plans() == before + 1
    pyclmm.release()
    assert plans() == before
    product.check("matmul")


def test_each_option_of_a_call_arrives_by_its_name(monkeypatch):
    options = {"kernel": "naive", "precision": "high", "reproducible": True, "casting": "unsafe"}
    options |= {"verify": True, "dtype": np.dtype("f8")}
    own = options | {"trans_a": "T", "trans_b": "C", "activation": "relu"}
    called = noted(monkeypatch, api, "called")
    a = np.ones((2, 2), "f4")
    pyclmm.matmul(a, a, **options)
    pyclmm.gemm(a, a, **own)
    assert [asked for _, asked, *_ in called] == [Options(**options), Options(**own)]


def test_calls_that_ask_for_the_same_have_the_same_options():
    def asked(dtype="f4"):
        return options_of(kernel=("tiled", TileConfig.square(8)), precision="high", dtype=dtype)

    assert asked() is asked(np.float32)
    assert asked("q") is not asked("l")  # equal dtypes on Linux, whose results are not of one type


# ---- queues, events, threads -------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_an_array_moved_to_another_queue(product, way):
    for _ in range(2):
        product.check(way)
    other = cl.CommandQueue(product.queue.context)
    for name in ("a", "b", "out"):
        getattr(product, name).queue = other
    result = product.call(way)
    assert result.events[-1].command_queue == other
    assert np.array_equal(result.get(), product.a.get() @ product.b.get())


@pytest.mark.parametrize("way", WAYS)
def test_another_queue_given(product, way):
    for _ in range(2):
        product.check(way)
    other = cl.CommandQueue(product.queue.context)
    for queue in (other, other, None, product.queue, other):
        result = product.call(way, queue=queue)
        assert result.events[-1].command_queue == (queue or product.queue)
        result.finish()


@pytest.mark.parametrize("of", ["a", "b", "out", "wait_for"])
@pytest.mark.parametrize("properties", [0, OUT_OF_ORDER], ids=["in-order", "out-of-order"])
def test_new_events_are_waited_for(context, held, rng, properties, of):
    product = Product(cl.CommandQueue(context, properties=properties), rng)
    for _ in range(3):
        product.check("plan")
    if of == "wait_for":
        result = product.call("plan", wait_for=[held])
    else:
        getattr(product, of).add_event(held)
        result = product.call("plan")
    product.queue.flush()
    time.sleep(0.2)
    assert result.events[-1].command_execution_status != COMPLETE
    held.set_status(COMPLETE)
    assert np.array_equal(result.get(), product.a.get() @ product.b.get())


# ---- failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_after_a_call_that_failed_every_buffer_is_set(product, arguments, way):
    """The call that failed had set other buffers."""
    for _ in range(2):
        product.check(way)
    other = product.new()
    with refused_launch(OUT_OF_RESOURCES), pytest.raises(pyclmm.LaunchError):
        product.call(way, a=other)
    arguments.clear()
    product.check(way)
    assert arguments == ["buffer"] * 3, "a, b and out"


def test_ctrl_c_while_a_result_is_allocated(product):
    """The call had not set its buffers yet, and the next one must not think so."""
    plan = pyclmm.Matmul(product.a, product.b, kernel="naive")
    plan(product.a, product.b)
    other = product.new()
    with failing("opencl", "Buffer", KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
        plan(other, product.b)
    for _ in range(2):
        assert np.array_equal(plan(other, product.b).get(), other.get() @ product.b.get())


@pytest.mark.parametrize("way", WAYS)
def test_kernel_objects_that_take_no_arguments_any_more_are_replaced(product, way):
    """As NVIDIA's driver rejects a buffer where the kernel object has had shared virtual memory."""
    for _ in range(2):
        product.check(way)
    with refused_launch(INVALID_KERNEL_ARGS, times=2) as fault:
        product.check(way)
    assert fault.calls == 3, "again, in full, and with a new kernel object"


# ---- constant operands -------------------------------------------------------------------------


def test_a_constant_b_is_packed_once_and_another_one_again(queue, rng):
    a = cla.to_device(queue, small_integers(rng, (N, N), "f4"))
    wide = [cla.to_device(queue, small_integers(rng, (N, 2 * N), "f4")) for _ in range(2)]
    out = cla.zeros(queue, (N, N), np.float32)
    plan = pyclmm.Matmul(a, wide[0][:, ::2], out=out, constant_b=True, kernel="naive")
    first, second = (x[:, ::2] for x in wide)
    for b, launches in ((first, 2), (first, 1), (second, 2), (second, 1), (first, 2)):
        with refused_launch(KeyboardInterrupt(), at=99) as counted:
            plan(a, b, out=out)
        assert counted.calls == launches
        assert np.array_equal(out.get(), a.get() @ wide[b is second].get()[:, ::2])


def test_calls_that_take_turns_look_for_no_plan(queue, rng, monkeypatch):
    """As the layers of a network do: each shape's last call is followed like the last call of all."""
    looked = noted(monkeypatch, plan_cache, "plan_for")
    shapes = [(3, 4, 5), (4, 5, 6), (5, 6, 3)]
    layers = [[small_integers(rng, shape, "f4") for shape in ((m, k), (k, n))] for m, n, k in shapes]
    for _ in range(4):
        for a, b in layers:
            got = pyclmm.matmul(*(cla.to_device(queue, x) for x in (a, b)), kernel="naive")
            np.testing.assert_array_equal(got.get(), a @ b)
    assert len(looked) == len(layers)


def test_of_calls_that_take_turns_each_has_its_options(queue, rng):
    a, b = (cla.to_device(queue, rng.standard_normal((40, 40)).astype("f4")) for _ in "ab")
    c = cla.to_device(queue, np.ones((30, 30), "f4"))
    exact = pyclmm.matmul(a, b, reproducible=True).get()
    for _ in range(3):
        pyclmm.matmul(c, c)
        np.testing.assert_array_equal(pyclmm.matmul(a, b, reproducible=True).get(), exact)
        assert pyclmm.matmul(a, b, dtype="f8").dtype == "f8"
        assert pyclmm.matmul(a, b).dtype == "f4"


@pytest.mark.parametrize("wrong", [np.zeros(2), 0, "", {}], ids=repr)
@pytest.mark.parametrize(
    "name", ["mixed", "wait_for", "memory_limit", "devices", "progress", "checkpoint", "axes", "quantize_a"]
)
@pytest.mark.parametrize("on_host", [True, False])
def test_what_a_call_refuses_one_like_the_last_refuses(queue, rng, name, wrong, on_host):
    """Also where the truth of a value cannot be told, or is false."""
    arrays = [rng.random((8, 8), "f4") for _ in "ab"]
    a, b = arrays if on_host else (cla.to_device(queue, x) for x in arrays)
    for _ in range(2):
        right = pyclmm.matmul(a, b)
        with pytest.raises((pyclmm.DTypeError, pyclmm.ArgumentError), match=name):
            pyclmm.matmul(a, b, **{name: wrong})
        same(pyclmm.matmul(a, b), right)
