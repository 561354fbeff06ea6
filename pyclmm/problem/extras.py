"""EXTRAS, the table of operands besides A and B: shapes, fields of GemmProblem, the formula. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..errors import ShapeError

Array = np.ndarray[Any, np.dtype[Any]]
Axes = tuple[tuple[int, ...], tuple[int, ...]]  # lengths and strides
BIASES = ("none", "row", "column")  # "row": a value for each column; "column": a value for each row


class ResultShape(NamedTuple):
    """The shape of a product: ``full`` has the axes that a 1-D A (rows) and a 1-D B (columns) lack."""

    full: tuple[int, ...]
    lacks_rows: bool
    lacks_columns: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """The user's."""
        *batch, m, n = self.full
        return (*batch, *([] if self.lacks_rows else [m]), *([] if self.lacks_columns else [n]))

    def expanded(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> Axes:
        """The axes of an array of the user's shape, with those that are lacking put back."""
        lengths, steps = list(shape), list(strides)
        if self.lacks_columns:
            lengths.append(1)
            steps.append(0)
        if self.lacks_rows:
            lengths.insert(-1, 1)
            steps.insert(-1, 0)
        return tuple(lengths), tuple(steps)


@dataclass(frozen=True)
class StridedMatrix:
    """Element type, rows x cols, and the strides from row to row and from column to column, in elements."""

    type: str
    rows: int
    cols: int
    rs: int
    cs: int


@dataclass(frozen=True, kw_only=True)
class ExtraFields:
    """The fields of a GemmProblem that extras have. The elements of an extra called x are of ``x_type``."""

    has_c: bool = False
    c_type: str = "float32"
    c_strides: tuple[int, int] = (0, 0)
    bias: str = "none"
    bias_type: str = "float32"
    bias_stride: int = 0


class Extra(ABC):
    """An operand besides A and B, by one name in calls, launches and EXTRAS.

    From alpha op(A) op(B) on, each extra that is there changes the value, in the order of EXTRAS, to
    ``combine(value, x)``, or ``combine(value, beta * x)``. If it is ``of_columns``, the product is never
    computed as its transposed, of which these would be rows.
    """

    combine: np.ufunc = np.add
    is_times_beta = False
    of_columns = False

    @abstractmethod
    def fitted(self, shape: tuple[int, ...], strides: tuple[int, ...], result: ResultShape) -> Axes:
        """The axes of an array of that *shape*, two or more. Raises ShapeError if it does not fit."""

    @abstractmethod
    def fields(self, x: StridedMatrix | None, out_type: str) -> dict[str, Any]:
        """Its fields of the product that reads *x*, or None, and writes elements of *out_type*."""

    def transposed(self, problem: ExtraFields) -> dict[str, Any]:
        """Its fields of the transposed product, those that differ."""
        return {}

    @abstractmethod
    def is_read(self, problem: ExtraFields) -> bool:
        """Whether kernels read it."""

    @abstractmethod
    def stored(self, problem: ExtraFields, m: int, n: int) -> Axes:
        """How it lies in memory for a result of *m* x *n*, without a stack, in elements."""

    def spread(self, problem: ExtraFields, x: Array) -> Array:
        """*x*, of that shape, so that it broadcasts to the result."""
        return x


class _MatrixC(Extra):
    """C, of the result's shape. It may be a stack, and ``out`` too."""

    is_times_beta = True

    def fitted(self, shape: tuple[int, ...], strides: tuple[int, ...], result: ResultShape) -> Axes:
        if shape != result.shape:
            raise ShapeError(f"c has shape {shape}, but the result has shape {result.shape}")
        return result.expanded(shape, strides)

    def fields(self, x: StridedMatrix | None, out_type: str) -> dict[str, Any]:
        if x is None:
            return {"c_type": out_type}
        return {"has_c": True, "c_type": x.type, "c_strides": (x.rs, x.cs)}

    def transposed(self, problem: ExtraFields) -> dict[str, Any]:
        return {"c_strides": problem.c_strides[::-1]}

    def is_read(self, problem: ExtraFields) -> bool:
        return problem.has_c

    def stored(self, problem: ExtraFields, m: int, n: int) -> Axes:
        return (m, n), problem.c_strides


class _Bias(Extra):
    """A value for each column, or for each row."""

    def fitted(self, shape: tuple[int, ...], strides: tuple[int, ...], result: ResultShape) -> Axes:
        m, n = result.full[-2:]
        axes, missing = (shape, strides), 2 - len(shape)
        if missing == 1 and result.lacks_columns:
            axes = (*shape, 1), (*strides, 0)
        elif missing > 0:
            axes = (1,) * missing + shape, (0,) * missing + strides
        if axes[0] not in ((1, n), (m, 1), (1, 1)):
            raise ShapeError(
                f"bias has shape {shape}; for a result of {m} x {n} it must be ({n},) or "
                f"(1, {n}), a value for each column, or ({m}, 1), a value for each row"
            )
        return axes

    def fields(self, x: StridedMatrix | None, out_type: str) -> dict[str, Any]:
        if x is None:
            return {"bias_type": out_type}
        kind, stride = ("row", x.cs) if x.rows == 1 else ("column", x.rs)
        return {"bias": kind, "bias_type": x.type, "bias_stride": 0 if x.rows == x.cols == 1 else stride}

    def transposed(self, problem: ExtraFields) -> dict[str, Any]:
        return {"bias": {"row": "column", "column": "row"}.get(problem.bias, problem.bias)}

    def is_read(self, problem: ExtraFields) -> bool:
        return problem.bias != "none"

    def stored(self, problem: ExtraFields, m: int, n: int) -> Axes:
        return (n if problem.bias == "row" else m,), (problem.bias_stride,)

    def spread(self, problem: ExtraFields, x: Array) -> Array:
        return x if problem.bias == "row" else x[:, None]


EXTRAS = {"c": _MatrixC(), "bias": _Bias()}
