"""Judges the estimates against times of survey.py: how far off they are, and what the choice by them costs.

    python benchmarks/estimates.py SURVEY.json [...] [--rates NAME] [--plot FILE]

Needs no device: DeviceInfo of the surveyed one is in the file. A pick is the kernel and configuration with
the least estimate of all that were timed. The picture has one dot for each product: the pick's estimate
against its time. A file of tuned.py has the device's rates by name.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from products import Product
from survey import config_from, device_from

from pyclmm.kernels import kernel_named
from pyclmm.kernels.config import TileConfig
from pyclmm.kernels.device import DeviceInfo
from pyclmm.kernels.rates import Rates

CLOSE = 1.05  # a pick is right if it takes at most this times the best


@dataclass(frozen=True)
class Timed:
    """A candidate of a product: its estimate and its measured time in seconds."""

    kernel: str
    config: TileConfig
    estimate: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.kernel} {self.config} {self.seconds * 1e6:.1f} us"


@dataclass(frozen=True)
class Judged:
    """A product with all its candidates."""

    product: Product
    candidates: tuple[Timed, ...]
    peer: float

    @property
    def pick(self) -> Timed:
        return min(self.candidates, key=lambda one: one.estimate)

    @property
    def best(self) -> Timed:
        return min(self.candidates, key=lambda one: one.seconds)

    @property
    def loss(self) -> float:
        """The pick's time over the best time."""
        return self.pick.seconds / self.best.seconds

    @property
    def error(self) -> float:
        """|log(estimate / measured)| of the pick."""
        return abs(math.log(self.pick.estimate / self.pick.seconds))


def judged(path: Path, rates: str | None = None) -> Iterator[Judged]:
    """The products of a survey's file, by this version's rates or by those that the file calls *rates*."""
    content = json.loads(path.read_text(encoding="utf-8"))
    device = device_from(content["device"])
    if rates is not None:
        device = replace(device, user_rates=Rates(**content["rates"][rates]))
    for row in content["rows"]:
        product = Product(row["kind"], tuple(row["shape"]), row["layout"])
        timed = tuple(_timed(product, candidate, device) for candidate in row["candidates"])
        yield Judged(product, timed, row.get("cublas_seconds", math.nan))


def _timed(product: Product, candidate: dict[str, Any], device: DeviceInfo) -> Timed:
    config = config_from(candidate["config"])
    family = kernel_named(candidate["kernel"])
    estimate = family.estimate(product.problem, config, device)
    return Timed(family.name, config, estimate, candidate["seconds"])


def summary(products: Sequence[Judged]) -> str:
    """A line for each kind and one for all."""
    lines = [f"{'':10} {'products':>8} {'error':>6} {'all':>6} {'right':>6} {'loss':>6}"]
    kinds = dict.fromkeys(one.product.kind for one in products)
    groups = {kind: [one for one in products if one.product.kind == kind] for kind in kinds}
    for kind, those in {**groups, "all": list(products)}.items():
        every = [abs(math.log(c.estimate / c.seconds)) for one in those for c in one.candidates]
        right = sum(one.loss <= CLOSE for one in those) / len(those)
        loss = statistics.geometric_mean([one.loss for one in those])
        error = statistics.median(one.error for one in those)
        lines.append(
            f"{kind:10} {len(those):8} {error:6.3f} {statistics.median(every):6.3f} {right:6.2f} {loss:6.3f}"
        )
    return "\n".join(lines)


def plot(products: Sequence[Judged], path: Path) -> None:
    """Estimate against time, one dot for each product."""
    import matplotlib as mpl  # noqa: PLC0415  an extra

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(7, 7), layout="constrained")
    for kind in dict.fromkeys(one.product.kind for one in products):
        picks = [one.pick for one in products if one.product.kind == kind]
        axes.loglog([p.seconds * 1e6 for p in picks], [p.estimate * 1e6 for p in picks], ".", label=kind)
    ends = [min(one.pick.seconds for one in products) * 1e6, max(one.pick.seconds for one in products) * 1e6]
    axes.loglog(ends, ends, "k-", linewidth=0.8, label="right")
    for factor in (math.exp(-0.15), math.exp(0.15)):
        axes.loglog(ends, [end * factor for end in ends], "k:", linewidth=0.8)
    axes.set(
        xlabel="measured, us",
        ylabel="estimated, us",
        title="The chosen kernel (dotted: 15 %)",
    )
    axes.legend()
    axes.grid(visible=True, which="both", alpha=0.2)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("surveys", type=Path, nargs="+")
    parser.add_argument("--rates", help="of a file of tuned.py: datasheet, shipped or tuned")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    products = [one for path in options.surveys for one in judged(path, options.rates)]
    print(
        f"error: median |log(estimate / measured)| of the picks; all: of all candidates; right: picks within"
        f" {CLOSE - 1:.0%} of the best; loss: geometric mean of the pick's time over the best"
    )
    print(summary(products))
    print("worst:")
    for one in sorted(products, key=lambda one: -one.loss)[:8]:
        print(f"{one.loss:5.2f} {one.product}: {one.pick}, best {one.best}")
    if options.plot:
        plot(products, options.plot)


if __name__ == "__main__":
    main()
