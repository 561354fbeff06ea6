"""Faults of kernels that the self-check alone must notice, each with a product that it makes wrong.

`seeded_faults.py --check` puts them in. They are kinds of mistakes of kernels, compilers and drivers: a loop
that ends early or forgets what it has summed, a range or stack entry that is lost, a scalar, stride or offset
that is not used, a number that is read, rounded, bounded or compared in the wrong way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .faults import Fault


@dataclass(frozen=True)
class CheckFault(Fault):
    """``product``: the keywords of :func:`.checked_product.answer`."""

    product: dict[str, Any] = field(default_factory=dict)


def fault(
    name: str, breaks: str, file: str, old: str, new: str, kernel: str, nth: int = 0, **product: Any
) -> CheckFault:
    return CheckFault(name, breaks, f"cl/{file}", old, new, (), nth, product={"kernel": kernel, **product})


GEMM, TYPES = "include/gemm.h", "include/types.h"
TILED, NAIVE, PACKED = "textbook/tiled.cl", "textbook/naive.cl", "cpu/packed.cl"
MATVEC, REGISTER = "cpu/matvec.cl", "gpu/register.h"
TILED_LOOP = "for (int t = 0; t < K; t += TW) {"
NAIVE_LOOP = "for (int k = 0; k < K; ++k) {"
OFFSETS = "batch_offsets[4 * (z) + (which)]"
VALUE = "ACC_T value = SCALE(alpha, acc);"
C_INDEX = "(long)(i) * (c_rs) + (long)(j) * (c_cs), bias"
BIAS_INDEX = "(long)(BIAS == 1 ? (j) : (i)) * (bias_stride)"
CARRY = "if (k0 > k_begin) ADD_TILE(acc, sum);"
STORE = "if ((i) < (M) && (j) < (N)) {"
PANEL_ROWS = "const int k_begin = get_group_id(1) * chunk, k_end = min(K, k_begin + chunk);"
COLUMN_SUMS = "const int k0 = get_group_id(1) * k_range, k1 = min(K, k0 + k_range);\n  const int count"
VECTOR = (1, 4096, 4096)

CHECK_FAULTS = (
    # Sizes: loops over K
    fault("tiled_k_4096", "steps of K beyond 4096 are lost", TILED, TILED_LOOP,
          "for (int t = 0; t < min(K, 4096); t += TW) {", "tiled", shape=(20, 20, 5000)),
    fault("tiled_third_step", "the third step of K is lost", TILED, TILED_LOOP,
          TILED_LOOP + "\n    if (t == 2 * TW) continue;", "tiled"),
    fault("tiled_many_steps", "every step of K from the 65th on is the 65th", TILED, TILED_LOOP,
          TILED_LOOP.replace("t < K", "t < min(K, 65 * TW)"), "tiled", shape=(20, 20, 1500)),
    fault("tiled_last_of_k", "the last element of K is lost where K is long", TILED, "t + col, lda, M, K);",
          "t + col, lda, M, K - (K > 1000));", "tiled", shape=(20, 20, 1200)),
    fault("naive_k_16_bits", "K is counted in 13 bits", NAIVE, NAIVE_LOOP,
          "for (int k = 0; k < (K & 8191); ++k) {", "naive", shape=(20, 20, 9000)),
    fault("naive_k_1", "a K of 1 is taken for 0", NAIVE, NAIVE_LOOP,
          "for (int k = 0; k < K - (K == 1); ++k) {", "naive", shape=(20, 20, 1)),
    fault("naive_k_0", "a K of 0 leaves garbage", NAIVE, "ACC_T acc = ACC_ZERO;",
          "ACC_T acc = (ACC_T)(K == 0);", "naive", shape=(20, 20, 0)),
    fault("flat_k_4096", "steps of K beyond 4096 are lost", "textbook/flat.cl", NAIVE_LOOP,
          "for (int k = 0; k < min(K, 4096); ++k) {", "flat", shape=(20, 20, 5000)),
    fault("block_k_even", "every step of K after the fourth is lost if K is a multiple of it",
          "textbook/block.cl", "t < K;", "t < (K % BK ? K : min(K, 4 * BK));", "block", shape=(64, 64, 320)),
    fault("packed_k_4096", "steps of K beyond 4096 are lost", PACKED,
          "const int k_end = min(K, k_begin + k_range);",
          "const int k_end = min(min(K, 4096), k_begin + k_range);", "packed", shape=(40, 40, 5000)),
    fault("packed_last_block", "only the sums of the last block of K are kept", PACKED, CARRY, "", "packed",
          shape=(40, 40, 5000)),
    fault("packed_third_block", "the third block of K forgets the two before", PACKED, CARRY,
          "if (k0 == k_begin + kc) ADD_TILE(acc, sum);", "packed", shape=(500, 500, 5000)),
    fault("packed_short_block", "a last block of K with other steps than the first is lost", PACKED, CARRY,
          "if (k0 > k_begin && steps < kc && steps > 4) TAKE_TILE(acc, sum); else if (k0 > "
          "k_begin) ADD_TILE(acc, sum);", "packed", shape=(40, 40, 5003)),
    fault("packed_rest_of_k", "of the last three steps of K one is lost", "cpu/packed_tile.h",
          "u < K - k; ++u", "u < min(K - k, 2); ++u", "packed", shape=(40, 40, 503)),
    fault("packed_chunks_of_k", "steps of K from the third packed piece on are those of the second",
          "cpu/packed_panels.h", PANEL_ROWS,
          PANEL_ROWS.replace("get_group_id(1) * chunk,", "min((int)get_group_id(1), 2) * chunk,"), "packed",
          nth=1, shape=(1000, 777, 1600)),
    fault("register_third_step", "the third step of K is lost", "gpu/register_loop.h",
          "multiply(acc, fa[kk % 2], fb[kk % 2]);", "if (k != 2 * BK) multiply(acc, fa[kk % 2], fb[kk % 2]);",
          "register"),
    fault("register_k_4096", "steps of K beyond 4096 are lost", "gpu/register_loop.h", "k < depth; k += BK",
          "k < min(depth, 4096); k += BK", "register", shape=(1000, 777, 5000)),
    fault("thin_k_end", "the last access along K is lost where there are many", "gpu/thin_dot.cl",
          "k < k_end; k += LANES * VEC", "k < k_end - (k_end > 100 ? VEC : 0); k += LANES * VEC", "thin",
          shape=(4, 900, 301), trans_b=True),
    fault("thin_ahead", "what was fetched ahead last is lost", "gpu/thin_walk.cl",
          "multiply_access(acc, ahead[u], ROW(y, k + u * SLICES",
          "if (u > 0) multiply_access(acc, ahead[u], ROW(y, k + u * SLICES", "thin", shape=(4, 900, 1001)),
    fault("matvec_rest_of_k", "of the last rows of the matrix one is lost where K is long", MATVEC,
          "for (; k < k1; ++k)", "for (; k < k1 - (K > 500); ++k)", "matvec", shape=(1, 900, 1005)),
    fault("matvec_dot_rest",
          "of the last vector of a row, which overlaps the one before, one element is lost", "cpu/dot_rows.h",
          "k + LANES - count);", "k + LANES - count + 1);", "matvec", shape=(900, 1, 1005)),
    # Sizes: rows, columns, work-groups
    fault("tiled_second_row", "the second row of work-groups takes the first's rows of A", TILED,
          "tile_a, a, lda, M, K, i0,", "tile_a, a, lda, M, K, get_group_id(1) == 1 ? 0 : i0,", "tiled"),
    fault("tiled_third_row", "the third row of work-groups is lost", TILED, "STORE_RESULT(i0 + li,",
          "if (get_group_id(1) != 2) STORE_RESULT(i0 + li,", "tiled"),
    fault("tiled_third_column", "the third column of work-groups is lost", TILED, "STORE_RESULT(i0 + li,",
          "if (get_group_id(0) != 2) STORE_RESULT(i0 + li,", "tiled"),
    fault("rows_1000", "rows beyond 1000 are lost", GEMM, STORE, "if ((i) < min(M, 1000) && (j) < (N)) {",
          "naive", shape=(1200, 20, 30)),
    fault("columns_1500", "columns beyond 1500 are lost", GEMM, STORE,
          "if ((i) < (M) && (j) < min(N, 1500)) {", "naive", shape=(20, 1600, 30)),
    fault("one_row_left", "a row alone in the last tile is lost if there is C", GEMM, STORE,
          "if ((i) < (M) - (HAS_C && M > 100 && M % 16 == 1) && (j) < (N)) {", "packed", shape=(113, 70, 30),
          beta=2.0),
    fault("one_column_left", "a column alone in the last tile is lost", GEMM, STORE,
          "if ((i) < (M) && (j) < (N) - (N > 100 && N % 16 == 1)) {", "tiled", shape=(30, 129, 30)),
    fault("flat_wide", "rows beyond 2^15 results are shifted", "textbook/flat.cl", "const int j = id % N;",
          "const int j = (id >= 32768 && id % N == 0) ? N - 1 : id % N;", "flat", shape=(1200, 40, 30)),
    fault("matvec_512", "rows beyond 512 are lost", MATVEC, "j1 = min(length, j0 + nc);",
          "j1 = min(min(length, 512), j0 + nc);", "matvec", shape=(2000, 1, 300)),
    fault("matvec_columns_512", "columns beyond 512 are lost", MATVEC, "j1 = min(X_IS_A ? N : M, j0 + nc);",
          "j1 = min(min(X_IS_A ? N : M, 512), j0 + nc);", "matvec", shape=(1, 2000, 300)),
    fault("matvec_last_rows", "the last rows are those before, where they do not fill a pass", MATVEC,
          "min(j + r, length - 1) * ld", "min(j + (j + ROWS > length ? 0 : r), length - 1) * ld", "matvec",
          shape=(2003, 1, 300)),
    fault("packed_third_tile", "the third register tile of rows takes the second's rows of A", PACKED,
          "const int ti = MOVED(PACK_A, i, MR, M);",
          "const int ti = i - i0 == 2 * MR ? i - MR : MOVED(PACK_A, i, MR, M);", "packed",
          shape=(1000, 777, 500)),
    fault("packed_macro_rows", "macro-tiles of rows from the third on are lost", PACKED,
          "const int i0 = first_row +", "if (down % tile_rows > 1) return;\n  const int i0 = first_row +",
          "packed", shape=(1000, 777, 100)),
    fault("packed_panel_span", "of the panels of B that a work-group packs the last is lost",
          "cpu/packed_panels.h", "end = min(N, first + span * NR);", "end = min(N, first + (span - 1) * NR);",
          "packed", shape=(1000, 777, 513)),
    fault("register_rows_of_tiles", "tiles from the ninth row on are another's", "include/tile_order.h",
          "return (int2)(group * GROUP", "return (int2)(min(group, 0u) * GROUP", "register",
          shape=(1000, 777, 50)),
    fault("register_end_of_k", "an element beyond K is multiplied", "gpu/register_tile.h", "k < w->k_left &&",
          "k <= w->k_left &&", "register", shape=(1000, 777, 50)),
    fault("thin_seventh", "the last of seven rows is the sixth", "gpu/thin.h",
          "STORE_RESULT(THIN_ROWS ? q : x,", "STORE_RESULT(THIN_ROWS ? (M == 7 ? min(q, 5) : q) : x,", "thin",
          shape=(7, 900, 100)),
    # Ranges of K
    fault("cpu_third_range", "the third range of K is lost", "cpu/add_partial_sums.h",
          "range < split_k; ++range", "range < min(split_k, 2); ++range", "packed", shape=(20, 20, 20_000)),
    fault("gpu_third_range", "the third range of K is lost", "include/add_partial_sums.h",
          "range < split_k ?", "range < min(split_k, 2) ?", "thin", shape=(4, 4, 20_000), trans_b=True),
    fault("register_second_range", "a range of K begins at the first", REGISTER,
          "const int k0 = SPLIT ? get_group_id(1) * k_range : 0;",
          "const int k0 = SPLIT && get_group_id(1) > 1 ? get_group_id(1) * k_range : 0;", "register",
          shape=(30, 30, 20_000)),
    fault("range_end", "the last range of K is as long as the others", "gpu/thin_dot.cl",
          "const int k_end = SPLIT ? min(K, k0 + k_range) : K;",
          "const int k_end = SPLIT ? (k0 + k_range > K ? k0 : k0 + k_range) : K;", "thin",
          shape=(4, 4, 20_004), trans_b=True),
    # Stacks
    fault("stack_third", "products of a stack after the second are the second", GEMM, OFFSETS,
          "batch_offsets[4 * min((long)(z), 1L) + (which)]", "naive", stack=5),
    fault("stack_fourth_a", "the fourth product of a stack has the third's A", GEMM, OFFSETS,
          "batch_offsets[4 * ((which) == 0 && (z) == 3 ? 2 : (z)) + (which)]", "tiled", stack=4),
    fault("stack_c", "every product of a stack has the first's C", GEMM, OFFSETS,
          "batch_offsets[4 * ((which) == 2 ? 0 : (z)) + (which)]", "tiled", stack=3, beta=2.0),
    fault("stack_panels", "products of a stack from the fourth on have the third's panels of B",
          "cpu/packed_panels.h", "panels += get_global_id(2) * stack;",
          "panels += min((int)get_global_id(2), 2) * stack;", "packed", shape=(40, 60, 50), stack=5,
          trans_b=True),
    fault("stack_ranges", "partial sums of a stack's third product go to the second's",
          "cpu/add_partial_sums.h", "((BATCH_ENTRY * split_k + range) * pieces",
          "((min(BATCH_ENTRY, 1L) * split_k + range) * pieces", "packed", shape=(8, 8, 20_000), stack=4),
    # Scalars
    fault("alpha_imaginary", "the imaginary part of alpha is lost", TYPES, "(IS_ZERO((s).y) ? (ACC_T)(TIMES",
          "(1 ? (ACC_T)(TIMES", "naive", dtype="complex64", alpha=[1.0, 2.0]),
    fault("alpha_conjugated", "alpha is conjugated", TYPES, "times_pair(s, v))",
          "times_pair((ACC_T)((s).x, NEGATED((s).y)), v))", "naive", dtype="complex128", alpha=[1.0, 2.0]),
    fault("alpha_below_1", "alpha below 1 is 1", GEMM, VALUE,
          "ACC_T value = SCALE(fmax(alpha, (ACC_T)1), acc);", "naive", alpha=0.5),
    fault("alpha_negative", "alpha's sign is lost", GEMM, VALUE, "ACC_T value = SCALE(fabs(alpha), acc);",
          "tiled", alpha=-1.0),
    fault("alpha_whole", "alpha is rounded to a whole number", GEMM, VALUE,
          "ACC_T value = SCALE(rint(alpha), acc);", "tiled", alpha=1.5),
    fault("alpha_power_of_two", "alpha is rounded to a power of two", GEMM, VALUE,
          "ACC_T value = SCALE(copysign(exp2(rint(log2(fabs(alpha)))), alpha), acc);", "naive", alpha=3.0),
    fault("alpha_narrow", "alpha of integers has 16 bits", GEMM, VALUE,
          "ACC_T value = SCALE((ACC_T)(short)alpha, acc);", "naive", dtype="int32", alpha=70_001),
    fault("beta_sign", "beta's sign is lost", GEMM, "SCALE(beta, old)", "SCALE(fabs(beta), old)", "naive",
          nth=1, beta=-0.5),
    fault("beta_above_1", "beta above 1 is 1", GEMM, "SCALE(beta, old)", "SCALE(fmin(beta, (ACC_T)1), old)",
          "naive", nth=1, beta=3.0),
    fault("beta_is_alpha", "C is multiplied by alpha", GEMM, "SCALE(beta, old)", "SCALE(alpha, old)", "naive",
          nth=1, alpha=2.0, beta=3.0),
    fault("vector_store_alpha", "whole tiles are stored without alpha", "cpu/packed_store.h",
          "= alpha * FINAL_SUM(acc[r][v]);", "= FINAL_SUM(acc[r][v]);", "packed", nth=1, shape=(64, 64, 64),
          alpha=0.5),
    # Layouts
    fault("c_columns", "C's stride along a row is 1", GEMM, C_INDEX, "(long)(i) * (c_rs) + (long)(j), bias",
          "naive", beta=2.0, c_layout="columns"),
    fault("c_rows", "C's stride from row to row is N", GEMM, C_INDEX,
          "(long)(i) * (N) + (long)(j) * (c_cs), bias", "naive", beta=2.0, c_layout="padded"),
    fault("c_negative", "C's strides have no sign", GEMM, C_INDEX,
          "(long)(i) * abs_diff((int)(c_rs), 0) + (long)(j) * (c_cs), bias", "naive", beta=2.0,
          c_layout="reversed"),
    fault("c_offset", "C begins at the start of its memory", GEMM, "c += c_offset +", "c += 0 * c_offset +",
          "tiled", beta=2.0, c_layout="padded", views=True),
    fault("bias_stride", "bias's stride is 1", GEMM, BIAS_INDEX, "(long)(BIAS == 1 ? (j) : (i))", "naive",
          bias="gaps"),
    fault("bias_offset", "bias begins at the start of its memory", GEMM, "bias += bias_offset", "bias += 0",
          "naive", bias="gaps", views=True),
    fault("bias_of_columns", "a bias for each row is taken for one for each column", GEMM, BIAS_INDEX,
          "(long)(j) * (bias_stride)", "naive", bias="column"),
    fault("a_offset", "A begins at the start of its memory", GEMM, "a += a_offset +", "a += 0 * a_offset +",
          "naive", views=True),
    fault("out_rows", "rows of out are N apart", GEMM, "(long)(i) * (ldo) + (j), i, j",
          "(long)(i) * (N) + (j), i, j", "tiled", views=True),
    # Values: integers
    fault("uint8_signed", "uint8 is read as signed", TYPES, "fetch_uint8(p, i) ((p)[i])",
          "fetch_uint8(p, i) ((char)(p)[i])", "naive", dtype="uint8", values="range", out="int32"),
    fault("int8_unsigned", "int8 is read as unsigned", TYPES, "fetch_int8(p, i) ((p)[i])",
          "fetch_int8(p, i) ((uchar)(p)[i])", "naive", dtype="int8", out="int32"),
    fault("int8_least", "the least int8 is read as the next one", TYPES, "fetch_int8(p, i) ((p)[i])",
          "fetch_int8(p, i) (max((int)(p)[i], -127))", "naive", dtype="int8", values="range", out="int32"),
    fault("int16_8_bits", "int16 is read without its upper bits", TYPES, "fetch_int16(p, i) ((p)[i])",
          "fetch_int16(p, i) ((char)(p)[i])", "naive", dtype="int16", values="range"),
    fault("uint16_signed", "uint16 is read as signed", TYPES, "fetch_uint16(p, i) ((p)[i])",
          "fetch_uint16(p, i) ((short)(p)[i])", "naive", dtype="uint16", values="range", out="float64"),
    fault("int64_32_bits", "int64 is read without its upper half", TYPES, "fetch_int64(p, i) ((p)[i])",
          "fetch_int64(p, i) ((int)(p)[i])", "naive", dtype="int64", values="range"),
    fault("int8_saturated", "int8 results stop at 127", TYPES, "((p)[i] = (char)(v))",
          "((p)[i] = convert_char_sat((int)(v)))", "naive", dtype="int8", values="range"),
    fault("uint32_saturated", "sums of uint32 stop at the largest", TYPES,
          "#define mac_real(acc, x, y) ((acc) + (x) * (y))",
          "#define mac_real(acc, x, y) CAT(sat_, ACC_TYPE)(acc, x, y)\n#define "
          "sat_uint32(acc, x, y) add_sat(acc, (x) * (y))\n", "naive", dtype="uint32", values="range"),
    fault("packed_uint8_signed", "vectors of uint8 are read as signed", "cpu/vector_loads.h",
          "#define vec_uint8(p) AS_UINTS(LOOSE(UCHARS, p))", "#define vec_uint8(p) AS_UINTS(LOOSE(CHARS, p))",
          "packed", dtype="uint8", values="range", shape=(12, 256, 300), out="int32"),
    # Values: floats
    fault("relu_nan", "relu of NaN is 0", GEMM, "#define ACTIVATE(x) (IS_NEGATIVE(x) ? ACC_ZERO : (x))",
          "#define ACTIVATE(x) fmax(x, ACC_ZERO)", "naive", activation="relu", values="special"),
    fault("float16_clamped", "float16 results stop at 65504", TYPES, "vstore_half_rte(v, i, p)",
          "vstore_half_rte(clamp(v, -65504.0f, 65504.0f), i, p)", "naive", dtype="float16", alpha=8192.0),
    fault("float16_toward_zero", "float16 results are rounded toward zero", TYPES, "vstore_half_rte(v, i, p)",
          "vstore_half_rtz(v, i, p)", "naive", dtype="float16", values="reals"),
    fault("bfloat16_cut", "bfloat16 results are cut, not rounded", TYPES,
          "return (ushort)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);", "return (ushort)(bits >> 16);",
          "naive", dtype="bfloat16", out="bfloat16", values="reals"),
    fault("bfloat16_half_up", "ties of bfloat16 results are rounded away from zero", TYPES,
          "0x7fff + (bits >> 16 & 1)", "0x8000", "naive", dtype="bfloat16", out="bfloat16",
          shape=(70, 60, 4000)),
    fault("nan_lost", "NaN in B is read as 0", TYPES, "#define LOAD_B(p, i) LOAD(B_TYPE, p, i)",
          "#define LOAD_B(p, i) (LOAD(B_TYPE, p, i) == LOAD(B_TYPE, p, i) ? LOAD(B_TYPE, p, i) : ACC_ZERO)",
          "naive", nth=0, values="special"),
    fault("infinity_bounded", "infinity in A is the largest number", TYPES,
          "#define LOAD_A(p, i) LOAD(A_TYPE, p, i)",
          "#define LOAD_A(p, i) clamp(LOAD(A_TYPE, p, i), -FLT_MAX, FLT_MAX)", "tiled", values="special"),
    fault("zero_times_infinity", "products by zero are left out", TYPES,
          "#define mac_real(acc, x, y) ((acc) + (x) * (y))",
          "#define mac_real(acc, x, y) ((x) == 0 || (y) == 0 ? (acc) : (acc) + (x) * (y))", "naive",
          values="special"),
    fault("float64_in_float32", "float64 is multiplied as float32", TYPES,
          "#define mac_real(acc, x, y) ((acc) + (x) * (y))",
          "#define mac_real(acc, x, y) ((acc) + (ACC_T)((float)(x) * (float)(y)))", "naive", dtype="float64",
          values="reals"),
    fault("float32_in_half", "float32 operands lose their last bits", TYPES,
          "#define mac_real(acc, x, y) ((acc) + (x) * (y))",
          "#define mac_real(acc, x, y) ((acc) + (x) * as_float(as_uint((float)(y)) & 0xfffff000u))", "naive",
          values="reals"),
    fault("conjugated_imaginary", "imaginary parts of products are subtracted", TYPES,
          "(acc).y + (u).x * (v).y + (u).y * (v).x", "(acc).y + (u).x * (v).y - (u).y * (v).x", "naive",
          dtype="complex64"),
    # Activations
    fault("leaky_slope", "leaky_relu's slope is 0.1", GEMM, "CONSTANT(0.01,", "CONSTANT(0.1,", "naive",
          activation="leaky_relu"),
    fault("gelu_by_tanh", "gelu is gelu_tanh's formula with exp of twice as much", GEMM,
          "erf((x) * (ACC_T)0.70710678118654752440)", "tanh((x) * (ACC_T)0.70710678118654752440)", "naive",
          activation="gelu"),
    fault("gelu_tanh_cubic", "gelu_tanh lacks its cubic term", GEMM, "+ (ACC_T)0.044715 * (x) * (x) * (x)",
          "", "naive", activation="gelu_tanh"),
    fault("sigmoid_negative", "sigmoid of negative numbers is 0", GEMM,
          "#define ACTIVATE(x) ((ACC_T)1 / ((ACC_T)1 + exp(-(x))))",
          "#define ACTIVATE(x) ((x) < 0 ? (ACC_T)0 : (ACC_T)1 / ((ACC_T)1 + exp(-(x))))", "naive",
          activation="sigmoid"),
    fault("tanh_bounded", "tanh is 1 from 2 on", GEMM, "#define ACTIVATE(x) tanh(x)",
          "#define ACTIVATE(x) ((x) > 2 ? (ACC_T)1 : tanh(x))", "naive", activation="tanh", values="reals",
          shape=(40, 40, 4)),
    fault("silu_far", "silu below -4 is 0", GEMM, "#define ACTIVATE(x) ((x) / ((ACC_T)1 + exp(-(x))))",
          "#define ACTIVATE(x) ((x) < -4 ? (ACC_T)0 : (x) / ((ACC_T)1 + exp(-(x))))", "naive",
          activation="silu"),
)  # fmt: skip
