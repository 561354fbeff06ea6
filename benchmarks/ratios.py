"""Ratios of times in a few numbers: geometric mean, tenth percentile and least."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence


def spread(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean, tenth percentile and least of two ratios or more."""
    tenth = statistics.quantiles(ratios, n=10, method="inclusive")[0]
    return statistics.geometric_mean(ratios), tenth, min(ratios)


def by_kind(ratios: Iterable[tuple[str, float]]) -> str:
    """A table with a line for each kind, of (kind, ratio)."""
    found: dict[str, list[float]] = {}
    for kind, ratio in ratios:
        found.setdefault(kind, []).append(ratio)
    lines = [f"{'':10} {'products':>8} {'mean':>6} {'tenth':>6} {'least':>6}"]
    for kind, each in found.items():
        mean, tenth, least = spread(each if len(each) > 1 else each * 2)
        lines.append(f"{kind:10} {len(each):8} {mean:6.2f} {tenth:6.2f} {least:6.2f}")
    return "\n".join(lines)
