"""Pictures of digits: the reader of IDX files, and the classifiers."""

import gzip
import struct

import numpy as np
import pytest

from examples.demo import digits
from pyclmm.errors import ArgumentError


def write_idx(path, array, code=8, shape=None):
    shape = array.shape if shape is None else shape
    head = bytes([0, 0, code, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)
    path.write_bytes(gzip.compress(head + array.astype(np.uint8).tobytes()))


@pytest.fixture
def folder(tmp_path):
    drawn = digits.draw(60, seed=3)
    write_idx(tmp_path / digits.IMAGES, (drawn.pictures.reshape(60, 28, 28) * 255).round())
    write_idx(tmp_path / digits.LABELS, drawn.labels)
    return tmp_path


def test_mnist_files_are_read(folder):
    drawn, loaded = digits.draw(60, seed=3), digits.load(folder)
    assert loaded.pictures.shape == (60, 784)
    assert loaded.pictures.dtype == np.float32
    assert np.abs(loaded.pictures - drawn.pictures).max() <= 0.51 / 255
    assert np.array_equal(loaded.labels, drawn.labels)


def test_idx_files_of_any_rank(tmp_path):
    for shape in ((5,), (2, 3), (2, 3, 4)):
        array = np.arange(np.prod(shape)).reshape(shape)
        write_idx(tmp_path / "x", array)
        assert np.array_equal(digits.read_idx(tmp_path / "x"), array)


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda p: None, "cannot read .*No such file"),
        (lambda p: p.write_bytes(b"plain"), "cannot read .*gzip"),
        (lambda p: p.write_bytes(gzip.compress(b"long enough" * 9)[:-9]), "cannot read"),
        (lambda p: p.write_bytes(gzip.compress(b"")), "not an IDX file"),
        (lambda p: write_idx(p, np.zeros(8), code=13), "not an IDX file of unsigned bytes"),
        (lambda p: write_idx(p, np.zeros(8), shape=(9,)), r"holds \(9,\), but has 16 bytes"),
    ],
    ids=["missing", "not gzip", "cut", "empty", "floats", "short"],
)
def test_broken_files_are_refused(tmp_path, write, says):
    write(tmp_path / "x")
    with pytest.raises(ArgumentError, match=says):
        digits.read_idx(tmp_path / "x")


def test_labels_and_pictures_must_be_equal_in_number(folder):
    write_idx(folder / digits.LABELS, np.zeros(59))
    with pytest.raises(ArgumentError, match="do not go with"):
        digits.load(folder)


def test_the_nearest_pictures_are_found():
    rng = np.random.default_rng(1)
    known, asked = rng.random((20, 5)), rng.random((30, 5))
    distances = ((asked[:, None] - known) ** 2).sum(axis=2)
    assert np.array_equal(digits.nearest(known, asked, np.matmul), distances.argmin(axis=1))


def test_drawn_digits_are_classified_right():
    learnt, unknown = digits.draw(2000).split(1600, 400)
    assert len(unknown.labels) == 400
    nearest = digits.nearest(learnt.pictures, unknown.pictures, np.matmul)
    assert digits.accuracy(learnt.labels[nearest], unknown.labels) > 0.8


def test_centroids_are_means():
    few = digits.Digits(np.array([[0, 2], [2, 4], *([[7, 7]] * 9)], float), np.array([0, 0, *range(1, 10)]))
    assert digits.centroids(few).tolist() == [[1, 3], *([[7, 7]] * 9)]
