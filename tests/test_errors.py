"""Errors: type and text of each, and a call that raises changes nothing."""

import ast
import pickle
import traceback
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm import Matmul, TileConfig, errors, gemm, matmul
from pyclmm.execution import options
from pyclmm.opencl import devices
from pyclmm.opencl.queues import default_queue
from tests.support.contexts import new_queue
from tests.support.plans import kept_plans


def ones(*shape, dtype="f4"):
    return np.ones(shape, dtype)


def read_only(*shape):
    x = ones(*shape)
    x.flags.writeable = False
    return x


A, B = ones(3, 4), ones(4, 5)

# Wrong calls by their error: (call, parts of the message: the argument, what was passed, what would do)
SHAPES = {
    "multi_dot": (
        lambda: pyclmm.linalg.multi_dot([A, B, A]),
        "shapes (4, 5) of arrays[1] and (3, 4) of arrays[2] not aligned",
        "5 and 3; pass axes of equal lengths",
    ),
    "multi_dot of two": (
        lambda: pyclmm.linalg.multi_dot([A, A]),
        "shapes (3, 4) of arrays[0] and (3, 4) of arrays[1] not aligned", "pass axes of equal lengths",
    ),
    "0-D a": (lambda: matmul(np.float32(2), B), "a is 0-dim", "use *"),
    "0-D b": (lambda: matmul(A, np.array(2.0)), "b is 0-dim", "use *"),
    "K differs": (
        lambda: matmul(A, ones(5, 4)), "a of shape (3, 4)", "b of shape (5, 4)", "K is 4 in a and 5 in b",
    ),
    "K of op(a) differs": (lambda: gemm(A, B, trans_a="T"), "K is 3 in a"),
    "stacks": (lambda: matmul(ones(2, 3, 4), ones(3, 4, 5)), "(2,)", "(3,)", "do not broadcast", "(2, 3, 4)"),
    "ragged": (lambda: matmul([[1.0], []], B), "a is a list", "rows of one length"),
    "out of wrong shape": (lambda: matmul(A, B, out=ones(3, 4)), "out has shape (3, 4)", "(3, 5)"),
    "axis beyond C's integers": (
        lambda: matmul(A, B, axes=[(0, 10**30), (0, 1), (0, 1)]), "axes is [(0, 1000", "(-2, -1)",
    ),
    "c of wrong shape": (lambda: gemm(A, B, ones(5, 3), beta=1), "c has shape (5, 3)", "(3, 5)"),
    "c of wrong shape with beta 0": (lambda: gemm(A, B, ones(5, 3), beta=0), "c has shape"),
    "bias of wrong shape": (
        lambda: gemm(A, B, bias=ones(3)), "bias has shape (3,)", "3 x 5", "(5,)", "(3, 1)",
    ),
}  # fmt: skip
TYPES = {
    "object": (lambda: matmul(A.astype(object), B), "a has dtype object", "float32"),
    "longdouble": (lambda: matmul(A, B.astype(np.longdouble)), "b has dtype float", "OpenCL", "float64"),
    "string": (lambda: matmul(np.array([["x"]]), B), "a has dtype <U1", "int8"),
    "datetime": (lambda: matmul(ones(1, 1, dtype="M8[s]"), B), "a has", "int8"),
    "record": (lambda: matmul(np.zeros((3, 4), [("x", "f4")]), B), "a has dtype [('x'", "float32"),
    "None": (lambda: matmul(A, None), "b is None", "pass a NumPy array"),
    "c is a string": (lambda: gemm(A, B, "c"), "c is a str", "np.asarray(c)"),
    "bias is a set": (lambda: gemm(A, B, bias={1}), "bias is a set"),
    "dtype object": (lambda: matmul(A, B, dtype=object), "dtype is object"),
    "dtype by the cast rule": (lambda: matmul(A, B, dtype=np.int32), "a has dtype float32", "same_kind"),
    "out of wrong dtype": (lambda: matmul(A, B, out=ones(3, 5, dtype="i4")), "float32", "int32", "same_kind"),
    # there is no memory to write to
    "out is a scalar": (lambda: matmul(A[0], B[:, 0], out=np.float32(7)), "out is a float32", "NumPy array"),
    "out is a list": (lambda: matmul(A, B, out=[]), "out is a list"),
    "out drops imaginary parts": (
        lambda: matmul(A.astype("c8"), B, out=ones(3, 5).astype("bfloat16")), "complex64", "pass", "out",
    ),
    "kernel is no name": (lambda: matmul(A, B, kernel=7), "kernel is 7", "name"),
    "kernel is a list": (lambda: matmul(A, B, kernel=["naive"]), "kernel is ['naive']"),
    "no configuration": (lambda: matmul(A, B, kernel=("naive", 3)), "kernel is ('naive', 3)", "TileConfig"),
    "trans of a wrong kind": (lambda: gemm(A, B, trans_b=1), "trans_b is 1", "string"),
    "activation of integers": (
        lambda: gemm(A.astype("i4"), B.astype("i4"), activation="relu"),
        "activation 'relu'", "real float", "int32",
    ),
    "activation of complex": (
        lambda: gemm(A.astype("c8"), B, activation="tanh"), "activation 'tanh'", "complex64",
    ),
    "activation of a wrong kind": (lambda: gemm(A, B, activation=max), "activation is <built", "'none'"),
    "c of wrong dtype": (
        lambda: gemm(A, B, ones(3, 5, dtype="c8"), beta=1), "c: cannot cast complex64 to float32",
    ),
    "bias of wrong dtype": (lambda: gemm(A, B, bias=ones(5, dtype="c8")), "bias: cannot cast complex64"),
    "alpha is no number": (lambda: gemm(A, B, alpha="1"), "alpha is a str", "number"),
    "alpha is a fraction": (
        lambda: gemm(A, B, alpha=Fraction(1, 2)), "alpha is a Fraction", "int, float or complex",
    ),
    "beta is a decimal": (
        lambda: gemm(A, B, ones(3, 5), beta=Decimal("0.5")), "beta is a Decimal", "int, float or complex",
    ),
    "alpha is an array": (lambda: gemm(A, B, alpha=ones(2)), "alpha is a ndarray"),
    "alpha is complex": (lambda: gemm(A, B, alpha=1j), "alpha is complex", "float32"),
    "beta is not whole": (
        lambda: gemm(A.astype("i4"), B.astype("i4"), ones(3, 5, dtype="i4"), beta=0.5),
        "beta is 0.5", "int32", "whole",
    ),
    "alpha is not finite": (
        lambda: gemm(A.astype("i4"), B.astype("i4"), alpha=float("inf")), "alpha is inf", "whole",
    ),
    "queue": (lambda: matmul(A, B, queue="gpu"), "queue is a str", "CommandQueue"),
    "device of a wrong kind": (
        lambda: matmul(A, B, device=1.5), "device is a float", "pyclmm.devices()", '"gpu"',
    ),
    "device is a bool": (lambda: gemm(A, B, device=True), "device is a bool"),
    "device is a list": (lambda: Matmul(A, B, device=[0]), "device is a list"),
    "wait_for": (lambda: matmul(A, B, wait_for=[3]), "wait_for is [3]", "Event"),
}  # fmt: skip
ARGUMENTS = {
    "out read-only": (lambda: matmul(A, B, out=read_only(3, 5)), "out is read-only", "writeable"),
    "kernel misspelt": (
        lambda: matmul(A, B, kernel="tilde"),
        "unknown kernel 'tilde'", "did you mean 'tiled'", "'auto'", "'naive'",
    ),
    "configuration too large": (
        lambda: matmul(A, B, kernel=("naive", TileConfig(bm=1 << 14, bn=1 << 14))),
        "'naive' cannot use", f"{1 << 28} work-items a work-group", "the device allows",
    ),
    "configuration of nothing": (
        lambda: matmul(A, B, kernel=("naive", TileConfig(bm=0))), "TileConfig.bm", "1 or more", "not 0",
    ),
    "an option that the kernel lacks": (
        lambda: matmul(A, B, kernel=("register", TileConfig(options={"hold": 1}))),
        "'register' has no option 'hold'", "TileConfig.options", "fetch_b, held",
    ),
    "an option of a kernel without any": (
        lambda: matmul(A, B, kernel=("naive", TileConfig(options={"held": 1}))),
        "'naive' has no option 'held'", "it has none",
    ),
    "tile not square": (
        lambda: matmul(A, B, kernel=("tiled", TileConfig(bm=4, bn=8, bk=4))),
        "'tiled' cannot use", "must be equal",
    ),
    "trans": (lambda: gemm(A, B, trans_a="X"), "unknown trans_a 'X'", "'N', 'T', 'C'"),
    "activation": (
        lambda: gemm(A, B, activation="rellu"), "unknown activation 'rellu'", "did you mean 'relu'",
    ),
    "precision": (lambda: matmul(A, B, precision="hi"), "unknown precision 'hi'", "'high'"),
    "beta without c": (lambda: gemm(A, B, beta=1), "beta is 1", "pass c"),
    "c without beta": (lambda: gemm(A, B, ones(3, 5)), "c is given without beta", "beta=1.0", "leave c out"),
    "c without beta, planned": (
        lambda: Matmul(A, B, ones(3, 5)), "c is given without beta", "beta=1.0", "leave c out",
    ),
    "alpha beyond float64": (
        lambda: gemm(A, B, alpha=10**400), "alpha is an integer of 1329 bits", "float32", "at most 1.7e308",
    ),
    # Python refuses to write it
    "alpha far beyond float64": (
        lambda: gemm(A, B.astype("f8"), alpha=-(10**5000)), "alpha is an integer of 16610 bits", "float64",
    ),
    "beta beyond float64": (
        lambda: gemm(A.astype("c8"), B, ones(3, 5), alpha=1j, beta=10**400),
        "beta is an integer of 1329 bits", "complex64",
    ),
    "beta beyond float64 without c": (
        lambda: gemm(A, B, beta=10**5000), "beta is an integer of 16610 bits", "pass c",
    ),
    "alpha beyond float64, planned": (
        lambda: Matmul(A, B, alpha=10**400), "alpha is an integer of 1329 bits",
    ),
    "alpha beyond float64, for a plan": (
        lambda: Matmul(A, B)(A, B, alpha=10**400), "alpha is an integer of 1329 bits",
    ),
    "queue and device": (
        lambda: matmul(A, B, queue=pyclmm.default_queue(), device="cpu"),
        "queue and device are both given", "pass one",
    ),
    "device of no such number": (lambda: matmul(A, B, device=99), "device is 99", "numbered from 0", "0:0 "),
    "options of a configuration": (
        lambda: TileConfig(options=((3, 4),)),
        "TileConfig.options is ((3, 4),)", "mapping of names to integers",
    ),
    "options that are an array": (lambda: TileConfig(options=np.arange(3)), "TileConfig.options is array"),
    "TileConfig": (lambda: TileConfig(bm=-1), "TileConfig.bm", "-1", "integer"),
    "device misspelt": (lambda: devices.find_device("nosuch"), "unknown device 'nosuch'", "0:0", "pu'"),
}  # fmt: skip
UNSUPPORTED = {
    "too large for one group": (
        lambda: matmul(ones(500, 2), ones(2, 500), kernel="single_group"),
        "single_group", "500 x 500", "250000 work-items", "limit is",
    )
}  # fmt: skip
BAD_CALLS = [
    pytest.param(kind, call, texts, id=name)
    for kind, cases in (
        (errors.ShapeError, SHAPES),
        (errors.DTypeError, TYPES),
        (errors.ArgumentError, ARGUMENTS),
        (errors.UnsupportedError, UNSUPPORTED),
    )
    for name, (call, *texts) in cases.items()
]


@pytest.mark.parametrize(("kind", "call", "texts"), BAD_CALLS)
def test_bad_input_gets_a_clear_error(kind, call, texts):
    before = len(kept_plans())
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert type(caught.value) is kind
    for text in texts:
        assert text in message
    assert ".;" not in message, "two sentences in one"
    assert len(kept_plans()) == before, "a plan was kept of a call that failed"
    assert (matmul(A, B) == 4).all(), "the next call works"


def test_every_error_is_pyclmms_own_and_a_standard_one():
    pairs = {
        errors.ArgumentError: ValueError, errors.ShapeError: ValueError, errors.DTypeError: TypeError,
        errors.UnsupportedError: RuntimeError, errors.BuildError: RuntimeError,
        errors.DeviceMemoryError: MemoryError, errors.NoDeviceError: RuntimeError,
        errors.StorageError: OSError, errors.ThreadError: RuntimeError,
        errors.CheckpointError: errors.ArgumentError,
    }  # fmt: skip
    for own, standard in pairs.items():
        assert issubclass(own, errors.PyclmmError)
        assert issubclass(own, standard)
        assert getattr(pyclmm, own.__name__) is own
        assert own.__name__ in errors.__doc__, "the tree in the docstring"


def test_nothing_is_written_by_a_call_that_fails():
    a, b, out = ones(3, 4), ones(5, 4), np.full((3, 4), 7, "f4")
    with pytest.raises(errors.ShapeError):
        matmul(a, b, out=out)
    with pytest.raises(errors.UnsupportedError):
        matmul(ones(500, 2), ones(2, 500), kernel="single_group", out=np.full((500, 500), 7, "f4"))
    assert (out == 7).all()
    assert (a == 1).all()
    assert (b == 1).all()


# ---- Arrays ----------------------------------------------------------------------------------


def test_one_numpy_array_and_one_array(queue):
    words = r"a is a numpy\.ndarray, b is a pyopencl\.array\.Array: pass all"
    with pytest.raises(errors.DTypeError, match=words):
        matmul(A, cla.to_device(queue, B))


@pytest.mark.parametrize("which", ["b", "out"])
def test_arrays_of_two_contexts(which, queue):
    other = new_queue(queue.device)
    homes = {"a": queue, "b": queue, "out": queue} | {which: other}
    a, b = cla.to_device(homes["a"], A), cla.to_device(homes["b"], B)
    out = cla.zeros(homes["out"], (3, 5), np.float32)
    with pytest.raises(errors.ArgumentError, match=f"{which} is in another OpenCL context"):
        matmul(a, b, out=out)
    assert (out.get() == 0).all()


def test_arrays_in_the_other_order_of_bytes(queue):
    """Kernels would read other numbers, and PyOpenCL sends such arrays as they are."""
    x = cla.to_device(queue, ones(3, 3))
    swapped = cla.to_device(queue, ones(3, 3).astype(np.dtype("f4").newbyteorder()))
    sizes = cla.to_device(queue, np.array([3], np.dtype("i4").newbyteorder()))
    for name, call in {
        "a": lambda: matmul(swapped, x),
        "c": lambda: gemm(x, x, swapped, beta=1),
        "out": lambda: matmul(x, x, out=swapped),
        r"pairs\[0\]: b": lambda: pyclmm.matmul_many([(x, swapped)]),
        "group_sizes": lambda: pyclmm.ragged_matmul(x, x[None], sizes),
    }.items():
        with pytest.raises(errors.DTypeError, match=f"^{name} has dtype .*, in the other order of bytes"):
            call()


@pytest.mark.parametrize("on_device", [False, True])
def test_an_event_of_another_context_is_named_and_ends_nothing(queue, on_device):
    x = cla.to_device(queue, ones(3, 3)) if on_device else ones(3, 3)
    how = {"queue": queue, "wait_for": [cl.enqueue_marker(new_queue(queue.device))]}
    many = pyclmm.ManyMatmul([(x, x)], queue=queue)
    calls = [
        lambda: matmul(x, x, **how),
        lambda: many([(x, x)], **how),
        lambda: pyclmm.ragged_matmul(x, x[None], [3], **how),
    ]
    if on_device:
        out = matmul(x, x)
        plan = Matmul(x, x, out=out)
        calls += [calls[0], lambda: plan.enqueue(x, x, out=out, **how)]  # the first follows a call now
    for call in calls:
        with pytest.raises(errors.ArgumentError, match=r"wait_for .* another OpenCL context.*event\.wait"):
            call()
    assert (matmul(A, B, queue=queue) == 4).all()


@pytest.mark.parametrize("name", ["a", "out"])
def test_an_operands_event_of_another_context_is_no_loss_of_the_device(queue, name):
    """It was taken for one: the default context was dropped, and NumPy's next call made another."""
    own = default_queue().context
    elsewhere = new_queue(queue.device)
    others = [cla.to_device(queue, ones(3, 3)) for _ in range(40)]
    for product in (
        lambda a, out: matmul(a, a, out=out),
        lambda a, out: pyclmm.matmul_many([(a, a), (a, a)], out=[out, None]),
        lambda a, out: pyclmm.matmul_many([(a, x) for x in others], out=[out] + [None] * 39),  # copies
    ):
        a, out = (cla.to_device(queue, ones(3, 3)) for _ in range(2))
        {"a": a, "out": out}[name].add_event(cl.enqueue_marker(elsewhere))
        with pytest.raises(errors.ArgumentError, match=r"the events of .* another OpenCL context"):
            product(a, out)
    assert default_queue().context == own
    assert (matmul(A, B, queue=queue) == 4).all()


def test_an_event_that_failed_is_named_and_is_no_loss_of_the_device(queue):
    """It was taken for one: the plans and the queues of a context that works were dropped."""
    failed = cl.UserEvent(queue.context)
    failed.set_status(cl.status_code.OUT_OF_RESOURCES)
    done, x = cl.UserEvent(queue.context), ones(3, 3)
    done.set_status(cl.command_execution_status.COMPLETE)
    how = {"queue": queue, "wait_for": [done, failed]}
    there = {"queue": queue, "mixed": "copy"}
    for call in (
        lambda: matmul(x, x, **how),
        lambda: pyclmm.matmul_many([(x, x)], **how),
        lambda: pyclmm.ragged_matmul(x, x[None], [3], **how),
        lambda: pyclmm.linalg.einsum("ij->i", x, **how),
        lambda: matmul(x, cla.to_device(queue, x), **how | there),
    ):
        with pytest.raises(errors.ArgumentError, match=r"wait_for\[1\] ended with an error"):
            call()
    with pytest.raises(errors.ArgumentError, match=r"wait_for\[1\] ended with an error"):
        matmul(x, x, memory_limit="1 MB", wait_for=[done, failed])
    assert (matmul(A, B, queue=queue) == 4).all()


@pytest.mark.parametrize("name", ["a", "out", "wait_for"])
def test_arrays_whose_event_failed_are_refused(queue, name):
    """PoCL waited for it forever, and with it all later commands of an in-order queue."""
    failed = cl.UserEvent(queue.context)
    failed.set_status(cl.status_code.OUT_OF_RESOURCES)
    a, out, other, last = (cla.to_device(queue, ones(3, 3)) for _ in range(4))
    plan = pyclmm.Matmul(a, a, out=out)
    bound = plan.bind(a, a, out=out)
    how, what, cure = {}, "an event of an operand, or of out,", "take it out of the Array's events, .*"
    if name == "wait_for":
        how, what, cure = {"wait_for": [failed]}, r"wait_for\[0\]", ""
    says = rf"{what} ended with an error \(OUT_OF_RESOURCES\), .*; {cure}repeat that command"
    for call in (
        lambda **how: matmul(a, a, out=out, **how),
        lambda **how: plan(a, a, out=out, **how),
        lambda **how: plan.enqueue(a, a, out=out, **how),
        lambda **how: plan.enqueue(a, a, out=out, **how) if how else bound(),
        lambda **how: pyclmm.matmul_many([(a, a)], out=[out], **how),
        lambda **how: pyclmm.matmul_many([(a, other), (other, other)], out=[out, last], **how),  # copied
        lambda **how: pyclmm.linalg.einsum("ij,jk", a, a, out=out, **how),
    ):
        call()
        if name != "wait_for":
            {"a": a, "out": out}[name].add_event(failed)
        with pytest.raises(errors.ArgumentError, match=says):
            call(**how)
        for x in (a, out):
            x.events[:] = [event for event in x.events if event is not failed]
    assert (out.get() == 3).all()


def test_arrays_without_a_queue(queue):
    a, b = (cla.to_device(queue, x).with_queue(None) for x in (A, B))
    with pytest.raises(errors.ArgumentError, match="none of the Arrays has a queue; pass queue="):
        matmul(a, b)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ({"offset": 2}, r"a begins 2 bytes into its buffer.*copy it first"),
        ({"strides": (18, 4)}, r"a has strides \(18, 4\).*copy it first"),
    ],
    ids=["begins", "strides"],
)
def test_an_array_at_half_an_element(queue, place, words):
    memory = cla.zeros(queue, 100, np.float32)
    a = cla.Array(queue, (3, 4), np.float32, data=memory.base_data, **place)
    with pytest.raises(errors.UnsupportedError, match=words):
        matmul(a, cla.to_device(queue, B))


def test_an_unknown_name_far_from_all_lists_them():
    error = errors.unknown_name("thing", "zzz", ["one", "two"])
    assert str(error) == "unknown thing 'zzz': valid are 'one', 'two'"


@pytest.mark.parametrize("alpha", [1e300, 10**300])
@pytest.mark.parametrize("dtype", ["f4", "c8"])
def test_alpha_beyond_float32_is_infinity(dtype, alpha):
    assert (gemm(A.astype(dtype), B, alpha=alpha).real == np.inf).all()
    assert options.Options().kernel == "auto"


X, WRONG = ones(3, 4), ones(5, 4)
PUBLIC = {
    "matmul": lambda: matmul(X, WRONG),
    "matmul in tiles": lambda: matmul(X, WRONG, memory_limit="1 MiB"),
    "gemm": lambda: gemm(X, WRONG),
    "einsum": lambda: pyclmm.linalg.einsum("ij,jk", X, WRONG),
    "dot": lambda: pyclmm.linalg.dot(X, WRONG),
    "Matmul": lambda: Matmul(X, WRONG),
    "StreamedMatmul": lambda: pyclmm.StreamedMatmul(X, WRONG),
}


@pytest.mark.parametrize("value", ["", "off"])
@pytest.mark.parametrize("name", PUBLIC)
def test_a_traceback_ends_at_the_function_that_was_called(name, value, monkeypatch):
    monkeypatch.setenv("PYCLMM_SHORT_TRACEBACKS", value)
    with pytest.raises(errors.ShapeError) as caught:
        PUBLIC[name]()
    frames = traceback.extract_tb(caught.value.__traceback__)[2:]  # behind this function and the lambda
    if value == "off":
        assert frames[-1].line.startswith("raise ShapeError(")
    else:
        assert len(frames) == 1
        assert len("".join(traceback.format_exception(caught.value)).splitlines()) <= 10


def test_every_warning_names_the_line_that_called_pyclmm():
    """By the one function that looks for it."""
    folder = Path(pyclmm.__file__).parent
    calls = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("warnings.warn")
    }
    assert calls == {"errors.py"}


def test_a_build_that_the_options_fail_says_which():
    log = "clBuildProgram failed: INVALID_BUILD_OPTIONS\n\nInvalid build option: --nosuch\n\n"
    for told, found in (
        (log, "Invalid build option: --nosuch"),
        (f"{log}a.cl: error: b\n", "a.cl: error: b"),
    ):
        assert errors.BuildError("toy", "-DX", told).complaint == f"does not build: {found}"
    assert errors.BuildError("toy", "-DX", "").complaint == "does not build: see the log"


RANGES = dict.fromkeys(("rows", "columns", "stack"), (0, 1))
FOUND_WRONG = errors.VerificationError("text", device="d", kernel="k", seed=3, error=2.0, limit=1.0, **RANGES)


@pytest.mark.parametrize("error", [errors.BuildError("device", "-w", "log"), FOUND_WRONG])
def test_errors_of_other_processes_have_their_attributes(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize("name", sorted({"WorkspaceError", *pyclmm.__all__} & set(vars(errors))))
def test_errors_are_made_by_their_own_new(name):
    """tblib, by which Dask brings errors from its processes, makes them by ``__new__``."""
    error = getattr(errors, name)
    assert error.__new__(error, "text").args == ("text",)
