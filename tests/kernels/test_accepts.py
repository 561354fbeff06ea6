"""Which family takes which field of a problem. A family refuses what it does not name."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

from pyclmm.kernels import KERNELS, kernel_named
from pyclmm.kernels.accepts import LAYOUT, Accepts
from pyclmm.problem.canonical import problem_of
from pyclmm.problem.gemm import GemmProblem, ListedProduct, Ragged

NAMES = {kernel.name for kernel in KERNELS}
# families by what they multiply
OF_HALVES = {"wgmma", "mma", "mfma", "wmma", "dpas", "wgmma_bare"}
OF_BYTES = {"wgmma", "mma", "mfma", "wmma", "dpas", "amx"}
OF_FLOAT64 = {"mma_double", "mma_double_bulk", "mfma"}
OF_PARTS = {"split", "mma_split"}
OF_WHOLE_NUMBERS = {"residues", "limbs"}
OF_WEIGHTS = {"quantized", "int8_quantized", "int8_tile", "dequantized", "mma_quantized"}
OF_WEIGHTS |= {"wgmma_quantized", "wgmma_fragments"}
ANY_TYPE = NAMES - OF_HALVES - OF_BYTES - OF_FLOAT64 - OF_PARTS - OF_WHOLE_NUMBERS - OF_WEIGHTS

HALF = replace(problem_of(64, 64, 64, np.dtype("f2")), precision="medium")
BYTES = problem_of(64, 64, 64, np.dtype("i1"))
COMPLEX = replace(problem_of(64, 64, 64, np.dtype("c8")), precision="high")
DOUBLE = replace(problem_of(64, 64, 64, np.dtype("f8")), precision="high")
NUMBERS = replace(HALF, b_type="uint8")
WEIGHTS = replace(NUMBERS, b_format="q8_0")
IN_ORDER = ANY_TYPE - {"vector"}

# A problem, a field with a value, and who takes it of those who take the problem as it is.
TABLE = [
    *((HALF, name, value, ANY_TYPE | OF_HALVES)
      for name, value in [("has_c", True), ("bias", "row"), ("activation", "tanh")]),
    *((DOUBLE, name, value, ANY_TYPE | OF_FLOAT64 | OF_WHOLE_NUMBERS)
      for name, value in [("has_c", True), ("bias", "row"), ("activation", "tanh")]),
    *((COMPLEX, name, True, (ANY_TYPE - {"vector"}) | OF_PARTS) for name in ("conj_a", "conj_b")),
    (NUMBERS, "b_format", "q8_0", OF_WEIGHTS),
    *((WEIGHTS, name, value, OF_WEIGHTS)
      for name, value in [("has_c", True), ("bias", "row"), ("activation", "tanh"), ("precision", "high")]),
    *((WEIGHTS, name, True, {"dequantized"}) for name in ("reproducible", "soft_fma")),
    (WEIGHTS, "quantize_a", "int8", {"int8_quantized", "int8_tile"}),
    (HALF, "reproducible", True, IN_ORDER),
    (HALF, "soft_fma", True, IN_ORDER),
    (DOUBLE, "reproducible", True, IN_ORDER | {"mma_double", "mma_double_bulk"}),
    (DOUBLE, "soft_float64", True, {"naive", "residues", "limbs"}),
    (DOUBLE, "fallback", True, {"naive", "register", "packed", "mfma", "mma_double", "mma_double_bulk"}),
    (BYTES, "moduli", (255, 256), {"naive", "register", "packed", "wgmma", "mma", "mfma", "wmma", "dpas"}),
    (BYTES, "dot_bytes", True, {"naive", "register"}),
    (HALF, "products", (ListedProduct(9, 8, 7, 0, 0, 0, 7, 8, 8),), {"register", "packed", "mma"}),
    (WEIGHTS, "ragged", Ragged("m", 3, 9999), {"dequantized"}),
    (HALF, "ragged", Ragged("m", 3, 56), {"register", "packed", "mma", "wgmma"}),
    (DOUBLE, "products", (ListedProduct(9, 8, 7, 0, 0, 0, 7, 8, 8),), {"register", "packed", "mma_double"}),
    (HALF, "precision", "highest", ANY_TYPE | OF_HALVES),
    (DOUBLE, "precision", "highest", ANY_TYPE | OF_FLOAT64),
    (DOUBLE, "precision", "medium", ANY_TYPE | OF_FLOAT64 | OF_WHOLE_NUMBERS),
    (COMPLEX, "precision", "highest", ANY_TYPE),
    (COMPLEX, "precision", "medium", ANY_TYPE | {"split"}),
    (HALF, "b_type", "bfloat16", ANY_TYPE),
    (BYTES, "b_type", "uint8", ANY_TYPE | (OF_BYTES - {"mfma"})),
    (HALF, "a_type", "float64", ANY_TYPE),
    (DOUBLE, "acc_type", "float32", ANY_TYPE),
]  # fmt: skip


def takers(problem):
    return {kernel.name for kernel in KERNELS if kernel.accepts.refusal(kernel.name, problem) is None}


@pytest.mark.parametrize(
    ("problem", "name", "value", "want"),
    TABLE,
    ids=[f"{p.a_type}-{p.b_format}-{name}-{value}" for p, name, value, _ in TABLE],
)
def test_who_takes_a_field(problem, name, value, want):
    assert takers(replace(problem, **{name: value})) == want


def test_every_field_is_layout_or_in_the_table():
    names = {field.name for field in fields(GemmProblem)}
    assert names == LAYOUT | {name for _, name, _, _ in TABLE}
    assert not LAYOUT & {name for _, name, _, _ in TABLE}


def test_layout_is_taken_by_all_who_take_the_types():
    odd = {
        "m": 3,
        "n": 5,
        "k": 7,
        "trans_a": True,
        "trans_b": True,
        **dict.fromkeys(("lda", "ldb", "ldo"), 99),
        **dict.fromkeys(("a_align", "b_align", "out_align"), 4),
        "batch_shape": (2,),
        "batch_strides": ((0,),) * 4,
        "c_strides": (1, 9),
        "bias_stride": 3,
        **dict.fromkeys(("out_type", "c_type", "bias_type"), "float16"),
    }
    assert set(odd) == LAYOUT
    for problem in (HALF, DOUBLE, COMPLEX, BYTES):
        assert takers(replace(problem, **odd)) == takers(problem)


@dataclass(frozen=True)
class Scaled(GemmProblem):
    """A problem with an operand that no family knows."""

    scales: str = ""


def test_a_new_field_is_refused_by_every_family_once_it_is_set():
    known = {field.name: getattr(HALF, field.name) for field in fields(HALF)}
    assert takers(Scaled(**known)) == takers(HALF)
    assert takers(Scaled(**known, scales="rows")) == set()
    why = Accepts().refusal("naive", Scaled(**known, scales="rows"))
    assert why == "naive does not take scales='rows'"


@pytest.mark.parametrize(
    ("name", "problem", "why"),
    [
        ("wgmma", COMPLEX, "wgmma multiplies float16, bfloat16, float32 with precision='medium', int8 or "
         "uint8, not complex64 by complex64 summed in complex64"),
        ("split", replace(COMPLEX, precision="highest"), "precision='high' or 'medium', not 'highest'"),
        ("residues", HALF, "residues multiplies float64 with precision='high' or 'medium', "
         "complex128 with precision='high' or 'medium', not float16"),
        ("amx", replace(BYTES, reproducible=True), "amx adds in ways of its own, not in chains of fused"),
        ("packed", replace(BYTES, dot_bytes=True), "packed does not multiply words of bytes"),
        ("thin", replace(BYTES, moduli=(256,)), "thin does not reduce its results modulo numbers"),
        ("thin", WEIGHTS, "thin does not read quantised weights"),
        ("quantized", HALF, "quantized multiplies float32 or float16 or bfloat16 by quantised weights"),
    ],
)  # fmt: skip
def test_reasons_are_for_users(name, problem, why):
    assert why in kernel_named(name).accepts.refusal(name, problem)
