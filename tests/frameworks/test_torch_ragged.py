"""pyclmm.torch.ragged_matmul: values and gradients against a loop of PyTorch's own, compiling, errors."""

from itertools import accumulate

import pytest

import pyclmm
from tests.support.faults import noted
from tests.support.tensors import drawn, same_with_gradients

# PyTorch's first product by cuBLAS in a thread of its own for backward says so on CUDA.
pytestmark = pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")

SIZES = [3, 0, 6, 2]  # of 12 rows, so that one is of no group


def loop(torch, a, b, sizes):
    """What it should give, product by product."""
    ends = [*accumulate(sizes)]
    rows = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    if b.ndim == 2:
        return torch.stack([a[:, r] @ b[r] for r in rows])
    rest = a.new_zeros(len(a) - ends[-1], b.shape[2])
    return torch.cat([*(a[r] @ b[g] for g, r in enumerate(rows)), rest])


def operands(torch, device, divides, dtype="float64"):
    shapes = ((12, 5), (4, 5, 7)) if divides == "rows" else ((5, 12), (12, 7))
    a, b = (drawn(torch, device, *shape, dtype=dtype) for shape in shapes)
    return a, b, torch.tensor(SIZES, dtype=torch.int32, device=device)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("divides", ["rows", "K"])
def test_values_and_gradients_are_those_of_a_loop(torch, door, device, divides, dtype):
    a, b, sizes = operands(torch, device, divides, dtype)
    got, want = door.ragged_matmul(a, b, sizes), loop(torch, a, b, SIZES)
    same_with_gradients(torch, got, want, (a, b))


@pytest.mark.parametrize("divides", ["rows", "K"])
def test_gradients_have_gradients(torch, door, device, divides):
    a, b, sizes = operands(torch, device, divides)
    assert torch.autograd.gradgradcheck(lambda x, y: door.ragged_matmul(x, y, sizes), (a, b))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_other_types_keep_theirs(torch, door, device, dtype):
    a, b, sizes = operands(torch, device, "rows", dtype)
    got = door.ragged_matmul(a, b, sizes)
    assert got.dtype == a.dtype
    torch.testing.assert_close(got, loop(torch, a, b, SIZES), rtol=2e-2, atol=2e-2)


def test_it_stays_in_a_compiled_graph(torch, door, device, traced):
    a, b, sizes = operands(torch, device, "rows")
    compiled = torch.compile(
        lambda x, y: door.ragged_matmul(x, y, sizes) + 1, fullgraph=True, backend="aot_eager"
    )
    torch.testing.assert_close(compiled(a, b), loop(torch, a, b, SIZES) + 1)


def test_sizes_of_more_rows_than_there_are_raise(torch, door, device):
    """On the CPU in this call; on CUDA in the next one."""
    a, b, sizes = operands(torch, device, "rows")
    sizes[2] = 99
    if device == "cpu":
        with pytest.raises(ValueError, match="add up to 104, but there are 12 rows"):
            door.ragged_matmul(a, b, sizes)
        return
    got = door.ragged_matmul(a, b, sizes)
    torch.cuda.synchronize()
    torch.testing.assert_close(got, loop(torch, a, b, [3, 0, 9, 0]))
    with pytest.raises(ValueError, match="an earlier call"):
        door.ragged_matmul(a, b, sizes)


def test_sizes_elsewhere_are_refused(torch, door, device):
    a, b, _ = operands(torch, device, "rows")
    with pytest.raises(TypeError, match=r"group_sizes is a list; pass torch\.as_tensor\(group_sizes"):
        door.ragged_matmul(a, b, SIZES)


@pytest.mark.parametrize("divides", ["rows", "K"])
def test_verify_reaches_the_product_and_its_gradients(torch, door, device, divides, monkeypatch):
    seen = noted(monkeypatch, pyclmm.many, "ragged_matmul")
    a, b, sizes = operands(torch, device, divides)
    door.ragged_matmul(a, b, sizes, verify=True).sum().backward()
    with pyclmm.verified("repair"):
        door.ragged_matmul(a, b, sizes).sum().backward()
    door.ragged_matmul(a, b, sizes).sum().backward()
    assert [x.keywords["verify"] for x in seen] == [True] * 3 + ["repair"] * 3 + [False] * 3
