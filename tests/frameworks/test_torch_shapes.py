"""What pyclmm.torch refuses by shapes: the same words for tensors with and without elements."""

import pytest

import pyclmm

# a, b, c, bias, and what is said of them.
GEMMS = [
    ((4,), (4, 5), (), None, r"c has shape \(\), but the result has shape \(5,\)"),
    ((4,), (4, 5), (1, 5), None, r"c has shape \(1, 5\), but the result has shape \(5,\)"),
    ((3, 4), (4,), (), None, r"c has shape \(\), but the result has shape \(3,\)"),
    ((4,), (4,), (1,), None, r"c has shape \(1,\), but the result has shape \(\)"),
    ((3, 4), (4, 5), (5,), None, r"c has shape \(5,\), but the result has shape \(3, 5\)"),
    ((2, 3, 4), (4, 5), (3, 5), None, r"c has shape \(3, 5\), but the result has shape \(2, 3, 5\)"),
    ((3, 4), (4, 5), None, (4,), r"bias has shape \(4,\); for a result of 3 x 5"),
    ((2, 3, 4), (4, 5), None, (4,), r"bias has shape \(4,\); for a result of 3 x 5"),
    ((2, 3, 4), (4, 5), None, (6, 1), r"bias has shape \(6, 1\); for a result of 3 x 5"),
    ((3, 4), (4,), None, (4,), r"bias has shape \(4,\); for a result of 3 x 1"),
    ((4,), (4, 5), None, (1, 1, 5), r"bias has shape \(1, 1, 5\); for a result of 1 x 5"),
    ((2, 3, 4), (5, 5), None, None, r"a of shape \(2, 3, 4\) and b of shape \(5, 5\) do not multiply"),
    ((2, 3, 4), (3, 4, 5), None, None, "the stacks of a .* do not broadcast"),
]
RAGGED = [  # a, b, group_sizes
    ((4,), (2, 4, 5), (2,), r"a has shape \(4,\) and b \(2, 4, 5\); pass a \(rows, K\)"),
    ((), (2, 4, 5), (2,), r"a has shape \(\)"),
    ((3, 4), (4,), (2,), r"b \(4,\); pass"),
    ((3, 4), (2, 4, 5), (), r"group_sizes has shape \(\); pass a 1-D array"),
    ((3, 4), (2, 4, 5), (3,), "b has 2 matrices and group_sizes 3 sizes"),
    ((3, 4), (2, 5, 5), (2,), "do not multiply, K is 4 in a and 5 in b"),
    ((3, 4), (5, 5), (2,), "do not multiply, K is 4 in a and 5 in b"),
]


def made(torch, place, shape, dtype="float32"):
    return None if shape is None else torch.ones(shape, dtype=getattr(torch, dtype), device=place)


@pytest.fixture(params=["with elements", "meta", "fake"])
def place(request, torch, device):
    """A device of tensors that have elements, or have none."""
    if request.param == "fake":
        with torch._subclasses.fake_tensor.FakeTensorMode():
            yield device
    else:
        yield "meta" if request.param == "meta" else device


@pytest.mark.parametrize(("a", "b", "c", "bias", "said"), GEMMS, ids=str)
def test_shapes_that_gemm_refuses(torch, door, place, a, b, c, bias, said):
    a, b, c, bias = (made(torch, place, shape) for shape in (a, b, c, bias))
    with pytest.raises(pyclmm.ShapeError, match=said):
        door.gemm(a, b, c, bias=bias, beta=0 if c is None else 1)


@pytest.mark.parametrize(("a", "b", "sizes", "said"), RAGGED, ids=str)
def test_shapes_that_ragged_matmul_refuses(torch, door, place, a, b, sizes, said):
    sizes = torch.ones(sizes, dtype=torch.int32, device=place)
    with pytest.raises(pyclmm.ShapeError, match=said):
        door.ragged_matmul(made(torch, place, a), made(torch, place, b), sizes)


@pytest.mark.parametrize(("name", "dtype"), [("relu", "int32"), ("gelu", "complex64"), ("silu", "complex64")])
def test_an_activation_needs_real_floats_everywhere(torch, door, place, name, dtype):
    x = made(torch, place, (3, 3), dtype)
    x.requires_grad_(x.is_complex())
    with pytest.raises(pyclmm.DTypeError, match=f"'{name}' needs a real float result, not {dtype}"):
        door.gemm(x, x, activation=name)


@pytest.mark.parametrize("a", [(4,), (3, 4), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("b", [(4,), (4, 5)], ids=str)
def test_c_and_bias_of_every_rank_have_gradients(torch, door, device, a, b):
    a, b = (torch.randn(shape, dtype=torch.float64, device=device) for shape in (a, b))
    want = a @ b
    c = torch.randn_like(want)
    biases = [(want.shape[-1],) if want.ndim else (1,)]
    biases += [(), (1, 1), *([(3, 1)] if a.ndim > 1 else []), *([(1, 5)] if b.ndim > 1 else [])]
    for shape in biases:
        bias = torch.randn(shape, dtype=torch.float64, device=device)
        xs = [x.requires_grad_() for x in (a, b, c, bias)]
        added = bias if a.ndim > 1 < b.ndim else bias.reshape(() if bias.numel() == 1 else -1)
        got, want = door.gemm(a, b, c, bias=bias, beta=2), a @ b + 2 * c + added
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(torch.autograd.grad(got.sum(), xs), torch.autograd.grad(want.sum(), xs))


@pytest.mark.filterwarnings("ignore")  # of the compiler's own modules
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_compiled_call_refuses_what_a_call_refuses(torch, door, device, traced, dynamic):
    compiled = torch.compile(
        lambda a, b, c, bias: door.gemm(a, b, c, bias=bias, beta=1) + 1,
        fullgraph=True, backend="aot_eager", dynamic=dynamic,
    )  # fmt: skip
    x = torch.ones(3, 4, device=device)
    for n in (5, 6):
        got = compiled(x, x.new_ones(4, n), x.new_ones(3, n), x.new_ones(n))
        assert torch.equal(got, x.new_full((3, n), 7))
    for c, bias, said in (((3, 6), (5,), "c has shape"), ((3, 5), (4,), "bias has shape")):
        with pytest.raises(Exception, match=rf"ShapeError\(.{said}"):
            compiled(x, x.new_ones(4, 5), x.new_ones(c), x.new_ones(bias))


@pytest.fixture
def late(torch):
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        yield


@pytest.mark.filterwarnings("ignore")  # of the compiler's own modules
def test_lengths_that_a_compiled_graph_learns_late(torch, door, device, traced, late):
    compiled = torch.compile(
        lambda x, y: door.gemm(x[x[:, 0] > 0], y, x[x[:, 1] > 0] @ y, beta=2),
        fullgraph=True, backend="aot_eager",
    )  # fmt: skip
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]], device=device)
    torch.testing.assert_close(compiled(x, x.mT), 3 * x[:2] @ x.mT)


@pytest.mark.filterwarnings("ignore")  # of the compiler's own modules
def test_lengths_of_a_stack_that_a_compiled_graph_learns_late(torch, door, device, traced, late):
    compiled = torch.compile(
        lambda x, y, bias, k, n: door.gemm(x[..., k > 0], y[k > 0][:, n > 0], bias=bias[n > 0]),
        fullgraph=True, backend="aot_eager",
    )  # fmt: skip
    x, y, bias = (torch.randn(shape, device=device) for shape in ((2, 3, 4), (4, 5), (5,)))
    got = compiled(x, y, bias, x.new_tensor([0, 1, 1, 1]), x.new_tensor([1, 0, 1, 1, 0]))
    torch.testing.assert_close(got, (x[..., 1:] @ y[1:] + bias)[..., [0, 2, 3]])


def test_scales_of_lengths_are_exported(torch, door, device):
    class Model(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, a, b):
            return door.gemm(a, b, b, alpha=a.shape[-1] ** -0.5, beta=a.shape[-1])

    rows = torch.export.Dim("rows", min=2)
    a, b = torch.ones(4, 4, device=device), torch.ones(4, 3, device=device)
    exported = torch.export.export(Model(), (a, b), dynamic_shapes=({0: rows, 1: rows}, {0: rows}))
    for n in (4, 9):
        a, b = torch.ones(n, n, device=device), torch.ones(n, 3, device=device)
        torch.testing.assert_close(exported.module()(a, b), n**-0.5 * (a @ b) + n * b)
