"""What a plan refuses: other operands than it was made for, and options that are none."""

import inspect

import numpy as np
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm import Matmul, errors

A, B = np.ones((3, 4), "f4"), np.ones((4, 5), "f4")


def ones(*shape, dtype="f4"):
    return np.ones(shape, dtype)


@pytest.mark.parametrize(
    ("operands", "texts"),
    [
        (
            (ones(3, 5), ones(5, 5)),
            ["a is not what the plan was made for", "its shape is (3, 5), the plan's (3, 4)"],
        ),
        (
            (A, ones(4, 5, dtype="f8")),
            ["b is not what the plan was made for", "its dtype is float64, the plan's float32"],
        ),
        ((A, B.T.copy().T), ["b is not what the plan was made for", "its stride in bytes is (4, 16)"]),
    ],
)
def test_a_plan_refuses_what_it_was_not_made_for(operands, texts):
    planned = Matmul(A, B)
    with pytest.raises(errors.ArgumentError) as caught:
        planned(*operands)
    assert all(text in str(caught.value) for text in texts)
    assert "make a plan for it" in str(caught.value)


def test_a_plan_refuses_operands_that_it_has_not_and_misses_those_that_it_has():
    out = ones(3, 5)
    with pytest.raises(
        errors.ArgumentError,
        match=r"out is given, but the plan was made without; leave it out, or make a plan with out=",
    ):
        Matmul(A, B)(A, B, out=out)
    with pytest.raises(errors.ArgumentError, match=r"out is missing: .* pass it"):
        Matmul(A, B, out=out)(A, B)


def test_a_plan_refuses_an_overlap_that_it_was_not_made_for():
    square, out = ones(4, 4), ones(4, 4)
    planned = Matmul(square, square, out=out)
    with pytest.raises(errors.ArgumentError, match="out overlaps other operands than"):
        planned(square, square, out=square)


def test_a_plan_refuses_scalars_that_become_zero():
    planned = Matmul(A, B)
    with pytest.raises(errors.ArgumentError, match="fixes whether alpha and beta are zero"):
        planned(A, B, alpha=0.0)


@pytest.mark.parametrize("queue", [0, [], "", np.ones(2), np.ones(0)], ids=repr)
def test_what_is_no_queue_is_refused_if_it_is_false_or_has_no_truth_value(queue):
    planned, of_list = Matmul(A, B), pyclmm.ManyMatmul([(A, B)])
    shapes = [((3, 4), "f4"), ((4, 5), "f4")]
    for call in (
        lambda: planned(A, B, queue=queue),
        lambda: of_list([(A, B)], queue=queue),
        lambda: pyclmm.matmul(A, B, queue=queue),
        lambda: pyclmm.warm(shapes, queue=queue),
        lambda: pyclmm.warm(shapes, queue=queue, on_device=True),
    ):
        with pytest.raises(errors.DTypeError, match=r"queue is a \w+; pass a pyopencl.CommandQueue"):
            call()


def test_a_plan_for_numpy_arrays_has_no_events():
    with pytest.raises(errors.DTypeError, match="enqueue takes pyopencl Arrays"):
        Matmul(A, B, out=ones(3, 5)).enqueue(A, B, out=ones(3, 5))


def test_workspace_over_max_workspace(queue):
    x = cla.to_device(queue, ones(16, 16))
    spread = cla.Array(queue, (8, 8), np.float32, data=x.base_data, strides=(128, 8))
    with pytest.raises(errors.UnsupportedError) as caught:
        Matmul(spread, spread, workspace_limit=100)
    assert "bytes of workspace, workspace_limit is 100" in str(caught.value)
    assert "naive: needs" in str(caught.value), "each kernel's reason"
    assert Matmul(spread, spread, workspace_limit=10000).workspace_nbytes < 10000


def matmul_of(**options):
    x = np.ones((2, 2), "f4")
    return Matmul(x, x, **options)


WRONG_OPTIONS = {
    "trans_a": (1, "X"),
    "trans_b": (None, "NT"),
    "activation": (1, "rely"),
    "kernel": (["naive"], ("naive",), ("naive", {}), "nave", ("nave", pyclmm.TileConfig())),
    "precision": (1, "higher"),
    "reproducible": (1, "yes"),
    "verify": (1, "always"),
    "casting": (1, "sometimes"),
    "dtype": ("no such", object()),
    "workspace_limit": ("1 GO", 1.5, -1),
    "constant_b": (1, "b"),
    "quantize_a": (1, "int4"),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG_OPTIONS.items() for value in values]
)
def test_an_option_that_is_none_is_named_with_what_would_do(name, value):
    with pytest.raises((errors.DTypeError, errors.ArgumentError)) as caught:
        matmul_of(**{name: value})
    assert name in str(caught.value)
    assert any(word in str(caught.value) for word in ("pass", "set a number", "valid are", "must be"))


def test_every_option_of_a_plan_is_checked():
    named = inspect.signature(pyclmm.Matmul.__init__).parameters.keys()
    others = {"self", "a", "b", "c", "alpha", "beta", "bias", "out", "queue", "device"}
    assert named - others == WRONG_OPTIONS.keys()
