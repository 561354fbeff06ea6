"""Calls on plain NumPy arrays: which take few checks, and that all give what NumPy gives."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyopencl as cl
import pytest

import pyclmm
from pyclmm.execution import host_path
from pyclmm.execution.host_path import HostPath
from pyclmm.opencl import array_fields, host_memory, steps
from pyclmm.opencl.binding import Binding
from pyclmm.opencl.host_memory import may_be_addressed
from pyclmm.opencl.queues import default_queue
from tests.support.cases import DEVICE
from tests.support.faults import replace_library
from tests.support.made_up import EPYC_POCL
from tests.support.plans import takes_addresses
from tests.support.processes import nothing_checked

pytestmark = pytest.mark.skipif(not DEVICE.in_place, reason="the device does not use host arrays in place")
M, N, K = 5, 7, 6


@pytest.fixture
def quick(monkeypatch):
    """The results of the calls that took few checks. There is no earlier plan."""
    pyclmm.release()
    made = []
    again = HostPath.again

    def counted(self, *call):
        done = again(self, *call)
        made.extend([] if done is None else done[:1])
        return done

    monkeypatch.setattr(HostPath, "again", counted)
    return made


@pytest.fixture
def ab(rng):
    return rng.standard_normal((M, K), np.float32), rng.standard_normal((K, N), np.float32)


def close(got, a, b):
    np.testing.assert_allclose(got, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)


def test_the_second_call_takes_few_checks_and_new_arrays_too(quick, ab, rng):
    for turn in range(4):
        a, b = ab if turn < 2 else (rng.standard_normal(x.shape, np.float32) for x in ab)
        got = pyclmm.matmul(a, b)
        close(got, a, b)
        assert len(quick) == turn
        assert turn == 0 or got is quick[-1]


def test_a_plan_takes_few_checks_and_its_own_scalars(quick, ab):
    plan = pyclmm.Matmul(*ab, alpha=2.0)
    plan(*ab)
    close(plan(*ab), 2 * ab[0], ab[1])
    close(plan(*ab, alpha=2.0), 2 * ab[0], ab[1])
    assert len(quick) == 3
    close(plan(*ab, alpha=3.0), 3 * ab[0], ab[1])
    assert len(quick) == 3


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("turned", [False, True])
def test_out_that_owns_the_memory_of_an_operand(quick, rng, which, turned):
    a, b = (rng.standard_normal((M, M), np.float32) for _ in range(2))
    x, y = (a.T, b.T) if turned else (a, b)
    out = np.empty((M, M), np.float32)
    for _ in range(2):
        pyclmm.matmul(x, y, out=out)
    expected = x.astype(np.float64) @ y
    pyclmm.matmul(x, y, out=(a, b)[which])
    assert len(quick) == 1
    np.testing.assert_allclose((a, b)[which], expected, rtol=1e-5, atol=1e-5)


# Of an array, the same elements in another layout: of a whole array, or a view of a part of one, whose memory
# may begin anywhere.
LAYOUTS = {
    "as it is": lambda a: a.copy(),
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
    "reshaped": lambda a: a.ravel().reshape(a.shape),
    "seen as another dtype": lambda a: a.view(np.int32).copy().view(np.float32),
    "the first rows": lambda a: np.concatenate([a, a])[: len(a)],
    "rows from an aligned address": lambda a: np.concatenate([a[:4], a])[4:],
    "rows from another address": lambda a: np.concatenate([a[:1], a])[1:],
    "columns": lambda a: np.hstack([a[:, :3], a, a])[:, 3 : 3 + a.shape[1]],
    "every third row": lambda a: np.repeat(a, 3, axis=0)[2::3],
    "rows backwards": lambda a: a[::-1].copy()[::-1],
    "a transposed part": lambda a: np.hstack([a, a]).T.copy()[a.shape[1] :].T,
    "of another dtype": lambda a: np.hstack([a, a]).view(np.uint8)[:, : a.shape[1] * 4].view(np.float32),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_operands_of_any_layout_take_few_checks(quick, ab, layout):
    a, b = (LAYOUTS[layout](x) for x in ab)
    for turn in range(3):
        close(pyclmm.matmul(a, b), a, b)
        assert len(quick) == turn


@pytest.mark.parametrize("which", ["a square", "its transpose", "vectors", "backwards"])
def test_one_array_twice_and_vectors_take_few_checks(quick, rng, which):
    a, x = rng.standard_normal((M, M), np.float32), rng.standard_normal(300, np.float32)
    step = -3 if which == "backwards" else 3
    a, b = {"a square": (a, a), "its transpose": (a, a.T)}.get(which, (x[::step][10:90], x[::-1][::3][10:90]))
    for turn in range(3):
        got = pyclmm.matmul(a, b)
        assert type(got) is (np.ndarray if a.ndim > 1 else np.float32)
        np.testing.assert_allclose(got, a @ b, rtol=1e-4, atol=1e-4)
        assert len(quick) == turn


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_out_of_any_layout_takes_few_checks(quick, ab, layout):
    """What lies between its elements stays."""
    out = LAYOUTS[layout](np.zeros((M, N), np.float32))
    whole = out if out.base is None else out.base
    for _ in range(3):
        whole[...] = 3
        out[:] = 0
        wanted = whole.copy()
        assert pyclmm.matmul(*ab, out=out) is out
        close(out, *ab)
        out[:] = 0
        assert np.array_equal(whole, wanted)
    assert len(quick) == 2


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16", "i4"])
def test_views_of_one_memory_that_begin_elsewhere(quick, rng, dtype):
    """One after another by the same plan, where the address allows it."""
    memory = rng.integers(-4, 5, 4000).astype(dtype)
    for start in (0, 16, 17, 48, 1, 32):
        a = memory[start : start + 2 * M * K].reshape(M, 2 * K)[:, :K]
        b = memory[start + 7 :][: K * N].reshape(K, N)
        for _ in range(2):
            assert np.array_equal(pyclmm.matmul(a, b), a @ b)
    assert len(quick) >= 6


def test_an_out_beside_an_operand_in_one_memory_takes_every_check(quick, rng):
    memory = rng.standard_normal((M, 2 * M), np.float32)
    b = rng.standard_normal((M, M), np.float32)
    a, out = memory[:, :M], memory[:, M:]
    for _ in range(3):
        pyclmm.matmul(a, b, out=out)
        close(out, a, b)
    assert not quick
    expected = a.astype(np.float64) @ b
    shifted = memory[:, 1 : M + 1]
    pyclmm.matmul(a, b, out=shifted)  # overlaps a
    np.testing.assert_allclose(shifted, expected, rtol=1e-5, atol=1e-5)


def test_the_memory_of_a_view_may_have_a_type_that_opencl_does_not_take(quick, ab):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for _ in range(2):
        pyclmm.matmul(ab[0].astype(np.float16), ab[1].astype(np.float16))
    for dtype in (ml_dtypes.bfloat16, "M8[s]"):
        of = np.float16 if dtype != "M8[s]" else np.int64
        a = np.zeros((M, K), of).view(dtype).copy().view(of)
        assert (pyclmm.matmul(a, a.T) == 0).all()
        assert (pyclmm.matmul(a, a.T) == 0).all()


def test_stacks_with_their_axes_in_another_order_take_few_checks(quick, rng):
    """Of (row, product, column), and of (column, product, row) once more transposed."""
    for turn in range(3):
        a, b = (rng.standard_normal(shape, np.float32) for shape in ((M, 2, K), (N, 2, K)))
        got = pyclmm.matmul(a.transpose(1, 0, 2), b.transpose(1, 2, 0))
        np.testing.assert_allclose(got, np.einsum("mzk,nzk->zmn", a, b), rtol=1e-4, atol=1e-4)
        assert len(quick) == turn


def test_memory_that_is_out_of_order_itself_takes_few_checks(quick, ab):
    """A copy keeps the order of the axes, and PyOpenCL takes no such array as a buffer."""
    a = np.empty((2, M, K), np.float32).transpose(1, 0, 2).copy(order="K")
    a[:] = ab[0][:, None]
    assert a.flags.owndata
    for _ in range(2):
        close(pyclmm.matmul(a, ab[1])[:, 0], *ab)
    assert len(quick) == 1


def test_where_fields_of_arrays_are_not_read_calls_take_every_check(quick, ab, monkeypatch):
    monkeypatch.setattr(host_path, "READABLE", False)
    for _ in range(3):
        close(pyclmm.matmul(*ab), *ab)
    assert not quick


def test_of_two_shapes_in_turn_the_plan_of_the_other_is_not_asked(quick, ab, monkeypatch):
    a, b = ab
    again, asked = HostPath.again, []
    monkeypatch.setattr(HostPath, "again", lambda self, *call: asked.append(self) or again(self, *call))
    for _ in range(3):
        close(pyclmm.matmul(a, b), a, b)
        close(pyclmm.matmul(a[1:], b), a[1:], b)
    assert len(asked) == len(quick) == 4


def test_a_kernel_that_holds_the_arguments_is_not_given_them_again(quick, ab, monkeypatch):
    out = np.empty((M, N), np.float32)
    for _ in range(3):
        pyclmm.matmul(*ab, out=out)
    monkeypatch.setattr(steps.Step, "set_addresses", lambda *_given: pytest.fail("they are set"))
    out[...] = 0
    close(pyclmm.matmul(*ab, out=out), *ab)
    assert len(quick) == 3


@pytest.mark.parametrize("fault", ["refused", "not found", "not used"])
def test_a_device_that_takes_no_addresses_gets_buffers(quick, ab, monkeypatch, fault):
    nothing_checked(monkeypatch)
    if fault == "not used":
        monkeypatch.setattr(Binding, "run_at", lambda *_given: True)
    else:
        replace_library(monkeypatch, set_address=None if fault == "not found" else lambda *_given: -38)
    for _ in range(3):
        close(pyclmm.matmul(*ab), *ab)
        close(pyclmm.matmul(*ab, out=np.empty((M, N), np.float32)), *ab)
    assert takes_addresses() == [False]
    assert not quick


@pytest.mark.parametrize(
    ("vendor", "svm", "is_asked"),
    [
        ("pocl", 11, True), ("intel", 15, True), ("intel", 11, False), ("oclgrind", 0, False),
        ("pocl", None, False),
    ],
)  # fmt: skip
def test_drivers_that_promise_no_access_by_address_are_not_asked(vendor, svm, is_asked):
    """Of a driver of OpenCL 1, as Oclgrind, the function may be missing."""
    device = SimpleNamespace() if svm is None else SimpleNamespace(svm_capabilities=svm)
    assert may_be_addressed(device, replace(EPYC_POCL, vendor=vendor)) == is_asked
    assert array_fields._says_so(device) == (vendor == "intel" and is_asked)


def test_a_driver_that_is_not_asked_gets_buffers(quick, ab, monkeypatch):
    nothing_checked(monkeypatch)
    monkeypatch.setattr(host_memory, "may_be_addressed", lambda *_given: False)
    replace_library(monkeypatch, set_address=lambda *_given: pytest.fail("it was asked"))
    for _ in range(3):
        close(pyclmm.matmul(*ab), *ab)
    assert takes_addresses() == [False]
    assert not quick


@pytest.mark.parametrize("argument", range(3))
def test_ctrl_c_behind_an_address_that_was_set(quick, ab, rng, monkeypatch, argument):
    """The kernel object then holds an address of that call, not of the one before."""
    out = np.empty((M, N), np.float32)
    for _ in range(3):
        pyclmm.matmul(*ab, out=out)
    assert len(quick) == 2
    set_address, calls = steps._set_address, []

    def interrupted(*given):
        failed = set_address(*given)
        calls.append(given)
        if len(calls) == argument + 1:
            raise KeyboardInterrupt
        return failed

    replace_library(monkeypatch, set_address=interrupted)
    others = [rng.standard_normal(x.shape, np.float32) for x in ab]
    with pytest.raises(KeyboardInterrupt):
        pyclmm.matmul(*others, out=np.empty_like(out))
    out[...] = 0
    close(pyclmm.matmul(*ab, out=out), *ab)
    assert len(quick) == 3


def test_a_large_product_does_not_show_that_addresses_are_taken(quick, ab, monkeypatch, limits):
    """That would compute it twice."""
    nothing_checked(monkeypatch)
    limits(shown=4 * M * N - 1)
    for _ in range(3):
        close(pyclmm.matmul(*ab), *ab)
    assert not quick


READ_ONLY = {
    "a view of a read-only array": lambda a: _read_only(a.copy())[:],
    "read-only": lambda a: _read_only(a.copy()),
}
OTHERS = READ_ONLY | {
    "half of an array": lambda a: np.concatenate([a, a])[len(a) :],
    "with gaps": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "by columns": np.asfortranarray,
    "a broadcast": lambda a: np.broadcast_to(a[:1], a.shape),
    "another dtype": lambda a: a.astype(np.float64),
    "integers": lambda a: (10 * a).astype(np.int32),
    "more rows": lambda a: np.concatenate([a, a]),
    "a stack": lambda a: np.stack([a, a]),
    "a vector": lambda a: a[0].copy(),
    "swapped bytes": lambda a: a.astype(">f4"),
}


def _read_only(x):
    x.flags.writeable = False
    return x


@pytest.mark.parametrize("other", OTHERS)
def test_other_arrays_after_plain_ones(quick, ab, other):
    """They take every check, but for those that only may not be written; the plain arrays after them may take
    few again.
    """
    a, b = ab
    for _ in range(2):
        pyclmm.matmul(a, b)
    changed = OTHERS[other](a)
    before = changed.copy()
    np.testing.assert_allclose(pyclmm.matmul(changed, b), before.astype(np.float64) @ b, rtol=1e-5, atol=1e-4)
    assert len(quick) == 1 + (other in READ_ONLY)
    np.testing.assert_array_equal(changed, before)
    close(pyclmm.matmul(a, b), a, b)


def test_a_read_only_out_raises_and_stays(quick, ab):
    out = np.empty((M, N), np.float32)
    for _ in range(2):
        pyclmm.matmul(*ab, out=out)
    frozen = _read_only(np.full((M, N), 3, np.float32))
    with pytest.raises(ValueError, match="read-only"):
        pyclmm.matmul(*ab, out=frozen)
    assert (frozen == 3).all()
    assert len(quick) == 1


def test_another_queue_takes_every_check(quick, ab):
    other = cl.CommandQueue(default_queue().context)
    for _ in range(2):
        pyclmm.matmul(*ab)
    close(pyclmm.matmul(*ab, queue=other), *ab)
    assert len(quick) == 1
    close(pyclmm.matmul(*ab, queue=other), *ab)
    assert len(quick) == 2


def test_c_and_bias_take_every_check(quick, ab):
    c, product = np.ones((M, N), np.float32), ab[0].astype(np.float64) @ ab[1]
    for turn in range(3):
        close(pyclmm.gemm(*ab, beta=0.0), *ab)
        before = len(quick)
        np.testing.assert_allclose(pyclmm.gemm(*ab, c, beta=1.0), product + 1, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(pyclmm.gemm(*ab, bias=c[0]), product + 1, rtol=1e-5, atol=1e-5)
        assert len(quick) == before, turn


def test_conversions_take_every_check(quick, ab):
    for _ in range(2):
        assert pyclmm.matmul(*ab, dtype=np.float64).dtype == np.float64
        pyclmm.matmul(*ab, out=np.empty((M, N), np.float64))
    assert not quick
