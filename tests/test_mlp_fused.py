"""`fused` of examples/mlp: steps against NumPy in float64, the number of work-groups, refusals."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyopencl as cl
import pytest
from pyopencl.array import to_device, zeros

from examples.mlp import fused
from examples.mlp.fused import Fused
from examples.mlp.fused_layout import Choice, Layout
from examples.mlp.model import FusedRefused, Parameters
from examples.mlp.reference import Reference
from pyclmm.opencl.queues import default_queue
from tests.support.selection import few

ODD = (7, 5, 13, 4)
# Work-groups of several work-items, as on a GPU, with weights in local memory and in global memory.
SMALL = Choice(tile=2, local=8, vb=1, vw=4, vk=2, in_flight=2, row_loads=4, coherent=1)
HELD = Choice(tile=4, local=16, vb=2, vw=2, vk=1, in_flight=2, hold=True, coherent=1)
STAGED = replace(HELD, tile=2, local=8, vb=1, vw=4, stage=True)


@pytest.fixture
def few_cores(queue):
    """A device that does not start 64 work-groups at once."""
    if not queue.device.type & cl.device_type.CPU:
        pytest.skip("all work-groups start at once")


@pytest.fixture(name="queue", scope="session")
def in_order_queue():
    """`fused` asks for a queue in order. PYOPENCL_CTX chooses another device."""
    return cl.CommandQueue(default_queue().context)


class Problem:
    """Random pictures, labels, parameters and an order of *steps* batches."""

    def __init__(self, rng, sizes, batch, steps):
        self.batch, self.steps, count = batch, steps, 50
        self.images = rng.random((count, sizes[0]), dtype=np.float32)
        self.labels = rng.integers(0, sizes[-1], count).astype(np.int32)
        self.order = rng.integers(0, count, batch * steps).astype(np.int32)
        weights = [(rng.standard_normal(p) * np.sqrt(2 / p[0])).astype(np.float32) for p in pairwise(sizes)]
        self.start = Parameters(weights, [0.1 * rng.standard_normal(n).astype(np.float32) for n in sizes[1:]])

    def model(self, queue, rate, **options):
        images, labels = to_device(queue, self.images), to_device(queue, self.labels)
        return Fused(queue, self.start, images, labels, batch=self.batch, learning_rate=rate, **options)

    def untrained(self, queue, rate, **options):
        """(model, losses, order) before the first step."""
        model, losses = self.model(queue, rate, **options), zeros(queue, self.steps, np.float32)
        return model, losses, to_device(queue, self.order)

    def trained(self, queue, rate, **options):
        """(model, losses) after all steps."""
        model, losses, order = self.untrained(queue, rate, **options)
        model.train(order, 0, self.steps, losses)
        return model, losses.get()

    def reference(self, rate):
        """The parameters in float64 after all steps, and the losses."""
        found = Reference(self.start, learning_rate=rate)
        batches = self.order.reshape(self.steps, -1)
        return found, [found.step(self.images[taken], self.labels[taken]) for taken in batches]


def assert_equal_to_reference(problem, model, losses, rate):
    want, expected = problem.reference(rate)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    got = model.parameters()
    for a, b in zip([*got.weights, *got.biases], [*want.weights, *want.biases], strict=True):
        assert a.dtype == np.float32
        np.testing.assert_allclose(a, b, atol=3e-6)


CHOICES = {"default": (), "small": (SMALL,), "held": (HELD,), "staged": (STAGED,)}


def sizes_and_choices():
    """Four hidden layers only with one work-item a work-group: PoCL compiles the others for 15 s each.

    Two staged hidden layers have a test of their own, with two work-groups.
    """
    for sizes in (ODD, (7, 5, 4), (3, 1, 2), (12, 16, 8, 5, 9, 3)):
        for name in CHOICES:
            if name == "default" or len(sizes) < (4 if name == "staged" else 5):
                yield sizes, name


@pytest.mark.parametrize(("sizes", "name"), few(list(sizes_and_choices()), 0, 1), ids=str)
def test_steps_match_float64(queue, rng, sizes, name):
    """Seven steps of a large rate: a wrong gradient shows in the weights, a stale one in the losses."""
    choices = CHOICES[name]
    problem = Problem(rng, sizes, 3, 7)
    groups = 1 if any(choice.hold for choice in choices) else None
    model, losses = problem.trained(queue, 0.1, choices=choices, groups=groups)
    assert_equal_to_reference(problem, model, losses, 0.1)


def test_one_step_changes_weights_by_the_gradient(queue, rng):
    """The change itself, not the sum of weight and change, so that rounding of the weight hides nothing."""
    problem = Problem(rng, ODD, 3, 1)
    model, _ = problem.trained(queue, 1.0)
    want, _ = problem.reference(1.0)
    for after, exact, before in zip(
        model.parameters().weights, want.weights, problem.start.weights, strict=True
    ):
        assert np.abs(exact - before).max() > 0.01
        np.testing.assert_allclose(after - before, exact - before, atol=1e-6)


@pytest.mark.slow
def test_hundred_steps_of_the_standard_case(queue, rng):
    problem = Problem(rng, (784, 128, 128, 128, 10), 32, 100)
    model, losses = problem.trained(queue, 0.003)
    expected = problem.reference(0.003)[1]
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    by_columns = model.parameters().weights[1:-1]
    for rows, columns in zip(model.layout.rows(model._read()), by_columns, strict=True):
        np.testing.assert_array_equal(rows, columns)


@pytest.mark.parametrize("choices", [(), (SMALL,)], ids=["default", "small"])
def test_weights_do_not_depend_on_the_number_of_groups(queue, rng, choices):
    problem = Problem(rng, (20, 33, 40, 5), 6, 30)
    one, several = (problem.trained(queue, 0.05, choices=choices, groups=g)[0] for g in (1, 4))
    assert one.groups == 1
    for a, b in zip(one.parameters().weights, several.parameters().weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_steps_in_several_launches_and_calls(queue, rng):
    """The first call times a launch of 8 steps; steps count on from `first`, and other losses stay."""
    problem = Problem(rng, ODD, 4, 23)
    whole, expected = problem.trained(queue, 0.05)
    model, losses, order = problem.untrained(queue, 0.05)
    model.train(order, 0, 11, losses)
    assert (losses.get()[11:] == 0).all()
    model.train(order, 11, 12, losses)
    np.testing.assert_array_equal(losses.get(), expected)
    for a, b in zip(model.parameters().weights, whole.parameters().weights, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("meet", [0, 2])
def test_found_groups_run_together(queue, rng, meet):
    """Between one and as many as were asked for; all of them meet 100 times a launch."""
    problem = Problem(rng, (20, 64, 64, 5), 4, 50)
    asked = 8
    choice = Choice(tile=8, meet=meet, coherent=1, patience=1000)
    model, losses = problem.trained(queue, 0.05, choices=(choice,), groups=asked)
    assert 1 <= model.groups <= asked
    assert model.layout.groups == asked
    np.testing.assert_allclose(losses, problem.reference(0.05)[1], rtol=1e-4)


def test_predict(queue, rng):
    problem = Problem(rng, ODD, 3, 5)
    model, _ = problem.trained(queue, 0.05)
    got = model.predict(to_device(queue, problem.images))
    assert got.dtype == np.int32
    trained = Reference(model.parameters(), learning_rate=0)
    np.testing.assert_array_equal(got.get(), trained.predict(problem.images))


@pytest.mark.parametrize("choice", [Choice(), SMALL, HELD, STAGED])
def test_packed_parameters_come_back(rng, choice):
    start = Problem(rng, ODD, 3, 1).start
    back = Layout(ODD, 3, choice, 2).unpack(Layout(ODD, 3, choice, 2).pack(start))
    for a, b in zip([*back.weights, *back.biases], [*start.weights, *start.biases], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("why", "sizes", "choices"),
    [
        ("no hidden layer", (4, 3), ()),
        ("more than 64", (4, 5, 65), ()),
        ("bytes of local memory", ODD, (Choice(tile=1 << 16),)),
        ("compiler refuses", ODD, ()),
        ("queue in order would do", ODD, ()),
    ],
)
def test_refused_with_the_reason(queue, rng, monkeypatch, why, sizes, choices):
    if why == "compiler refuses":
        monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", "-Dtrain=2")
    if why == "queue in order would do":
        kind = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
        queue = cl.CommandQueue(queue.context, properties=kind)
    with pytest.raises(FusedRefused, match=why):
        Problem(rng, sizes, 3, 1).model(queue, 0.1, choices=choices)


@pytest.mark.usefixtures("few_cores")
def test_refused_where_held_weights_lack_work_groups(queue, rng):
    """No patience: no CPU of a few cores starts 64 work-groups before the first one closes the poll."""
    problem = Problem(rng, (4, 64, 3), 3, 1)
    choice = Choice(tile=1, local=1, vb=1, vk=1, hold=True, patience=0)
    with pytest.raises(FusedRefused, match="of 64 work-groups"):
        problem.model(queue, 0.1, choices=(choice,), groups=64)


@pytest.mark.usefixtures("few_cores")
def test_next_choice_where_held_weights_lack_work_groups(queue, rng):
    """The first choice holds its weights and needs all 64 work-groups, but has no patience for them."""
    held = Choice(tile=1, local=1, vb=1, vk=1, hold=True, patience=0)
    problem = Problem(rng, (4, 64, 3), 3, 7)
    model, losses = problem.trained(queue, 0.1, choices=(held, Choice(tile=1)), groups=64)
    assert not model.layout.choice.hold
    assert_equal_to_reference(problem, model, losses, 0.1)


def test_two_work_groups_stage_what_the_other_wrote(queue, rng):
    """Both must run at once. A device of one compute unit cannot show it.

    The patience is some seconds: on a machine with other work the second thread may start late.
    """
    if queue.device.max_compute_units < 2:
        pytest.skip("the device runs one work-group at a time")
    problem = Problem(rng, ODD, 9, 7)
    model, losses = problem.trained(queue, 0.1, choices=(replace(STAGED, patience=2**31 - 1),), groups=2)
    assert model.groups == 2
    assert_equal_to_reference(problem, model, losses, 0.1)


class Nvidia:
    """The words of an H200 that choose."""

    type, vendor, max_compute_units = cl.device_type.GPU, "NVIDIA Corporation", 132
    max_work_group_size, local_mem_size = 1024, 48 << 10

    def __init__(self, capability=(9, 0)):
        self.compute_capability_major_nv, self.compute_capability_minor_nv = capability


@pytest.mark.parametrize(
    ("hidden", "stage", "hold", "groups"),
    [
        (64, True, True, 64), (128, True, True, 128), (256, False, True, 128), (1024, False, True, 128),
        (2048, False, False, 128),
    ],
)  # fmt: skip
def test_first_choice_for_nvidia_fits(hidden, stage, hold, groups):
    layout = fused.layouts_for(Nvidia(), (784, hidden, hidden, hidden, 10), 32, (), None)[0]
    assert (layout.choice.stage, layout.choice.hold, layout.groups) == (stage, hold, groups)
    assert layout.local_bytes <= 226 << 10


def test_no_asynchronous_copies_before_capability_8():
    layouts = fused.layouts_for(Nvidia((7, 5)), (16, 16, 4), 4, (), None)
    assert not any(layout.choice.asynchronous for layout in layouts)


def test_bad_arguments_are_named(queue, rng):
    problem = Problem(rng, ODD, 3, 2)
    model, losses, order = problem.untrained(queue, 0.1)
    with pytest.raises(ValueError, match="order is int32 of 6; int32 of 9"):
        model.train(order, 0, 3, losses)
    with pytest.raises(ValueError, match="losses are float32 of 1"):
        model.train(order, 0, 2, zeros(queue, 1, np.float32))
    with pytest.raises(ValueError, match="first is -1"):
        model.train(order, -1, 2, losses)
    problem.batch = 0
    with pytest.raises(ValueError, match="batch is 0"):
        problem.model(queue, 0.1)
    problem.batch, problem.images = 3, problem.images[:, :6].copy()
    with pytest.raises(ValueError, match=r"images are float32 \(50, 6\)"):
        problem.model(queue, 0.1)
