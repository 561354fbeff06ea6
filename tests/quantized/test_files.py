"""Quantised weights saved and loaded: the same bytes, and nothing else is believed."""

import contextlib
import gc
import os
import re
import warnings
import zipfile
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyclmm
from pyclmm import QuantizedArray, StorageError
from pyclmm.formats import FORMATS, format_named
from tests.support.faults import failing
from tests.support.optional import optional
from tests.support.selection import examples

safetensors, numpy_files = optional("safetensors"), optional("safetensors.numpy")
ENDINGS = (".npz", ".safetensors")
ONE_A_MODE = list({form.mode: form for form in FORMATS}.values())


def drawn(form=FORMATS[0], n=5, k=256):
    return QuantizedArray.of_rows(form.drawn(np.random.default_rng(3), n, k), form, k)


@pytest.fixture(params=ENDINGS)
def path(request, tmp_path):
    if request.param == ".safetensors":
        assert numpy_files.save_file  # or it skips
    return tmp_path / f"w{request.param}"


@pytest.mark.parametrize("form", ONE_A_MODE, ids=lambda form: form.mode)
def test_weights_come_back_as_they_were(path, form):
    q = drawn(form)
    for saved in (q, q[1:4], q[::2], q[:0]):
        saved.save(path)
        for place in (path, str(path)):
            again = QuantizedArray.load(place)
            assert (again.format, again.shape, again.is_transposed) == (form, saved.shape, False)
            np.testing.assert_array_equal(again.data, saved.data)
    assert os.listdir(path.parent) == [path.name]


def test_a_stack_comes_back_as_it_was(path):
    form = FORMATS[0]
    q = QuantizedArray.of_rows(drawn(form, 6).data.reshape(3, 2, -1), form, 256)
    for saved in (q, q.mT, q[::2]):
        saved.save(path)
        again = QuantizedArray.load(path)
        assert (again.format, again.shape) == (form, (len(saved), 2, 256))
        np.testing.assert_array_equal(again.data, saved.data)


def test_weights_of_a_device_are_saved(path, queue):
    q = drawn()
    q.to(queue)[1:4].T.save(path)
    np.testing.assert_array_equal(QuantizedArray.load(path).dequantize(), q[1:4].dequantize())


def test_a_file_is_replaced_whole_or_not_at_all(path):
    drawn().save(path)
    before = path.read_bytes()
    full = failing(os, "replace", OSError(28, "No space left on device"), library="")
    said = rf"path: .*{path.name}.* cannot be written: .*No space left"
    with full, pytest.raises(StorageError, match=said):
        drawn(n=9).save(path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_a_file_has_the_permissions_that_open_gives(path, tmp_path):
    (tmp_path / "model").touch()
    drawn().save(path)
    assert path.stat().st_mode == (tmp_path / "model").stat().st_mode
    path.chmod(0o640)
    drawn().save(path)
    assert path.stat().st_mode & 0o777 == 0o640


def test_the_target_of_a_link_is_written(path, tmp_path):
    link = tmp_path / f"link{path.suffix}"
    link.symlink_to(path)
    drawn().save(link)
    assert link.is_symlink()
    assert QuantizedArray.load(path).shape == (5, 256)


@pytest.mark.parametrize("name", ["w", "w.bin", "w.npz.gz", "w.gguf"])
def test_another_ending_is_refused(tmp_path, name):
    words = rf"path is '.*{re.escape(name)}'; pass a name that ends in .npz or .safetensors"
    with pytest.raises(pyclmm.ArgumentError, match=words):
        drawn().save(tmp_path / name)
    with pytest.raises(pyclmm.ArgumentError, match=words):
        QuantizedArray.load(tmp_path / name)


@pytest.mark.parametrize("name", [None, 3, ["w.npz"]], ids=str)
def test_what_names_no_file_is_refused(name):
    for call in (drawn().save, QuantizedArray.load, pyclmm.from_gguf):
        with pytest.raises(pyclmm.DTypeError, match=r"path is .*; pass the name of a file"):
            call(name)


def test_a_path_may_be_bytes(tmp_path):
    name = bytes(tmp_path / "w.npz")
    drawn().save(name)
    assert QuantizedArray.load(name).shape == drawn().shape


def test_a_folder_that_is_missing(tmp_path, path):
    with pytest.raises(StorageError, match="cannot be written"):
        drawn().save(tmp_path / "no" / path.name)
    with pytest.raises(FileNotFoundError):
        QuantizedArray.load(tmp_path / "no" / path.name)


def test_a_name_that_no_system_has(path):
    with pytest.raises(StorageError, match="cannot be written: embedded null"):
        drawn().save(f"a\0{path.suffix}")
    long = path.with_name("w" * 300 + path.suffix)  # an error of safetensors' own, as a full disk is
    with pytest.raises(StorageError, match=r"cannot be written: .*File name too long"):
        drawn().save(long)


def test_a_host_without_memory_is_no_fault_of_the_file(tmp_path):
    assert numpy_files.save_file  # or it skips
    with failing(zlib, "crc32", MemoryError("no room"), library=""), pytest.raises(MemoryError):
        drawn().save(tmp_path / "w.safetensors")
    assert not list(tmp_path.iterdir())


def refused(path, words=""):
    with pytest.raises(StorageError, match=f"path: .*holds no quantised weights .*{words}"):
        QuantizedArray.load(path)


def write(path, data, **about):
    if path.suffix == ".npz":
        np.savez(path, data=data, **about)
    else:
        numpy_files.save_file(
            {"data": data}, path, metadata={name: str(text) for name, text in about.items()}
        )


ROWS = np.zeros((5, 160), np.uint8)  # K = 256
WRONG = [
    ({"data": ROWS, "format": "q4_2", "k": "256"}, "unknown format 'q4_2'"),
    ({"data": ROWS, "format": "affine4_g64_float32", "k": "255"}, "K is 255, no multiple"),
    ({"data": ROWS, "format": "affine4_g64_float32", "k": "-64"}, "K is -64"),
    ({"data": ROWS, "format": "affine4_g64_float32", "k": "1" + "0" * 30}, "no multiple|rows of"),
    ({"data": ROWS, "format": "affine4_g64_float32", "k": "many"}, "invalid literal"),
    ({"data": ROWS, "format": "affine4_g64_float32", "k": "320"}, "rows of 208 bytes"),
    ({"data": ROWS.view("i1"), "format": "affine4_g64_float32", "k": "256"}, "data is int8"),
    ({"data": ROWS[0], "format": "affine4_g64_float32", "k": "256"}, r"data is uint8 of shape \(160,\)"),
    ({"data": ROWS, "format": "affine4_g64_float32"}, "k"),
    ({"data": ROWS}, ""),
]


@pytest.mark.parametrize(("content", "words"), WRONG)
def test_another_content_is_refused(path, content, words):
    write(path, **content)
    refused(path, words)


def test_what_is_no_such_file_is_refused(path):
    for content in (b"", b"PK\x03\x04", b"\x80\x04.", b"\xff" * 64, b"\x10" + b"\0" * 7 + b"{" * 16):
        path.write_bytes(content)
        refused(path)
    path.unlink()
    path.mkdir()
    refused(path, "it is no regular file")
    path.rmdir()
    os.mkfifo(path)
    refused(path, "it is no regular file")


def test_an_array_or_objects_in_place_of_an_archive_are_refused(tmp_path):
    path = tmp_path / "w.npz"
    with path.open("wb") as file:
        np.save(file, ROWS)
    refused(path, "no .npz file")
    np.savez(path, data=np.array([{}], object), format="q4_0", k="32")
    refused(path, "allow_pickle")
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(
            "data.npy", b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '|u1', 'shape': (99999999999999,)}".ljust(118)
        )
    refused(path)


@examples(80)
@given(st.data())
def test_a_file_cut_short_or_spoiled_is_refused_or_has_the_bytes_that_were_written(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / f"spoiled{data.draw(st.sampled_from(ENDINGS))}"
    q = drawn(n=2, k=64)
    q.save(path)
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        del content[at:]
    else:
        content[at] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        found = QuantizedArray.load(path)
    except StorageError:
        return
    assert found.data.shape[1] == found.format.row_nbytes(found.shape[1])
    np.testing.assert_array_equal(found.data.ravel(), q.data.ravel())


def test_another_format_of_rows_as_long_is_refused(tmp_path):
    path = tmp_path / "w.safetensors"
    assert numpy_files.save_file  # or it skips
    drawn(format_named("q4_0")).save(path)
    path.write_bytes(path.read_bytes().replace(b"q4_0", b"q4_k"))
    refused(path, "its bytes are not those")


def test_a_sum_whose_name_is_damaged_is_not_passed_over(tmp_path):
    path = tmp_path / "w.safetensors"
    assert numpy_files.save_file  # or it skips
    drawn().save(path)
    content = path.read_bytes().replace(b"crc32_of_all", b"crc32_of_al?")
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    refused(path, "its bytes are not those")


def test_another_shape_of_as_many_bytes_is_refused(tmp_path):
    path, form = tmp_path / "w.safetensors", FORMATS[0]
    assert numpy_files.save_file  # or it skips
    QuantizedArray.of_rows(drawn(form, 6).data.reshape(3, 2, -1), form, 256).save(path)
    path.write_bytes(path.read_bytes().replace(b"[3,2,", b"[2,3,"))
    refused(path, "its bytes are not those")


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({}, "its metadata has no format and k"),
        ({"format": "pt"}, "its metadata has no format and k"),
        ({"by": "me"}, "or another version or program wrote it"),
        ({"crc32_of_all": "1"}, "or another version or program wrote it"),
    ],
)
def test_what_another_program_wrote_is_refused_by_what_it_lacks(tmp_path, about, words):
    path, q = tmp_path / "w.safetensors", drawn()
    if about and "format" not in about:
        about = {"format": q.format.name, "k": str(q.shape[1])} | about
    numpy_files.save_file({"data": np.ascontiguousarray(q.data)}, path, metadata=about)
    refused(path, words)


def test_fewer_rows_than_were_written_are_refused(path):
    drawn(n=500).save(path)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"(500, ", b"(400, ").replace(b"[500,", b"[400,"))
    assert path.read_bytes() != content
    refused(path)


def test_a_faulty_archive_is_closed(tmp_path):
    path = tmp_path / "w.npz"
    drawn(n=2, k=64).save(path)
    content = path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", ResourceWarning)
        with pytest.MonkeyPatch.context() as patch:
            told = []
            patch.setattr(warnings, "showwarning", lambda *given, **_: told.append(given))
            for at in range(len(content) - 250, len(content)):
                path.write_bytes(content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :])
                with contextlib.suppress(StorageError):
                    QuantizedArray.load(path)
            gc.collect()
    assert not told


def test_a_file_cut_short_anywhere_is_refused(path):
    drawn(n=2, k=64).save(path)
    content = path.read_bytes()
    for end in range(0, len(content), 7):
        path.write_bytes(content[:end])
        refused(path)


def test_the_extra_is_named_if_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "safetensors", None)
    for call in (drawn().save, QuantizedArray.load):
        with pytest.raises(pyclmm.ArgumentError, match=r"pip install \"pyclmm\[safetensors\]\""):
            call(tmp_path / "w.safetensors")
