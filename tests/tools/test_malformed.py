"""Malformed files of every kind give one line on the error stream and exit code 2, and leave nothing."""

import json
import os
import random
import re
import shutil

import numpy as np
import pytest

from tests.support.matrix_files import multiply

h5py = pytest.importorskip("h5py", reason="needs h5py")
zarr = pytest.importorskip("zarr", reason="needs zarr")

X = np.ones((4, 4), np.float32)


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", X)
    zarr.save_array("a.zarr", X)
    zarr.open_group("g.zarr", mode="w").create_array("A", data=X, chunks=(4, 4))
    with h5py.File("f.h5", "w") as file:
        file["A"], file["text"], file["none"] = X, "a text", h5py.Empty("f4")
        file["type"], file["number"], file["dangling"] = X.dtype, 1.5, h5py.SoftLink("/nowhere")
        file["lost"], file["loop"] = h5py.ExternalLink("lost.h5", "/A"), h5py.SoftLink("/loop")
    return tmp_path


def refused(*arguments):
    """What the command says, which must be one line."""
    before = {path for path in os.listdir() if path != "kept"}
    shown = multiply(*arguments, status=2)
    assert isinstance(shown.exception, SystemExit), repr(shown.exception)
    assert re.fullmatch(r"Error: [^\n]+\n", shown.stderr), shown.stderr
    assert shown.stderr.rstrip("\n").isprintable()
    assert {path for path in os.listdir() if path != "kept"} == before
    return shown.stderr


def npy(header, body=b"\0" * 64, version=b"\x01\x00"):
    text = header.encode("latin-1")
    with open("x.npy", "wb") as file:
        file.write(b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text + body)


@pytest.mark.parametrize(
    "shape",
    [
        *("(-3, 4)", "(-1000, 1000)", "(-2, -2)", f"({10**30}, 4)", "(2**62, 2)", "(4611686018427387904, 8)"),
        *(
            "(1.5, 2)", "'ab'", "(True, 4)", "None", "(" * 200 + ")" * 200, "((4, 4), 4)",
            "(1000000, 1000000)",
        ),
        "()",
    ],
)  # fmt: skip
def test_a_npy_file_whose_header_has_such_a_shape(shape):
    npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n")
    shown = refused("x.npy", "a.npy", "c.npy")
    assert re.search(r"x\.npy|\ba is", shown)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "\n",
        "{",
        "[]",
        "{'descr': '<f4'}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (4, 4), }",
        "{'descr': '<Q9', 'fortran_order': False, 'shape': (4, 4), }",
        "{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (4, 4), }",
        "{'descr': None, 'fortran_order': 2, 'shape': (4, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4L, 4L, }",
        "{'descr': '<U5', 'fortran_order': False, 'shape': (2, 2), }",
        "\x1b[31m\x00\xff",
        "__import__('os').system('true')",
    ],
)
def test_a_npy_file_with_such_a_header(header):
    npy(header)
    refused("x.npy", "a.npy", "c.npy")


@pytest.mark.parametrize("version", [b"\x00\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"])
def test_a_npy_file_of_such_a_version(version):
    npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 4), }\n", version=version)
    refused("x.npy", "a.npy", "c.npy")


@pytest.mark.parametrize("length", range(0, 128, 9))
def test_a_npy_file_that_ends_early(length):
    with open("a.npy", "rb") as file, open("x.npy", "wb") as cut:
        cut.write(file.read()[:length])
    refused("x.npy", "a.npy", "c.npy")


def test_files_of_another_kind_under_a_name(here):
    np.savez("z", X)
    os.rename("z.npz", "z.npy")
    shutil.copy("a.npy", "n.h5")
    shutil.copytree("a.zarr", "folder.npy")
    shutil.copytree("a.zarr", "folder.h5")
    shutil.copy("a.npy", "file.zarr")
    os.mkfifo("pipe.npy")
    os.mkfifo("pipe.h5")
    os.symlink("loop.npy", "loop.npy")
    mapped, stored = ("z.npy", "folder.npy", "pipe.npy", "loop.npy"), ("n.h5:A", "folder.h5:A", "pipe.h5:A")
    for name in (*mapped, *stored, "file.zarr"):
        assert name.partition(":")[0] in refused(name, "a.npy", "c.npy")


@pytest.mark.parametrize(
    "name",
    [
        *(
            "../a.zarr", "A/../A", ".", "./A", "A/B", "A/c", "A\\..\\A", "none", "/", "zarr.json",
            "A/zarr.json",
        ),
        *("A\0", "\udcff", "n" * 300),
    ],
)  # fmt: skip
def test_a_zarr_name_that_leads_to_no_array(name):
    refused(f"g.zarr:{name}", "a.npy", "c.npy")
    refused("a.npy", f"g.zarr:{name}", "c.npy")
    if name not in ("none", "\udcff"):
        refused("a.npy", "a.npy", f"g.zarr:{name}")


@pytest.mark.parametrize(
    "name",
    [
        *("text", "none", "type", "number", "dangling", "lost", "loop", "A/B", "/", "..", "../A", "./A"),
        *("nothing", "A\0", "\udcff"),
    ],
)
def test_an_hdf5_name_that_leads_to_no_matrix(name):
    refused(f"f.h5:{name}", "a.npy", "c.npy")
    if name not in ("nothing", "\udcff"):
        refused("a.npy", "a.npy", f"f.h5:{name}", "--overwrite")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("shape", [-4, 4]),
        ("shape", "4"),
        ("shape", [4.5, 4]),
        ("shape", None),
        ("shape", []),
        ("shape", [4]),
        ("data_type", "string"),
        ("data_type", "float9"),
        ("data_type", {"name": "struct"}),
        ("data_type", None),
        ("node_type", "nothing"),
        ("zarr_format", 17),
        ("codecs", []),
        ("codecs", [{"name": "mine"}]),
        ("chunk_grid", {"name": "regular", "configuration": {"chunk_shape": [0, 0]}}),
        ("chunk_grid", {"name": "regular", "configuration": {"chunk_shape": [-1, 4]}}),
        ("chunk_grid", None),
        ("fill_value", "nine"),
        ("chunk_key_encoding", {"name": "mine"}),
    ],
)
def test_a_zarr_array_with_such_metadata(key, value):
    with open("a.zarr/zarr.json", encoding="utf-8") as file:
        content = json.load(file)
    with open("a.zarr/zarr.json", "w", encoding="utf-8") as file:
        json.dump(content | {key: value}, file)
    refused("a.zarr", "a.npy", "c.npy")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"zarr_format": 3}', "\x00\xff"])
@pytest.mark.parametrize("name", ["zarr.json", ".zarray"])
def test_a_zarr_array_with_such_a_file_of_metadata(text, name):
    os.remove("a.zarr/zarr.json")
    with open(f"a.zarr/{name}", "w", encoding="latin-1") as file:
        file.write(text)
    refused("a.zarr", "a.npy", "c.npy")


def test_chunks_that_are_damaged():
    with open("a.zarr/c/0/0", "wb") as file:
        file.write(b"no chunk")
    assert "could not be read" in refused("a.zarr", "a.npy", "c.npy")
    with h5py.File("g.h5", "w") as file:
        chunk = file.create_dataset("A", data=X, compression="gzip").id.get_chunk_info(0)
    with open("g.h5", "r+b") as file:
        file.seek(chunk.byte_offset)
        file.write(b"\0" * chunk.size)
    assert "could not be read" in refused("g.h5:A", "a.npy", "c.npy")


def test_a_checkpoint_that_is_damaged(here):
    (here / "kept").mkdir()
    (here / "kept" / "pyclmm-journal").write_text("{\n")
    assert "kept/pyclmm-journal is damaged" in refused("a.npy", "a.npy", "c.npy", "--checkpoint", "kept")
    (here / "file").write_text("no folder")
    assert "file" in refused("a.npy", "a.npy", "c.npy", "--checkpoint", "file")


@pytest.mark.parametrize("name", ["a.npy", "a.zarr/zarr.json"])
def test_bytes_changed_at_random(name):
    """A change may leave a matrix: then the product is made, and is removed again."""
    with open(name, "rb") as file:
        right = file.read()
    draw = random.Random(name)
    for _ in range(40):
        changed = bytearray(right)
        for _ in range(draw.randint(1, 3)):
            changed[draw.randrange(6 if name == "a.npy" else 0, min(len(right), 128))] = draw.randrange(256)
        with open(name, "wb") as file:
            file.write(changed)
        shown = multiply(name.split("/")[0], "g.zarr:A", "c.npy", "--explain", status=None)
        assert shown.exit_code in (0, 2), repr(shown.exception)
        assert shown.exit_code == 0 or re.fullmatch(r"Error: [^\n]+\n", shown.stderr), shown.stderr
