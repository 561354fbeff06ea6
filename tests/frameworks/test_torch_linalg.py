"""The functions of pyclmm.linalg on PyTorch's tensors; TEST_TORCH_DEVICE=cuda runs them on a GPU."""

import random

import numpy as np
import pytest

import pyclmm
from pyclmm import linalg
from tests.support.habits import drawn
from tests.support.linalg_calls import CALLS, every_call


@every_call
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_tensors_give_tensors_where_they_are(name, dtype, torch, device):
    shapes, call = CALLS[name]
    r = random.Random(name)
    xs = [drawn(r, shape, dtype, layout="C") for shape in shapes]
    got, want = call(linalg, *(torch.from_numpy(x).to(device) for x in xs)), np.asarray(call(np, *xs))
    assert type(got) is torch.Tensor
    assert (got.device.type, tuple(got.shape)) == (torch.device(device).type, want.shape)
    assert got.dtype == getattr(torch, dtype)
    np.testing.assert_array_equal(got.cpu().numpy(), want)


def test_bfloat16_stays_so(torch, device):
    a = torch.arange(9, device=device).reshape(3, 3).bfloat16()
    out = torch.zeros(3, 3, dtype=torch.bfloat16, device=device)
    assert linalg.dot(a, a, out=out) is out
    for got in (linalg.einsum("ij,jk", a, a), linalg.matrix_power(a, 2), out):
        assert got.dtype == torch.bfloat16
        assert torch.equal(got, a @ a)
    turned = linalg.einsum("ij->ji", a)
    a[0, 1] = 7
    assert turned[1, 0] == 7  # a view of the tensor's memory


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("subscripts", ["ij->ji", "ii->i"])
def test_what_is_written_to_a_view_counts_as_written(subscripts, dtype, torch, device):
    x = torch.arange(20, device=device).to(getattr(torch, dtype)).view(4, 5)[1:, 1:4]  # not all of its memory
    loss = (x * torch.ones_like(x).requires_grad_()).sum()
    view, want = linalg.einsum(subscripts, x), torch.einsum(subscripts, x)
    view += 1
    assert torch.equal(view, want)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_tensor_that_requires_a_gradient_is_refused(torch, device):
    a = torch.ones(3, 3, requires_grad=True, device=device)
    with pytest.raises(pyclmm.DTypeError, match="detach"):
        linalg.einsum("ij,jk", a, a)
    with torch.no_grad():
        assert (linalg.einsum("ij,jk", a, a) == 3).all()


def test_a_product_of_tensors_in_tiles_is_a_tensor(torch):
    a = torch.arange(64 * 48, dtype=torch.float32).reshape(64, 48) % 7
    assert torch.equal(pyclmm.matmul(a, a.T, memory_limit="1 MiB"), a @ a.T)
    out = torch.empty(64, 64)
    assert pyclmm.matmul(a, a.T, out=out, memory_limit="1 MiB") is out
    assert torch.equal(out, a @ a.T)


def test_a_graph_of_pytorchs_has_all_launches(torch, device):
    if device == "cpu":
        pytest.skip("needs a CUDA device: TEST_TORCH_DEVICE=cuda")
    a = torch.ones(6, 6, device=device)

    def computed():
        return linalg.einsum("ij->i", linalg.matrix_power(a, 3))

    computed()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = computed()
    a.fill_(2)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(result.cpu(), torch.full((6,), 8.0 * 6**3))
