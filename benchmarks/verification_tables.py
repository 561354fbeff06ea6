"""The table of docs/verification.md, from verification-*.json, which benchmarks/verification.py writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
HEAD = ("product", "kernel", "ms", "with `verify=True`", "more time")


def parts() -> list[tuple[str, list[list[str]]]]:
    """Of each file its device with the date, and a row for each product."""
    files = sorted(RESULTS.glob("verification-[!f]*.json"))  # not the flips
    contents = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    return [(_about(content), [_cells(row) for row in content["rows"]]) for content in contents]


def _about(content: dict[str, Any]) -> str:
    return f"{content['device']}, driver {content['driver']}, {content['date'][:10]}:"


def _cells(row: dict[str, Any]) -> list[str]:
    took = row["seconds"]
    name = f'{row["dtype"]} {row["n"]} cubed, "{row["precision"]}"'
    times = (f"{took[side] * 1e3:.3g}" for side in ("plain", "verify"))
    return [name, f"`{row['kernel']}`", *times, f"{row['ratio'] - 1:+.1%}"]
