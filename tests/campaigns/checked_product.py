"""A user's product in a new process without kept verdicts: what the self-check says, and whether it is wrong.

python -m tests.campaigns.checked_product JSON       prints {"reason": str | null, "wrong": bool}
python -m tests.campaigns.checked_product KERNEL     prints what `pyclmm selftest --full` finds, or null
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyopencl as cl
import pyopencl.array as cla

import pyclmm
from pyclmm.checks import reference
from pyclmm.errors import UnsupportedError
from pyclmm.formats import format_named
from pyclmm.opencl.devices import default_device, device_info
from pyclmm.opencl.queues import default_queue
from pyclmm.problem.dtypes import dtype_of
from pyclmm.problem.gemm import ACTIVATIONS
from pyclmm.quantized import QuantizedArray
from pyclmm.tools import selftest

Array = npt.NDArray[Any]


def answer(
    kernel: str,
    shape: tuple[int, int, int] = (70, 60, 50),
    dtype: str = "float32",
    stack: int = 0,
    values: str = "integers",
    alpha: Any = 1,
    beta: float = 0,
    c_layout: str = "",
    bias: str = "",
    activation: str | None = None,
    trans_a: bool = False,
    trans_b: bool = False,
    weights: str = "",
    views: bool = False,
    out: str = "",
    queue: cl.CommandQueue | None = None,
    only_checked: bool = False,
) -> dict[str, Any]:
    """Multiply with the self-check, and without it if that refuses the kernel and not *only_checked*.

    *values*: "integers", "range", "reals" or "special". *weights*: the format of quantised weights in B.
    """
    rng, kind = np.random.default_rng(5), dtype_of(dtype)
    m, n, k = shape
    batch = (stack,) if stack else ()
    shapes = ((*batch, m, k), (*batch, n, k) if trans_b else (*batch, k, n))
    a, b = (_numbers(rng, lengths, kind, values) for lengths in shapes)
    place = partial(_on_device, queue or default_queue()) if views else _on_host
    if views:
        a, b, m = place(a, np.s_[2:, 1:]), place(b, np.s_[1:, :]), m - 2
    a = np.asfortranarray(a) if trans_a else a
    b = np.swapaxes(b, -1, -2) if trans_b else b
    if weights:
        form = format_named(weights)
        b = QuantizedArray.of_rows(form.drawn(rng, n, k), form, k).T
    options: dict[str, Any] = {"alpha": complex(*alpha) if isinstance(alpha, list) else alpha}
    options |= {"kernel": kernel, "activation": activation, "queue": queue}
    options |= {"dtype": dtype_of(out)} if out else {}
    result = dtype_of(out or dtype)
    operands: list[Any] = [a, b]
    if beta:
        c = _numbers(rng, (*batch, m + 2, n + 5), result, "integers")
        c = np.asfortranarray(c) if c_layout == "columns" else c
        operands.append(place(c, _WHERE[c_layout or "padded"]))
        options["beta"] = beta
    if bias:
        row = _numbers(rng, (2 * (n if bias == "gaps" else m) + 3,), result, "integers")
        options["bias"] = place(row, np.s_[3::2]) if bias == "gaps" else row[3 : 3 + m, None]
    if views:
        options["out"] = place(np.zeros((m, n + 7), result), np.s_[:, :n])
    try:
        got, reason = pyclmm.gemm(*operands, **options), None
    except UnsupportedError as error:
        reason = str(error)
        if only_checked:
            return {"reason": reason}
        os.environ["PYCLMM_SELFCHECK"] = "off"
        got = pyclmm.gemm(*operands, **options)
    return {"reason": reason, "wrong": not _close(_host(got, result), _expected(operands, options, result))}


def _numbers(rng: np.random.Generator, shape: tuple[int, ...], kind: np.dtype[Any], values: str) -> Array:
    if values == "range":
        info = np.iinfo(kind)
        return rng.integers(info.min, info.max, shape, kind, endpoint=True)
    x = rng.standard_normal(shape) if values == "reals" else rng.integers(-3, 4, shape)
    x = np.abs(x) if kind.kind == "u" else x
    if values == "special":
        x = x.astype(np.float64)
        x[..., 3, 2], x[..., 5, 4] = np.inf, np.nan
    if kind.kind == "c":
        x = x + 1j * rng.integers(-3, 4, shape)
    return np.asarray(x.astype(kind))


# C within a larger array.
_WHERE = {"columns": np.s_[2:, 5:], "padded": np.s_[..., 2:, 3:-2], "reversed": np.s_[:1:-1, 5:]}


_WHOLES: dict[int, tuple[Any, ...]] = {}  # the Array of which another is a view, and where; by the view's id


def _on_host(x: Array, where: Any) -> Array:
    return np.asarray(x[where])


def _on_device(queue: cl.CommandQueue, x: Array, where: Any) -> Any:
    """A view that begins behind the start of its buffer."""
    whole = cla.to_device(queue, x)
    view = whole[where]
    _WHOLES[id(view)] = view, whole, where
    return view


def _host(x: Any, dtype: np.dtype[Any]) -> Array:
    """*x* on the host. Weights as they are multiplied, in *dtype*."""
    if isinstance(x, QuantizedArray):
        return x.dequantize(dtype)
    if not isinstance(x, cla.Array):
        return np.asarray(x)
    _, whole, where = _WHOLES[id(x)]
    return np.asarray(whole.get()[where])


def _expected(operands: list[Any], options: dict[str, Any], result: np.dtype[Any]) -> Array:
    whole = result.kind in "iu"
    wide: Any = np.int64 if whole else np.complex128 if result.kind == "c" else np.float64
    a, b, *c = (_host(x, operands[0].dtype).astype(wide) for x in operands)
    with np.errstate(all="ignore"):
        value: Array = wide(options["alpha"]) * np.einsum("...ik,...kj->...ij", a, b)
        value = value + wide(options.get("beta", 0)) * c[0] if c else value
        value = value + _host(options["bias"], result).astype(wide) if "bias" in options else value
        value = (
            value if whole else reference.activate(value, ACTIVATIONS.index(options["activation"] or "none"))
        )
        return np.asarray(value.astype(result))


def _close(got: Array, expected: Array) -> bool:
    if got.dtype.kind in "iu":
        return np.array_equal(got, expected)
    parts = np.complex128 if got.dtype.kind == "c" else np.float64
    eps = 2 * reference.unit_roundoff(got.dtype)
    tolerance = (
        {"rtol": eps / 3, "atol": 0.0} if got.dtype.itemsize == 2 else {"rtol": 30 * eps, "atol": 60 * eps}
    )
    return bool(np.allclose(got.astype(parts), expected.astype(parts), equal_nan=True, **tolerance))


def selftested(kernel: str) -> str | None:
    """The first law that *kernel* breaks in `pyclmm selftest --full`."""
    request = {"device": device_info(default_device()).identity, "kernel": kernel, "full": True}
    request |= {"case": None, "seconds": 300.0}
    found = (said for said in selftest.answers(request) if said.get("verdict") == selftest.WRONG)
    return next((f"{said['law']}: {said['reason']}" for said in found), None)


if __name__ == "__main__":
    asked = sys.argv[1]
    print(json.dumps(answer(**json.loads(asked)) if asked.startswith("{") else selftested(asked)))
