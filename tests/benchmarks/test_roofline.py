"""The traffic formulas agree with counted loads: of a simulation in NumPy, and of the kernels themselves."""

import itertools

import numpy as np
import pyopencl as cl
import pytest

from benchmarks import roofline
from pyclmm.errors import ArgumentError
from pyclmm.kernels import kernel_named
from pyclmm.kernels.config import TileConfig
from pyclmm.opencl.compiler import expanded
from pyclmm.opencl.devices import device_info
from pyclmm.opencl.program import build_options
from pyclmm.opencl.queues import default_queue
from pyclmm.problem.canonical import problem_of
from pyclmm.tools.timing import Size

SIZES = [(1, 1, 1), (5, 3, 2), (4, 8, 4), (9, 7, 10), (16, 16, 16), (17, 1, 33), (3, 20, 5)]
TILES = [1, 2, 3, 4, 16]


def simulate_naive(m, n, k):
    """How often cl/textbook/naive.cl reads each element of A and B and writes each of out."""
    a, b, out = np.zeros((m, k), int), np.zeros((k, n), int), np.zeros((m, n), int)
    for i, j in itertools.product(range(m), range(n)):
        for t in range(k):
            a[i, t] += 1
            b[t, j] += 1
        out[i, j] += 1
    return a, b, out


def simulate_tiled(m, n, k, tw):
    """The same for cl/textbook/tiled.cl: a work-group loads tiles of A and B, clipped at the edges."""
    a, b, out = np.zeros((m, k), int), np.zeros((k, n), int), np.zeros((m, n), int)
    for i0, j0 in itertools.product(range(0, m, tw), range(0, n, tw)):
        for t in range(0, k, tw):
            a[i0 : i0 + tw, t : t + tw] += 1
            b[t : t + tw, j0 : j0 + tw] += 1
        out[i0 : i0 + tw, j0 : j0 + tw] += 1
    return a, b, out


def totals(traffic):
    return traffic.a, traffic.b, traffic.out


@pytest.mark.parametrize(("m", "n", "k"), [*SIZES, (0, 3, 2), (3, 0, 2), (3, 2, 0)])
def test_naive_traffic_is_that_of_its_loop(m, n, k):
    assert totals(roofline.naive(m, n, k)) == tuple(int(x.sum()) for x in simulate_naive(m, n, k))


@pytest.mark.parametrize("tw", TILES)
@pytest.mark.parametrize(("m", "n", "k"), [*SIZES, (0, 3, 2), (3, 0, 2), (3, 2, 0)])
def test_tiled_traffic_is_that_of_its_loop(m, n, k, tw):
    assert totals(roofline.tiled(m, n, k, tw)) == tuple(int(x.sum()) for x in simulate_tiled(m, n, k, tw))


def counted_on_device(name, size, config):
    """How often the real kernel loads each element of A and B: its load macros count here."""
    problem, queue = problem_of(size.m, size.n, size.k, np.dtype(np.float32)), default_queue()
    (launch,) = kernel_named(name).launches(problem, config, device_info(queue.device)).launches
    counting = "\n".join(
        f"#undef LOAD_{x}\n"
        f"#define LOAD_{x}(p, i) (atomic_inc((volatile __global int *)(p) + {count} + (i)), (ACC_T)(p)[i])"
        for x, count in (("A", size.m * size.k), ("B", size.k * size.n))  # counters lie behind the elements
    )
    text = expanded(launch.program.source)
    begins = text.rindex("#line")  # where the kernel begins, after its headers
    source = f"{text[:begins]}{counting}\n{text[begins:]}"
    program = cl.Program(queue.context, source).build(list(build_options(launch.program)))
    a, b = np.ones((size.m, size.k), np.float32), np.ones((size.k, size.n), np.float32)
    counted = {"a": np.stack((a, np.zeros_like(a))), "b": np.stack((b, np.zeros_like(b)))}
    host = {**counted, "out": np.zeros((size.m, size.n), np.float32), "c": np.zeros(1), "bias": np.zeros(1)}
    host["batch_offsets"] = np.zeros(4, np.int64)
    copy = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    values = {key: cl.Buffer(queue.context, copy, hostbuf=x) for key, x in host.items()}
    values |= {f"{key}_offset": np.int64(0) for key in host} | {"alpha": np.float32(1), "beta": np.float32(0)}
    arguments = [values[x] if isinstance(x, str) else x for x in launch.args]
    getattr(program, launch.kernel)(queue, launch.global_size, launch.local_size, *arguments)
    for key, x in (*counted.items(), ("out", host["out"])):
        cl.enqueue_copy(queue, x, values[key])
    assert np.array_equal(host["out"], a @ b)
    return tuple(x[1].view(np.int32) for x in counted.values())


@pytest.mark.filterwarnings("ignore::pyopencl.CompilerWarning")
@pytest.mark.parametrize("size", [Size(9, 7, 10), Size(16, 8, 4), Size(5, 33, 3)], ids=str)
def test_the_kernels_load_what_the_simulation_counts(size):
    shape = (size.m, size.n, size.k)
    cases = [("naive", TileConfig(bm=4, bn=4), simulate_naive(*shape))]
    cases += [("tiled", TileConfig.square(tw), simulate_tiled(*shape, tw)) for tw in (3, 4)]
    for name, config, (a, b, _) in cases:
        on_device = counted_on_device(name, size, config)
        assert np.array_equal(on_device[0], a), name
        assert np.array_equal(on_device[1], b), name


def test_tiles_of_one_and_of_the_whole_give_the_extremes():
    assert roofline.tiled(50, 60, 70, 1) == roofline.naive(50, 60, 70)
    assert roofline.tiled(50, 60, 70, 64) == roofline.least(50, 60, 70)


def test_intensity_grows_with_the_tile_width():
    """As docs/kernels.md says for large float32 products: 1/4 operation a byte, with tiles TW/4."""
    assert roofline.naive(4096, 4096, 4096).intensity(4) == pytest.approx(1 / 4, rel=1e-3)
    for tw in (8, 16, 32):
        assert roofline.tiled(4096, 4096, 4096, tw).intensity(4) == pytest.approx(tw / 4, rel=1e-2)


def test_the_roofline_has_its_ridge_where_the_needed_bandwidth_says():
    rate, intensity = 1e12, 4.0
    needed = roofline.bandwidth_needed(rate, intensity)
    assert needed == 2.5e11
    assert roofline.attainable(rate, needed, intensity) == rate
    assert roofline.attainable(rate, needed / 2, intensity) == rate / 2
    assert roofline.attainable(rate, needed * 2, intensity) == rate


def test_the_intensity_of_an_empty_product_is_zero():
    assert roofline.naive(0, 0, 0).intensity(4) == 0.0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: roofline.tiled(1, 1, 1, 0), "tw is 0"),
        (lambda: roofline.naive(1, -2, 1), "N is -2"),
        (lambda: roofline.bandwidth_needed(1e9, 0.0), "intensity is 0.0"),
    ],
)
def test_bad_arguments_are_named(call, says):
    with pytest.raises(ArgumentError, match=says):
        call()
