"""from_gguf: tensors of files that gguf's writer made, with gguf's own values, and broken files."""

import os
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyclmm
from pyclmm import QuantizedArray, StorageError, UnsupportedError
from pyclmm.checks.reference import error_ratio, limit
from pyclmm.formats import OF_GGUF, format_named
from tests.support.optional import optional
from tests.support.selection import examples

gguf = optional("gguf")
N, K = 6, 512
HEAD = struct.pack("<IIQQ", 0x46554747, 3, 0, 0)  # of a file without tensors


def kind(name):
    return gguf.GGMLQuantizationType[name]


def type_of(form):
    return form.name.removesuffix("_gguf").upper()


def written(path, tensors, **options):
    """*path*, a file with *tensors*: name -> array, or (bytes, type)."""
    writer = gguf.GGUFWriter(path, "llama", **options)
    writer.add_string("general.name", "a test")
    writer.add_array("tokens", ["a", "b", "c"])
    for name, x in tensors.items():
        data, its_type = x if isinstance(x, tuple) else (x, None)
        writer.add_tensor(name, data, raw_dtype=None if its_type is None else kind(its_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def weights(rng):
    return {form.name: (form.drawn(rng, N, K), type_of(form)) for form in OF_GGUF}


@pytest.fixture
def model(rng, tmp_path):
    numbers = {
        f"{t}.bias": (rng.standard_normal((3, 5)) * 9).astype(t) for t in ("f4", "f2", "f8", "i1", "i4", "i8")
    }
    return written(tmp_path / "model.gguf", {**weights(rng), **numbers})


def test_every_type_has_the_values_of_gguf(model):
    tensors = pyclmm.from_gguf(model)
    for form in OF_GGUF:
        q = tensors[form.name]
        assert type(q) is QuantizedArray
        assert (q.format, q.shape, q.dtype) == (form, (N, K), np.float32)
        want = gguf.quants.dequantize(np.asarray(q.data), kind(type_of(form)))
        np.testing.assert_array_equal(q.dequantize().view("u4"), want.view("u4"))


def test_other_tensors_are_arrays(model):
    tensors = pyclmm.from_gguf(str(model))
    for x in gguf.GGUFReader(model).tensors:
        if x.name.endswith("bias"):
            got = tensors[x.name]
            assert (type(got), got.shape, got.dtype.str[1:]) == (np.ndarray, (3, 5), x.name.partition(".")[0])
            np.testing.assert_array_equal(got, x.data)


def test_bfloat16_is_widened(tmp_path):
    bits = np.array([[0x3F80, 0xC000, 0x0001]], np.uint16)
    path = written(tmp_path / "a.gguf", {"w": (bits.view(np.uint8), "BF16")})
    np.testing.assert_array_equal(pyclmm.from_gguf(path)["w"], np.array([[1, -2, 2.0**-133]], np.float32))


def test_it_is_a_mapping(model):
    tensors = pyclmm.from_gguf(model)
    assert list(tensors) == [x.name for x in gguf.GGUFReader(model).tensors]
    assert len(tensors) == len(OF_GGUF) + 6
    assert "q4_0" in tensors
    assert tensors.get("no") is None
    assert repr(tensors) == f"<16 tensors of {model}>"
    assert {tensors: 1}[tensors] == (tensors != pyclmm.from_gguf(model))
    with pytest.raises(KeyError):
        tensors["no"]


def test_weights_stay_in_the_file(model):
    tensors = pyclmm.from_gguf(model)
    for name in ("q4_k", "q8_0", "mxfp4_gguf"):
        q = tensors[name]
        assert "in a memory-mapped file" in repr(q)
        assert "in a memory-mapped file" in repr(q[2:5].T)
        before = q.data.tobytes()
        content = model.read_bytes()
        at = content.index(before)
        with model.open("r+b") as file:  # what is written to the file is seen
            file.seek(at)
            file.write(bytes([content[at] ^ 1]))
        assert q.data[0, 0] == before[0] ^ 1


def test_weights_of_a_file_are_multiplied(model, rng):
    x = rng.standard_normal((3, K), np.float32)
    for name in ("q6_k", "mxfp4_gguf"):
        q = pyclmm.from_gguf(model)[name]
        for part in (q, q[1:4]):
            assert error_ratio(pyclmm.matmul(x, part.T), x, part.dequantize().T) <= limit(K)


def test_experts_of_a_file_are_a_stack(rng, tmp_path):
    rows = OF_GGUF[0].drawn(rng, 6, 64)
    path = written(tmp_path / "a.gguf", {"experts": (rows.reshape(2, 3, 36), "Q4_0")})
    q = pyclmm.from_gguf(path)["experts"]
    assert q.shape == (2, 3, 64)
    np.testing.assert_array_equal(q[1].data, rows[3:])


def test_what_is_not_offered_is_refused_when_it_is_asked_for(rng, tmp_path):
    q4 = OF_GGUF[0].drawn(rng, 4, 64)
    rows = rng.integers(0, 256, (2, 18), np.uint8)
    given = {
        "iq": (rows, "IQ4_NL"), "ternary": (rows.repeat(3, 1), "TQ1_0"),
        "four axes": (q4.reshape(2, 2, 1, 36), "Q4_0"), "line": (q4[0], "Q4_0"), "good": (q4, "Q4_0"),
    }  # fmt: skip
    path = written(tmp_path / "a.gguf", given)
    tensors = pyclmm.from_gguf(path)
    assert tensors["good"].shape == (4, 64)
    for name, words in (
        ("iq", "tensor 'iq' of .* is IQ4_NL, which is not offered; these are: Q4_0, .*Q6_K, MXFP4, F32"),
        ("ternary", "is TQ1_0"),
        ("four axes", r"tensor 'four axes' of .*a\.gguf' has shape \(2, 2, 1, 64\); quantised weights"),
        ("line", r"tensor 'line' of .*a\.gguf' has shape \(64,\)"),
    ):
        with pytest.raises(UnsupportedError, match=words):
            tensors[name]


def test_a_file_of_the_other_byte_order_is_refused(rng, tmp_path):
    path = written(tmp_path / "a.gguf", weights(rng), endianess=gguf.GGUFEndian.BIG)
    with pytest.raises(UnsupportedError, match=r"path: .* has its bytes in another order"):
        pyclmm.from_gguf(path)


def refused(path, words=""):
    with pytest.raises(StorageError, match=rf"path: .*a\.gguf' is no GGUF file that gguf reads whole{words}"):
        pyclmm.from_gguf(path)


def test_a_file_cut_short_anywhere_is_refused(rng, tmp_path):
    """Also behind its head: no tensor begins or ends beyond the file."""
    path = written(
        tmp_path / "a.gguf", {"w": (OF_GGUF[0].drawn(rng, 1, 64), "Q4_0"), "b": np.ones(8, np.float32)}
    )
    content = path.read_bytes().rstrip(b"\0")
    assert pyclmm.from_gguf(path)["b"].shape == (8,)
    for end in range(len(content)):
        path.write_bytes(content[:end])
        refused(path)


NESTED = struct.pack("<Q", 1) + b"x" + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 4000
MALICIOUS = {
    "no magic": b"GGML" + HEAD[4:],
    "another version": HEAD[:4] + struct.pack("<I", 99) + HEAD[8:],
    "more tensors than bytes": HEAD[:8] + struct.pack("<QQ", 1 << 60, 0),
    "more keys than bytes": HEAD[:8] + struct.pack("<QQ", 0, 1 << 60),
    "a long name": HEAD[:8] + struct.pack("<QQQ", 0, 1, 1 << 62) + b"x",
    "a long array": HEAD[:8]
    + struct.pack("<QQQ", 0, 1, 1)
    + b"x"
    + struct.pack("<IIQ", 9, 0, 1 << 20)
    + b"\0" * 50,
    "arrays of arrays": HEAD[:8] + struct.pack("<QQ", 0, 1) + NESTED,
    "a type of the future": HEAD[:8]
    + struct.pack("<QQQ", 1, 0, 1)
    + b"w"
    + struct.pack("<IQQIQ", 2, 32, 1, 9999, 0).ljust(200, b"\0"),
    "a product that wraps": HEAD[:8]
    + struct.pack("<QQQ", 1, 0, 1)
    + b"w"
    + struct.pack("<IQQIQ", 2, 1 << 32, 1 << 32, 2, 0).ljust(200, b"\0"),
    "a tensor behind the end": HEAD[:8]
    + struct.pack("<QQQ", 1, 0, 1)
    + b"w"
    + struct.pack("<IQQIQ", 2, 32, 1, 2, 1 << 63).ljust(200, b"\0"),
}


@pytest.mark.parametrize("content", MALICIOUS.values(), ids=MALICIOUS)
def test_a_file_that_lies_about_itself_is_refused(tmp_path, content):
    (tmp_path / "a.gguf").write_bytes(content)
    refused(tmp_path / "a.gguf")


def one_tensor(*lengths, offset=0):
    """A file whose tensor "w" of Q4_0 has these lengths, GGUF's way."""
    about = struct.pack(f"<I{len(lengths)}QIQ", len(lengths), *lengths, 2, offset)
    return (HEAD[:8] + struct.pack("<QQQ", 1, 0, 1) + b"w" + about).ljust(127, b"\0")


def test_a_tensor_that_begins_before_the_first_is_refused(tmp_path):
    path = tmp_path / "a.gguf"
    path.write_bytes(one_tensor(32, 2, offset=2**64 - 32))
    with pytest.raises(StorageError, match=r"a\.gguf' is damaged: tensor 'w' begins at byte \d+, not"):
        pyclmm.from_gguf(path)


@pytest.mark.parametrize("moved", [-32, -1, 1])
def test_a_tensor_within_another_or_between_multiples_is_refused(rng, tmp_path, moved):
    path, rows = tmp_path / "a.gguf", OF_GGUF[0].drawn(rng, 2, 64)
    content = bytearray(written(path, {"v": (rows, "Q4_0"), "w": (rows, "Q4_0")}).read_bytes())
    place = content.index(struct.pack("<IQ", 2, 96))  # the type and the offset of "w"
    struct.pack_into("<IQ", content, place, 2, 96 + moved)
    path.write_bytes(content)
    with pytest.raises(StorageError, match=r"'w' begins at byte \d+, not at byte \d+, .* multiple of 32"):
        pyclmm.from_gguf(path)


@pytest.mark.parametrize(("n", "kind"), [(2, 8), (4, 2)], ids=["fewer rows", "Q4_0"])
def test_a_tensor_whose_bytes_end_before_the_next_is_refused(rng, tmp_path, n, kind):
    path, rows = tmp_path / "a.gguf", format_named("q8_0").drawn(rng, 4, 64)
    content = bytearray(written(path, {"v": (rows, "Q8_0"), "w": (rows, "Q8_0")}).read_bytes())
    struct.pack_into("<QQI", content, content.index(struct.pack("<QQI", 64, 4, 8)), 64, n, kind)
    path.write_bytes(content)
    with pytest.raises(StorageError, match=r"'w' begins at byte \d+, not at byte \d+"):
        pyclmm.from_gguf(path)


def test_a_part_that_does_not_tell_its_alignment_is_refused(rng, tmp_path):
    """gguf's writer tells an alignment other than 32 in the first part of a split file alone."""
    path, rows = tmp_path / "a.gguf", format_named("q8_0").drawn(rng, 4, 64)
    content = written(path, {"w": (rows, "Q8_0")}).read_bytes()
    begin = content.rindex(rows.tobytes())
    path.write_bytes(content[:begin] + bytes(96) + content[begin:])
    with pytest.raises(StorageError, match=r"96 bytes lie behind its last tensor. Write a split file as one"):
        pyclmm.from_gguf(path)


@pytest.mark.parametrize("lengths", [(0, 4), (32, 0), (1 << 58, 0)])
def test_a_tensor_without_weights_is_refused_by_name(tmp_path, lengths):
    path = tmp_path / "a.gguf"
    path.write_bytes(one_tensor(*lengths))
    with pytest.raises(UnsupportedError, match=r"tensor 'w' of .*a\.gguf' has shape \(.*\), so no weights"):
        pyclmm.from_gguf(path)["w"]


def test_what_is_no_file_is_refused(tmp_path):
    (tmp_path / "a.gguf").mkdir()
    refused(tmp_path / "a.gguf", ": it is no regular file$")
    (tmp_path / "a.gguf").rmdir()
    os.mkfifo(tmp_path / "a.gguf")
    refused(tmp_path / "a.gguf", ": it is no regular file$")
    with pytest.raises(FileNotFoundError):
        pyclmm.from_gguf(tmp_path / "b.gguf")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    rows = OF_GGUF[0].drawn(np.random.default_rng(5), 2, 64)
    return written(tmp_path_factory.mktemp("gguf") / "small.gguf", {"w": (rows, "Q4_0")}).read_bytes()


@examples(160)
@given(st.data())
def test_a_spoiled_head_is_refused_or_gives_bytes_of_the_file(small, tmp_path_factory, data):
    content = bytearray(small)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, 200))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "spoiled.gguf"
    path.write_bytes(content)
    try:
        for x in pyclmm.from_gguf(path).values():
            held = x.data if isinstance(x, QuantizedArray) else x
            assert np.asarray(held).tobytes() in bytes(content)
    except (StorageError, UnsupportedError) as error:
        told = str(error)
    else:
        return
    assert str(path) in told


def test_the_extra_is_named_if_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "gguf", None)
    with pytest.raises(pyclmm.ArgumentError, match=r"pip install \"pyclmm\[gguf\]\""):
        pyclmm.from_gguf(tmp_path / "a.gguf")
