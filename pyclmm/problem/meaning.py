"""Arrays that mean more than their elements, by a mask or a unit, which a product would drop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from numbers import Number
from typing import Any, NoReturn

import numpy as np

from ..errors import DTypeError, in_short
from .dtypes import ELEMENTS

_LISTS = {list, tuple}
_NUMBERS = {int, float, complex}
_MOST_AXES = 64  # of NumPy's arrays
# NumPy asks for these before it takes something for a sequence, but for DLPack's, which it does not ask for
# in a list: such an array may lie on a device.
_OF_ARRAYS = ("__array__", "__array_interface__", "__array_struct__", "__dlpack__")


def is_list(x: Any) -> bool:
    """Whether NumPy reads *x* entry by entry: a list, or what has a length and entries by their numbers."""
    if type(x) in _LISTS:
        return True
    if isinstance(x, str | bytes) or is_mapping(x) or any(hasattr(x, name) for name in _OF_ARRAYS):
        return False
    if not hasattr(type(x), "__getitem__"):
        return False
    try:
        len(x)
    except Exception:
        return False
    try:
        memoryview(x)
    except TypeError:  # no buffer, which NumPy asks for before entries
        return True
    return False


def is_mapping(x: Any) -> bool:
    """Whether NumPy would read the keys of *x*, as of a group of Zarr's. A DataFrame becomes an array."""
    if isinstance(x, Mapping):
        return True
    has_keys = hasattr(type(x), "keys") and not isinstance(x, Sequence)
    return has_keys and not any(hasattr(x, name) for name in _OF_ARRAYS)


def first_of(x: Any) -> tuple[Any, int]:
    """The first entry of the first list in *x*, and in how many lists it is; a list if there are too many."""
    depth = 0
    while type(x) in _LISTS and x and depth < _MOST_AXES:  # a list may hold itself
        x, depth = x[0], depth + 1
    return x, depth


def _are_numbers(x: Any) -> bool:
    """Whether *x* is lists of one depth with nothing but Python's numbers in them.

    sum() tells that faster than the types of all entries do: one that is no such number makes the sum another
    type's, or an error.
    """
    first, depth = first_of(x)
    if not depth or type(first) not in _NUMBERS:
        return False
    level = [x]
    for _ in range(depth - 1):
        level = [*chain.from_iterable(level)]
        if not {*map(type, level)} <= _LISTS:
            return False
    try:
        with np.errstate(all="ignore"):  # NumPy's numbers among them
            return type(sum(chain.from_iterable(level))) in _NUMBERS
    except Exception:
        return False


def with_arrays_read(name: str, x: Any, check: Callable[[Any], None] = lambda entry: None) -> Any:
    """*x*, but of a list one in which what becomes an array, as a netCDF variable, has become it: so it is
    read once. Raises DTypeError for a mask or a unit in it, and for a mapping. *check* gets what is neither a
    number nor a list in it, and may raise.
    """
    if is_mapping(x):
        _refuse_keys(name, x)
    if not is_list(x) or _are_numbers(x):
        return x

    def read(entry: Any) -> Any:
        if is_mapping(entry):
            _refuse_keys(f"{name} is a {type(x).__name__}, in which an entry", entry)
        check(entry)
        if hasattr(entry, "__array__") and not hasattr(entry, "__dlpack__"):
            try:
                entry = np.asanyarray(entry)
            except Exception:  # it is told where the list is converted
                return entry
        check_meaning(name, entry, x)
        return entry

    return _walked(x, read, {}, 0)


def _refuse_keys(name: str, x: Any) -> NoReturn:
    """Raise DTypeError for a mapping, of which NumPy would read the keys, if it is no dict."""
    raise DTypeError(
        f"{name} is a {type(x).__name__}; pass its values, [*x.values()], or one of them, x[KEY]"
    )


def _walked(x: Any, read: Callable[[Any], Any], walked: dict[int, Any], depth: int) -> Any:
    """What *read* makes of *x*; of a list one with what it makes of each entry that is no number.

    *walked*: by id each list, which lives as long as that, and what became of it; one within itself stays.
    """
    if type(x) not in _LISTS:
        x = read(x)
    if depth > _MOST_AXES or not is_list(x):
        return x
    if id(x) not in walked:
        walked[id(x)] = x, x
        try:
            entries = x if type(x) in _LISTS else list(x)  # of somebody else's sequence, which is read once
        except Exception:  # it is told where the list is converted
            return x
        others = {kind for kind in {*map(type, entries)} if not issubclass(kind, Number | np.generic)}
        if others:
            entries = [
                _walked(each, read, walked, depth + 1) if type(each) in others else each for each in entries
            ]
        walked[id(x)] = x, entries
    return walked[id(x)][1]


def check_meaning(name: str, x: Any, of: Any = None) -> None:
    """Raise DTypeError if *x* is an array with a mask or a unit. *of*: what has *x* in it, or becomes it, if
    that is what the caller passed; *name* is what errors call that.
    """
    if not isinstance(x, np.ndarray):
        return
    within = ""
    if of is not None:
        within = f"{type(of).__name__} {'with' if is_list(of) else 'that becomes'} a "
    if isinstance(x, np.ma.MaskedArray):
        would_do = f"{name}.filled(0), or {name}.data if no element is masked"
        if name == "out":
            would_do = "out.data"
        elif within:
            would_do = "x.filled(0) of each masked array x"
        raise DTypeError(f"{name} is a {within}masked array, and its mask would be ignored; pass {would_do}")
    if type(x).__array_ufunc__ is not np.ndarray.__array_ufunc__:
        raise DTypeError(
            f"{name} is a {within}{type(x).__name__}, a subclass of ndarray with arithmetic of its own, "
            f"which would be ignored; pass its plain numbers, np.asarray({name})"
        )


def numbers_of(name: str, x: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """*x* as a plain NumPy array, of longdouble too. Raises DTypeError for a mask or a unit, for what lies on
    a device, and for what has no numbers.
    """
    check_meaning(name, x)
    if hasattr(x, "shape") and hasattr(x, "get") and not hasattr(x, "__array__"):  # NumPy would make objects
        raise DTypeError(f"{name} is a {type(x).__name__} on a device; pass {name}.get()")
    try:
        found = np.asarray(x)
    except (RuntimeError, TypeError, ValueError) as error:
        raise DTypeError(f"{name} is a {type(x).__name__}: {in_short(error)}; pass a NumPy array") from error
    if found.dtype.kind not in "biufc" and found.dtype.name not in ELEMENTS:
        raise DTypeError(f"{name} is a {type(x).__name__} of dtype {found.dtype}; pass an array of numbers")
    return found
