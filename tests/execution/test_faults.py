"""Faults of a driver are injected into calls. A call that fails changes nothing, and the next one works."""

import sys
import warnings
import weakref
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm import store
from pyclmm.errors import WorkspaceError
from pyclmm.execution import host_path
from pyclmm.kernels import Work, Workspace
from pyclmm.opencl import compiler, host_memory, program, queues, workspace
from pyclmm.opencl.binding import Binding
from pyclmm.opencl.devices import default_device, device_info
from tests.support.cases import problem_of, refused
from tests.support.faults import (
    ALLOCATION_FAILURE,
    BUILD_FAILURE,
    DEVICE_NOT_AVAILABLE,
    EXECUTION_FAILED,
    INVALID_COMMAND_QUEUE,
    INVALID_KERNEL_ARGS,
    INVALID_WORK_GROUP_SIZE,
    OUT_OF_RESOURCES,
    Call,
    check_caches,
    cl_error,
    failing,
    lent_workspace,
    refused_launch,
    refusing_buffers,
    replace_driver,
)
from tests.support.made_up import seen_as
from tests.support.plans import executable, kept_plans

REFUSALS = [OUT_OF_RESOURCES, INVALID_WORK_GROUP_SIZE]
LOSSES = [DEVICE_NOT_AVAILABLE, INVALID_COMMAND_QUEUE]


@pytest.fixture(autouse=True)
def caches(own_caches):
    yield own_caches
    check_caches(own_caches)


@pytest.fixture
def discrete(monkeypatch, limits):
    """Devices seem not to share the host's memory. Chunks of transfers are small."""
    seen_as(monkeypatch, unified_memory=False)
    limits(chunk=1024, direct=64)


@pytest.fixture
def mapped(monkeypatch):
    """Devices seem to share the host's memory, but results must be mapped."""
    seen_as(monkeypatch, unified_memory=True, vendor="mesa")


@pytest.fixture
def in_place(monkeypatch, device):
    """Devices work in the host's memory."""
    if not device.in_place:
        pytest.skip("the device does not work in the host's memory")
    seen_as(monkeypatch, unified_memory=True, vendor="pocl", kind="cpu")
    monkeypatch.setitem(host_path._takes_addresses, (device.platform, device.name), False)


# -- a build fails


def test_a_build_failure_steps_down_the_ladder_with_one_warning(two_rungs):
    call = Call()
    with (
        failing("opencl", "Program", cl_error(BUILD_FAILURE), times=2),  # of tiled, also by a detour
        pytest.warns(pyclmm.KernelWarning, match="'naive' is used instead") as caught,
    ):
        call()
    assert len(caught) == 1
    call.check_works()


def test_a_failed_build_leaves_no_file_and_no_lock(tmp_path, monkeypatch):
    source = tmp_path / "left.cl"
    source.write_text("kernel")
    fault = cl_error(BUILD_FAILURE, text=f"log\n(source saved as {source})")
    call = Call(kernel="naive")
    with failing("opencl", "Program", fault, always=True), pytest.raises(pyclmm.BuildError) as caught:
        call()
    assert not source.exists()
    assert str(tmp_path) not in str(caught.value)
    call.check_works()


# -- a launch is refused


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refused_launch_steps_down_the_ladder(two_rungs, code):
    call = Call()
    with refused_launch(code), pytest.warns(pyclmm.KernelWarning, match="'naive' is used instead"):
        call()
    call.check_works()


@pytest.mark.parametrize("code", REFUSALS)
def test_a_launch_refused_in_a_call_leaves_everything_as_it_was(code):
    call = Call(kernel="tiled")
    call()
    call.out[...] = 7
    with refused_launch(code), pytest.raises(pyclmm.LaunchError, match="call again, or with another kernel"):
        call()
    call.check_untouched()
    call.check_works()


@pytest.mark.parametrize("code", REFUSALS)
def test_a_launch_refused_in_a_call_steps_down_the_ladder(two_rungs, code):
    """Also long after the self-check. One warning is given, and later calls use the fallback too."""
    call = Call()
    call()
    call.out[...] = 7
    with (
        refused_launch(code),
        pytest.warns(
            pyclmm.KernelWarning, match="device .*: tiled: .* rejected kernel .*'naive' is used"
        ) as told,
    ):
        call()
    assert len(told) == 1
    call.check_works()
    with refused_launch(code), pytest.raises(pyclmm.LaunchError):
        call()  # naive is used now and has no fallback
    with refused_launch(code), pytest.warns(pyclmm.KernelWarning, match="tiled: .*'naive' is used instead"):
        call()  # the ladder begins at its top again
    call.check_works()


@pytest.mark.parametrize("out_of_order", [False, True])
def test_a_plan_on_arrays_steps_down_from_any_of_its_launches(two_rungs, out_of_order):
    """The copy of a may still be running when the next kernel is enqueued."""
    flag = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    queue = cl.CommandQueue(queues.default_queue().context, properties=flag * out_of_order)
    x = np.arange(100, dtype=np.float32).reshape(10, 10)
    a = cla.to_device(queue, x)[::2, ::2]
    for launch in (1, 2, 3):
        plan = pyclmm.Matmul(a, a)
        fault = refused_launch(OUT_OF_RESOURCES, at=launch)
        with fault, pytest.warns(pyclmm.KernelWarning, match="tiled: .*'naive' is used instead"):
            result = plan(a, a)
        assert plan.kernel == "naive"
        assert np.array_equal(result.get(), x[::2, ::2] @ x[::2, ::2])


def test_a_product_that_may_have_overwritten_c_is_not_begun_again(two_rungs, limits):
    """A long stack takes several launches. The first has updated its C when the second is rejected."""
    limits(launch=1)
    queue = queues.default_queue()
    a, c = (cla.to_device(queue, np.ones((2, 4, 4), np.float32)) for _ in range(2))
    plan = pyclmm.Matmul(a, a, c, beta=1.0, out=c)
    with refused_launch(OUT_OF_RESOURCES, at=2), pytest.raises(pyclmm.LaunchError):
        plan(a, a, c, out=c)
    assert plan.kernel == "tiled"
    c.fill(1)
    assert (plan(a, a, c, out=c).get() == 5).all()


@pytest.mark.parametrize("launch", [1, 2, 3, 4])
def test_any_launch_of_a_product_may_be_refused(launch):
    """Copies of a and b and the product are written to workspace. Only the last launch writes out."""
    queue = queues.default_queue()
    x = np.arange(100, dtype=np.float32).reshape(10, 10)
    a, out = cla.to_device(queue, x)[::2, ::2], cla.to_device(queue, np.full((5, 10), 7, np.float32))

    def call():
        return pyclmm.matmul(a, a, kernel="tiled", out=out[:, ::2])

    call()
    out.fill(7)
    refusal = pytest.raises(pyclmm.LaunchError, match="work-groups")
    with refused_launch(OUT_OF_RESOURCES, at=launch) as fault, refusal:
        call()
    assert fault.calls == launch
    assert (out.get() == 7).all()
    call()
    assert np.array_equal(out.get()[:, ::2], x[::2, ::2] @ x[::2, ::2])


# -- an allocation is refused


@pytest.mark.parametrize(("number", "name"), [(1, "a"), (2, "b"), (3, "out")])
@pytest.mark.parametrize("memory", ["in_place", "mapped", "discrete"])
def test_a_refused_allocation_names_the_operand(request, number, name, memory):
    request.getfixturevalue(memory)
    call = Call(kernel="tiled")
    call()
    call.out[...] = 7
    with (
        failing("opencl.host_memory", "Buffer", cl_error(ALLOCATION_FAILURE), at=number),
        pytest.raises(pyclmm.DeviceMemoryError, match=rf"\d+ bytes for {name} \(.*ALLOCATION.*free some"),
    ):
        call()
    call.check_untouched()
    call.check_works()


WORKSPACE_SHAPE = (3, 5, 20_000)  # register's partial sums are workspace


def _workspace_of(plan):
    [space] = executable(plan).work.workspace
    return space.nbytes


def _next_kernel():
    return pytest.warns(pyclmm.KernelWarning, match=r"register: .*workspace:partial.*'naive' is used instead")


@pytest.mark.usefixtures("workspace_rung")
def test_refused_workspace_steps_down_the_ladder_while_planning():
    call = Call(shape=WORKSPACE_SHAPE)
    nbytes = _workspace_of(pyclmm.Matmul(call.a, call.b))
    with refusing_buffers(nbytes), _next_kernel() as told:
        plan = pyclmm.Matmul(call.a, call.b)
    assert len(told) == 1
    assert plan.kernel == "naive"
    call.check_untouched()
    call.check_works()
    pyclmm.release()
    refusal = pytest.raises(pyclmm.DeviceMemoryError, match=rf"rejected {nbytes} bytes for workspace:partial")
    with refusing_buffers(nbytes), refusal:
        pyclmm.Matmul(call.a, call.b, kernel="register")


@pytest.mark.usefixtures("workspace_rung")
def test_workspace_refused_in_a_call_steps_down_the_ladder():
    call = Call(shape=WORKSPACE_SHAPE)
    plan = pyclmm.Matmul(call.a, call.b)
    nbytes = _workspace_of(plan)
    plan.release()
    with refusing_buffers(nbytes), _next_kernel() as told:
        first = plan(call.a, call.b)
        plan(call.a, call.b)
    assert len(told) == 1
    assert plan.kernel == "naive"
    assert np.allclose(first, call.a @ call.b, atol=1e-2)


@pytest.mark.usefixtures("workspace_rung")
def test_memory_refused_at_a_launch_of_a_kernel_with_workspace_steps_down():
    """A driver may allocate a buffer when it is first used."""
    call = Call(shape=WORKSPACE_SHAPE)
    plan = pyclmm.Matmul(call.a, call.b)
    with (
        refused_launch(ALLOCATION_FAILURE),
        pytest.warns(pyclmm.KernelWarning, match="register: .* had no memory for kernel .*'naive' is used"),
    ):
        plan(call.a, call.b)
    with refused_launch(ALLOCATION_FAILURE), pytest.raises(pyclmm.DeviceMemoryError, match="had no memory"):
        plan(call.a, call.b)  # naive has no workspace that another kernel could do without
    assert plan.kernel == "naive"


@pytest.mark.usefixtures("workspace_rung")
def test_memory_refused_after_c_may_be_overwritten_does_not_begin_again():
    queue = queues.default_queue()
    m, n, k = WORKSPACE_SHAPE
    a, b, c = (cla.to_device(queue, np.ones(shape, np.float32)) for shape in ((m, k), (k, n), (m, n)))
    plan = pyclmm.Matmul(a, b, c, beta=1.0, out=c)
    assert _workspace_of(plan)
    with refused_launch(ALLOCATION_FAILURE, at=2), pytest.raises(pyclmm.DeviceMemoryError):
        plan(a, b, c, out=c)
    assert plan.kernel == "register"


@pytest.mark.usefixtures("workspace_rung")
@pytest.mark.parametrize("what", ["a copy", "an operand"])
def test_memory_that_every_kernel_needs_is_refused_without_stepping_down(what):
    queue = queues.default_queue()
    m, n, k = WORKSPACE_SHAPE
    if what == "a copy":
        a = cla.to_device(queue, np.ones((2 * m, 2 * k), np.float32))[::2, ::2]
        b = cla.to_device(queue, np.ones((k, n), np.float32))
    else:
        a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    plan = pyclmm.Matmul(a, b)
    plan.release()
    fault = refusing_buffers(m * k * 4)
    with fault, pytest.raises(pyclmm.DeviceMemoryError, match=f"rejected {m * k * 4} bytes for "):
        plan(a, b)
    assert plan.kernel == "register"
    result = plan(a, b)
    assert ((result.get() if what == "a copy" else result) == k).all()


def test_workspace_of_a_kernel_that_did_not_get_all_is_free_for_the_next_one(monkeypatch):
    """The error is kept until a kernel is found; the buffers in its traceback must not be."""
    queue = queues.default_queue()
    work = Work((), (Workspace("one", 64), Workspace("two", 128)), {"batch_offsets": np.zeros((1, 4), "i8")})
    alive = []

    class Tracked(cl.Buffer):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            if self.size == 64:
                raise cl_error(ALLOCATION_FAILURE)
            if self.size == 128:
                alive.append(weakref.ref(self))

    replace_driver(monkeypatch, "opencl", Buffer=Tracked)
    pyclmm.release()
    with pytest.raises(WorkspaceError) as caught:
        Binding(queue, device_info(queue.device), work)
    assert "workspace:one" in str(caught.value)
    assert len(alive) == 1
    assert alive[0]() is None


def test_a_refused_allocation_for_a_result_on_the_device():
    queue = queues.default_queue()
    a = cla.to_device(queue, np.ones((8, 8), np.float32))

    def refuse(_size):
        raise cl_error(ALLOCATION_FAILURE)

    a.allocator = refuse
    with pytest.raises(pyclmm.DeviceMemoryError, match=r"rejected 256 bytes for out"):
        pyclmm.matmul(a, a)
    a.allocator = None
    assert (pyclmm.matmul(a, a).get() == 8).all()


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_refused_allocation_while_planning_keeps_no_verdict(caches, number):
    """The allocations are offset tables and the operands of the self-check."""
    call = Call()
    fault = failing("opencl.host_memory", "Buffer", cl_error(ALLOCATION_FAILURE), at=number)
    with fault, pytest.raises(pyclmm.DeviceMemoryError, match="free some, or multiply smaller matrices"):
        call()
    assert not (caches / "selfcheck").exists()
    call.check_untouched()
    with failing("opencl.launcher", "enqueue_copy", None, times=0) as checks:
        call.check_works()
    assert checks.calls, "it is checked now"


# -- the device is lost


@pytest.mark.parametrize("code", LOSSES)
def test_a_device_lost_at_a_launch(code):
    call = Call(kernel="tiled")
    call()
    call.out[...] = 7
    before = queues.default_queue()
    with refused_launch(code), pytest.raises(pyclmm.DeviceLostError, match="call again with NumPy arrays"):
        call()
    call.check_untouched()
    _check_new_context(call, before)


# Where the host waits for a kernel, by the kind of memory.
SEAMS = {
    "in_place": ("opencl.host_memory", "cl", "wait_for_events"),
    "mapped": ("opencl.host_memory", "cl", "enqueue_map_buffer"),
    "discrete": (host_memory, "", "download"),
}


@pytest.mark.parametrize("code", [*LOSSES, OUT_OF_RESOURCES, EXECUTION_FAILED, -9999])
@pytest.mark.parametrize("memory", SEAMS)
def test_a_device_lost_in_mid_run(request, code, memory):
    request.getfixturevalue(memory)
    call = Call(kernel="tiled")
    call()
    before = queues.default_queue()
    module, library, name = SEAMS[memory]
    fault = failing(module, name, cl_error(code), library, always=True)
    with fault, pytest.raises(pyclmm.DeviceLostError, match="stopped before the result was complete"):
        call()
    call.check_untouched(out=False)  # the kernel may have written part of out
    _check_new_context(call, before)


def _check_new_context(call, before):
    """Nothing of the lost context is kept, and the next call works in a new one."""
    assert not [key for key in kept_plans() if key[0] == before.context]
    assert not [key for key in program._programs._values if key[0] == before.context]
    call.check_works()
    assert queues.default_queue().context != before.context


def test_a_kernel_that_loses_the_device_in_its_check_is_not_tried_again(two_rungs, caches):
    call = Call()
    fault = failing("opencl.launcher", "enqueue_copy", cl_error(OUT_OF_RESOURCES))
    with fault, pytest.raises(pyclmm.DeviceLostError):
        call()
    call.check_untouched()
    assert not list(caches.rglob("*.json")), "it need not have been the kernel"
    with pytest.warns(pyclmm.KernelWarning, match=r"tiled: the device was lost .* 'naive' is used"):
        call()
    call.check_works()


# -- Ctrl-C

MOMENTS = [
    ("opencl", "cl", "Program", {}),
    ("opencl", "cl", "Kernel", {}),
    ("opencl.host_memory", "cl", "Buffer", {}),
    ("opencl.host_memory", "cl", "Buffer", {"at": 3}),
    ("opencl", "cl", "enqueue_nd_range_kernel", {}),
    ("opencl", "cl", "enqueue_nd_range_kernel", {"after": True}),
    ("opencl", "cl", "enqueue_nd_range_kernel", {"at": 13, "after": True}),
    ("opencl.launcher", "cl", "enqueue_copy", {}),
    ("opencl.host_memory", "cl", "wait_for_events", {}),
    ("opencl.host_memory", "cl", "wait_for_events", {"after": True}),
    ("opencl.host_memory", "cl", "enqueue_map_buffer", {}),
    ("opencl.host_memory", "cl", "enqueue_map_buffer", {"after": True}),
    (store, "json", "dumps", {}),
    (store, "json", "dumps", {"after": True}),
    (store, "os", "replace", {}),
    (store, "os", "replace", {"after": True}),
]


def _three_times(call):
    for _ in range(3):
        call()


@pytest.mark.parametrize(("module", "library", "name", "how"), MOMENTS)
def test_ctrl_c_at_any_moment(request, module, library, name, how):
    request.getfixturevalue("mapped" if name == "enqueue_map_buffer" else "in_place")
    call = Call(kernel="tiled")
    refusal = pytest.raises(KeyboardInterrupt)
    with failing(module, name, KeyboardInterrupt(), library, **how) as fault, refusal:
        _three_times(call)
    assert fault.calls >= how.get("at", 1)
    call.check_untouched(out=False)
    call.check_works()


def test_a_call_that_fails_waits_for_what_it_has_enqueued(monkeypatch):
    """The kernel reads the caller's arrays in place, and the caller may free them after the call."""
    call = Call(kernel="naive", shape=(300, 300, 300))  # large, so that it would still be running
    call()
    events = []

    def enqueue(*args, **kwargs):
        events.append(cl.enqueue_nd_range_kernel(*args, **kwargs))
        raise KeyboardInterrupt

    replace_driver(monkeypatch, "opencl", enqueue_nd_range_kernel=enqueue)
    with pytest.raises(KeyboardInterrupt):
        call()
    [event] = events
    assert event.command_execution_status == cl.command_execution_status.COMPLETE


# -- workspace

# Some rows and columns; thin shapes for kernels that take only those.
SHAPES = ((19, 21, 33), (19, 4, 33), (4, 21, 33), (19, 1, 33), (1, 21, 33), (1, 1, 33))


@pytest.mark.parametrize("kernel", pyclmm.KERNELS, ids=lambda k: k.name)
def test_workspace_full_of_nan(monkeypatch, kernel):
    """No kernel reads workspace that it has not written. a is copied, so that each has some."""
    info = device_info(default_device())
    reasons = {shape: kernel.refuses(problem_of(*shape), info) for shape in SHAPES}
    shape = next((shape for shape, reason in reasons.items() if reason is None), None)
    if shape is None:
        refused(kernel, reasons[SHAPES[0]])
    filled = lent_workspace(monkeypatch, fill=0xFF)
    queue = queues.default_queue()
    rng = np.random.default_rng(5)
    for m, n, k in (shape, (shape[0], shape[1], 700)):
        a = cla.to_device(queue, rng.integers(-3, 4, (m, 2 * k)).astype(np.float32))
        b = cla.to_device(queue, rng.integers(-3, 4, (k, n)).astype(np.float32))
        out = cla.to_device(queue, np.zeros((m, 2 * n), np.float32))
        for _ in range(2):  # the second call finds nothing that the first one left
            out.fill(0)
            pyclmm.matmul(a[:, ::2], b, out=out[:, 1::2], kernel=kernel.name)
            assert np.array_equal(out.get()[:, 1::2], a.get()[:, ::2] @ b.get()), (m, n, k)
    copies = [need for needs, _ in filled for need in needs if need.name == "copy_a"]
    assert len(copies) >= 6, "two plans, and their two calls each"


def test_the_self_check_poisons_workspace(monkeypatch, device):
    """A kernel that reads what it has not written is not admitted."""
    lent = []

    class Seen(workspace._Poisoned):
        def borrow(self, needs, number):
            spaces = super().borrow(needs, number)
            for need, buffer in zip(needs, spaces.buffers, strict=True):
                content = np.zeros(buffer.size // 4, np.float32)
                cl.enqueue_copy(self.queue, content, buffer)
                lent.append((need.name, bool(np.isnan(content).all())))
            return spaces

    if not device.is_cpu:
        pytest.skip("packed is for CPU devices")
    monkeypatch.setattr(workspace, "_Poisoned", Seen)
    a = np.ones((300, 300), np.float16)  # so that `packed` packs
    assert (pyclmm.matmul(a, a, kernel="packed") == 300).all()
    assert ("b_panels", True) in lent
    assert all(is_nan for _, is_nan in lent)


def test_zeroed_workspace_is_zero_when_new_and_stays_with_its_plan():
    queue = queues.default_queue()
    a = cla.to_device(queue, np.ones((8, 8), np.float32))
    product = executable(pyclmm.Matmul(a, a, kernel="naive"))
    zeroed = Workspace("kept", 64, zeroed=True)
    kept = Binding(queue, product.device, replace(product.work, workspace=(zeroed,)))._fixed
    buffer = kept["workspace:kept"]
    content = np.ones(64, np.uint8)
    cl.enqueue_copy(queue, content, buffer)
    assert not content.any()
    pyclmm.release()
    assert kept["workspace:kept"] is buffer, "what a call left there is for the next one"


# -- kernel objects


def test_arguments_that_a_new_kernel_object_rejects_too_are_an_error(queue):
    a = cla.to_device(queue, np.ones((8, 8), np.float32))
    plan = pyclmm.Matmul(a, a, kernel="naive")
    with refused_launch(INVALID_KERNEL_ARGS, always=True) as fault, pytest.raises(pyclmm.LaunchError):
        plan(a, a)
    assert fault.calls == 2, "once with each kernel object"


# -- warnings


def test_builds_in_many_threads_leave_the_warning_filters_as_they_were():
    before = list(warnings.filters)
    with compiler.quiet:
        with compiler.quiet:
            pass
        warnings.warn("a remark", cl.CompilerWarning, stacklevel=1)
    assert list(warnings.filters) == before


@pytest.mark.parametrize("number", range(1, 5))
def test_a_build_within_the_end_of_a_build_leaves_the_warning_filters_as_they_were(number):
    """As a signal handler makes it, at a line of the end."""
    lines = []

    def at_a_line(frame, event, _):
        lines.append(event)
        if lines.count("line") == number:
            sys.settrace(None)
            with compiler.quiet:
                pass
            return None
        return at_a_line

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        with compiler.quiet:
            sys.settrace(lambda frame, *_: at_a_line if frame.f_code.co_name == "__exit__" else None)
        sys.settrace(None)
        assert list(warnings.filters) == before
    assert lines.count("line") == number
