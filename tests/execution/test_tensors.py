"""PyTorch's tensors: views that note only a sign, bfloat16, and what is said of those that are refused."""

import numpy as np
import pytest
from ml_dtypes import bfloat16

import pyclmm
from pyclmm import array_api
from pyclmm.execution.kinds import kind_of

Y = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's of types in beta
def test_pytorchs_tensors(torch):
    x = torch.from_numpy(Y.copy())
    z = torch.complex(x, 2 * x)
    taken = {
        "negated": torch.complex(x, x).conj().imag,
        "conjugated": z.conj(),
        "conjugated and transposed": z.conj().T,
        "both": torch._neg_view(z).conj(),
        "bfloat16": x.bfloat16(),
        "bfloat16, transposed": x.bfloat16().T,
        "bfloat16, negated": torch._neg_view(x.bfloat16()),
        "sliced": x[:, ::2],
        "repeated": x[:, :1].expand(2, 4),
        "a detached parameter": torch.nn.Parameter(x).detach(),
    }
    for name, tensor in taken.items():
        values = tensor.resolve_conj().resolve_neg()
        want = values.float().numpy() if tensor.dtype is torch.bfloat16 else values.numpy()
        other = torch.from_numpy(want.T.copy())
        assert np.array_equal(pyclmm.matmul(tensor, other).numpy(), want @ want.T), name
        for make in (array_api.asarray, array_api.from_dlpack):
            assert np.array_equal(make(tensor).get(), want), name
    bits = taken["bfloat16, transposed"]
    read = kind_of(bits).host_array("a", bits)
    assert read.dtype == bfloat16
    assert read.__array_interface__["data"][0] == bits.data_ptr()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_advice_for_tensors_of_pytorchs_that_are_refused_works(torch):
    x, other = torch.from_numpy(Y.copy()), torch.from_numpy(Y.T.copy())
    refused = [
        x.clone().requires_grad_(),
        torch.nn.Parameter(x.bfloat16()),
        x.to_sparse(),
        x.to_sparse_csr(),
        x.to(torch.float8_e4m3fn),
        x.to(torch.complex32),
        torch.quantize_per_tensor(x, 1.0, 0, torch.qint8),
        torch._efficientzerotensor((2, 3)),
        [x.bfloat16(), x.bfloat16()],
    ]
    for a in refused:
        with pytest.raises(pyclmm.DTypeError, match=r"a (is a|has dtype|requires a gradient)") as raised:
            pyclmm.matmul(a, Y.T if isinstance(a, list) else other)
        advice = str(raised.value).rpartition("; ")[2]
        words = [word.strip(",") for word in advice.split() if word.strip(",").endswith(")")]
        assert words, raised.value
        got = pyclmm.matmul(eval(words[0], {"a": a, "torch": torch}), other)
        assert got.shape[-2:] == (2, 2)


def test_a_plan_in_tiles_takes_tensors_as_matmul_does(torch):
    x, out = torch.eye(40).bfloat16(), torch.zeros(40, 40).bfloat16()
    assert torch.equal(pyclmm.StreamedMatmul(x, x)(x, x), x)
    assert pyclmm.StreamedMatmul(x, x, out=out)(x, x, out=out) is out
    assert torch.equal(out, x)
    assert out._version == 1  # so backward() refuses what was saved before


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_tensor_without_memory_is_refused(torch):
    fake = pytest.importorskip("torch._subclasses.fake_tensor")
    with fake.FakeTensorMode():
        tensor = torch.ones(2, 3)
    with pytest.raises(pyclmm.DTypeError, match="a is a FakeTensor without memory"):
        pyclmm.matmul(tensor, torch.ones(3, 2))


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_a_tensor_whose_storage_was_freed_is_refused(torch):
    """As sharded parameters are between their uses. NumPy's view of such a tensor has memory of its own."""
    for dtype in (torch.float32, torch.bfloat16):
        freed, x = torch.ones(3, 3, dtype=dtype), torch.ones(3, 3, dtype=dtype)
        freed.untyped_storage().resize_(0)
        for call, name in (
            (lambda freed=freed, x=x: pyclmm.matmul(freed, x), "a"),
            (lambda freed=freed, x=x: pyclmm.matmul(x, x, out=freed), "out"),
            (lambda freed=freed, x=x: pyclmm.linalg.dot(freed, x), "a"),
        ):
            with pytest.raises(pyclmm.DTypeError, match=f"{name} is a Tensor without memory"):
                call()
