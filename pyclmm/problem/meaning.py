"""Arrays that mean more than their elements, by a mask or a unit, which a product would drop."""

from __future__ import annotations

from collections import UserList, deque
from collections.abc import Iterator
from numbers import Number
from typing import Any

import numpy as np

from ..errors import DTypeError

_LISTS = (list, tuple, deque, UserList)


def entries(x: Any) -> Iterator[Any]:
    """What is no number in a list, and in the lists within it; nothing of what is no list. Each list is read
    once, as one may hold itself.
    """
    left, seen = [x] if isinstance(x, _LISTS) else [], set()
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        others = {kind for kind in set(map(type, one)) if not issubclass(kind, Number | np.generic)}
        for each in one if others else ():
            if isinstance(each, _LISTS):
                left.append(each)
            elif type(each) in others:
                yield each


def _becoming(x: Any) -> Any:
    """The array that NumPy makes of *x* in a list, as of a netCDF variable; *x* if it is none, or one of
    DLPack's, which have no mask, and may lie on a device.
    """
    if not hasattr(x, "__array__") or hasattr(x, "__dlpack__"):
        return x
    try:
        return np.asanyarray(x)
    except Exception:  # it is told where the list is converted
        return x


def check_meaning(name: str, x: Any, of: Any = None) -> None:
    """Raise DTypeError if the array *x* has a mask or a unit, or an array in the list *x*. *of*: what has *x*
    in it, or becomes it, if that is what the caller passed; *name* is what errors call that.
    """
    if of is not None:
        x = _becoming(x)
    if not isinstance(x, np.ndarray):
        for each in entries(x):
            check_meaning(name, each, x)
        return
    within = ""
    if of is not None:
        within = f"{type(of).__name__} {'with' if isinstance(of, _LISTS) else 'that becomes'} a "
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
