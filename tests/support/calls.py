"""Calls of matmul and gemm as plain data: drawn at random, built into arrays, and judged.

A call is a dictionary of JSON types, so that a file can keep one that failed. It is drawn from a
``random.Random``: hypothesis's, which can shrink it, or a seeded one (``tests/campaigns/fuzz.py``).
"""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import dataclass

import numpy as np
import pyopencl.array as cla

import pyclmm
from pyclmm import KERNELS
from pyclmm.execution.prepared import Prepared
from pyclmm.opencl.arrays import fetched
from pyclmm.opencl.host_memory import host_span, location
from pyclmm.problem.dtypes import CASTINGS, ELEMENT_TYPES, dtype_of
from tests.support.cases import DEVICE, numbers, problem_of
from tests.support.oracle import gemm as expected

SIZES = (0, 1, 1, 2, 3, 4, 5, 8, 16, 17)
DEVICE_LAYOUTS = ("C", "C", "F", "reversed", "sliced", "zero", "permuted")
HOST_LAYOUTS = (*DEVICE_LAYOUTS, "unaligned", "swapped", "readonly", "field")
OUT_LAYOUTS = ("C", "F", "reversed", "sliced", "permuted")
BLAS_TYPES = ("float32", "float64", "complex64", "complex128")
# Kernels for some shapes, types or devices only. They may refuse a call.
PARTIAL = [
    k.name
    for k in KERNELS
    if any(k.refuses(problem_of(400, 400, 40, dtype), DEVICE) for dtype in ("float32", "complex64"))
]
# What NumPy says about its keywords.
KEYWORD_WORDS = (
    "Cannot cast ufunc", "with casting rule", "axes should be a list", "an entry for all",
    "should be a tuple", "core dimension", "out of bounds", "repeated", "cannot be interpreted as an integer",
)  # fmt: skip
ACTIVATIONS = (None, None, "relu", "leaky_relu", "gelu", "gelu_tanh", "sigmoid", "tanh", "silu")


# ---- drawing ---------------------------------------------------------------------------------


def _stacks(r):
    """The leading dimensions of two stacks. One time in twenty they do not broadcast."""
    full = [r.choice((1, 2, 3)) for _ in range(r.choice((0, 0, 0, 1, 2)))]
    if full and r.random() < 0.1:
        full[0] = 0
    left, right = ([n if r.random() < 0.7 else 1 for n in full][r.randint(0, len(full)) :] for _ in "ab")
    if left and r.random() < 0.05:
        left[-1] += 3
    return left, right


def _shapes(r):
    m, n, k = (r.choice(SIZES) for _ in "mnk")
    left, right = _stacks(r)
    a = [k] if r.random() < 0.12 else [*left, m, k]
    b = [k] if r.random() < 0.12 else [*right, k, n]
    if r.random() < 0.05:
        b[0] += 1
    if r.random() < 0.02:
        a = []
    return a, b


def _result_shape(a, b):
    """The shape of the product, or a similar one if there is no product."""
    try:
        return list(np.matmul(np.zeros(a), np.zeros(b)).shape)
    except ValueError:
        return [*a[:-1], *b[-1:]]


def _layout(r, place, names=None):
    return r.choice(names or (HOST_LAYOUTS if place == "host" else DEVICE_LAYOUTS))


def matmul_kind(r, types=ELEMENT_TYPES):
    """What decides which programs a call of matmul runs, apart from shapes and layouts."""
    left = r.choice(types)
    kind = {
        "name": "matmul",
        "a": left,
        "b": left if r.random() < 0.6 else r.choice(types),
        "dtype": r.choice(types) if r.random() < 0.15 else None,
        "kernel": _kernel(r),
    }
    if kind["dtype"] == "bfloat16":  # numpy.matmul has no such dtype
        kind["dtype"] = None
    if r.random() < 0.4:
        kind["out"] = left if r.random() < 0.7 else r.choice(types)
    if r.random() < 0.15:
        kind["casting"] = r.choice(CASTINGS)
    return kind


def _kernel(r):
    return "auto" if r.random() < 0.7 else r.choice([k.name for k in KERNELS])


def draw_matmul(r, place, types=ELEMENT_TYPES, kind=None):
    """A call of matmul on operands of *types*. Some calls are invalid, as they are for numpy.matmul."""
    call = dict(kind or matmul_kind(r, types)) | {"place": place, "seed": r.randint(0, 1 << 16)}
    a, b = _shapes(r)
    call["a"] = {"shape": a, "dtype": call["a"], "layout": _layout(r, place)}
    call["b"] = {"shape": b, "dtype": call["b"], "layout": _layout(r, place)}
    if "out" in call:
        shape = _result_shape(a, b)
        if r.random() < 0.1:
            shape = [*shape, 2] if r.random() < 0.5 else [2, *shape]
        names = (*OUT_LAYOUTS, *(("unaligned", "swapped", "readonly", "field") if place == "host" else ()))
        call["out"] = {"shape": shape, "dtype": call["out"], "layout": _layout(r, place, names)}
    types = {call[name]["dtype"] for name in ("a", "b", "out") if name in call}
    if len(types) > 1 or call["dtype"] or "casting" in call:
        return call  # a wrong dtype beside wrong axes: NumPy raises for the one, pyclmm for the other
    return draw_axes(r, call) if r.random() < 0.15 else call


def _moved(r, shape, core):
    """(the shape with its last *core* axes moved to random places, these places)."""
    if len(shape) < core:
        return shape, []
    places = r.sample(range(len(shape)), core)
    rest, ends = iter(shape[: len(shape) - core]), dict(zip(places, shape[len(shape) - core :], strict=True))
    moved = [ends[axis] if axis in ends else next(rest) for axis in range(len(shape))]
    return moved, [axis - len(shape) if r.random() < 0.3 else axis for axis in places]


def _entry(r, places):
    """An item of `axes`: some single axes as an int, one time in thirty a wrong item."""
    if r.random() < 1 / 30:
        return r.choice(([*places, 0], places[:-1], [7, 0], [0, 0], [], 0, None, "ab", [0.5, 1]))
    return places[0] if len(places) == 1 and r.random() < 0.7 else places


def draw_axes(r, call):
    """*call* with its core axes at random places, and the keyword that says so. Lists stand for tuples."""
    a, b = call["a"]["shape"], call["b"]["shape"]
    cores = {"a": min(2, len(a)), "b": min(2, len(b)), "out": (len(a) > 1) + (len(b) > 1)}
    items = []
    for name, core in cores.items():
        shape = call[name]["shape"] if call.get(name) else _result_shape(a, b)
        moved, places = _moved(r, shape, core)
        if call.get(name):
            call = call | {name: call[name] | {"shape": moved}}
        items.append(_entry(r, places))
    if r.random() < 0.03:
        items = items[: r.randint(0, 2)] if r.random() < 0.7 else [*items, items[0]]
    return call | {"axes": items}


def gemm_kind(r, types=BLAS_TYPES):
    """What decides which programs a call of gemm runs, apart from shapes and layouts."""
    dtype = r.choice(types)
    kind = {
        "name": "gemm",
        "dtype": dtype,
        "trans_a": r.choice("NTC"),
        "trans_b": r.choice("NTC"),
        "kernel": _kernel(r),
        "has": [n for n, often in (("c", 0.6), ("bias", 0.3), ("out", 0.5)) if r.random() < often],
    }
    if not dtype.startswith("complex"):
        kind["activation"] = r.choice(ACTIVATIONS)
    return kind


def draw_gemm(r, place, types=BLAS_TYPES, kind=None):
    """A valid call of gemm on matrices of one type."""
    call = dict(kind or gemm_kind(r, types)) | {"place": place, "seed": r.randint(0, 1 << 16)}
    dtype, has = call.pop("dtype"), call.pop("has")
    m, n, k = (r.choice(SIZES[1:]) for _ in "mnk")

    def matrix(rows, cols, names=None):
        return {"shape": [rows, cols], "dtype": dtype, "layout": _layout(r, place, names)}

    call["a"] = matrix(*((m, k) if call["trans_a"] == "N" else (k, m)))
    call["b"] = matrix(*((k, n) if call["trans_b"] == "N" else (n, k)))
    call["alpha"] = r.choice((0, 1, 0.7, -2))
    call["beta"] = r.choice((0, 1, 1.3)) if "c" in has else 0
    if "c" in has:
        call["c"] = matrix(m, n)
    if "bias" in has:
        call["bias"] = matrix(*r.choice(((1, n), (m, 1), (1, 1))))
    if "out" in has:
        call["out"] = matrix(m, n, OUT_LAYOUTS)
    return call


# ---- building --------------------------------------------------------------------------------


@dataclass
class Built:
    """An array of some layout, and the bytes that it is a view of."""

    view: np.ndarray
    root: np.ndarray


def _bytes(rng, nbytes):
    return np.frombuffer(bytearray(rng.bytes(nbytes)), np.uint8)


def _in_root(rng, shape, dtype, offset=0):
    root = _bytes(rng, offset + math.prod(shape) * dtype.itemsize)
    return Built(np.ndarray(shape, dtype, root, offset), root)


def _sliced(rng, shape, dtype):
    whole = _in_root(rng, [2 * n + 1 for n in shape], dtype)
    return Built(whole.view[(..., *(slice(1, None, 2) for _ in shape))], whole.root)


def _permuted(rng, shape, dtype):
    axes = rng.permutation(len(shape))
    whole = _in_root(rng, [shape[axis] for axis in axes], dtype)
    return Built(whole.view.transpose(np.argsort(axes)), whole.root)


def _field(rng, shape, dtype):
    record = np.dtype([("before", "u1"), ("x", dtype)])
    whole = _in_root(rng, shape, record)
    return Built(whole.view["x"], whole.root)


def empty(rng, shape, dtype, layout):
    """An array of that layout, with random bytes in and around it."""
    if layout == "F":
        built = _in_root(rng, shape[::-1], dtype)
        return Built(built.view.T, built.root)
    if layout == "reversed":
        built = _in_root(rng, shape, dtype)
        return Built(built.view[(..., *(slice(None, None, -1) for _ in shape))], built.root)
    if layout == "unaligned":
        return _in_root(rng, shape, dtype, offset=1)
    if layout == "swapped" and dtype.isbuiltin:
        return _in_root(rng, shape, dtype.newbyteorder())
    special = {"sliced": _sliced, "permuted": _permuted, "field": _field}
    return special.get(layout, _in_root)(rng, shape, dtype)


def _halves(rng, shape, dtype, least):
    """Multiples of a half whose products and sums are exact in every float type, even of one rounding."""
    real = rng.integers(least, 7, shape) / 2
    return (real + 0.5j * rng.integers(least, 7, shape) if dtype.kind == "c" else real).astype(dtype)


def _values(rng, shape, dtype, exact):
    if dtype.kind in "iu" and not exact:  # the other operand may be float16: no value overflows that
        return rng.integers(0 if dtype.kind == "u" else -8, 9, shape).astype(dtype)
    return numbers(rng, shape, dtype)


def build(spec, rng, exact, least=None):
    """The array that *spec* describes, with random elements and random bytes around them.

    The elements are multiples of a half, from half of *least* on, if that is given.
    """
    shape, dtype, layout = tuple(spec["shape"]), dtype_of(spec["dtype"]), spec["layout"]
    built = empty(rng, shape, dtype, layout)
    if least is not None:
        built.view[...] = _halves(rng, shape, dtype, least)
    else:
        built.view[...] = _values(rng, shape, dtype, exact)
    if layout == "zero" and shape and 0 not in shape:
        axis = int(rng.integers(len(shape)))
        first = built.view[tuple(slice(0, 1) if i == axis else slice(None) for i in range(len(shape)))]
        return Built(np.broadcast_to(first, shape), built.root)
    if layout in ("readonly", "zero"):
        built.view.flags.writeable = False
    return built


def operands(call):
    """The operands by name. They are the same each time."""
    rng = np.random.default_rng(call["seed"])
    names = [n for n in ("a", "b", "c", "bias", "out") if call.get(n)]
    kinds = {dtype_of(call[n]["dtype"]).kind for n in names} | {np.dtype(call.get("dtype") or "i4").kind}
    # C does not define a negative float as an unsigned integer, so NumPy's value differs between machines.
    least = None if "casting" not in call else 0 if "u" in kinds else -6
    return {n: build(call[n], rng, kinds <= set("biu"), least) for n in names}


def on_device(x, queue):
    """A pyopencl Array with the strides of *x*, in a buffer with the same bytes around the elements."""
    if x.size == 0:
        return cla.Array(queue, x.shape, x.dtype)
    span, start = host_span(x)
    memory = cla.to_device(queue, np.ascontiguousarray(span))
    offset = start * x.itemsize
    return cla.Array(queue, x.shape, x.dtype, data=memory.base_data, offset=offset, strides=x.strides)


# ---- judging ---------------------------------------------------------------------------------


def _outcome(function, *args, **kwargs):
    """(result, None) or (None, the exception)."""
    try:
        with np.errstate(all="ignore"):
            return function(*args, **kwargs), None
    except (ValueError, TypeError, pyclmm.PyclmmError) as error:
        return None, error


def _warned(function, *args, **kwargs):
    """What the function returns, and the categories of its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(*args, **kwargs)
    return result, {warning.category for warning in caught}


def _keywords(call):
    """Those of numpy.matmul besides out and dtype."""
    axes = call.get("axes")
    found = {"casting": call["casting"]} if "casting" in call else {}
    return found if axes is None else found | {"axes": [tuple(x) if type(x) is list else x for x in axes]}


def _passed(call, arrays):
    chosen = {"kernel": call["kernel"]} | ({"out": arrays["out"]} if "out" in arrays else {})
    if call.get("dtype"):
        chosen["dtype"] = dtype_of(call["dtype"])
    chosen |= _keywords(call)
    if call["name"] == "gemm":
        names = ("alpha", "beta", "trans_a", "trans_b", "activation")
        chosen |= {n: call[n] for n in names if n in call} | {"bias": arrays.get("bias")}
    return [arrays["a"], arrays["b"], *([arrays["c"]] if "c" in arrays else [])], chosen


def perform(call, built, queue):
    """Make the call with pyclmm: (result, exception). Results on the device are copied to NumPy arrays."""
    function = getattr(pyclmm, call["name"])
    if call["place"] == "host":
        args, kwargs = _passed(call, {n: x.view for n, x in built.items()})
        return _outcome(function, *args, **kwargs)
    arrays = {n: on_device(x.view, queue) for n, x in built.items()}
    args, kwargs = _passed(call, arrays)
    result, error = _outcome(function, *args, queue=queue, **kwargs)
    return brought_back(built, arrays, result), error


def brought_back(built, arrays, result):
    """The result of a call on Arrays. The whole memory of each Array is copied back to the host's."""
    for name, x in arrays.items():
        if isinstance(x, cla.Array) and x.size:
            target, _ = host_span(built[name].view)
            start = location(target) - location(built[name].root)
            there = cla.Array(x.queue, target.shape, target.dtype, data=x.base_data)
            built[name].root[start : start + target.nbytes] = there.get()
    if "out" not in built or result is None:
        return result if result is None else fetched(result)
    assert result is arrays["out"]
    return built["out"].view


def same_rest(built, other, written):
    """Nothing has changed but elements of ``out``, and those only if it was *written*."""
    for name, mine in built.items():
        theirs = other[name]
        if name == "out" and written:
            mine.view[...] = 0
            theirs.view[...] = 0
        assert np.array_equal(mine.root, theirs.root), f"bytes of {name} have changed"


def _excused(call, error):
    """Whether a kernel asked for by name refused the call, and may."""
    return isinstance(error, pyclmm.UnsupportedError) and call["kernel"] in PARTIAL


def _check_raised(call, error, numpys):
    if _excused(call, error):
        return True
    if isinstance(error, pyclmm.DTypeError) and "imaginary" in str(error):
        return True  # ml_dtypes lets NumPy drop imaginary parts; pyclmm does not
    assert (error is None) == (numpys is None), f"pyclmm: {error!r}, NumPy: {numpys!r}"
    if error is not None:
        kind = TypeError if isinstance(numpys, TypeError) else ValueError
        assert isinstance(error, kind), f"pyclmm: {error!r}, NumPy: {numpys!r}"
        assert isinstance(error, pyclmm.PyclmmError), repr(error)
        for words in KEYWORD_WORDS:
            assert (words in str(error)) or words not in str(numpys), f"pyclmm: {error!r}, NumPy: {numpys!r}"
    return error is not None


def judge_matmul(call, queue):
    """Compare a call with numpy.matmul: value, dtype, shape, flags, exception, bytes around the elements.

    Returns whether the call gave a product.
    """
    mine, other = operands(call), operands(call)
    kwargs = _keywords(call) | ({"out": other["out"].view} if "out" in other else {})
    if call.get("dtype"):
        kwargs["dtype"] = call["dtype"]
    a, b = other["a"].view, other["b"].view
    (want, numpys), numpys_warnings = _warned(_outcome, np.matmul, a, b, **kwargs)
    (got, error), my_warnings = _warned(perform, call, mine, queue)
    if _check_raised(call, error, numpys):
        same_rest(mine, operands(call), written=False)
        return False
    if a.size and b.size and want.size:
        assert my_warnings == numpys_warnings
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if not call.get("out"):
        if call["place"] == "host":
            assert type(got) is type(want)
            assert got.flags.c_contiguous or call.get("axes")
            assert got.flags.writeable == want.flags.writeable
            assert got.flags.owndata or call.get("axes")
    elif call["place"] == "host":
        assert got is mine["out"].view
    fixed = {"signature": (None, None, np.dtype(call["dtype"]))} if call.get("dtype") else {}
    computed = np.matmul.resolve_dtypes((a.dtype, b.dtype, None), casting="unsafe", **fixed)[2]
    if computed.kind in "biu" or "casting" in call:
        assert np.array_equal(got, want)
    else:
        x, y, native = a.astype(computed), b.astype(computed), got.astype(got.dtype.newbyteorder("="))
        if "axes" in call:
            x, y, native = (
                np.moveaxis(z, item, range(-np.size(item), 0))
                for z, item in zip((x, y, native), call["axes"], strict=True)
            )
        expected(x, y).over(native.shape).check(native, summed=computed)
    same_rest(mine, other, written=True)
    return True


def judge_gemm(call, queue):
    """Compare a call of gemm with NumPy's widest arithmetic. Returns whether it gave a product."""
    mine, other = operands(call), operands(call)
    got, error = perform(call, mine, queue)
    if _excused(call, error):
        same_rest(mine, other, written=False)
        return False
    assert error is None, repr(error)
    x = {n: built.view for n, built in other.items()}
    scalars = {n: call[n] for n in ("alpha", "beta", "trans_a", "trans_b")}
    want = expected(
        x["a"], x["b"], x.get("c"), bias=x.get("bias"), activation=call.get("activation"), **scalars
    )
    want.check(got)
    same_rest(mine, other, written=True)
    return True


def judge(call, queue, by=None):
    """Compare *call* with NumPy. Returns whether it gave a product; otherwise it was rightly refused.

    *by*: the function that does so, if it is another module's. Raises AssertionError with the call as JSON,
    for a file in failed_calls/.
    """
    try:
        return (by or {"matmul": judge_matmul, "gemm": judge_gemm}[call["name"]])(call, queue)
    except Exception as error:
        raise AssertionError(f"{error}\nin the call {json.dumps(call)}") from error


def problems_of_calls(monkeypatch):
    """What kernels see of each call of matmul and gemm since, in order."""
    found = []

    def noting(name):
        real = getattr(Prepared, name)

        def noted(product, *rest):
            result = real(product, *rest)
            if result is not None:
                found.append(product.executable.gemm.problem)
            return result

        monkeypatch.setattr(Prepared, name, noted)

    noting("again")
    noting("multiply")
    return found
