"""Events that are made when somebody looks: whoever looks waits for the product, and nobody else pays."""

import contextlib
import copy
import gc
import threading
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.opencl import late_events
from pyclmm.opencl.binding import Binding
from pyclmm.opencl.late_events import LateEvents
from tests.support.cases import small_integers
from tests.support.faults import replace_driver
from tests.support.threads import in_threads

N = 16
COMPLETE = cl.command_execution_status.COMPLETE
OUT_OF_ORDER = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
PROFILING = cl.command_queue_properties.PROFILING_ENABLE


class Held:
    """A product on a queue of its own, which stands still until ``let_go()``. *other*: another queue."""

    def __init__(self, context, rng, properties=0):
        self.queue, self.other = cl.CommandQueue(context, properties=properties), cl.CommandQueue(context)
        self.x, self.y = (small_integers(rng, (N, N), "f4") for _ in range(2))
        self.want = self.x @ self.y
        self.a, self.b = (cla.to_device(self.queue, x) for x in (self.x, self.y))
        self.out = cla.zeros(self.queue, (N, N), np.float32)
        self.plan = pyclmm.Matmul(self.a, self.b, kernel="naive")
        self.into = pyclmm.Matmul(self.a, self.b, out=self.out, kernel="naive")
        for result in (self.plan(self.a, self.b), self.into(self.a, self.b, out=self.out)):
            result.get()  # the first run has an event, so that its end is known
        self.out = cla.zeros(self.queue, (N, N), np.float32)
        self.queue.finish()
        self.gate = cl.UserEvent(context)

    def product(self, out=None, **keywords):
        plan = self.plan if out is None else self.into
        return plan(self.a, self.b, out=out, **keywords)

    def call(self, out=None, **keywords):
        """The product, enqueued behind the gate. The queue lets go 0.2 s later."""
        cl.enqueue_barrier(self.queue, wait_for=[self.gate])
        threading.Timer(0.2, self.let_go).start()
        result = self.product(out, **keywords)
        self.queue.flush()
        return result

    def let_go(self):
        if self.gate.command_execution_status != COMPLETE:
            self.gate.set_status(COMPLETE)


@pytest.fixture
def held(context, rng):
    made = Held(context, rng)
    yield made
    made.let_go()


class Markers(list):
    """The markers that looks have made. ``before``: what another thread does before the next one."""

    before: Callable[[], object] | None = None


@pytest.fixture
def markers(monkeypatch):
    made, own = Markers(), cl.enqueue_marker

    def noted(*args, **keywords):
        before, made.before = made.before, None
        if before is not None:
            before()
        made.append(own(*args, **keywords))
        return made[-1]

    replace_driver(monkeypatch, "opencl.late_events", enqueue_marker=noted)
    return made


# ---- who looks, waits ---------------------------------------------------------------------------


def copied(c, other, events):
    """The elements of *c*, read on another queue after *events*."""
    host = np.empty(c.shape, c.dtype)
    cl.enqueue_copy(other, host, c.base_data, wait_for=events)
    return host


def added(c):
    events = one = []
    events += c.events
    assert one is events
    return one


def waited(c, other, wait):
    wait(c.events)
    return copied(c, other, [])


def finished(c, other):
    c.finish()
    return copied(c, other, [])


def got_later(c, other):
    host, event = c.get_async(queue=other)
    event.wait()
    return host


def of_pyopencl(c, other, function):
    return function(c.with_queue(other)).get()


LOOKS = {
    "copy": lambda c, other: copied(c, other, c.events),
    "iterate": lambda c, other: copied(c, other, [event for event in c.events]),  # noqa: C416
    "unpack": lambda c, other: copied(c, other, (*c.events,)),
    "list": lambda c, other: copied(c, other, list(c.events)),
    "tuple": lambda c, other: copied(c, other, tuple(c.events)),
    "slice": lambda c, other: copied(c, other, c.events[:]),
    "copy of the list": lambda c, other: copied(c, other, c.events.copy()),
    "copy.copy": lambda c, other: copied(c, other, copy.copy(c.events)),
    "copy of the Array": lambda c, other: copy.copy(c).get(queue=other),
    "list + events": lambda c, other: copied(c, other, [] + c.events),  # noqa: RUF005
    "events + list": lambda c, other: copied(c, other, c.events + []),  # noqa: RUF005
    "list += events": lambda c, other: copied(c, other, added(c)),
    "pop": lambda c, other: copied(c, other, [c.events.pop()]),
    "reversed": lambda c, other: copied(c, other, list(reversed(c.events))),
    "wait": lambda c, other: waited(c, other, lambda events: events[-1].wait()),
    "wait_for_events": lambda c, other: waited(c, other, cl.wait_for_events),
    "if any": lambda c, other: waited(c, other, lambda events: events and events[0].wait()),
    "range(len)": lambda c, other: waited(c, other, lambda e: [e[i].wait() for i in range(len(e))]),
    "marker": lambda c, other: waited(c, other, lambda e: cl.enqueue_marker(other, wait_for=e).wait()),
    "finish": finished,
    "get": lambda c, other: c.get(queue=other),
    "get_async": got_later,
    "Array.copy": lambda c, other: of_pyopencl(c, other, lambda far: far.copy()),
    "elementwise": lambda c, other: of_pyopencl(c, other, lambda far: far + 0),
    "in place": lambda c, other: of_pyopencl(c, other, lambda far: far.__imul__(1)),
    "two Arrays": lambda c, other: of_pyopencl(c, other, lambda far: cla.zeros_like(far) + far),
    "where": lambda c, other: of_pyopencl(c, other, lambda far: cla.if_positive(far, far, far)),
    "a product": lambda c, other: pyclmm.matmul(c, one_with(c, other), queue=other).get(queue=other),
    "a view": lambda c, other: c[:].with_queue(other).get(),
}


def one_with(c, other):
    return cla.to_device(other, np.eye(N, dtype=c.dtype))


@pytest.mark.parametrize(
    ("look", "made"), [*((look, "result") for look in LOOKS), ("copy", "out"), ("copy", "enqueue")]
)
def test_who_looks_waits_for_the_product(held, look, made):
    """On another queue, or on the host."""
    LOOKS[look](cla.zeros(held.queue, (N, N), np.float32), held.other)  # compiles PyOpenCL's kernels
    c = held.call(out=None if made == "result" else held.out)
    assert list.__len__(c.events) == 0
    if made == "enqueue":
        c.events = held.into.enqueue(held.a, held.b, out=held.out)
    assert np.array_equal(LOOKS[look](c, held.other), held.want)


@pytest.mark.parametrize("name", sorted({*vars(list)} - late_events._BLIND - {"__hash__", "__doc__"}))
def test_each_method_of_a_list_looks_first(name, monkeypatch):
    looks = []
    monkeypatch.setattr(LateEvents, "look", lambda _: looks.append(name))
    with contextlib.suppress(TypeError, IndexError):  # for want of arguments
        getattr(late_events.late_events(), name)()
    assert looks == [name]


def test_a_marker_is_flushed_before_anybody_has_it(monkeypatch):
    """Who waits for it in another queue may have flushed the product's queue before he looked."""
    done = []
    queue = SimpleNamespace(flush=lambda: done.append("flush"))
    replace_driver(monkeypatch, "opencl", enqueue_marker=lambda _: done.append("marker"))
    late_events.late_events((), late_events.late(queue, [])).look()
    assert done == ["marker", "flush"]


def test_few_queues_are_kept_alive(held):
    """Of those whose products have been seen; the others are needed for their markers."""
    held.let_go()
    queues = [cl.CommandQueue(held.queue.context) for _ in range(20)]
    for queue in queues:
        held.into(held.a, held.b, out=held.out, queue=queue)
    held.out.events.look()
    assert len(held.out.events._late) <= late_events._QUEUES


def test_a_queue_that_is_let_go_while_another_thread_uses_it(held, monkeypatch, limits):
    """Its product is not lost."""
    held.let_go()
    c = held.product()
    [late] = c.events._late
    limits(queues=0)
    own = late_events._remove

    def slowly(among, one):
        own(among, one)
        late.product = []  # as another thread's product does, which saw it in the list

    monkeypatch.setattr(late_events, "_remove", slowly)
    c.events.look()
    assert c.events._late == [late]
    monkeypatch.undo()
    limits(queues=0)
    c.events.look()
    assert not c.events._late

    class Vanishing(list):
        def __iter__(self):
            seen = list.copy(self)
            self.clear()  # as another thread does that looks
            return iter(seen)

    c.events._late = Vanishing([late])
    c.events.replace((), held.queue)
    assert list.copy(c.events._late) == [late]


def test_a_product_whose_queue_was_let_go(held):
    held.product().get()
    c = held.call()
    held.a = held.b = held.out = held.queue = c.queue = None
    held.plan.close()
    pyclmm.release()
    gc.collect()
    assert np.array_equal(c.get(queue=held.other), held.want)


# ---- nobody else pays ---------------------------------------------------------------------------


@pytest.mark.parametrize("made", ["result", "out", "enqueue"])
def test_nobody_looks_and_nothing_is_made_or_kept(held, markers, made, monkeypatch):
    held.let_go()
    monkeypatch.setattr(cl, "enqueue_nd_range_kernel", None)  # it makes an event for each launch
    for _ in range(40):
        if made == "enqueue":
            held.into.enqueue(held.a, held.b, out=held.out)
        c = held.product(None if made == "result" else held.out)
        assert list.__len__(c.events) == 0
    assert not markers
    assert len(c.events) == len(markers) == 1, "the last product alone was kept"


def test_a_product_of_the_same_queue_makes_no_marker(held, markers):
    held.call(out=held.out)
    c = held.plan(held.out, held.b)
    assert not markers
    assert np.array_equal(c.get(queue=held.other), held.want @ held.y)
    assert len(markers) == 1


def test_a_product_of_another_queue_makes_one(held, markers):
    c = held.plan(held.call(out=held.out), held.b, queue=held.other)
    assert len(markers) == 1
    assert np.array_equal(c.get(queue=held.other), held.want @ held.y)


@pytest.mark.parametrize("properties", [OUT_OF_ORDER, PROFILING], ids=["out-of-order", "profiling"])
def test_other_queues_make_events_at_once(context, rng, markers, properties):
    if not context.devices[0].queue_properties & properties:
        pytest.skip("the device has no such queues")
    held = Held(context, rng, properties)
    c = held.call(out=held.out)
    assert list.__len__(c.events) == 1
    assert np.array_equal(c.get(queue=held.other), held.want)
    assert not markers


@pytest.mark.parametrize("empty", [False, True])
def test_who_passes_events_gets_one_at_once(held, markers, empty):
    c = held.call(out=held.out, wait_for=[] if empty else [cl.enqueue_marker(held.queue)])
    assert list.__len__(c.events) == (0 if empty else 1)
    assert np.array_equal(c.get(queue=held.other), held.want)
    assert len(markers) == empty


def test_events_before_the_product_are_replaced(held, markers):
    held.let_go()
    held.out.add_event(cl.enqueue_marker(held.other))
    for _ in range(3):
        held.product(held.out)
        assert list.__len__(held.out.events) == 0
        assert len(held.out.events) == 1  # it looks, and the next product replaces that marker
    assert len(markers) == 3


def test_the_events_of_enqueue_are_those_of_out(held, markers):
    held.let_go()
    events = held.into.enqueue(held.a, held.b, out=held.out)
    assert events[-1] is held.out.events[-1]
    assert events[-1].command_queue == held.queue
    assert len(markers) == 1


# ---- Arrays that share a list, and threads ------------------------------------------------------


def test_a_view_made_before_has_the_event_of_the_product(held, markers):
    """It has the list of its Array, which must not be replaced."""
    view = held.out[:].with_queue(held.other)
    c = held.call(out=held.out)
    assert view.events is c.events
    assert np.array_equal(view.get(), held.want)
    assert not markers


def test_a_list_that_is_shared_is_not_replaced_for_a_moment(held, monkeypatch):
    """Another thread could take the one that goes again."""
    view = held.out[:]
    monkeypatch.setattr(late_events, "late_events", None)
    assert not late_events.takes_late(view)


def test_a_copy_of_the_events_is_a_plain_list(held):
    """It takes nothing from them that comes later."""
    assert type(copy.copy(held.product().events)) is list


def test_a_list_that_somebody_holds_has_the_event_of_the_product(held):
    events = held.out.events
    held.call(out=held.out)
    assert np.array_equal(copied(held.out, held.other, events), held.want)


def test_a_view_made_while_the_list_is_replaced(held, monkeypatch):
    """By another thread."""
    views, own = [], late_events.late_events

    def slowly(events):
        views.append(held.out[:].with_queue(held.other))
        return own(events)

    with monkeypatch.context() as patch:
        patch.setattr(late_events, "late_events", slowly)
        assert not late_events.takes_late(held.out)
    held.call(out=held.out)
    assert np.array_equal(views[0].get(), held.want)


@pytest.mark.parametrize("when", ["a launch", "a look"])
def test_a_product_that_another_thread_enqueues_meanwhile_is_not_lost(context, held, monkeypatch, when):
    """Into another part of the same result, on its own queue."""
    third = cl.CommandQueue(context)
    whole = held.product()
    part, rest = whole[: N // 2], whole[N // 2 :]
    a = held.a[: N // 2]
    plan = pyclmm.Matmul(a, held.b, out=part, kernel="naive")
    for queue in (third, held.other):
        plan(a, held.b, out=part, queue=queue)
        queue.finish()  # so that later calls make no events
    room, name = (Binding, "_launch") if when == "a launch" else (cl, "enqueue_marker")
    own = getattr(room, name)

    def with_another(*args):
        monkeypatch.setattr(room, name, own)
        done = own(*args)
        plan(a, held.b, out=rest, queue=third)
        return done

    plan(a, held.b, out=part, queue=third)
    plan(a, held.b, out=part, queue=held.other)
    monkeypatch.setattr(room, name, with_another)
    plan(a, held.b, out=part, queue=held.other)
    held.let_go()
    seen = [*whole.events, *whole.events]
    assert getattr(room, name) is own
    assert {event.command_queue.int_ptr for event in seen} == {held.other.int_ptr, third.int_ptr}


def test_who_looks_while_another_looks_sees_the_event_too(held, markers):
    c, seen = held.product(), []
    markers.before = lambda: seen.append(list(c.events))
    assert list(c.events)
    assert seen[0]


def test_threads_look_at_the_same_moment(held, rounds):
    for _ in range(rounds(40)):
        c = held.product()
        for events in in_threads(4, lambda _, c=c: list(c.events)):
            assert events
        assert len(c.events) <= 4
        assert len(held.product(c).events) == 1
