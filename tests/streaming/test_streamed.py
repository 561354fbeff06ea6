"""Streamed products: NumPy's results on both kinds of lanes, several devices, bad input, ends of runs."""

import re
import threading
from dataclasses import dataclass

import numpy as np
import pytest

import pyclmm
from pyclmm import (
    ArgumentError,
    DeviceMemoryError,
    DTypeError,
    ShapeError,
    StorageError,
    StreamedMatmul,
    UnsupportedError,
    plan_cache,
)
from pyclmm.streaming import lanes, machines
from pyclmm.streaming.tiles import Blocking
from tests.support.faults import noted
from tests.support.optional import optional
from tests.support.selection import slow
from tests.support.streams import Stored, integers, normal
from tests.support.threads import in_threads

h5py = optional("h5py")
ml_dtypes = optional("ml_dtypes")
zarr = optional("zarr")


def threads():
    """Threads that run tiles."""
    return [t for t in threading.enumerate() if re.match("pyclmm-(read|write|loop|multiply)", t.name)]


# ---- results

SHAPES = [
    ((90, 70), (70, 50)), ((1, 70), (70, 50)), ((90, 1), (1, 50)), ((70,), (70, 50)), ((90, 70), (70,)),
    ((70,), (70,)), ((3, 90, 70), (70, 50)), ((2, 1, 90, 70), (3, 70, 50)), ((3, 90, 70), (70,)),
    ((0, 70), (70, 50)), ((90, 0), (0, 50)), ((2, 0, 90, 70), (70, 50)),
]  # fmt: skip


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.usefixtures("lane", "small_tiles")
def test_products_of_all_shapes_are_numpys(shapes):
    a, b = (integers(*shape) for shape in shapes)
    got, expected = pyclmm.matmul(a, b, memory_limit="1 GiB"), np.matmul(a, b)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert np.array_equal(got, expected)


DTYPES = [
    *(np.float32, np.complex128, ml_dtypes.bfloat16),
    *slow(np.bool_, np.int8, np.uint16, np.int32, np.int64, np.float16, np.float64, np.complex64),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda x: np.dtype(x).name)
@pytest.mark.usefixtures("lane", "small_tiles")
def test_products_of_all_dtypes_are_those_in_core(dtype):
    a, b = integers(90, 70, dtype=dtype), integers(70, 50, dtype=dtype)
    assert np.array_equal(pyclmm.matmul(a, b, memory_limit=1 << 30), pyclmm.matmul(a, b))


@pytest.mark.usefixtures("lane", "small_tiles")
def test_float16_is_summed_in_float32_over_all_chunks(blocks):
    blocks(lambda product: Blocking(1, 16, 16, 50, 1, 2, 2, 1))
    a, b = np.full((16, 4000), 1, np.float16), np.full((4000, 16), 1, np.float16)
    a[:, 1:] = 2.0**-11  # each would be lost beside a sum of 1 or more in float16
    got = pyclmm.matmul(a, b, memory_limit=1 << 30)
    assert np.array_equal(got, np.full((16, 16), np.float16(1 + 3999 * 2.0**-11)))


@pytest.mark.parametrize("casting", ["no", "safe"])
@pytest.mark.usefixtures("lane", "small_tiles")
def test_a_rule_for_casts_is_not_that_of_sums_in_a_wider_type(casting):
    a, b = integers(90, 70, dtype=np.float16), integers(70, 50, dtype=np.float16)
    assert np.array_equal(pyclmm.matmul(a, b, casting=casting, memory_limit=1 << 30), a @ b)


@pytest.mark.parametrize("name", ["a", "b", "c", "bias"])
@pytest.mark.parametrize("stored", [np.copy, Stored, np.asfortranarray], ids=lambda x: x.__name__)
@pytest.mark.usefixtures("lane", "small_tiles")
def test_operands_become_the_dtype_of_sums_in_a_wider_type(name, stored, recwarn):
    """1e6 is infinite in float16."""
    shapes = {"a": (90, 70), "b": (70, 50), "c": (90, 50), "bias": (90, 1)}
    given = {each: integers(*shape, dtype=np.float16) for each, shape in shapes.items()}
    given[name] = given[name].astype(np.float64)
    given[name][0, 0] = 1e6
    keywords = {"beta": 1.0, "dtype": np.float16}
    expected = pyclmm.gemm(*list(given.values())[:3], bias=given["bias"], **keywords)
    assert np.isinf(expected).any()
    given[name] = stored(given[name])
    got = pyclmm.gemm(*list(given.values())[:3], bias=given["bias"], memory_limit=1 << 30, **keywords)
    assert np.array_equal(got, expected, equal_nan=True)
    assert {(str(each.message), each.filename) for each in recwarn} == {
        ("overflow encountered in cast", __file__)
    }


@pytest.mark.parametrize("trans", ["NT", "CC", *slow("NN", "TN", "TT")])
@pytest.mark.usefixtures("lane", "small_tiles")
def test_gemm_with_everything(trans):
    def op(x, t):
        return x if t == "N" else x.conj().T if t == "C" else x.T

    dtype = np.complex64 if trans == "CC" else np.float32
    a = integers(*((90, 70) if trans[0] == "N" else (70, 90)), dtype=dtype)
    b = integers(*((70, 50) if trans[1] == "N" else (50, 70)), dtype=dtype)
    c, bias = integers(90, 50, dtype=dtype), integers(90, 1, dtype=dtype)
    keywords = {} if trans == "CC" else {"activation": "relu"}
    how = keywords | {"alpha": 2.0, "beta": -3.0, "trans_a": trans[0], "trans_b": trans[1]}
    got = pyclmm.gemm(a, b, c, bias=bias, memory_limit="1 GB", **how)
    expected = 2 * (op(a, trans[0]) @ op(b, trans[1])) - 3 * c + bias
    assert np.array_equal(got, np.maximum(expected, 0) if keywords else expected)


@pytest.mark.parametrize(("kernel", "n"), [("thin", 5), ("matvec", 1)])
@pytest.mark.usefixtures("lane")
def test_a_kernel_of_thin_products_multiplies_tiles_of_them(kernel, n):
    a, b = integers(90, 70), integers(70, n)
    assert np.array_equal(pyclmm.matmul(a, b, kernel=kernel, memory_limit=10_000), a @ b)
    with pytest.raises(UnsupportedError, match=f"{kernel}' cannot compute 90 x 90 x 70"):
        pyclmm.matmul(a, a.T, kernel=kernel, memory_limit=10_000)


@pytest.mark.parametrize(
    ("a", "b", "bias"),
    [
        *(((90, 70), (70, 50), bias) for bias in ((50,), (1, 50), (90, 1), (1,), (1, 1), ())),
        *(((3, 90, 70), (70,), bias) for bias in ((90,), (1,), ())),  # a value for each row
    ],
    ids=str,
)
@pytest.mark.usefixtures("lane", "small_tiles")
def test_bias_of_each_shape(a, b, bias):
    a, b, v = integers(*a), integers(*b), np.asarray(integers(*bias))
    assert np.array_equal(pyclmm.gemm(a, b, bias=v, memory_limit=1 << 30), a @ b + v)


@pytest.mark.usefixtures("lane", "small_tiles")
def test_operands_in_the_other_order_of_bytes():
    a, b, c, bias = integers(90, 70), integers(70, 50), integers(90, 50), integers(50)
    other = [x.astype(x.dtype.newbyteorder()) for x in (a, b, c, bias)]
    got = pyclmm.gemm(*other[:3], beta=1.0, bias=other[3], memory_limit=1 << 30)
    assert np.array_equal(got, a @ b + c + bias)


@pytest.mark.skipif(np.__version__ < "2", reason="errstate of NumPy 1 holds for one thread")
@pytest.mark.usefixtures("lane", "small_tiles")
def test_an_overflow_in_a_cast_is_what_the_caller_has_set(recwarn, capfd):
    a, out = np.full((90, 90), 1e30), np.zeros((90, 90), "f4")
    with np.errstate(over="ignore"):
        pyclmm.matmul(a, a, out=out, memory_limit=1 << 30)
    assert np.isinf(out).all()
    assert not recwarn
    pyclmm.matmul(a, a, out=out, memory_limit=1 << 30)
    assert {(str(each.message), each.filename) for each in recwarn} == {
        ("overflow encountered in cast", __file__)
    }
    for how, error in (("raise", FloatingPointError), ("log", NameError), ("call", NameError)):
        with np.errstate(over=how), pytest.raises(error, match="overflow"):
            pyclmm.matmul(a, a, out=out, memory_limit=1 << 30)
    capfd.readouterr()
    with np.errstate(over="print"):
        pyclmm.matmul(a, a, out=out, memory_limit=1 << 30)
        np.float64(1e300).astype("f4")  # NumPy's own line
    ours, its = capfd.readouterr().err.splitlines()
    assert ours == its
    seen = []

    @dataclass  # has no hash
    class Heard:
        def __call__(self, *told):
            seen.append((threading.get_ident(), *told))

        def write(self, text):
            seen.append((threading.get_ident(), text))

    here, said = threading.get_ident(), "overflow encountered in cast"
    for how, told in (("call", (here, "overflow", 2)), ("log", (here, f"Warning: {said}\n"))):
        with np.errstate(over=how, call=Heard()):
            pyclmm.matmul(a, a, out=out, memory_limit=1 << 30)
        assert [seen.pop()] == [told]
        assert not seen
    recwarn.clear()
    with np.errstate(over="warn", call=Heard()):
        pyclmm.matmul(a, a, out=out, memory_limit=1 << 30)
    assert [(str(each.message), each.filename) for each in recwarn] == [(said, __file__)]
    assert not seen


@pytest.mark.parametrize("dims", [(1, 70, 1), (1, 70, 50), (90, 70, 1)])
@pytest.mark.usefixtures("lane", "small_tiles")
def test_alpha_of_zero_reads_neither_a_nor_b(dims):
    m, k, n = dims
    a, b, c = np.full((m, k), np.nan, np.float32), np.full((k, n), np.nan, np.float32), integers(m, n)
    got = pyclmm.gemm(a, b, c, alpha=0.0, beta=2.0, bias=integers(n) * 0 + 1, memory_limit=1 << 30)
    assert np.array_equal(got, 2 * c + 1)


@pytest.mark.parametrize(
    ("stack", "products"), [((), 1), ((5000,), 1), ((3, 40), 3), ((2, 3, 7), 6), ((4, 1), 4)]
)
@pytest.mark.parametrize("turned", [False, True])
def test_stacks_without_k_are_written_in_one_go(stack, products, turned, monkeypatch):
    """A row of the stack at a time, however many matrices it has; C may share its matrices."""
    counted = noted(monkeypatch, plan_cache, "plan_for")
    own = (*stack[:-1], 1) if turned and stack else stack
    c = integers(*own, 2, 3).swapaxes(-1, -2) if turned else integers(*own, 3, 2)
    whole = np.broadcast_to(c, (*stack, 3, 2)) if stack else c
    a, b, bias = np.empty((*stack, 3, 0), np.float32), np.empty((0, 2), np.float32), integers(3, 1)
    got = pyclmm.gemm(a, b, whole, beta=2.0, bias=bias, memory_limit="1 MiB")
    assert np.array_equal(got, 2 * whole + bias)
    assert len(counted) == products


@pytest.mark.usefixtures("lane", "small_tiles")
def test_layouts_and_casts_of_numpy_arrays():
    a, b = integers(70, 90).T, integers(140, 100)[::2, ::-2]
    assert np.array_equal(pyclmm.matmul(a, b, memory_limit=1 << 30), a @ b)
    swapped = a.astype(a.dtype.newbyteorder())
    assert np.array_equal(pyclmm.matmul(swapped, b, memory_limit=1 << 30), a @ b)
    out = np.full((50, 90), 7.0)
    assert pyclmm.matmul(a, b, out=out.T, memory_limit=1 << 30).base is out
    assert np.array_equal(out.T, a @ b)
    counts = np.zeros((90, 50), np.int32)
    with pytest.raises(TypeError, match="same_kind"):
        pyclmm.matmul(a, b, out=counts, memory_limit=1 << 30)
    pyclmm.matmul(a, b, out=counts, casting="unsafe", memory_limit=1 << 30)
    assert np.array_equal(counts, a @ b)


@pytest.mark.usefixtures("lane", "small_tiles")
@pytest.mark.parametrize("dims", [((70,), (70,)), ((90, 70), (70,)), ((70,), (70, 90))])
def test_a_product_with_a_vector_is_cast_by_unsafe(dims, tmp_path):
    """It is computed elsewhere, and copied."""
    a, b = (integers(*shape) for shape in dims)
    for extra in ({"memory_limit": 1 << 30}, {"checkpoint": tmp_path / "tiles"}):
        counts = np.zeros((a @ b).shape, np.int32)
        assert pyclmm.matmul(a, b, out=counts, casting="unsafe", **extra) is counts
        assert np.array_equal(counts, a @ b)


def test_out_may_overlap_an_operand():
    s = integers(90, 90)
    expected = s @ s
    assert pyclmm.matmul(s, s, out=s, memory_limit=1 << 30) is s
    assert np.array_equal(s, expected)
    c = integers(90, 50)
    a, b, before = integers(90, 70), integers(70, 50), c.copy()
    pyclmm.gemm(a, b, c, beta=1.0, out=c, memory_limit=1 << 30)
    assert np.array_equal(c, a @ b + before)


@pytest.mark.usefixtures("lane", "small_tiles")
def test_a_reproducible_product_has_the_bits_of_one_in_core(two_devices):
    a, b = normal(90, 70), normal(70, 50)
    expected = pyclmm.matmul(a, b, reproducible=True)
    for used in (None, two_devices):
        got = pyclmm.matmul(a, b, reproducible=True, memory_limit=1 << 30, devices=used)
        assert got.tobytes() == expected.tobytes()


@pytest.mark.usefixtures("small_tiles")
def test_what_is_beside_out_is_untouched(lane):
    wide = np.full((92, 60), 7, np.float32)
    a, b = integers(90, 70), integers(70, 50)
    pyclmm.matmul(a, b, out=wide[1:-1, 5:55], memory_limit=1 << 30)
    assert np.array_equal(wide[1:-1, 5:55], a @ b)
    wide[1:-1, 5:55] = 7
    assert (wide == 7).all()


# ---- ends


@pytest.mark.usefixtures("lane", "small_tiles")
def test_progress_is_told_after_each_tile():
    seen = []
    pyclmm.matmul(integers(90, 70), integers(70, 50), progress=seen.append)
    assert [each.tiles for each in seen] == [1, 2, 3, 4, 5, 6]
    assert {each.all_tiles for each in seen} == {6}
    assert seen[-1].flops == seen[-1].all_flops == 2 * 90 * 70 * 50
    assert seen[-1].seconds_left == 0
    assert str(seen[-1]).startswith("6 of 6 tiles, ")
    pyclmm.matmul(integers(3, 3), integers(3, 3), progress=seen.append)
    assert str(seen[-1]).startswith("1 of 1 tile, ")


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
@pytest.mark.usefixtures("lane", "small_tiles")
def test_an_error_of_the_callers_function_ends_the_run(error):
    out = np.full((90, 50), 7, np.float32)
    a, b = integers(90, 70), integers(70, 50)

    def progress(done):
        if done.tiles == 2:
            raise error

    with pytest.raises(error):
        pyclmm.matmul(a, b, out=out, progress=progress)
    before = out.copy()
    lanes.release()
    assert np.array_equal(out, before), "nothing is written after the call has ended"
    right = a @ b
    assert ((out == right) | (out == 7)).all()
    assert np.array_equal(pyclmm.matmul(a, b, out=out, memory_limit=1 << 30), right)


@pytest.mark.usefixtures("lane", "small_tiles")
def test_an_operand_that_cannot_be_read_is_named_and_out_keeps_what_is_finished():
    a, b = integers(90, 70), integers(70, 50)
    out = np.full((90, 50), 7, np.float32)
    with pytest.raises(StorageError, match=r"a: rows .* the disk is gone"):
        pyclmm.matmul(Stored(a, 5), b, out=out)
    assert ((out == a @ b) | (out == 7)).all()


@pytest.mark.usefixtures("small_tiles")
def test_files_of_each_kind_are_operands_and_results(tmp_path, lane):
    a, b = integers(90, 70), integers(70, 50)
    np.save(tmp_path / "a.npy", a)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["b"] = b
        file.create_dataset("c", (90, 50), "f4", chunks=(16, 16))
        z = zarr.create_array(str(tmp_path / "c.zarr"), shape=(90, 50), chunks=(32, 20), dtype="f4")
        mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
        for out in (None, file["c"], z, np.lib.format.open_memmap(tmp_path / "c.npy", "w+", "f4", (90, 50))):
            got = pyclmm.matmul(mapped, file["b"], out=out)
            assert out is None or got is out
            assert np.array_equal(got[:], a @ b)
        assert np.array_equal(pyclmm.gemm(mapped, file["b"], file["c"], beta=2.0), 3 * (a @ b))
    assert np.array_equal(np.load(tmp_path / "c.npy"), a @ b)


# ---- bad input


def test_arrays_of_a_device_are_refused():
    import pyopencl.array as cla  # noqa: PLC0415

    x = cla.to_device(pyclmm.default_queue(), normal(5, 5))
    with pytest.raises(DTypeError, match=r"pyopencl Array.*a\.get\(\)"):
        pyclmm.matmul(x, x, memory_limit=1 << 30)


@pytest.mark.parametrize(
    ("keywords", "error", "words"),
    [
        ({"axes": [(-2, -1), (-2, -1), (-2, -1)]}, ArgumentError, "axes is given"),
        ({"mixed": "copy"}, ArgumentError, "mixed is given"),
        ({"progress": 5}, ArgumentError, "progress is 5; pass a function"),
        ({"kernel": "fastest"}, ArgumentError, "unknown kernel"),
        ({"precision": "best"}, ArgumentError, "unknown precision"),
        ({"wait_for": 5}, DTypeError, "wait_for is 5"),
    ],
)
def test_other_arguments_are_checked(keywords, error, words):
    with pytest.raises(error, match=words):
        pyclmm.matmul(normal(5, 5), normal(5, 5), memory_limit=1 << 30, **keywords)


@pytest.mark.parametrize("name", ["a", "b", "c", "bias", "out"])
def test_what_is_no_array_of_numbers_is_refused_by_name(name):
    given = {"a": normal(5, 5), "b": normal(5, 5), "c": None}
    texts = normal(5, 5).astype(np.dtypes.StringDType())
    for value, words in (
        (None, f"{name} is None"),
        (np.zeros((5, 5), object), f"{name} has dtype object"),
        (texts, rf"{name} has dtype StringDType\(\)"),
    ):
        if value is None and name not in ("a", "b"):
            continue
        arrays = {**given, name: value}
        more = {each: arrays.pop(each) for each in ("bias", "out") if each in arrays}
        with pytest.raises(DTypeError, match=words):
            pyclmm.gemm(*arrays.values(), **more, beta=1.0 if name == "c" else 0.0, memory_limit=1 << 30)


def test_out_is_returned_as_it_was_passed():
    a, b, out = integers(5, 6), integers(6, 7), np.empty((5, 7), np.float32).view(np.recarray)
    assert pyclmm.matmul(a, b, out=out, memory_limit=1 << 30) is out
    assert np.array_equal(out, a @ b)


@pytest.mark.parametrize("name", ["c", "out"])
def test_a_dataset_for_the_product_with_a_vector_is_named_with_what_to_pass(name):
    a, b, x = normal(5, 6), normal(6), Stored(normal(5))
    c, out = (x, None) if name == "c" else (None, x)
    with pytest.raises(ArgumentError, match=rf"^{name} is a Stored; in a product with a vector pass a NumPy"):
        pyclmm.gemm(a, b, c, beta=0.0 if c is None else 1.0, out=out)


def test_shapes_are_checked_before_anything_is_read():
    with pytest.raises(ShapeError, match="mismatch"):
        pyclmm.matmul(Stored(normal(5, 6), 0), normal(5, 5))
    with pytest.raises(ShapeError, match="out"):
        pyclmm.matmul(Stored(normal(5, 6), 0), normal(6, 5), out=np.zeros((5, 6), np.float32))
    out = np.zeros((5, 5), np.float32)
    out.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        pyclmm.matmul(normal(5, 6), normal(6, 5), out=out, memory_limit=1 << 30)


def test_a_plan_explains_itself():
    plan = StreamedMatmul(normal(500, 400), normal(400, 300), memory_limit="1 MiB")
    text = str(plan.explain())
    for part in (
        "memory limit", "1 MiB", "tiles", "order", "slots", "decides", "predicted",
        "one chunk of a tile",
    ):  # fmt: skip
        assert part in text
    nothing = StreamedMatmul(normal(5, 0), normal(0, 3), memory_limit="1 MiB").explain()
    assert nothing.tile is None
    assert "nothing is multiplied" in str(nothing)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("verify", [False, True, "repair"])
def test_a_plan_tells_what_it_was_made_with_as_matmul_does(verify, dtype):
    a, asked = np.ones((3, 3), dtype), ("verify", "precision", "reproducible")

    def told(plan):
        return {name: getattr(plan, name) for name in asked}

    for given in ({"verify": verify}, {"precision": "high", "reproducible": True}):
        assert told(StreamedMatmul(a, a, **given)) == told(pyclmm.Matmul(a, a, **given))
    with pyclmm.verified(verify), pyclmm.default_precision("medium"):
        assert told(StreamedMatmul(a, a)) == told(pyclmm.Matmul(a, a))
    assert StreamedMatmul(a[:0], a, verify=verify).verify == verify


def test_a_result_that_the_host_has_no_memory_for_names_the_arrays_and_a_cure():
    x = np.broadcast_to(np.complex128(1), (1 << 22, 1))
    plan = StreamedMatmul(x, x.T, memory_limit="1 GiB")  # the result is more than a process can address
    with pytest.raises(
        DeviceMemoryError,
        match=r"^StreamedMatmul of ndarray \(4194304, 1\) complex128, ndarray \(1, 4194304\) complex128: "
        r"the host has no memory \(Unable to allocate 256. TiB.*\); for NumPy arrays pass out=np\.memmap\(",
    ):
        plan(x, x.T)


@pytest.mark.usefixtures("lane")
def test_runs_of_a_plan_use_one_queue(monkeypatch):
    """With a new one for each run kernels were prepared anew: 8192 cubed took 44 ms on an H200, now 37."""
    made, real = [], lanes.lane_for
    monkeypatch.setattr("pyclmm.streaming.run.lane_for", lambda *given: made.append(real(*given)) or made[-1])
    a, b = normal(50, 60), normal(60, 40)
    plan = StreamedMatmul(a, b, memory_limit="1 GiB")
    plan(a, b)
    plan(a, b)
    assert len({vars(lane)["_queue"] for lane in made}) == 1


def test_a_plan_may_run_again():
    a, b = integers(90, 70), integers(70, 50)
    plan = StreamedMatmul(a, b, memory_limit=1 << 30)
    assert np.array_equal(plan(a, b), a @ b)
    other = integers(90, 70)
    assert np.array_equal(plan(other, b), other @ b)


def test_a_plan_refuses_operands_that_it_was_not_made_for(tmp_path):
    a, b = integers(90, 70), integers(70, 50)
    plan = StreamedMatmul(a, b, memory_limit=1 << 30)
    stored = np.memmap(tmp_path / "a", a.dtype, "w+", shape=a.shape)
    for operands, words in (
        ((a[:80], b), r"a is not .*: it has shape \(80, 70\) .* the plan shape \(90, 70\)"),
        ((a, b.astype("f8")), "b is not .* dtype float64"),
        ((a, b, np.zeros((90, 50), a.dtype)), "c is not .*, the plan none"),
        ((stored, b), "in files or in memory"),
    ):
        with pytest.raises(pyclmm.ArgumentError, match=words):
            plan(*operands)
    with pytest.raises(pyclmm.ArgumentError, match="progress is 5; pass a function"):
        plan(a, b, progress=5)


def test_threads_are_kept_and_released(small_tiles):
    pyclmm.matmul(integers(90, 70), integers(70, 50), memory_limit=1 << 30)
    assert threads()
    pyclmm.release()
    for thread in threads():
        thread.join(60)
    assert not threads()


def test_a_choice_of_tiles_is_kept_and_released(monkeypatch):
    chosen = noted(monkeypatch, machines, "choose")
    for count, before in ((1, pyclmm.release), (1, int), (2, pyclmm.release)):
        before()
        pyclmm.matmul(integers(90, 70), integers(70, 50), memory_limit=1 << 30)
        assert len(chosen) == count


@pytest.mark.usefixtures("lane", "small_tiles")
def test_four_threads_stream_at_once():
    a, b = integers(90, 70), integers(70, 50)
    expected = a @ b

    def work(_):
        for _ in range(3):
            assert np.array_equal(pyclmm.matmul(a, b, memory_limit=1 << 30), expected)

    in_threads(4, work)


@pytest.fixture(params=["hdf5", "zarr"])
def group(request, tmp_path):
    """(a group that gives a new handle whenever one is asked for, what keeps an array in it)"""
    if request.param == "zarr":
        made = zarr.open_group(tmp_path / "all.zarr", mode="w")
        yield made, lambda name, x: made.create_array(name, data=x)
        return
    with h5py.File(tmp_path / "all.h5", "w") as file:
        yield file, lambda name, x: file.create_dataset(name, data=x)


def test_a_dataset_that_is_c_and_out_is_updated(group, tmp_path):
    """Each element of C is read before it is written, whatever handle names it. A second run would add it."""
    a, c = normal(300, 300), normal(300, 300)
    group, keep = group
    keep("c", c)
    with pytest.raises(ArgumentError, match="checkpoint is given, but out overlaps an operand"):
        pyclmm.gemm(a, a, group["c"], beta=2, out=group["c"], checkpoint=tmp_path / "tiles")
    pyclmm.gemm(a, a, group["c"], beta=2, out=group["c"], memory_limit="256 KiB")
    np.testing.assert_allclose(group["c"][...], a @ a + 2 * c, rtol=1e-3, atol=1e-3)
