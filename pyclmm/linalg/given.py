"""What a caller gives to a function of linalg, and gets back: arrays of one kind in, one of that kind out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from numbers import Number
from typing import Any, cast

import numpy as np
import pyopencl as cl

from ..cuda.arrays import CudaArray
from ..execution import kinds
from ..execution.operands import Operands, alike
from ..problem.words import Mixed
from ..raising import Parameters, Returned


def taken(
    given: Mapping[str, Any], mixed: Mixed, queue: cl.CommandQueue | None, dtype: Any
) -> tuple[Operands, Any]:
    """The operands *given* as arrays of one kind, and the dtype to compute in.

    That is *dtype*, or where it is None the one of their library's own rule, if it has one. Raises as matmul
    does.
    """
    found = alike(given, mixed, queue)
    own = {kinds.computed_dtype({"a": x, "b": x}) for name, x in given.items() if name != "out"}
    return found, own.pop() if dtype is None and len(own) == 1 else dtype


def handing_back(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """*function*, whose result becomes an array of the kind that is given, or is the caller's own ``out``."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: Parameters.args, **keywords: Parameters.kwargs) -> Returned:
        result = function(*args, **keywords)
        given = [x for name, x in keywords.items() if name != "out"]
        first = next((x for x in _flat([*args, *given]) if kinds.kind_of(x) is not None), None)
        if first is None:
            return result
        arguments = signature.bind(*args, **keywords).arguments
        out = arguments.get("out", keywords.get("out"))
        if out is not None:
            return cast("Returned", out[0] if isinstance(out, tuple) else out)
        is_ours = isinstance(result, np.ndarray | np.generic | CudaArray)
        return cast("Returned", kinds.back({"a": first}, result)) if is_ours else result

    return call


def _flat(arguments: Sequence[Any]) -> Iterator[Any]:
    """*arguments*, and what is in lists of arrays among them."""
    for x in arguments:
        if not isinstance(x, list | tuple):
            yield x
        elif x and not isinstance(x[0], Number | list | tuple):  # not the numbers of one array
            yield from x
