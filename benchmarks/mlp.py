"""Times a step of training a perceptron (examples/mlp) beside PyTorch's ways, in turn, in one run.

    python -m benchmarks.mlp [--hidden 128 1024] [--device NAME] [--json FILE] [--plot FILE] [--limit SECONDS]

The perceptron is 784-h-h-h-10 with batches of 32. Sides: `layers` with float32 and, on a GPU, float16
operands; `fused` where it can run; PyTorch eager, compiled (torch.compile, max-autotune, autocast, as in
cuda-mnist), and with the whole step in one CUDA graph. All have the pictures on the device and read batches
there, by their indexes. A sample is the wall time of many steps until the device is idle, divided by their
number. Each round runs every side, beginning with another one; a side's time is the median of its rounds.

On a CPU, the threads of PyTorch and of the OpenCL driver disturb each other in one process: run with
--only layers fused and with --only eager in turn.

torch.compile takes long, so the compiled side is left out where it would exceed --limit, and the rows say so.
--draw FILE only draws the picture of a JSON file.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

import pyclmm
from examples.mlp import compare
from examples.mlp.__main__ import queue_for
from examples.mlp.checkpoint import Settings
from examples.mlp.data import Pictures
from examples.mlp.model import FusedRefused, Model, initial
from examples.mlp.train import new_model
from pyclmm.opencl.clock import elapsed

BATCH, INPUTS, CLASSES, PICTURES = 32, 784, 10, 8192
GPU_SIZES, CPU_SIZES = (
    [128, 1024, 4096, 256, 512, 2048],
    [128, 1024],
)  # in the order in which they are measured
ROUNDS, SAMPLE_SECONDS = 5, 0.15
COMPILE_SECONDS = 45  # a first guess of what torch.compile with max-autotune takes
Train = Callable[[int], object]  # trains so many steps and waits for their end
Content = dict[str, Any]


def pictures() -> Pictures:
    """Random pictures: the time of a step does not depend on what they show."""
    rng = np.random.default_rng(0)
    images = rng.random((PICTURES, INPUTS), dtype=np.float32)
    return Pictures(images, rng.integers(0, CLASSES, PICTURES).astype(np.int32))


class Sides:
    """What is timed at one hidden size, and why the others are not."""

    def __init__(
        self, queue: cl.CommandQueue, hidden: int, learnt: Pictures, only: Sequence[str] = ()
    ) -> None:
        self.queue, self.learnt, self.only = queue, learnt, only
        self.hidden = hidden
        self.on_gpu = bool(queue.device.type & cl.device_type.GPU)
        self.parameters = initial((INPUTS, hidden, hidden, hidden, CLASSES), 1)
        self.order = np.random.default_rng(1).permutation(PICTURES).astype(np.int32)
        self.train: dict[str, Train] = {}
        self.refused: dict[str, str] = {}

    def wanted(self, name: str) -> bool:
        return not self.only or name.split(maxsplit=1)[0] in self.only

    def add_own(self) -> None:
        order = cla.to_device(self.queue, self.order)
        losses = cla.zeros(self.queue, PICTURES // BATCH, np.float32)
        for mode, operands in (("layers", "float32"), ("layers", "float16"), ("fused", "float32")):
            if operands == "float16" and not self.on_gpu:
                continue
            name = f"{mode} {operands}"
            if not self.wanted(name):
                continue
            settings = Settings(mode, operands, (self.hidden,) * 3, BATCH, 0.003)
            try:
                model, _ = new_model(self.queue, settings, self.parameters, self.learnt)
            except FusedRefused as refused:
                self.refused[name] = refused.reason
                continue
            self.train[name] = self._own(model, order, losses)

    def _own(self, model: Model, order: cla.Array, losses: cla.Array) -> Train:
        def train(steps: int) -> None:
            for count in in_epochs(steps):
                model.train(order, 0, count, losses)
            self.queue.finish()

        return train

    def add_peer(self, name: str) -> None:
        if not self.wanted(name):
            return
        try:
            peer = compare.new_peer(
                name, self.parameters, self.learnt, batch=BATCH, learning_rate=0.003, on_gpu=self.on_gpu
            )
        except compare.PeerRefused as refused:
            self.refused[name] = str(refused)
            return
        peer.place(self.order)

        def train(steps: int) -> None:
            for count in in_epochs(steps):
                peer.train(0, count)

        self.train[name] = train


def in_epochs(steps: int) -> Iterator[int]:
    """*steps* as parts of at most an epoch."""
    whole, rest = divmod(steps, PICTURES // BATCH)
    yield from [PICTURES // BATCH] * whole
    if rest:
        yield rest


def timed(sides: dict[str, Train]) -> dict[str, list[float]]:
    """Seconds of a step of each side, from each round."""
    steps = {}
    for name, train in sides.items():
        train(20)  # compiles, and tries kernels
        steps[name] = max(20, round(SAMPLE_SECONDS * 20 / elapsed(partial(train, 20))))
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for turn in range(ROUNDS):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            seconds[name].append(elapsed(partial(sides[name], steps[name])) / steps[name])
    return seconds


def measure(
    queue: cl.CommandQueue, sizes: list[int], limit: float, only: Sequence[str] = ()
) -> list[Content]:
    """A row for each hidden size."""
    start, compiling, learnt, rows = time.perf_counter(), float(COMPILE_SECONDS), pictures(), []
    for hidden in sizes:
        sides = Sides(queue, hidden, learnt, only)
        sides.add_own()
        for name in (*compare.usual(sides.on_gpu), *(["eager float16"] if sides.on_gpu else [])):
            compiled = name.startswith("compiled")
            if compiled and sides.wanted(name) and time.perf_counter() - start + compiling > limit:
                sides.refused[name] = "torch.compile would exceed the limit of time"
                continue
            began = time.perf_counter()
            sides.add_peer(name)
            if compiled and name in sides.train:
                sides.train[name](20)
                compiling = time.perf_counter() - began
        seconds = timed(sides.train)
        row = {"hidden": hidden, "seconds": seconds, "refused": sides.refused}
        rows.append(row)
        say(row)
    return rows


def say(row: Content) -> None:
    print(f"hidden {row['hidden']}")
    for name, seconds in row["seconds"].items():
        spread = f"{min(seconds) * 1e6:.1f} to {max(seconds) * 1e6:.1f}"
        print(f"  {name:18} {statistics.median(seconds) * 1e6:9.1f} us a step ({spread})", flush=True)
    for name, reason in row["refused"].items():
        print(f"  {name:18} not run: {reason}", flush=True)


def draw(content: Content, path: Path) -> None:
    """The time of a step against the hidden size, a line for each side."""
    from matplotlib.figure import Figure  # noqa: PLC0415  a machine that measures need not have it

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    rows = sorted(content["rows"], key=lambda row: int(row["hidden"]))
    sizes = [row["hidden"] for row in rows]
    names = sorted(
        {name for row in rows for name in row["seconds"]}, key=lambda name: (name[:5] == "eager", name)
    )
    for name in names:
        own = name.startswith(("layers", "fused"))
        at = [row for row in rows if name in row["seconds"]]
        axes.plot(
            [sizes.index(row["hidden"]) for row in at],
            [statistics.median(row["seconds"][name]) * 1e6 for row in at],
            "o-" if own else "s--",
            linewidth=2.5 if own else 1.2,
            label=name if own else f"PyTorch {name}",
        )
    axes.set(yscale="log", xlabel="hidden size", ylabel="microseconds a step")
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    axes.grid(True, which="both", alpha=0.25)
    axes.legend(fontsize=8)
    about = f"{content['device']}, driver {content['driver']}, {content['date']}"
    axes.set_title(f"784-h-h-h-10, batch {BATCH}: {about}", fontsize=9)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--hidden", type=int, nargs="+", help="default: 128 to 4096 on a GPU, 128 and 1024 on a CPU"
    )
    parser.add_argument("--device", help="a number or a part of a name")
    parser.add_argument(
        "--only", nargs="+", default=(), help="sides by their first word: layers fused eager compiled graph"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds, after which nothing is compiled")
    parser.add_argument(
        "--draw", type=Path, metavar="FILE", help="draw this JSON to --plot, and measure nothing"
    )
    given = parser.parse_args()
    if given.draw:
        draw(json.loads(given.draw.read_text()), given.plot or given.draw.with_suffix(".png"))
        return
    queue = queue_for(given.device)
    on_gpu = bool(queue.device.type & cl.device_type.GPU)
    content: Content = {
        "device": queue.device.name,
        "driver": queue.device.driver_version,
        "platform": queue.device.platform.name,
        "date": datetime.date.today().isoformat(),
        "host": {"processor": platform.processor(), "numpy": np.__version__, "pyclmm": pyclmm.__version__},
        "batch": BATCH,
        "rows": measure(queue, given.hidden or (GPU_SIZES if on_gpu else CPU_SIZES), given.limit, given.only),
    }
    try:
        content["host"]["torch"] = compare.find_torch().__version__
    except compare.PeerRefused as refused:
        print(refused)
    if given.json:
        given.json.write_text(json.dumps(content, indent=1) + "\n")
    if given.plot:
        draw(content, given.plot)


if __name__ == "__main__":
    main()
