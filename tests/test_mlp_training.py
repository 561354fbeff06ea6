"""The program examples/mlp: its data, files that are damaged, training, saving and going on."""

import gzip
import struct
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest

import pyclmm
from examples.mlp import __main__ as program
from examples.mlp import checkpoint, compare, data, plots
from examples.mlp.checkpoint import CheckpointError, Settings
from examples.mlp.data import Data, DataError, Pictures
from examples.mlp.device import Kernels, Shuffle
from examples.mlp.fused import Fused
from examples.mlp.model import FusedRefused, Parameters, initial
from examples.mlp.reference import Reference
from examples.mlp.train import Trainer, new_model
from tests.support.processes import python

ROOT = Path(__file__).parents[1]
IMAGES, LABELS = 0x803, 0x801


def idx(array, magic=None, shape=None):
    array = np.asarray(array, np.uint8)
    shape = array.shape if shape is None else shape
    magic = 0x800 | len(shape) if magic is None else magic
    return struct.pack(f">{len(shape) + 1}I", magic, *shape) + array.tobytes()


def digits_of(count, seed=1):
    """Pictures of 6 x 5 with a bright row that tells the label, and the labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count)
    images = rng.integers(0, 60, (count, 6, 5))
    images[np.arange(count), labels % 6, labels % 5] = 255
    images[np.arange(count), labels // 2] += 90
    return np.minimum(images, 255), labels


def write(folder, part, images, labels, packed=True):
    for name, array in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
        content = idx(array)
        path = folder / f"{part}-{name}{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(content) if packed else content)


def some_data(count=320):
    images, labels = digits_of(count)
    flat = (images.reshape(count, -1) / 255).astype(np.float32)
    return data.split("made up", (6, 5), Pictures(flat, labels.astype(np.int32)))


SETTINGS = Settings(mode="layers", hidden=(24, 24), batch=16, learning_rate=0.1, seed=3)


# data


@pytest.mark.parametrize("packed", [True, False])
def test_only_test_files_are_split_by_four_to_one(tmp_path, packed):
    images, labels = digits_of(50)
    write(tmp_path, "t10k", images, labels, packed)
    found = data.load(tmp_path)
    assert (len(found.learnt), len(found.unseen), found.shape) == (40, 10, (6, 5))
    every = np.concatenate([found.learnt.images, found.unseen.images])
    assert np.array_equal(every, images.reshape(50, -1).astype(np.float32) / np.float32(255))
    assert np.array_equal(np.concatenate([found.learnt.labels, found.unseen.labels]), labels)


def test_training_files_are_learnt_from(tmp_path):
    write(tmp_path, "t10k", *digits_of(20))
    write(tmp_path, "train", *digits_of(30, seed=2))
    found = data.load(tmp_path)
    assert np.array_equal(found.learnt.labels, digits_of(30, seed=2)[1])
    assert np.array_equal(found.unseen.labels, digits_of(20)[1])


GOOD = idx(np.zeros((3, 2, 2)))
PACKED = gzip.compress(GOOD, mtime=0)  # a time of its own would name the test otherwise in each process


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot read .*No such file"),
        (b"", "begins with"),
        (GOOD[:-1], "has 27 bytes, and 28 would hold"),
        (GOOD + b"x", "has 29 bytes, and 28 would hold"),
        (GOOD[:7], "has 7 bytes"),
        (PACKED[:-9], "cannot read"),
        (PACKED[:12] + b"damaged" + PACKED[19:], "cannot read"),
        (idx(np.zeros((3, 2, 2)), magic=0xD03), "begins with 0x00000d03, and .* images with 0x00000803"),
        (idx(np.zeros(3)), "begins with 0x00000801"),
    ],
)
def test_damaged_files_are_named(tmp_path, content, says):
    path = tmp_path / "x"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=says) as caught:
        data.read_idx(path, IMAGES)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda f: write(f, "t10k", digits_of(20)[0], digits_of(19)[1]), "20 pictures and 19 labels"),
        (lambda f: write(f, "t10k", digits_of(2)[0], [3, 10]), "a label 10; labels are 0 to 9"),
        (lambda f: write(f, "t10k", np.zeros((0, 6, 5)), []), "hold no pictures"),
        (lambda f: (f / "t10k-labels-idx1-ubyte.gz").unlink(), "has no t10k-labels-idx1-ubyte"),
        (lambda f: write(f, "train", np.zeros((9, 3, 3)), np.zeros(9)), r"\(3, 3\) in the training files"),
        (lambda f: (f / "train-images-idx3-ubyte").write_bytes(GOOD), "has no train-labels-idx1-ubyte"),
    ],
)
def test_files_that_do_not_go_together_are_refused(tmp_path, spoil, says):
    write(tmp_path, "t10k", *digits_of(20))
    spoil(tmp_path)
    with pytest.raises(DataError, match=says):
        data.load(tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match="nowhere is not a folder"):
        data.load(tmp_path / "nowhere")


def test_without_scikit_learn_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(DataError, match=r"pip install scikit-learn, or pass --data"):
        data.digits()


def test_scikit_learns_digits_are_split():
    pytest.importorskip("sklearn")
    found = data.digits()
    assert (len(found.learnt), len(found.unseen)) == (1437, 360)
    assert found.learnt.images.max() == 1
    assert set(found.unseen.labels) == set(range(10))


# training


def trained(queue, some, epochs, saved=None):
    trainer = Trainer(queue, saved.settings if saved else replace(SETTINGS, data=some.digest), some, saved)
    while len(trainer.losses) < epochs:
        trainer.epoch()
    return trainer


def same(one, other):
    both = ((*x.parameters.weights, *x.parameters.biases, x.losses, x.accuracies) for x in (one, other))
    return all(map(np.array_equal, *both))


def test_training_learns_and_one_seed_gives_one_result(queue):
    some = some_data()
    one, again = trained(queue, some, 8), trained(queue, some, 8)
    assert one.losses[-1] < 0.5 * one.losses[0]
    assert one.accuracies[-1] > 0.5
    assert same(one.saved(), again.saved())
    other = Trainer(queue, replace(SETTINGS, seed=4), some)
    other.epoch()
    assert other.losses[0] != one.losses[0]


def test_training_goes_on_bit_for_bit(queue, tmp_path):
    some, path = some_data(), tmp_path / "w.npz"
    whole = trained(queue, some, 4)
    checkpoint.save(path, trained(queue, some, 2).saved())
    saved = checkpoint.load(path)
    assert saved.settings == replace(SETTINGS, data=some.digest)
    on = trained(queue, some, 4, saved)
    assert same(on.saved(), whole.saved())
    assert [p.name for p in tmp_path.iterdir()] == ["w.npz"]


@pytest.mark.parametrize("steps", [1, 16])
def test_fused_learns_what_layers_learns(queue, steps):
    some = some_data(steps * SETTINGS.batch * 5 // 4)
    trainers = [Trainer(queue, replace(SETTINGS, mode=mode), some) for mode in ("layers", "fused")]
    epochs = [trainer.epoch() for trainer in trainers]
    assert trainers[0].steps == steps
    assert epochs[0].loss == pytest.approx(epochs[1].loss, rel=1e-6)
    layers, fused, begin = (
        [*p.weights, *p.biases] for p in (*(t.model.parameters() for t in trainers), trainers[0].begin)
    )
    for x, y, start in zip(layers, fused, begin, strict=True):
        assert np.abs(x - start).max() > 1e-4
        np.testing.assert_allclose(x, y, atol=2e-6)


@pytest.mark.parametrize(
    ("sizes", "layers", "saved", "wanted"),
    [
        (None, None, None, None), ([50], None, None, (50, 50, 50)), ([50], 2, None, (50, 50)),
        (None, 2, None, (128, 128)), ([50, 40], None, None, (50, 40)), ([50, 40], 2, None, (50, 40)),
        ([50], None, (70, 60), (50, 50)), (None, 1, (70, 60), (70,)),
    ],
)  # fmt: skip
def test_sizes_of_hidden_layers(sizes, layers, saved, wanted):
    assert program.hidden_sizes(sizes, layers, saved) == wanted


def test_sizes_that_differ_from_their_number():
    with pytest.raises(program.UsageError, match="--hidden names 2 sizes and --layers 3"):
        program.hidden_sizes([50, 40], 3, None)


@pytest.mark.parametrize("why", ["compiler refuses the kernel", "too large"])
def test_auto_says_why_it_is_not_fused(queue, monkeypatch, why):
    some, start = some_data(32), initial((30, 24, 24, 10), 0)
    if why == "too large":
        monkeypatch.setattr(Fused, "suits", False)
    else:
        monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", "-Dtrain=2")
    model, reason = new_model(queue, replace(SETTINGS, mode="auto"), start, some.learnt)
    assert model.name == "layers"
    assert why in reason
    with nullcontext() if why == "too large" else pytest.raises(FusedRefused):
        model, reason = new_model(queue, replace(SETTINGS, mode="fused"), start, some.learnt)
        assert (model.name, reason) == ("fused", None)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda arrays: arrays.pop("biases_1"),
        lambda arrays: arrays.update(format=np.array(99)),
        lambda arrays: arrays.update(weights_1=arrays["weights_1"][:-1]),
        lambda arrays: arrays.update(weights_0=arrays["weights_0"].astype(np.float64)),
        lambda arrays: arrays.update(mode=np.array({"a": 1}, object)),
    ],
    ids=["an array is missing", "format", "shape", "dtype", "pickle"],
)
def test_files_of_weights_that_are_not_ours_are_refused(queue, tmp_path, spoil):
    path = tmp_path / "w.npz"
    checkpoint.save(path, trained(queue, some_data(32), 1).saved())
    arrays = dict(np.load(path))
    spoil(arrays)
    np.savez(path, **arrays)
    with pytest.raises(CheckpointError, match=r"w\.npz is not a file that this program has saved"):
        checkpoint.load(path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(CheckpointError, match=r"w\.npz"):
        checkpoint.load(path)
    with pytest.raises(CheckpointError, match=r"cannot read .*No such file"):
        checkpoint.load(tmp_path / "none.npz")


@pytest.mark.parametrize(
    ("given", "says"), [({"batch": 5}, "batch 16, and 5 is given"), ({"data": 1}, "other pictures")]
)
def test_settings_that_differ_from_the_saved_ones_are_refused(given, says):
    with pytest.raises(CheckpointError, match=says):
        checkpoint.agreed(SETTINGS, given)
    assert checkpoint.agreed(SETTINGS, {"batch": 16}) == SETTINGS


def test_a_plot_is_written(queue, tmp_path):
    pytest.importorskip("matplotlib")
    some = some_data(64)
    trainer = trained(queue, some, 1)
    plots.draw(tmp_path / "p.png", trainer.saved(), some, trainer.predicted())
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_a_plot_without_matplotlib_is_refused_before_training(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SystemExit, match="2"):
        program.main(["--plot", "x.png"])
    assert 'Error: --plot needs matplotlib: pip install "pyclmm[plot]"' in capsys.readouterr().err


def test_peers_are_refused_with_a_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(compare.PeerRefused, match="pip install torch"):
        compare.find_torch()


# the program


def test_a_file_is_written_through_a_link(tmp_path):
    parameters = Parameters([np.zeros((2, 2), "f4")], [np.zeros(2, "f4")])
    saved = checkpoint.Saved(Settings(hidden=(4,)), parameters, [], [])
    (tmp_path / "far").mkdir()
    link = tmp_path / "link.npz"
    link.symlink_to(tmp_path / "far" / "weights.npz")
    checkpoint.save(link, saved)
    assert link.is_symlink()
    assert (tmp_path / "far" / "weights.npz").is_file()


@pytest.mark.parametrize("option", ["--save", "--plot"])
@pytest.mark.parametrize(("name", "why"), [("", "is no file"), ("nowhere/x.npz", "there is no folder")])
def test_files_that_cannot_be_written_are_refused_before_training(tmp_path, option, name, why):
    with pytest.raises(program.UsageError, match=f"{option} .*{why}"):
        program.check_writable(option, tmp_path / name)
    program.check_writable(option, tmp_path / "new.npz")


def run(folder, *arguments):
    return python("-W", "error", "-m", "examples.mlp", "--data", folder, *arguments, cwd=ROOT)


def test_the_last_line_is_the_accuracy_and_training_goes_on(tmp_path):
    write(tmp_path, "t10k", *digits_of(300))
    small = ("--mode", "layers", "--hidden", "16", "--layers", "1", "--batch", "8")
    kept = str(tmp_path / "w.npz")
    done = run(tmp_path, *small, "--epochs", "1", "--save", kept)
    assert done.returncode == 0, done.stderr
    assert "240 pictures to learn from, 60 unseen" in done.stdout
    assert "trained by layers" in done.stdout
    more = run(tmp_path, "--resume", kept, "--epochs", "2")
    assert more.returncode == 0, more.stderr
    assert "epoch   2/2" in more.stdout
    assert "epoch   1/2" not in more.stdout
    word, value = more.stdout.splitlines()[-1].split()
    assert word == "accuracy"
    assert 0 <= float(value) <= 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--batch", "99"], "--batch 99 is more than the 48 pictures"),
        (["--device", "no such device"], "--device: no such device names 0 devices"),
        (["--mode", "fused", "--operands", "float16"], "--operands float16 is for --mode layers"),
        (["--plot", "x.txt"], "--plot x.txt: its name tells no format; end it in .png"),
        (["--plot", "x"], "--plot x: its name tells no format; end it in .png"),
    ],
)
def test_arguments_that_do_not_fit_are_named(tmp_path, capsys, arguments, says):
    write(tmp_path, "t10k", *digits_of(60))
    with pytest.raises(SystemExit) as caught:
        program.main(["--data", str(tmp_path), *arguments])
    assert caught.value.code == 2
    assert says in capsys.readouterr().err


def test_a_device_is_found_by_its_number():
    record = pyclmm.devices()[0]
    assert program.queue_for(record.number).device == record.device


def test_the_digest_tells_pictures_apart():
    one, other = some_data(40), some_data(45)
    changed = Data("x", (6, 5), replace(one.learnt, labels=one.learnt.labels[::-1].copy()), one.unseen)
    assert len({one.digest, other.digest, changed.digest}) == 3


# MNIST itself, where its test files lie beside the repository

MNIST = next((p / "shared/data/mnist" for p in ROOT.parents if (p / "shared/data/mnist").is_dir()), None)


@pytest.mark.slow  # 10 s
@pytest.mark.skipif(MNIST is None, reason="shared/data/mnist is not beside the repository")
def test_mnist_is_learnt(queue):
    """From its test files alone: 8,000 to learn from. The first 100 losses are the reference's."""
    some = data.load(MNIST)
    assert (len(some.learnt), len(some.unseen)) == (8000, 2000)
    trainer = Trainer(queue, Settings(mode="layers"), some)
    reference = Reference(trainer.begin, learning_rate=trainer.settings.learning_rate)
    order = Shuffle(Kernels(queue), 8000, trainer.settings.seed).epoch(1).get()
    expected = [reference.step(*some_rows(some, order[at : at + 32])) for at in range(0, 3200, 32)]
    trainer.epoch()
    assert np.abs(trainer.last_losses()[:100] / expected - 1).max() < 1e-4
    while len(trainer.losses) < 6:
        trainer.epoch()
    assert trainer.accuracies[-1] >= 0.95


def some_rows(some, rows):
    return some.learnt.images[rows], some.learnt.labels[rows]


@pytest.mark.parametrize(("hidden", "mode"), [(40, "fused"), (600, "layers")])
def test_auto_on_a_cpu_goes_by_the_bytes_of_the_weights(queue, hidden, mode):
    if not queue.device.type & cl.device_type.CPU:
        pytest.skip("about CPUs")
    some, start = some_data(32), initial((30, hidden, hidden, 10), 0)
    assert new_model(queue, replace(SETTINGS, mode="auto"), start, some.learnt)[0].name == mode
