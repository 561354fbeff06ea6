"""Tests the tests: puts one fault at a time into a copy of the project, where the tests must then fail.

    python -m tests.campaigns.seeded_faults [NAME ...] [--list]      or: make faults

A fault is data: a file, the occurrence of a text in it, the text that replaces it, and the tests that must
notice. The self-check is off, so that the tests must notice. Exit codes: 0 success, 1 if a fault was not
noticed, its text no longer exists, or the tests fail without a fault.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ..conformance.implementations import HOME, IMPLEMENTATIONS
from ..conformance.prepare import prepare
from ..conformance.run import environment

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs" / "seeded_faults.md"
COPIED = ("pyclmm", "cl", "tests", "setup.cfg", "pyproject.toml")
LIMIT_S = 600
TESTS_FAILED = 1  # pytest's exit status; others but 0 mean that no test was run
BARRIER = "    barrier(CLK_LOCAL_MEM_FENCE);\n"
STORE_GUARD = "if ((i) < (M) && (j) < (N)) {"


@dataclass(frozen=True)
class Fault:
    """*old* becomes *new* in *file*. ``tests``: pytest's arguments for the tests that must fail."""

    name: str
    breaks: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    nth: int = 0
    on: str = ""  # the implementation of tests/conformance that shows it; else the default device

    def apply(self, tree: Path) -> None:
        path = tree / self.file
        parts = path.read_text(encoding="utf-8").split(self.old)
        if len(parts) < self.nth + 2:
            raise LookupError(f"{self.name}: {self.file} no longer holds {self.old!r}")
        head, tail = parts[: self.nth + 1], parts[self.nth + 1 :]
        path.write_text(self.old.join(head) + self.new + self.old.join(tail), encoding="utf-8")


def laws(words: str) -> tuple[str, ...]:
    """The tests of tests/kernels/test_every_kernel.py whose names match *words*."""
    return ("tests/kernels/test_every_kernel.py", "-k", words)


def units(words: str) -> tuple[str, ...]:
    """The products by emulated matrix instructions whose names match *words*."""
    return ("tests/kernels/units/test_units.py", "-k", f"emulated_product and ({words})")


def limbs(words: str) -> tuple[str, ...]:
    """The tests of products by limbs whose names match *words*."""
    return ("tests/kernels/residues/test_limbs.py", "-k", words)


def residues(words: str) -> tuple[str, ...]:
    """The tests of products by residues whose names match *words*."""
    return ("tests/kernels/residues", "-k", words)


def arm(words: str) -> tuple[str, ...]:
    """The tests on the emulated Arm processor whose names match *words*."""
    return (ARM, "-k", f"neoverse and ({words})")


ARM = "tests/conformance/arm_products.py"
DEVICE_VIEWS = ("tests/test_matmul.py", "-k", "any_shape_and_layout")
EXACT = "small_integers_are_exact"
PTX_MACHINE = ("tests/kernels/nvidia/test_mma_double_bulk.py",)
FAULTS = (
    # Products by residues
    Fault("lost_modulus", "the product modulo the last number is not computed", "cl/include/gemm.h",
          "(BATCH_ENTRY % MODULI) >= gate[0])", "(BATCH_ENTRY % MODULI) >= gate[0] - 1)",
          residues("within_the_bound or gives_whole")),
    Fault("first_modulus_lost", "the product modulo the first number is not computed", "cl/include/gemm.h",
          "((int)(BATCH_ENTRY % MODULI) >= gate[0])",
          "(BATCH_ENTRY % MODULI == 0 || (int)(BATCH_ENTRY % MODULI) >= gate[0])",
          residues("within_the_bound")),
    Fault("residue_off_by_one", "one residue of an operand is one too large", "cl/residues/convert.cl",
          "r[e] = residue_of(v + PLANES * e, rows[i]);",
          "r[e] = residue_of(v + PLANES * e, rows[i]) + (i == 3 && second);", residues("within_the_bound")),
    Fault("digit_off_by_one", "sums are reduced to one too large a digit", "cl/include/moduli.h",
          "return min(rest, rest - p);",
          "return min(rest, rest - p) + (i == 2);", residues("within_the_bound")),
    Fault("quotient_not_corrected", "digits stay between p and 2 p", "cl/include/moduli.h",
          "return min(rest, rest - p);", "return rest;", residues("within_the_bound or gives_whole")),
    Fault("scale_of_the_row", "the row's scale is left out", "cl/residues/combine.cl",
          "const int unit = scales[i] - ", "const int unit = -", residues("within_the_bound")),
    Fault("scale_of_the_column", "columns get their neighbour's scale", "cl/residues/combine.cl",
          "scales[M + column + e] : 0", "scales[M + column + (e ^ 1)] : 0", residues("within_the_bound")),
    Fault("scale_of_the_elements", "elements are converted with the other operand's bits",
          "cl/residues/convert.cl", "second ? plan->bits_b : plan->bits_a",
          "second ? plan->bits_a : plan->bits_b", residues("unequal")),
    Fault("counts_not_raised", "what was counted stays when a larger element comes", "cl/residues/measure.cl",
          "count = r - q == by ?", "count = q == r ?", residues("spoil or within_the_bound")),
    Fault("too_few_bits", "the bound on the error is forgotten", "cl/residues/choose.cl",
          "if (error * SLACK > allowed) continue;", "", residues("spoil or within_the_bound")),
    Fault("sums_too_large", "whole numbers may be larger than their residues tell", "cl/residues/choose.cl",
          "half_bits[n - 1] - SLACK_BITS - log_most", "half_bits[n - 1] + 4.0f - log_most",
          residues("gives_whole or within_the_bound or no_more_moduli")),
    Fault("wrong_multiple", "the multiple of P is rounded down", "cl/residues/combine.cl",
          "as_uint(sum->quotient + as_float(TO_FLOAT))", "as_uint(sum->quotient - 0.5f + as_float(TO_FLOAT))",
          residues("within_the_bound")),
    Fault("lost_carry", "a carry between words of the sum is lost", "cl/residues/combine.cl",
          "(((low >> 32) + (middle & 0xffffffff)) >> 32)", "0", residues("within_the_bound or many_blocks")),
    Fault("recent_counts_lost", "counts are forgotten where a larger element comes", "cl/residues/measure.cl",
          "if (round % ROUNDS == 0) flush(&seen);", "if (round % ROUNDS == 0) seen.recent = 0;",
          residues("long_lines")),
    Fault("sticky_bit", "bits under 64 do not round", "cl/residues/result.h",
          "upper | ((low << up) != 0)", "upper", residues("test_ties")),
    Fault("limb_carry", "a sum of limbs keeps what it passes on", "cl/residues/limbs_multiply.cl",
          "sum[w] &= LIMB_MASK;", "", limbs("within_the_bound")),
    Fault("limb_of_imaginary_part", "the product of imaginary parts is added",
          "cl/residues/limbs_multiply.cl", "-x[1], y[1]", "x[1], y[1]", limbs("complex_numbers")),
    Fault("limb_overflow", "sums of limbs pass on their upper bits too late", "cl/residues/limbs.h",
          "#define BLOCK 16", "#define BLOCK 64", limbs("largest_limbs")),
    Fault("limb_unit", "the result of limbs has B's bits too many", "cl/residues/limbs_round.cl",
          " - plan->bits_b", "", limbs("within_the_bound")),
    Fault("float_sums_too_long", "sums of float32 are longer than its whole numbers reach",
          "pyclmm/kernels/residues/products.py", "(1 << 24) // _LARGEST", "(1 << 25) // _LARGEST",
          residues("largest_sums_are_exact")),
    Fault("dot_of_three_bytes", "the last bytes of two words are not multiplied", "cl/include/dot_bytes.h",
          "(char)(x >> 24) * (char)(y >> 24)", "0", residues("test_residues_in_each_form")),
    Fault("last_word", "the last word of K is left out where it is not full",
          "pyclmm/kernels/residues/products.py", "k = ceil(k / form.residues)", "k = k // form.residues",
          residues("test_residues_in_each_form")),
    Fault("no_words", "words are offered to devices without an instruction for them",
          "pyclmm/kernels/residues/products.py", "not device.rates.dot8", "False",
          residues("words_are_for_gpus")),
    Fault("root_of_minus_one", "im has the other sign", "cl/residues/combine.cl", "(x + p - z)",
          "(z + p - x)", residues("complex_parts")),
    # OpenCL C: the kernels
    Fault("barrier_after_load", "tiles are read before they are whole", "cl/textbook/tiled.cl", BARRIER, "",
          laws(f"{EXACT} and tiled"), on="rusticl"),
    Fault("barrier_after_multiply", "tiles are overwritten while they are read", "cl/textbook/tiled.cl",
          BARRIER,
          "", laws(f"{EXACT} and tiled"), nth=1, on="rusticl"),
    Fault("last_k_tile", "the last, partly filled K tile is dropped", "cl/textbook/tiled.cl",
          "t < K; t += TW",
          "t + TW <= K; t += TW", laws(f"{EXACT} and tiled")),
    Fault("padding_column", "tiles are indexed with the wrong width", "cl/textbook/tiled.cl",
          "tile_row[TW + 1]",
          "tile_row[TW - 1]", laws(f"{EXACT} and tiled")),
    Fault("zero_fill_of_a", "no zeros beyond K in A's tiles", "cl/include/gemm.h", "(i) < (M) && (k) < (K) ?",
          "(i) < (M) ?", laws("padding_of_operands and tiled")),
    Fault("zero_fill_of_b", "no zeros beyond K in B's tiles", "cl/include/gemm.h", "(k) < (K) && (j) < (N) ?",
          "(j) < (N) ?", laws("padding_of_operands and tiled")),
    Fault("column_bound", "one column too many is written", "cl/include/gemm.h", STORE_GUARD,
          "if ((i) < (M) && (j) <= (N)) {", laws("nothing_but_the_result and tiled")),
    Fault("row_bound", "one row too many is written", "cl/include/gemm.h", STORE_GUARD,
          "if ((i) <= (M) && (j) < (N)) {", laws("nothing_but_the_result and tiled")),
    Fault("row_bound_low", "the last row is not written", "cl/include/gemm.h", STORE_GUARD,
          "if ((i) < (M) - 1 && (j) < (N)) {", laws(f"{EXACT} and naive")),
    Fault("naive_k_from_one", "the first product is left out", "cl/textbook/naive.cl", "int k = 0",
          "int k = 1",
          laws(f"{EXACT} and naive")),
    Fault("naive_k_to_k_minus_one", "the last product is left out", "cl/textbook/naive.cl", "k < K",
          "k < K - 1",
          laws(f"{EXACT} and naive")),
    Fault("flat_row", "rows are counted in M instead of N", "cl/textbook/flat.cl", "int i = id / N",
          "int i = id / M",
          laws(f"{EXACT} and flat")),
    Fault("flat_bound", "the last element is not written", "cl/textbook/flat.cl", "id >= (size_t)M * N",
          "id >= (size_t)M * N - 1", laws(f"{EXACT} and flat")),
    Fault("single_group_k", "the sum starts late", "cl/textbook/single_group.cl", "int k = 0", "int k = 1",
          laws(f"{EXACT} and single_group")),
    Fault("sequential_row", "the last row is not written", "cl/textbook/sequential.cl", "i < M", "i < M - 1",
          laws(f"{EXACT} and sequential")),
    Fault("lda_for_ldb", "A's leading dimension is used for B", "cl/include/gemm.h", "(long)(k) * ldb + (j)",
          "(long)(k) * lda + (j)", laws(f"{EXACT} and naive")),
    Fault("transposed_lda", "the leading dimension of a transposed A is B's", "cl/include/gemm.h",
          "(long)(k) * lda + (i)", "(long)(k) * ldb + (i)", laws("transposes and naive")),
    Fault("transposed_b", "a transposed B is read untransposed", "cl/include/gemm.h", "(long)(j) * ldb + (k)",
          "(long)(k) * ldb + (j)", laws("transposes and naive")),
    Fault("batch_offset_of_b", "B moves by A's offset", "cl/include/gemm.h",
          "b_offset + BATCH_OFFSET(batch_offsets, STACK_B)",
          "b_offset + BATCH_OFFSET(batch_offsets, STACK_A)", laws("stacks_broadcast and naive")),
    Fault("batch_offset_of_out", "every product of a stack is written to the first", "cl/include/gemm.h",
          "out_offset + BATCH_OFFSET(batch_offsets, 3)", "out_offset", laws("stacks_broadcast and naive")),
    Fault("offset_of_a", "A's offset is ignored", "cl/include/gemm.h", "a += a_offset + ", "a += ",
          ("tests/execution/test_plan.py", "-k", "offsets")),
    # OpenCL C: the epilogue and the element types
    Fault("alpha", "alpha is ignored", "cl/include/gemm.h", "SCALE(alpha, acc)", "acc",
          laws("netlib_sizes and naive")),
    Fault("beta", "C is added without beta", "cl/include/gemm.h", "ADD(value, SCALE(beta, old))",
          "ADD(value, old)",
          laws("netlib_sizes and naive")),
    Fault("c_strides", "C is read with its strides exchanged", "cl/include/gemm.h",
          "(long)(i) * (c_rs) + (long)(j) * (c_cs)",
          "(long)(i) * (c_cs) + (long)(j) * (c_rs)",
          laws("netlib_sizes and naive")),
    Fault("bias_axis", "row and column bias are exchanged", "cl/include/gemm.h", "BIAS == 1 ? (j) : (i)",
          "BIAS == 1 ? (i) : (j)", laws("test_epilogues and naive")),
    Fault("bias_after_activation", "the bias is added to the activated value", "cl/include/gemm.h",
          "  value = ADD(value, LOAD_BIAS(bias, bias_index));",
          "  return ADD(ACTIVATE(value), LOAD_BIAS(bias, bias_index));",
          laws("test_epilogues and naive")),
    Fault("relu_of_nan", "relu turns NaN into zero", "cl/include/gemm.h",
          "(IS_NEGATIVE(x) ? ACC_ZERO : (x))", "fmax((x), (ACC_T)0)", laws("extreme_values and relu")),
    Fault("gelu_constant", "gelu's constant is off by 1e-4", "cl/include/gemm.h", "0.70710678", "0.70720678",
          laws("test_epilogues and gelu and not gelu_tanh")),
    Fault("conjugate", "conjugation does nothing", "cl/include/types.h", "((v).x, NEGATED((v).y)))",
          "((v).x, (v).y))",
          laws("conjugate_transposes")),
    Fault("complex_sum", "i times i is 1", "cl/include/types.h", "(acc).x + (u).x * (v).x - (u).y * (v).y",
          "(acc).x + (u).x * (v).x + (u).y * (v).y", laws("every_dtype and complex")),
    Fault("zero_start", "sums start from -0.0", "cl/include/types.h", "ACC_ZERO ((ACC_T)(0))",
          "ACC_ZERO ((ACC_T)(-0.0f))", laws("sign_of_zero_is_positive and naive")),
    Fault("packed_zero_start", "sums of a register tile start from -0.0", "cl/cpu/packed_tile.h",
          "acc[r][v] = (VEC)(0)", "acc[r][v] = (VEC)(-0.0f)", laws("sign_of_zero_is_positive and packed")),
    Fault("half_rounding", "float16 results are cut, not rounded", "cl/include/types.h", "vstore_half_rte",
          "vstore_half_rtz", laws("every_dtype and float16")),
    Fault("bfloat16_rounding", "bfloat16 results are cut, not rounded", "cl/include/types.h",
          "(bits + 0x7fff + (bits >> 16 & 1)) >> 16", "bits >> 16", laws("mixed_dtypes and bfloat16")),
    Fault("bool_result", "a sum of 256 trues is false", "cl/include/types.h", "((p)[i] = (v) != 0)",
          "((p)[i] = (uchar)(v))", laws("bool_sum and naive")),
    Fault("packed_columns", "a packed operand loses its column stride", "cl/copy.cl",
          "j * source_cs", "j", DEVICE_VIEWS),
    # OpenCL C: the fast families
    Fault("packed_k_tail", "the last steps of K, fewer than four, are left out", "cl/cpu/packed_tile.h",
          "u < K - k; ++u", "u < K - k - 1; ++u", laws(f"{EXACT} and packed")),
    Fault("packed_zero_fill", "panels of B are not filled with zeros", "cl/cpu/packed_panels.h",
          "j < cols ? LOAD_B(b, B_INDEX(k + u, j0 + j, ldb)) : ACC_ZERO",
          "LOAD_B(b, B_INDEX(k + u, j0 + min(j, 0), ldb))",
          laws(f"{EXACT} and packed")),
    Fault("packed_lost_sum", "the sums of earlier K blocks are lost", "cl/cpu/packed.cl",
          "if (k0 > k_begin) ADD_TILE(acc, sum);", "", laws("packed")),
    Fault("split_k_lost_range", "the last range of K is lost", "cl/include/add_partial_sums.h",
          "range < split_k ?", "range < split_k - 1 ?", ("tests/kernels/nvidia/test_split_k.py",)),
    Fault("split_k_lost_team", "the partial sums of a team are lost", "cl/include/add_partial_sums.h",
          "int t = 1; t < TEAMS", "int t = 2; t < TEAMS", ("tests/kernels/nvidia/test_split_k.py",)),
    Fault("swapped_store", "a tile of the transposed product is stored untransposed", "cl/cpu/packed_store.h",
          "out[s * ldo + r] = tile[r * NR + s]", "out[r * ldo + s] = tile[r * NR + s]",
          ("tests/kernels/cpu/test_packed_transposed.py",)),
    Fault("swapped_stack", "operands of the transposed product exchange offsets", "cl/cpu/packed.cl",
          "#define STACK_A 1\n#define STACK_B 0", "#define STACK_A 0\n#define STACK_B 1",
          ("tests/kernels/cpu/test_packed_transposed.py",)),
    Fault("arm_store", "a register tile is stored one element too far", "cl/cpu/packed_store.h",
          "out + r * ldo + v * LANES", "out + r * ldo + v * LANES + 1", arm("every_packing")),
    Fault("arm_rows_beyond", "rows beyond the matrix are read, though not used", "cl/cpu/matvec.cl",
          "min(j + r, length - 1)", "(j + r)", arm("matvec_reads")),
    Fault("matvec_twice", "numbers that two vectors load count twice", "cl/cpu/dot_rows.h",
          ">= (MASK)(skip) ?", ">= (MASK)(0) ?", ("tests/kernels/cpu/test_matvec.py",)),
    Fault("split_k_cpu_range", "the last range of K is lost", "cl/cpu/add_partial_sums.h",
          "range < split_k;", "range < split_k - 1;", ("tests/kernels/cpu/test_packed.py",)),
    Fault("wgmma_rows", "rows of a result change places", "cl/nvidia/fragment_rows.h", "(w >> 5 & 1) * 8 +",
          "(w >> 5 & 1) * 4 +", ("tests/kernels/nvidia/test_split_k.py",)),
    Fault("wgmma_turned_blocks", "blocks of K beyond a range are multiplied, its first never",
          "cl/nvidia/wgmma_stages.h", "k -= (piece.end - piece.first) * STAGE_K;", ";",
          ("tests/kernels/nvidia/test_wgmma.py",)),
    Fault("bare_fence", "the matrix units read tiles that may not have arrived", "cl/nvidia/wgmma_bare.cl",
          "    stores_fence();\n", "", ("tests/kernels/nvidia/test_wgmma_bare.py", "-k", "exact")),
    Fault("bare_swizzle", "chunks of a tile lie in the order of K, unswizzled", "cl/nvidia/wgmma_bare.cl",
          "(k / 8 ^ line % 8)", "(k / 8)", ("tests/kernels/nvidia/test_wgmma_bare.py", "-k", "exact")),
    Fault("mma_step", "each step of K uses A of the step before", "cl/nvidia/mma_ring.h",
          "load_fragments_a(fa[(step + 1) % 2], tiles, stage, row, step + 1);",
          "load_fragments_a(fa[(step + 1) % 2], tiles, stage, row, step);",
          ("tests/kernels/nvidia/test_mma.py",)),
    Fault("mma_edge_of_k", "a chunk at the end of K is copied whole", "cl/nvidia/mma_copies.h",
          "return lie == ALONG || k > 0 ? wide : 0;",
          "return lie == ALONG || k > 0 ? PIECE(chunk) : 0;",
          ("tests/kernels/nvidia/test_mma.py",)),
    Fault("mma_long_k", "the rest of a long K overflows as a number of bytes", "cl/nvidia/mma_copies.h",
          "min(max(lie == ALONG ? k : rows, 0), PIECE(chunk) / ELEMENT_BYTES) * ELEMENT_BYTES",
          "min(max((lie == ALONG ? k : rows) * ELEMENT_BYTES, 0), PIECE(chunk))",
          ("tests/kernels/nvidia/test_mma.py", "-k", "long_k")),
    Fault("mma_packed_stack", "every product of a packed stack reads the first", "cl/nvidia/operands.h",
          "stride ? z * stride : listed", "stride ? 0 : listed", ("tests/kernels/nvidia/test_mma.py",)),
    Fault("split_guess", "an exponent that was estimated too low is kept", "cl/nvidia/split.cl",
          "if (over) found->over = 1;", "", ("tests/kernels/nvidia/test_split.py",)),
    Fault("split_zero_guess", "a row that begins with zeros counts as zero", "cl/nvidia/split.cl",
          "(largest ? TOP : 1)", "TOP", ("tests/kernels/nvidia/test_split.py",)),
    Fault("split_lossy", "elements that float16 parts lose are not counted", "cl/nvidia/split.cl",
          "points[l] -= LOSS * lossy_among(x[l]);", ";", ("tests/kernels/nvidia/test_split.py",)),
    Fault("split_half", "two quartets with the same rows do not add their sums",
          "cl/nvidia/wgmma_split.cl",
          "mine[128 * (!right * HALF + i)];", "mine[128 * (right * HALF + i)];",
          ("tests/kernels/nvidia/test_split.py",)),
    Fault("split_exponents", "a column is scaled by the exponents of rows", "cl/nvidia/wgmma_split.cl",
          "near + 64 + column - column0", "near + column - column0", ("tests/kernels/nvidia/test_split.py",)),
    Fault("split_tf32_low", "the lower TF32 part is lost", "cl/nvidia/split_tf32.h",
          "at[4] = (float4)(tf32(lo.x)", "at[4] = (float4)(0.0f * tf32(lo.x)",
          ("tests/kernels/nvidia/test_split.py",)),
    Fault("arm_spills", "a register tile has more sums than Neon's registers hold",
          "pyclmm/kernels/cpu/packed_shape.py", "128: ((4, 3), (4, 2))", "128: ((4, 3), (8, 2))",
          arm("offered_spills")),
    Fault("packed_far_rows", "a large B is read in place", "pyclmm/kernels/cpu/packed_shape.py",
          " or (row > _NEAR and large)", "", ("tests/kernels/cpu/test_packed.py",)),
    Fault("wgmma_left_step", "each step of K uses A of the step before", "cl/nvidia/wgmma_multiply.h",
          "place, step + AHEAD);", "place, step);", ("tests/kernels/nvidia/test_wgmma.py",)),
    Fault("wgmma_drain_free", "results are left in a stage that the other quartet still reads",
          "cl/nvidia/wgmma_drain.h", "  meet(FREE);", "",
          ("tests/kernels/nvidia/test_wgmma.py", "-k", "drain")),
    Fault("wgmma_drain_held", "of the results kept in registers the first are stored twice",
          "cl/nvidia/wgmma_drain.h", "held + 32 * chunk);", "held + 64);",
          ("tests/kernels/nvidia/test_wgmma.py", "-k", "drain")),
    Fault("tile_end_unchecked", "the self-check gives each work-group one tile",
          "pyclmm/checks/small_problems.py", "alone = replace(device, compute_units=1)", "alone = device",
          ("tests/checks/test_selfcheck.py", "-k", "overlaps_the_next")),
    Fault("left_bytes_order", "bytes of A of neighbouring rows change places", "cl/nvidia/left_bytes.h",
          "0x3175 : 0x7531", "0x7531 : 0x3175", ("tests/kernels/nvidia/test_wgmma.py", "-k", "bytes")),
    Fault("left_bytes_place", "lines of A are looked for where other lines lie", "cl/nvidia/left_bytes.h",
          "chunk ^ k % 8", "chunk", ("tests/kernels/nvidia/test_wgmma.py", "-k", "bytes")),
    Fault("wgmma_swapped", "a swapped result is stored as if it were not", "cl/nvidia/fragment_rows.h",
          "SWAPPED ? (long)(j) * (ldo) + (i) :", "", ("tests/kernels/nvidia/test_wgmma.py",)),
    Fault("thin_short_order", "16-bit elements of one access change places", "cl/gpu/thin.h",
          "e_ % 2 * 16", "(1 - e_ % 2) * 16", ("tests/kernels/gpu/test_thin.py",)),
    Fault("register_lost_range", "every second range of K is lost", "cl/include/add_partial_sums.h",
          "first += TEAMS * EACH", "first += 2 * TEAMS * EACH", laws("register")),
    Fault("register_fragments", "one k is multiplied twice, its neighbour never", "cl/gpu/register_loop.h",
          "multiply(acc, fa[kk % 2], fb[kk % 2]);", "multiply(acc, fa[0], fb[0]);",
          laws(f"{EXACT} and register")),
    Fault("register_edge_of_k", "tiles are not zero beyond K", "cl/gpu/register_tile.h", "k < w->k_left &&",
          "", laws("padding_of_operands and register")),
    Fault("register_columns", "a work-item stores beside its columns", "cl/gpu/register_tile.h",
          "(SG_COLS * CHUNK_B) + (c) % CHUNK_B", "(SG_COLS * CHUNK_B)", laws(f"{EXACT} and register")),
    Fault("bulk_released_early", "a stage is released before it was read", "cl/nvidia/mma_double_bulk.cl",
          "if (read && get_local_id(0) % 32 == 0) mbarrier_arrive(read);",
          "if (get_local_id(0) % 32 == 0) mbarrier_arrive(filler.stages.empty + 8 * ring.stage);",
          PTX_MACHINE),
    Fault("bulk_lost_slice", "the sums of a slice of K are lost", "cl/nvidia/mma_double_bulk.cl",
          "acc[i] += sums", "acc[i] = sums", PTX_MACHINE),
    Fault("thin_lanes", "half of the lanes' sums are lost", "cl/gpu/thin_dot.cl", "half_of = LANES / 2",
          "half_of = LANES / 4", laws(f"{EXACT} and thin")),
    Fault("thin_slices", "half of the slices' sums are lost", "cl/gpu/thin_walk.cl", "half_of = SLICES / 2",
          "half_of = SLICES / 4", laws(f"{EXACT} and thin")),
    Fault("thin_rows_beyond", "beyond K the last row is multiplied again",
          "cl/gpu/thin_walk.cl", "rows, k + u * SLICES < k_end)", "rows, true)",
          ("tests/kernels/gpu/test_thin.py",)),
    # OpenCL C: AMD's and Intel's matrix units, by emulation
    Fault("unit_barrier", "tiles are multiplied before they are whole", "cl/units/unit.h", BARRIER, "",
          units("gfx90a and bfloat16 and split_k"), on="rusticl"),
    Fault("unit_edge_of_k", "tiles are not zero beyond K", "cl/units/unit_tile.h", "inside && k < k_left",
          "inside", units("gfx90a")),
    Fault("unit_cells", "neighbouring lines of an operand across K are the same", "cl/units/unit_tile.h",
          ">> c * bits & mask", "& mask", units("gfx942")),
    Fault("unit_ranges", "every range of K is the first", "cl/units/unit.h", "get_group_id(1) * k_range", "0",
          units("split_k")),
    Fault("mfma_rows", "rows of a result are exchanged", "cl/units/amd_mfma.h",
          "4 * ((lane) / UNIT_M) + (e) % 4",
          "4 * ((lane) / UNIT_M) + 3 - (e) % 4", units("gfx90a")),
    Fault("mfma_double_rows", "float64 results lie as float32's", "cl/units/amd_mfma.h",
          "4 * (e) + (lane) / UNIT_M", "(e) + 4 * ((lane) / UNIT_M)", units("float64")),
    Fault("wmma_rows", "every second row of a result is lost", "cl/units/amd_wmma.h", "2 * (e) + (lane) / 16",
          "2 * (e)", units("gfx110")),
    Fault("wmma_words", "the second half of K is the first", "cl/units/amd_wmma.h", "(word) + 1", "(word)",
          units("gfx110")),
    Fault("dpas_halves", "odd work-items hold the elements of even ones", "cl/units/intel_dpas.h",
          "(lane) % 2 * 16", "0", units("Intel")),
    # Host: arguments, tables, canonical form
    Fault("lda_argument", "A's and B's leading dimensions are exchanged", "pyclmm/kernels/interface.py",
          "np.int64(problem.lda)", "np.int64(problem.ldb)", laws(f"{EXACT} and naive")),
    Fault("ldo_argument", "rows of out lie N apart whatever its stride", "pyclmm/kernels/interface.py",
          "np.int64(problem.ldo)", "np.int64(problem.n)", laws("nothing_but_the_result and naive")),
    Fault("rounding_down", "work-groups that stick out are not launched", "pyclmm/kernels/interface.py",
          "return -(-value // multiple) * multiple", "return max(1, value // multiple) * multiple",
          laws(f"{EXACT} and tiled")),
    Fault("no_bias_macro", "the bias is never added", "pyclmm/kernels/interface.py",
          "BIASES.index(problem.bias)", "0", laws("test_epilogues and naive")),
    Fault("batch_stride", "the stack's stride is one element short", "pyclmm/opencl/launches.py",
          "np.arange(length, dtype=np.int64) * step", "np.arange(length, dtype=np.int64) * (step - 1)",
          laws("stacks_broadcast and naive")),
    Fault("broadcast_stride", "a broadcast axis is walked", "pyclmm/problem/canonical.py",
          "0 if length == 1 else stride", "stride", laws("stacks_broadcast and naive")),
    Fault("float64_in_float32", "float64 products are summed in float32", "pyclmm/problem/dtypes.py",
          '"float64": "float64"', '"float64": "float32"', laws("every_dtype and float64")),
    Fault("beta_zero_reads_c", "C is read although beta is 0", "pyclmm/execution/operands.py",
          "reads_c=beta != 0", "reads_c=True", laws("beta_zero_never and naive")),
    Fault("alpha_zero_reads_a", "0 times NaN gets into the result", "pyclmm/problem/canonical.py",
          "k=0 if alpha_is_zero else a.cols", "k=a.cols", laws("alpha_zero_never and naive")),
    Fault("conj_flag", "A's conjugation is lost", "pyclmm/problem/canonical.py", "conj_a=a.conj",
          "conj_a=False", laws("conjugate_transposes")),
    Fault("scalar_wraps", "negative scalars of integer products lose their sign", "pyclmm/opencl/steps.py",
          "int(value) % (1 << bits)", "abs(int(value))", laws("integer_epilogue and naive")),
    Fault("column_major_operands", "a column-major out does not exchange A and B",
          "pyclmm/problem/canonical.py",
          "a, b, out = b.T, a.T, out.T", "a, b, out = a.T, b.T, out.T", laws("transposes and naive")),
    Fault("program_cache_key", "programs with other macros are taken from the cache",
          "pyclmm/opencl/program.py", "key = (context, program, detour)",
          "key = (context, Program(program.source, ()), detour)", laws("every_dtype and naive")),
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    fault: Fault
    caught: bool
    said: str
    seconds: float


def run_pytest(tree: Path, tests: Sequence[str], on: str = "") -> subprocess.CompletedProcess[str]:
    """Run the tests of *tree* on the sources of *tree*, up to the first failure."""
    seen = [environment(i) for i in IMPLEMENTATIONS if i.name == on]
    env = (seen[0] if seen else dict(os.environ)) | {
        "PYTHONPATH": str(tree),
        "PYCLMM_SELFCHECK": "off",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=line", *tests]
    return subprocess.run(
        command, cwd=tree, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def copy_tree(target: Path) -> None:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    (target / HOME.name).symlink_to(HOME)


def seed(fault: Fault) -> Result:
    """Run the fault's tests with the fault in place."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        copy_tree(tree)
        try:
            fault.apply(tree)
            done = run_pytest(tree, fault.tests, fault.on)
            # A fault that overwrites memory may end the process after a test has failed, even in its report.
            caught = done.returncode == TESTS_FAILED or "= FAILURES =" in done.stdout
            lines = [line for line in done.stdout.splitlines() if line.startswith(("E ", "/", "FAILED"))]
            said = lines[0] if caught and lines else done.stdout[-300:]
        except (LookupError, subprocess.TimeoutExpired) as error:
            caught, said = False, str(error)
    return Result(fault, caught, " ".join(said.split())[:200], time.monotonic() - started)


def healthy(chosen: Sequence[Fault]) -> str:
    """The output of these faults' tests if they fail without a fault; empty if they pass."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        copy_tree(tree)
        where = "import pyclmm, sys; sys.exit(0 if pyclmm.__file__.startswith(sys.argv[1]) else 3)"
        env = os.environ | {"PYTHONPATH": folder}
        subprocess.run([sys.executable, "-c", where, folder], cwd=tree, env=env, check=True)
        for tests, on in dict.fromkeys((f.tests, f.on) for f in chosen):
            done = run_pytest(tree, tests, on)
            if done.returncode:
                return done.stdout[-2000:]
    return ""


def table(results: Sequence[Result]) -> str:
    rows = ["| fault | file | what it breaks | noticed |", "| --- | --- | --- | --- |"]
    for r in results:
        f = r.fault
        rows.append(f"| {f.name} | `{f.file}` | {f.breaks} | {'yes' if r.caught else '**no**'} |")
    caught = sum(r.caught for r in results)
    return (
        "# Seeded faults\n\nWritten by `make faults`: each fault is put into a copy of the project, "
        f"and the tests must turn red. {caught} of {len(results)} were noticed.\n\n" + "\n".join(rows) + "\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.seeded_faults")
    parser.add_argument("names", nargs="*", help="faults to seed; all of them by default")
    parser.add_argument("--list", action="store_true", help="only list the faults")
    options = parser.parse_args()
    chosen = [f for f in FAULTS if not options.names or f.name in options.names]
    if options.list:
        print("\n".join(f"{f.name:24} {f.breaks}" for f in chosen))
        return 0
    if any(f.on or ARM in f.tests for f in chosen):
        prepare()
    if trouble := healthy(chosen):
        print(f"The tests are red without a fault:\n{trouble}", file=sys.stderr)
        return 1
    results = []
    with ThreadPoolExecutor(2) as pool:
        for result in pool.map(seed, chosen):
            results.append(result)
            word = "noticed" if result.caught else "MISSED"
            print(f"{word:8} {result.fault.name:24} {result.seconds:5.1f} s  {result.said}", flush=True)
    if not options.names:
        TABLE.write_text(table(results), encoding="utf-8")
    return 0 if all(r.caught for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
