"""The order in which many operands are contracted: opt_einsum's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ArgumentError
from .contraction import Label

Path = list[tuple[int, ...]]  # in each step, the places of the operands that are taken out of the list


def path_of(
    operands: Sequence[tuple[Label, ...]], out: tuple[Label, ...], lengths: dict[Label, int], optimize: Any
) -> Path:
    """The steps by *optimize*: a word of opt_einsum's or numpy.einsum's, True, False (from left to right), or
    a path.

    Raises ArgumentError for another word.
    """
    if _is_path(optimize):
        return _checked([step for step in optimize if step != "einsum_path"], len(operands))
    if len(operands) <= 2 or optimize is False:
        return [tuple(range(len(operands)))]
    import opt_einsum  # noqa: PLC0415 - it takes 16 ms, and most products have two operands

    symbol = {label: opt_einsum.get_symbol(i) for i, label in enumerate(lengths)}
    terms = ["".join(symbol[x] for x in labels) for labels in (*operands, out)]
    shapes = [tuple(lengths[x] for x in labels) for labels in operands]
    word, limit = optimize if isinstance(optimize, tuple) and len(optimize) == 2 else (optimize, None)
    if limit == 0:
        limit = 1  # no temporary array is so small; opt_einsum takes no 0, as NumPy does
    subscripts = f"{','.join(terms[:-1])}->{terms[-1]}"
    try:
        found, _ = opt_einsum.contract_path(
            subscripts, *shapes, shapes=True, optimize="auto" if word is True else word, memory_limit=limit
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"optimize is {optimize!r}: {error}; pass True, False, 'greedy', 'optimal', or a path of "
            f"numpy.einsum_path"
        ) from error
    return [tuple(step) for step in found]


def _is_path(optimize: Any) -> bool:
    """Whether these are steps, perhaps behind the word that numpy.einsum_path puts before them."""
    return isinstance(optimize, list | tuple) and not any(
        isinstance(each, str) and each != "einsum_path" for each in optimize
    )


def _checked(path: Sequence[Any], operands: int) -> Path:
    if not all(isinstance(step, list | tuple) for step in path):
        raise ArgumentError(f"optimize: the path {path!r} is no list of steps; see numpy.einsum_path")
    left = operands
    for step in path:
        if len(set(step)) != len(step) or not step or not all(0 <= place < left for place in step):
            raise ArgumentError(
                f"optimize: the step {step} of the path does not fit {left} operands; see einsum_path"
            )
        left -= len(step) - 1
    if left != 1:
        raise ArgumentError(
            f"optimize: the path leaves {left} operands; each step takes some and puts one back"
        )
    return [tuple(step) for step in path]
