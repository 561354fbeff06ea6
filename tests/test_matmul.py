"""numpy.matmul is the specification: values, dtypes, shapes, flags and exceptions are the same."""

import warnings
from contextlib import nullcontext

import numpy as np
import pyopencl.array as cla
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

import pyclmm
from pyclmm import array_api, linalg
from pyclmm.problem.dtypes import CASTINGS, ELEMENT_TYPES, dtype_of
from tests.support.calls import draw_axes, draw_matmul, judge, matmul_kind, operands, same_rest
from tests.support.cases import numbers, small_integers
from tests.support.plans import kept_plans
from tests.support.selection import examples

randoms = st.randoms(use_true_random=False)


@pytest.mark.parametrize("place", ["host", "device"])
@examples(250)
@given(r=randoms)
def test_float32_operands_of_any_shape_and_layout(place, queue, r):
    judge(draw_matmul(r, place, ["float32"]), queue)


@pytest.mark.parametrize("place", ["host", "device"])
@examples(100)
@given(r=randoms)
def test_operands_of_any_dtype(place, queue, r):
    judge(draw_matmul(r, place), queue)


@pytest.mark.parametrize("place", ["host", "device"])
@examples(120)
@given(r=randoms)
def test_casting(place, queue, r):
    types = ["bool", "uint8", "int64", "float16", "bfloat16", "float32", "complex64"]
    kind = matmul_kind(r, types) | {"casting": r.choice([*CASTINGS, "unsafe"]), "kernel": "naive"}
    if r.random() < 0.4:
        kind["dtype"] = r.choice([t for t in types if t != "bfloat16"])
    judge(draw_matmul(r, place, kind=kind), queue)


@pytest.mark.parametrize("place", ["host", "device"])
@examples(250)
@given(r=randoms)
def test_axes(place, queue, r):
    kind = matmul_kind(r, ["float32"])
    kind.pop("casting", None)
    call = draw_matmul(r, place, kind=kind)
    judge(call if "axes" in call else draw_axes(r, call), queue)


@examples(150)
@given(
    sizes=st.tuples(*[st.integers(1, 6)] * 3),
    starts=st.tuples(*[st.integers(0, 40)] * 3),
    steps=st.tuples(*[st.sampled_from([1, 2, -1])] * 3),
    seed=st.integers(0, 100),
)
@pytest.mark.parametrize("place", ["host", "device"])
def test_overlapping_out_is_as_if_it_did_not(place, queue, sizes, starts, steps, seed):
    m, n, k = sizes
    shapes = ((m, k), (k, n), (m, n))
    memory = numbers(np.random.default_rng(seed), 200, "f4")
    want = memory.copy()
    np.matmul(*windows(want, shapes, starts, steps)[:2], out=windows(want, shapes, starts, steps)[2])
    if place == "host":
        a, b, out = windows(memory, shapes, starts, steps)
        pyclmm.matmul(a, b, out=out)
    else:
        on_device = cla.to_device(queue, memory)
        a, b, out = (
            cla.Array(queue, w.shape, w.dtype, data=on_device.base_data, offset=at, strides=w.strides)
            for w, at in zip(
                windows(memory, shapes, starts, steps), offsets(memory, shapes, starts, steps), strict=True
            )
        )
        pyclmm.matmul(a, b, out=out)
        memory = on_device.get()
    assert np.allclose(memory, want, rtol=1e-4, atol=1e-4)


def windows(memory, shapes, starts, steps):
    """Three matrices in one memory. They may overlap."""
    found = []
    for shape, start, step in zip(shapes, starts, steps, strict=True):
        extent = shape[0] * shape[1] * abs(step)
        found.append(memory[start : start + extent][::step].reshape(shape))
    assert all(np.shares_memory(w, memory) for w in found)
    return found


def offsets(memory, shapes, starts, steps):
    base = memory.__array_interface__["data"][0]
    return [w.__array_interface__["data"][0] - base for w in windows(memory, shapes, starts, steps)]


@pytest.mark.parametrize("overlap", ["a", "b", "both"])
def test_out_is_an_operand(overlap, rng):
    """Of several work-groups: one alone may have read all before it writes."""
    a, b = small_integers(rng, (200, 200), "f4"), small_integers(rng, (200, 200), "f4")
    want = a @ (a if overlap == "both" else b)
    target = b if overlap == "b" else a
    assert pyclmm.matmul(a, a if overlap == "both" else b, out=target) is target
    assert np.array_equal(target, want)


def test_out_of_vectors_is_0d(rng):
    v, out = small_integers(rng, 9, "f4"), np.zeros((), "f4")
    assert pyclmm.matmul(v, v, out=out) is out
    assert out == v @ v


def test_complex_views_aligned_to_half_an_element(rng):
    memory = rng.standard_normal(60)
    a, b = memory[:32].view(complex).reshape(4, 4), memory[1:17].view(complex).reshape(4, 2)
    out = memory[41:57].view(complex).reshape(4, 2)
    want = a @ b
    assert np.allclose(pyclmm.matmul(a, b), want)
    assert np.allclose(pyclmm.matmul(a, b, out=out), want)


def test_a_stack_longer_than_one_launch(rng, limits):
    limits(launch=4)
    a, b = small_integers(rng, (11, 3, 5), "f4"), small_integers(rng, (11, 5, 2), "f4")
    assert np.array_equal(pyclmm.matmul(a, b, kernel="naive"), a @ b)


def test_a_plan_is_reused_only_for_the_same_layout(rng):
    """Each view differs from the one before in one property."""
    whole = numbers(rng, (12, 12), "f4")
    b = numbers(rng, (6, 6), "f4")
    for view in (whole[:6, :6], whole[1:7, 2:8], whole[:6, :6].T, whole[::2, ::2], whole[5::-1, :6]):
        for other in (b, b.T, b.astype("f8")):
            assert np.allclose(pyclmm.matmul(view, other), view @ other, atol=1e-4)


# ---- dtypes that compare equal but differ -------------------------------------------------------


@pytest.mark.parametrize("order", ["lq", "ql"])
@pytest.mark.parametrize("shape", [(3,), (3, 3)], ids=str)
def test_longlong_is_not_int64_even_when_a_plan_is_kept(order, shape, own_caches):
    """The dtypes compare equal, and a plan of one was once used for the other."""
    for letter in (*order, *order.upper()):
        x = np.ones(shape, letter)
        want, got = np.matmul(x, x), pyclmm.matmul(x, x)
        assert type(got) is type(want)
        assert got.dtype.char == want.dtype.char


def test_longlong_as_the_result_dtype(own_caches):
    x = np.ones((2, 2), np.int32)
    for letter in "lqlq":
        assert pyclmm.matmul(x, x, dtype=letter).dtype.char == np.matmul(x, x, dtype=letter).dtype.char


def test_longlong_on_arrays(own_caches, queue):
    for letter in "lqlq":
        x = cla.to_device(queue, np.ones((2, 2), letter))
        assert pyclmm.matmul(x, x).dtype.char == letter


# ---- casting and axes -------------------------------------------------------------------------


def places(queue):
    """Ways to make an operand of a NumPy array: itself, and an Array."""
    return np.asarray, lambda x: cla.to_device(queue, x)


def on_host(x):
    return x.get() if isinstance(x, cla.Array) else x


@pytest.mark.parametrize("target", [t for t in ELEMENT_TYPES if not t.startswith("complex")])
@pytest.mark.parametrize("source", ["bfloat16", "float32", "float64", "complex64"])
def test_unsafe_casts_give_what_astype_gives(queue, source, target):
    """Of an operand and of the result. Imaginary parts, fractions and bits beyond the width are dropped."""
    wanted = dtype_of(target)
    x = np.array([[0.5, 2.75], [0, 200 if wanted.kind == "u" else -100]], dtype_of(source))
    if x.dtype.kind == "c":
        x += 2j
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        want = x.astype(wanted)
    warns = any(each.category is np.exceptions.ComplexWarning for each in told)  # of bfloat16 since 0.7

    def warned():
        return pytest.warns(np.exceptions.ComplexWarning) if warns else nullcontext()

    for place in places(queue):
        out = place(np.zeros((2, 2), wanted))
        call = {"casting": "unsafe", "kernel": "naive"}
        with warned():
            cast_first = pyclmm.matmul(place(x), place(np.eye(2, dtype=wanted)), dtype=wanted, **call)
        with warned():
            cast_last = pyclmm.matmul(place(x), place(np.eye(2, dtype=x.dtype)), out=out, **call)
        with warned():  # of a real number nothing is conjugated
            turned = pyclmm.gemm(
                place(x.T.copy()), place(np.eye(2, dtype=wanted)), trans_a="C", dtype=wanted, **call
            )
        for got in (cast_first, cast_last, turned):
            assert got.dtype == wanted
            assert np.array_equal(on_host(got), want)


def test_floats_beyond_an_integer_type_wrap_on_arrays(queue):
    """C does not define this cast, so NumPy's differs between processors; the copy kernel's is the same."""
    x = cla.to_device(queue, np.array([[-1.5, 300.0], [-129, 2.0**40 + 5]]))
    one = cla.to_device(queue, np.eye(2))
    want = np.array([[-1, 300], [-129, 2**40 + 5]])
    for target in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"):
        out = cla.zeros(queue, (2, 2), np.dtype(target))
        assert np.array_equal(pyclmm.matmul(x, one, out=out, casting="unsafe").get(), want.astype(target))


def test_a_dropped_imaginary_part_warns_in_every_call(queue):
    z = np.full((2, 2), 1 + 1j, "c8")
    for place in places(queue):
        x, out = place(z), place(np.zeros((2, 2), "f4"))
        plan = pyclmm.Matmul(x, x, out=out, casting="unsafe")
        for call in (pyclmm.matmul, pyclmm.matmul, plan):
            given = {} if call is plan else {"casting": "unsafe"}
            with pytest.warns(np.exceptions.ComplexWarning, match="discards the imaginary part"):
                call(x, x, out=out, **given)


CASTS = {  # of an operand or a result, by the host
    "result": lambda x, out, rule: pyclmm.matmul(x, x, out=out, casting=rule),
    "operands": lambda x, out, rule: pyclmm.matmul(x, x, dtype=out.dtype, casting=rule),
    "bias": lambda x, out, rule: pyclmm.gemm(out, out, bias=x[0], casting=rule),
    "plan": lambda x, out, rule: pyclmm.Matmul(x, x, out=out, casting=rule)(x, x, out=out),
    "sum": lambda x, out, rule: linalg.einsum("ij->i", x, out=out[0], casting=rule),
    "elements": lambda x, out, rule: linalg.einsum("ij,ij->ij", x, x, out=out, casting=rule),
    "factors": lambda x, out, rule: linalg.einsum("ij,ij->ij", x, x, dtype=out.dtype, casting=rule),
    "tiles": lambda x, out, rule: pyclmm.matmul(x, x, out=out, casting=rule, memory_limit=1 << 30),
    "array_api": lambda x, out, rule: np.asarray(array_api.asarray(x), out.dtype),
}
OF_LISTS = {
    "list": lambda x, out, _: pyclmm.matmul_many([(x, x)], [out]),
    "list's operands": lambda x, out, _: pyclmm.matmul_many([(out, out)], bias=[x[0]]),
}


@pytest.mark.parametrize("what", CASTS)
def test_a_warning_of_dropped_parts_names_the_line_of_the_call(what):
    """Python shows a warning once for a line, and all of these named one of pyclmm's."""
    for _ in range(2):
        with pytest.warns(np.exceptions.ComplexWarning) as seen:
            CASTS[what](np.full((2, 2), 1 + 1j, "c8"), np.zeros((2, 2), "f4"), "unsafe")
        assert {each.filename for each in seen} == {__file__}


@pytest.mark.parametrize(
    ("x", "dtype", "warning"),
    [(1 + 1j, "f8", np.exceptions.ComplexWarning), (np.nan, "i8", RuntimeWarning)],
)
def test_many_tiles_warn_of_a_cast_once(x, dtype, warning):
    x = np.full((40, 40), x)
    with pytest.warns(warning) as seen:
        pyclmm.matmul(x, x, dtype=dtype, casting="unsafe", memory_limit="16 KiB")
    assert len(seen) == 1


@pytest.mark.parametrize("what", [name for name in CASTS | OF_LISTS if name not in ("elements", "factors")])
def test_a_warning_of_an_overflow_names_the_line_of_the_call(what, recwarn):
    call = (CASTS | OF_LISTS)[what]
    x, out = np.full((2, 2), 1e99), np.zeros((2, 2), "f4")
    with np.errstate(over="ignore"):
        call(x, out, "same_kind")
    assert not recwarn
    call(x, out, "same_kind")
    assert {(str(each.message), each.filename) for each in recwarn} == {
        ("overflow encountered in cast", __file__)
    }
    with np.errstate(over="raise"), pytest.raises(FloatingPointError, match="overflow"):
        call(x, out, "same_kind")


def test_c_and_bias_are_cast_by_the_same_rule(queue):
    x, c = np.full((2, 2), 2, "i4"), np.full((2, 2), 1.75, "f4")
    for place in places(queue):
        operands = place(x), place(x), place(c)
        call = {"beta": 1, "bias": place(c[0].copy())}
        words = "c: cannot cast float32 to int32 by the rule 'same_kind'"
        with pytest.raises(pyclmm.DTypeError, match=words):
            pyclmm.gemm(*operands, **call)
        assert (on_host(pyclmm.gemm(*operands, casting="unsafe", **call)) == 10).all()
        with pytest.raises(pyclmm.DTypeError, match="rule 'no'"):
            pyclmm.gemm(place(x), place(x), place(x.astype("i2")), beta=1, casting="no")


def test_calls_of_other_casting_have_other_plans(own_caches):
    x = np.full((2, 2), 1.5, "f4")
    for _ in range(2):
        assert pyclmm.matmul(x, x, dtype="i4", casting="unsafe")[0, 0] == 2
        with pytest.raises(pyclmm.DTypeError, match="with casting rule 'same_kind'"):
            pyclmm.matmul(x, x, dtype="i4")
        with pytest.raises(pyclmm.DTypeError, match="with casting rule 'safe'"):
            pyclmm.matmul(x, x, out=np.zeros((2, 2), "f2"), casting="safe")
        assert pyclmm.matmul(x, x, out=np.zeros((2, 2), "f2"))[0, 0] == 4.5


@pytest.mark.parametrize("casting", ["foo", "same_value", 3, None, ["no"]])
def test_a_rule_that_numpy_does_not_have(casting):
    x = np.ones((2, 2))
    with pytest.raises((TypeError, ValueError), match=r"casting must be") as numpys:
        np.matmul(x, x, casting=casting)
    kind = TypeError if isinstance(numpys.value, TypeError) else ValueError
    for call in (pyclmm.matmul, pyclmm.gemm, pyclmm.Matmul):
        with pytest.raises(kind, match=str(numpys.value).split(" not ")[0].split(" (")[0]) as got:
            call(x, x, casting=casting)
        assert isinstance(got.value, pyclmm.PyclmmError)


@pytest.mark.parametrize("given", [{"axis": 0}, {"axis": -1, "axes": [(0, 1)] * 3}])
def test_axis_is_refused_as_by_numpy(given):
    x = np.ones((2, 2))
    for multiply in (np.matmul, pyclmm.matmul):
        with pytest.raises(TypeError, match="axis"):
            multiply(x, x, **given)


def test_an_out_that_cannot_be_written_is_refused_before_wrong_axes():
    """NumPy looks at out first."""
    x, out = np.ones((3, 3), "f4"), np.zeros((3, 3), "f4")
    out.flags.writeable = False
    for multiply in (np.matmul, pyclmm.matmul):
        with pytest.raises(ValueError, match="read-only"):
            multiply(x, x, out=out, axes=[None, (0, 1), (0, 1)])


def test_axes_copy_nothing(queue, rng, own_caches):
    """Operands and out are read and written as views, with other strides."""
    x, y = small_integers(rng, (5, 7, 4), "f4"), small_integers(rng, (3, 5), "f4")
    axes = [(2, 0), (1, 0), (-1, -3)]
    want = np.matmul(x, y, axes=axes)
    for place in places(queue):
        out = place(np.zeros((3, 7, 4), "f4"))
        assert pyclmm.matmul(place(x), place(y), out=out, axes=axes, kernel="tiled") is out
        assert isinstance(out, np.ndarray) or out.events, "the event of the view is that of out"
        assert np.array_equal(on_host(out), want)
    table = 7 * 4 * 8  # bytes: a row of four offsets for each product
    assert [plan.executable.work.workspace_nbytes for plan in kept_plans().values()] == [table] * 2


def test_the_result_has_the_order_that_axes_gives_it(queue):
    """The product is C-contiguous, and the result is a view of it, as numpy.matmul's is."""
    x = np.ones((2, 3, 4), "f4")
    y = np.ones((4, 5), "f4")
    for item in ((0, 1), (1, 0), (2, 0), (-3, 1)):
        axes = [(1, 2), (0, 1), item]
        want = np.matmul(x, y, axes=axes)
        for place in places(queue):
            got = pyclmm.matmul(place(x), place(y), axes=axes)
            assert (got.shape, got.strides) == (want.shape, want.strides)


# ---- what NumPy's own tests match --------------------------------------------------------------

NUMPYS_WORDS = (
    "does not have enough dimensions", "mismatch in its core dimension", "mismatch in its core dimension 1",
    "could not be broadcast together", "non-broadcastable", "output operand requires a reduction",
)  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b", "out"),
    [
        ((), (2, 2), None), ((2, 2), (), None), ((3, 4), (5, 4), None), ((3,), (4,), None),
        ((2, 3, 4), (3, 4, 5), None), ((3, 4), (4, 5), (3, 4)), ((3, 4), (4, 5), (2, 3, 4)),
        ((3, 4), (4,), (4,)), ((3, 4), (4, 5), (5,)), ((2, 3, 4), (4, 5), (3, 5)),
        ((2, 3, 4), (4, 5), (1, 3, 5)), ((0, 1, 1), (0, 1, 1), (1, 1, 1)),
    ],
)  # fmt: skip
def test_shape_errors_have_the_words_that_numpys_tests_match(a, b, out, queue):
    x, y = np.ones(a), np.ones(b)
    given = {} if out is None else {"out": np.zeros(out)}
    with pytest.raises(ValueError, match=r".") as wanted:
        np.matmul(x, y, **given)
    words = [word for word in NUMPYS_WORDS if word in str(wanted.value)]
    assert words, wanted.value
    with pytest.raises(pyclmm.ShapeError) as got:
        pyclmm.matmul(x, y, **given)
    assert all(word in str(got.value) for word in words), got.value
    assert ("non-broadcastable" in str(got.value)) == (out is not None)


def test_a_cast_to_out_has_the_words_that_numpys_tests_match():
    with pytest.raises(TypeError, match=r"Cannot cast ufunc .* output"):
        pyclmm.matmul(np.ones((5, 2)), np.ones((2, 2)), out=np.zeros((5, 2), np.int32))


# ---- up to 64 axes, NumPy's own limit; np.broadcast_shapes stops at 32 ----------------------------


def ones_then(axes, *last):
    """A shape of so many axes that ends with *last*."""
    return (1,) * (axes - len(last)) + last


@pytest.mark.parametrize("axes", [33, 35, 64])
@pytest.mark.parametrize("place", ["host", "device"])
@pytest.mark.parametrize(
    ("a", "b", "out"),
    [
        ((2, 1, 3, 4), (5, 4, 3), None), ((2, 1, 3, 4), (1, 5, 4, 3), (2, 5, 3, 3)),
        ((0, 3, 4), (4, 3), None), ((2, 2, 3, 4), (4,), None), ((4,), (2, 4, 3), (2, 2, 3)),
        ((4,), (4,), (2, 2)), ((3, 4), (4, 3), (2, 5, 3, 3)),
    ],
)  # fmt: skip
def test_operands_of_many_axes(a, b, out, axes, place, queue, rng):
    long = tuple(ones_then(axes, *shape) if len(shape) > 2 else shape for shape in (a, b))
    x, y = (small_integers(rng, shape, "f4") for shape in long)
    target = None if out is None else np.empty(ones_then(axes, *out), "f4")
    want = np.matmul(x, y, out=None if target is None else target.copy())
    if place == "host":
        got = pyclmm.matmul(x, y, out=target)
    else:
        given = [cla.to_device(queue, each) for each in (x, y)]
        on_device = None if target is None else cla.to_device(queue, target)
        got = pyclmm.matmul(*given, out=on_device).get()
    assert got.shape == want.shape
    assert np.array_equal(got, want)


def test_views_of_many_axes(rng):
    x = small_integers(rng, ones_then(64, 2, 1, 3, 8), "f4")[..., ::2]
    y = small_integers(rng, ones_then(64, 5, 3, 4), "f4").swapaxes(-1, -2)[..., ::-1]
    assert np.array_equal(pyclmm.matmul(x, y), np.matmul(x, y))
    x = small_integers(rng, (4, 3, *ones_then(62, 2, 1)), "f4")
    y = small_integers(rng, (4, 3, *ones_then(62, 1, 5)), "f4")
    axes = [(1, 0), (0, 1), (0, 1)]
    assert np.array_equal(pyclmm.matmul(x, y, axes=axes), np.matmul(x, y, axes=axes))


@pytest.mark.parametrize("axes", [35, 64])
def test_stacks_of_many_axes_that_do_not_broadcast(axes):
    x, y = np.ones((3, *ones_then(axes - 1, 3, 4)), "f4"), np.ones((2, *ones_then(axes - 1, 4, 3)), "f4")
    words = r"the stacks of a \(3, 1, .* and b \(2, 1, .*do not broadcast"
    with pytest.raises(pyclmm.ShapeError, match=words):
        pyclmm.matmul(x, y)
    with pytest.raises(pyclmm.ShapeError, match="out has shape"):
        pyclmm.matmul(x, y[:1], out=np.ones((2, *ones_then(axes - 1, 3, 3)), "f4"))


# ---- results of np.broadcast_arrays, whose flags.writeable warns when it is read ------------------


def broadcast(x, *shape):
    return np.broadcast_arrays(x, np.empty(shape))[0]


def broadcast_operands(dtype):
    """a, b, c and bias; each has an axis of stride 0, but c, which is contiguous."""
    a, b, c, bias = (np.arange(1, n + 1).astype(dtype) for n in (4, 4, 12, 1))
    return (
        broadcast(a, 3, 4),
        broadcast(b[:, None], 4, 4),
        broadcast(c.reshape(3, 4), 3, 4),
        broadcast(bias, 4),
    )


def by_plan(a, b, c, **options):
    return pyclmm.Matmul(a, b, c, **options)(a, b, c, bias=options["bias"])


@pytest.mark.parametrize("dtype", ["f4", "bfloat16", ">f8", "c8"])
@pytest.mark.parametrize("call", [pyclmm.gemm, by_plan])
def test_results_of_broadcast_arrays_are_read_without_a_warning(call, dtype, own_caches):
    dtype = dtype_of(dtype) if dtype == "bfloat16" else np.dtype(dtype)
    a, b, c, bias = (x.copy() for x in broadcast_operands(dtype))
    want = pyclmm.gemm(a, b, c, beta=1.0, bias=bias)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        a, b, c, bias = broadcast_operands(dtype)
        assert np.array_equal(call(a, b, c, beta=1.0, bias=bias), want)
        assert np.array_equal(pyclmm.matmul(*broadcast_operands(dtype)[:2]), a.copy() @ b.copy())


def writes(call, out):
    """What *call* does with *out*: its result, or the warning that it raises."""
    x, y = np.arange(12, dtype="f4").reshape(3, 4), np.arange(12, dtype="f4").reshape(4, 3)
    try:
        return call(x, y, out).tolist()
    except Warning as warning:
        return repr(warning)


@pytest.mark.parametrize("warn", ["error", "ignore"])
@pytest.mark.parametrize("shape", [(3, 3), (3, 1)])
@pytest.mark.parametrize(
    "call",
    [
        lambda a, b, out: pyclmm.matmul(a, b, out=out),
        lambda a, b, out: pyclmm.matmul(a, b, out=out, axes=[(-2, -1)] * 3),
        lambda a, b, out: pyclmm.gemm(a, b, out=out),
        lambda a, b, out: pyclmm.Matmul(a, b, out=out)(a, b, out=out),
    ],
    ids=["matmul", "axes", "gemm", "plan"],
)
def test_a_result_of_broadcast_arrays_as_out_warns_as_in_numpy(call, shape, warn):
    want, out = (broadcast(np.zeros(shape, "f4"), 3, 3) for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter(warn)
        assert writes(call, out) == writes(lambda a, b, out: np.matmul(a, b, out=out), want)
    assert np.array_equal(out, want), "written, or left as it was"


def test_a_result_of_broadcast_arrays_as_out_warns_once():
    out = broadcast(np.zeros((3, 1), "f4"), 3, 3)
    with pytest.warns(DeprecationWarning, match="broadcast_arrays"):
        pyclmm.matmul(np.ones((3, 4), "f4"), np.ones((4, 3), "f4"), out=out)
    pyclmm.matmul(np.ones((3, 4), "f4"), np.ones((4, 3), "f4"), out=out)  # warnings are errors here


@pytest.mark.parametrize("strides", [(4, 0), (0, 4), (0, 0), (4, 4), (8, 4), (4, 8)], ids=str)
@pytest.mark.parametrize("shape", [(3, 3), (64, 70), (300, 280)], ids=str)
def test_elements_of_out_may_share_memory(shape, strides, rng):
    """The value that NumPy writes last is there, not that of the work-item that was last."""
    a, b = small_integers(rng, (shape[0], 40), "f4"), small_integers(rng, (40, shape[1]), "f4")
    for _ in range(3):
        want, out = (as_strided(np.zeros(3000, "f4"), shape, strides) for _ in range(2))
        np.matmul(a, b, out=want)
        pyclmm.matmul(a, b, out=out)
        assert np.array_equal(out, want)


def test_a_nan_stays_one_in_bfloat16():
    """Rounded as a number, one with all bits set would become -0."""
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    x = np.full((3, 3), 0x7FFFFFFF, np.uint32).view(np.float32)
    out = np.zeros((3, 3), bfloat16)
    pyclmm.matmul(x, np.eye(3, dtype=np.float32), out=out, casting="unsafe")
    assert np.isnan(out.astype(np.float32)).all()


@pytest.mark.parametrize(("name", "written"), [("a", True), ("b", True), ("out", False)])
def test_the_judge_sees_an_operand_that_a_call_changed(name, written):
    spec = {"shape": [2, 2], "dtype": "float32", "layout": "C"}
    call = {"name": "matmul", "a": spec, "b": spec, "out": spec, "seed": 1}
    mine, other = operands(call), operands(call)
    same_rest(mine, other, written)
    mine, other = operands(call), operands(call)
    mine[name].view[0, 0] += 1
    with pytest.raises(AssertionError, match=f"bytes of {name} have changed"):
        same_rest(mine, other, written)
