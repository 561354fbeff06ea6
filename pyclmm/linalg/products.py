"""The functions of pyclmm.linalg, each by one contraction; matrix_power by several products."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pyopencl.array import Array

from ..api import matmul
from ..errors import ArgumentError, DTypeError, ShapeError, UnsupportedError, amount, brief, in_short
from ..execution.kinds import kind_of
from ..execution.operands import queue_of, single
from ..problem.axes import back, last, summed_axes, vector_axes
from ..problem.contraction import Label, View
from ..problem.gemm import dense_strides
from ..problem.settings import is_reproducible
from ..problem.subscripts import Labelled, parsed
from .einsum import Taken, asked_of, common_dtype, contract, copied, counting_out, numbered, split, taken
from .identity import identity
from .signatures import (
    AxesKeywords,
    EinsumKeywords,
    Either,
    Keywords,
    Tensordot,
    Two,
    TwoInto,
    TypedKeywords,
    Vectors,
    refusing,
    typed,
)
from .views import is_contiguous, new, permuted, reshaped, viewed
from .weights import contract_weights, has_weights

if TYPE_CHECKING:
    from typing_extensions import Unpack


_VECTORS = ("x1", "x2")  # what NumPy calls the operands of vecdot, matvec and vecmat


class MatrixError(ShapeError, np.linalg.LinAlgError):
    """No matrix, no square one, or one without an inverse. Code written for numpy.linalg catches
    LinAlgError."""


@typed(TwoInto)
def dot(a: Any, b: Any, out: Any = None, **keywords: Any) -> Any:
    """The sum over the last axis of a and the last but one, or only, axis of b, as :func:`numpy.dot`. *out*
    must have the very shape and dtype of the result and be C-contiguous, as in NumPy.
    """
    return _dot(_taken(a, b, out, keywords), keywords)


@typed(Two)
def vdot(a: Any, b: Any, **keywords: Any) -> Any:
    """The sum of the products of all elements, those of a conjugated, as :func:`numpy.vdot`. Operands of one
    shape are read where they are; of different shapes both are made flat.
    """
    given = _taken(a, b, None, keywords)
    a, b = given.arrays.values()
    if a.shape != b.shape:
        queue = queue_of(given.arrays, keywords.get("queue"), keywords.get("device"))
        a, b = (_flat(x, queue, keywords.get("wait_for")) for x in (a, b))
        _check_aligned({"a": a, "b": b}, a.shape, b.shape)
    labels = tuple(range(a.ndim))
    given = given._replace(arrays={"a": a, "b": b})
    return contract(given, _labels((a, b), (labels, labels), ()), conj=(0,), **keywords)


@typed(Two)
def inner(a: Any, b: Any, **keywords: Any) -> Any:
    """The sum over the last axes of a and b, as :func:`numpy.inner`."""
    given = _taken(a, b, None, keywords)
    return contract(given, _of_last(given, 1), **keywords)


@typed(TwoInto)
def outer(a: Any, b: Any, out: Any = None, **keywords: Any) -> Any:
    """The product of each element of a with each of b, as :func:`numpy.outer`: both are read as if flat."""
    given = _taken(a, b, out, keywords)
    a, b = given.arrays.values()
    shape, target = (a.size, b.size), given.out
    if target is not None:
        if target.shape != shape:
            raise ShapeError(f"out has shape {target.shape}, but the outer product has shape {shape}")
        of_a, of_b = (dense_strides(x.shape) for x in (a, b))
        step_a, step_b = target.strides
        strides = *(step_a * each for each in of_a), *(step_b * each for each in of_b)
        target = viewed(target, View((*a.shape, *b.shape), strides))
    result = contract(given._replace(out=target), _of_axes(given), **keywords)
    return reshaped(result, shape) if target is None else result


@typed(Vectors, AxesKeywords)
def vecdot(x1: Any, x2: Any, /, out: Any = None, *, keepdims: bool = False, **keywords: Any) -> Any:
    """The sum over *axis* of x1, conjugated, times x2; the other axes broadcast, as :func:`numpy.vecdot`.
    *axis* is the last of both; *axes* names one for each. With *keepdims* the result keeps it, of length 1.
    """
    if not isinstance(keepdims, bool):
        raise DTypeError(f"keepdims is {brief(keepdims)}; 'keepdims' must be a boolean")
    return _of_vectors((x1, x2), "...i,...i->...", out, (0,), keywords, keepdims)


@typed(Vectors, AxesKeywords)
def matvec(x1: Any, x2: Any, /, out: Any = None, **keywords: Any) -> Any:
    """The matrices x1 times the vectors x2; stacks broadcast, as :func:`numpy.matvec`. *axes* says where they
    lie, such as ``[(0, 1), 0, 0]``: those of x1, x2 and the result.
    """
    return _of_vectors((x1, x2), "...ij,...j->...i", out, (), keywords)


@typed(Vectors, AxesKeywords)
def vecmat(x1: Any, x2: Any, /, out: Any = None, **keywords: Any) -> Any:
    """The vectors x1, conjugated, times the matrices x2; stacks broadcast, as :func:`numpy.vecmat`. *axes*
    says where they lie, such as ``[0, (0, 1), 0]``: those of x1, x2 and the result.
    """
    return _of_vectors((x1, x2), "...i,...ij->...j", out, (0,), keywords)


@typed(Tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2, **keywords: Any) -> Any:
    """The sum over *axes* of a and b, as :func:`numpy.tensordot`: the last and first N, or two lists."""
    given = _taken(a, b, None, keywords)
    ndims = {name: x.ndim for name, x in given.arrays.items()}
    result = contract(given, _of_axes(given, *summed_axes(ndims, axes)), **keywords)
    return np.asarray(result) if isinstance(result, np.generic) else result  # without axes too, as NumPy's


@overload
def einsum(
    subscripts: str,
    /,
    *operands: ArrayLike,
    out: NDArray[Any] | None = None,
    **keywords: Unpack[EinsumKeywords],
) -> Any: ...
@overload
def einsum(
    subscripts: str, /, *operands: Array, out: Array | None = None, **keywords: Unpack[EinsumKeywords]
) -> Array: ...
@overload
def einsum(*operands: Any, out: Any = None, mixed: Any = None, **keywords: Unpack[EinsumKeywords]) -> Any: ...


@refusing(EinsumKeywords)
def einsum(
    *operands: Any, out: Any = None, optimize: Any = True, casting: Any = "safe", **keywords: Any
) -> Any:
    """Einstein's sum over the subscripts that the result lacks, as :func:`numpy.einsum`.

    Two forms: ``einsum("ij,jk->ik", a, b)`` and ``einsum(a, [0, 1], b, [1, 2], [0, 2])``. An ellipsis stands
    for axes that broadcast, a letter that an operand repeats for its diagonal. Each step takes two operands
    and is one stacked gemm. With three or more, *optimize* says in which order: True (opt_einsum's "auto"),
    False (from left to right), a word of opt_einsum's, or what :func:`numpy.einsum_path` returned. Without
    ``dtype`` the dtype of *out* counts as those of the operands do.

    Where nothing is summed and no axis is new, the result of one operand is a view of it, writeable if that
    is. NumPy arrays that only share axes ("ij,ij->ij") are multiplied by NumPy, Arrays by a stack of 1 x 1
    products. Quantised weights are multiplied by an array, along their K: "mk,nk->mn".
    """
    xs, which = split(operands)
    if has_weights(xs):
        return contract_weights(xs, which, out, optimize, casting=casting, **keywords)
    if (rounded := keywords.pop("quantize_a", None)) is not None:
        raise ArgumentError(
            f"quantize_a is {brief(rounded)}, but no operand is quantised weights; leave it out"
        )
    names = ("a", "b") if len(xs) == 2 else numbered("operands", xs)
    given = counting_out(taken(dict(zip(names, xs, strict=True)), out, keywords), casting)
    return contract(given, parsed(which, given.shapes), optimize=optimize, casting=casting, **keywords)


@refusing(TypedKeywords)
def multi_dot(arrays: Sequence[Either], *, out: Any = None, mixed: Any = None, **keywords: Any) -> Any:
    """The product of two or more matrices in the order with the fewest operations, as
    :func:`numpy.linalg.multi_dot`.

    The first and the last may be vectors. *out* must have the very shape and dtype of the result.
    """
    if not hasattr(arrays, "__len__") or isinstance(arrays, Mapping | Set) or getattr(arrays, "ndim", 1) == 0:
        raise DTypeError(f"arrays is a {type(arrays).__name__}; pass a list of two or more arrays")
    if len(arrays) < 2:
        raise ArgumentError(f"arrays has {len(arrays)} of them; pass two or more")
    names = numbered("arrays", arrays)
    keywords["mixed"] = mixed
    given = taken(dict(zip(names, arrays, strict=True)), out, keywords)
    if len(arrays) == 2:
        return _dot(given, keywords)
    chain = [*given.arrays.values()]
    for name, x in given.arrays.items():
        if x.ndim != 2 and not (x.ndim == 1 and name in (names[0], names[-1])):
            raise MatrixError(
                f"{name} has {amount(x.ndim, 'axes')}; pass matrices, of which the first and the last "
                "may be vectors"
            )
    for (first, x), (second, y) in pairwise(given.arrays.items()):
        _check_aligned({first: x, second: y}, x.shape[-1:], y.shape[:1])
    _check_out(given)
    labels = [(i, i + 1)[-x.ndim :] if i == 0 else (i, i + 1)[: x.ndim] for i, x in enumerate(chain)]
    free = ((0,) if chain[0].ndim == 2 else ()) + ((len(chain),) if chain[-1].ndim == 2 else ())
    return contract(given, _labels(chain, labels, free), optimize="dp", **keywords)


@refusing(Keywords)
def matrix_power(a: Either, n: int, **keywords: Any) -> Any:
    """Square matrices, or stacks of them, to the power n by squaring, as :func:`numpy.linalg.matrix_power`.

    For n = 0 the identity, for n = 1 *a* itself. A negative n takes NumPy's inverse: it raises
    UnsupportedError for arrays of a device, and with ``reproducible``.
    """
    (x,) = taken({"a": a}, None, keywords).arrays.values()
    like = x
    asked_of(keywords)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise MatrixError(f"a has shape {x.shape}; pass a square matrix, or a stack of them")
    power = exponent(n)
    if power < 0:
        x, power = _inverse(x, is_reproducible(keywords.get("reproducible"))), -power
    elif kind_of(a) is not None:
        x, like = a, x  # matmul takes it by its library's rules
    if power == 0:
        return identity(like, keywords.get("queue"), keywords.get("device"))
    result = None
    while power:
        if power & 1:
            result = x if result is None else matmul(result, x, **keywords)
        power >>= 1
        x = matmul(x, x, **keywords) if power else x
    return result


def exponent(n: Any) -> int:
    """*n* as a number of Python's. Raises DTypeError if it is no integer."""
    try:
        return operator.index(n)
    except TypeError as error:
        raise DTypeError(f"n is {brief(n)}; the exponent must be an integer") from error


def _inverse(x: Any, must_be_reproducible: bool) -> NDArray[Any]:
    if not isinstance(x, np.ndarray):
        raise UnsupportedError(
            "n is negative, and pyclmm inverts no matrix on a device; pass numpy.linalg.inv of it"
        )
    if must_be_reproducible:
        raise UnsupportedError(
            "n is negative, and the bits of NumPy's inverse depend on the processor; pass an inverse as a, "
            "or reproducible=False"
        )
    try:
        return np.linalg.inv(x)
    except np.linalg.LinAlgError as error:
        raise MatrixError(f"n is negative, and a has no inverse: {in_short(error)}; pass n >= 0") from error
    except TypeError as error:
        raise DTypeError(
            f"n is negative, and NumPy inverts no {x.dtype}; pass a.astype(np.float32)"
        ) from error


def _dot(given: Taken, keywords: Mapping[str, Any]) -> Any:
    """:func:`dot` of what is *given*."""
    _check_out(given)
    return contract(given, _of_last(given, 2), **keywords)


# ---- labels -----------------------------------------------------------------------------------


def _labels(arrays: Sequence[Any], operands: Sequence[tuple[Label, ...]], out: tuple[Label, ...]) -> Labelled:
    lengths = {
        label: length
        for labels, x in zip(operands, arrays, strict=True)
        for label, length in zip(labels, x.shape, strict=True)
    }
    return Labelled(tuple(operands), out, lengths)


def _of_axes(given: Taken, of_a: Sequence[int] = (), of_b: Sequence[int] = ()) -> Labelled:
    """The labels of a sum over axes *of_a* and *of_b*, pair by pair; none is the outer product."""
    a, b = given.arrays.values()
    _check_aligned(given.arrays, [a.shape[i] for i in of_a], [b.shape[j] for j in of_b])
    first = tuple(range(a.ndim))
    second = tuple(of_a[of_b.index(axis)] if axis in of_b else a.ndim + axis for axis in range(b.ndim))
    free = (*(x for x in first if x not in of_a), *(x for x in second if x >= a.ndim))
    return _labels((a, b), (first, second), free)


def _of_last(given: Taken, place: int) -> Labelled:
    """The labels of a sum over the last axis of a and that axis of b, or its only one, that is at *place*
    from the end; without axes a product."""
    a, b = given.arrays.values()
    if not (a.ndim and b.ndim):
        return _of_axes(given)
    return _of_axes(given, [a.ndim - 1], [max(0, b.ndim - place)])


def _of_vectors(
    operands: tuple[Any, Any],
    words: str,
    out: Any,
    conj: tuple[int, ...],
    keywords: dict[str, Any],
    keepdims: bool = False,
) -> Any:
    """A product of stacks with vectors, by the subscripts *words*, whose core axes do not broadcast. The axes
    that ``axes`` or ``axis`` names are put last in views, and the result is made in its own order.
    """
    axes, axis = keywords.pop("axes", None), keywords.pop("axis", None)
    given = _taken(*operands, out, keywords, _VECTORS)
    x1, x2 = given.arrays.values()
    first, second, result = (len(term) - 3 for term in words.replace("->", ",").split(","))
    cores = vector_axes((first, second, result), (x1.ndim, x2.ndim), axes, axis, keepdims)
    xs = [permuted(x, last(x.ndim, core)) for x, core in zip((x1, x2), cores, strict=False)]
    _check_cores(xs, words)
    which = parsed(words, [x.shape for x in xs])
    given = given._replace(arrays=dict(zip(_VECTORS, xs, strict=True)))
    if not keepdims:
        which = replace(which, out=tuple(which.out[i] for i in back(len(which.out), cores[2])))
        return contract(given, which, conj=conj, **keywords)
    (place,) = cores[2]
    computed = contract(given._replace(out=_without(given.out, place)), which, conj=conj, **keywords)
    if given.out is not None:
        return computed
    return reshaped(computed, (*computed.shape[:place], 1, *computed.shape[place:]))


def _check_cores(xs: Sequence[Any], words: str) -> None:
    """Raise ShapeError unless the last axes of *xs* have equal lengths where *words* has equal letters."""
    lengths: dict[str, int] = {}
    for name, x, term in zip(_VECTORS, xs, words.partition("->")[0].split(","), strict=True):
        core = term.removeprefix("...")
        for letter, length in zip(core, x.shape[x.ndim - len(core) :], strict=True):
            if lengths.setdefault(letter, length) != length:
                raise ShapeError(
                    f"{name} has a mismatch in its core dimension: {length}, and {lengths[letter]} in x1"
                )


def _without(out: Any, place: int) -> Any:
    """A view of *out*, if there is one, without its axis *place*, which has the length 1."""
    if out is None:
        return None
    if not (place < out.ndim and out.shape[place] == 1):
        raise ShapeError(f"out has shape {out.shape}; with keepdims it has the length 1 in axis {place}")
    return permuted(out, [i for i in range(out.ndim) if i != place])


# ---- arrays -----------------------------------------------------------------------------------


def _taken(a: Any, b: Any, out: Any, keywords: dict[str, Any], names: tuple[str, str] = ("a", "b")) -> Taken:
    """Two operands, which errors call by their *names*, and *out*, which may be in a tuple of one."""
    return taken(
        dict(zip(names, (a, b), strict=True)), single(out) if isinstance(out, tuple) else out, keywords
    )


def _check_out(given: Taken) -> None:
    """Raise ArgumentError unless ``out`` is what numpy.dot would return."""
    out = given.out
    if out is None:
        return
    dtype = common_dtype(given, "same_kind")
    if out.dtype != dtype or not is_contiguous(out):
        raise ArgumentError(
            f"out has dtype {out.dtype} and strides {out.strides}; pass a C-contiguous array of dtype "
            f"{dtype}, the result's, or use matmul"
        )


def _check_aligned(two: Mapping[str, Any], of_a: Sequence[int], of_b: Sequence[int]) -> None:
    """Raise ShapeError unless the axes that are summed of *two* arrays, by their names, have the same
    lengths, *of_a* and *of_b*."""
    for left, right in zip(of_a, of_b, strict=True):
        if left != right:
            a, b = (f"{tuple(x.shape)} of {name}" for name, x in two.items())
            raise ShapeError(
                f"shapes {a} and {b} not aligned: a shape-mismatch for sum, {left} and {right}; pass axes "
                "of equal lengths"
            )


def _flat(x: Any, queue: Any, wait_for: Any) -> Any:
    """*x* with one axis: a view if it is C-contiguous, else a copy, made by *queue* after *wait_for*."""
    if isinstance(x, np.ndarray):
        return x.reshape(-1)
    if not is_contiguous(x):
        x = copied(x, new(x.shape, x.dtype, x, queue), queue=queue, wait_for=wait_for)
    return reshaped(x, (x.size,))
