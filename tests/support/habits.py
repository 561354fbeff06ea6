"""Operands for functions of NumPy's: of any layout, on the host and on the device; results on the host."""

import numpy as np
import pyopencl.array as cla

from pyclmm.opencl import arrays
from tests.support.calls import empty, on_device

LAYOUTS = ("C", "F", "sliced", "reversed", "broadcast", "permuted")


def laid_out(x, layout, r):
    """An array equal to *x* with other strides; "broadcast" repeats its first elements along an axis."""
    if x.ndim == 0 or layout == "C":
        return x
    if layout == "broadcast":
        axis = r.randrange(x.ndim)
        return np.broadcast_to(x[(slice(None),) * axis + (slice(1),)], x.shape)
    view = empty(np.random.default_rng(r.randrange(1 << 16)), x.shape, x.dtype, layout).view
    view[...] = x
    return view


def drawn(r, shape, dtype="f4", layout=None):
    """An array of small whole numbers, whose products are exact in every dtype."""
    rng = np.random.default_rng(r.randrange(1 << 16))
    dtype = np.dtype(dtype)
    real = rng.integers(0 if dtype.kind in "bu" else -3, 4, shape)
    x = np.asarray(real + 1j * rng.integers(-3, 4, shape) if dtype.kind == "c" else real).astype(dtype)
    return laid_out(x, layout or r.choice(LAYOUTS), r)


def placed(x, place, queue):
    """*x* itself, or an Array with its strides."""
    if place == "host":
        return x
    return on_device(x, queue) if x.ndim else cla.to_device(queue, x)


def fetched(x):
    """A result as a NumPy array or scalar."""
    return arrays.fetched(x) if isinstance(x, cla.Array) else x


def same(got, want):
    """Whether a result has NumPy's values, dtype and shape, and on the host its kind: array or scalar."""
    assert isinstance(got, cla.Array) or type(got) is type(want), f"{type(got)}, NumPy: {type(want)}"
    got = fetched(got)
    assert got.dtype == want.dtype, f"{got.dtype}, NumPy: {want.dtype}"
    assert np.shape(got) == np.shape(want), f"{np.shape(got)}, NumPy: {np.shape(want)}"
    assert np.array_equal(got, want), f"{got}, NumPy: {want}"
