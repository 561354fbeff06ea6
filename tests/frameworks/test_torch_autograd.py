"""What pyclmm's own functions do with tensors that take part in PyTorch's differentiation, or hold less than
a byte; TEST_TORCH_DEVICE=cuda runs them on a GPU."""

import pytest

import pyclmm
from pyclmm import linalg

CALLS = {
    "matmul": lambda a, b, out=None: pyclmm.matmul(a, b, out=out),
    "matmul_many": lambda a, b, out=None: pyclmm.matmul_many([(a, b)], out=out if out is None else [out]),
    "einsum": lambda a, b, out=None: linalg.einsum("ij,jk", a, b, out=out),
    "dot": linalg.dot,
    "matvec": lambda a, b, out=None: linalg.matvec(a, b, out if out is None else (out,)),
    "multi_dot": lambda a, b, out=None: linalg.multi_dot([a, b], out=out),
}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@every_call
def test_backward_refuses_a_saved_tensor_that_is_written(call, torch, device):
    x = torch.ones(3, 3, device=device, requires_grad=True)
    saved = torch.ones(3, 3, device=device)
    y = (x * saved).sum()
    call(torch.ones(3, 3, device=device), torch.ones(3, 3, device=device), saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # PyTorch 2.11's own
@every_call
@pytest.mark.filterwarnings("ignore::FutureWarning")  # PyTorch's own: it compiles some derivatives
def test_a_tangent_is_refused(call, torch, device):
    forward_ad = torch.autograd.forward_ad
    xs = [torch.ones(3, 3, device=device) for _ in range(3)]
    call(*xs)  # a call like it, which is followed
    with forward_ad.dual_level():
        call(*xs)
        for i, name in enumerate(("", "", "out")):
            given = [*xs]
            given[i] = forward_ad.make_dual(xs[i], torch.ones_like(xs[i]))
            with pytest.raises(pyclmm.DTypeError, match=f"{name} has a tangent.*torch's .* ragged_matmul"):
                call(*given)


@pytest.mark.filterwarnings("ignore")  # of the compiler's own modules
def test_a_gradient_is_refused_in_compiled_code(torch, device):
    compiled = torch.compile(lambda a, b: pyclmm.matmul(a, b) + 1, backend="aot_eager")
    x = torch.eye(3, device=device)
    assert torch.equal(compiled(x, x), x + 1)
    with pytest.raises(pyclmm.DTypeError, match="a requires a gradient"):
        compiled(x.clone().requires_grad_(), x)


@every_call
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_out_that_requires_a_gradient_is_refused_unless_none_is_recorded(call, dtype, torch, device):
    x = torch.eye(3, dtype=getattr(torch, dtype), device=device)
    out = torch.zeros_like(x).requires_grad_()
    with pytest.raises(pyclmm.DTypeError, match=r"out requires a gradient.*torch's .* ragged_matmul"):
        call(x, x, out)
    assert not out.any()
    with torch.no_grad():
        call(x, x, out)
    assert torch.equal(out, x)


def test_elements_of_less_than_a_byte_are_refused(torch, device):
    names = [f"{sign}int{bits}" for sign in ("u", "") for bits in range(1, 8)]
    given = [name for name in names if hasattr(torch, name)]
    if not given:
        pytest.skip("this PyTorch has no such dtypes")
    whole = torch.full((3, 3), 0x21, dtype=torch.uint8, device=device)
    for name in given:
        x = whole.view(getattr(torch, name))
        with pytest.raises(pyclmm.DTypeError, match=f"a has dtype torch.{name}, which pyclmm does not"):
            pyclmm.matmul(x, whole)


@every_call
@pytest.mark.parametrize("shape", [(3, 1), (1, 3), (1, 1)])
def test_an_out_whose_elements_share_memory_is_refused(call, shape, torch, device):
    x, is_vector = torch.ones(3, 3, device=device), call is CALLS["matvec"]
    memory = torch.zeros(shape, device=device)
    out = memory[:1, 0].expand(3) if is_vector else memory.expand(3, 3)
    with pytest.raises(pyclmm.ArgumentError, match=r"elements of out share memory, .*; pass an out|C-contig"):
        call(x, x[0] if is_vector else x, out)
    assert not memory.any()
