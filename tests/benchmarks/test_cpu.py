"""benchmarks/cpu.py: products of a seed, the processor's name; products.py's bounds for a CPU."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _beside(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield
    for name in ("cpu", "processor", "products", "peak", "clblast"):
        sys.modules.pop(name, None)


def test_a_seed_gives_the_same_products_and_another_others():
    cpu = importlib.import_module("cpu")
    dtype = np.dtype("float32")
    first, again, other = (list(cpu.from_seed(dtype, seed, 4)) for seed in (1, 1, 2))
    assert first == again != other


def test_the_operands_of_a_layout_are_what_its_name_says():
    cpu = importlib.import_module("cpu")
    pairs = cpu.from_seed(np.dtype("float64"), 3, 12)
    layouts = set()
    for name, (a, b) in pairs.items():
        shape, layout = name.split()
        *stack, m, n, k = map(int, shape.split("x"))
        assert (a.shape, b.shape) == ((*stack, m, k), (*stack, k, n))
        assert a.dtype == b.dtype == np.float64
        for x, turned in zip((a, b), layout, strict=True):
            assert (x.strides[-1] == 8) == (turned == "N")
        layouts.add(layout)
    assert len(layouts) > 1


def test_products_for_a_cpu_keep_their_bounds():
    products = importlib.import_module("products")
    for one in products.drawn(5, 200, ("float32",), largest=products.FOR_CPU):
        assert max(one.shape) <= 4096
        assert one.nbytes <= 2**28
        assert one.flops <= 2e10


def test_the_processor_is_named_with_family_and_model():
    processor = importlib.import_module("processor")
    text = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\n"
    assert processor.described(text) == "AMD EPYC, family 25, model 17"


def test_the_processor_has_its_vectors_and_caches():
    with_facts = importlib.import_module("processor").with_facts
    caches = {"l1": 32 << 10, "l2": 1 << 20, "l3": 0, "line": 64, "tlb": 0}
    device = {"caches": caches, "target": {"vector_bits": 256}, "float_vector_width": 16}
    assert with_facts("X", device) == "X; 256-bit vectors; caches 32 KiB, 1 MiB"
    silent = device | {"target": {"vector_bits": 0}, "caches": caches | {"l3": 32 << 20}}
    assert with_facts("X", silent) == "X; 512-bit vectors; caches 32 KiB, 1 MiB, 32 MiB"
    assert with_facts("X", {"name": "an old file's"}) == "X"


def test_a_system_that_names_no_processor(monkeypatch):
    processor = importlib.import_module("processor")
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    assert processor.described("") == "arm64"


def record(shape, ours, peak):
    return {
        "shape": shape, "dtype": "float32", "seconds": {"pyclmm": 1.0, "numpy": 2.0},
        "gflops": {"pyclmm": ours}, "peak_gflops": peak,
    }  # fmt: skip


def test_the_share_of_the_peak_is_of_the_highest_one():
    cpu = importlib.import_module("cpu")
    found = cpu.summary([record("a", 90.0, 200.0), record("b", 120.0, 100.0)])
    assert found["float32 / peak"] == {"share": 0.6, "shape": "b"}
    assert found["float32 / numpy"] == {"mean": 2.0, "least": 2.0}


def test_small_products_are_those_that_numpy_computes_in_the_time(monkeypatch):
    cpu = importlib.import_module("cpu")
    found = []

    def timed(call):
        found.append(np.shape(call()))
        return {0: 1e-7, 1: 1e-3}.get(len(set(found)) - 1, 5e-5)  # too fast, too slow, then right

    monkeypatch.setattr(cpu, "timed", timed)
    pairs = {name: (a, b) for name, a, b in cpu.small(7, 4)}
    assert [*pairs][:3] == ["64x64x64", "128x128x128", "1000 of 32x32x32"]
    assert pairs["1000 of 32x32x32"][0].shape == (1000, 32, 32)
    assert len(pairs) == 7
    assert len(set(found)) == 6, "the first two were drawn again"
    for name, (a, b) in [*pairs.items()][3:]:
        shape, layout = name.split()
        m, n, k = map(int, shape.split("x"))
        assert (a.shape, b.shape) == ((m, k), (k, n))
        assert [x.strides[-1] == 4 for x in (a, b)] == [way == "N" for way in layout]


def test_the_summary_of_small_products():
    cpu = importlib.import_module("cpu")
    seconds = [("64x64x64", 4, 2, 1), ("9x9x9 NT", 8, 4, 1), ("9x9x8 TN", 2, 1, 1)]
    records = [
        {
            "shape": shape,
            "seconds": {"pyclmm": 8 * ours, "usual": 8 * usual, "numpy": 64 * numpys},
            "least": {"pyclmm": ours, "usual": usual, "numpy": numpys},
        }
        for shape, usual, ours, numpys in seconds
    ]
    assert cpu.small_summary(records) == {
        "pyclmm, seconds": {"64x64x64": 4.0, "drawn": 4.0},
        "pyclmm, least": {"64x64x64": 0.5, "drawn": 0.5},
        "usual, seconds": {"64x64x64": 2.0, "drawn": 2.0},
        "usual, least": {"64x64x64": 0.25, "drawn": 0.25},
    }
