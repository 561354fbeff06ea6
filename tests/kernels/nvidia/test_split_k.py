"""Partial sums are added right on any device: by cl/split_k.cl, row by row and in wgmma's order.

The latter is modelled here from the drawings in ptx_wgmma.h and fragment_rows.h of
cl/nvidia/.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pyclmm.kernels import Work, kernel_named
from pyclmm.kernels.launches import batch_table
from pyclmm.kernels.nvidia.wgmma_tiles import seen, stacked
from pyclmm.kernels.nvidia.work_pieces import WorkPieces
from pyclmm.opencl.launcher import launcher_of
from pyclmm.opencl.steps import scalars_of
from tests.kernels.nvidia.test_matrix_units import problem
from tests.support.made_up import H200

# Seven compute units: fewer than tiles.
DEVICE = replace(H200, compute_units=7)
WGMMA = kernel_named("wgmma")


def slot_of(tile, alternate, registers):
    """The sums of a tile as its quartets hold them: [quartet, accumulators / 4, work-item, 4], flattened."""
    quartets = []
    for fragment in tile.reshape(-1, 64, tile.shape[1]):
        acc = np.empty((tile.shape[1] // 2, 128), tile.dtype)
        w = np.arange(128)
        for j in range(tile.shape[1] // 8):
            for h in (0, 1):
                for c in (0, 1):
                    rows, columns = w // 32 * 16 + w % 32 // 4 + 8 * h, 8 * j + w % 4 * 2 + c
                    if registers:  # bits of w, from the top: s1 s0 g2 g1 g0 t1 t0
                        s1, s0, g2, g1, g0 = (w >> bit & 1 for bit in (6, 5, 4, 3, 2))
                        rows = 32 * s1 + 16 * g1 + 8 * s0 + 4 * g2 + 2 * g0 + h
                    acc[4 * j + 2 * h + c] = fragment[rows, columns]
        quartets.append(acc)
    held = [np.concatenate(quartets)] if alternate else quartets
    return np.concatenate([acc.reshape(-1, 4, 128).transpose(0, 2, 1).reshape(-1) for acc in held])


def tile_origin(tile, rows, cols, config):
    """The order of cl/include/tile_order.h, in groups of 8 rows of tiles."""
    group, inside = divmod(tile, 8 * cols)
    height = min(rows - group * 8, 8)
    return (group * 8 + inside % height) * config.bm, inside // height * config.bn


def run(queue, launch, partial, out, table):
    sums, result = (x.reshape(-1).view(np.uint8) for x in (partial, out))
    memory = dict.fromkeys(("a", "b", "c", "bias", "out"), result) | {"workspace:partial": sums}
    work = Work((launch,), tables={"batch_offsets": table})
    launcher_of(queue).compute(queue, DEVICE, work, memory, scalars_of(2, 0))
    return out


# float32 stored across K is staged in registers, as A. Such a B is A of the transposed product.
@pytest.mark.parametrize(
    ("kind", "trans"), [("float16", "NN"), ("float32", "TT"), ("float32", "NN")], ids=str
)
@pytest.mark.parametrize("stack", [0, 3, -3], ids=["one", "even", "uneven"])
@pytest.mark.parametrize(
    ("tile", "alternate", "split_k"),
    [((128, 128), 0, 3), ((64, 256), 0, 13), ((64, 128), 1, 3), ((128, 64), 0, 64)],
    ids=str,
)
def test_partial_sums_are_added_where_they_belong(queue, rng, tile, alternate, split_k, stack, kind, trans):
    m, n, k = 300, 450, 8192
    registers = kind == "float32"
    precision = "medium" if registers else "highest"
    given = problem(kind, m=m, n=n, k=k, out_type="float32", trans=trans, precision=precision)
    if stack:
        far = (0,) if stack > 0 else (-8,)  # a stack with negative strides has its own work-groups
        strides = (far, far, (0,), (m * n + 5,))
        given = replace(given, batch_shape=(abs(stack),), batch_strides=strides)
    config = next(
        c
        for c in WGMMA.configs(given, DEVICE)
        if (c.bm, c.bn, c.option("alternate"), c.split_k) == (*tile, alternate, 1)
    )
    config = replace(config, split_k=split_k)
    launch = WGMMA.launches(given, config, DEVICE).launches[-1]
    assert launch.kernel == "add_partial_sums"
    view = seen(given, config)
    assert (view is not given) == ((kind, trans) == ("float32", "NN"))
    pieces = WorkPieces.of(view, config, DEVICE, stacked(view))
    assert (stack > 0) == (pieces.stack > 1)

    batch = given.batch
    sets = batch // pieces.stack
    rows, cols = -(-view.m // config.bm), -(-view.n // config.bn)
    partial = np.empty((sets, pieces.cut, split_k, config.bm * config.bn), "f4")
    out = np.full(batch * (m * n + 5), 7, "f4")
    wanted = out.copy()
    for z in range(sets):
        for number in range(pieces.cut):
            inside, at = divmod(pieces.whole + number, rows * cols)
            i, j = tile_origin(at, rows, cols, config)
            sums = rng.integers(-9, 10, (split_k, config.bm, config.bn)).astype("f4")
            for part in range(split_k):
                partial[z, number, part] = slot_of(sums[part], alternate, registers)
            start = (z + inside) * (m * n + 5)
            whole = wanted[start : start + m * n].reshape(m, n)
            target = (whole if view is given else whole.T)[i : i + config.bm, j : j + config.bn]
            target[:] = 2 * sums.sum(0)[: target.shape[0], : target.shape[1]]
    table = batch_table(given.batch_shape, given.batch_strides) if stack else np.zeros((1, 4), "i8")
    table[:, :2] = 0
    assert np.array_equal(run(queue, launch, partial, out, table), wanted)


def test_full_waves_do_not_split_k():
    given = problem(m=896, n=128)  # seven tiles of 128 x 128
    config = replace(next(c for c in WGMMA.configs(given, DEVICE) if (c.bm, c.bn) == (128, 128)), split_k=2)
    assert WorkPieces.of(given, config, DEVICE, 1).cut == 0
    assert [x.kernel for x in WGMMA.launches(given, config, DEVICE).launches] == ["matmul_wgmma"]
