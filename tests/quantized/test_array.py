"""QuantizedArray: what it says of itself, rows and parts of it that share memory, where it can be brought."""

import pickle

import numpy as np
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm import QuantizedArray
from pyclmm.formats import FORMATS, OF_GGUF, format_named
from tests.support.made_up import seen_as
from tests.support.optional import optional

ml_dtypes = optional("ml_dtypes")
N, K = 12, 256
GGUF_AND_OTHERS = (
    "affine3_g32_float16", "affine4_g64_float32", "mxfp8", "nvfp4", "q4_0", "q6_k", "mxfp4_gguf",
)  # fmt: skip


def drawn(rng, name="affine4_g64_float32", n=N, k=K):
    form = format_named(name)
    return QuantizedArray.of_rows(form.drawn(rng, n, k), form, k)


@pytest.mark.parametrize("name", GGUF_AND_OTHERS)
def test_it_says_what_it_is(rng, name):
    q, form = drawn(rng, name), format_named(name)
    assert (q.shape, q.T.shape, q.ndim, q.size, len(q), len(q.T)) == ((N, K), (K, N), 2, N * K, N, K)
    assert (q.mode, q.bits, q.group_size, q.format) == (form.mode, form.bits, form.group_size, form)
    assert q.dtype == form.dtype
    assert q.nbytes == q.T.nbytes == q.data.nbytes == N * form.row_nbytes(K)
    assert (q.is_transposed, q.T.is_transposed, q.T.T.is_transposed) == (False, True, False)
    values = q.dequantize()
    assert values.dtype == q.dtype
    np.testing.assert_array_equal(values, form.dequantize(q.data, K).astype(q.dtype))
    np.testing.assert_array_equal(q.T.dequantize(), values.T)


def test_the_repr_says_bytes_a_weight(rng):
    q = drawn(rng, "q4_0", k=4096)
    text = "4 bits in groups of 32, for float32, 0.5625 bytes a weight, 27 KiB in the host's memory>"
    assert repr(q) == f"<QuantizedArray 12 x 4096: q4_0, {text}"
    assert repr(q.T).startswith("<QuantizedArray 4096 x 12: q4_0")
    assert "bytes a weight" not in repr(q[:0])


@pytest.mark.parametrize("name", GGUF_AND_OTHERS)
def test_rows_share_memory(rng, name):
    q = drawn(rng, name)
    for rows in (slice(2, 7), slice(None), slice(-3, None), slice(1, 12, 3), slice(4, 4)):
        part = q[rows]
        assert part.shape == (len(range(N)[rows]), K)
        assert part.data.size == 0 or np.shares_memory(part.data, q.data)
        np.testing.assert_array_equal(part.dequantize(), q.dequantize()[rows])
        assert part.nbytes == len(part) * q.nbytes // N


@pytest.mark.parametrize(
    "index",
    [3, slice(None, None, -1), slice("a"), slice(None, None, 0), (slice(0, 2), slice(0, 64)), [1, 2], None],
)
def test_another_index_is_refused(rng, index):
    with pytest.raises(pyclmm.ArgumentError, match=r"index is .*take a slice of rows .* q\[2:8\]"):
        drawn(rng)[index]
    with pytest.raises(pyclmm.ArgumentError, match="index is 0"):
        list(drawn(rng))


REFUSED = {
    "columns of a transposed one": (lambda q, _: q.T[2:4], pyclmm.ArgumentError, r"then \.T"),
    "its numbers": (lambda q, _: np.asarray(q), pyclmm.DTypeError, r"pass q\.dequantize\(\)"),
    "a product by NumPy": (lambda q, _: np.ones((2, K), "f4") @ q.T, TypeError, "no array of numbers"),
    **{
        f"values of {name}": (lambda q, _, name=name: q.dequantize(name), pyclmm.DTypeError, "dtype is ")
        for name in ("int8", "complex64", "bool", "no")
    },
    "a place by a name": (
        lambda q, _: q.to("gpu"), pyclmm.DTypeError, "like is a str; pass a queue, or an array of NumPy's",
    ),
    "an Array without a queue": (
        lambda q, queue: q.to(cla.Array(queue.context, 1, np.float32)),
        pyclmm.DTypeError, "like is an Array without a queue; pass the queue",
    ),
    "another order": (
        lambda q, _: q.to(np.empty(0), order="fragment"),
        pyclmm.ArgumentError, r"unknown order 'fragment': .*'rows', 'fragments'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_it_does_not_have_or_do_is_refused(queue, rng, case):
    call, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        call(drawn(rng), queue)


def test_it_cannot_be_written(rng):
    rows = format_named("q8_0").drawn(rng, N, K)
    q = QuantizedArray.of_rows(rows, format_named("q8_0"), K)
    assert np.shares_memory(q.data, rows)
    for data in (q.data, q[2:5].data, drawn(rng).scales, pyclmm.quantize(np.ones((2, 64), "f4")).data):
        with pytest.raises(ValueError, match="read-only"):
            data[0, 0] = 1
    rows[0, 0] = 1  # its owner's array is as it was
    np.testing.assert_array_equal(q.data, rows)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_values_are_rounded_to_the_dtype_that_is_asked_for(rng, dtype):
    q = drawn(rng, "q6_k")
    wanted = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    np.testing.assert_array_equal(q.dequantize(dtype), q.dequantize().astype(wanted))
    assert q.dequantize(dtype).dtype == wanted


def test_weights_for_which_the_device_has_no_room(rng, queue, monkeypatch):
    seen_as(monkeypatch, max_mem_alloc_size=300)
    q = drawn(rng)
    with pytest.raises(pyclmm.DeviceMemoryError, match=f"weights needs a buffer of {q.nbytes} bytes"):
        q.to(queue)


IN_FRAGMENTS = [form for form in FORMATS if form.mode == "affine" and form.bits in (4, 8)]


@pytest.mark.parametrize("form", IN_FRAGMENTS, ids=lambda f: f.name)
def test_weights_in_the_order_of_fragments_are_the_same_weights(rng, form):
    q = drawn(rng, form.name)
    f = q.to(np.empty(0), order="fragments")
    assert (q.order, f.order, f.nbytes, f.shape) == ("rows", "fragments", q.nbytes, q.shape)
    assert not np.array_equal(f.data, q.data)
    assert not f.data.flags.writeable
    for name in ("packed", "scales", "biases"):
        np.testing.assert_array_equal(getattr(f, name).view(np.uint8), getattr(q, name).view(np.uint8))
    np.testing.assert_array_equal(f.dequantize(), q.dequantize())
    for again in (f.to(np.empty(0), "rows"), pickle.loads(pickle.dumps(f)).to(np.empty(0), "rows")):
        assert again.format is form
        np.testing.assert_array_equal(again.data, q.data)
    assert f.to(np.empty(0)).order == "fragments"


def test_rows_in_the_order_of_fragments_are_divided_at_multiples_of_64(rng):
    q = drawn(rng, "affine8_g32_float16", n=150)
    f = q.to(np.empty(0), order="fragments")
    for rows in (slice(None), slice(64, 128), slice(64, None), slice(128, 900), slice(-86, -22), slice(7, 7)):
        np.testing.assert_array_equal(f[rows].dequantize(), q[rows].dequantize())
    for rows in (slice(3, 7), slice(0, 149), slice(64, 128, 2), slice(1, None)):
        with pytest.raises(pyclmm.ArgumentError, match=r"index .* blocks of 64; take .*q\[64:128\]"):
            f[rows]


def test_products_and_files_do_not_depend_on_the_order(rng, tmp_path):
    q = pyclmm.quantize(rng.standard_normal((2, 140, 256), np.float32), bits=4, group_size=64)
    f, x = q.to(np.empty(0), order="fragments"), rng.standard_normal((5, 256), np.float32)
    assert "in the order of fragments" in repr(f)
    for one, other in ((q[1].T, f[1].T), (q[0][64:].T, f[0][64:].T)):
        want = pyclmm.matmul(x, one, reproducible=True)
        np.testing.assert_array_equal(pyclmm.matmul(x, other, reproducible=True), want)
        np.testing.assert_allclose(pyclmm.matmul(x, other, verify=True), want, rtol=1e-4, atol=1e-3)
    want = pyclmm.ragged_matmul(x, q.mT, [3, 2], reproducible=True)
    np.testing.assert_array_equal(pyclmm.ragged_matmul(x, f.mT, [3, 2], reproducible=True), want)
    f.save(tmp_path / "w.npz")
    loaded = QuantizedArray.load(tmp_path / "w.npz")
    assert loaded.order == "rows"
    np.testing.assert_array_equal(loaded.data, q.data)


def test_no_rows_in_another_order_and_as_affine_ones(rng):
    for name in ("affine4_g32_float32", "affine8_g64_float16", "q4_0", "q4_k"):
        empty = drawn(rng, name)[:0].as_affine()
        f = empty.to(np.empty(0), order="fragments")
        assert (f.shape, f.order, f.packed.shape) == (empty.shape, "fragments", empty.packed.shape)
        assert f.to(np.empty(0), "rows").format is empty.format


@pytest.mark.parametrize(
    ("name", "as_name"),
    [
        ("q4_0", "affine4_g32_float16"), ("q4_1", "affine4_g32_float16"), ("q5_0", "affine8_g32_float16"),
        ("q8_0", "affine8_g32_float16"), ("q4_k", "affine4_g32_float32"), ("q5_k", "affine8_g32_float32"),
        ("affine3_g64_float16", "affine3_g64_float16"),
    ],
)  # fmt: skip
def test_weights_of_gguf_as_affine_ones_have_the_same_values(rng, name, as_name):
    q = drawn(rng, name, n=40, k=512)
    a = q.T.as_affine()
    assert (a.format.name, a.shape) == (as_name, q.T.shape)
    np.testing.assert_array_equal(a.dequantize(np.float32), q.T.dequantize(np.float32))
    stack = QuantizedArray.of_rows(q.data.reshape(2, 20, -1), q.format, 512).as_affine()
    np.testing.assert_array_equal(stack.data.reshape(40, -1), a.data)


def test_weights_that_are_no_affine_ones(rng):
    for name in ("q6_k", "mxfp4_gguf", "nvfp4"):
        words = f"{name} weights .*q4_0, q4_1, q5_0, q8_0, q4_k, q5_k"
        with pytest.raises(pyclmm.UnsupportedError, match=words):
            drawn(rng, name).as_affine()
    q = drawn(rng, "q4_0")
    rows = q.data.copy()
    rows[3, :2] = np.array([np.inf], np.float16).view(np.uint8)
    with pytest.raises(pyclmm.UnsupportedError, match="not finite"):
        QuantizedArray.of_rows(rows, q.format, K).as_affine()
    rows[3, :2] = np.array([9000], np.float16).view(np.uint8)  # 8 times that is no float16
    large = QuantizedArray.of_rows(rows, q.format, K)
    assert large.as_affine().format.name == "affine4_g32_float32"
    np.testing.assert_array_equal(large.as_affine().dequantize(), large.dequantize())


def test_weights_that_cannot_lie_in_the_order_of_fragments(rng):
    with pytest.raises(pyclmm.UnsupportedError, match=r"K is 96; .* a multiple of 128"):
        drawn(rng, "affine4_g32_float32", k=96).to(np.empty(0), order="fragments")
    for name in ("q4_0", "affine3_g64_float32", "mxfp4"):
        with pytest.raises(pyclmm.UnsupportedError, match=f"{name} cannot lie in the order of fragments"):
            drawn(rng, name).to(np.empty(0), order="fragments")


@pytest.mark.parametrize("form", [form for form in FORMATS if form not in OF_GGUF], ids=lambda f: f.name)
def test_parts_are_views_of_numbers(rng, form):
    q = drawn(rng, form.name)
    assert (q.packed.shape, q.packed.dtype) == ((N, K * form.bits // 32), np.uint32)
    affine = form.mode == "affine"
    scales = {"scales": q.scales, **({"biases": q.biases} if affine else {})}
    for part in scales.values():
        assert (part.shape, part.dtype) == ((N, K // form.group_size), form.dtype if affine else np.uint8)
    assert all(np.shares_memory(part, q.data) for part in (q.packed, *scales.values()))
    again = QuantizedArray.from_parts(
        q.packed, **scales, mode=form.mode, bits=form.bits, group_size=form.group_size
    )
    assert again.format is form
    np.testing.assert_array_equal(again.data, q.data)


def test_parts_of_blocks_are_refused(rng):
    for mode, name in (("q4_k", "scales"), ("q4_0", "packed"), ("mxfp4", "biases")):
        q = drawn(rng, mode)
        with pytest.raises(pyclmm.UnsupportedError, match=f"{q.mode} has no {name} apart"):
            getattr(q, name)


@pytest.mark.parametrize("name", GGUF_AND_OTHERS)
def test_a_stack_is_of_matrices(rng, queue, name):
    form = format_named(name)
    rows = form.drawn(rng, 4 * N, K)
    q = QuantizedArray.of_rows(rows.reshape(4, N, -1), form, K)
    assert (q.shape, q.mT.shape, q.ndim, q.size, len(q.mT)) == ((4, N, K), (4, K, N), 3, 4 * N * K, 4)
    assert (q.nbytes, q.mT.mT.is_transposed, q[0].T.shape) == (rows.nbytes, False, (K, N))
    assert repr(q.mT).startswith(f"<QuantizedArray 4 x {K} x {N}: {form.mode}")
    values = form.dequantize(rows, K).astype(q.dtype).reshape(q.shape)
    for own in (q, q.to(queue)):
        np.testing.assert_array_equal(own.dequantize(), values)
        np.testing.assert_array_equal(own.mT.dequantize(), np.swapaxes(values, 1, 2))
        np.testing.assert_array_equal(own[-1].dequantize(), values[-1])
        np.testing.assert_array_equal(own.mT[np.int64(2)].dequantize(), values[2].T)
        np.testing.assert_array_equal(own[1::2].dequantize(), values[1::2])
        np.testing.assert_array_equal(own[1::2].mT[1].dequantize(), values[3].T)
        assert len(list(own)) == 4
    assert np.shares_memory(q[1:3][0].data, q.data)
    if name.startswith("affine"):
        np.testing.assert_array_equal(q.scales[2], q[2].scales)


def test_what_a_stack_does_not_have_is_refused(rng):
    form = format_named("q4_0")
    q = QuantizedArray.of_rows(form.drawn(rng, 4, K).reshape(2, 2, -1), form, K)
    with pytest.raises(pyclmm.ShapeError, match=r"shape \(2, 2, 256\): take q\.mT"):
        _ = q.T
    for index in ((0, 1), slice(None, None, -1), slice(0.0, 1.0), None, [0], True):
        with pytest.raises(pyclmm.ArgumentError, match=r"index is .*take a matrix of a stack"):
            q[index]


def test_matrices_of_a_stack_that_are_not_there(rng, queue):
    """Also of libraries whose arrays give another one, as JAX's do, or fail in their own words."""
    form = format_named("q4_0")
    q = QuantizedArray.of_rows(form.drawn(rng, 8, K).reshape(2, 4, -1), form, K)
    for own in (q, q.to(queue), q.mT, QuantizedArray(_Clamped(q.data), form, K)):
        for index in (2, -3, np.int8(100), 2**70):
            with pytest.raises(IndexError, match="but the stack has 2 matrices"):
                own[index]
    for rows in (slice(5, 2), slice(2, 1), slice(2**70), slice(-9, 9, 2), slice(None, None, 2**70)):
        assert q.to(queue)[rows].shape == q[rows].shape == q.to(queue)[rows].dequantize().shape
    assert np.array_equal(q.to(queue)[np.int8(1)].dequantize(), q[1].dequantize())


class _Clamped:
    """Bytes that count as JAX's: what is beyond the end is the last of them."""

    def __init__(self, data):
        self._data, self.shape = data, data.shape

    def __getitem__(self, index):
        return self._data[min(index, len(self._data) - 1)]


def test_rows_of_bytes_become_weights_without_a_copy_if_they_are_aligned(rng):
    form = format_named("affine4_g64_float32")
    rows = form.drawn(rng, N, K)
    memory = np.zeros((N, rows.shape[1] + 16), np.uint8)
    shifted = np.zeros(rows.size + 16 + 1, np.uint8)
    at = -shifted.ctypes.data % 16 + 1
    odd = shifted[at : at + rows.size].reshape(rows.shape)
    memory[:, :-16], odd[...] = rows, rows
    for data, kept in ((rows, True), (memory[:, :-16], True), (odd, False), (rows[:, ::-1], False)):
        q = QuantizedArray.of_rows(data, form, K)
        assert np.shares_memory(q.data, data) == kept
        assert q.data.ctypes.data % 16 == 0
        np.testing.assert_array_equal(q.data, data)


@pytest.mark.parametrize(
    ("shape", "dtype", "k"),
    [((N, 159), "u1", K), ((N, 160), "i1", K), ((N, 160, 1), "u1", K), ((N, 160), "u1", 192)],
)
def test_rows_of_another_length_are_refused(shape, dtype, k):
    form = format_named("affine4_g64_float32")
    assert form.row_nbytes(K) == 160
    words = rf"data is .*pass uint8 of shape \(N, {form.row_nbytes(k)}\)"
    with pytest.raises(pyclmm.ShapeError, match=words):
        QuantizedArray.of_rows(np.zeros(shape, dtype), form, k)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_holds_the_format(rng, protocol):
    q = drawn(rng).T
    again = pickle.loads(pickle.dumps(q, protocol))
    assert (again.format, again.shape) == (q.format, q.shape)
    np.testing.assert_array_equal(again.dequantize(), q.dequantize())


@pytest.mark.parametrize("shift", [1, 4, 8])
@pytest.mark.parametrize("name", ["affine4_g64_float32", "mxfp8", "q6_k"])
def test_a_pickle_may_have_its_bytes_anywhere(rng, name, shift):
    """As Dask's messages have them."""
    q, apart = drawn(rng, name), []
    text = pickle.dumps(q, 5, buffer_callback=apart.append)
    [rows] = apart
    memory = np.empty(len(rows.raw()) + 32, np.uint8)
    place = memory[-memory.ctypes.data % 16 + shift :][: len(rows.raw())]
    place[:] = rows.raw()
    x = rng.standard_normal((3, K), np.float32)
    again = pickle.loads(text, buffers=[place])
    np.testing.assert_array_equal(pyclmm.matmul(x, again.T), pyclmm.matmul(x, q.T))


@pytest.mark.parametrize("name", GGUF_AND_OTHERS)
def test_it_goes_to_a_device_and_back(queue, rng, name):
    q = drawn(rng, name)
    for there in (q.to(queue), q.to(cla.zeros(queue, 1, np.float32))):
        assert isinstance(there.data, cla.Array)
        assert (there.shape, there.nbytes, there.format) == (q.shape, q.nbytes, q.format)
        assert f"in the memory of {queue.device.name.strip()}" in repr(there)
        for rows in (slice(None), slice(3, 9), slice(1, None, 2), slice(4, 4)):
            np.testing.assert_array_equal(there[rows].dequantize(), q[rows].dequantize())
            np.testing.assert_array_equal(there.T.to(np.empty(0)).dequantize(), q.dequantize().T)
    if name.startswith("affine"):
        np.testing.assert_array_equal(there[3:9].scales, q[3:9].scales)
        np.testing.assert_array_equal(there.biases, q.biases)
    part = q[1::2].to(queue)
    np.testing.assert_array_equal(part.data.get(), q.data[1::2])
    assert QuantizedArray.of_rows(q.data.reshape(2, 6, -1)[:, :0], q.format, K).to(queue).shape == (2, 0, K)


def test_it_goes_to_a_tensor_and_back(rng):
    torch = pytest.importorskip("torch")
    q = drawn(rng)
    there = q[2:5].to(torch.zeros(1))
    assert there.data.dtype == torch.uint8
    np.testing.assert_array_equal(there.dequantize(), q.dequantize()[2:5])


def test_a_host_without_memory_is_no_fault_of_the_weights(rng):
    class Far(_Clamped):
        def get(self):
            raise MemoryError("no room")

    q = drawn(rng)
    with pytest.raises(MemoryError, match="no room"):
        QuantizedArray(Far(q.data), q.format, K).dequantize()


def test_places_without_memory_are_refused(rng):
    torch = pytest.importorskip("torch")
    with pytest.raises(pyclmm.DTypeError, match=r"like is a torch array on meta, .* has no elements"):
        drawn(rng).to(torch.zeros(1, device="meta"))


def test_arrays_that_jax_traces_or_has_deleted_are_named(rng, tmp_path):
    jax = pytest.importorskip("jax")
    q = drawn(rng)
    with pytest.raises(pyclmm.DTypeError, match=r"like is a jax array .*where no weights can lie"):
        jax.jit(lambda x: q.to(x).shape[0])(np.zeros(1, np.float32))
    there = q.to(jax.numpy.zeros(1))
    there.data.delete()
    for call in (there.dequantize, there.as_affine, lambda: there.save(tmp_path / "w.npz")):
        with pytest.raises(pyclmm.DTypeError, match=r"the weights are a .* whose bytes cannot be read"):
            call()
    assert "QuantizedArray 12 x 256" in repr(there)
