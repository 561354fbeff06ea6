"""default_precision: the precision of calls that are given none."""

import asyncio
import doctest
import gc
import threading
from contextvars import Context, copy_context
from functools import partial

import numpy as np
import pytest

import pyclmm
from pyclmm import ArgumentError, default_precision
from pyclmm.problem.settings import PRECISIONS, chosen
from tests.support.calls import problems_of_calls
from tests.support.threads import in_threads

A = np.ones((2, 3), np.float32)
B = np.ones((3, 4), np.float32)


def planned(**how):
    """The precision of a new plan."""
    return pyclmm.Matmul(A, B, **how).precision


@pytest.mark.parametrize("word", PRECISIONS)
def test_plans_take_the_default_unless_given_a_precision(word):
    assert planned() == "highest"
    with default_precision(word):
        assert planned() == word
        for other in PRECISIONS:
            assert planned(precision=other) == other
    assert planned() == "highest"


def test_matmul_and_gemm_take_the_default(monkeypatch):
    problems = problems_of_calls(monkeypatch)
    for _ in range(2):  # the second round uses kept plans
        pyclmm.matmul(A, B)
        with default_precision("medium"):
            assert (pyclmm.matmul(A, B) == 3).all()
            pyclmm.gemm(A, B)
            pyclmm.gemm(A, B, precision="high")
    assert [problem.precision for problem in problems] == ["highest", "medium", "medium", "high"] * 2


def test_a_plan_keeps_what_it_was_made_with():
    with default_precision("high"):
        plan = pyclmm.Matmul(A, B)
    with default_precision("medium"):
        assert (plan(A, B) == 3).all()
    assert plan.precision == "high"


def test_blocks_nest_and_end_after_an_error():
    with default_precision("medium"):
        with pytest.raises(LookupError), default_precision("high"):  # noqa: PT012
            assert chosen(None) == "high"
            raise LookupError
        assert chosen(None) == "medium"
    assert chosen(None) == "highest"


@pytest.mark.parametrize(
    ("block", "plans"),
    [
        (default_precision("medium"), "medium"),
        (pyclmm.default_reproducible(), True),
        (pyclmm.verified("repair"), "repair"),
    ],
    ids=["precision", "reproducible", "verify"],
)
def test_a_block_may_be_entered_again(block, plans, request):
    name, a = request.node.callspec.id, np.ones((2, 2), "f4")

    def seen(number=0):
        with block:
            with block:
                pass
            return getattr(pyclmm.Matmul(a, a), name)

    outside = getattr(pyclmm.Matmul(a, a), name)
    assert in_threads(3, seen) == [plans] * 3
    assert [seen(), seen(), getattr(pyclmm.Matmul(a, a), name)] == [plans, plans, outside]


def test_a_block_that_ends_in_another_thread_is_refused():
    def work(_):
        with pytest.raises(pyclmm.ArgumentError, match="default_precision ends in another thread"):
            block.__exit__(None, None, None)
        return chosen(None)

    block = default_precision("medium")
    with block:
        assert in_threads(1, work) == ["highest"]
        assert chosen(None) == "medium"
    assert chosen(None) == "highest"


def test_blocks_that_have_ended_are_not_kept_by_later_contexts():
    """As those of a task that makes the next one within a block, and so on."""
    block = default_precision("medium")

    def held():
        gc.collect()
        return sum(isinstance(each, Context) for each in gc.get_objects())

    def step():
        with block:
            return copy_context()

    at, before = copy_context(), held()
    for _ in range(50):
        at = at.run(step)
    assert held() < before + 10


def test_default_precision_decorates_functions():
    @default_precision("medium")
    def word():
        return chosen(None)

    assert (word(), word(), chosen(None)) == ("medium", "medium", "highest")


async def _later():
    pass


def _one_by_one():
    yield


class _Later:
    async def __call__(self):
        pass


@pytest.mark.parametrize(
    "of_later", [_later, _one_by_one, staticmethod(_later), partial(_later), _Later(), _Later().__call__]
)
@pytest.mark.parametrize(
    "begin",
    [partial(default_precision, "medium"), pyclmm.default_reproducible, pyclmm.verified, pyclmm.installed],
)
def test_a_function_whose_body_runs_after_its_call_is_not_decorated(begin, of_later):
    with pytest.raises(pyclmm.DTypeError, match=r"is a generator or coroutine .*write the `with` block"):
        begin()(of_later)
    assert begin()(chosen)(None) == ("medium" if isinstance(begin, partial) else "highest")


def test_other_threads_do_not_see_the_default():
    inside = threading.Barrier(2)

    def work(number):
        if number == 2:
            return chosen(None)
        with default_precision(("high", "medium")[number]):
            inside.wait()  # both threads are in their blocks
            seen = chosen(None)
            inside.wait()
        return seen

    with default_precision("high"):
        assert in_threads(3, work) == ["high", "medium", "highest"]


def test_each_task_has_its_own_default():
    async def inner(word):
        assert chosen(None) == "medium", "as where the task was created"
        with default_precision(word):
            await asyncio.sleep(0)
            return chosen(None)

    async def outer():
        with default_precision("medium"):
            got = await asyncio.gather(inner("high"), inner("highest"))
            return [*got, chosen(None)]

    assert asyncio.run(outer()) == ["high", "highest", "medium"]


@pytest.mark.parametrize("dtype", ["float64", "int32", "float16", "complex128"])
def test_other_dtypes_ignore_precision(dtype, rng):
    a, b = (rng.integers(-4, 5, s).astype(dtype) / (3 if dtype[0] in "fc" else 1) for s in ((9, 7), (7, 5)))
    a, b = a.astype(dtype), b.astype(dtype)
    want = pyclmm.matmul(a, b)
    with default_precision("medium"):
        assert np.array_equal(pyclmm.matmul(a, b), want)


def test_an_unknown_precision_is_refused_before_the_block_begins():
    with pytest.raises(ArgumentError, match="unknown precision 'hihg': did you mean 'high'"):
        default_precision("hihg")
    with pytest.raises(TypeError, match="precision is 3; pass a string"):
        default_precision(3)
    with pytest.raises(TypeError, match="precision is 3; pass a string"):
        pyclmm.matmul(A, B, precision=3)
    assert chosen(None) == "highest"


def test_the_example_runs_as_a_user_types_it():
    """Without the names of its module."""
    (example,) = doctest.DocTestFinder(recurse=False).find(default_precision, "default_precision", globs={})
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0
