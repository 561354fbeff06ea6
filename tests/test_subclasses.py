"""Subclasses of ndarray: those that hold more than elements are refused, others are read as arrays."""

from collections import UserDict, deque
from collections.abc import Sequence

import numpy as np
import pytest

import pyclmm

OPERANDS = ("a", "b", "c", "bias", "out")


class Quantity(np.ndarray):
    """An array with a unit and its own arithmetic, like those of astropy and unyt."""

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return NotImplemented


class Tagged(np.ndarray):
    """A subclass without its own arithmetic."""


def call(call_of, **changed):
    """A call with every operand, some of them *changed*."""
    shapes = {"a": (3, 4), "b": (4, 5), "c": (3, 5), "bias": (5,), "out": (3, 5)}
    x = {name: np.ones(shape, np.float32) for name, shape in shapes.items()} | changed
    return call_of(x["a"], x["b"], x["c"], bias=x["bias"], out=x["out"], beta=1.0)


REFUSED = {
    "mask": (
        lambda x: np.ma.masked_array(x, mask=x > 0),
        r"is a masked array, .* pass ({0}\.filled\(0\)|out\.data)",
    ),
    "no element masked": (np.ma.masked_array, r"is a masked array"),
    "unit": (lambda x: x.view(Quantity), r"is a Quantity, .* np\.asarray\({0}\)"),
}


@pytest.mark.parametrize("name", OPERANDS)
@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_masks_and_units_are_refused(name, what, warm, own_caches):
    make, message = REFUSED[what]
    if warm:
        call(pyclmm.gemm)
    shapes = {"a": (3, 4), "b": (4, 5), "c": (3, 5), "bias": (5,), "out": (3, 5)}
    with pytest.raises(pyclmm.DTypeError, match=f"{name} " + message.format(name)):
        call(pyclmm.gemm, **{name: make(np.ones(shapes[name], np.float32))})


class Giving:
    """What becomes that array."""

    def __init__(self, x):
        self.x = x

    def __array__(self, dtype=None, copy=None):
        return self.x


class Rows(Sequence):
    """Somebody's own sequence, which makes its rows as they are read."""

    def __init__(self, x):
        self.x, self.reads = x, 0

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        self.reads += 1
        row = self.x[i]
        return [*row] if isinstance(row, list) else row


WITHIN = {
    "somebody's sequence": Rows,
    "somebody's sequence in a list": lambda x: [Rows(x[:1]), Rows(x[1:])] if len(x) == 2 else [Rows(x)],
    "list": list,
    "tuple in a list": lambda x: [tuple(x[:1]), tuple(x[1:])] if len(x) == 2 else [tuple(x)],
    "the last of a list": lambda x: [*np.asarray(x[:-1]).tolist(), x[-1]],
    "deque": deque,
    "__array__": Giving,
    "__array__ in a list": lambda x: [Giving(row) for row in x],
}


@pytest.mark.parametrize("within", WITHIN.values(), ids=WITHIN)
@pytest.mark.parametrize("of", [np.ma.masked_array, lambda x: x.view(Quantity)], ids=["mask", "unit"])
@pytest.mark.parametrize("name", ["a", "b", "c", "bias", "w"])
def test_masks_and_units_within_other_objects_are_refused(name, of, within):
    shapes = {"a": (3, 4), "b": (4, 5), "c": (3, 5), "bias": (1, 5), "w": (4, 64)}
    x = within(of(np.ones(shapes[name], np.float32)))
    with pytest.raises(pyclmm.DTypeError, match=rf"^{name} is a \w+( with| that becomes) a .* ignored; pass"):
        pyclmm.quantize(x) if name == "w" else call(pyclmm.gemm, **{name: x})


def test_what_is_read_to_be_multiplied_is_read_once():
    class Read(Giving):
        reads = 0

        def __array__(self, dtype=None, copy=None):
            self.reads += 1
            return self.x

    x = np.arange(6.0).reshape(2, 3)
    rows, held, variables = Rows(x.tolist()), Rows(x.tolist()), [Read(row) for row in x]

    def reads():
        return rows.reads + held.reads + sum(one.reads for one in variables)

    for each in (rows, [held, held], variables, [tuple(variables)], [variables[0], x[1].tolist()]):
        before = reads()
        want = np.asarray(each)
        of_numpy = reads() - before
        assert np.array_equal(pyclmm.matmul(each, np.eye(3)), want)
        assert before + of_numpy < reads() <= before + 2 * of_numpy


@pytest.mark.parametrize(
    "entries",
    [
        [1.0, "2"], [[1.0, 2.0], [3.0]], [[1.0], 2.0], [{1: 2}, {}], [object()], UserDict({0: 1.0, 1: 2.0}),
        [UserDict({0: 1.0, 1: 2.0})] * 2,
    ],
)  # fmt: skip
def test_lists_of_other_things_than_numbers_are_refused_as_by_numpy(entries):
    with pytest.raises((pyclmm.DTypeError, pyclmm.ShapeError), match=r"^a (is a (list|UserDict)|has dtype)"):
        pyclmm.matmul(entries, np.eye(2))


@pytest.mark.parametrize("w", [UserDict({1.5: 0}), [UserDict({1.5: 0})]])
def test_weights_are_not_the_keys_of_a_mapping(w):
    with pytest.raises(pyclmm.DTypeError, match=r"is a UserDict; pass its values"):
        pyclmm.quantize(w)


@pytest.mark.parametrize(
    "numbers",
    [[1, True, 2.5, 1j], [np.float32(3e38), np.float32(3e38)], [1.0, np.float32(3e38), np.float32(3e38)]],
)
def test_numbers_of_any_type_in_a_list_give_no_warning(numbers, recwarn):
    assert np.array_equal(pyclmm.matmul([numbers], np.eye(len(numbers))), [np.asarray(numbers)])
    assert not recwarn.list


def test_a_masked_number_in_a_list_is_refused():
    with pytest.raises(pyclmm.DTypeError, match="a is a list with a masked array"):
        pyclmm.matmul([[1.0, np.ma.masked], [1.0, 1.0]], np.eye(2))


@pytest.mark.parametrize("function", [pyclmm.matmul, lambda x, b: pyclmm.matmul([x], b)])
def test_a_list_that_holds_itself_is_refused(function):
    x = []
    x.append(x)
    with pytest.raises(pyclmm.ShapeError, match=r"a is a list: .*pass rows of one length"):
        function(x, np.eye(2))


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_a_masked_array_is_refused_by_matmul(warm, own_caches):
    a = np.ones((3, 3), np.float32)
    if warm:
        pyclmm.matmul(a, a)
    for operands in ((np.ma.masked_array(a), a), (a, np.ma.masked_array(a))):
        with pytest.raises(TypeError, match="masked array"):
            pyclmm.matmul(*operands)
    with pytest.raises(TypeError, match=r"out is a masked array, .*; pass out\.data$"):
        pyclmm.matmul(a, a, out=np.ma.masked_array(a.copy()))


def test_a_plan_refuses_a_masked_array():
    a = np.ones((3, 3), np.float32)
    planned = pyclmm.Matmul(a, a)
    with pytest.raises(TypeError, match="b is a masked array"):
        planned(a, np.ma.masked_array(a))


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("kind", [np.matrix, Tagged], ids=lambda kind: kind.__name__)
def test_other_subclasses_give_plain_arrays(kind, warm, own_caches, rng):
    plain = rng.integers(-4, 5, (3, 3)).astype(np.float32)
    x = plain.view(kind)
    if warm:
        pyclmm.matmul(plain, plain)
    got = pyclmm.matmul(x, x)
    assert type(got) is np.ndarray
    assert np.array_equal(got, plain @ plain)


@pytest.mark.parametrize("kind", [np.matrix, Tagged], ids=lambda kind: kind.__name__)
def test_out_of_a_subclass_is_written_and_returned(kind, rng):
    plain = rng.integers(-4, 5, (3, 3)).astype(np.float32)
    out = np.zeros((3, 3), np.float32).view(kind)
    assert pyclmm.matmul(plain, plain, out=out) is out
    assert np.array_equal(out, plain @ plain)
    again = np.zeros((3, 3), np.float32).view(kind)
    planned = pyclmm.Matmul(plain, plain, out=again)
    assert planned(plain, plain, out=again) is again
    assert np.array_equal(again, plain @ plain)


def test_a_memory_mapped_file_is_an_operand_and_out(tmp_path, rng):
    plain = rng.integers(-4, 5, (3, 3)).astype(np.float32)
    file = np.memmap(tmp_path / "x", np.float32, "w+", shape=(3, 3))
    file[:] = plain
    got = pyclmm.matmul(file, plain)
    assert type(got) is np.ndarray
    assert np.array_equal(got, plain @ plain)
    assert pyclmm.matmul(plain, plain, out=file) is file
    assert np.array_equal(file, plain @ plain)
