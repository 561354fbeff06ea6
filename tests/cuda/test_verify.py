"""verify= on arrays of a CUDA device: streams, captures and repair, on the made-up driver."""

import numpy as np
import pytest

import pyclmm
from pyclmm.cuda import streams
from tests.support.processes import nothing_checked
from tests.support.spoiled import alarm

M, N, K = 19, 37, 53
RNG = np.random.default_rng(5)
A, B = (RNG.standard_normal(shape).astype("f") for shape in ((M, K), (K, N)))
RIGHT = A @ B


@pytest.fixture
def spoil(cuda, lib):
    """spoil(out) makes element (3, 6) of *out* wrong before it is checked, once."""
    waiting = []

    def before(name):
        if name == "verify_out" and waiting:
            out = waiting.pop()
            cuda.view(out.address, out.shape, out.dtype)[3, 6] += 90

    cuda.before_launch = before
    return waiting.append


@pytest.fixture
def operands(lib):
    return lib.array(A), lib.array(B), lib.array(np.zeros((M, N), "f"))


def close(out):
    assert np.allclose(out.get(), RIGHT, atol=1e-4)


def test_right_products(lib, operands):
    a, b, out = operands
    before = pyclmm.health()
    for _ in range(3):
        pyclmm.matmul(a, b, out=out, verify=True)
        close(out)
    nan = A.copy()
    nan[2, 3] = np.nan
    assert np.isnan(pyclmm.matmul(lib.array(nan), b, verify=True).get()[2]).all()
    pyclmm.finish()
    assert pyclmm.health() == before


def test_a_driver_that_checks_wrongly_is_told_of_and_by_opencl_it_is_right(
    monkeypatch, cuda, lib, operands, own_caches
):
    real = type(cuda).run

    def run(self, kernel, *arguments):
        return 0 if kernel.function_name == "verify_b" else real(self, kernel, *arguments)

    monkeypatch.setattr(type(cuda), "run", run)
    a, b, _ = operands
    with pytest.raises(
        pyclmm.UnsupportedError, match=r"computes the check itself wrongly.* Pass verify=False"
    ):
        pyclmm.matmul(a, b, verify=True, kernel="naive")
    assert np.allclose(pyclmm.matmul(A, B, verify=True, kernel="naive"), RIGHT, atol=1e-4)
    monkeypatch.setattr(type(cuda), "run", real)
    nothing_checked(monkeypatch)
    close(pyclmm.matmul(a, b, verify=True, kernel="naive"))


def test_nan_of_a_call_that_was_interrupted_is_not_anothers(cuda, lib, operands):
    a, b, out = operands
    plan, nan = pyclmm.Matmul(a, b, out=out, verify=True, kernel="naive"), B.copy()
    nan[2, 3] = np.nan

    def fail(name):
        if name == "matmul_naive":
            cuda.before_launch = lambda _: None
            raise KeyboardInterrupt

    plan(a, b, out=out)
    cuda.before_launch = fail
    with pytest.raises(KeyboardInterrupt):
        plan(a, lib.array(nan), out=out)
    plan(a, b, out=out)
    pyclmm.finish()
    close(out)


def test_a_wrong_product_in_finish_and_in_the_next_call(operands, spoil):
    a, b, out = operands
    before = pyclmm.health()["wrong"]
    spoil(out)
    pyclmm.matmul(a, b, out=out, verify=True)
    alarm(pyclmm.finish)
    pyclmm.finish()
    spoil(out)
    pyclmm.matmul(a, b, out=out, verify=True)
    alarm(pyclmm.matmul, a, b, out=out, verify=True)
    pyclmm.matmul(a, b, out=out, verify=True)
    pyclmm.finish()
    close(out)
    assert pyclmm.health()["wrong"] == before + 2


def test_the_host_waits_for_nothing_without_an_alarm(cuda, operands):
    a, b, out = operands
    pyclmm.matmul(a, b, out=out, verify=True)
    cuda.synchronized.clear()
    pyclmm.matmul(a, b, out=out, verify=True)
    assert not cuda.synchronized


def test_each_stream_has_its_own_alarm(lib, operands, spoil):
    a, b, out = operands
    plan = pyclmm.Matmul(a, b, out=out, verify=True)
    for stream in (0x70, 0x80, 0x90):
        lib.current = stream
        plan(a, b, out=out)
    lib.current = 0x80
    spoil(out)
    plan(a, b, out=out)
    lib.current = 0x90
    alarm(plan, a, b, out=out)
    for stream in (0x70, 0x80, 0x90):
        lib.current = stream
        plan(a, b, out=out)
    pyclmm.finish()


def test_a_capture_is_checked_each_time_it_is_replayed(cuda, lib, operands, spoil):
    a, b, out = operands
    plan = pyclmm.Matmul(a, b, out=out, verify=True)
    plan(a, b, out=out)
    with cuda.capture(lib.current) as graph:
        plan(a, b, out=out)
    for _ in range(2):
        cuda.replay(graph)
        pyclmm.finish()
        close(out)
    spoil(out)
    cuda.replay(graph)
    alarm(pyclmm.finish)
    cuda.replay(graph)
    pyclmm.finish()


@pytest.mark.parametrize("stream", [0x70, 0x80])
def test_repair(lib, operands, spoil, stream):
    a, b, out = operands
    lib.current = stream
    before = pyclmm.health()
    for _ in range(2):
        spoil(out)
        with pytest.warns(pyclmm.VerificationWarning, match="computed again by '"):
            pyclmm.matmul(a, b, out=out, verify="repair")
        close(out)
    after = pyclmm.health()
    assert {name: after[name] - before[name] for name in after} == {"wrong": 2, "repaired": 2}


def test_c_that_is_overwritten_is_not_repaired(lib, operands, spoil):
    a, b, out = operands
    spoil(out)
    with pytest.raises(pyclmm.VerificationError):
        pyclmm.gemm(a, b, out, beta=1.0, out=out, verify="repair")


def test_repair_in_a_capture_is_refused(cuda, lib, operands):
    a, b, out = operands
    pyclmm.matmul(a, b, out=out, verify="repair")
    refusal = pytest.raises(pyclmm.UnsupportedError, match=r"verify='repair'.*captur.*verify=True")
    with cuda.capture(lib.current), refusal:
        pyclmm.matmul(a, b, out=out, verify="repair")
    pyclmm.matmul(a, b, out=out, verify="repair")
    close(out)


def test_a_host_without_room_for_the_alarm(cuda, operands):
    a, b, out = operands
    with cuda.failing(cuMemHostAlloc=2), pytest.raises(pyclmm.DeviceMemoryError):
        pyclmm.matmul(a, b, out=out, verify=True)
    pyclmm.matmul(a, b, out=out, verify=True)
    close(out)


def test_finish_asks_no_context_that_is_gone(cuda, operands):
    a, b, out = operands
    plan = pyclmm.Matmul(a, b, out=out, verify=True)
    plan(a, b, out=out)
    streams.forget(plan._product.context)
    cuda.synchronized.clear()
    pyclmm.finish()
    assert not cuda.synchronized


# ---- lists

SMALL = [(19, 37, 53), (17, 33, 20), (30, 18, 9)]  # of one launch


@pytest.fixture
def pairs(lib):
    drawn = [(RNG.standard_normal((m, k)), RNG.standard_normal((k, n))) for m, n, k in SMALL]
    return [tuple(lib.array(x.astype("f")) for x in pair) for pair in drawn]


@pytest.fixture
def outs(lib):
    return [lib.array(np.zeros((m, n), "f")) for m, n, _ in SMALL]


def are_close(outs, pairs):
    for out, (a, b) in zip(outs, pairs, strict=True):
        assert np.allclose(out.get(), a.get() @ b.get(), atol=1e-4)


def alarm_of_pair(pair, call, *args, **kwargs):
    with pytest.raises(pyclmm.VerificationError, match=rf"pairs\[{pair}\], row 3, column 6 of") as caught:
        call(*args, **kwargs)
    assert caught.value.stack == (pair, pair + 1)


def test_lists_tell_in_finish_and_in_the_next_call(lib, pairs, outs, spoil):
    plan = pyclmm.ManyMatmul(pairs, outs, verify=True)
    plan(pairs, outs)
    pyclmm.finish()
    are_close(outs, pairs)
    spoil(outs[1])
    plan(pairs, outs)
    alarm_of_pair(1, pyclmm.finish)
    spoil(outs[2])
    plan(pairs, outs)
    alarm_of_pair(2, plan, pairs, outs)
    others = [tuple(lib.array(x.get()) for x in pair) for pair in pairs]
    plan(others, outs)  # whose table is written anew
    are_close(plan(pairs, outs), pairs)
    pyclmm.finish()


def test_lists_in_a_capture(cuda, lib, pairs, outs, spoil):
    plan = pyclmm.ManyMatmul(pairs, outs, verify=True)
    plan(pairs, outs)
    with cuda.capture(lib.current) as graph:
        plan(pairs, outs)
    cuda.replay(graph)
    pyclmm.finish()
    spoil(outs[1])
    cuda.replay(graph)
    alarm_of_pair(1, pyclmm.finish)
    refusal = pytest.raises(pyclmm.UnsupportedError, match=r"verify='repair'.*captur.*verify=True")
    with cuda.capture(lib.current), refusal:
        pyclmm.matmul_many(pairs, outs, verify="repair")


def test_lists_are_repaired(lib, pairs, outs, spoil):
    before = pyclmm.health()["repaired"]
    spoil(outs[1])
    with pytest.warns(pyclmm.VerificationWarning, match=r"pairs\[1\], row 3, .* computed again by"):
        pyclmm.matmul_many(pairs, outs, verify="repair")
    are_close(outs, pairs)
    assert pyclmm.health()["repaired"] == before + 1
    spoil(outs[1])
    with pytest.raises(pyclmm.VerificationError):
        pyclmm.matmul_many(pairs, outs, c=outs, beta=1.0, verify="repair")


def test_ragged_products(lib, spoil):
    a, b = lib.array(A), lib.array(np.stack([B, B, B]))
    out, sizes = lib.array(np.zeros((M, N), "f")), lib.array(np.array([3, 0, 16], np.int32))
    pyclmm.ragged_matmul(a, b, sizes, out, verify=True)
    pyclmm.finish()
    close(out)
    spoil(out)
    pyclmm.ragged_matmul(a, b, sizes, out, verify=True)
    with pytest.raises(pyclmm.VerificationError, match="row 3, column 6, group 2 of"):
        pyclmm.finish()
    wrong = lib.array(np.array([3, 0, 17], np.int32))
    pyclmm.ragged_matmul(a, b, wrong, out, verify=True)
    with pytest.raises(pyclmm.ArgumentError, match="group_sizes of an earlier call"):
        pyclmm.finish()
