"""Lists of PyTorch's tensors against a loop of its own: layouts, dtypes, epilogues, streams, graphs."""

import pytest

import pyclmm

DTYPES = ("float32", "float64", "bfloat16", "float16", "complex64", "int32")
TOLERANCE = {"bfloat16": 5e-2, "float16": 1e-2}


class TorchLists:
    """A list of odd shapes and drawn layouts: the tensors of a call, and what a loop gives."""

    def __init__(self, torch, device, dtype, sizes):
        self.torch, self.device, self.dtype = torch, device, getattr(torch, dtype)
        self.pairs = [(self.drawn(m, k), self.drawn(k, n)) for m, n, k in sizes]
        self.c = [self.drawn(m, n) if i % 3 else None for i, (m, n, _) in enumerate(sizes)]
        self.bias = [self.drawn(1, n)[0] if i % 2 else None for i, (_, n, _) in enumerate(sizes)]
        self.out = [self.drawn(m, n).contiguous() if i % 4 else None for i, (m, n, _) in enumerate(sizes)]

    def drawn(self, rows, columns):
        torch, how = self.torch, int(self.torch.randint(4, ()))
        x = torch.randint(-3, 4, (columns, rows) if how == 1 else (rows, columns + how), device=self.device)
        x = x.to(self.dtype)
        return x.T if how == 1 else x[:, how:]

    def want(self, alpha=1, beta=0):
        wide = self.torch.float64 if not self.dtype.is_complex else self.torch.complex128
        found = []
        for (a, b), c, bias in zip(self.pairs, self.c, self.bias, strict=True):
            x = alpha * (a.to(wide).cpu() @ b.to(wide).cpu())
            x = x + beta * c.to(wide).cpu() if c is not None and beta else x
            found.append(x + bias.to(wide).cpu() if bias is not None and beta else x)
        return found

    def check(self, got, want):
        name = str(self.dtype).removeprefix("torch.")
        for one, its in zip(got, want, strict=True):
            assert one.dtype == self.dtype
            assert one.device.type == self.torch.device(self.device).type
            near = TOLERANCE.get(name, 1e-5)
            self.torch.testing.assert_close(one.cpu().to(its.dtype), its, rtol=near, atol=near)


def sizes_of(torch, count, most=70):
    return torch.randint(1, most, (count, 3)).tolist()


def lists(torch, device, dtype="float32", count=20, seed=1):
    torch.manual_seed(seed)
    sizes = sizes_of(torch, count)
    return [TorchLists(torch, device, dtype, sizes) for _ in range(2)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_drawn_lists_are_as_a_loop(torch, device, dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    given = TorchLists(torch, device, dtype, sizes_of(torch, 20))
    given.check(pyclmm.matmul_many(given.pairs), given.want())
    for _ in range(2):
        keywords = {"c": given.c, "bias": given.bias, "alpha": 2, "beta": 3}
        got = pyclmm.matmul_many(given.pairs, given.out, **keywords)
        given.check(got, given.want(2, 3))
        assert all(out is None or out is x for out, x in zip(given.out, got, strict=True))


def test_stacks_vectors_and_no_elements(torch, device):
    shapes = [
        ((5,), (5,)), ((5,), (5, 3)), ((3, 1, 4, 5), (2, 5, 6)), ((0, 4), (4, 3)), ((3, 0), (0, 2)),
        ((4, 5), (5,)),
    ]  # fmt: skip
    pairs = [tuple(torch.randn(shape, device=device) for shape in both) for both in shapes]
    for _ in range(2):
        for (a, b), got in zip(pairs, pyclmm.matmul_many(pairs), strict=True):
            torch.testing.assert_close(torch.as_tensor(got, device=device), a @ b)


def test_a_plan_is_for_other_tensors_too(torch, device):
    first, second = lists(torch, device)
    plan = pyclmm.ManyMatmul([(a.contiguous(), b.contiguous()) for a, b in first.pairs])
    for given in (first, second, first, second, second):
        pairs = [(a.contiguous(), b.contiguous()) for a, b in given.pairs]
        given.check(plan(pairs), given.want())


def test_a_tensor_that_changes_its_layout_is_seen(torch, device):
    x, y = (torch.randn(6, 6, device=device) for _ in range(2))
    for change in (lambda: None, lambda: None, x.t_, lambda: x.resize_(3, 6), lambda: x.set_(y.clone())):
        change()
        for got in pyclmm.matmul_many([(x, y), (x, y)]):
            torch.testing.assert_close(got, x @ y)


def test_results_may_be_changed_and_multiplied(torch, device):
    (given, _) = lists(torch, device)
    results = pyclmm.matmul_many(given.pairs)
    for x in results:
        x.mul_(2)
    given.check(results, given.want(2))
    for x, got in zip(results, pyclmm.matmul_many([(x.T, x) for x in results]), strict=True):
        torch.testing.assert_close(got, x.T @ x, rtol=1e-4, atol=1e-3)


def test_arrays_of_two_libraries_in_one_list_are_refused(torch):
    x = torch.randn(3, 3)
    for pairs in (
        [(x, x), (x.numpy(), x.numpy())],
        [(x.numpy(), x.numpy()), (x, x)],
        [(x, x), ([[1.0]], [[1.0]])],
    ):
        with pytest.raises(TypeError, match=r"pairs\[1\]: a of pairs\[0\] is a .*, a is a .*one library"):
            pyclmm.matmul_many(pairs)


def test_what_needs_gradients_is_refused(torch, device):
    x = torch.randn(3, 3, device=device)
    pairs = [(x, x), (x, x.clone().requires_grad_())]
    with pytest.raises(TypeError, match=r"pairs\[1\]: b .*detach"):
        pyclmm.matmul_many(pairs)
    with torch.no_grad():
        for got in pyclmm.matmul_many(pairs):
            torch.testing.assert_close(got, x @ pairs[1][1].detach() if got is not None else x)


def test_an_out_counts_as_changed(torch, device):
    x, out = torch.randn(3, 3, device=device), torch.empty(3, 3, device=device)
    for _ in range(3):
        before = out._version
        pyclmm.matmul_many([(x, x), (x, x)], [out, None])
        assert out._version > before


def test_outs_apart(torch, device):
    whole = torch.zeros(3, 5, device=device)
    x = torch.randn(3, 3, device=device)
    with pytest.raises(ValueError, match=r"out\[1\] overlaps out\[0\]"):
        pyclmm.matmul_many([(x, x)] * 2, [whole[:, :3], whole[:, 2:]])


def test_parts_of_a_tensor_may_be_changed(torch, device):
    from pyclmm.execution.torch_tensors import TORCH  # noqa: PLC0415 - it needs PyTorch

    whole = torch.arange(10.0, device=device)
    x, y, z = TORCH.parts(whole, [((2, 3), (3, 1), 0), ((), (), 6), ((3,), (1,), 7)])
    assert (x.tolist(), y.tolist(), z.tolist()) == ([[0, 1, 2], [3, 4, 5]], 6, [7, 8, 9])
    x.add_(torch.ones(3, device=device).requires_grad_())
    assert x.requires_grad


@pytest.fixture
def gpu(device):
    if not device.startswith("cuda"):
        pytest.skip("for a CUDA device: TEST_TORCH_DEVICE=cuda")
    return device


def test_no_call_waits_for_the_device(torch, gpu):
    first, second = lists(torch, gpu)
    plan = pyclmm.ManyMatmul([(a.contiguous(), b.contiguous()) for a, b in first.pairs])
    pairs = [[(a.contiguous(), b.contiguous()) for a, b in given.pairs] for given in (first, second)]
    plan(pairs[0])
    torch.cuda.synchronize()
    torch.cuda._sleep(200_000_000)
    got = [plan(its) for its in pairs]
    assert not torch.cuda.current_stream().query()
    for given, its in zip((first, second), got, strict=True):
        given.check(its, given.want())


def test_streams_in_turn(torch, gpu):
    given = lists(torch, gpu)
    pairs = [[(a.contiguous(), b.contiguous()) for a, b in its.pairs] for its in given]
    plan, streams = pyclmm.ManyMatmul(pairs[0]), [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    got = []
    for number in range(12):
        with torch.cuda.stream(streams[number % 2]):
            torch.cuda._sleep(1_000_000)
            got.append(plan(pairs[number // 2 % 2]))
    torch.cuda.synchronize()
    for number, results in enumerate(got):
        given[number // 2 % 2].check(results, given[number // 2 % 2].want())


@pytest.mark.parametrize("is_warm", [True, False])
def test_a_graph_is_replayed_beside_other_calls(torch, gpu, is_warm):
    first, second = lists(torch, gpu, seed=2 + is_warm)
    pairs = [[(a.contiguous(), b.contiguous()) for a, b in its.pairs] for its in (first, second)]
    plan = pyclmm.ManyMatmul(pairs[0])
    if is_warm:
        plan(pairs[0])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = plan(pairs[0])
        again = plan([(x, y) for x, y in pairs[1]])
    for factor in (1, 2, 3):
        for (a, _), (own, _) in zip(pairs[0], first.pairs, strict=True):
            a.copy_(own * factor if a is not own else a)
        second.check(plan(pairs[1]), second.want())
        graph.replay()
        for (a, b), x in zip(pairs[0], captured, strict=True):
            torch.testing.assert_close(x, a @ b, rtol=1e-4, atol=1e-3)
        second.check(again, second.want())
