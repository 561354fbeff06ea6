"""GEMM in NumPy's widest arithmetic, with the scale against which rounding errors are measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.special

from pyclmm.checks import reference

# Builtins (erf, tanh, exp) add an error of several units of roundoff to that of the sum.
ACTIVATION_LIMIT = 32.0


def operated(x, trans):
    """op(x), as a view of NumPy's."""
    if trans == "N" or x.ndim == 1:
        return x.conj() if trans == "C" else x
    x = x.swapaxes(-1, -2)
    return x.conj() if trans == "C" else x


def activated(x, name):
    """The activation *name* of a float64 or longdouble array."""
    with np.errstate(over="ignore"):
        return {
            None: lambda: x,
            "relu": lambda: np.maximum(x, 0),
            "leaky_relu": lambda: np.where(x < 0, 0.01 * x, x),
            "gelu": lambda: 0.5 * x * scipy.special.erfc((-x / np.sqrt(2)).astype(np.float64)),
            "gelu_tanh": lambda: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
            "sigmoid": lambda: 1 / (1 + np.exp(-x)),
            "tanh": lambda: np.tanh(x),
            "silu": lambda: x / (1 + np.exp(-x)),
        }[name]()


@dataclass
class Expected:
    """The right result, the sum of the magnitudes of its terms, and the limit of the error ratio."""

    value: np.ndarray
    scale: np.ndarray
    limit: float

    def over(self, shape):
        """The same, broadcast to *shape*."""
        return Expected(np.broadcast_to(self.value, shape), np.broadcast_to(self.scale, shape), self.limit)

    def ratio(self, got, summed=None):
        """The largest error of *got*, in units of roundoff of its sums; infinite for a wrong shape.

        *summed* is the dtype of the sums if *got* has another.
        """
        if got.shape != self.value.shape:
            return np.inf
        if got.dtype.kind in "biu":
            return 0.0 if np.array_equal(got, self.value) else np.inf
        coarser = max(got.dtype, summed or got.dtype, key=reference.unit_roundoff)  # it rounded the sums
        u = min(reference.unit_roundoff(summed or got.dtype), reference.unit_roundoff(np.float32))
        wide = self.value.dtype  # out may be complex though the product is real
        wide = np.result_type(wide, np.complex64) if got.dtype.kind == "c" else wide
        error = abs(got.astype(wide) - self.value)
        rounded = reference.unit_roundoff(coarser) > u
        error = np.maximum(error - (reference.rounding(self.value, coarser) if rounded else 0), 0)
        tiny = np.finfo(np.float32 if u > 1e-10 else np.float64).tiny
        return float(np.max(error / (u * self.scale + tiny), initial=0.0))

    def check(self, got, about="", summed=None):
        found = self.ratio(got, summed)
        assert found < self.limit, f"{about}: error ratio {found:.3g}, limit {self.limit:g}"


def _wide(x, kinds):
    if "c" in kinds:
        return x.astype(np.clongdouble if "g" in kinds else np.complex128)
    return x.astype(np.longdouble if "g" in kinds else np.float64)


def gemm(a, b, c=None, *, alpha=1, beta=0, trans_a="N", trans_b="N", bias=None, activation=None):
    """activation(alpha op(a) op(b) + beta c + bias) and its scale. With beta 0, c is not read."""
    a, b = operated(a, trans_a), operated(b, trans_b)
    k = a.shape[-1]
    if np.result_type(a, b).kind in "biu":
        value = np.matmul(a, b)
        value = value if alpha == 1 else value * value.dtype.type(alpha)
        value = value + (c * value.dtype.type(beta) if beta else 0) + (bias if bias is not None else 0)
        return Expected(value.astype(np.matmul(a, b).dtype), abs(value), 1)
    result = np.result_type(a, b)
    kinds = ("c" if result.kind == "c" else "") + ("g" if result in (np.float64, np.complex128) else "")
    a, b = _wide(a, kinds), _wide(b, kinds)
    value, scale = alpha * np.matmul(a, b), abs(alpha) * np.matmul(abs(a), abs(b))
    if beta:
        value, scale = value + beta * _wide(c, kinds), scale + abs(beta * _wide(c, kinds))
    if bias is not None:
        value, scale = value + _wide(bias, kinds), scale + abs(_wide(bias, kinds))
    if activation is None:
        return Expected(value, scale, reference.limit(k))
    result = activated(value, activation)
    return Expected(result, scale + abs(value) + abs(result), ACTIVATION_LIMIT)


def real_lines(a, b):
    """Lines along K of the real product that a complex one is (cl/nvidia/split.cl): A' and B'^T."""
    if a.dtype.kind != "c":
        return a, b.T
    left = np.stack([a.real, a.imag], -1).reshape(len(a), -1)
    re, im = b.real.T, b.imag.T
    right = np.stack([np.stack([re, -im], -1), np.stack([im, re], -1)], 1)
    return left, right.reshape(2 * b.shape[1], -1)


def one_by_one(a, b):
    """Each element's products added one after the other, as float32 FMA's are but for one rounding more;
    complex ones by real and imaginary parts, of which each has two products a step.
    """
    with np.errstate(all="ignore"):
        if a.dtype.kind == "c":
            left, right = real_lines(a, b)
            return one_by_one(left, right.T).copy().view(a.dtype)
        return sum(a[:, i : i + 1] * b[i] for i in range(a.shape[1]))
