"""A product whose ``out`` lies in a file that has operands too: each tile moves the file's time of change."""

import os

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided, sliding_window_view

import pyclmm
from pyclmm import CheckpointError
from tests.support.optional import optional
from tests.support.streams import ctrl_c_at, integers

h5py = optional("h5py")

M, K, N, TILES = 200, 70, 90, 15  # tiles of 40 x 32
GIVEN = {"a": integers(M, K), "b": integers(K, N), "c": integers(M, N), "bias": integers(N)}
WANTED = GIVEN["a"] @ GIVEN["b"] + GIVEN["c"] + GIVEN["bias"]

pytestmark = pytest.mark.usefixtures("small_tiles")


def raw(path, mode="r"):
    """Maps of a file in which ``out`` and the operands follow one another, opened anew."""
    first, found = 0, {}
    for name, shape in {"out": (M, N), **{name: x.shape for name, x in GIVEN.items()}}.items():
        found[name] = np.memmap(path, "f4", "r+" if name == "out" else mode, first, shape)
        first += found[name].nbytes
    return found


def multiply(folder, given, out, **keywords):
    a, b, c, bias = (given[name] for name in ("a", "b", "c", "bias"))
    return pyclmm.gemm(a, b, c, beta=1.0, bias=bias, out=out, checkpoint=folder / "tiles", **keywords)


def begun(folder, given, out):
    with pytest.raises(KeyboardInterrupt):
        multiply(folder, given, out, progress=ctrl_c_at(4))


def check_goes_on(folder, given, out):
    seen = []
    multiply(folder, given, out, progress=seen.append)
    assert np.array_equal(out[:], WANTED)
    assert all(each.resumed >= 4 for each in seen)
    assert not (folder / "tiles").exists()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "raw"
    path.write_bytes(b"".join(x.tobytes() for x in (np.zeros((M, N), "f4"), *GIVEN.values())))
    return path


def test_a_raw_file_that_has_all(path, tmp_path):
    begun(tmp_path, raw(path), raw(path)["out"])
    check_goes_on(tmp_path, raw(path), raw(path)["out"])


def test_a_result_that_is_copied_into_the_file_at_the_end(path, tmp_path):
    def product():
        given, out = raw(path), raw(path)["out"].view("i4")
        given["a"] = np.where(np.arange(M) == 5, 1e12, 1).astype("f4")[:, None] * given["a"]
        return multiply(tmp_path, given, out, casting="unsafe")

    with np.errstate(invalid="raise"), pytest.raises(FloatingPointError, match="cast"):
        product()  # in the middle of the copy
    with np.errstate(invalid="ignore"):
        assert np.array_equal(product()[6:], WANTED[6:])
    assert not (tmp_path / "tiles").exists()


def test_a_hard_link_is_the_same_file(path, tmp_path):
    (tmp_path / "link").hardlink_to(path)
    begun(tmp_path, raw(tmp_path / "link"), raw(path)["out"])
    check_goes_on(tmp_path, raw(tmp_path / "link"), raw(path)["out"])


@pytest.mark.parametrize("maps", [1, 2])
def test_columns_of_a_table_that_has_operands_in_other_columns(maps, tmp_path):
    """Their bytes lie between one another; no element is in both."""
    table = np.zeros((M, K + N), "f4")
    table[:, :K] = GIVEN["a"]
    (tmp_path / "table").write_bytes(table.tobytes())

    def parts():
        shown = [np.memmap(tmp_path / "table", "f4", "r+", shape=table.shape) for _ in range(maps)]
        return {**GIVEN, "a": shown[0][:, :K]}, shown[-1][:, K:]

    begun(tmp_path, *parts())
    check_goes_on(tmp_path, *parts())
    given, out = parts()
    for other in (out[:, ::-1], out.base[:, K - 1 : -1]):
        given["c"] = other
        with pytest.raises(pyclmm.ArgumentError, match="out overlaps an operand"):
            multiply(tmp_path, given, out)


def test_a_view_by_strides_is_in_the_file(path, tmp_path):
    out = as_strided(raw(path)["out"], (M, N), (4 * N, 4))
    begun(tmp_path, GIVEN, out)
    assert {each.name for each in (tmp_path / "tiles").iterdir()} == {"pyclmm-journal", "pyclmm-lock"}
    check_goes_on(tmp_path, GIVEN, out)


def test_an_operand_of_windows_in_a_file_that_was_cut_is_named(path, tmp_path):
    whole = np.memmap(path, "f4", "r")
    windows = sliding_window_view(whole, K)[:M]
    os.truncate(path, 8)
    with pytest.raises(pyclmm.StorageError, match=r"a: the whole array .*the file has 8 bytes"):
        pyclmm.matmul(windows, GIVEN["b"], memory_limit="1 GiB")


def test_an_hdf5_file_whose_datasets_are_mapped(tmp_path):
    def maps(file):
        return {
            name: np.memmap(tmp_path / "x.h5", "f4", "r", file[name].id.get_offset(), x.shape)
            for name, x in GIVEN.items()
        }

    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name, x in GIVEN.items():
            file[name] = x
        file.create_dataset("out", (M, N), "f4", chunks=(16, 16))  # the file grows with each chunk
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        begun(tmp_path, maps(file), file["out"])
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        check_goes_on(tmp_path, maps(file), file["out"])


@pytest.mark.parametrize("name", GIVEN)
def test_a_changed_operand_is_refused(name, path, tmp_path):
    begun(tmp_path, raw(path), raw(path)["out"])
    raw(path, "r+")[name].reshape(-1)[-1] += 1
    with pytest.raises(CheckpointError, match=rf"another product: operands\.{name}\.digest"):
        multiply(tmp_path, raw(path), raw(path)["out"])
    raw(path, "r+")[name].reshape(-1)[-1] -= 1
    check_goes_on(tmp_path, raw(path), raw(path)["out"])


def test_exchanged_elements_of_a_large_operand_are_noticed(tmp_path, limits):
    """No sum of a row differs, and of 4 KiB most lie beside a sample."""
    limits(digest=1 << 20)  # of an operand in a file of its own one column of four is read
    a, b = np.zeros((1000, 1024), "f4"), np.ones((1024, 2), "f4")
    a[:, 500:600] = integers(1000, 100)
    (tmp_path / "raw").write_bytes(np.zeros((1000, 2), "f4").tobytes() + a.tobytes())

    def parts(mode="r"):
        out = np.memmap(tmp_path / "raw", "f4", "r+", shape=(1000, 2))
        return np.memmap(tmp_path / "raw", "f4", mode, out.nbytes, a.shape), out

    def product(**keywords):
        x, out = parts()
        pyclmm.matmul(x, b, out=out, checkpoint=tmp_path / "tiles", **keywords)

    x, _ = parts("r+")
    x[[1, 2], 555] = 7, 9
    with pytest.raises(KeyboardInterrupt):
        product(progress=ctrl_c_at(1))
    x[[1, 2], 555] = x[[2, 1], 555]
    with pytest.raises(CheckpointError, match=r"another product: operands\.a\.digest"):
        product()
    x[[1, 2], 555] = x[[2, 1], 555]
    product()
    assert np.array_equal(parts()[1], np.array(x) @ b)


def test_an_operand_without_elements(tmp_path):
    (tmp_path / "raw").write_bytes(bytes(4 * M * N))

    def product(**keywords):
        out = np.memmap(tmp_path / "raw", "f4", "r+", shape=(M, N))
        a = np.memmap(tmp_path / "raw", "f4", "r", shape=(M, N))[:, :0]
        pyclmm.matmul(a, np.zeros((0, N), "f4"), out=out, checkpoint=tmp_path / "tiles", **keywords)

    with pytest.raises(KeyboardInterrupt):
        product(progress=ctrl_c_at(1))
    product()
    assert not (tmp_path / "tiles").exists()
