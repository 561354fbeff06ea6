"""Ragged products: rows that are divided among products by sizes on the device, in canonical form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..errors import ArgumentError, DTypeError, ShapeError, UnsupportedError, amount
from .canonical import checked_gemm
from .dtypes import dtype_of
from .gemm import MAX_GROUPS, SIZE_TYPES, Gemm, Operand, Ragged, alignment, dense_strides

SIZES = "group_sizes"  # the operand's name


def ragged_gemm(operands: Mapping[str, Operand], out_is_copied: bool, **ways: Any) -> Gemm:
    """The checked product of a (M, K) and b (groups, K, N) whose rows of a are divided by SIZES, or of
    a (M, K) and b (K, N) of which K is. *ways*: keywords of :func:`checked_gemm`, which it raises as.
    """
    a, b, sizes = (operands[name] for name in ("a", "b", SIZES))
    out, is_in_place = operands.get("out"), ways.get("host_align") is None  # the host copies what has gaps
    if is_in_place and len(sizes.shape) == 1 < sizes.shape[0] and sizes.strides != (sizes.dtype.itemsize,):
        raise ArgumentError(f"{SIZES} has strides {sizes.strides} on a device; pass a contiguous copy")
    shape = ragged_shape(a, b, sizes, -2 if ways.get("b_format") else -1)
    if out is not None and out.shape != shape:
        raise ShapeError(f"out has shape {out.shape}, but the result has shape {shape}")
    groups, divides_rows = sizes.shape[0], len(b.shape) == 3
    target = out
    if out is not None:  # as one product writes it
        of_one = ((groups, *out.shape), (0, *out.strides)) if divides_rows else (shape[1:], out.strides[1:])
        target = replace(out, shape=of_one[0], strides=of_one[1])
    gemm = checked_gemm(a, b, out=target, out_is_copied=out_is_copied, **ways)
    if gemm.swapped:
        return ragged_gemm(operands, True, **ways)
    problem, size_type = gemm.problem, sizes.dtype.name
    m, n = problem.m, problem.n
    if divides_rows:
        ragged = Ragged("m", groups, problem.batch_strides.b[0], size_type)
    else:
        apart = m * n if out is None or gemm.out_copy else out.strides[0] // out.dtype.itemsize
        ragged = Ragged("k", groups, apart, size_type)
        itemsize = dtype_of(problem.out_type).itemsize
        problem = replace(problem, out_align=alignment(problem.out_align, abs(apart) * itemsize))
    along_a, along_b = ragged.begins_along(problem.trans_a, problem.trans_b)
    problem = replace(
        problem,
        a_align=dtype_of(problem.a_type).itemsize if along_a else problem.a_align,
        b_align=dtype_of(problem.b_type).itemsize if along_b else problem.b_align,
        batch_shape=(),
        batch_strides=((),) * 4,
        ragged=ragged,
    )
    if not groups:  # nobody multiplies the rows
        problem = replace(problem, ragged=None, k=0)
    back = gemm.out_copy
    if back is not None and out is not None:  # that of one product
        steps = tuple(stride // out.dtype.itemsize for stride in out.strides)
        back = replace(back, shape=shape, source_strides=dense_strides(shape), target_strides=steps)
    return replace(gemm, problem=problem, shape=shape, out_copy=back)


def ragged_shape(a: Operand, b: Operand, sizes: Operand, columns: int = -1) -> tuple[int, ...]:
    """The result's shape; *columns* is the axis of b that has them. Raises as :func:`ragged_gemm` does."""
    if len(a.shape) != 2 or len(b.shape) not in (2, 3):
        raise ShapeError(
            f"a has shape {a.shape} and b {b.shape}; pass a (rows, K) and b (groups, K, N), or, to divide K, "
            "a (M, K) and b (K, N)"
        )
    if len(sizes.shape) != 1:
        raise ShapeError(f"{SIZES} has shape {sizes.shape}; pass a 1-D array with a size for each group")
    if sizes.dtype.name not in SIZE_TYPES:
        raise DTypeError(f"{SIZES} has dtype {sizes.dtype}; pass whole numbers, of {' or '.join(SIZE_TYPES)}")
    groups = sizes.shape[0]
    if groups > MAX_GROUPS:
        raise UnsupportedError(f"{SIZES} has {groups} groups; at most {MAX_GROUPS} are offered in one call")
    if len(b.shape) == 2:
        return groups, a.shape[0], b.shape[columns]
    if b.shape[0] != groups:
        raise ShapeError(
            f"b has {b.shape[0]} matrices and {SIZES} {amount(groups, 'sizes')}; pass a size for each"
        )
    return a.shape[0], b.shape[columns]
