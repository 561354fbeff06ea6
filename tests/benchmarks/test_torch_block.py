"""benchmarks/torch_block.py on the CPU, small: where nothing is replaced, all ways learn the same."""

import json

import pytest

from tests.support.scripts import script

SMALL = [
    *("--device", "cpu", "--width", "8", "--heads", "2", "--inner", "16", "--rows", "2", "--tokens", "4"),
    *("--rounds", "3", "--steps", "1", "--pause", "0"),
]


@pytest.fixture(scope="module")
def benchmark():
    pytest.importorskip("torch", reason="needs torch")
    return script("benchmarks/torch_block.py")


def test_what_is_measured_goes_into_the_json(benchmark, tmp_path, capsys):
    path = tmp_path / "block.json"
    benchmark.main([*SMALL, "--json", str(path)])
    found = json.loads(path.read_text(encoding="utf-8"))
    names = ["PyTorch", "installed high", "PyTorch TF32"]
    assert [
        line.partition(":")[0] for line in capsys.readouterr().out.splitlines() if "ms a step" in line
    ] == names
    assert list(found["milliseconds"]) == names
    assert all(len(found["rounds_ms"][name]) == 3 for name in names)
    assert found["milliseconds"]["PyTorch"] == sorted(found["rounds_ms"]["PyTorch"])[1]
    assert found["loss_difference"] == dict.fromkeys(names, 0.0)
    first, last = found["losses"]["PyTorch"]
    assert last < first


def test_the_difference_is_the_largest_of_all_steps(benchmark):
    assert benchmark.difference([2.0, 1.0, 4.0], [2.0, 1.5, 4.1]) == 0.5
