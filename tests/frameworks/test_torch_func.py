"""pyclmm.torch's functions within torch.func's transforms, and with tangents: against PyTorch's own."""

from functools import partial

import pytest

from tests.frameworks.test_torch_ragged import SIZES, loop
from tests.support.tensors import applied
from tests.support.tensors import drawn as with_gradients

pytestmark = pytest.mark.filterwarnings("ignore")  # of PyTorch's own modules

NAMES = ("a", "b", "c", "bias")
ACTIVATIONS = ("none", "relu", "leaky_relu", "sigmoid", "tanh", "gelu", "gelu_tanh", "silu")


drawn = partial(with_gradients, grad=False)


def dual(torch, f, *xs):
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level():
        return tuple(forward_ad.unpack_dual(f(*(forward_ad.make_dual(x, x / 2) for x in xs))))


def every(xs):
    return tuple(range(len(xs)))


# Each computes derivatives of f, of tensors, and what of it is a number of sin's sum.
TRANSFORMS = {
    "grad": lambda t, f, *xs: t.func.grad(lambda *ys: f(*ys).sin().sum(), every(xs))(*xs),
    "vjp": lambda t, f, *xs: t.func.vjp(f, *xs)[1](f(*xs)),
    "jvp": lambda t, f, *xs: t.func.jvp(f, xs, tuple(x / 2 for x in xs)),
    "jacrev": lambda t, f, *xs: t.func.jacrev(f, every(xs))(*xs),
    "jacfwd": lambda t, f, *xs: t.func.jacfwd(f, every(xs))(*xs),
    "hessian": lambda t, f, *xs: t.func.hessian(lambda *ys: f(*ys).sin().sum(), every(xs))(*xs),
    "jacrev of jacfwd": lambda t, f, *xs: t.func.jacrev(t.func.jacfwd(lambda *ys: f(*ys).sin().sum()))(*xs),
    "linearize": lambda t, f, *xs: t.func.linearize(f, *xs)[1](*xs),
    "dual": dual,
}
every_transform = pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)


def close(torch, got, want):
    leaves = torch.utils._pytree.tree_leaves
    for mine, theirs in zip(leaves(got), leaves(want), strict=True):
        torch.testing.assert_close(mine, theirs)


@every_transform
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("followed", [(0,), (1,), (2,), (3,), (0, 1, 2, 3)], ids=str)
def test_each_operand(torch, door, device, transform, activation, followed):
    xs = [drawn(torch, device, *shape) for shape in ((3, 4), (4, 2), (3, 2), (2,))]

    def product(compute):
        def f(*ys):
            return compute(*(ys[followed.index(i)] if i in followed else x for i, x in enumerate(xs)))

        return f

    @product
    def ours(a, b, c, bias):
        return door.gemm(a, b, c, alpha=2.0, beta=0.5, bias=bias, activation=activation)

    @product
    def theirs(a, b, c, bias):
        return applied(torch, activation, 2.0 * a @ b + 0.5 * c + bias)

    given = [xs[i] for i in followed]
    close(torch, transform(torch, ours, *given), transform(torch, theirs, *given))


@every_transform
@pytest.mark.parametrize("b_shape", [(4,), (4, 2), (2, 4, 2)], ids=str)
@pytest.mark.parametrize("a_shape", [(4,), (3, 4), (2, 3, 4)], ids=str)
def test_each_shape(torch, door, device, transform, a_shape, b_shape):
    xs = [drawn(torch, device, *shape) for shape in (a_shape, b_shape)]
    close(torch, transform(torch, door.matmul, *xs), transform(torch, torch.matmul, *xs))


@every_transform
@pytest.mark.parametrize("divides", ["rows", "K"])
def test_ragged_products(torch, door, device, transform, divides):
    shapes = ((12, 3), (4, 3, 2)) if divides == "rows" else ((3, 12), (12, 2))
    xs = [drawn(torch, device, *shape) for shape in shapes]
    sizes = torch.tensor(SIZES, dtype=torch.int32, device=device)

    def ours(a, b):
        return door.ragged_matmul(a, b, sizes)

    def theirs(a, b):
        return loop(torch, a, b, SIZES)

    a, b = xs
    close(torch, transform(torch, ours, a, b), transform(torch, theirs, a, b))
    close(torch, *(transform(torch, lambda y, f=f: f(y, b), a) for f in (ours, theirs)))
    close(torch, *(transform(torch, lambda y, f=f: f(a, y), b) for f in (ours, theirs)))


def test_vmap_within_and_around_others(torch, door, device):
    stack, b = drawn(torch, device, 5, 3, 4), drawn(torch, device, 4, 2)
    func = torch.func

    def per_sample(product):
        return func.vmap(func.grad(lambda x, y: product(x, y).sin().sum(), (0, 1)), (0, None))(stack, b)

    def of_all(product):
        return func.grad(lambda y: func.vmap(lambda x: product(x, y))(stack).sin().sum())(b)

    def of_tangents(product):
        with torch.autograd.forward_ad.dual_level():
            x = torch.autograd.forward_ad.make_dual(stack, stack / 2)
            found = func.vmap(product, (0, None))(x, b)
            return tuple(torch.autograd.forward_ad.unpack_dual(found))

    def around(product):
        x = stack.clone().requires_grad_()
        found = func.vmap(func.grad(lambda x: product(x, b).sin().sum()))(x)
        return torch.autograd.grad(found.cos().sum(), x)

    for call in (per_sample, of_all, of_tangents, around):
        close(torch, call(door.matmul), call(torch.matmul))


def test_without_gradients(torch, door, device):
    """no_grad around a transform does not count for it, and tangents do not ask for it."""
    a, b = drawn(torch, device, 3, 4), drawn(torch, device, 4, 2)
    for name in ("grad", "jvp", "dual"):
        with torch.no_grad():
            got = TRANSFORMS[name](torch, lambda x: door.gemm(x, b, activation="gelu"), a)
        close(torch, got, TRANSFORMS[name](torch, lambda x: applied(torch, "gelu", x @ b), a))


@pytest.fixture
def compiles_anew(torch):
    """PyTorch keeps of a function that it could not trace that it need not try."""
    yield
    torch.compiler.reset()


@pytest.mark.usefixtures("traced", "compiles_anew")
def test_compiled(torch, door, device):
    a, b = drawn(torch, device, 3, 4), drawn(torch, device, 4, 2)
    compiled = torch.compile(lambda x: door.matmul(x, b).sin(), backend="aot_eager")
    compiled(a)  # without what follows
    for name in ("grad", "jvp", "jacfwd", "dual"):
        want = TRANSFORMS[name](torch, lambda x: (x @ b).sin(), a)
        close(torch, TRANSFORMS[name](torch, compiled, a), want)
        within = torch.compile(
            lambda x, name=name: TRANSFORMS[name](torch, lambda y: door.matmul(y, b).sin(), x),
            backend="aot_eager",
        )
        for _ in range(2):
            close(torch, within(a), want)
