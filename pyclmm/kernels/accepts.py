"""What a kernel family takes of a problem, as data, and the one place that compares the two.

Every field of :class:`~pyclmm.problem.gemm.GemmProblem` is in one of three groups: ``LAYOUT``, which all
families take; the types and the precision, which ``Accepts.types`` lists; and the others, which a family
takes if ``Accepts.fields`` names them. So every family refuses a new field until it says that it takes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..problem.gemm import GemmProblem
from ..problem.settings import PRECISIONS

# Sizes, strides and stacks; the types of elements that are converted one by one, by gemm.h.
LAYOUT = frozenset(
    {
        *("m", "n", "k", "trans_a", "trans_b", "lda", "ldb", "ldo", "a_align", "b_align", "out_align"),
        *("batch_shape", "batch_strides", "c_strides", "bias_stride", "out_type", "c_type", "bias_type"),
    }
)
_TYPES = frozenset({"a_type", "b_type", "acc_type", "precision"})

# What a kernel has that uses LOAD_A, MAC and STORE_RESULT of cl/include/.
EPILOGUE = frozenset({"has_c", "bias", "activation"})
GENERAL = EPILOGUE | {"conj_a", "conj_b"}
# Many products in one launch (cl/include/listed.h)
LISTS = frozenset({"products", "ragged"})
# For sums that are chains of MAC over k = 0, 1, 2, ...
IN_ORDER = frozenset({"reproducible", "soft_fma"})

_REASONS = {
    "conj_a": "does not conjugate A",
    "conj_b": "does not conjugate B",
    "has_c": "does not add C",
    "bias": "does not add a bias",
    "activation": "does not apply an activation",
    "reproducible": "adds in ways of its own, not in chains of fused multiply-adds over K",
    "soft_fma": "has no fused multiply-adds made of integers",
    "soft_float64": "has no float64 made of integers",
    "moduli": "does not reduce its results modulo numbers",
    "dot_bytes": "does not multiply words of bytes",
    "fallback": "has no launches that may return at once",
    "b_format": "does not read quantised weights",
    "quantize_a": "does not round A to 8 bits",
    "products": "does not compute lists of products",
    "ragged": "does not divide rows among products",
}


@dataclass(frozen=True)
class Types:
    """Element types that are multiplied by one another, each A by each B, and the type of their sums.

    ``precisions``: the values of ``precision`` that this meets. ``soft``: only where float64 is computed by
    integers. ``weights``: B is not of one of these types, but quantised weights.
    """

    operands: tuple[str, ...]
    sums: str
    precisions: tuple[str, ...] = PRECISIONS
    soft: bool = False
    weights: bool = False

    def have(self, problem: GemmProblem) -> bool:
        """Whether the problem has these types."""
        has_b = bool(problem.b_format) if self.weights else problem.b_type in self.operands
        return (
            has_b
            and problem.a_type in self.operands
            and problem.acc_type == self.sums
            and (problem.soft_float64 or not self.soft)
        )

    def __str__(self) -> str:
        either = " or ".join(map(repr, self.precisions))
        asked = "" if self.precisions == PRECISIONS else f" with precision={either}"
        by = " by quantised weights" if self.weights else ""
        return f"{' or '.join(self.operands)}{by}{asked}"


HALVES = tuple(Types((name,), "float32") for name in ("float16", "bfloat16"))
BYTES = Types(("int8", "uint8"), "uint32")


@dataclass(frozen=True)
class Accepts:
    """``types``: what the family multiplies; empty for every element type and precision. ``fields``: the
    fields of GemmProblem, of those that ask for something besides the product, that it takes.
    """

    types: tuple[Types, ...] = ()
    fields: frozenset[str] = GENERAL

    @cached_property
    def _named(self) -> frozenset[str]:
        return self.fields | LAYOUT | _TYPES

    @cached_property
    def _listed(self) -> str:
        return ", ".join(str(types) for types in self.types if not types.soft)

    def with_fields(self, fields: frozenset[str]) -> Accepts:
        """The same and *fields*."""
        return Accepts(self.types, self.fields | fields)

    def refusal(self, name: str, problem: GemmProblem) -> str | None:
        """Why the family called *name* cannot compute *problem*, or None if it accepts it."""
        fitting = [types for types in self.types if types.have(problem)]
        if self.types and not fitting:
            what = f"{problem.a_type} by {problem.b_format or problem.b_type} summed in {problem.acc_type}"
            return f"{name} multiplies {self._listed}, not {what}"
        if unnamed := problem.asked - self._named:
            field = min(unnamed)
            return f"{name} {_REASONS.get(field, f'does not take {field}={getattr(problem, field)!r}')}"
        if fitting and not any(problem.precision in types.precisions for types in fitting):
            return f"{name} multiplies {fitting[0]}, not {problem.precision!r}"
        return None
