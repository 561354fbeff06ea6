"""Problems and configurations as JSON, and back with every value checked.

Values from a file or a pipe must pass these checks before they reach a compiler: integers are in range, names
are known, no key is missing and none is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from dataclasses import fields as fields_of
from typing import Any, get_args

from ..errors import ArgumentError
from ..fields import Check, integer, list_of, matching, one_of, optional, record
from ..formats import FORMAT_NAMES
from ..kernels.config import PlainConfig, TileConfig
from ..problem.dtypes import ELEMENT_TYPES, ELEMENTS
from ..problem.extras import BIASES
from ..problem.gemm import (
    ACTIVATIONS,
    MAX_ALIGN,
    MAX_DIMENSION,
    MAX_GROUPS,
    SIZE_TYPES,
    GemmProblem,
    ListedProduct,
    Ragged,
)
from ..problem.literals import Rounded
from ..problem.settings import PRECISIONS

_MAX_AXES = 64  # of a stack; NumPy's own limit
_MAX_STRIDE = 1 << 62
_MAX_TILE = 1 << 16
_MAX_OPTIONS = 32
_MAX_PRODUCTS = 64  # of a list as the self-check gets it: those on which programs depend

_dimension = integer(0, MAX_DIMENSION)
length = integer(1, MAX_DIMENSION)
_stride = integer(-_MAX_STRIDE, _MAX_STRIDE)
_boolean = one_of(False, True)
_element = one_of(*ELEMENT_TYPES)
_align = one_of(*(1 << i for i in range(MAX_ALIGN.bit_length())))

_RAGGED = {"axis": one_of("m", "k"), "groups": integer(0, MAX_GROUPS), "stride": _stride}
_RAGGED |= {"size_type": one_of(*SIZE_TYPES)}
PROBLEM: Mapping[str, Check] = {
    **dict.fromkeys(("m", "n", "k"), _dimension),
    **{f.name: _element for f in fields_of(GemmProblem) if f.name.endswith("_type")},
    **{f.name: _stride for f in fields_of(GemmProblem) if f.name.endswith("_stride")},
    **{f.name: _boolean for f in fields_of(GemmProblem) if f.type == "bool"},
    "acc_type": one_of(*dict.fromkeys(one.accumulator for one in ELEMENTS.values())),
    **dict.fromkeys(("lda", "ldb", "ldo"), _stride),
    **dict.fromkeys(("a_align", "b_align", "out_align"), _align),
    "batch_shape": list_of(_dimension, 0, _MAX_AXES),
    "batch_strides": list_of(list_of(_stride, 0, _MAX_AXES), 4, 4),
    "c_strides": list_of(_stride, 2, 2),
    "bias": one_of(*BIASES),
    "activation": one_of(*ACTIVATIONS),
    "precision": one_of(*PRECISIONS),
    # products of these are parts of others, never asked for
    "moduli": list_of(integer(2, 256), 0, 0),
    "dot_bytes": one_of(False),
    "b_format": one_of("", *FORMAT_NAMES),
    "quantize_a": one_of("", *get_args(Rounded)),
    "products": list_of(
        list_of(_stride, len(ListedProduct._fields), len(ListedProduct._fields)), 0, _MAX_PRODUCTS
    ),
    "ragged": optional(record(_RAGGED)),
}
_tile = integer(0, _MAX_TILE)
_option_name = matching(r"[a-z][a-z0-9_]{0,31}", "a name of an option")


def _options(name: str, value: Any) -> None:
    """Pairs of name and number, in the order of the names."""
    list_of(list_of(lambda *_: None, 2, 2), 0, _MAX_OPTIONS)(name, value)
    for option, number in value:
        _option_name(name, option)
        _tile(f"{name}.{option}", number)
    if [option for option, _ in value] != sorted({option for option, _ in value}):
        raise ArgumentError(f"{name} is not in order, or names an option twice")


_SIZES = [f.name for f in fields_of(TileConfig) if f.name not in ("options", "plain")]
_PLAIN = "plain"  # left out where there is none
_CONFIG = record({**dict.fromkeys(_SIZES, _tile), "options": _options})
_OTHER = record({"family": _tile, "config": _CONFIG})


def problem_json(problem: GemmProblem) -> dict[str, Any]:
    """*problem* as :func:`problem_from` reads it."""
    return _listed(problem)


def problem_from(content: Any) -> GemmProblem:
    """The problem that *content* describes. Raises ArgumentError, naming the invalid value."""
    record(PROBLEM)("problem", content)
    checked: dict[str, Any] = content
    axes = len(checked["batch_shape"])
    if any(len(strides) != axes for strides in checked["batch_strides"]):
        raise ArgumentError("problem: batch_strides and batch_shape have different lengths")
    own = {name: _tupled(value) for name, value in checked.items()}
    own["products"] = tuple(ListedProduct(*values) for values in own["products"])
    own["ragged"] = own["ragged"] and Ragged(**own["ragged"])
    return GemmProblem(**own)


def config_json(config: TileConfig) -> dict[str, Any]:
    """*config* as :func:`config_from` reads it."""
    listed = _listed(replace(config, plain=None))
    del listed[_PLAIN]
    if config.plain is None:
        return listed
    plain = {"family": config.plain.family, "config": config_json(config.plain.config)}
    return {**listed, _PLAIN: plain}


def config_from(content: Any) -> TileConfig:
    """The configuration that *content* describes. Raises ArgumentError, naming the invalid value."""
    given = {_PLAIN: content[_PLAIN]} if isinstance(content, dict) and _PLAIN in content else {}
    own = {name: value for name, value in content.items() if name != _PLAIN} if given else content
    _CONFIG("config", own)
    config = TileConfig(**{name: _tupled(value) for name, value in own.items()})
    if not given:
        return config
    _OTHER("config.plain", given[_PLAIN])
    return replace(config, plain=PlainConfig(given[_PLAIN]["family"], config_from(given[_PLAIN]["config"])))


def _listed(record: Any) -> dict[str, Any]:
    """The fields of a dataclass with lists in place of tuples, as in JSON."""
    listed: dict[str, Any] = json.loads(json.dumps(asdict(record)))
    return listed


def _tupled(value: Any) -> Any:
    return tuple(_tupled(x) for x in value) if isinstance(value, list) else value
