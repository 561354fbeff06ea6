"""Types of AMD's pseudocode, and the Python code that turns values of one into another.

A type is "u", "i", "f", "bf" or "b" with its bits, or "bool".
"""

from __future__ import annotations

from functools import cache

Value = tuple[str, str | None]  # Python code, and its type; None: a literal that adapts to what it meets


def bits(kind: str) -> int:
    """Bits of a type: 24 for "u24"."""
    return 1 if kind == "bool" else int(kind.lstrip("uifb"))


@cache
def dtype(kind: str) -> str:
    """NumPy's name of the type that holds *kind*."""
    if kind == "bool":
        return "bool_"
    wide = next(n for n in (8, 16, 32, 64) if n >= bits(kind) or n == 64)
    return {"f": "float", "i": "int"}.get(kind[0], "uint") + str(wide)


def truth_of(value: Value) -> str:
    code, kind = value
    return code if kind == "bool" else f"({code} != 0)"


def alike(one: Value, two: Value) -> tuple[tuple[str, str], str | None]:
    """Both in the type in which they meet."""
    kinds = [kind for kind in (one[1], two[1]) if kind is not None]
    if len(kinds) < 2:
        return (one[0], two[0]), kinds[0] if kinds else None
    if kinds[0] == kinds[1]:
        return (one[0], two[0]), kinds[0]
    floats = [kind for kind in kinds if kind[0] == "f"]
    wide = max(floats or kinds, key=lambda kind: (bits(kind), kind[0] != "i"))
    wide = wide if wide != "bool" else "u32"
    return (converted_to(one, wide), converted_to(two, wide)), wide


def converted_to(value: Value, kind: str) -> str:
    """*value* converted to *kind*; a number of as many bits that is no integer, reinterpreted."""
    code, have = value
    if have == kind:
        return code
    if have is None:
        return (
            f"{dtype(kind)}({code})" if kind[0] == "f" else f"{dtype(kind)}({code} & {2 ** bits(kind) - 1})"
        )
    if (have[0] == "f") != (kind[0] == "f") and bits(have) == bits(kind) and kind[0] != "f":
        return f"({code}).view({dtype(kind)})"
    if dtype(have) == dtype(kind):
        return code
    return f"({code}).astype({dtype(kind)})"


def read_as(value: Value, kind: str) -> str:
    """The bits of *value*, read as *kind*."""
    code, have = value
    if have == kind:
        return code
    if have is None or have == "bool":
        return converted_to(value, kind)
    if dtype(have)[0] != "u":
        code = f"({code}).view({dtype(f'u{bits(have)}')})"
    cut = f"u{bits(kind)}"
    if dtype(cut) != dtype(f"u{bits(have)}"):
        code = f"({code}).astype({dtype(cut)})"
    if kind == "i24":
        return f"(({code} << 8).view(int32) >> 8)"
    if bits(cut) < bits(have) and bits(cut) not in (8, 16, 32, 64):
        code = f"({code} & {2 ** bits(cut) - 1})"
    return code if dtype(kind) == dtype(cut) else f"({code}).view({dtype(kind)})"
