"""Which element types there are, what a product of two of them is, and what it is summed in.

NumPy is the specification: :func:`result_dtype` asks ``numpy.matmul`` itself. An element type is
known to kernels by its NumPy name, which is also the word that OpenCL C sources use (cl/include/types.h).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..errors import DTypeError

try:
    import ml_dtypes

    BFLOAT16: np.dtype[Any] | None = np.dtype(ml_dtypes.bfloat16)
except ImportError:  # bfloat16 is an extra: NumPy has no such type of its own
    BFLOAT16 = None

# Element type -> the type its products are summed in. Integers are summed unsigned, because only
# unsigned overflow is defined in C; modulo 2^n both are the same bits. The narrow floats are summed
# in float32, as NumPy sums float16.
ACCUMULATOR = {
    "bool": "uint32",
    "int8": "uint32",
    "int16": "uint32",
    "int32": "uint32",
    "int64": "uint64",
    "uint8": "uint32",
    "uint16": "uint32",
    "uint32": "uint32",
    "uint64": "uint64",
    "float16": "float32",
    "bfloat16": "float32",
    "float32": "float32",
    "float64": "float64",
    "complex64": "complex64",
    "complex128": "complex128",
}
ELEMENT_TYPES = tuple(ACCUMULATOR)
COMPLEX = ("complex64", "complex128")
# Results that may be rounded once more as they are stored: (computed in, stored as). Everything
# else is stored in the type it was computed in and converted afterwards, as NumPy does.
_NARROWING_STORES = {
    "float32": ("float16", "bfloat16", "float32", "float64"),
    "float64": ("float32", "float64"),
    "complex64": COMPLEX,
    "complex128": COMPLEX,
}


def type_name(dtype: np.dtype[Any], argument: str) -> str:
    """The element type's name; DTypeError names *argument* where there is no kernel for it."""
    name = dtype.name
    if (name in ACCUMULATOR and dtype.kind != "V") or dtype == BFLOAT16:
        return name
    raise DTypeError(
        f"{argument} has dtype {dtype}, which OpenCL devices cannot multiply; "
        f"convert it to one of {', '.join(ELEMENT_TYPES)}"
    )


def dtype_of(name: str) -> np.dtype[Any]:
    """The NumPy dtype of an element type's name."""
    if name == "bfloat16":
        if BFLOAT16 is None:
            raise DTypeError('bfloat16 needs ml_dtypes: pip install "pyclmm[bfloat16]"')
        return BFLOAT16
    return np.dtype(name)


def check_cast(source: np.dtype[Any], target: np.dtype[Any], argument: str) -> None:
    """Raise DTypeError unless NumPy's rule "same_kind" casts *source* to *target*."""
    if not np.can_cast(source, target, "same_kind"):
        raise DTypeError(f"{argument}: cannot cast {source} to {target} by the rule 'same_kind'")
    if source.kind == "c" and target.kind != "c":  # ml_dtypes' types let NumPy do that
        raise DTypeError(f"{argument}: casting {source} to {target} would drop the imaginary part")


def result_dtype(
    a: np.dtype[Any], b: np.dtype[Any], dtype: DTypeLike | None, out: np.dtype[Any] | None
) -> np.dtype[Any]:
    """The dtype that ``numpy.matmul(a, b, dtype=dtype)`` computes in.

    *out* is checked against it by NumPy's "same_kind" rule. bfloat16, for which NumPy has no
    matmul, gives float32 as ``numpy.matmul`` does, and bfloat16 where ``dtype=`` asks for it.
    Raises DTypeError where numpy.matmul raises TypeError, and for types OpenCL does not have.
    """
    wanted = None if dtype is None else np.dtype(dtype)
    for argument, given in (("a", a), ("b", b), ("dtype", wanted), ("out", out)):
        if given is not None:
            type_name(given, argument)
    try:
        if wanted is not None and wanted == BFLOAT16:
            return _checked_bfloat16(a, b, wanted, out)
        fixed: dict[str, Any] = {} if wanted is None else {"signature": (None, None, wanted)}
        computed = np.matmul.resolve_dtypes((a, b, out), casting="same_kind", **fixed)[2]
    except TypeError as error:
        raise DTypeError(f"a has dtype {a}, b has dtype {b}: {error}") from error
    type_name(computed, "the result of a @ b")
    if out is not None:
        check_cast(computed, out, "out")
    return computed


def _checked_bfloat16(
    a: np.dtype[Any], b: np.dtype[Any], wanted: np.dtype[Any], out: np.dtype[Any] | None
) -> np.dtype[Any]:
    check_cast(a, wanted, "a")
    check_cast(b, wanted, "b")
    if out is not None:
        check_cast(wanted, out, "out")
    return wanted


def loads_directly(stored: str, computed: str) -> bool:
    """Whether a kernel may read *stored* elements in a product computed in *computed*.

    True where converting straight to the accumulator gives what converting to *computed* first
    would give; where it would skip a rounding (float32 into a float16 product) it must not.
    """
    if stored == computed or ACCUMULATOR[computed] == computed:
        return True
    if computed in ("float16", "bfloat16"):
        return bool(np.can_cast(dtype_of(stored), dtype_of(computed), "safe"))
    return computed != "bool"  # integers: modular conversions compose


def stores_directly(computed: str, stored: str) -> bool:
    """Whether a kernel may write its result as *stored* without rounding to *computed* first."""
    return stored == computed or stored in _NARROWING_STORES.get(computed, ())
