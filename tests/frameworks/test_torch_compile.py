"""pyclmm's own functions in code that torch.compile compiles: they are called as they are."""

import pytest

import pyclmm
from pyclmm import linalg
from pyclmm.untraced import tell

pytestmark = pytest.mark.filterwarnings("ignore")  # of the compiler's own modules


def planned(a, b):
    return pyclmm.Matmul(a, b)(a, b)


def by_groups(torch, a, b):
    return pyclmm.ragged_matmul(a, torch.stack([b, b]), torch.tensor([1, 2], device=a.device))


def quantized(torch, a, b):
    q = pyclmm.quantize(b.mT.cpu().numpy(), bits=8, group_size=32)
    return pyclmm.matmul(a, q.to(a).T) + torch.from_numpy(q.dequantize()).to(a).sum()


def of_numpy(torch, a, b):
    return torch.from_numpy(pyclmm.matmul(a.cpu().numpy(), b.cpu().numpy())).to(a)


CALLS = {
    "matmul": lambda t, a, b: pyclmm.matmul(a, b),
    "gemm": lambda t, a, b: pyclmm.gemm(a, b, activation="relu"),
    "verified": lambda t, a, b: pyclmm.gemm(a, b, verify=True),
    "plan": lambda t, a, b: planned(a, b),
    "matmul_many": lambda t, a, b: pyclmm.matmul_many([(a, b)])[0],
    "ragged_matmul": by_groups,
    "einsum": lambda t, a, b: linalg.einsum("ij,jk", a, b),
    "quantised": quantized,
    "numpy": of_numpy,
}  # fmt: skip


class Seen:
    """A backend that keeps the names of what it is to compile."""

    def __init__(self, torch):
        torch._dynamo.reset()
        self.names = []

    def __call__(self, graph, _):
        self.names += [str(node.target) for node in graph.graph.nodes if node.op.startswith("call")]
        return graph

    @property
    def numpys(self):
        return [name for name in self.names if "wrap" in name.lower()]


@pytest.fixture
def operands(torch, device):
    if not hasattr(torch._C._dynamo.eval_frame, "set_code_exec_strategy"):
        pytest.skip("this PyTorch traces what the called functions call")
    return torch.ones(3, 32, device=device), torch.ones(32, 4, device=device)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_graph_is_cut_at_the_call_alone(call, torch, operands):
    seen, want = Seen(torch), call(torch, *operands)
    compiled = torch.compile(lambda a, b: call(torch, a.abs(), b).sin(), backend=seen)
    assert torch.equal(compiled(*operands), want.sin())
    assert seen.numpys == []
    assert sum("sin" in name for name in seen.names) == 1


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_nothing_is_traced_where_a_block_keeps_the_frame_from_being_compiled(call, torch, operands):
    seen, want = Seen(torch), call(torch, *operands)

    def within(a, b):
        with pyclmm.default_reproducible():
            return call(torch, a, b)

    assert torch.equal(torch.compile(within, backend=seen)(*operands), want)
    assert seen.numpys == []


def test_one_graph_is_refused_with_what_would_do(torch, operands):
    compiled = torch.compile(lambda a, b: pyclmm.matmul(a, b) + 1, fullgraph=True, backend="eager")
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"pyclmm\.torch\.matmul, gemm and ragged_mat"):
        compiled(*operands)


@pytest.mark.parametrize("changed", ["_FrameExecStrategy", "set_code_exec_strategy"])
def test_a_pytorch_that_skips_frames_in_another_way(changed, operands, torch, monkeypatch):
    """The adapter of tensors tells PyTorch as it is imported."""
    monkeypatch.setattr(torch._C._dynamo.eval_frame, changed, lambda: None)
    tell()
    assert torch.equal(pyclmm.matmul(*operands), operands[0] @ operands[1])
