"""What a kernel loads: the tile that it says it shares, against loads that are counted."""

from dataclasses import replace
from math import ceil, prod

import numpy as np
import pytest

from pyclmm import TileConfig
from pyclmm.kernels import KERNELS, kernel_named
from pyclmm.kernels.gpu.tile import by_rows
from pyclmm.kernels.interface import Kernel
from pyclmm.kernels.nvidia.wgmma_tiles import seen
from pyclmm.kernels.nvidia.work_pieces import WorkPieces
from pyclmm.kernels.rates import Rates
from pyclmm.kernels.traffic import Traffic, limit, loads, traffic
from pyclmm.problem.canonical import problem_of
from pyclmm.tools.road import KERNELS_OF_THE_ROAD
from tests.support.cases import DEVICE, refused
from tests.support.counted_loads import counted
from tests.support.made_up import ARC, H200, MI250

GFX1100 = replace(MI250, name="gfx1100", max_work_group_size=1024)
DPAS = replace(ARC, extensions=frozenset({"cl_intel_subgroup_matrix_multiply_accumulate"}), sub_group_size=8)
UNITS = {"mma": H200, "wgmma_bare": H200, "wgmma": H200, "mfma": MI250, "wmma": GFX1100, "dpas": DPAS}
TEXTBOOK = [k.name for k in KERNELS if type(k).__module__.split(".")[-2] == "textbook"]
RATES = Rates(1e-6, 1e-9, 1e-7, 100e9, 300e9, 1e6, 1e12, 50e9, 25e9, 50e9, matrix16=800e9)


def product(m, n, k, dtype="float32", precision="highest", layout="NN"):
    return problem_of(m, n, k, np.dtype(dtype), layout, precision)


@pytest.mark.skipif(not DEVICE.is_cpu, reason="the counters lie in memory that a CPU device uses in place")
@pytest.mark.parametrize("shape", [(61, 37, 23), (64, 32, 16)], ids=str)
@pytest.mark.parametrize("name", TEXTBOOK)
def test_a_textbook_kernel_loads_what_its_tile_says(queue, name, shape):
    kernel, problem = kernel_named(name), product(*shape)
    if name == "single_group":
        problem = product(13, 7, 9)
    if reason := kernel.refuses(problem, DEVICE):
        refused(kernel, reason)
    for config in kernel.candidates(problem, DEVICE)[:2]:
        found = counted(queue, DEVICE, problem, kernel.launches(problem, config, DEVICE))
        assert found == loads(kernel, problem, config), config


@pytest.mark.skipif(not DEVICE.is_cpu, reason="the counters lie in memory that a CPU device uses in place")
@pytest.mark.parametrize("layout", ["NN", "TT"])
def test_register_loads_what_its_tile_says(queue, layout):
    kernel = kernel_named("register")
    problem = product(96, 64, 48, layout=layout)
    for config in kernel.configs(problem, DEVICE)[:1]:
        assert problem.m % config.bm == problem.n % config.bn == problem.k % config.bk == 0
        found = counted(queue, DEVICE, problem, kernel.launches(problem, config, DEVICE))
        assert found == loads(kernel, problem, config), config


@pytest.mark.skipif(not DEVICE.is_cpu, reason="packed is for CPU devices")
@pytest.mark.parametrize("last", [0, 3], ids=["whole tiles", "three last columns"])
def test_packed_loads_what_its_register_tile_says_and_one_vector_for_the_last_columns(queue, last):
    kernel = kernel_named("packed")
    first = kernel.configs(product(512, 512, 512), DEVICE)[0]
    config = replace(first, split_k=1, options=(("pack_a", 0), ("pack_b", 0)))
    assert config.tn > config.vec
    problem = product(4 * config.tm, 2 * config.tn + (last or config.tn), 32)
    assert kernel.violations(problem, config, DEVICE) == []
    found = counted(queue, DEVICE, problem, kernel.launches(problem, config, DEVICE))
    with_one_vector = (3 * problem.m * problem.k, 4 * (2 * config.tn + config.vec) * problem.k)
    assert found == (with_one_vector if last else loads(kernel, problem, config)), config


def test_the_matrix_units_of_the_road_have_devices_here():
    assert set(UNITS) == {name for name in KERNELS_OF_THE_ROAD if kernel_named(name).matrix_units}


@pytest.mark.parametrize("name", UNITS)
def test_matrix_units_have_a_work_group_for_each_tile(name):
    """Each work-group loads the rows and columns of its tile once: the tiles must cover the result once."""
    kernel, device = kernel_named(name), UNITS[name]
    problem = product(1536, 1024, 256, "bfloat16")
    assert kernel.refuses(problem, device) is None
    seen_whole = 0
    for config in kernel.configs(problem, device):
        rows, columns = kernel.shared_tile(config)
        if config.split_k > 1 or problem.m % rows or problem.n % columns:
            continue
        if name == "wgmma":  # its work-groups take several tiles each
            tiles = WorkPieces.of(seen(problem, config), config, device, 1).tiles
        else:
            launch = max(kernel.launches(problem, config, device).launches, key=lambda x: x.global_size)
            tiles = prod(launch.global_size) // prod(launch.local_size)
        assert tiles * rows * columns == problem.m * problem.n, config
        seen_whole += 1
    assert seen_whole >= 1


def test_swapped_operands_swap_the_tile():
    config = TileConfig(bm=128, bn=256, bk=64, stages=3, options={"alternate": 0, "group": 8, "swapped": 1})
    assert kernel_named("wgmma").shared_tile(config) == (256, 128)


@pytest.mark.parametrize("name", KERNELS_OF_THE_ROAD)
def test_every_kernel_of_the_road_says_what_it_shares(name):
    kernel = kernel_named(name)
    assert type(kernel).shared_tile is not Kernel.shared_tile
    assert min(kernel.shared_tile(TileConfig(bm=32, bn=64, tm=4, tn=8))) >= 1


def test_a_kernel_that_does_not_say_it_has_no_tile_by_chance():
    with pytest.raises(NotImplementedError, match="matvec does not say"):
        kernel_named("matvec").shared_tile(TileConfig(bm=32, bn=32))


def test_bytes_are_those_of_the_pages():
    """The numbers of docs/kernels.md."""
    square = product(1024, 1024, 1024)
    naive = traffic(kernel_named("naive"), square, TileConfig(bm=16, bn=16), DEVICE)
    tiled = traffic(kernel_named("tiled"), square, TileConfig.square(16), DEVICE)
    assert naive == Traffic(8_594_128_896, 2 * 1024**3)
    assert tiled == Traffic(541_065_216, 2 * 1024**3)
    ragged = traffic(kernel_named("tiled"), product(33, 17, 5), TileConfig.square(16), DEVICE)
    assert ragged.nbytes == 4 * (33 * 5 * ceil(17 / 16) + 5 * 17 * ceil(33 / 16) + 33 * 17)


def test_workspace_is_written_and_read():
    """Partial sums of two ranges of K."""
    kernel, problem = kernel_named("register"), product(64, 64, 512)
    config = next(c for c in kernel.configs(problem, H200) if not by_rows(c))
    config = replace(config, split_k=2)
    space = sum(s.nbytes for s in kernel.launches(problem, config, H200).workspace)
    own = traffic(kernel, problem, config, H200)
    assert space > 0
    assert own.nbytes == 4 * (sum(loads(kernel, problem, config)) + 64 * 64) + 2 * space


@pytest.mark.parametrize(
    ("name", "dtype", "side", "intensity", "rate", "by"),
    [
        ("naive", "float32", 64, 0.25, 75e9, "cache"),
        ("naive", "float32", 1024, 0.25, 25e9, "memory"),
        ("naive", "float32", 1024, 10.0, 100e9, "arithmetic"),
        ("wgmma", "float16", 1024, 8.0, 800e9, "memory"),
        ("wgmma", "float16", 1024, 100.0, 1600e9, "arithmetic"),
    ],
)
def test_the_limit_is_the_roofline(name, dtype, side, intensity, rate, by):
    found = limit(
        kernel_named(name), product(side, side, side, dtype), Traffic(1000, int(1000 * intensity)), RATES
    )
    assert (found.rate, found.by) == (pytest.approx(rate), by)
