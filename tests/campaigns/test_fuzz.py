"""Fuzzing: the search itself works, and calls that it once found to fail are right now."""

import json
import random
from pathlib import Path

import pytest

from tests.campaigns import fuzz
from tests.support.calls import draw_matmul

FAILED = sorted((Path(__file__).parent / "failed_calls").glob("*.json"))


@pytest.mark.parametrize("path", FAILED, ids=lambda path: path.stem)
def test_calls_that_once_failed_are_right(path, queue):
    fuzz.judge(json.loads(path.read_text()), queue)


def test_a_search_with_a_seed_draws_the_same_calls():
    first, again = (fuzz.draw(random.Random(7)) for _ in range(2))
    assert first == again
    assert json.loads(json.dumps(first)) == first


def test_a_failing_call_is_kept_and_fails_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fuzz, "judge", lambda call, queue: (_ for _ in ()).throw(AssertionError("wrong")))
    monkeypatch.setattr(fuzz, "draw", lambda r, kinds: draw_matmul(r, "host"))
    assert fuzz.main(["--seconds", "0.01", "--seed", "3", "--keep", str(tmp_path)]) > 0
    assert "seed 3" in capsys.readouterr().out
    kept = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    assert kept[0]["name"] == "matmul"


def test_a_wrong_product_is_found(queue, monkeypatch):
    """A result with one wrong element fails."""
    right = draw_matmul(random.Random(0), "host", ["float32"])
    right |= {
        "a": {"shape": [3, 4], "dtype": "float32", "layout": "C"},
        "b": {"shape": [4, 5], "dtype": "float32", "layout": "C"},
        "dtype": None,
        "out": None,
    }
    fuzz.judge(right, queue)

    import pyclmm  # noqa: PLC0415

    product = pyclmm.matmul

    def wrong(*args, **kwargs):
        result = product(*args, **kwargs)
        result[1, 1] *= 1.001
        return result

    monkeypatch.setattr(pyclmm, "matmul", wrong)
    with pytest.raises(AssertionError, match="error ratio"):
        fuzz.judge(right, queue)


def test_a_search_of_a_few_kinds_is_recorded(tmp_path, monkeypatch):
    """It ends after a number of calls, which share few programs, and the record names what was run."""
    drawn = []
    monkeypatch.setattr(fuzz, "judge", lambda call, queue: drawn.append(call) or len(drawn) % 2)
    record = tmp_path / "search.json"
    assert fuzz.main(["--calls", "40", "--kinds", "2", "--seed", "3", "--record", str(record)]) == 0
    types = {
        (call["name"], call["a"]["dtype"], call.get("b", call["a"])["dtype"], call["kernel"])
        for call in drawn
    }
    assert len(types) <= 2 < len({str(call) for call in drawn})
    found = json.loads(record.read_text())
    assert {n: found[n] for n in ("seed", "kinds", "calls", "products", "refused", "failed")} == {
        "seed": 3,
        "kinds": 2,
        "calls": 40,
        "products": 20,
        "refused": 20,
        "failed": 0,
    }
    assert found["device"]["name"]
