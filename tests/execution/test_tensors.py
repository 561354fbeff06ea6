"""PyTorch's tensors: views that note only a sign, bfloat16, and what is said of those that are refused.

Stand-ins have the methods of torch.Tensor that are asked; PyTorch's own follow where it is installed.
"""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from ml_dtypes import bfloat16

import pyclmm
from pyclmm import linalg
from pyclmm.execution.array_likes import array_of

Y = np.arange(6, dtype=np.float32).reshape(2, 3)


class Lazy:
    """A view whose elements are to be conjugated or negated; DLPack gives them as they lie."""

    def __init__(self, x, conj=False, neg=False):
        self.x, self.conj, self.neg = x, conj, neg

    def is_conj(self):
        return self.conj

    def is_neg(self):
        return self.neg

    def resolve_conj(self):
        return Lazy(self.x.conj(), neg=self.neg) if self.conj else self

    def resolve_neg(self):
        return Lazy(-self.x, self.conj) if self.neg else self

    def __dlpack__(self, **keywords):
        return self.x.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


class Bits(Lazy):
    """A tensor of bfloat16, which NumPy's DLPack does not know, as torch.Tensor is one."""

    dtype, requires_grad = "bfloat16", False

    def resolve_neg(self):
        return Bits(-self.x) if self.neg else self

    def __dlpack__(self, **keywords):
        raise BufferError("bfloat16")

    def view(self, dtype):
        assert dtype == "int16"
        return Lazy(self.x.view(np.int16))


@pytest.fixture
def stand_in(monkeypatch):
    fake = SimpleNamespace(Tensor=Bits, bfloat16=Bits.dtype, int16="int16")
    monkeypatch.setitem(sys.modules, "torch", fake)


@pytest.mark.parametrize("conj", [False, True])
@pytest.mark.parametrize("neg", [False, True])
def test_views_that_note_a_sign_are_read_with_it(conj, neg):
    z = (Y + 2j * Y).astype(np.complex64)
    want = (z.conj() if conj else z) * (-1 if neg else 1)
    assert np.array_equal(pyclmm.matmul(Lazy(z, conj, neg), Y.T), want @ Y.T)
    assert np.array_equal(linalg.inner(Y, Lazy(z, conj, neg)), np.inner(Y, want))
    assert np.shares_memory(array_of("a", Lazy(z)), z)


def test_bfloat16_is_taken_as_it_lies(stand_in):
    x = Y.astype(bfloat16)
    assert np.shares_memory(array_of("a", Bits(x.T)), x)
    assert np.array_equal(array_of("a", Bits(x.T)), x.T)
    assert np.array_equal(array_of("a", Bits(x, neg=True)), -x)


# ---- PyTorch itself ----------------------------------------------------------------------------


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
    bits = taken["bfloat16, transposed"]
    assert array_of("a", bits).dtype == bfloat16
    assert array_of("a", bits).__array_interface__["data"][0] == bits.data_ptr()


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
        with pytest.raises(pyclmm.DTypeError, match="a is a") as raised:
            pyclmm.matmul(a, Y.T if isinstance(a, list) else other)
        advice = (
            str(raised.value).rpartition("; ")[2] if "gradients" not in str(raised.value) else "a.detach()"
        )
        words = [word.strip(",") for word in advice.split() if word.strip(",").endswith(")")]
        assert words, raised.value
        got = pyclmm.matmul(eval(words[0], {"a": a, "torch": torch}), other)
        assert got.shape[-2:] == (2, 2)


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
