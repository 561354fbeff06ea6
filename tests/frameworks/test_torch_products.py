"""pyclmm.torch.matmul and gemm: values and gradients against PyTorch's own, compiling, autocast, errors."""

import itertools
import sys

import numpy as np
import pytest

import pyclmm
from pyclmm import TileConfig
from pyclmm.cuda.arrays import CudaArray
from pyclmm.execution.kinds import kind_of
from tests.support.faults import noted
from tests.support.processes import python
from tests.support.tensors import applied, drawn, same_with_gradients

# PyTorch's first product by cuBLAS in a thread of its own for backward says so on CUDA.
pytestmark = pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")

SHAPES = [
    ((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (4,)),
    ((4,), (2, 4, 5)), ((2, 1, 3, 4), (3, 4, 5)), ((3, 4), (2, 4, 5)), ((0, 4), (4, 5)), ((3, 0), (0, 5)),
]  # fmt: skip
ACTIVATIONS = ("relu", "leaky_relu", "gelu", "gelu_tanh", "sigmoid", "tanh", "silu")


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("tile", [(128, 256, 1), (128, 128, 0), (64, 32, 0), (128, 192, 0)])
def test_work_groups_of_a_cluster_share_their_copies(torch, device, layout, tile):
    if device == "cpu" or torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("clusters are in launches by CUDA, from compute capability 9.0 on")
    bm, bn, drain = tile
    config = TileConfig(
        bm=bm, bn=bn, bk=64, stages=3, options={"alternate": 0, "cluster": 2, "drain": drain, "group": 8}
    )
    for m, n, k in ((bm + 8, bn + 8, 200), (5000, 2056, 136), (bm, 8, 1000), (777, 4000, 64)):
        a, b = (torch.randint(-3, 4, shape, device=device).half() for shape in ((m, k), (k, n)))
        a = a.T.contiguous().T if layout[0] == "T" and m % 8 == 0 else a
        b = b.T.contiguous().T if layout[1] == "T" else b
        out = pyclmm.matmul(a, b, dtype=None if drain else "float32", kernel=("wgmma", config))
        assert torch.equal(out.float(), (a.double() @ b.double()).to(out.dtype).float()), (m, n, k)


def checked(torch, function, *tensors):
    assert torch.autograd.gradcheck(function, tensors)
    assert torch.autograd.gradgradcheck(function, tensors)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_matmul_is_torchs(torch, door, device, dtype, shapes):
    a, b = (drawn(torch, device, *shape, dtype=dtype) for shape in shapes)
    got, want = door.matmul(a, b), torch.matmul(a, b)
    same_with_gradients(torch, got, want, (a, b))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("shapes", SHAPES[:8], ids=str)
def test_the_gradients_of_matmul_have_gradients(torch, door, device, dtype, shapes):
    checked(torch, door.matmul, *(drawn(torch, device, *shape, dtype=dtype) for shape in shapes))


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("trans", list(itertools.product("NTC", repeat=2)), ids="".join)
def test_the_gradients_of_gemm(torch, door, device, dtype, trans):
    a = drawn(torch, device, *((3, 4) if trans[0] == "N" else (4, 3)), dtype=dtype)
    b = drawn(torch, device, *((4, 5) if trans[1] == "N" else (5, 4)), dtype=dtype)
    c, bias = drawn(torch, device, 3, 5, dtype=dtype), drawn(torch, device, 3, 1, dtype=dtype)
    alpha, beta = (0.5 + 2j, 1.5 - 1j) if dtype == "complex128" else (0.5, 2)
    ways = {"alpha": alpha, "beta": beta, "trans_a": trans[0], "trans_b": trans[1]}

    def ours(a, b, c, bias):
        return door.gemm(a, b, c, bias=bias, **ways)

    def op(x, how):
        return {"N": x, "T": x.mT, "C": x.mH}[how]

    want = alpha * (op(a, trans[0]) @ op(b, trans[1])) + beta * c + bias
    torch.testing.assert_close(ours(a, b, c, bias), want)
    checked(torch, ours, a, b, c, bias)


@pytest.mark.parametrize("trans", list(itertools.product("NTC", repeat=2)), ids="".join)
def test_vectors_equal_their_transposes(torch, door, device, trans):
    a, b = (drawn(torch, device, 4, dtype="complex128") for _ in range(2))
    got = door.gemm(a, b, trans_a=trans[0], trans_b=trans[1])
    want = torch.dot(*(x.conj() if how == "C" else x for x, how in zip((a, b), trans, strict=True)))
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize(
    ("a", "b", "bias"),
    [
        ((3, 4), (4, 5), (5,)), ((3, 4), (4, 5), (1, 5)), ((3, 4), (4, 5), (3, 1)), ((2, 3, 4), (4, 5), (5,)),
        ((2, 3, 4), (4, 5), (3, 1)), ((2, 3, 4), (2, 4, 5), (5,)), ((3, 4), (4,), (3,)), ((4,), (4, 5), (5,)),
        ((2, 3, 4), (4,), (3,)),
    ],
    ids=str,
)  # fmt: skip
def test_the_gradient_of_a_bias_is_the_sum_over_what_it_was_added_to(torch, door, device, a, b, bias):
    a, b, bias = (drawn(torch, device, *shape) for shape in (a, b, bias))
    got = door.gemm(a, b, bias=bias)
    want = torch.matmul(a, b) + (bias.squeeze(-1) if b.ndim == 1 else bias)
    same_with_gradients(torch, got, want, (a, b, bias))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_have_gradients(torch, door, device, activation):
    a, b, bias = drawn(torch, device, 3, 4), drawn(torch, device, 4, 5), drawn(torch, device, 5)

    def ours(a, b, bias):
        return door.gemm(a, b, bias=bias, activation=activation)

    want = applied(torch, activation, a @ b + bias)
    torch.testing.assert_close(ours(a, b, bias), want)
    with torch.no_grad():  # in the product, where PyTorch's own is not needed
        torch.testing.assert_close(ours(a, b, bias), want)
    checked(torch, ours, a, b, bias)


def test_an_activation_without_a_gradient_is_refused_by_name(torch, door, device):
    a = drawn(torch, device, 3, 3, dtype="float32")
    with pytest.raises(pyclmm.DTypeError, match="'gelu' has no gradient here"):
        torch.ops.pyclmm.gemm(a, a, None, None, 1.0, 0.0, "gelu", "highest", False, "False")


@pytest.mark.parametrize("other", ["a", "b"])
def test_what_needs_no_gradient_is_not_saved(torch, door, device, other):
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        a, b = (drawn(torch, device, 3, 3, grad=name != other) for name in "ab")
        door.matmul(a, b)
    assert [x is (a if other == "a" else b) for x in saved] == [True]


def test_a_stack_by_one_matrix_is_one_product_and_so_are_its_gradients(torch, door, device, monkeypatch):
    seen = noted(monkeypatch, pyclmm.api, "gemm")
    door.matmul(drawn(torch, device, 2, 3, 4), drawn(torch, device, 4, 5)).sum().backward()
    assert [tuple(a.shape) for a, *_ in seen] == [(6, 4), (6, 5), (4, 6)]


def test_what_was_repeated_is_summed_by_the_operator_itself(torch, door, device):
    """PyTorch would do it otherwise, without a promise."""
    a, b = drawn(torch, device, 2, 1, 3, 4), drawn(torch, device, 3, 5, 4)
    shapes = []
    product = door.gemm(a, b.mT)
    product.grad_fn.register_hook(lambda found, _: shapes.extend(tuple(x.shape) for x in found[:2]))
    product.sum().backward()
    assert shapes == [(2, 1, 3, 4), (3, 4, 5)]


def test_a_parameters_gradient_lies_as_the_parameter_does(torch, door, device):
    x, weight = drawn(torch, device, 6, 4), drawn(torch, device, 5, 4)
    (got,) = torch.autograd.grad(door.gemm(x, weight, trans_b="T").sum(), weight)
    assert got.is_contiguous()


def test_the_backward_has_the_precision_of_the_forward(torch, door, device, monkeypatch):
    seen = noted(monkeypatch, pyclmm.api, "gemm")
    a, b = (drawn(torch, device, 3, 3, dtype="float32") for _ in range(2))
    with pyclmm.default_precision("high"):
        y = door.matmul(a, b)
    y.sum().backward()
    door.matmul(a, b, reproducible=True).sum().backward()
    asked = [(x.keywords["precision"], x.keywords["reproducible"]) for x in seen]
    assert asked == [*[("high", False)] * 3, *[("highest", True)] * 3]


@pytest.mark.filterwarnings("ignore::UserWarning")  # of opcheck, which reads .grad
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_opcheck(torch, door, device, dtype):
    a, b = drawn(torch, device, 3, 4, dtype=dtype), drawn(torch, device, 4, 5, dtype=dtype)
    c, bias = drawn(torch, device, 3, 5, dtype=dtype), drawn(torch, device, 1, 5, dtype=dtype)
    activation = "relu" if dtype == "float32" else "none"
    for arguments in (
        (a, b, None, None, 1.0, 0.0, "none", "highest", False, "False"),
        (a.detach(), b, c, bias, 0.5, 2.0, activation, "highest", True, "True"),
    ):
        found = torch.library.opcheck(torch.ops.pyclmm.gemm.default, arguments)
        assert set(found.values()) == {"SUCCESS"}, found


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.filterwarnings("ignore")  # of the compiler's own modules
def test_compile_keeps_the_products_in_one_graph(torch, door, device, traced, backend):
    def model(x, w, bias):
        y = door.gemm(x, w, trans_b="T", bias=bias, activation="gelu", precision="high")
        return door.matmul(y.sin(), y.mT).sum()

    inputs = (drawn(torch, device, 2, 3, 4), drawn(torch, device, 5, 4), drawn(torch, device, 5))
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    got, want = compiled(*inputs), model(*inputs)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(torch.autograd.grad(got, inputs), torch.autograd.grad(want, inputs))


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_function_follows_the_default_precision(torch, door, device, traced, monkeypatch):
    seen = noted(monkeypatch, pyclmm.api, "gemm")
    compiled = torch.compile(door.matmul, fullgraph=True, backend="aot_eager")
    x = drawn(torch, device, 3, 3, dtype="float32")
    with pyclmm.default_precision("high"):
        torch.testing.assert_close(compiled(x, x), x @ x)
    compiled(x, x).sum().backward()
    assert [x.keywords["precision"] for x in seen] == ["high", *["highest"] * 3]


def test_two_calls_alike_give_gemm_the_same_objects(torch, door, monkeypatch):
    seen = []
    monkeypatch.setattr(pyclmm.api, "gemm", lambda a, b, c, **ways: seen.append(ways) or a.clone())
    for _ in range(2):
        door.gemm(torch.eye(3), torch.eye(3), activation="relu", precision="high")
    assert all(seen[0][name] is seen[1][name] for name in ("activation", "precision", "reproducible"))


@pytest.mark.filterwarnings("ignore")
def test_autocast_converts_as_it_does_for_matmul(torch, door, device):
    kind = torch.device(device).type
    for dtype in ("float32", "float64", "float16"):
        a, b = (drawn(torch, device, 3, 3, dtype=dtype) for _ in range(2))
        with torch.autocast(kind, dtype=torch.bfloat16):
            got, want = door.matmul(a, b), torch.matmul(a, b)
        assert got.dtype == want.dtype, dtype
        torch.testing.assert_close(got, want)
        got.sum().backward()
        assert a.grad.dtype == a.dtype


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "complex64"]
)
def test_dtypes_stay_as_they_are(torch, door, device, dtype):
    a = torch.arange(6, device=device).reshape(2, 3).to(getattr(torch, dtype))
    got = door.matmul(a, a.mT)
    assert got.dtype == a.dtype
    assert got.device == a.device
    assert torch.equal(got.cpu(), (a.cpu() @ a.cpu().mT))


def test_views_are_read_as_they_lie(torch, door, device):
    x = torch.randn(4, 6, dtype=torch.complex64, device=device)
    for view in (x.mT, x[:, ::2], x[1:, 1:], x.conj(), x.mH, x.imag, x[:, :1].expand(4, 5)):
        torch.testing.assert_close(door.matmul(view, view.mT), view @ view.mT)


REFUSED = [
    (lambda t, x: (x, x.numpy(force=True)), "b is a ndarray; pass a torch.Tensor"),
    (lambda t, x: (x.to(t.float8_e4m3fn), x), "a has dtype torch.float8_e4m3fn, .* pass a.float()"),
    (lambda t, x: (x, x.to(t.complex32)), "b has dtype torch.complex32, .* pass b.cfloat()"),
    (lambda t, x: (x.to_sparse(), x), r"a is a Tensor of layout torch.sparse_coo; pass a.to_dense\(\)"),
    (lambda t, x: (x, x.double()), r"a has dtype torch.float32 and b torch.float64; pass b.to\(a.dtype\)"),
    (lambda t, x: (x, x.to("meta")), r"b on meta; pass b.to\(a.device\)"),
    (lambda t, x: (x, x[0, 0]), r"b has shape \(\)"),
    (lambda t, x: (x, x[:2]), "mismatch|do not multiply|rows of b"),
]


@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's of types in beta
@pytest.mark.parametrize(("operands", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_what_is_refused_is_named(torch, door, device, operands, said):
    with pytest.raises((pyclmm.DTypeError, pyclmm.ShapeError), match=said):
        door.matmul(*operands(torch, torch.ones(3, 3, device=device)))


def test_bad_options_are_refused(torch, door):
    x = torch.ones(3, 3)
    for keywords, said in (
        ({"precision": "hi"}, "precision is 'hi'|'hi'"),
        ({"trans_a": "H"}, "trans_a"),
        ({"activation": "swish"}, "activation"),
        ({"activation": "gelu", "reproducible": True}, "cannot be reproducible"),
        ({"beta": 1.0}, "beta"),
    ):
        with pytest.raises(pyclmm.ArgumentError, match=said):
            door.gemm(x.clone().requires_grad_(), x, **keywords)


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"alpha": "2"}, "alpha is a str; pass a number"),
        ({"beta": [1.0]}, "beta is a list; pass a number"),
        ({"trans_b": ["T"]}, r"trans_b is \['T'\]; pass a string"),
        ({"activation": ["relu"]}, r"activation is \['relu'\]; pass a string"),
        ({"activation": ""}, "unknown activation ''"),
        ({"alpha": 1 << 64}, "alpha is an integer beyond int64"),
    ],
)
def test_bad_options_of_another_kind_are_refused_by_name(torch, door, keywords, said):
    x = torch.ones(3, 3)
    with pytest.raises((pyclmm.DTypeError, pyclmm.ArgumentError), match=said):
        door.gemm(x, x, x, **{"beta": 1.0} | keywords)


def test_a_tensor_is_no_alpha_because_it_would_get_no_gradient(torch, door):
    x = torch.ones(3, 3)
    with pytest.raises(pyclmm.DTypeError, match="alpha is a Tensor; pass a number"):
        door.gemm(x, x, alpha=torch.tensor(2.0, requires_grad=True))


def test_alpha_and_beta_may_be_numbers_of_numpy(torch, door, device):
    x = torch.eye(3, device=device)
    got = door.gemm(x, x, x, alpha=np.float32(2), beta=np.int64(3))
    assert torch.equal(got, 5 * x)


def test_tensors_without_elements_give_one_of_the_shape(torch, door):
    x = torch.empty(2, 3, 4, device="meta", requires_grad=True)
    y = door.gemm(x, x, trans_b="T", activation="relu")
    assert (y.shape, y.device.type) == ((2, 3, 3), "meta")


def test_relu_passes_a_gradient_as_pytorchs_does(torch, door, device):
    """An infinite gradient, as of a scaled loss, gives 0 where relu is 0; a NaN passes it on."""
    grads = []
    for layer in (lambda x, w: door.gemm(x, w, activation="relu"), lambda x, w: torch.relu(x @ w)):
        x = torch.tensor([[-1.0, 1.0], [float("nan"), 0.0]], device=device, requires_grad=True)
        w = torch.ones(1, 2, device=device)
        y = layer(x[:, :1], w)
        (g,) = torch.autograd.grad(y, x, torch.tensor([[float("inf"), 2.0], [3.0, 4.0]], device=device))
        grads.append(g)
    torch.testing.assert_close(*grads, equal_nan=True)


@pytest.mark.filterwarnings("ignore")  # torch.jit.trace is deprecated
@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_a_traced_function_is_run_with_and_without_gradients(torch, door, device, activation, recorded):
    x, y = (torch.randn(3, 3, device=device) for _ in range(2))
    with torch.set_grad_enabled(recorded):
        traced = torch.jit.trace(lambda a, b: door.gemm(a, b, activation=activation), (x, y))
    x.requires_grad_()
    got, want = traced(x, y), applied(torch, activation, x @ y)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(torch.autograd.grad(got.sum(), x), torch.autograd.grad(want.sum(), x))
    with torch.no_grad():
        torch.testing.assert_close(traced(x, y), want)


# ---- without PyTorch


def test_without_pytorch_the_import_says_what_to_install(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import pyclmm.torch"
    done = python("-c", code)
    assert "pip install 'pyclmm[torch]'" in done.stderr.splitlines()[-1]


def test_pyclmm_does_not_import_pytorch():
    done = python("-c", "import sys, pyclmm, pyclmm.linalg, pyclmm.tools.cli; print('torch' in sys.modules)")
    assert done.stdout.split() == ["False"], (done.stderr, sys.version)


def test_an_out_that_was_written_is_noticed_by_autograd(torch, device):
    """As after torch.mm(out=): else the gradients of what read it before would be wrong in silence."""
    x, a = drawn(torch, device, 3, 3), drawn(torch, device, 3, 3, grad=False)
    for _ in range(2):  # the second call follows the first
        y = (x * x).sum()
        with torch.no_grad():
            pyclmm.matmul(a, a, out=x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()
    with torch.inference_mode():
        out = torch.empty(3, 3, dtype=a.dtype, device=device)
        assert torch.allclose(pyclmm.matmul(a, a, out=out), a @ a)


def test_a_place_where_nothing_can_be_launched_is_named(torch):
    x = torch.empty(3, 3, device="meta")
    with pytest.raises(pyclmm.DTypeError, match=r"b is on meta, .*it has no elements"):
        pyclmm.matmul(torch.ones(3, 3), x)


def test_verify_reaches_the_product_and_its_gradient(torch, door, device, monkeypatch):
    seen = noted(monkeypatch, pyclmm.api, "gemm")
    a, b = drawn(torch, device, 3, 4), drawn(torch, device, 4, 5)
    a.requires_grad_(True)
    b.requires_grad_(True)
    door.matmul(a, b, verify=True).sum().backward()
    with pyclmm.verified("repair"):
        door.matmul(a, b).sum().backward()
    door.matmul(a, b).sum().backward()
    assert [x.keywords["verify"] for x in seen] == [True] * 3 + ["repair"] * 3 + [False] * 3


def test_a_call_sees_what_its_tensors_have_become(torch, device):
    x, w = (torch.randint(-4, 5, (24, 24), device=device).float() for _ in "xw")
    out = torch.empty_like(x)

    def called():
        for _ in range(3):
            pyclmm.matmul(x, w, out=out)
            assert torch.equal(out, (x @ w.to(x.dtype)).float())

    called()
    for change in (
        lambda: x.add_(1),
        x.t_,
        lambda: setattr(w, "data", w.T.contiguous().T),
        lambda: setattr(x, "data", x.clone()),
        lambda: setattr(x, "data", x.new_ones(25 * 24 + 1)[1:577].view(24, 24)),
        lambda: setattr(out, "data", torch.zeros(24, 48, device=device)[:, ::2]),
        lambda: setattr(x, "data", x.double()),
        lambda: setattr(x, "data", x.float()),
    ):
        change()
        called()
    x.requires_grad_()
    with pytest.raises(pyclmm.DTypeError, match=r"requires (a )?grad"):
        pyclmm.matmul(x, w, out=out)
    with torch.no_grad():
        called()
    x = x.detach()
    x.resize_(12, 24)
    with pytest.raises(pyclmm.ShapeError):
        pyclmm.matmul(x, w, out=out)


def test_tensors_that_follow_others_are_told_by_layout_and_kind(torch, device):
    kind = kind_of(torch.ones(1))

    def placed(x):
        strides = tuple(4 * step for step in x.stride())
        return CudaArray(x.data_ptr(), tuple(x.shape), strides, np.dtype("f4"), x.get_device(), kind, x)

    x, w = torch.ones(8, 8, device=device), torch.ones(8, 8, device=device)
    addresses_of = kind.follower([placed(x), placed(w)])
    like = torch.zeros(8, 8, device=device)
    for _ in range(3):  # the first is looked at in full
        assert addresses_of([x, w]) == [x.data_ptr(), w.data_ptr()]
        assert addresses_of([like, w]) == [like.data_ptr(), w.data_ptr()]
    shifted = torch.zeros(65, device=device)[1:].view(8, 8)
    others = [
        *(like.T, like[:4], like.double(), like.half(), shifted, torch._neg_view(like), like.to_sparse()),
        *(like.clone().requires_grad_(), torch.empty(8, 8, device="meta"), None, 3, like.cpu().numpy()),
    ]
    for other in others:
        for _ in range(2):
            assert addresses_of([other, w]) is None
        assert addresses_of([like, w]) == [like.data_ptr(), w.data_ptr()]
    with torch.no_grad():
        for _ in range(3):
            weight = torch.nn.Parameter(like)
            assert addresses_of([weight, w]) == [like.data_ptr(), w.data_ptr()]
    assert addresses_of([weight, w]) is None
    emptied = torch.zeros(8, 8, device=device)
    emptied.untyped_storage().resize_(0)
    assert addresses_of([emptied, w]) is None
