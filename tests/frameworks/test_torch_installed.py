"""pyclmm.torch.installed: PyTorch's own samples forward and backward, what is declined, blocks, logging.

Here the kernels for CPU tensors are replaced as those for CUDA tensors are; TEST_TORCH_DEVICE=cuda runs the
same on a GPU.
"""

import logging
import sys
import threading
import unittest
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

import pyclmm
from pyclmm.problem.canonical import problem_of
from tests.support.faults import failing, noted
from tests.support.made_up import H200

OPERATORS = ("mm", "addmm", "bmm", "baddbmm", "matmul", "nn.functional.linear", "einsum")
DTYPES = ("float32", "float64", "complex64", "complex128")


@pytest.fixture
def override(door):
    return import_module("pyclmm.torch.override")


@pytest.fixture
def estimates(door):
    return import_module("pyclmm.torch.estimates")


@pytest.fixture
def ours(override, monkeypatch):
    """The operands of the products that the block gave to pyclmm."""
    pyclmm.release()  # and no decision is kept
    return noted(monkeypatch, override, "product")


@pytest.fixture
def installed(door, key):
    def block(*args, **keywords):
        return door.installed(*args, **keywords, _key=key)

    return block


@pytest.fixture
def faster(estimates, monkeypatch):
    """cuBLAS is estimated to take an hour."""
    monkeypatch.setattr(estimates, "cublas_seconds", lambda *_: 3600.0)


@pytest.fixture
def samples(torch, device, monkeypatch):
    """PyTorch's description of an operator, and its samples in a dtype."""
    if find_spec("expecttest") is None:  # PyTorch's module of samples wants a base class for tests of it
        monkeypatch.setitem(sys.modules, "expecttest", SimpleNamespace(TestCase=unittest.TestCase))
    return partial(
        _samples, torch, import_module("torch.testing._internal.common_methods_invocations"), device
    )


def _samples(torch, opinfo, device, name, dtype):
    info = next(info for info in opinfo.op_db if info.name == name)
    torch.manual_seed(3)
    return info, info.sample_inputs(device, getattr(torch, dtype), requires_grad=True)


def computed(torch, info, sample):
    """The result of a sample and the gradients of its tensors."""
    result = info(sample.input, *sample.args, **sample.kwargs)
    given = torch.utils._pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    wanted = [x for x in given if isinstance(x, torch.Tensor) and x.requires_grad]
    weights = torch.linspace(0.5, 1.5, result.numel(), dtype=torch.float64, device=result.device)
    weights = weights.reshape(result.shape).to(result.dtype)
    return result.detach(), torch.autograd.grad(result, wanted, weights, allow_unused=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.filterwarnings("ignore")  # of PyTorch's module of samples
def test_pytorchs_samples_forward_and_backward(torch, device, samples, installed, ours, name, dtype):
    info, drawn = samples(name, dtype)
    near = {"rtol": 1e-5, "atol": 1e-4} if dtype in ("float32", "complex64") else {}
    for sample in drawn:
        want = computed(torch, info, sample)
        with installed(reproducible=True):
            got = computed(torch, info, sample)
        torch.testing.assert_close(got, want, msg=lambda said, s=sample: f"{s.summary()}\n{said}", **near)
        assert got[0].stride() == want[0].stride()
    assert ours


@pytest.mark.filterwarnings("ignore")
def test_a_model_learns_the_same(torch, device, installed, ours):
    def losses(block):
        torch.manual_seed(5)
        model = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.GELU(), torch.nn.Linear(9, 3)).to(device)
        x, y = torch.randn(7, 6, device=device), torch.randn(7, 3, device=device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        found = []
        with block:
            for _ in range(5):
                loss = torch.nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                found.append(float(loss))
        return found

    got = losses(installed(reproducible=True))
    assert got == losses(installed(reproducible=True))
    assert len(ours) == 2 * 5 * 5  # each layer forward and its weight's gradient, and one of an input
    assert got == pytest.approx(losses(installed("highest")), rel=1e-5)


def test_what_is_declined_is_pytorchs_to_the_bit(torch, device, installed, ours):
    x, w, bias = (torch.randn(*shape, device=device) for shape in ((5, 4), (4, 3), (3,)))
    cases = [
        lambda: torch.mm(x, w),
        lambda: torch.addmm(bias, x, w, alpha=0.5, beta=2),
        lambda: torch.baddbmm(bias, x[None], w[None]),
        lambda: torch.bmm(x[None], w[None]),
        lambda: torch.mm(x.bfloat16(), w.bfloat16()),
        lambda: torch.mm(x[:0], w),
    ]
    want = [case() for case in cases]
    with installed():
        got = [case() for case in cases]
    assert ours == []
    assert all(torch.equal(g, w) and g.dtype == w.dtype for g, w in zip(got, want, strict=True))


def test_pytorchs_errors_stay_pytorchs(torch, device, installed, ours):
    x = torch.randn(4, 4, device=device)
    cases = [
        lambda: torch.mm(x, x[:3]),
        lambda: torch.mm(x, x[0]),
        lambda: torch.mm(x, x.double()),
        lambda: torch.addmm(x[0, :3], x, x),
        lambda: torch.addmm(x[:3], x, x),
        lambda: torch.addmm(x[0].double(), x, x),
        lambda: torch.baddbmm(x[None, :2], x[None], x[None]),
    ]
    for case in cases:
        with pytest.raises((RuntimeError, IndexError, ValueError)) as plain:
            case()
        with installed(reproducible=True):
            torch.addmm(x[0], x, x) + torch.addmm(x, x, x) + torch.mm(x, x)
            with pytest.raises(type(plain.value)) as within:
                case()
        assert str(within.value) == str(plain.value)
    assert len(ours) == 3 * len(cases)


@pytest.mark.parametrize("beta", [0, 1, 2.5])
@pytest.mark.parametrize("shape", [(3,), (1, 3), (5, 1), (1,), (), (5, 3)], ids=str)
def test_every_form_of_c(torch, device, installed, ours, beta, shape):
    x, w = torch.randn(5, 4, device=device), torch.randn(4, 3, device=device)
    c = torch.randn(shape, device=device) if beta else torch.full(shape, float("nan"), device=device)
    want = torch.addmm(c, x, w, alpha=0.5, beta=beta), torch.baddbmm(c, x[None], w[None], beta=beta)
    with installed(reproducible=True):
        got = torch.addmm(c, x, w, alpha=0.5, beta=beta), torch.baddbmm(c, x[None], w[None], beta=beta)
    assert len(ours) == 2
    torch.testing.assert_close(got, want)


def test_views_and_no_grad(torch, device, installed, ours):
    z = torch.randn(4, 6, dtype=torch.complex64, device=device)
    views = (z.mT, z[:, ::2], z.conj(), z.mH, z.imag, z[:, :1].expand(4, 5))
    want = [view @ view.mT for view in views]
    with installed(reproducible=True):
        torch.testing.assert_close([view @ view.mT for view in views], want)
        with torch.no_grad():
            torch.testing.assert_close([view @ view.mT for view in views], want)
        with torch.inference_mode():
            torch.testing.assert_close([view @ view.mT for view in views], want)
    assert len(ours) == 3 * len(views)


@pytest.mark.filterwarnings("ignore")  # of PyTorch's own modules
def test_transforms_of_functions(torch, device, installed, ours):
    a, b = torch.randn(2, 3, 3, device=device)

    def found():
        gradient = torch.func.grad(lambda x: (x @ b).sin().sum())(a)
        mapped = torch.func.vmap(lambda x: x @ b)(torch.stack([a, b]))
        return gradient, mapped, *torch.func.jvp(lambda x: x @ b, (a,), (b,))

    want = found()
    with installed(reproducible=True):
        torch.testing.assert_close(found(), want)
    assert len(ours) >= 4


# ---- blocks


def test_blocks_nest_and_the_inner_one_counts(torch, device, installed, ours, faster, monkeypatch):
    seen = noted(monkeypatch, pyclmm.api, "gemm")
    x = torch.ones(3, 3, device=device)
    with installed("high"):
        x @ x
        with installed("medium"):
            x @ x
            with installed("high"):
                pass
            x @ x
        x @ x
    x @ x
    with pyclmm.default_precision("high"), installed():
        x @ x
    assert [each.keywords["precision"] for each in seen] == ["high", "medium", "medium", "high", "high"]


def test_an_exception_brings_pytorchs_kernels_back(torch, device, installed, ours):
    x = torch.ones(3, 3, device=device)
    with pytest.raises(ZeroDivisionError), installed(reproducible=True):
        _ = x @ x, 1 / 0
    x @ x
    assert len(ours) == 1


def test_the_block_counts_for_other_threads_until_the_last_one_ends(torch, device, installed, ours):
    x = torch.ones(3, 3, device=device)
    inside, go_on = threading.Event(), threading.Event()

    def other():
        with installed(reproducible=True):
            inside.set()
            go_on.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(60)
    with installed(reproducible=True):
        x @ x
    x @ x  # the other thread's block
    go_on.set()
    thread.join()
    x @ x
    assert len(ours) == 2


def test_without_get_kernel_the_out_forms_are_called(torch, device, installed, ours, monkeypatch):
    monkeypatch.delattr(torch.library, "get_kernel", raising=False)
    x, c = torch.randn(2, 3, 3, device=device), torch.randn(3, device=device)
    cases = [
        lambda: torch.bmm(x, x),
        lambda: torch.mm(x[0], x[1]),
        lambda: torch.addmm(c, x[0], x[1], alpha=2),
        lambda: torch.baddbmm(c, x, x, beta=0.5),
    ]
    want = [case() for case in cases]
    with installed():
        got = [case() for case in cases]
        x.clone().requires_grad_()[0].mm(x[1]).sum().backward()
    assert ours == []
    assert all(map(torch.equal, got, want))


def test_each_shape_is_logged_once_with_the_reason(torch, device, installed, ours, caplog):
    x = torch.ones(3, 4, device=device)
    with caplog.at_level(logging.INFO, "pyclmm.torch"):
        for _ in range(2):
            with installed(reproducible=True):
                _ = x @ x.mT, x @ x.mT
            with installed("high"):
                _ = x @ x.mT
    said = [record.getMessage() for record in caplog.records if record.name == "pyclmm.torch"]
    assert len(said) == 2
    assert "mm of 3 x 4 by 4 x 3, torch.float32" in said[0]
    assert "pyclmm (reproducible=True demands it; kernel " in said[0]
    assert "precision 'high': PyTorch (estimated" in said[1]


def test_no_more_decisions_are_kept_than_a_limit(torch, device, installed, ours, override, limits):
    limits(decisions=2)
    with installed(reproducible=True):
        for n in range(1, 6):
            x = torch.ones(n, n, device=device)
            assert torch.equal(x @ x, torch.full_like(x, n))
    (kept,) = override._decisions.values()
    assert len(kept) <= 2


@pytest.mark.parametrize("newer", [False, True])
def test_what_pytorch_is_set_to_counts_when_the_block_begins(torch, door, override, newer):
    setting = torch.backends.cuda.matmul
    if newer and not hasattr(setting, "fp32_precision"):
        pytest.skip("this PyTorch has the older setting only")

    def tf32(is_allowed):
        if newer:
            setting.fp32_precision = "tf32" if is_allowed else "ieee"
        else:
            torch.set_float32_matmul_precision("high" if is_allowed else "highest")

    tf32(True)
    try:
        with door.installed("high"):
            assert override._overrides["CUDA"].block.asked == override.Asked("high", False, True)
            tf32(False)
            with door.installed():
                assert override._overrides["CUDA"].block.asked == override.Asked("highest", False, False)
    finally:
        torch.set_float32_matmul_precision("highest")


def test_a_build_of_pytorch_without_cuda_is_left_as_it_is(torch, door, monkeypatch):
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    monkeypatch.setattr(torch.library.Library, "impl", None)  # nothing is registered
    with door.installed():
        assert torch.equal(torch.eye(3) @ torch.eye(3), torch.eye(3))


def test_what_pyclmm_cannot_compute_is_pytorchs_unless_it_is_demanded(decided, estimates):
    error = pyclmm.UnsupportedError("no kernel here")
    with failing(estimates, "candidates", error, library="", always=True):
        assert decided(16, 16, 16) == estimates.Decision(False, "pyclmm cannot: no kernel here")
        with pytest.raises(pyclmm.UnsupportedError, match="no kernel here"):
            decided(16, 16, 16, reproducible=True)


def test_bad_arguments(door):
    with pytest.raises(pyclmm.ArgumentError, match="precision"), door.installed("best"):
        pass
    with pytest.raises(pyclmm.DTypeError, match="reproducible"), door.installed(reproducible=1):
        pass


# ---- the decision, for GPUs that are not here


@pytest.fixture
def decided(torch, estimates, monkeypatch):
    monkeypatch.setattr(estimates, "device_of", lambda device: H200)

    def decision(m, n, k, dtype="float32", stack=(), **asked):
        a, b = (
            torch.empty(*stack, *sides, dtype=getattr(torch, dtype), device="meta")
            for sides in ((m, k), (k, n))
        )
        ways = {"precision": "highest", "reproducible": False, "tf32": False} | asked
        return estimates.decide(a, b, None, None, estimates.Asked(**ways))

    return decision


def test_large_products_of_high_precision_are_pyclmms(decided):
    for n in (2048, 4096, 8192):
        assert decided(n, n, n, precision="high").ours
    assert decided(8192, 8192, 8192, "float64", precision="high").ours


def test_small_products_and_equal_ones_are_pytorchs(decided):
    for n in (16, 64, 256):
        found = decided(n, n, n, precision="high")
        assert not found.ours
        assert "by cuBLAS" in found.reason
    assert not decided(4096, 4096, 4096).ours


def test_what_is_demanded_is_pyclmms(decided):
    assert decided(16, 16, 16, reproducible=True).ours
    assert decided(16, 16, 16, precision="high", tf32=True).ours
    assert "TF32" in decided(16, 16, 16, tf32=True).reason
    assert not decided(16, 16, 16, precision="medium", tf32=True).ours
    assert not decided(16, 16, 16, "float64", tf32=True).ours


def test_the_model_of_cublas_has_the_measured_rates(estimates):
    for dtype, rate in (("float32", 51.2e12), ("float64", 62.7e12)):
        problem = problem_of(8192, 8192, 8192, np.dtype(dtype))
        assert 2 * 8192**3 / estimates.cublas_seconds(problem, H200) == pytest.approx(rate, rel=0.03)
    real, its_complex = (
        estimates.cublas_seconds(problem_of(4096, 4096, 4096, np.dtype(dtype)), H200)
        for dtype in ("float32", "complex64")
    )
    assert its_complex == pytest.approx(4 * real, rel=0.01)
    narrow = problem_of(8192, 1, 8192, np.dtype("float32"))
    assert estimates.cublas_seconds(narrow, H200) >= 8192**2 * 4 / H200.rates.memory
