"""A share of the campaign of verify=: right products raise no alarm, flipped bits are noticed by size."""

import json
import random

import pytest

import pyclmm
from tests.campaigns import verification
from tests.support.spoiled import FaultyTiled, Spoiler, installed

LARGE = 1  # a power of two of the error in limits, above which the row's sum must tell


def test_right_products_raise_no_alarm():
    ends = verification.right_products(random.Random(45), 150, 3)
    assert ends["alarms"] == 0
    assert ends["products"] >= 75


def test_a_wrong_product_is_counted(capsys):
    """The campaign sees what it looks for."""
    with installed(Spoiler()) as spoiler:
        spoiler.element(0, "u1", lambda x: x ^ 0x55)
        spoiler.always = spoiler.waiting.pop()
        ends = verification.right_products(random.Random(4), 6, 1)
    assert ends["alarms"] > 0
    assert "alarm: {" in capsys.readouterr().out


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("where", verification.WHERE)
def test_flips_are_noticed_by_size(where, dtype):
    with FaultyTiled().installed() as faulty, installed(Spoiler()) as spoiler:
        shares = verification.Flips(random.Random(5), spoiler, faulty, dtype).shares(where, 60)
    assert 30 <= sum(share["flipped"] for share in shares) <= 60
    for share in shares:
        if where == "tile" and dtype == "int32":
            continue  # of several elements the highest bits may cancel
        if dtype == "int32" or share["power"] >= LARGE:
            # Of several wrong elements of a row, as a tile makes them, half of the signs may miss some.
            assert share["noticed"] >= share["flipped"] / (2 if where == "tile" else 1)
        if share["power"] < (-5 if where == "tile" else -1) and dtype != "int32":  # 16 errors add up
            assert share["noticed"] == 0


def test_what_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(verification, "FLIPPED", ("int32",))
    ends = {"products": 7, "alarms": 0}
    monkeypatch.setattr(verification, "right_products", lambda r, calls, kinds: ends)
    file = tmp_path / "found.json"
    assert verification.main(["--calls", "7", "--flips", "5", "--seed", "3", "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    assert (found["seed"], found["products"], found["alarms"]) == (3, 7, 0)
    rows = found["rows"]
    assert [row["where"] for row in rows] == list(verification.WHERE)
    assert sum(share["flipped"] for share in rows[0]["shares"]) == 5
    assert pyclmm.finish() is None
