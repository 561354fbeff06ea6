"""benchmarks/versions.py: two workers take turns, and its file holds their times and errors."""

import ast
import json
from pathlib import Path

import pytest

from tests.support.processes import python
from tests.support.scripts import script

pytestmark = pytest.mark.slow  # no function of pyclmm: a benchmark

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "versions.py"


@pytest.fixture(scope="module")
def versions():
    return script("benchmarks/versions.py")


def run(*arguments, file=None):
    """Exit status and file of a run: of this tree against itself unless *arguments* name trees."""
    done = python(SCRIPT, *arguments, *(["--json", file] if file else []), timeout=300)
    return done, json.loads(file.read_text()) if file and file.exists() else None


@pytest.mark.parametrize(("list_name", "jobs"), [("gpu", 2), ("cpu", 0)])
def test_the_tree_against_itself(tmp_path, list_name, jobs):
    small = ("--types", "float32", "--shapes", "9x7x5,2x3x4x5", "--only", "T.*(9|2)x", "--rounds", "2")
    done, content = run(
        ROOT, ROOT, "--products", list_name, "--jobs", jobs, *small, file=tmp_path / "versions.json"
    )
    assert done.returncode == 0, done.stderr
    names = ["float32 NT 9x7x5", "float32 TN 9x7x5", "float32 NT 2x3x4x5", "float32 TN 2x3x4x5"]
    assert [row["name"] for row in content["rows"]] == names
    assert content["left_out"] == 0
    assert content["versions"]["old"] == content["versions"]["new"]
    for row in content["rows"]:
        assert row["bits_equal"]
        assert row["right"]
        assert row["ratio"] == pytest.approx(row["seconds"]["old"] / row["seconds"]["new"])
        assert len(row["ratio_by_round"]) == 2
        assert row["old"]["kernel"] == row["new"]["kernel"]
    found = content["summary"]["float32"]
    assert found["bits_equal"] == found["right"] == found["products"] == 4
    assert found["fastest_least"] <= found["fastest_mean"]
    assert found["least"] == pytest.approx(min(row["ratio"] for row in content["rows"]), abs=1e-4)


# A package that wraps the real one and adds one to every float32 product.
FAULTY = """
import sys
from pathlib import Path
here = Path(__file__).parent
__path__.insert(0, {real!r})
source = Path({real!r}, "__init__.py").read_text()
exec(compile(source, {real!r}, "exec"))
right = matmul
def matmul(*operands, **options):
    return right(*operands, **options) + 1
"""


def test_a_wrong_version_is_seen(tmp_path):
    (tmp_path / "pyclmm").mkdir()
    (tmp_path / "cl").symlink_to(ROOT / "cl")
    (tmp_path / "pyclmm" / "__init__.py").write_text(FAULTY.format(real=str(ROOT / "pyclmm")))
    options = ("--types", "float32", "--shapes", "9x7x5", "--only", "NN", "--rounds", "1")
    done, content = run(ROOT, tmp_path, "--products", "cpu", *options, file=tmp_path / "versions.json")
    (row,) = content["rows"]
    assert (row["bits_equal"], row["right"], done.returncode) == (False, False, 1)
    assert row["error"]["old"] < 1e-5 < row["error"]["new"]
    assert "OTHER BITS" in done.stdout
    assert content["summary"]["float32"]["right"] == 0


def test_a_worker_that_dies_loses_one_product(versions, tmp_path, monkeypatch):
    worker = tmp_path / "worker.py"
    worker.write_text("import sys; sys.stdin.readline(); sys.exit(3)")
    monkeypatch.setattr(versions, "WORKER", worker)
    pair = [versions.Side(tmp_path, None, "") for _ in "ab"]
    for product in versions.products(True, ["float32"], [(1, 2, 3)], "")[:2]:
        row = versions.measured(pair, product, host=False, rounds=1)
        assert row["name"] == str(product)
        assert "the worker ended with 3" in row["failed"]
    assert versions.summary([row]) == {"float32": {"products": 1, "failed": 1}}


def constants(script):
    """The shapes that a script defines. It is parsed, as importing it needs PyTorch or CLBlast."""
    found = {}
    for node in ast.parse((SCRIPT.parent / script).read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("CUBES", "SHAPES", "OTHERS"):
            exec(compile(ast.Module([node], []), script, "exec"), found)
    return found


def test_the_lists_are_those_of_the_other_benchmarks(versions):
    own = [shape if len(shape) == 4 else (1, *shape) for shape in versions.GPU_SHAPES]
    assert own == constants("gpu.py")["SHAPES"]
    cpu = constants("cpu.py")
    assert versions.CPU_SHAPES[:-1] == (*((n, n, n) for n in cpu["CUBES"]), *cpu["OTHERS"])
    todo = versions.products(True, [], None, "")
    assert len(todo) == len(set(todo)) == 6 * 48
    assert [str(x) for x in versions.products(True, [], None, "medium TN 64x")] == [
        "medium TN 64x512x512x512"
    ]
    assert len(versions.products(False, [], None, "")) == 4 * 18


def test_products_without_time_left_are_counted(tmp_path):
    options = ("--products", "cpu", "--shapes", "9x7x5", "--types", "float32", "--budget", "0")
    done, _ = run(ROOT, ROOT, *options)
    assert done.returncode == 0
    assert "3 products left out" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nowhere", ROOT), "nowhere has no package pyclmm"),
        ((ROOT, ROOT, "--types", "float33"), "float33: known are"),
        ((ROOT, ROOT, "--shapes", "9x7"), "invalid shapes_of value: '9x7'"),
    ],
)
def test_wrong_arguments_are_named(arguments, says):
    done, _ = run(*arguments)
    assert done.returncode == 2
    assert says in done.stderr
