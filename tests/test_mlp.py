"""The perceptron of examples/mlp by `layers`: gradients, steps, predictions, shuffles."""

import ast
from pathlib import Path

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from examples.mlp.device import Kernels, Shuffle, padded
from examples.mlp.layers import Layers
from examples.mlp.model import initial
from examples.mlp.reference import Reference

FOLDER = Path(__file__).parents[1] / "examples" / "mlp"


def some_pictures(count, inputs, classes=10, seed=5):
    """Pictures with a blob that depends on the label, so that there is something to learn."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count).astype(np.int32)
    glyphs = rng.random((classes, inputs)) < 0.3
    images = np.clip(glyphs[labels] * 0.8 + rng.normal(0, 0.1, (count, inputs)), 0, 1)
    return images.astype(np.float32), labels


class Trained:
    """`Layers` and the reference on the same batches."""

    def __init__(self, queue, sizes, batch, *, rate=0.05, dtype=np.float32, count=None):
        self.queue, self.batch = queue, batch
        self.start = initial(sizes, 3)
        rng = np.random.default_rng(4)
        zeros = self.start.biases  # they would hide a bias that is not read
        self.start.biases = [rng.normal(0, 0.1, b.shape).astype(np.float32) for b in zeros]
        self.images, self.labels = some_pictures(count or 6 * batch, sizes[0], sizes[-1])
        self.on_device = cla.to_device(queue, self.images.astype(dtype))
        self.order = np.random.default_rng(6).permutation(len(self.labels)).astype(np.int32)
        labels = cla.to_device(queue, self.labels)
        self.model = Layers(queue, self.start, self.on_device, labels, batch=batch, learning_rate=rate)
        self.reference = Reference(self.start, learning_rate=rate)

    def train(self, first, steps):
        """The losses of steps that both train: ours, the reference's."""
        losses = cla.zeros(self.queue, first + steps + 1, np.float32)
        self.model.train(cla.to_device(self.queue, self.order), first, steps, losses)
        expected = []
        for step in range(first, first + steps):
            rows = self.order[step * self.batch : (step + 1) * self.batch]
            expected.append(self.reference.step(self.images[rows], self.labels[rows]))
        got = losses.get()
        assert not got[:first].any()
        assert got[-1] == 0
        return got[first:-1], np.array(expected)

    def change_errors(self):
        """Of each layer: the error of the change since the start, relative to the largest change."""
        found = self.model.parameters()
        for start, ours, theirs in (
            (self.start.weights, found.weights, self.reference.weights),
            (self.start.biases, found.biases, self.reference.biases),
        ):
            for x, y, z in zip(start, ours, theirs, strict=True):
                change = z - x
                yield np.abs(y - x - change).max() / np.abs(change).max()


@pytest.fixture(scope="module")
def queue():
    return pyclmm.default_queue()


def test_the_references_gradients_are_those_of_finite_differences():
    parameters = initial((7, 6, 6, 4), 1)
    images, labels = some_pictures(5, 7, 4)
    reference = Reference(parameters, learning_rate=0.1)
    _, by_weights, by_biases = reference.gradients(images, labels)
    for values, gradients in ((reference.weights, by_weights), (reference.biases, by_biases)):
        for value, gradient in zip(values, gradients, strict=True):
            for index in np.ndindex(value.shape):
                kept, h = value[index], 1e-6
                value[index] = kept + h
                above = reference.loss(images, labels)
                value[index] = kept - h
                below = reference.loss(images, labels)
                value[index] = kept
                assert abs((above - below) / (2 * h) - gradient[index]) < 1e-7


@pytest.mark.parametrize(
    ("sizes", "batch"),
    [
        ((784, 128, 128, 128, 10), 32), ((64, 40, 10), 32), ((65, 33, 33, 7), 13), ((9, 8, 8, 8, 8, 8, 2), 1),
        ((31, 70, 19, 33, 5), 6),
    ],
)  # fmt: skip
def test_one_step_is_the_references(queue, sizes, batch):
    trained = Trained(queue, sizes, batch)
    ours, expected = trained.train(0, 1)
    assert ours == pytest.approx(expected, rel=1e-5)
    # A change is a small difference of weights, which are rounded: eps / (rate * gradient) of it.
    assert max(trained.change_errors()) < 2e-3


def test_a_hundred_steps_have_the_references_losses(queue):
    trained = Trained(queue, (100, 64, 64, 64, 10), 32, count=3200)
    ours, expected = trained.train(0, 100)
    assert np.abs(ours / expected - 1).max() < 1e-4
    assert expected[-5:].mean() < 0.5 * expected[:5].mean(), "it learns"


def test_a_step_in_two_calls_is_one_in_one_call(queue):
    one, two = (Trained(queue, (20, 16, 16, 10), 8) for _ in range(2))
    whole, _ = one.train(0, 5)
    parts = np.concatenate([two.train(0, 2)[0], two.train(2, 3)[0]])
    assert np.array_equal(whole, parts)
    for x, y in zip(one.model.parameters().weights, two.model.parameters().weights, strict=True):
        assert np.array_equal(x, y)


def test_float16_operands_have_float32_weights(queue):
    trained = Trained(queue, (64, 48, 48, 10), 16, dtype=np.float16, count=960)
    ours, expected = trained.train(0, 60)
    assert np.abs(ours / expected - 1).max() < 2e-2
    found = trained.model.parameters()
    assert all(w.dtype == np.float32 for w in found.weights)
    assert any((w != w.astype(np.float16)).any() for w in found.weights), "they are not rounded"
    assert np.mean(trained.model.predict(trained.on_device).get() == trained.labels) > 0.8


def test_large_logits_give_finite_losses(queue):
    trained = Trained(queue, (20, 16, 10), 8)
    trained.start.weights = [w * np.float32(100) for w in trained.start.weights]
    images, labels = cla.to_device(queue, trained.images), cla.to_device(queue, trained.labels)
    model = Layers(queue, trained.start, images, labels, batch=8, learning_rate=1e-9)
    losses = cla.zeros(queue, 1, np.float32)
    model.train(cla.to_device(queue, trained.order), 0, 1, losses)
    rows = trained.order[:8]
    expected = Reference(trained.start, learning_rate=0).loss(trained.images[rows], trained.labels[rows])
    assert expected > 1000
    assert losses.get()[0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("count", [1, 31, 2500])
def test_any_number_of_pictures_is_predicted(queue, count):
    trained = Trained(queue, (30, 16, 16, 10), 8, count=2500)
    trained.train(0, 60)
    found = trained.model.predict(trained.on_device[:count])
    assert found.dtype == np.int32
    expected = trained.reference.predict(trained.images[:count])
    assert len(set(expected)) > 5 or count == 1
    assert np.array_equal(found.get(), expected)


def test_a_network_without_hidden_layers_is_refused(queue):
    parameters = initial((8, 3), 0)
    images, labels = cla.zeros(queue, (4, 8), np.float32), cla.zeros(queue, 4, np.int32)
    with pytest.raises(ValueError, match=r"\(8, 3\).*one hidden layer or more"):
        Layers(queue, parameters, images, labels, batch=2, learning_rate=0.1)


def test_the_parameters_given_are_not_changed(queue):
    trained = Trained(queue, (20, 16, 16, 10), 8)
    kept = [w.copy() for w in (*trained.start.weights, *trained.start.biases)]
    trained.train(0, 2)
    assert all(map(np.array_equal, kept, (*trained.start.weights, *trained.start.biases)))


# shuffles


@pytest.mark.parametrize("count", [1, 2, 3, 31, 64, 65, 1000])
def test_every_epoch_has_each_picture_once(queue, count):
    shuffle = Shuffle(Kernels(queue), count, seed=1)
    for epoch in range(3):
        assert np.array_equal(np.sort(shuffle.epoch(epoch).get()), np.arange(count))


def test_orders_are_new_in_each_epoch_and_the_same_for_a_seed(queue):
    kernels = Kernels(queue)
    orders = [Shuffle(kernels, 500, seed=s).epoch(e).get() for s, e in ((1, 0), (1, 1), (2, 0), (1, 0))]
    assert np.array_equal(orders[0], orders[3])
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert np.mean(orders[one] == orders[other]) < 0.05


def test_orders_are_random(queue):
    """Over many epochs each picture comes to each place equally often, and places are not correlated."""
    shuffle = Shuffle(Kernels(queue), 20, seed=9)
    orders = np.array([shuffle.epoch(e).get() for e in range(2000)])
    counts = np.array([np.bincount(orders[:, place], minlength=20) for place in range(20)])
    assert ((counts - 100) ** 2 / 100).sum() < 361 + 6 * np.sqrt(2 * 361)  # chi squared, 19 * 19 degrees
    correlation = np.corrcoef(orders.T) - np.eye(20) + (1 - np.eye(20)) / 19
    assert np.abs(correlation).max() < 6 / np.sqrt(2000)


# what the example may use


def used_names(tree):
    """The names of pyclmm that a module uses, and the modules of pyclmm that it imports from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (x.name for x in node.names if x.name.startswith("pyclmm."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pyclmm":
            yield from (x.name if node.module == "pyclmm" else node.module for x in node.names)
        elif (
            isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pyclmm"
        ):
            yield node.attr


@pytest.mark.parametrize("module", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_only_public_names_of_pyclmm_are_used(module):
    used = set(used_names(ast.parse(module.read_text(encoding="utf-8"))))
    assert used <= set(pyclmm.__all__)


def test_private_names_of_pyclmm_are_found():
    tree = ast.parse("import pyclmm\nfrom pyclmm.plan import Matmul\npyclmm.api.gemm\npyclmm.matmul")
    assert set(used_names(tree)) - set(pyclmm.__all__) == {"pyclmm.plan", "api"}


def test_one_seed_gives_one_start():
    one, again, other = (initial((50, 40, 10), seed) for seed in (1, 1, 2))
    assert all(map(np.array_equal, one.weights, again.weights))
    assert not np.array_equal(one.weights[0], other.weights[0])
    assert one.weights[0].std() == pytest.approx(np.sqrt(2 / 50), rel=0.05)
    assert one.sizes == (50, 40, 10)


@pytest.mark.parametrize("tile", [(1, 1), (4, 8), (2, 3)])
def test_the_backward_kernel_with_work_groups_of_a_gpu(queue, tile):
    """Rows are divided among work-items there, and their sums meet in local memory."""
    kernels, rng = Kernels(queue), np.random.default_rng(2)
    batch, columns, rate = 13, 300, 0.25
    h, d = (rng.integers(-4, 5, (2, batch, columns)).astype(np.float32) for _ in range(2))
    bias = rng.integers(-4, 5, columns).astype(np.float32)
    on_device = [cla.to_device(queue, x) for x in (h, d, bias)]
    local = cl.LocalMemory(tile[0] * tile[1] * kernels.columns * 4)
    numbers = np.int64(batch * columns), np.int32(batch), np.int32(columns)
    h_dev, d_dev, bias_dev = (x.data for x in on_device)
    backward = kernels.new("backward")
    for index, arg in enumerate((h_dev, d_dev, *numbers, bias_dev, np.float32(rate), local)):
        backward.set_arg(index, arg)
    items = padded(-(-columns // kernels.columns), tile[0])
    cl.enqueue_nd_range_kernel(queue, backward, (items, tile[1]), tile)
    expected = d.copy()
    expected[1] = np.where(h[1] > 0, d[1], 0)
    assert np.array_equal(on_device[1].get(), expected)
    assert np.array_equal(on_device[2].get(), bias - rate * expected[1].sum(axis=0))
