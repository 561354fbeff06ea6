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
    if isinstance(optimize, list | tuple) and optimize and optimize[0] == "einsum_path":
        return _checked([tuple(step) for step in optimize[1:]], len(operands))
    if len(operands) <= 2 or optimize is False:
        return [tuple(range(len(operands)))]
    import opt_einsum  # noqa: PLC0415 - it takes 16 ms, and most products have two operands

    symbol = {label: opt_einsum.get_symbol(i) for i, label in enumerate(lengths)}
    terms = ["".join(symbol[x] for x in labels) for labels in (*operands, out)]
    shapes = [tuple(lengths[x] for x in labels) for labels in operands]
    word, limit = optimize if isinstance(optimize, tuple) else (optimize, None)
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


def _checked(path: Path, operands: int) -> Path:
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
    return path
