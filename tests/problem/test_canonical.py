"""GemmProblem: operands of every layout become the canonical form that kernels see."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclmm import ShapeError, UnsupportedError
from pyclmm.kernels.launches import batch_table
from pyclmm.problem.canonical import Epilogue, checked_gemm
from pyclmm.problem.gemm import GemmProblem, Operand, alignment, dense

F2, F4, F8, C8 = (np.dtype(name) for name in ("f2", "f4", "f8", "c8"))


def operand(x, align=64):
    return Operand(x.shape, x.strides, x.dtype, align)


def checked(a, b, **kwargs):
    return checked_gemm(operand(a), operand(b), **kwargs)


A, B = np.zeros((5, 7), F4), np.zeros((7, 3), F4)


def test_plain_operands():
    gemm = checked(A, B)
    p = gemm.problem
    assert (p.m, p.n, p.k, p.batch_shape, p.batch) == (5, 3, 7, (), 1)
    assert (p.trans_a, p.trans_b, p.lda, p.ldb, p.ldo) == (False, False, 7, 3, 3)
    assert (p.a_type, p.b_type, p.out_type, p.acc_type) == ("float32",) * 4
    assert (gemm.shape, gemm.dtype, gemm.swapped, gemm.copies, gemm.out_copy) == ((5, 3), F4, False, (), None)
    assert not gemm.is_empty
    assert str(p) == "5 x 3 x 7 float32 @ float32 NN"


def test_column_major_operands_are_transposed_ones():
    p = checked(np.asfortranarray(A), np.asfortranarray(B)).problem
    assert (p.trans_a, p.trans_b, p.lda, p.ldb) == (True, True, 5, 7)
    assert str(p).endswith("TT")
    p = checked_gemm(operand(A.T), operand(B), trans_a="T").problem
    assert not p.trans_a


@pytest.mark.parametrize("trans", ["T", "C"])
def test_trans_swaps_axes_and_conjugates(trans):
    a = np.zeros((7, 5), C8)
    p = checked_gemm(operand(a), operand(B), trans_a=trans).problem
    assert (p.m, p.k, p.trans_a, p.lda) == (5, 7, True, 5)
    assert p.conj_a == (trans == "C")
    assert not p.conj_b
    real = checked_gemm(operand(a.real.copy()), operand(B), trans_a=trans).problem
    assert not real.conj_a, "nothing to conjugate"


def test_a_column_major_out_is_the_transposed_product():
    out = np.zeros((3, 5), F4).T
    c, bias = np.zeros((5, 3), F4), np.zeros((3,), F4)
    gemm = checked_gemm(
        operand(A), operand(B), out=operand(out), epilogue=Epilogue({"c": operand(c), "bias": operand(bias)})
    )
    p = gemm.problem
    assert gemm.swapped
    assert (p.m, p.n, p.k, p.trans_a, p.trans_b) == (3, 5, 7, True, True)
    assert (p.lda, p.ldb, p.ldo) == (3, 7, 5)
    assert p.c_strides == (1, 3)
    assert p.bias == "column", "a value a column of out is one a row of the transposed out"


def test_padded_rows_and_any_sign_of_leading_dimension():
    wide = np.zeros((9, 20), F4)
    assert checked(wide[:5, 3:10], B).problem.lda == 20
    assert checked(wide[4::-1, :7], B).problem.lda == -20
    assert checked(np.broadcast_to(wide[0, :7], (5, 7)), B).problem.lda == 0
    assert checked(wide[:5, :7], B).copies == ()


def test_no_unit_stride_means_a_copy():
    gemm = checked(np.zeros((10, 14), F4)[::2, ::2], B)
    ((name, copy),) = gemm.copies
    assert (name, copy.shape, copy.source_strides, copy.target_strides) == ("a", (5, 7), (28, 2), (7, 1))
    assert copy.elements == 35
    assert gemm.problem.lda == 7


def test_a_dtype_that_must_be_rounded_first_means_a_copy():
    gemm = checked(A, B, dtype=np.float16)
    copies = [(n, c.source_type, c.target_type) for n, c in gemm.copies]
    assert copies == [("a", "float32", "float16"), ("b", "float32", "float16")]
    assert gemm.problem.acc_type == "float32"


def test_each_type_that_kernels_do_not_take_means_a_copy():
    c, bias = np.zeros((5, 3), "i2"), np.zeros(3, F2)
    epilogue = Epilogue({"c": operand(c), "bias": operand(bias)})
    gemm = checked_gemm(operand(A.astype("i1")), operand(B), epilogue=epilogue, dtype=F4)
    copies = [(n, c.source_type, c.target_type) for n, c in gemm.copies]
    assert copies == [("c", "int16", "float32"), ("a", "int8", "float32")]
    p = gemm.problem
    assert (p.a_type, p.b_type, p.c_type, p.bias_type, p.out_type) == (*["float32"] * 3, "float16", "float32")


def test_vectors_become_matrices():
    v = np.zeros(7, F4)
    for a, b, shape in ((v, v, ()), (v, B, (3,)), (A, v, (5,)), (np.zeros((2, 1, 5, 7), F4), v, (2, 1, 5))):
        gemm = checked(a, b)
        assert gemm.shape == shape == np.matmul(a, b).shape
    strided = checked(np.zeros(14, F4)[::2], B)
    assert strided.copies == (), "a vector of any stride is a column with that leading dimension"
    assert (strided.problem.trans_a, strided.problem.lda) == (True, 2)


def test_out_that_kernels_cannot_write_is_copied():
    spread = np.zeros((10, 6), F4)[::2, ::2]
    gemm = checked(A, B, out=operand(spread))
    assert gemm.out_copy is not None
    assert (gemm.problem.ldo, gemm.out_copy.target_strides) == (3, (12, 2))
    assert checked(A, B, out=operand(np.zeros((5, 3), C8))).out_copy.target_type == "complex64"
    assert checked(A, B, out=operand(np.zeros((5, 3), F2))).out_copy is None, "stored as float16 directly"
    assert checked(A, B, out=operand(np.zeros((5, 3), F8))).out_copy.source_type == "float32"
    assert checked(A, B, out=operand(np.zeros((5, 3), F4)), out_is_copied=True).out_copy is not None


def test_stacks_broadcast_and_have_strides():
    gemm = checked(np.zeros((4, 1, 5, 7), F4), np.zeros((2, 7, 3), F4))
    p = gemm.problem
    assert (p.batch_shape, p.batch, gemm.shape) == ((4, 2), 8, (4, 2, 5, 3))
    assert p.batch_strides == ((35, 0), (0, 21), (0, 0), (30, 15))
    assert str(p).startswith("8 x 5 x 3 x 7")
    repeated = checked(A, B, out=operand(np.zeros((6, 5, 3), F4)))
    assert (repeated.problem.batch_shape, repeated.shape) == ((6,), (6, 5, 3))
    with pytest.raises(ShapeError, match="out has shape"):
        checked(np.zeros((4, 5, 7), F4), B, out=operand(np.zeros((6, 5, 3), F4)))


def test_offsets_of_a_stack():
    table = batch_table((2, 3), [(100, 10), (0, -1)])
    assert table.tolist() == [[0, 0], [10, -1], [20, -2], [100, 0], [110, -1], [120, -2]]
    assert batch_table((), [(), ()]).tolist() == [[0, 0]]


@pytest.mark.parametrize(("m", "n"), [(0, 3), (5, 0)])
def test_empty_results(m, n):
    assert checked(np.zeros((m, 7), F4), np.zeros((7, n), F4)).is_empty


def test_alpha_zero_gives_k_zero():
    assert checked(A, B, alpha_is_zero=True).problem.k == 0


def test_operations_and_bytes_are_counted():
    p = checked(A, B).problem
    assert p.flops == 2 * 5 * 3 * 7
    assert p.nbytes == 4 * (35 + 21 + 15)
    assert replace(p, acc_type="complex64").flops == 4 * p.flops
    assert replace(p, batch_shape=(6,)).flops == 6 * p.flops
    assert replace(p, has_c=True, c_type="float64").nbytes == p.nbytes + 8 * 15
    assert p.types == ("float32",) * 4
    types = replace(p, has_c=True, c_type="float16", bias="row", bias_type="int8").types
    assert types[4:] == ("float16", "int8")


@given(st.lists(st.integers(0, 300), max_size=4))
def test_alignment_divides_everything_and_is_the_largest(counts):
    power = alignment(*counts)
    assert power in (1, 2, 4, 8, 16, 32, 64)
    assert all(count % power == 0 for count in counts)
    assert power == 64 or any(count % (2 * power) for count in counts)


def test_alignment_of_rows():
    p = checked_gemm(operand(np.zeros((4, 8), F4), 64), operand(np.zeros((8, 6), F4), 16)).problem
    assert (p.a_align, p.b_align, p.out_align) == (32, 8, 8)
    stack = checked_gemm(operand(np.zeros((2, 1, 8), F4)[:, :, :8]), operand(np.zeros((8, 16), F4))).problem
    assert stack.a_align == 32


def test_sizes_too_large_for_32_bit_indices_are_refused():
    most = 2**31 - 2**16
    assert checked_gemm(dense((1, most), F4), dense((most, 1), F4)).problem.k == most
    with pytest.raises(UnsupportedError, match=r"at most 2\^31 - 2\^16: 1, 1, 2147418113"):
        checked_gemm(dense((1, most + 1), F4), dense((most + 1, 1), F4))
    with pytest.raises(UnsupportedError, match=r"at most 2\^31 - 2\^16: 2147418113, 1, 1"):
        checked_gemm(dense((most + 1, 1), F4), dense((1, 1), F4))


def test_the_shape_of_bias_gives_its_kind_and_stride():
    def bias_of(shape):
        p = checked_gemm(operand(A), operand(B), epilogue=Epilogue({"bias": dense(shape, F4)})).problem
        return p.bias, p.bias_stride

    assert bias_of((3,)) == ("row", 1)
    assert bias_of((1, 3)) == ("row", 1)
    assert bias_of((5, 1)) == ("column", 1)
    assert bias_of((1, 1)) == ("row", 0), "one value for all"
    assert checked(A, B).problem.bias == "none"


def test_the_transposed_product_swaps_all_but_outs_own_fields():
    given = GemmProblem(
        *(5, 3, 7, "int8", "uint8", "int32", "uint32", False, False, True, False, 11, 13, 17, 4, 8, 16),
        *((2,), ((1,), (2,), (3,), (4,))),
        has_c=True,
        c_type="int16",
        c_strides=(19, 23),
        bias="row",
    )
    wanted = GemmProblem(
        *(3, 5, 7, "uint8", "int8", "int32", "uint32", True, True, False, True, 13, 11, 17, 8, 4, 16),
        *((2,), ((2,), (1,), (3,), (4,))),
        has_c=True,
        c_type="int16",
        c_strides=(23, 19),
        bias="column",
    )
    assert given.transposed == wanted
    assert wanted.transposed == given


@given(*[st.lists(st.integers(0, 3), max_size=5)] * 2)
def test_stacks_broadcast_as_in_numpy(x, y):
    try:
        want = np.broadcast_shapes(tuple(x), tuple(y))
    except ValueError:
        with pytest.raises(ShapeError, match="do not broadcast"):
            checked(np.zeros((*x, 2, 2), F4), np.zeros((*y, 2, 2), F4))
    else:
        assert checked(np.zeros((*x, 2, 2), F4), np.zeros((*y, 2, 2), F4)).problem.batch_shape == want
