"""benchmarks/peers.py finds a peer's best time, and the pages' tables are made with it."""

import json
import re
from pathlib import Path

import pytest

from benchmarks import peers
from tests.support.processes import python

ROOT = Path(__file__).parents[2]
ABOUT = {"device": "some device"}


def units_row(seconds, dtype="float32", peer="float32", layout="NN", shape=(64, 64, 64)):
    return {"dtype": dtype, "peer": peer, "layout": layout, "shape": list(shape), "cublas_seconds": seconds}


def gpu_row(seconds, layout="NN", shape=(1, 64, 64, 64)):
    return {"layout": layout, "shape": list(shape), "seconds": {"auto": 1.0, "cublas": seconds}}


def lt_row(operation, layout, seconds, torch_seconds):
    about = {"operation": operation, "layout": layout, "shape": [64] * 3}
    return about | {"seconds": seconds, "torch_seconds": torch_seconds}


@pytest.fixture
def folder(tmp_path):
    """Results of several runs."""
    write = {
        "a-matrix-units.json": {"rows": [units_row(5.0), units_row(4.0), units_row(3.0, layout="TN")]},
        "b-float32.json": {"dtype": "float32", "rows": [gpu_row(4.5), gpu_row(2.0, shape=(3, 64, 64, 64))]},
        "c-ladder.json": {"n": 64, "seconds": {"naive": 0.1, "cuBLAS float32": 3.5, "cuBLAS TF32": 0.5}},
        "d-cublaslt.json": {"rows": [lt_row("int8", "any", 3.0, 4.0), lt_row("TF32", "NN", 0.4, 0.3)]},
        "other.json": {"rows": [units_row(0.001)]},
    }
    for name, content in write.items():
        (tmp_path / name).write_text(json.dumps(ABOUT | content))
    elsewhere = {"device": "another device", "rows": [units_row(1.0)]}
    (tmp_path / "e-matrix-units.json").write_text(json.dumps(elsewhere))
    return tmp_path


def of(operation, layout="NN", shape=(64, 64, 64)):
    return peers.Product.of(operation, layout, shape)


@pytest.mark.parametrize(
    ("operation", "layout", "shape", "seconds", "source"),
    [
        ("float32", "NN", (64, 64, 64), 3.5, "c-ladder.json"),
        ("float32", "TN", (64, 64, 64), 3.0, "a-matrix-units.json"),
        ("float32", "NN", (3, 64, 64, 64), 2.0, "b-float32.json"),
        ("TF32", "NN", (64, 64, 64), 0.3, "d-cublaslt.json"),  # through PyTorch
        ("int8", "NT", (64, 64, 64), 3.0, "d-cublaslt.json"),  # at its best algorithm
    ],
)
def test_the_best_of_all_runs_on_the_device_counts(folder, operation, layout, shape, seconds, source):
    found, product = peers.read(folder), of(operation, layout, shape)
    assert found.seconds("some device", product) == seconds
    assert found.best["some device", product].source == source


def test_other_devices_and_layouts_are_apart(folder):
    found = peers.read(folder)
    assert found.seconds("another device", of("float32")) == 1.0
    assert found.fastest("some device", of("float32")) == 3.0
    assert found.fastest("some device", of("TF32")) == 0.3
    with pytest.raises(KeyError):
        found.seconds("some device", of("float32", "NT"))


def test_rows_of_one_run_are_compared_alone():
    rows = [units_row(5.0), units_row(4.0)]
    found = peers.of_run(ABOUT | {"rows": rows}, "*-matrix-units.json")
    assert found.seconds("some device", of("float32")) == 4.0


def test_a_stack_of_one_is_a_product():
    assert of("float32", shape=(1, 64, 64, 64)) == of("float32")


def test_int8_has_one_layout():
    assert of("int8", "NN") == of("int8", "NT")


@pytest.mark.parametrize(
    ("row", "operation", "flops"),
    [
        (units_row(1, "float32", "tf32"), "TF32", 2 * 64**3),
        (units_row(1, "complex64", "float32"), "complex64", 8 * 64**3),
        (units_row(1, "complex64", "tf32"), "complex64 TF32", 8 * 64**3),
        (units_row(1, "float16", "float16", shape=(5, 64, 64, 64)), "float16", 10 * 64**3),
    ],
)
def test_what_the_peer_computed_beside_a_row(row, operation, flops):
    product = peers.of_units_row(row)
    assert product.operation == operation
    assert product.flops == flops


def test_the_files_of_results_are_read():
    """Each has a time of cuBLAS that no other file has."""
    sources = {"h200-matrix-units.json", "h200-float32.json", "h200-peers.json"}
    assert {best.source for best in peers.read().best.values()} >= sources


def test_the_pages_have_the_tables_of_the_results():
    done = python("benchmarks/readme.py", "--check", cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_speed_times_time_is_the_work_in_the_bench_table():
    text = (ROOT / "docs/measured.md").read_text(encoding="utf-8")
    table = text.partition("<!-- bench -->\n")[2].partition("<!-- end bench -->")[0]
    m, n, k = map(int, re.match(r"(\d+) x (\d+) x (\d+) float32", table).groups())
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 7
    for _, least, median, most, gflops, *_ in rows:
        assert float(gflops) * 1e9 * float(median) * 1e-3 == pytest.approx(2 * m * n * k, rel=0.015)
        assert float(least) <= float(median) <= float(most)
