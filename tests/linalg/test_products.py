"""The functions of pyclmm.linalg against NumPy's: values, dtypes, kinds of results, and what raises."""

from __future__ import annotations

import itertools
from contextlib import nullcontext

import numpy as np
import pyopencl.array as cla
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyclmm
from pyclmm import api, linalg
from pyclmm.linalg import pairs
from tests.support.faults import noted
from tests.support.habits import drawn, fetched, placed, same
from tests.support.linalg_calls import NAIVE
from tests.support.plans import executable, path
from tests.support.processes import nothing_repeated
from tests.support.selection import examples

randoms = st.randoms(use_true_random=False)
PLACES = pytest.mark.parametrize("place", ["host", "device"])
SIZES = (0, 1, 2, 3, 4)
HAS_VECTOR_UFUNCS = hasattr(np, "matvec")  # NumPy 2.2


def shape_of(r, least=0, most=3):
    return [r.choice(SIZES) for _ in range(r.randint(least, most))]


def judge(mine, numpys, place, queue, *xs, **keywords):
    """Compare a call: the result, or the kind of exception."""
    try:
        want = numpys(*xs, **keywords)
    except (ValueError, TypeError, IndexError) as error:
        kinds = (TypeError, np.linalg.LinAlgError, np.exceptions.AxisError, IndexError, ValueError)
        kind = next(each for each in kinds if isinstance(error, each))
        with pytest.raises(kind) as raised:
            mine(*(placed(x, place, queue) for x in xs), **keywords, **NAIVE)
        assert isinstance(raised.value, pyclmm.PyclmmError)
        return
    same(mine(*(placed(x, place, queue) for x in xs), **keywords, **NAIVE), want)


@PLACES
@pytest.mark.parametrize("name", ["dot", "inner", "outer", "vdot"])
@examples(60)
@given(r=randoms)
def test_two_operands_of_any_shape(name, place, queue, r):
    a = shape_of(r)
    b = shape_of(r)
    if name == "vdot" and r.random() < 0.8:
        b = r.choice([a, a[::-1]])
    elif a and b and r.random() < 0.8:
        b[max(-2, -len(b)) if name == "dot" else -1] = a[-1]
    types = r.choice([("f4", "f4"), ("c8", "c8"), ("f4", "c8")])
    given = (drawn(r, s, t) for s, t in zip((a, b), types, strict=True))
    judge(getattr(linalg, name), getattr(np, name), place, queue, *given)


@PLACES
@examples(60)
@given(r=randoms)
def test_out_of_dot_and_outer(place, queue, r):
    name = r.choice(["dot", "outer"])
    a, b = drawn(r, [2, r.choice(SIZES)]), drawn(r, shape_of(r, 1, 3))
    if name == "dot" and b.ndim > 1:
        b = drawn(r, [*b.shape[:-2], a.shape[-1], b.shape[-1]])
    elif name == "dot":
        b = drawn(r, [a.shape[-1]])
    want = getattr(np, name)(a, b)
    target = drawn(r, want.shape, "f4", "C" if name == "dot" else None)
    if not target.flags.writeable:
        target = target.copy()
    out = placed(target, place, queue)
    assert getattr(linalg, name)(*(placed(x, place, queue) for x in (a, b)), out=out, **NAIVE) is out
    assert np.array_equal(fetched(out), want)


@pytest.mark.parametrize("out", [np.empty((2, 2), "f8"), np.empty((2, 2), "f4", "F"), np.empty((2, 3), "f4")])
def test_out_of_dot_must_be_what_it_returns(out):
    a = np.ones((2, 2), "f4")
    for function in (np.dot, linalg.dot):
        with pytest.raises(ValueError):  # noqa: PT011 - NumPy's message says little
            function(a, a, out)
    with pytest.raises(pyclmm.ArgumentError, match="out has"):
        linalg.multi_dot([a, a, a], out=out)


@PLACES
@examples(80)
@given(r=randoms)
def test_tensordot(place, queue, r):
    a, b = shape_of(r), shape_of(r)
    count = r.randint(0, min(len(a), len(b)))
    if r.random() < 0.5:
        axes = count
        b[:count] = a[len(a) - count :]
    else:
        axes = [r.sample(range(len(x)), count) for x in (a, b)]
        for i, j in zip(*axes, strict=True):
            b[j] = a[i]
        axes = [
            [i - len(x) if r.random() < 0.3 else i for i in each]
            for x, each in zip((a, b), axes, strict=True)
        ]
        if count == 1 and r.random() < 0.5:
            axes = [axes[0][0], axes[1][0]]
    if r.random() < 0.1:
        axes = r.choice([7, [[0], [0, 1]], [[0, 0], [0, 0]], [[9], [0]]])
        if axes == [[0, 0], [0, 0]]:
            a = b = [2, 2]
    judge(linalg.tensordot, np.tensordot, place, queue, drawn(r, a), drawn(r, b), axes=axes)


@pytest.mark.skipif(not HAS_VECTOR_UFUNCS, reason="NumPy 2.2 brought matvec and vecmat")
@PLACES
@pytest.mark.parametrize("name", ["vecdot", "matvec", "vecmat"])
@examples(60)
@given(r=randoms)
def test_products_of_vectors(name, place, queue, r):
    stack = shape_of(r, 0, 2)
    m, n = r.choice(SIZES), r.choice(SIZES)
    cores = {"vecdot": ([n], [n]), "matvec": ([m, n], [n]), "vecmat": ([n], [n, m])}[name]
    shapes = [
        [*(1 if r.random() < 0.2 else s for s in stack[r.randint(0, len(stack)) :]), *core] for core in cores
    ]
    if r.random() < 0.1:
        shapes[r.randrange(2)] = shape_of(r)
    keywords: dict = {"dtype": "c16"} if r.random() < 0.1 else {}
    xs = [drawn(r, shape, r.choice(["f4", "c8"])) for shape in shapes]
    if name == "vecdot" and r.random() < 0.3:
        keywords["axis"] = r.choice([0, -1, 1])
        xs = [np.moveaxis(x, -1, 0) if keywords["axis"] == 0 and x.ndim else x for x in xs]
    judge(getattr(linalg, name), getattr(np, name), place, queue, *xs, **keywords)


def with_axes(r, name, xs):
    """Operands whose core axes lie anywhere, and axes= that says where; perhaps keepdims."""
    counts = {"vecdot": [1, 1, 0], "matvec": [2, 1, 1], "vecmat": [1, 2, 1]}[name]
    keywords = {}
    if name == "vecdot" and r.random() < 0.5:
        keywords["keepdims"] = True
        counts[2] = 1
    rest = max(x.ndim - count for x, count in zip(xs, counts, strict=False))
    ndims = [*(x.ndim for x in xs), rest + counts[2]]
    axes = [tuple(r.sample(range(n), count)) for n, count in zip(ndims, counts, strict=True)]
    moved = [np.moveaxis(x, range(-len(core), 0), core) for x, core in zip(xs, axes, strict=False)]
    signed = [
        tuple(i - n if r.random() < 0.5 else i for i in core) for core, n in zip(axes, ndims, strict=True)
    ]
    keywords["axes"] = [core[0] if len(core) == 1 and r.random() < 0.5 else core for core in signed]
    if name == "vecdot" and r.random() < 0.3:
        keywords["axes"] = keywords["axes"][:2]
    return moved, keywords


@pytest.mark.skipif(not HAS_VECTOR_UFUNCS, reason="NumPy 2.2 brought matvec and vecmat")
@PLACES
@pytest.mark.parametrize("name", ["vecdot", "matvec", "vecmat"])
@examples(60)
@given(r=randoms)
def test_axes_of_products_of_vectors(name, place, queue, r):
    stack = shape_of(r, 0, 2)
    m, n = r.choice(SIZES), r.choice(SIZES)
    cores = {"vecdot": ([n], [n]), "matvec": ([m, n], [n]), "vecmat": ([n], [n, m])}[name]
    xs = [drawn(r, [*stack[r.randint(0, len(stack)) :], *core], r.choice(["f4", "c8"])) for core in cores]
    xs, keywords = with_axes(r, name, xs)
    mine, numpys = getattr(linalg, name), getattr(np, name)
    judge(mine, numpys, place, queue, *xs, **keywords)
    want = np.asarray(numpys(*xs, **keywords))
    out = placed(np.full_like(want, 7), place, queue)
    assert mine(*(placed(x, place, queue) for x in xs), out=out, **keywords, **NAIVE) is out
    same(out, want)


@pytest.mark.skipif(not HAS_VECTOR_UFUNCS, reason="NumPy 2.2 brought matvec and vecmat")
@pytest.mark.parametrize(
    ("name", "keywords"),
    [
        ("vecdot", {"axes": 0}),
        ("vecdot", {"axes": [(0, 1), 0, ()]}),
        ("vecdot", {"axes": [0, 0, 0]}),
        ("vecdot", {"axes": [0, 0, ()], "keepdims": True}),
        ("vecdot", {"axes": [2, 0]}),
        ("vecdot", {"axes": [0.0, 0]}),
        ("vecdot", {"axes": [[0], 0]}),
        ("vecdot", {"axes": [0, 0], "axis": 0}),
        ("vecdot", {"axis": 2}),
        ("vecdot", {"axis": 1.0}),
        ("vecdot", {"axis": True}),
        ("vecdot", {"axes": [True, 0]}),
        ("vecdot", {"keepdims": 1}),
        ("vecdot", {"keepdims": True, "out": np.zeros((2, 2), "f4")}),
        ("vecdot", {"keepdims": True, "out": np.zeros(2, "f4")}),
        ("matvec", {"axes": [(0, 0), 0, 0]}),
        ("matvec", {"axes": [(0, 1), 0]}),
        ("matvec", {"axes": [(0, 1), 0, 2]}),
        ("matvec", {"axis": 0}),
        ("vecmat", {"axes": [0, 0, 0]}),
    ],
)
def test_what_numpy_refuses_of_axes_is_refused(name, keywords, queue):
    judge(getattr(linalg, name), getattr(np, name), "host", queue, *[np.ones((2, 2), "f4")] * 2, **keywords)
    with pytest.raises((ValueError, TypeError)):
        getattr(np, name)(*[np.ones((2, 2), "f4")] * 2, **keywords)


@pytest.mark.parametrize(
    ("name", "keyword"),
    [
        *((name, "out") for name in ("inner", "tensordot", "vdot", "matrix_power")),
        *((name, "casting") for name in ("inner", "tensordot", "vdot", "dot", "outer", "multi_dot")),
        *((name, "conj") for name in ("inner", "dot", "vecdot", "einsum", "matvec", "multi_dot")),
        *((name, "optimize") for name in ("inner", "vecdot", "multi_dot")),
        *((name, "keepdims") for name in ("inner", "matvec", "vecmat", "einsum")),
        ("matrix_power", "dtype"),
    ],
)
def test_a_keyword_of_another_function_is_refused(name, keyword):
    """einsum's, vecdot's and those that only pyclmm's own contraction has."""
    x = np.ones((3, 3), np.float32)
    operands = {"einsum": ("ij,jk", x, x), "multi_dot": ([x, x, x],), "matrix_power": (x, 1)}
    words = f"keyword argument '{keyword}'; linalg.{name} takes queue, .*mixed"
    with pytest.raises(pyclmm.DTypeError, match=words):
        getattr(linalg, name)(*operands.get(name, (x, x)), **{keyword: None})


@PLACES
def test_out_of_vecdot_is_cast_and_may_be_a_tuple(place, queue):
    x = placed(np.full((2, 3), 2, np.float32), place, queue)
    for dtype in ("f2", "f8"):
        out = placed(np.zeros(2, dtype), place, queue)
        assert linalg.vecdot(x, x, out=(out,)) is out
        assert np.array_equal(fetched(out), [12, 12])
    with pytest.raises(pyclmm.DTypeError, match="same_kind"):
        linalg.vecdot(x, x, out=placed(np.zeros(2, "i4"), place, queue))
    linalg.vecdot(x, x, out=placed(np.zeros(2, "i4"), place, queue), casting="unsafe")
    assert linalg.vecdot(x, x, out=(None,), keepdims=True).shape == (2, 1)
    assert linalg.outer(x, x, out=(None,)).shape == (6, 6)


@PLACES
@examples(40)
@given(r=randoms, n=st.integers(0, 9), dtype=st.sampled_from(["f4", "i4", "bool", "c8"]))
def test_matrix_power(place, queue, r, n, dtype):
    size = r.choice((0, 1, 2, 3))
    a = drawn(r, [*shape_of(r, 0, 1), size, size], dtype) if n < 5 else np.eye(size, dtype=dtype)
    judge(linalg.matrix_power, np.linalg.matrix_power, place, queue, a, n=n)


def test_an_out_of_another_order_is_refused_with_its_strides():
    x = np.ones((3, 3), np.float32)
    for call in (lambda out: linalg.dot(x, x, out=out), lambda out: linalg.multi_dot([x, x, x], out=out)):
        with pytest.raises(pyclmm.ArgumentError, match=r"strides \(4, 12\); pass a C-contiguous array"):
            call(np.asfortranarray(x))


def test_matrix_power_of_what_numpy_does_not_invert():
    with pytest.raises(pyclmm.DTypeError, match=r"n is negative, .* no float16; pass a\.astype"):
        linalg.matrix_power(np.eye(2, dtype="f2"), -1)


def test_matrix_power_of_what_has_none(queue):
    a = np.array([[2, 0], [0, 4]], np.float32)
    assert np.array_equal(linalg.matrix_power(a, -2), np.linalg.matrix_power(a, -2))
    with pytest.raises(pyclmm.UnsupportedError, match=r"numpy\.linalg\.inv"):
        linalg.matrix_power(cla.to_device(queue, a), -1)
    for kind in (pyclmm.ShapeError, np.linalg.LinAlgError):  # NumPy's users catch the second
        with pytest.raises(kind, match="square"):
            linalg.matrix_power(np.ones((2, 3)), 2)
        with pytest.raises(kind, match="a has no inverse: Singular"):
            linalg.matrix_power(np.zeros((2, 2)), -1)
    with pytest.raises(pyclmm.DTypeError, match="exponent must be an integer"):
        linalg.matrix_power(a, 1.5)


@PLACES
@examples(50)
@given(r=randoms, count=st.integers(2, 5))
def test_multi_dot(place, queue, r, count):
    sizes = [r.choice(SIZES) for _ in range(count + 1)]
    xs = [drawn(r, pair) for pair in itertools.pairwise(sizes)]
    if r.random() < 0.3:
        xs[0] = drawn(r, sizes[1:2])
    if r.random() < 0.3:
        xs[-1] = drawn(r, sizes[-2:-1])
    if r.random() < 0.1:
        xs[r.randrange(count)] = drawn(r, shape_of(r))

    def mine(*arrays, **keywords):
        return linalg.multi_dot(arrays, **keywords)

    judge(mine, lambda *arrays: np.linalg.multi_dot(arrays), place, queue, *xs)


@PLACES
@pytest.mark.parametrize("axes", [-1, -3, True])
def test_a_negative_number_of_axes_is_none(place, queue, axes):
    a, b = np.arange(6, dtype="f4").reshape(2, 3), np.arange(12, dtype="f4").reshape(3, 4)
    judge(linalg.tensordot, np.tensordot, place, queue, a, b, axes=axes)


@pytest.mark.parametrize(
    ("axes", "kind"),
    [
        ("ab", TypeError), ("abc", ValueError), (1.5, TypeError), (None, TypeError),
        (([0], [0.5]), TypeError), (([0], [True]), TypeError), (([0], [0], [0]), ValueError), (3, IndexError),
        (([5], [0]), IndexError),
    ],
)  # fmt: skip
def test_axes_that_tensordot_refuses_are_refused(axes, kind):
    a = np.ones((2, 2), np.float32)
    with pytest.raises(kind):
        np.tensordot(a, a, axes)
    with pytest.raises(kind, match=r"axes.*(pass|has)") as raised:
        linalg.tensordot(a, a, axes)
    assert isinstance(raised.value, pyclmm.PyclmmError)


def test_an_inverse_is_not_reproducible():
    a = np.array([[1.0, 2.0], [3.0, 4.0]])
    for block, keywords in ((pyclmm.default_reproducible(), {}), (nullcontext(), {"reproducible": True})):
        with block, pytest.raises(pyclmm.UnsupportedError, match=r"n is negative.* reproducible=False"):
            linalg.matrix_power(a, -1, **keywords)
    with pyclmm.default_reproducible():
        got = linalg.matrix_power(a, -1, reproducible=False)
    np.testing.assert_array_equal(got, np.linalg.inv(a))


def test_multi_dot_of_what_is_no_list():
    for wrong in (5, None, np.array(5.0), (x for x in "ab"), {0: 1.0, 1: 2.0}, {1.0, 2.0}, {"a": 1}.keys()):
        with pytest.raises(pyclmm.DTypeError, match=r"arrays is a .*; pass a list of two or more arrays"):
            linalg.multi_dot(wrong)


def test_multi_dot_of_one():
    with pytest.raises(pyclmm.ArgumentError, match="two or more"):
        linalg.multi_dot([np.ones((2, 2))])


# ---- strides in place of copies ------------------------------------------------------------------


@pytest.fixture
def work(monkeypatch):
    """Counts products, and the arrays that those or pyclmm.linalg copied, by name."""
    found: dict = {"products": 0, "copies": []}

    def counting(real):
        def counted(a, b, **keywords):
            found["products"] += 1
            own = {"out", "trans_a", "trans_b", "dtype", "casting", "queue"} & keywords.keys()
            plan = pyclmm.Matmul(a, b, **{name: keywords[name] for name in own})
            gemm = executable(plan).gemm
            found["copies"] += [name for name, _ in gemm.copies] + ["out"] * (gemm.out_copy is not None)
            inputs = getattr(path(plan), "_inputs", ())
            found["copies"] += [x.name for x in inputs if x.copied_as is not None]
            return real(a, b, **keywords)

        return counted

    for name in ("gemm", "matmul"):
        monkeypatch.setattr(pairs, name, counting(getattr(api, name)))
    nothing_repeated(monkeypatch)  # which hold those themselves
    noted(monkeypatch, pairs, "_dense", lambda *_: found["copies"].append("dense"))
    return found


def ones(*shape):
    return np.ones(shape, np.float32)


ONE_PRODUCT = {
    "transposes": lambda f: linalg.dot(f(ones(3, 4)).T, f(ones(5, 3)).T),
    "tensordot of the last axes": lambda f: linalg.tensordot(f(ones(2, 3, 4, 5)), f(ones(4, 5, 6))),
    "tensordot of axes in the middle": lambda f: linalg.tensordot(f(ones(2, 4, 3)), f(ones(5, 4, 6)), (1, 1)),
    "two axes summed": lambda f: linalg.einsum("klj,kli->ij", f(ones(3, 4, 5)), f(ones(3, 4, 2))),
    "a stack": lambda f: linalg.einsum("bij,bjk->bik", f(ones(2, 3, 4)), f(ones(2, 4, 5))),
    "a stack in the middle": lambda f: linalg.einsum("ibj,kbj->bik", f(ones(3, 2, 4)), f(ones(5, 2, 4))),
    "attention's heads": lambda f: linalg.einsum("bqhd,bkhd->bhqk", f(ones(2, 3, 4, 8)), f(ones(2, 5, 4, 8))),
    "a transposed result": lambda f: linalg.einsum("ij,jk->ki", f(ones(3, 4)), f(ones(4, 5))),
    "a broadcast stack": lambda f: linalg.einsum("...ij,...jk->...ik", f(ones(6, 1, 3, 4)), f(ones(2, 4, 5))),
    "a diagonal": lambda f: linalg.einsum("iij,jk->ik", f(ones(3, 3, 4)), f(ones(4, 5))),
    "inner": lambda f: linalg.inner(f(ones(2, 3, 4)), f(ones(5, 6, 4))),
    "outer": lambda f: linalg.outer(f(ones(3, 4)).T, f(ones(2, 5))),
    "vdot": lambda f: linalg.vdot(f(ones(3, 4, 5)), f(ones(3, 4, 5))),
    "vecdot along the first axis": lambda f: linalg.vecdot(f(ones(4, 3)), f(ones(4, 3)), axis=0),
    "matvec": lambda f: linalg.matvec(f(ones(2, 3, 4)), f(ones(4))),
    "vecmat": lambda f: linalg.vecmat(f(ones(2, 3)), f(ones(3, 4))),
    "a number of axes": lambda f: linalg.tensordot(f(ones(2, 3)), f(ones(4)), 0),
    "tensordot of axes in another place": lambda f: linalg.tensordot(f(ones(4, 2)), f(ones(3, 4)), (0, 1)),
    "tensordot of two axes": lambda f: linalg.tensordot(f(ones(4, 5, 2)), f(ones(3, 4, 5)), ([0, 1], [1, 2])),
    "a reversed operand": lambda f: linalg.dot(f(ones(3, 4))[::-1], f(ones(4, 5))),
    "every other row": lambda f: linalg.inner(f(ones(6, 4))[::2], f(ones(5, 4))),
    "a slice of columns": lambda f: linalg.dot(f(ones(3, 9))[:, 2:6], f(ones(4, 5))),
    "outer of slices": lambda f: linalg.outer(f(ones(8))[::2], f(ones(6))[1::3]),
    "vdot of transposes": lambda f: linalg.vdot(f(ones(3, 4)).T, f(ones(3, 4)).T),
    "inner of vectors of any step": lambda f: linalg.inner(f(ones(9))[::3], f(ones(3))[::-1]),
    "a broadcast operand": lambda f: linalg.dot(f(ones(3, 4)), f(np.broadcast_to(ones(4, 1), (4, 5)))),
    "vecdot of broadcast stacks": lambda f: linalg.vecdot(f(ones(6, 1, 4)), f(ones(5, 4))),
    "a sum over an operand": lambda f: linalg.einsum("ij->j", f(ones(3, 4))),
    "a trace": lambda f: linalg.einsum("ii", f(ones(3, 3))),
}  # fmt: skip


SUMS = ("a sum over an operand", "a trace")  # of arrays in the host's memory, by NumPy


@PLACES
@pytest.mark.parametrize("case", ONE_PRODUCT)
def test_one_product_and_no_copy(case, place, queue, device, work):
    if place == "host" and not device.unified_memory:
        pytest.skip("a device with memory of its own is sent arrays without their gaps")
    result = ONE_PRODUCT[case](lambda x: placed(x, place, queue))
    by_numpy = place == "host" and case in SUMS
    assert work == {"products": 0 if by_numpy else 1, "copies": []}
    assert np.all(fetched(result) == np.max(fetched(result)))
    if isinstance(result, cla.Array):
        assert result.flags.c_contiguous


IN_STEPS = {
    "two axes of an operand that come first there": ("abc,cd,dab->", [(0, 1), (0, 1)]),
    "the same from the left": ("abc,cd,dabe->e", False),
    "attention": ("bqhd,bkhd,bkhe->bqhe", [(0, 1), (0, 1)]),
    "four indices of orbitals": ("pi,qj,ijkl,rk,sl->pqrs", True),
    "a chain": ("ab,bc,cd,de->ae", True),
}


@PLACES
@pytest.mark.parametrize("case", IN_STEPS)
def test_steps_of_einsum_and_no_copy(case, place, queue, work, rng):
    subscripts, path = IN_STEPS[case]
    terms = subscripts.partition("->")[0].split(",")
    length = {letter: 2 + i for i, letter in enumerate(sorted({*subscripts} - {*",->"}))}
    xs = [rng.integers(-3, 4, [length[x] for x in term]).astype("f4") for term in terms]
    optimize = ["einsum_path", *path] if isinstance(path, list) else path
    got = linalg.einsum(subscripts, *(placed(x, place, queue) for x in xs), optimize=optimize)
    assert np.array_equal(fetched(got), np.einsum(subscripts, *xs))
    assert work == {"products": len(terms) - 1, "copies": []}


def test_axes_that_do_not_join_take_one_copy(queue, work):
    a, b = np.arange(24, dtype="f4").reshape(2, 3, 4), np.arange(24, dtype="f4").reshape(4, 3, 2)
    same(linalg.einsum("ijk,kji->jk", a, b), np.einsum("ijk,kji->jk", a, b))
    assert work == {"products": 1, "copies": []}
    same(linalg.einsum("ijm,kjm->ik", a, a), np.einsum("ijm,kjm->ik", a, a))
    assert work == {"products": 2, "copies": []}
    same(linalg.einsum("ijm,kmj->ik", a, a.swapaxes(1, 2).copy()), np.einsum("ijm,kjm->ik", a, a))
    assert work == {"products": 3, "copies": ["dense"]}  # sums of many products of matrices
    same(linalg.einsum("ijk,kji->", *(cla.to_device(queue, x) for x in (a, b))), np.einsum("ijk,kji->", a, b))
    assert work == {"products": 5, "copies": ["dense"] * 2}  # the copy is a product with 1


APART = [
    ("ijk,kji->", (2, 3, 8), (8, 3, 2)),
    ("ijk,ijk->j", (8, 3, 2), (8, 3, 2)),
    ("ij,ji->", (9, 2), (2, 9)),
    ("jmkl,ml->jk", (3, 2, 3, 40), (2, 40)),  # a is large: a copy of it is what that saves
]


@pytest.mark.parametrize("dtype", ["f4", "c8", "f8", "i8", "i1", "u2"])
@pytest.mark.parametrize(("subscripts", "of_a", "of_b"), APART)
def test_numpy_adds_few_sums_in_place_of_a_copy(subscripts, of_a, of_b, dtype, work, rng):
    a, b = (
        rng.integers(-3, 4, shape).astype(dtype) * (2 if dtype != "c8" else 2 + 1j) for shape in (of_a, of_b)
    )
    a, b = a.astype(dtype), b.astype(dtype)
    want = np.einsum(subscripts, a, b)
    out = np.empty(want.shape, dtype)
    same(linalg.einsum(subscripts, a, b), want)
    linalg.einsum(subscripts, a, b, out=out)
    same(out[()], want)
    assert work == {"products": 2, "copies": []}


@pytest.mark.parametrize(
    "asked", [{"reproducible": True}, {"verify": True}, {"kernel": "naive"}, {"dtype": "f8"}]
)
def test_what_is_asked_of_a_product_is_asked_of_all_its_sums(asked, work, rng):
    a, b = (rng.integers(-3, 4, shape).astype("f4") for shape in ((9, 2), (2, 9)))
    assert linalg.einsum("ij,ji->", a, b, **asked) == np.einsum("ij,ji->", a, b)
    assert "dense" in work["copies"]


@pytest.mark.parametrize("subscripts", ["i,->i", ",i->i", "ij,->ji", ",->"])
def test_an_array_times_a_number_is_no_product(subscripts, work, rng):
    terms = subscripts.partition("->")[0].split(",")
    given = [rng.integers(-3, 4, range(2, 2 + len(term))).astype("f4") for term in terms]
    same(linalg.einsum(subscripts, *given), np.einsum(subscripts, *given))
    assert work == {"products": 0, "copies": []}


def test_arrays_without_a_queue_take_that_of_the_call(queue):
    x = cla.to_device(queue, np.ones((2, 2), "f4")).with_queue(None)
    for call, want in (
        (lambda **ways: linalg.matrix_power(x, 0, **ways), np.eye(2)),
        (lambda **ways: linalg.vdot(x.T, x.ravel(), **ways), 4),
    ):
        assert np.array_equal(call(queue=queue).get(), want)
        with pytest.raises(pyclmm.ArgumentError, match="none of the Arrays has a queue"):
            call()


def test_the_dtype_of_vdot_is_that_of_its_product_alone(queue):
    """What makes an operand flat is a copy of bools, which ``verify`` would refuse."""
    x = cla.to_device(queue, np.ones((2, 3), "?"))
    got = linalg.vdot(x.T, x.ravel(), dtype="f4", verify=True)
    assert got.get() == 6


@pytest.mark.parametrize("dtype", ["?", "i1", "f2", "f4", "c8"])
def test_vdot_of_numbers_has_numpys_dtype(dtype):
    for x, y in itertools.product((0, 1, 1j) if dtype == "c8" else (0, 1), repeat=2):
        given = np.array(x, dtype), np.array(y, dtype)
        same(linalg.vdot(*given), np.vdot(*given))


@pytest.mark.parametrize("asked", [{"reproducible": True}, {"verify": True}, {"kernel": "naive"}])
@pytest.mark.parametrize("subscripts", ["i,->i", ",i->i", ",->"])
def test_an_array_times_a_number_is_what_is_asked_for(subscripts, asked, work, rng):
    terms = subscripts.partition("->")[0].split(",")
    given = [rng.integers(1, 4, (5,) * len(term)).astype("f4") for term in terms]
    same(linalg.einsum(subscripts, *given, **asked), np.einsum(subscripts, *given))
    assert work == {"products": 1, "copies": []}


def test_sums_of_narrow_floats_are_not_rounded_before_they_are_added(work):
    a = np.full((9, 2), 20, np.float16)
    a[0, 0] = 2049 / 20
    assert linalg.einsum("ij,ji->", a, np.ascontiguousarray(a.T)) == np.float16((a.astype("f8") ** 2).sum())
    assert work["copies"] == ["dense"]


def test_a_conjugate_takes_no_copy(work):
    a = (np.arange(6) + 1j).astype("c8").reshape(2, 3)
    same(linalg.vdot(a, a), np.vdot(a, a))
    same(linalg.vecdot(a, a[:1]), (a.conj() * a[:1]).sum(-1))
    assert work == {"products": 2, "copies": []}


# ---- keywords, kinds ---------------------------------------------------------------------------


def test_keywords_of_gemm_reach_every_product(queue):
    a = np.ones((4, 4), np.float32)
    with pytest.raises(pyclmm.ArgumentError, match="nosuch"):
        linalg.einsum("ij,jk,kl", a, a, a, kernel="nosuch")
    assert linalg.dot(a, a, queue=queue, precision="high", reproducible=True)[0, 0] == 4
    assert linalg.dot(a, a, device=pyclmm.devices()[0])[0, 0] == 4
    for call in (
        linalg.dot,
        linalg.vecdot,
        linalg.tensordot,
        lambda *xs, **more: linalg.multi_dot(xs, **more),
    ):
        with pytest.raises(pyclmm.DTypeError, match=r"argument 'nosuch'; linalg.[a-z_]+ takes queue, device"):
            call(a, a, nosuch=1)
    for n in range(3):
        with pytest.raises(pyclmm.DTypeError, match="argument 'nosuch'"):
            linalg.matrix_power(a, n, nosuch=1)


def elementwise(x, y, **keywords):
    return linalg.einsum("ij,ij->ij", x, y, **keywords)


@pytest.mark.parametrize(
    "function", [pyclmm.matmul, pyclmm.gemm, pyclmm.Matmul, linalg.vecdot, linalg.matvec, elementwise]
)
def test_a_wrong_dtype_and_a_wrong_casting(function):
    a, x = np.ones((2, 2), "f4"), np.ones(2, "f4")
    xs = (a, x) if function is linalg.matvec else (a, a)
    for wrong in ("nosuch", 3):
        with pytest.raises(pyclmm.DTypeError, match=r"dtype is .*; pass one such as 'float32'"):
            function(*xs, dtype=wrong)
    for wrong in (object, np.dtype("U3").newbyteorder()):
        with pytest.raises(pyclmm.DTypeError, match=r"dtype is (object|[<>]U3).* cannot multiply"):
            function(*xs, dtype=wrong)
    swapped = np.dtype("f8").newbyteorder()
    with pytest.raises(pyclmm.DTypeError, match=r"dtype is .* order of bytes; pass 'float64'"):
        function(*xs, dtype=swapped)
    with pytest.raises(pyclmm.ArgumentError, match=r"casting must be one of 'no', .* not 'nosuch'"):
        function(*xs, casting="nosuch")
    with pytest.raises(pyclmm.DTypeError, match="casting must be str, not int"):
        function(*xs, casting=3)


@pytest.mark.parametrize("function", [linalg.dot, linalg.inner, linalg.outer, linalg.vdot, linalg.tensordot])
def test_mixed_operands(function, queue):
    a, x = np.ones((2, 2), "f4"), cla.to_device(queue, np.ones((2, 2), "f4"))
    with pytest.raises(pyclmm.DTypeError, match="mixed='copy'"):
        function(a, x)
    result = function(a, x, mixed="copy")
    assert isinstance(result, cla.Array)
    assert np.array_equal(result.get(), function(a, a))


def test_functions_have_numpys_parameters():
    """By name too, where NumPy takes names."""
    a = [[1.0, 2], [3, 4]]
    assert np.array_equal(linalg.tensordot(a=a, b=a, axes=1), np.tensordot(a=a, b=a, axes=1))
    assert np.array_equal(linalg.outer(a=a, b=a), np.outer(a=a, b=a))
    assert np.array_equal(linalg.matrix_power(a=a, n=2), np.linalg.matrix_power(a, n=2))
