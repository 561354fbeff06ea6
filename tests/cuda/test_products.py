"""Products of arrays on a CUDA device: the made-up driver runs what is launched, NumPy says what is right."""

import gc
from dataclasses import replace

import numpy as np
import pytest

import pyclmm
from pyclmm.cuda import arrays, driver, streams
from pyclmm.cuda.binding import CudaBinding
from pyclmm.cuda.launcher import launched_by_cuda
from pyclmm.kernels.interface import Workspace
from pyclmm.opencl.steps import scalars_of
from tests.support.fake_cuda import LibArray
from tests.support.made_up import H200
from tests.support.plans import executable

RNG = np.random.default_rng(7)


def numbers(*shape, dtype=np.float32):
    if np.dtype(dtype).kind in "iu":
        return RNG.integers(0, 9, shape).astype(dtype)
    x = RNG.standard_normal(shape)
    return (x + 1j * RNG.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def close(got, want, tolerance=1e-4):
    got = got.get()
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    assert np.allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "complex64", "complex128", "int8", "uint64"]
)
@pytest.mark.parametrize("layout", ["NN", "NT", "TN"])
def test_numpys_results_in_the_callers_arrays(lib, dtype, layout):
    a = numbers(*((5, 37) if layout[0] == "N" else (37, 5)), dtype=dtype)
    b = numbers(*((37, 23) if layout[1] == "N" else (23, 37)), dtype=dtype)
    x, y = (
        lib.array(m) if letter == "N" else lib.array(m).T for m, letter in zip((a, b), layout, strict=True)
    )
    result = pyclmm.matmul(x, y)
    assert type(result) is LibArray
    close(result, x.get() @ y.get(), 1e-2 if dtype == "float16" else 1e-4)


def test_gemm_with_everything(lib):
    a, b, c, bias = numbers(20, 30), numbers(30, 10), numbers(20, 10), numbers(10)
    x, y, z, v = map(lib.array, (a, b, c, bias))
    out = lib.array(np.full((20, 10), np.nan, np.float32))
    for alpha, beta in ((0.5, 2.0), (0.5, 2.0), (1.5, -1.0), (1.0, 0.0)):
        got = pyclmm.gemm(x, y, z, alpha=alpha, beta=beta, bias=v, activation="relu", out=out)
        assert got is out
        close(out, np.maximum(np.float32(alpha) * (a @ b) + np.float32(beta) * c + bias, 0))
    assert np.array_equal(z.get(), c)
    assert np.array_equal(x.get(), a)


def test_c_is_updated_in_place(lib):
    a, c = numbers(8, 8), numbers(8, 8)
    x, z = lib.array(a), lib.array(c)
    for n in (1, 2, 3):
        assert pyclmm.gemm(x, x, z, beta=1.0, out=z) is z
        close(z, c + n * (a @ a))


def test_out_may_overlap_an_operand(lib):
    a = numbers(16, 16)
    x = lib.array(a)
    pyclmm.matmul(x, x, out=x)
    close(x, a @ a)


def test_an_out_that_overlaps_only_in_a_later_call(lib):
    a, b = numbers(16, 16), numbers(16, 16)
    x, y, out = map(lib.array, (a, b, a))
    pyclmm.matmul(x, y, out=out)
    pyclmm.matmul(x, y, out=y)
    close(y, a @ b)


def test_views_conversions_and_empty_products(lib):
    a = numbers(12, 40)
    x = lib.array(a)
    every_other = LibArray(lib, x.address, (12, 20), np.float32, (160, 8), x)
    close(pyclmm.matmul(every_other.T, x), a[:, ::2].T @ a)
    shifted = LibArray(lib, x.address + 4, (12, 39), np.float32, (160, 4), x)
    close(pyclmm.matmul(shifted.T, x), a[:, 1:].T @ a)
    close(pyclmm.matmul(x, lib.array(numbers(40, 3, dtype=np.float64) * 0)), np.zeros((12, 3)))
    assert pyclmm.matmul(lib.array(numbers(0, 4)), lib.array(numbers(4, 3))).shape == (0, 3)
    close(pyclmm.matmul(lib.array(numbers(3, 0)), lib.array(numbers(0, 2))), np.zeros((3, 2), np.float32))
    close(pyclmm.matmul(lib.array(numbers(5) * 0), lib.array(numbers(5))), np.zeros((), np.float32))


def test_axes_give_a_view_of_the_result(lib):
    a, b = numbers(6, 2, 5), numbers(5, 2, 7)
    axes = [(0, 2), (0, 2), (0, 1)]
    close(pyclmm.matmul(lib.array(a), lib.array(b), axes=axes), np.matmul(a, b, axes=axes))


def test_a_stack_that_takes_two_launches(cuda, lib):
    a = numbers(70_000, 2, 3)
    x = lib.array(a)
    before = len(cuda.launches)
    y = LibArray(lib, x.address, (70_000, 3, 2), np.float32, (24, 4, 12), x)
    close(pyclmm.matmul(x, y, kernel="naive"), a @ a.mT)
    assert [groups[2] for _, groups, _, _ in cuda.launches[before:]][-2:] == [65_535, 70_000 - 65_535]


@pytest.mark.parametrize("kernel", ["sequential", "naive", "tiled", "register", "packed"])
def test_kernels_by_name(lib, kernel):
    a, b = numbers(33, 65), numbers(65, 47)
    close(pyclmm.matmul(lib.array(a), lib.array(b), kernel=kernel), a @ b)


def test_a_plan_has_its_own_scalars_again_after_a_call_with_others(lib):
    a = numbers(4, 4)
    x = lib.array(a)
    plan = pyclmm.Matmul(x, x)
    close(plan(x, x, alpha=2.0), 2 * (a @ a))
    close(plan(x, x), a @ a)
    close(plan(x, x), a @ a)


def test_more_rows_than_a_grid_has(cuda, lib):
    """CUDA's grid has 65,535 work-groups at most in dimension 1; the made-up driver refuses more."""
    a, b = numbers(70_000, 3, dtype=np.int32), numbers(3, 2)
    close(pyclmm.matmul(lib.array(a), lib.array(b), casting="unsafe", dtype=np.float32), (a @ b).astype("f4"))
    assert {"copy_strided"} <= {name for name, *_ in cuda.launches}
    got = pyclmm.matmul(lib.array(numbers(70_000 * 16, 1) * 0), lib.array(b[:1]), kernel="naive")
    close(got, np.zeros((70_000 * 16, 2), "f4"))


def test_a_call_within_a_call(cuda, lib):
    """As a signal handler or a finalizer makes it, between the launches of one product."""
    a, b, c = numbers(70_000, 2, 3), numbers(70_000, 2, 3), numbers(70_000, 3, 2)
    x, y, z = map(lib.array, (a, b, c))
    plan, inner = pyclmm.Matmul(x, z), []

    def call():
        cuda.after_launch = lambda: None
        inner.append(plan(y, z))

    for _ in range(2):
        cuda.after_launch = call
        close(plan(x, z), a @ c)
        close(inner[-1], b @ c)
    assert len(inner) == 2


def test_a_plan_on_arrays_of_another_device(cuda, lib, monkeypatch):
    """The result, the workspace and the launch are where these arrays are."""
    x, y = lib.array(A := numbers(3, 4)), lib.array(B := numbers(4, 3))
    plan, on = pyclmm.Matmul(x, y), []
    new = lib.new
    monkeypatch.setattr(lib, "new", lambda *where: on.append(where[-1]) or new(*where))
    plan(x, y)
    x.ordinal = y.ordinal = 1
    for _ in range(2):
        close(plan(x, y), A @ B)
    assert on == [0, 1, 1]
    assert [arguments for name, arguments in cuda.calls if name == "cuCtxPushCurrent_v2"][-1] == (0xC1,)


# what a later call costs


def test_a_call_on_the_same_arrays_only_launches(cuda, lib):
    a, b = numbers(9, 9), numbers(9, 9)
    x, y, out = lib.array(a), lib.array(b), lib.array(a)
    pyclmm.matmul(x, y, out=out)
    cuda.calls.clear()
    pyclmm.matmul(x, y, out=out)
    assert [name for name, _ in cuda.calls if "Ctx" not in name] == ["cuLaunchKernelEx"]
    z = lib.array(b * 2)
    cuda.calls.clear()
    pyclmm.matmul(x, z, out=out)
    assert [name for name, _ in cuda.calls if "Ctx" not in name] == ["cuLaunchKernelEx"]
    close(out, 2 * (a @ b))


@pytest.mark.parametrize(("version", "overlaps"), [(12030, True), (12020, False)])
def test_launches_overlap_where_captures_can_have_them(cuda, lib, version, overlaps):
    cuda.version = version
    a = lib.array(np.ones((40, 3000), np.float32))
    pyclmm.matmul(a, lib.array(np.ones((3000, 30), np.float32)), kernel="register")
    assert cuda.overlapping == [overlaps] * len(cuda.launches)
    assert cuda.launches


def test_estimates_know_what_launches_can_do():
    for capability, overlaps in (((9, 0), True), ((9, 0), False), ((8, 0), True)):
        device = replace(H200, compute_capability=capability)
        is_new = capability >= (9, 0)
        assert launched_by_cuda(device, overlaps) == replace(
            device, clusters=is_new, overlaps=is_new and overlaps
        )


def test_a_launch_says_how_many_work_groups_are_a_cluster(cuda, lib):
    x, y = lib.array(numbers(32, 4)), lib.array(numbers(4, 4))
    work = executable(pyclmm.Matmul(x, y, kernel="naive")).work
    cuda.clusters.clear()
    for cluster in (1, 2):
        clustered = replace(work, launches=tuple(replace(each, cluster=cluster) for each in work.launches))
        binding = CudaBinding(streams.context_of(0), clustered)
        binding.enqueue(
            lib.current, dict.fromkeys(("a", "b", "c", "out", "bias"), x.address), scalars_of(1.0, 0.0)
        )
    assert cuda.clusters == [None, (2, 1, 1)]
    assert cuda.overlapping[-2:] == [True, True]


def test_no_call_waits_for_the_device_after_the_first(cuda, lib):
    x = lib.array(numbers(40, 40))
    pyclmm.matmul(x, x)
    cuda.synchronized.clear()
    for stream in (0x70, 0x80):
        lib.current = stream
        pyclmm.gemm(x, x, bias=lib.array(numbers(40)))
        cuda.synchronized.clear()  # of what is new in a stream
        pyclmm.gemm(x, x, bias=lib.array(numbers(40)))
    assert not cuda.synchronized


def test_launches_are_in_the_librarys_current_stream(cuda, lib):
    x, out = lib.array(numbers(8, 8)), lib.array(numbers(8, 8))
    pyclmm.matmul(x, x, out=out)
    for stream in (0x70, 0x90, 0x70, 0, *range(0xA0, 0xC0)):
        lib.current = stream
        cuda.calls.clear()
        pyclmm.matmul(x, x, out=out)
        assert cuda.launches[-1][-1] == stream
        assert [name for name, _ in cuda.calls if "Ctx" not in name] == ["cuLaunchKernelEx"]


def test_offsets_of_stacks_do_not_stay_for_the_process(cuda, lib):
    """As of a model that reads one more token in each call: each stack of two has other strides."""
    left = []
    for k in range(3, 9):
        a, b = numbers(2, 4, k), numbers(2, k, 5)
        close(pyclmm.matmul(lib.array(a), lib.array(b)), a @ b)
        pyclmm.release()
        gc.collect()
        left.append(sum(nbytes == 64 for _, nbytes in cuda.memory.values()))  # four offsets of each matrix
    assert left[-1] == left[0]


def test_workspace_comes_from_the_librarys_allocator(lib, workspace_rung):
    a, b = numbers(8, 4096), numbers(4096, 300)
    plan = pyclmm.Matmul(lib.array(a), lib.array(b), kernel="register")
    assert plan.workspace_nbytes > 1000
    for _ in range(2):
        close(plan(lib.array(a), lib.array(b)), a @ b, 1e-3)
    assert len(lib.blocks) == 2
    assert min(lib.blocks) >= plan.workspace_nbytes - 32
    lib.full = True
    with pytest.raises(pyclmm.DeviceMemoryError, match="allocator is full"):
        plan(lib.array(a), lib.array(b))


def test_a_plan_takes_arrays_of_its_layout_alone(lib):
    a, b = numbers(4, 5), numbers(5, 6)
    with pyclmm.Matmul(lib.array(a), lib.array(b)) as plan:
        close(plan(lib.array(a), lib.array(b)), a @ b)
        with pytest.raises(pyclmm.ArgumentError, match="b is not what the plan was made for"):
            plan(lib.array(a), lib.array(numbers(5, 7)))
        with pytest.raises(pyclmm.ArgumentError, match="make a plan for it"):
            plan(a, b)
    with pytest.raises(pyclmm.ArgumentError, match="closed"):
        plan(lib.array(a), lib.array(b))


def test_another_threads_context_is_made_current_for_the_launch(cuda, lib):
    a = numbers(8, 8)
    x = lib.array(a)
    pyclmm.matmul(x, x)
    cuda.current = 0xC1  # of device 1, as after torch.cuda.set_device(1)
    close(pyclmm.matmul(x, x), a @ a)
    assert cuda.current == 0xC1


# captures


def test_a_capture_needs_no_call_before_it(cuda, lib):
    a, b = numbers(30, 30), numbers(30, 30)
    x, y = lib.array(a), lib.array(b)
    with cuda.capture(lib.current) as graph:
        z = pyclmm.matmul(x, y)
        w = pyclmm.matmul(z, y)
    cuda.view(x.address, a.shape, a.dtype)[...] = 2 * a
    cuda.replay(graph)
    close(z, 2 * (a @ b))
    close(w, 2 * (a @ b) @ b, 1e-3)


def test_what_a_capture_uses_stays_when_the_plan_is_gone(cuda, lib):
    a = numbers(6, 3, 4)
    x = lib.array(a)
    y = LibArray(lib, x.address, (6, 4, 3), np.float32, (48, 4, 16), x)
    with cuda.capture(lib.current) as graph:
        z = pyclmm.matmul(x, y)
    pyclmm.release()
    cuda.view(x.address, a.shape, a.dtype)[...] = 3 * a
    cuda.replay(graph)
    close(z, 9 * (a @ a.mT))


def test_memory_may_be_freed_while_a_stream_is_captured(cuda, lib):
    with cuda.capture(0x99):
        with pytest.raises(pyclmm.LaunchError, match="before the capture"):
            driver.Memory(64, "some")
        with driver.uncaptured():
            memory = driver.Memory(64, "some")
        address = memory.address
        del memory
    assert address not in cuda.memory


def test_what_stays_between_calls_is_zeroed_and_of_one_capture_alone(cuda, lib):
    """A kernel may leave words there for its next call. A graph may run beside other calls of the plan."""
    x, y = lib.array(numbers(4, 4)), lib.array(numbers(4, 4))
    plan = pyclmm.Matmul(x, y, kernel="naive")
    work = executable(plan).work
    (launch,) = work.launches
    kept = Workspace("words", 12_345, zeroed=True)
    launch = replace(launch, args=tuple(kept.symbol if arg == "c" else arg for arg in launch.args))
    binding = CudaBinding(streams.context_of(0), replace(work, launches=(launch,), workspace=(kept,)))
    addresses = dict.fromkeys(("a", "b", "out", "bias"), x.address)

    def spaces():
        return [at for at, (_, nbytes) in cuda.memory.items() if nbytes == 12_345]

    def call():
        binding.enqueue(lib.current, addresses, scalars_of(1.0, 0.0))
        return len(spaces())

    assert [call(), call()] == [1, 1]
    with cuda.capture(lib.current):
        assert [call(), call()] == [2, 2]
    with cuda.capture(lib.current):
        assert call() == 3
    assert call() == 3
    lib.current = 0x1234
    assert [call(), call()] == [4, 4]
    for lib.current in range(0x2000, 0x2080):
        assert call() <= 70
    assert not any(cuda.bytes_at(at, 12_345).any() for at in spaces())


def test_after_warm_a_capture_compiles_and_checks_nothing(cuda, lib):
    a, b = numbers(30, 30), numbers(30, 30)
    x, y = lib.array(a), lib.array(b)
    (plan,) = pyclmm.warm((x, y))
    assert plan.kernel
    launched = len(cuda.launches)
    assert launched > 5  # the self-check
    cuda.calls.clear()
    with cuda.capture(lib.current) as graph:
        z = pyclmm.matmul(x, y)
    assert len(cuda.launches) == launched + 1
    assert "cuModuleLoadDataEx" not in [name for name, _ in cuda.calls]
    cuda.replay(graph)
    close(z, a @ b)


# plans and layouts


def test_the_place_of_an_array_in_a_line_is_part_of_its_layout(lib):
    a = numbers(12, 40)
    x = lib.array(a)
    shifted = LibArray(lib, x.address + 4, (12, 32), np.float32, (160, 4), x)
    whole = LibArray(lib, x.address, (12, 32), np.float32, (160, 4), x)
    assert [arrays.operand(lib.cuda_array("a", each), "a").align for each in (whole, shifted)] == [64, 4]
    plan = pyclmm.Matmul(whole.T, x)
    close(plan(whole.T, x), a[:, :32].T @ a)
    with pytest.raises(pyclmm.ArgumentError, match="a is not what the plan was made for"):
        plan(shifted.T, x)
    odd = LibArray(lib, x.address + 2, (12, 32), np.float32, (160, 4), x)
    with pytest.raises(pyclmm.UnsupportedError, match="a does not begin at a whole element of float32"):
        pyclmm.matmul(odd.T, x)
