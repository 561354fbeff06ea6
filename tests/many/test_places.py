"""Lists of NumPy arrays where they lie: what is read and written there, what is copied, and what may move."""

import gc
import re
import sys
import weakref

import numpy as np
import pyopencl as cl
import pytest

import pyclmm
from pyclmm.many import ManyMatmul, host
from pyclmm.many import lists as call_lists
from pyclmm.opencl import array_fields
from pyclmm.opencl.queues import default_queue
from tests.many.drawn import Drawn, check, loop, pairs_of
from tests.support.cases import for_cpus, small_integers
from tests.support.faults import noted
from tests.support.made_up import seen_as
from tests.support.plans import of_list

SIZES = [(3, 4, 5), (6, 7, 2), (17, 18, 3)]


def odd(x):
    """Arrays equal to *x* that kernels cannot read where they lie."""
    raw = np.zeros(x.nbytes + 1, np.uint8)
    misaligned = np.ndarray(x.shape, x.dtype, raw, 1)
    misaligned[...] = x
    step = x.shape[1] * x.itemsize + 2
    rows = np.ndarray(x.shape, x.dtype, np.zeros(step * len(x), np.uint8), 0, (step, x.itemsize))
    rows[...] = x
    gaps = np.zeros((2 * x.shape[0], 3 * x.shape[1]), x.dtype)[::2, ::3]
    gaps[...] = x
    return {
        "misaligned": misaligned,
        "rows": rows,
        "bytes": x.astype(x.dtype.newbyteorder()),
        "gaps": gaps,
        "type": x.astype("i1"),
    }


@pytest.fixture(params=["in place", "packed"])
def way(request, monkeypatch):
    """On a device that reads the host's memory, and on one that does not."""
    if request.param == "packed":
        seen_as(monkeypatch, unified_memory=False)
        pyclmm.release()
    elif not array_fields.reads_host(default_queue().device):
        pytest.skip("this device reads no addresses")
    yield request.param
    pyclmm.release()


@pytest.mark.parametrize("number", range(4))
def test_drawn_lists_are_as_a_loop(rng, way, number):
    drawn = Drawn(rng, 6 + 3 * number)
    for _ in range(2):
        check(pyclmm.matmul_many(drawn.pairs, **drawn.keywords), drawn.want)


def test_plain_arrays_are_not_copied(rng):
    if not array_fields.reads_host(default_queue().device):
        pytest.skip("this device reads no addresses")
    pairs = [(x, np.asfortranarray(y)) for x, y in pairs_of(rng, SIZES)]
    pairs[1] = pairs[1][0][::-1], pairs[1][1]
    outs = [np.zeros(x.shape, "f4") for x in loop(pairs)]
    plan = ManyMatmul(pairs, outs)
    assert plan(pairs, outs)[0] is outs[0]
    assert not of_list(plan)._copied
    assert not of_list(plan).rows
    check(outs, loop(pairs))


def test_what_cannot_be_read_is_copied(rng, way):
    (x, y), *_ = pairs_of(rng, SIZES)
    kinds = odd(x)
    pairs = [(x, y), *[(its, y) for its in kinds.values()], *[(x, its) for its in odd(y).values()]]
    plan = ManyMatmul(pairs)
    check(plan(pairs), [x @ y] * len(pairs))
    if way == "in place":
        count = len(kinds)
        wanted = [*range(1, 1 + count), *range(2 + 3 * count, 2 + 4 * count)]
        assert sorted(of_list(plan)._copied) == wanted


def test_long_lists(rng, way):
    pairs = pairs_of(rng, rng.integers(1, 9, (150, 3)))
    for _ in range(2):
        check(pyclmm.matmul_many(pairs), loop(pairs))


def test_what_several_pairs_have_is_copied_once(rng, way):
    (x, y), *_ = pairs_of(rng, SIZES)
    w = odd(y)["gaps"]
    pairs = [(x, w), (2 * x, w), (3 * x, y)]
    plan = ManyMatmul(pairs)
    check(plan(pairs), loop(pairs))
    given = call_lists.given_of(call_lists.lists_of(pairs, None, None, None))
    places, packed, made = of_list(plan)._placed(given)
    assert places[3] == places[4] != places[5]
    assert len(made) == (1 if way == "in place" else 5)
    assert way == "in place" or packed.nbytes == 3 * 64 + 2 * 128
    others = [(x, w), (2 * x, odd(y + 1)["gaps"]), (3 * x, y)]
    check(plan(others), loop(others))


def test_outs_that_cannot_be_written_are_copied_back(rng, way):
    (x, y), *_ = pairs_of(rng, SIZES)
    outs = [np.zeros((3, 4), "f4"), *odd(np.zeros((3, 4), "f4")).values()][:5]
    outs += [np.zeros((3, 4), "f4")[::-1, ::-1], np.zeros((3, 4), "f8"), np.zeros((3, 4), "f4", order="F")]
    got = pyclmm.matmul_many([(x, y)] * len(outs), outs)
    for out, one in zip(outs, got, strict=True):
        assert one is out
        assert np.array_equal(out, x @ y)


def test_an_out_over_its_own_operand_and_one_that_lies_over_itself(rng, way):
    x, y = (small_integers(rng, (5, 5), "f4") for _ in "xy")
    a, b, c = x.copy(), y.copy(), x.copy()
    want = x @ y
    for _ in range(2):
        a[:], b[:], c[:] = x, y, x
        pyclmm.matmul_many([(a, y), (x, b), (x, y)], [a, b[::-1], c], c=[None, None, c], beta=2.0)
        check([a, b[::-1], c], [want, want, want + 2 * x])
    row = np.zeros(5, "f4")
    over = np.lib.stride_tricks.as_strided(row, (5, 5), (0, 4))
    plan = ManyMatmul([(x, y)], [over])
    assert of_list(plan).rows  # not written where it lies: the order would be that of the work-groups
    plan([(x, y)], [over])
    assert np.array_equal(row, want[-1])


@pytest.mark.filterwarnings("ignore:Setting the:DeprecationWarning")
def test_the_very_same_arrays_with_another_shape_strides_or_memory(rng, way):
    x, y = np.zeros((4, 6), "f4"), small_integers(rng, (6, 6), "f4")
    x[:] = small_integers(rng, (4, 6), "f4")
    pairs = [(x, y), (y, y)]
    for _ in range(2):
        check(pyclmm.matmul_many(pairs), loop(pairs))
    y.strides = y.strides[::-1]
    for _ in range(2):
        check(pyclmm.matmul_many(pairs), loop(pairs))
    x.shape = 2, 12
    with pytest.raises(pyclmm.ShapeError, match=r"pairs\[0\]"):
        pyclmm.matmul_many(pairs)
    x.shape = 4, 6
    x.resize((400, 600), refcheck=False)
    x.resize((4, 6), refcheck=False)
    check(pyclmm.matmul_many(pairs), loop(pairs))
    x.dtype = np.int32
    x[:] = 3
    check(pyclmm.matmul_many(pairs), [x.astype("f8") @ y, y @ y])


def test_a_later_call_with_outs_that_overlap(rng, way):
    pairs = pairs_of(rng, [(4, 4, 4)] * 2)
    want = loop(pairs)
    whole, plan = np.zeros((8, 4), "f4"), ManyMatmul(pairs, [np.zeros((4, 4), "f4") for _ in "ab"])
    for call in (pyclmm.matmul_many, plan):
        call(pairs, [np.zeros((4, 4), "f4") for _ in "ab"])
        outs = [whole[:4], whole[4:]]
        call(pairs, outs)
        check(outs, want)
        with pytest.raises(pyclmm.ArgumentError, match=r"out\[1\] overlaps out\[0\]"):
            call(pairs, [whole[:4], whole[2:6]])
        with pytest.raises(pyclmm.ArgumentError, match=r"out\[0\] overlaps a of pairs\[1\]"):
            call(pairs, [pairs[1][0], whole[4:]])
        mine = [tuple(x.copy() for x in pair) for pair in pairs]
        call(mine, [mine[0][0], mine[1][1]])
        check([mine[0][0], mine[1][1]], want)


def test_a_read_only_out_in_a_later_call(rng, way):
    pairs = pairs_of(rng, SIZES)
    outs = [np.zeros_like(x) for x in loop(pairs)]
    for _ in range(2):
        pyclmm.matmul_many(pairs, outs)
    outs[1].flags.writeable = False
    with pytest.raises(pyclmm.ArgumentError, match=r"pairs\[1\]: out is read-only"):
        pyclmm.matmul_many(pairs, outs)
    pairs[0][0].flags.writeable = False
    check(pyclmm.matmul_many(pairs), loop(pairs))


def test_two_maps_of_one_file(rng, tmp_path, way):
    x = small_integers(rng, (64, 64), "f4")
    for name in "xy":
        x.tofile(tmp_path / name)
    one, other, third = (
        np.asarray(np.memmap(tmp_path / name, np.float32, "r+", shape=(64, 64))) for name in "xxy"
    )
    plain = x.copy()
    pyclmm.matmul_many([(one, plain)], [third])  # apart, and then by the same plan
    pyclmm.matmul_many([(one, plain)], [other])
    assert np.array_equal(third, x @ x)
    assert np.array_equal(other, x @ x)
    for b, out, named in (
        (one, None, r"out\[0\] overlaps b of pairs\[1\]"),
        (plain, one, r"out\[1\] overlaps out\[0\]"),
    ):
        with pytest.raises(pyclmm.ArgumentError, match=named):
            pyclmm.matmul_many([(plain, plain), (plain, b)], [other, out])
    own = np.memmap(tmp_path / "x", np.float32, "c", shape=(64, 64))  # nobody else sees what is written there
    pyclmm.matmul_many([(plain, plain), (plain, one)], [own, None])


def test_a_plan_takes_numpy_arrays_of_other_strides(rng, way):
    pairs = pairs_of(rng, SIZES)
    plan = ManyMatmul(pairs, [np.zeros((3, 4), "f4"), None, None], alpha=2.0)
    (a, b), (c, d), (e, f) = pairs
    whole = np.zeros((9, 9), "f4")
    outs = whole[:3, :4], whole.T[:3, :4], odd(whole[:3, :4])["misaligned"]
    variants = (np.asfortranarray(a), b[:, ::-1]), (a[::-1], b), (odd(a)["misaligned"], odd(b)["gaps"])
    for its, out in [*zip(variants, outs, strict=True)] * 2:
        given = [its, (c, d), (e, np.broadcast_to(f[:1], f.shape))]
        got = plan(given, [out, None, None])
        assert got[0] is out
        check(got, [2 * x for x in loop(given)])
    for wrong in ([(a, b.astype("f8"))], [(a[:2], b)]):
        with pytest.raises(pyclmm.ArgumentError, match=r"pairs\[0\]: [ab] is .* strides .*, the plan is for"):
            plan([*wrong, *pairs[1:]], [np.zeros((3, 4), "f4"), None, None])


def test_arrays_are_looked_at_once(rng, monkeypatch):
    pairs = pairs_of(rng, SIZES)
    outs = [np.zeros_like(x) for x in loop(pairs)]
    for given in ({}, {"out": outs, "bias": [None, pairs[1][1][0], None]}):
        want = [x.copy() for x in pyclmm.matmul_many(pairs, **given)]
        with monkeypatch.context() as patch:
            patch.setattr(call_lists, "location", lambda _: pytest.fail("an address was asked for"))
            check(pyclmm.matmul_many(pairs, **given), want)
            moved = [tuple(x.copy() for x in pair) for pair in pairs]
            check(pyclmm.matmul_many(moved, **given), want)


def test_arrays_of_a_call_are_not_kept(rng):
    pairs = pairs_of(rng, SIZES)
    outs = [np.zeros_like(x) for x in loop(pairs)]
    plan = ManyMatmul(pairs, outs)
    for call in (plan, pyclmm.matmul_many):
        call(pairs, outs)
    held = [weakref.ref(x) for x in (*pairs[0], *outs)]
    del pairs, outs
    gc.collect()
    assert not [x for x in held if x() is not None]


def test_dtypes_of_what_was_seen_stay(rng):
    """Another dtype at the address of one that is gone would be taken for it."""
    pyclmm.release()
    (x, y), *_ = pairs_of(rng, SIZES)
    turned = np.dtype(">f4").newbyteorder("S").newbyteorder("S")
    before = sys.getrefcount(turned)
    for dtype in (np.dtype(">f4").newbyteorder("S").newbyteorder("S"), turned):
        z = x.astype(dtype)
        assert z.dtype is dtype
        check(pyclmm.matmul_many([(z, y)]), [x @ y])
    del z, dtype
    assert sys.getrefcount(turned) > before


def test_only_fields_of_numpy_arrays_are_read(rng, monkeypatch):
    (x, y), *_ = pairs_of(rng, SIZES)
    read = noted(monkeypatch, array_fields, "fields_of")
    for a in (x, x.tolist(), x.view(np.matrix), x):
        assert np.array_equal(pyclmm.matmul_many([(a, y)])[0], np.asarray(a, "f4") @ y)
    assert {type(x) for (xs,) in read for x in xs} == {np.ndarray}


def test_where_fields_are_not_read_arrays_are_asked(rng, monkeypatch):
    monkeypatch.setattr(array_fields, "READABLE", False)
    monkeypatch.setattr(array_fields, "fields_of", lambda _: pytest.fail("read"))
    pyclmm.release()
    pairs = pairs_of(rng, SIZES)
    for _ in range(2):
        check(pyclmm.matmul_many(pairs), loop(pairs))


def test_fields_are_those_of_the_arrays(rng):
    whole = np.zeros((4, 5, 6), "f8")
    xs = [whole, whole[1:, ::-2].T, whole[0, 0, 0:1], np.zeros(()), np.zeros((0, 3), "i1"), whole.view(">f8")]
    places, layouts = array_fields.fields_of(xs)
    assert places.tolist() == [x.__array_interface__["data"][0] for x in xs]
    assert array_fields.READABLE
    for index, other in enumerate([whole[:3], whole[1:, ::-1].T, whole[0, 0, 1:2], np.zeros((), "f4"),
                                   np.zeros((0, 4), "i1"), whole.copy().view("f4")]):  # fmt: skip
        changed = array_fields.fields_of([*xs[:index], other, *xs[index + 1 :]]).layouts
        assert not np.array_equal(changed, layouts)
    assert np.array_equal(array_fields.fields_of([whole.copy(), *xs[1:]]).layouts, layouts)
    assert len(array_fields.fields_of([]).places) == 0


def test_a_queue_on_a_device_that_reads_no_addresses(rng, monkeypatch):
    plan = ManyMatmul(pairs := pairs_of(rng, SIZES))
    if not array_fields.reads_host(default_queue().device):
        pytest.skip("this device reads no addresses")
    monkeypatch.setattr(host, "reads_host", lambda _device: False)
    with pytest.raises(pyclmm.ArgumentError, match=re.escape("make a plan with this queue")):
        plan(pairs, queue=default_queue())


@pytest.fixture
def asked(monkeypatch):
    """Asks the device anew, as one with other properties."""
    device = default_queue().device

    def ask(says=False, run=None, **fields):
        seen_as(monkeypatch, **fields)
        monkeypatch.setattr(array_fields, "_says_so", lambda _: says)
        if run is not None:
            monkeypatch.setattr(array_fields, "_run", run)
        return array_fields.reads_host.__wrapped__(device)

    return ask


@for_cpus
def test_which_devices_read_addresses(asked):
    assert asked(True, vendor="other", kind="cpu")
    assert asked(vendor="pocl", kind="cpu")
    assert not asked(vendor="other", kind="cpu")
    assert not asked(True, kind="gpu")
    assert not asked(True, unified_memory=False)


@for_cpus
def test_addresses_that_are_not_shown_are_not_used(asked):
    run, ran = array_fields._run, []

    def elsewhere(queue, device, kernel, buffers):
        ran.append(kernel)
        run(queue, device, kernel, {"buffer": buffers["told"], "told": buffers["told"]})

    assert not asked(True, elsewhere)
    assert ran == ["tell"]  # nothing is read at an address that is not the host's

    def without_effect(queue, device, kernel, buffers):
        if kernel == "tell":
            run(queue, device, kernel, buffers)

    assert not asked(True, without_effect)

    def refused(*_args):
        raise cl.RuntimeError("refused")

    assert not asked(True, refused)
