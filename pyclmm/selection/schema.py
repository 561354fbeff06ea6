"""Problems and configurations as JSON, and back with every value checked.

Values from a file or a pipe must pass these checks before they reach a compiler: integers are in range, names
are known, no key is missing and none is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any

from ..errors import ArgumentError
from ..kernels.config import TileConfig
from ..problem.dtypes import ACCUMULATOR, ELEMENT_TYPES
from ..problem.gemm import ACTIVATIONS, BIASES, MAX_ALIGN, MAX_DIMENSION, GemmProblem
from ..problem.precision import PRECISIONS

_MAX_AXES = 64  # of a stack; NumPy's own limit
_MAX_STRIDE = 1 << 62
_MAX_TILE = 1 << 16
_MAX_OPTIONS = 32

Check = Callable[[Any], bool]


def _integer(low: int, high: int) -> Check:
    return lambda x: type(x) is int and low <= x <= high


def one_of(*values: object) -> Check:
    """A check that a value is one of *values*, of the same type."""
    return lambda x: any(type(x) is type(value) and x == value for value in values)


def _list_of(check: Check, least: int, most: int) -> Check:
    return lambda x: isinstance(x, list) and least <= len(x) <= most and all(map(check, x))


_dimension = _integer(0, MAX_DIMENSION)
length = _integer(1, MAX_DIMENSION)
_stride = _integer(-_MAX_STRIDE, _MAX_STRIDE)
_boolean = one_of(False, True)
_element = one_of(*ELEMENT_TYPES)
_align = one_of(*(1 << i for i in range(MAX_ALIGN.bit_length())))

PROBLEM: Mapping[str, Check] = {
    **dict.fromkeys(("m", "n", "k"), _dimension),
    **dict.fromkeys(("a_type", "b_type", "out_type", "c_type", "bias_type"), _element),
    "acc_type": one_of(*dict.fromkeys(ACCUMULATOR.values())),
    **dict.fromkeys(("trans_a", "trans_b", "conj_a", "conj_b", "has_c"), _boolean),
    **dict.fromkeys(("lda", "ldb", "ldo", "bias_stride"), _stride),
    **dict.fromkeys(("a_align", "b_align", "out_align"), _align),
    "batch_shape": _list_of(_dimension, 0, _MAX_AXES),
    "batch_strides": _list_of(_list_of(_stride, 0, _MAX_AXES), 4, 4),
    "c_strides": _list_of(_stride, 2, 2),
    "bias": one_of(*BIASES),
    "activation": one_of(*ACTIVATIONS),
    "precision": one_of(*PRECISIONS),
    **dict.fromkeys(("reproducible", "soft_fma", "soft_float64", "fallback"), _boolean),
    # products of these are parts of others, never asked for
    "moduli": _list_of(_integer(2, 256), 0, 0),
    "dot_bytes": one_of(False),
}
_tile = _integer(0, _MAX_TILE)
_CONFIG: Mapping[str, Check] = {f.name: _tile for f in fields(TileConfig) if f.name != "options"}


def problem_json(problem: GemmProblem) -> dict[str, Any]:
    """*problem* as :func:`problem_from` reads it."""
    listed: dict[str, Any] = _listed(asdict(problem))
    return listed


def problem_from(content: Any) -> GemmProblem:
    """The problem that *content* describes. Raises ArgumentError, naming the invalid value."""
    checked = values_of("problem", content, PROBLEM)
    axes = len(checked["batch_shape"])
    if any(len(strides) != axes for strides in checked["batch_strides"]):
        raise ArgumentError("problem: batch_strides and batch_shape have different lengths")
    return GemmProblem(**{name: _tupled(value) for name, value in checked.items()})


def config_json(config: TileConfig) -> dict[str, Any]:
    """*config* as :func:`config_from` reads it."""
    listed: dict[str, Any] = _listed(asdict(config))
    return listed


def config_from(content: Any) -> TileConfig:
    """The configuration that *content* describes. Raises ArgumentError, naming the invalid value."""
    checked = values_of("config", content, {**_CONFIG, "options": _are_options})
    return TileConfig(**{name: _tupled(value) for name, value in checked.items()})


def _are_options(x: Any) -> bool:
    pairs = _list_of(_is_option, 0, _MAX_OPTIONS)(x)
    return pairs and [name for name, _ in x] == sorted({name for name, _ in x})


def _is_option(x: Any) -> bool:
    if not isinstance(x, list) or len(x) != 2 or not isinstance(x[0], str):
        return False
    return re.fullmatch(r"[a-z][a-z0-9_]{0,31}", x[0]) is not None and _tile(x[1])


def values_of(what: str, content: Any, checks: Mapping[str, Check]) -> dict[str, Any]:
    """*content* itself. Raises ArgumentError unless its keys are those of *checks* and each value passes."""
    if not isinstance(content, dict) or set(content) != set(checks):
        raise ArgumentError(f"{what}: its keys are not {', '.join(checks)}")
    for name, check in checks.items():
        if not check(content[name]):
            raise ArgumentError(f"{what}: {name} is invalid: {str(content[name])[:40]!a}")
    return content


def _listed(value: Any) -> Any:
    """*value* with lists in place of tuples, as in JSON."""
    if isinstance(value, dict):
        return {name: _listed(x) for name, x in value.items()}
    return [_listed(x) for x in value] if isinstance(value, tuple | list) else value


def _tupled(value: Any) -> Any:
    return tuple(_tupled(x) for x in value) if isinstance(value, list) else value
