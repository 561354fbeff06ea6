"""Tensors that are no plain ones: each is multiplied, or refused with what to pass."""

import numpy as np
import pytest

import pyclmm
from pyclmm import linalg

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's of its prototypes


class Wrapped:
    """Makes a subclass that computes by the tensor in it."""

    @staticmethod
    def of(torch, tensor):
        class Wrapper(torch.Tensor):  # type: ignore[name-defined]
            @staticmethod
            def __new__(cls, x):
                made = torch.Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype, device=x.device)
                made.x = x
                return made

            @classmethod
            def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
                args = [x.x if isinstance(x, cls) else x for x in args]
                result = function(*args, **(kwargs or {}))
                return cls(result) if isinstance(result, torch.Tensor) else result

        return Wrapper(tensor)


def distributed(torch, x):
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    return torch.distributed.tensor.distribute_tensor(x, mesh, [torch.distributed.tensor.Shard(0)])


def seen_as(torch, x, name):
    return x.to(torch.uint8).view(getattr(torch, name))


# Name: what makes one of a float32 matrix, what it is called, what to pass, and what does it of the matrix.
REFUSED = {
    "nested": (lambda t, x: t.nested.nested_tensor([x, x]), "a nested tensor", "a.unbind(), to pyclmm.matm"),
    "jagged": (
        lambda t, x: t.nested.nested_tensor([x, x], layout=t.jagged), "a nested tensor", "a.unbind(), to",
    ),
    "COO": (lambda t, x: x.to_sparse(), "a Tensor of layout torch.sparse_coo", "a.to_dense()"),
    "CSR": (lambda t, x: x.to_sparse_csr(), "a Tensor of layout torch.sparse_csr", "a.to_dense()"),
    "quantized": (
        lambda t, x: t.quantize_per_tensor(x, 0.1, 0, t.qint8), "dtype torch.qint8", "a.dequantize()",
    ),
    "masked": (lambda t, x: t.masked.masked_tensor(x, x > 0), "a MaskedTensor", "a.to_tensor(0)"),
    "DTensor": (distributed, "a DTensor", "a.to_local(), or all of it, a.full_tensor()"),
    "lazy": (lambda t, x: t.nn.parameter.UninitializedBuffer(), "an UninitializedBuffer", "a first call of"),
    "float4": (lambda t, x: seen_as(t, x, "float4_e2m1fn_x2"), "float4_e2m1fn_x2", "a tensor of float32"),
    "bits": (lambda t, x: seen_as(t, x, "bits8"), "has dtype torch.bits8", "a tensor of float32"),
    "float8": (lambda t, x: x.to(t.float8_e5m2), "has dtype torch.float8_e5m2", "a.float()"),
}  # fmt: skip


@pytest.fixture(params=REFUSED)
def refused(request, torch):
    make, what, cure = REFUSED[request.param]
    if request.param == "DTensor" and not torch.distributed.is_available():
        pytest.skip("this PyTorch has no torch.distributed")
    try:
        yield make(torch, torch.eye(4)), what, cure
    except AttributeError as error:
        pytest.skip(f"this PyTorch lacks it: {error}")
    finally:
        if request.param == "DTensor":
            torch.distributed.destroy_process_group()


def test_each_is_refused_with_what_to_pass(torch, door, refused):
    x, what, cure = refused
    plain = torch.eye(4)
    for call in (
        lambda: door.matmul(x, plain),
        lambda: door.gemm(x, plain),
        lambda: pyclmm.matmul(x, plain),
        lambda: linalg.einsum("ij,jk", x, plain),
    ):
        with pytest.raises(pyclmm.DTypeError) as caught:
            call()
        assert what in str(caught.value)
        assert cure in str(caught.value)


def test_as_out_and_as_sizes_each_is_refused_with_what_to_pass_there(torch, door, refused):
    x, what, _ = refused
    plain = torch.eye(4)
    with pytest.raises(pyclmm.DTypeError) as caught:
        pyclmm.matmul(plain, plain, out=x)
    assert what in str(caught.value)
    assert "pass none, or a plain tensor of the result's dtype" in str(caught.value)
    with pytest.raises(pyclmm.DTypeError, match=r"group_sizes (is an?|has dtype)"):
        door.ragged_matmul(plain, torch.ones(2, 4, 4), x)


def test_what_is_advised_works(torch, door):
    x = torch.eye(4)
    q = torch.quantize_per_tensor(x, 0.5, 0, torch.qint8)
    masked = torch.masked.masked_tensor(x, x > 0)
    for plain in (x.to_sparse().to_dense(), q.dequantize(), masked.to_tensor(0)):
        for product in (door.matmul, pyclmm.matmul):
            assert torch.equal(product(plain, x), x)
    nested = torch.nested.nested_tensor([x, x[:2]])
    for got, want in zip(pyclmm.matmul_many([(y, x) for y in nested.unbind()]), (x, x[:2]), strict=True):
        assert torch.equal(got, want)


def test_subclasses_are_multiplied(torch, door, device):
    class Named(torch.Tensor):  # type: ignore[name-defined]
        pass

    x = torch.eye(3, device=device)
    named, out = 2 * x.as_subclass(Named), x.clone().as_subclass(Named)
    assert torch.equal(door.matmul(named, x), 2 * x)
    assert torch.equal(pyclmm.matmul(named, x), 2 * x)
    assert pyclmm.matmul(named, x, out=out) is out
    assert torch.equal(out, 2 * x)
    wrapped = Wrapped.of(torch, 3 * x)
    assert torch.equal(door.matmul(wrapped, x).x, 3 * x)
    with pytest.raises(pyclmm.DTypeError, match=r"a is a (Wrapper|tensor) without memory"):
        pyclmm.matmul(wrapped, x)


@pytest.mark.filterwarnings("ignore")  # of PyTorch's own modules
def test_within_transforms_of_functions(torch, door, device):
    x = torch.eye(3, device=device)
    with pytest.raises(pyclmm.DTypeError, match=r"a is a tensor of torch.func .*use pyclmm\.torch\.matmul"):
        torch.func.vmap(lambda y: pyclmm.matmul(y, x))(torch.stack([x, x]))
    for call in (
        lambda y: pyclmm.matmul(y, x),
        lambda y: linalg.einsum("ij,jk", y, x),
        lambda y: pyclmm.matmul_many([(y, x)])[0],
    ):
        words = r"is a tensor (of torch\.func .*use pyclmm\.torch|without m)"
        with pytest.raises(pyclmm.DTypeError, match=words):
            torch.func.functionalize(call)(x)
    assert torch.equal(torch.func.functionalize(door.matmul)(x, x), x)


@pytest.mark.filterwarnings("ignore")  # of PyTorch's own modules
def test_what_a_transform_does_not_follow(torch, door, device):
    x = torch.eye(3, device=device)
    twice, said = 2 * x, ""
    assert torch.equal(torch.func.grad(lambda y: (y * door.matmul(x, twice)).sum())(x), twice)
    try:
        got = torch.func.grad(lambda y: (y * pyclmm.matmul(x, twice)).sum())(x)
    except pyclmm.DTypeError as error:  # PyTorch 2.6 wraps it all the same
        got, said = twice, str(error)
    assert torch.equal(got, twice)
    assert said in ("", "a is in a transform of torch.func; use pyclmm.torch.matmul")


@pytest.mark.filterwarnings("ignore")  # of PyTorch's own modules
def test_what_a_transform_wraps_has_no_address(torch, monkeypatch):
    from pyclmm.execution import torch_tensors  # noqa: PLC0415 - it needs PyTorch

    monkeypatch.setattr(torch_tensors, "_device", lambda ordinal: torch.device("cpu"))
    x, gpus = torch.eye(3), torch_tensors.TORCH
    said = []

    def product(y):
        for call in (lambda: gpus.cuda_array("b", x), lambda: gpus.new((3,), np.dtype("f"), 0)):
            with pytest.raises(pyclmm.DTypeError) as caught:
                call()
            said.append(str(caught.value))
        return y.sum()

    torch.func.grad(product)(x)
    cure = "is in a transform of torch.func; use pyclmm.torch.matmul"
    assert said == [f"b {cure}", f"the result {cure}"]


def test_a_conjugate_for_which_the_allocator_has_no_memory(torch, monkeypatch):
    from pyclmm.execution import torch_tensors  # noqa: PLC0415 - it needs PyTorch

    def refuse(_):
        raise torch.OutOfMemoryError("20 GiB are too many")

    monkeypatch.setattr(torch.Tensor, "resolve_conj", refuse)
    with pytest.raises(pyclmm.DeviceMemoryError, match="PyTorch's allocator: 20 GiB are too many"):
        torch_tensors.TORCH.cuda_array("a", torch.eye(3, dtype=torch.complex64).conj())
