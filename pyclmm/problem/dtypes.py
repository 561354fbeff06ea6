"""The element types, the type of a product of two of them, and the type of its accumulator.

NumPy is the specification: :func:`result_dtype` asks ``numpy.matmul`` itself. Kernels know an element type by
its NumPy name, and the OpenCL C sources use the same name (cl/include/types.h).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, get_args

import numpy as np
from numpy.typing import DTypeLike

from ..errors import ArgumentError, DTypeError, brief, in_short
from .literals import Casting

ml_dtypes: Any
try:
    import ml_dtypes
except ImportError:  # an optional dependency: NumPy has no bfloat16
    ml_dtypes = None


@dataclass(frozen=True)
class ElementType:
    """An element type: NumPy's name of it, which cl/include/types.h has too, and what follows from it.

    ``nbytes`` of an element as it is stored; ``accumulator``, the type of sums; ``significand``, bits of a
    floating-point number with the leading one, 0 of others; ``unit``, the matrix units that multiply such
    elements ("" for none): :class:`~pyclmm.kernels.rates.Rates` has a rate for each; ``numpys`` is false
    for a type of ml_dtypes.
    """

    name: str
    nbytes: int
    accumulator: str
    significand: int = 0
    unit: str = ""
    numpys: bool = True

    @property
    def word(self) -> str:
        """OpenCL C's unsigned integer of that size, in which elements of up to 8 bytes are moved."""
        return {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}[self.nbytes]

    @property
    def parts(self) -> str:
        """The type in which sums over parts of K are kept, until all are added."""
        return self.accumulator if self.significand else self.name

    @cached_property
    def planes(self) -> int:
        """Real numbers in an element."""
        return 2 if self.name in COMPLEX else 1

    @cached_property
    def nbytes_of_real(self) -> int:
        """Bytes of one of these real numbers."""
        return self.nbytes // self.planes

    @property
    def exponents(self) -> tuple[int, int]:
        """Of a floating-point type, powers of two: the least number, and the first that is too large."""
        end: int = 1 << (8 * self.nbytes_of_real - self.significand - 1)
        return 3 - end - self.significand, end


# The one table of element types. Integers are summed unsigned, because C defines overflow for unsigned
# integers only; modulo 2^n the bits are the same. float16 and bfloat16 are summed in float32, as NumPy does
# for float16.
ELEMENTS = {
    one.name: one
    for one in (
        ElementType("bool", 1, "uint32"),
        ElementType("int8", 1, "uint32", unit="bytes"),
        ElementType("int16", 2, "uint32"),
        ElementType("int32", 4, "uint32"),
        ElementType("int64", 8, "uint64"),
        ElementType("uint8", 1, "uint32", unit="bytes"),
        ElementType("uint16", 2, "uint32"),
        ElementType("uint32", 4, "uint32"),
        ElementType("uint64", 8, "uint64"),
        ElementType("float16", 2, "float32", 11, "halves"),
        ElementType("bfloat16", 2, "float32", 8, "halves", numpys=False),
        ElementType("float32", 4, "float32", 24, "singles"),
        ElementType("float64", 8, "float64", 53, "doubles"),
        ElementType("complex64", 8, "complex64", 24, "singles"),
        ElementType("complex128", 16, "complex128", 53, "doubles"),
    )
}
ELEMENT_TYPES = tuple(ELEMENTS)
COMPLEX = ("complex64", "complex128")
CASTINGS = get_args(Casting)
# Computed type -> the other types that kernels read and write in such a product: those in which people store
# operands to save memory, and which matrix units multiply. A copy converts any other operand before the
# product and any other result after it, as NumPy does. Each pair of types that kernels take costs programs of
# its own, and compiling one takes much longer than a copy: 20,000 random calls needed 4,180 programs when
# kernels took every pair that converts exactly, and 1,021 with these.
_ALSO_DIRECT = {"float32": ("float16", "bfloat16"), "int32": ("int8", "uint8")}


def named_dtype(dtype: DTypeLike | None) -> np.dtype[Any] | None:
    """The dtype that the argument *dtype* names. Raises DTypeError for what names none, or the other order of
    bytes, in which nothing is computed.
    """
    if dtype is None:
        return None
    try:
        found = np.dtype(dtype)
    except (SyntaxError, TypeError, ValueError) as error:
        library, _, name = brief(dtype).partition(".")
        if library == "torch" and name in ELEMENTS:
            return dtype_of(name)
        raise DTypeError(f"dtype is {brief(dtype)}: {in_short(error)}; pass one such as 'float32'") from error
    if not found.isnative and found.name in ELEMENTS:
        raise DTypeError(f"dtype is {brief(dtype)}, in the other order of bytes; pass {found.name!r}")
    return found


def type_name(dtype: np.dtype[Any], argument: str) -> str:
    """The name of the element type. Raises DTypeError, naming *argument*, if no kernel has that type."""
    name = _element_name(dtype)
    if name is not None:
        return name
    what = " (Python objects, or integers of more than 64 bits)" if dtype.kind == "O" else ""
    verb = "is" if argument == "dtype" else "has dtype"
    raise DTypeError(
        f"{argument} {verb} {dtype}{what}, which OpenCL devices cannot multiply; "
        f"convert it to one of {', '.join(ELEMENT_TYPES)}"
    )


def check_order(dtype: np.dtype[Any], argument: str) -> None:
    """Raise DTypeError for numbers in the other order of bytes, which only the host converts."""
    if not dtype.isnative:
        raise DTypeError(
            f"{argument} has dtype {dtype.str}, in the other order of bytes than the device; convert it on "
            "the host, x.astype(x.dtype.newbyteorder('='))"
        )


@lru_cache(maxsize=256)
def _element_name(dtype: np.dtype[Any]) -> str | None:
    """Kept, as NumPy makes a dtype's name anew each time, which takes some microseconds."""
    name = dtype.name
    return name if name in ELEMENTS and (ELEMENTS[name].numpys or dtype == dtype_of(name)) else None


def dtype_of(name: str) -> np.dtype[Any]:
    """The NumPy dtype with the name of an element type."""
    if ELEMENTS[name].numpys:
        return np.dtype(name)
    if not hasattr(ml_dtypes, name):
        raise DTypeError(f'{name} needs ml_dtypes: pip install "pyclmm[bfloat16]"')
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return found


def converter_of(acc_type: str) -> Callable[[Any], Any]:
    """The function that makes alpha and beta numbers of the accumulator's kind."""
    if acc_type.startswith("uint"):
        bits = 8 * dtype_of(acc_type).itemsize
        return lambda value: int(value) % (1 << bits)  # wraps like NumPy's integers
    return complex if acc_type in COMPLEX else float


def check_casting(casting: str) -> None:
    """Raise ArgumentError for a rule that no ufunc has, DTypeError for no string. NumPy's words."""
    if not isinstance(casting, str):
        raise DTypeError(f"casting must be str, not {type(casting).__name__}; pass one of {CASTINGS}")
    if casting not in CASTINGS:
        raise ArgumentError(f"casting must be one of {', '.join(map(repr, CASTINGS))}, not {brief(casting)}")


def check_cast(source: np.dtype[Any], target: np.dtype[Any], argument: str, casting: Casting) -> None:
    """Raise DTypeError unless NumPy's rule *casting* casts *source* to *target*."""
    would_do = f"pass {argument} of dtype {source if argument == 'out' else target}"
    drops = casting != "unsafe" and source.kind == "c" != target.kind  # ml_dtypes allowed it before 0.7
    if drops or not np.can_cast(source, target, casting):
        raise DTypeError(f"{argument}: cannot cast {source} to {target} by the rule {casting!r}; {would_do}")


def drops_parts(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Whether a cast drops imaginary parts, of which NumPy warns: not to bool, nor, before ml_dtypes 0.7, to
    bfloat16.
    """
    return source.kind == "c" and target.kind not in "cb" and not np.can_cast(source, target, "same_kind")


def result_dtype(
    a: np.dtype[Any],
    b: np.dtype[Any] | None,
    dtype: DTypeLike | None,
    out: np.dtype[Any] | None,
    casting: Casting = "same_kind",
) -> np.dtype[Any]:
    """The dtype that ``numpy.matmul(a, b, dtype=dtype, casting=casting)`` computes in. *b* None: that of *a*.

    Operands of bfloat16 give float32, as in ``numpy.matmul``, or bfloat16 with ``dtype=bfloat16``. Raises
    DTypeError if the rule *casting* does not cast an operand to the computed dtype or the result to *out*, if
    numpy.matmul raises TypeError, and for types that OpenCL does not have.
    """
    wanted = None if dtype is None else np.dtype(dtype)
    for argument, given in (("a", a), ("b", b), ("dtype", wanted), ("out", out)):
        if given is not None:
            type_name(given, argument)
    if wanted is not None and wanted.name == "bfloat16":
        for argument, given in (("a", a), ("b", b)):
            if given is not None:
                check_cast(given, wanted, argument, casting)
        if out is not None:
            check_cast(wanted, out, "out", casting)
        return wanted
    try:
        fixed: dict[str, Any] = {} if wanted is None else {"signature": (None, None, wanted)}
        computed = np.matmul.resolve_dtypes((a, a if b is None else b, out), casting=casting, **fixed)[2]
    except TypeError as error:
        named = (("a", a), ("b", b), ("out", out))
        types = ", ".join(f"{name} has dtype {given}" for name, given in named if given is not None)
        would_do = "; pass an out of the result's dtype, or casting='unsafe' (not for lists of pairs)"
        raise DTypeError(f"{types}: {error}" + ("" if out is None else would_do)) from error
    type_name(computed, "the result of a @ b")
    if out is not None:
        check_cast(computed, out, "out", casting)
    return computed


def narrows(source: str, target: str) -> bool:
    """Whether *target* is of a lesser kind: a float for complex numbers, an integer or bool for either."""
    kinds = "ufc"  # the first letters of the accumulators, from the least kind to the greatest
    return kinds.index(ELEMENTS[source].accumulator[0]) > kinds.index(ELEMENTS[target].accumulator[0])


def is_direct(stored: str, computed: str) -> bool:
    """Whether kernels read and write *stored* elements in a product computed in *computed*; else a copy does.

    No rounding is skipped: the types of _ALSO_DIRECT convert to the computed type exactly, and sums have the
    computed type's bits before they are stored.
    """
    return stored == computed or stored in _ALSO_DIRECT.get(computed, ())


def _has_float(number: complex) -> bool:
    """Whether *number* is no integer beyond the range of float64."""
    try:
        complex(number)
    except OverflowError:
        return False
    return True


def check_scalars(dtype: np.dtype[Any], scales: tuple[complex, complex]) -> None:
    """Raise DTypeError if alpha or beta, Python numbers, cannot be represented in the result's type.

    Integers beyond the range of float64 raise ArgumentError, except for integer results, where they wrap.
    """
    (alpha, beta), kind = scales, dtype.kind
    if type(alpha) is float and type(beta) is float and kind not in "biu":
        return
    for name, value in (("alpha", alpha), ("beta", beta)):
        if kind != "c" and isinstance(value, complex):
            raise DTypeError(f"{name} is complex, but the result is {dtype}; pass a real number")
        if kind in "biu" and not (isinstance(value, int) or float(value.real).is_integer()):
            raise DTypeError(f"{name} is {value}, but the result is {dtype}; pass a whole number")
        if kind not in "biu" and not _has_float(value):
            raise ArgumentError(
                f"{name} is {brief(value)}, beyond the range of float64, but the result is {dtype}; "
                "pass a number of at most 1.7e308 in size"
            )
