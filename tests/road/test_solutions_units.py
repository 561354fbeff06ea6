"""The solutions of docs/road/10_register.md to 14_matrix_units.md are right, and agree with the kernels."""

import json
from pathlib import Path

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

from examples.road import fragments, packed_panels, pipelining, register_tile, split_k
from pyclmm.kernels.cpu import blocking
from pyclmm.kernels.device import Caches
from pyclmm.opencl.compiler import expanded, quiet
from tests.road.test_solutions_blocks import SHAPES, whole

ROAD = Path(__file__).parents[2] / "docs/road"


def defines(**values):
    return "".join(f"#define {name} {value}\n" for name, value in values.items())


# --- 10_register.md


@pytest.mark.parametrize(("tile", "share"), [((8, 8), 1), ((8, 16), 0.75), ((4, 4), 2)])
def test_the_cost_of_a_register_tile(tile, share):
    multiply, read = register_tile.cycles(*tile)
    assert read / multiply == share


def test_the_best_tile_of_powers_of_two_is_the_one_that_the_library_has():
    assert register_tile.best_tile(220, (4, 8, 16)) == (8, 16)
    assert register_tile.best_tile(120, (4, 8, 16)) == (8, 8)
    assert register_tile.best_tile(220, range(4, 17, 4)) == (12, 12)
    assert register_tile.registers(8, 16) == 176


def test_columns_are_those_of_the_kernel(context, queue):
    """COL_OF of cl/gpu/register_tile.h, in a program that does nothing else."""
    tile = {"BM": 128, "BN": 128, "BK": 8, "SGM": 32, "SGN": 128, "TM": 8, "TN": 16, "KS": 1, "CHUNK": 4}
    rest = {"VEC_A": 4, "VEC_B": 4, "ALONG_A": 0, "ALONG_B": 0, "TRANS_A": 0, "TRANS_B": 0, "VECTORS": 0}
    types = dict.fromkeys(("A_TYPE", "B_TYPE", "C_TYPE", "BIAS_TYPE", "OUT_TYPE", "ACC_TYPE"), "float32")
    flags = {"CONJ_A": 0, "CONJ_B": 0, "REPRODUCIBLE": 0, "SOFT_FLOAT64": 0, "DOT_BYTES": 0}
    text = defines(**tile, **rest, **types, **flags) + expanded("gpu/register_tile.h")
    text += """
    __kernel void columns(__global int *out)
    {
      Place p;
      find_place(&p, get_global_id(0));
      for (int c = 0; c < TN; ++c) out[get_global_id(0) * TN + c] = COL_OF(p, c);
    }"""
    out = cla.empty(queue, (8, 16), np.int32)
    cl.Program(context, text).build().columns(queue, (8,), None, out.data)
    mine = [register_tile.columns(place, 16, 8) for place in range(8)]
    assert out.get().tolist() == mine
    assert sorted(column for columns in mine for column in columns) == list(range(128))


def test_chunks_side_by_side_meet_no_bank_twice():
    side_by_side = [register_tile.columns(place, 16, 8)[0] for place in range(8)]
    in_a_block = [16 * place for place in range(8)]
    assert register_tile.passes(side_by_side) == 1
    assert register_tile.passes(in_a_block) == 4


# --- 11_packed.md


@pytest.mark.parametrize(("mr", "nr"), [(6, 16), (8, 32), (3, 5)])
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_a_product_of_panels(rng, m, n, k, mr, nr):
    a, b = whole(rng, m, k), whole(rng, k, n)
    assert np.array_equal(packed_panels.multiply(a, b, mr, nr), a @ b)


def test_panels_lie_as_in_the_kernel(rng):
    """The formulas at the head of cl/cpu/packed_tile.h, and zeros beyond the edge."""
    a, b, mr, nr = whole(rng, 10, 7), whole(rng, 7, 20), 6, 16
    rows, columns = packed_panels.panels_of_a(a, mr).reshape(-1), packed_panels.panels_of_b(b, nr).reshape(-1)
    for i in range(10):
        for k in range(7):
            assert rows[i // mr * 8 * mr + k // 4 * 4 * mr + i % mr * 4 + k % 4] == a[i, k]
    for k in range(7):
        for j in range(20):
            assert columns[j // nr * 7 * nr + k * nr + j % nr] == b[k, j]
    assert len(rows) == 2 * 8 * mr
    assert len(columns) == 2 * 7 * nr
    assert np.abs(rows).sum() == np.abs(a).sum()
    assert np.abs(columns).sum() == np.abs(b).sum()


def test_tiles_that_fit_the_registers():
    avx2, avx512 = packed_panels.tiles(16), packed_panels.tiles(32)
    assert (6, 2) in avx2
    assert (8, 2) not in avx2
    assert {(8, 2), (8, 3), (12, 2)} <= avx512.keys()
    assert avx512[8, 2] == 10 / 16
    assert min(avx2, key=avx2.get) == (4, 3)
    assert min(avx512, key=avx512.get) == (5, 5)


@pytest.mark.parametrize("tile", [(6, 16), (8, 32), (8, 48), (4, 8)])
@pytest.mark.parametrize(("l1", "l2"), [(32, 1024), (48, 2048), (32, 256), (64, 512)])
def test_blocks_are_those_of_the_library(tile, l1, l2):
    caches = Caches(l1=l1 * 1024, l2=l2 * 1024, line=64)
    library = blocking.blocks(caches, *tile, size=4, sum_size=4, sum_bytes=1 << 30)
    mine = packed_panels.blocks(l1 * 1024, l2 * 1024, tile, 4)
    assert mine == (library.kc, library.mc, library.nc)


# --- 12_split_k.md


def test_waves_of_tiles():
    assert split_k.waves(144, 132)[0] == split_k.waves(264, 132)[0] == 2
    count, share = split_k.waves(288, 132)
    assert count == 3
    assert round(share, 2) == 0.73
    assert split_k.waves(132, 132) == (1, 1)


def test_the_best_number_of_ranges():
    assert split_k.best_split(132, 132, 8) == 1
    assert split_k.best_split(4, 132, 40) == 33
    assert split_k.best_split(24, 132, 8) == 5


@pytest.mark.parametrize("ranges", [1, 3, 4])
def test_a_product_in_two_launches(queue, rng, ranges):
    a, b = whole(rng, 5, 41), whole(rng, 41, 7)
    assert np.array_equal(split_k.multiply(queue, a, b, ranges), a @ b)


def test_a_fixed_order_gives_the_same_bits(queue, rng):
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 1000), (1000, 4)))
    first = split_k.multiply(queue, a, b, 8)
    assert all(np.array_equal(split_k.multiply(queue, a, b, 8), first) for _ in range(3))
    assert not np.array_equal(split_k.multiply(queue, a, b, 1), first)


def test_more_ranges_are_more_accurate():
    numbers = np.random.default_rng(12).random(1 << 16, dtype=np.float32)
    exact = numbers.astype(np.float64).sum()
    error = {ranges: abs(split_k.sum_in_ranges(numbers, ranges) - exact) / exact for ranges in (1, 16, 256)}
    assert error[256] < error[16] < error[1]
    assert error[256] < 2**-23


# --- 13_pipelining.md


def test_one_stage_waits_for_each_copy():
    assert pipelining.finish(10, copy=3, multiply=2, stages=1) == 10 * (3 + 2)


@pytest.mark.parametrize(("copy", "multiply"), [(1, 2), (2, 2), (3, 2), (9, 2), (10, 1)])
def test_enough_stages_wait_for_the_first_copy_only(copy, multiply):
    enough = pipelining.stages_needed(copy, multiply)
    whole_time = copy + 40 * multiply
    for finish in (pipelining.finish, pipelining.finish_in_steps):
        assert finish(40, copy, multiply, enough) == whole_time
        assert finish(40, copy, multiply, enough + 2) == whole_time
        assert enough == 2 or finish(40, copy, multiply, enough - 1) > whole_time
    assert pipelining.finish(40, copy, multiply, enough - 1) > whole_time


@pytest.mark.parametrize(("copy", "multiply"), [(1, 2), (3, 2), (12, 2), (10, 1)])
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_a_step_takes_what_the_page_says(copy, multiply, stages):
    def later(finish):  # 12 steps: whole laps of each ring
        return finish(52, copy, multiply, stages) - finish(40, copy, multiply, stages)

    assert later(pipelining.finish) == pytest.approx(12 * max(multiply, (copy + multiply) / stages))
    assert later(pipelining.finish_in_steps) == pytest.approx(12 * max(multiply, copy / (stages - 1)))


@pytest.mark.parametrize(
    ("tile", "stages", "pads", "nbytes"),
    [
        ((128, 256, 8), 3, (4, 0), 37_248),
        ((128, 128, 8), 3, (4, 0), 24_960),
        ((64, 128, 32), 3, (4, 0), 75_264),
        ((128, 128, 8), 2, (4, 0), 16_640),
    ],
)
def test_the_bytes_of_a_ring_are_those_of_the_kernel(tile, stages, pads, nbytes):
    """The table of docs/kernels/register.md, and the library's own arithmetic."""
    assert pipelining.ring_bytes(tile, stages, pads) == nbytes
    page = (ROAD.parent / "kernels/register.md").read_text(encoding="utf-8")
    assert f"{nbytes:,}" in page


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("blocks", [1, 2, 3, 7])
def test_a_ring_of_copies(queue, rng, stages, blocks):
    a, b = whole(rng, 16, 8 * blocks), whole(rng, 8 * blocks, 24)
    assert np.array_equal(pipelining.multiply(queue, a, b, stages), a @ b)


def test_a_ring_refuses_what_it_cannot_do(queue):
    a = np.ones((8, 8), np.float32)
    with pytest.raises(ValueError, match="stages must be 2 or more"):
        pipelining.multiply(queue, a, a, 1)
    with pytest.raises(ValueError, match="multiples of 8"):
        pipelining.multiply(queue, a[:, :7], a, 2)


# --- 14_matrix_units.md


def test_fragments_of_an_mma_lie_as_the_manual_says():
    """PTX ISA, m16n8k16: element i of a work-item's eight of A, four of B."""
    a, b = np.arange(256).reshape(16, 16), np.arange(128).reshape(16, 8)
    held_a, held_b = fragments.fragments_of_a(a).reshape(32, 8), fragments.fragments_of_b(b).reshape(32, 4)
    for lane in range(32):
        group, place = lane >> 2, lane & 3
        for i in range(8):
            row = group if i in {0, 1, 4, 5} else group + 8
            column = place * 2 + (i & 1) + (8 if i >= 4 else 0)
            assert held_a[lane, i] == a[row, column]
        for i in range(4):
            assert held_b[lane, i] == b[place * 2 + (i & 1) + (8 if i >= 2 else 0), group]


def test_a_product_by_fragments(rng):
    a, b = whole(rng, 16, 48).astype(np.float16), whole(rng, 48, 8).astype(np.float16)
    d = np.zeros((32, 4), np.float32)
    for k in range(0, 48, 16):
        left, right = fragments.fragments_of_a(a[:, k : k + 16]), fragments.fragments_of_b(b[k : k + 16])
        d = fragments.mma(d, left, right)
    assert np.array_equal(fragments.collected(d), a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize(
    ("unit", "rows", "columns", "lanes"),
    [
        ("mma", 16, 8, 32), ("wgmma", 64, 256, 128), ("mfma", 32, 32, 64), ("wmma", 16, 16, 32),
        ("dpas", 8, 16, 16),
    ],
)  # fmt: skip
def test_each_element_has_one_owner(unit, rows, columns, lanes):
    owners = {fragments.owner(unit, i, j) for i in range(rows) for j in range(columns)}
    assert owners == {(lane, e) for lane in range(lanes) for e in range(rows * columns // lanes)}


@pytest.mark.parametrize(
    ("unit", "macros"),
    [
        ("mfma", {"UNIT_M": 32, "WORD_K": 4, "LANES": 64}),
        ("wmma", {"RDNA": 3, "WORD_K": 8, "LANES": 32}),
        ("dpas", {"WORD_K": 2, "LANES": 16}),
    ],
)
def test_owners_are_those_of_the_kernels_instructions(context, queue, unit, macros):
    """D_ROW and D_COLUMN of cl/units/, in a program that does nothing else."""
    tile = {"BM": 32, "BN": 32, "BK": 16, "SGM": 32, "SGN": 32, "WIDE_A": 0, "WIDE_B": 0}
    types = dict.fromkeys(("A_TYPE", "B_TYPE", "C_TYPE", "BIAS_TYPE", "OUT_TYPE"), "float16")
    flags = {
        "ACC_TYPE": "float32", "CONJ_A": 0, "CONJ_B": 0, "REPRODUCIBLE": 0, "SOFT_FLOAT64": 0, "DOT_BYTES": 0,
    }  # fmt: skip
    text = defines(**tile, **types, **flags, **macros) + expanded(f"units/{unit}.h")
    text += """
    __kernel void places(__global int2 *out)
    {
      const int lane = get_global_id(0), e = get_global_id(1);
      out[lane * D_ELEMENTS + e] = (int2)(D_ROW(e, lane), D_COLUMN(e, lane));
    }"""
    lanes, elements = {"mfma": (64, 16), "wmma": (32, 8), "dpas": (16, 8)}[unit]
    out = cla.empty(queue, (lanes, elements, 2), np.int32)
    with quiet:
        cl.Program(context, text).build().places(queue, (lanes, elements), None, out.data)
    for lane, registers in enumerate(out.get().tolist()):
        for e, (i, j) in enumerate(registers):
            assert fragments.owner(unit, i, j) == (lane, e)


def test_an_unknown_unit_is_refused():
    with pytest.raises(ValueError, match="unit must be mma"):
        fragments.owner("amx", 0, 0)


def test_the_stages_of_a_tile_are_those_that_the_library_took():
    kept = json.loads((ROAD.parents[1] / "benchmarks/results/h200-ladder.json").read_text(encoding="utf-8"))
    (config,) = (step["config"] for step in kept["steps"] if step["label"] == "float16, wgmma")
    words = dict(word.split("=") for word in config.split())
    assert fragments.stage_bytes(128, 256) == 49_152
    assert fragments.most_stages(int(words["bm"]), int(words["bn"]), 232_448) == int(words["stages"])


def test_larger_tiles_read_less_for_each_operation():
    assert round(fragments.operations_a_byte(64, 32, 2), 1) == 21.3
    assert round(fragments.operations_a_byte(64, 256, 2), 1) == 51.2
    local_rate, nominal = 33.5, 990  # TB/s, TFLOP/s: docs/road/14_matrix_units.md
    assert fragments.operations_a_byte(64, 32, 2) * local_rate < nominal
    assert fragments.operations_a_byte(64, 64, 2) * local_rate > nominal
