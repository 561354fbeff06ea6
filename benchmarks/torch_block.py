"""Times a transformer block that learns in float32: PyTorch's own products, installed(), PyTorch's TF32.

    python benchmarks/torch_block.py [--device cuda] [--precision high] [--rounds 15] [--steps 10]
                                     [--json FILE]

768 wide, 12 heads, 3072 in the middle, 8 x 1024 tokens (each an option). A step is forward and backward. The
ways take turns, with a pause before each, and a time is the median of all rounds. Then each way learns for
100 steps from the same seed, and the losses are compared. The JSON has every round, each shape's choice with
its reason, and the largest relative difference of the losses from those of PyTorch's own float32 products
and from those of a float64 run.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import logging
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from cuda_graph import elapsed

import pyclmm.torch
from pyclmm.opencl import clock

TRAINED = 100
_WARM = 3  # steps before a round is timed


class Log(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Block(torch.nn.Module):  # type: ignore[misc]
    """A transformer block as it is fast in PyTorch: one product for q, k and v, and fused attention.

    torch.nn.TransformerEncoderLayer copies its input four times more.
    """

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.inward, self.outward = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.wide, self.narrow = torch.nn.Linear(width, inner), torch.nn.Linear(inner, width)

    def forward(self, x: Any) -> Any:
        """*x*: rows x tokens x width; the result has its shape."""
        parts = self.inward(self.before(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.outward(seen.transpose(1, 2).flatten(2))
        return x + self.narrow(torch.nn.functional.gelu(self.wide(self.between(x))))


def block_of(args: argparse.Namespace) -> Any:
    """The block, with its start from seed 0, on the device."""
    torch.manual_seed(0)
    return Block(args.width, args.heads, args.inner).to(args.device)


def batch_of(args: argparse.Namespace) -> tuple[Any, Any]:
    """Tokens and what the block is to make of them."""
    torch.manual_seed(1)
    shape = (2, args.rows, args.tokens, args.width)
    x, wanted = torch.randn(shape, device=args.device)
    return x, wanted


@contextlib.contextmanager
def tf32() -> Iterator[None]:
    """PyTorch's float32 products by TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def ways_of(precision: str) -> dict[str, Callable[[], Any]]:
    """Each way's block, by its name."""
    return {
        "PyTorch": contextlib.nullcontext,
        f"installed {precision}": lambda: pyclmm.torch.installed(precision=precision),
        "PyTorch TF32": tf32,
    }


def step(model: Any, x: Any, wanted: Any) -> Any:
    """Forward and backward. Returns the loss."""
    model.zero_grad(set_to_none=True)
    loss = torch.nn.functional.mse_loss(model(x), wanted)
    loss.backward()
    return loss.detach()


def seconds(call: Callable[[], object], calls: int, device: str) -> float:
    """Of one call, on the device's clock on a GPU."""
    for _ in range(_WARM):
        call()
    if not device.startswith("cuda"):
        return clock.elapsed(call, calls)
    return elapsed(call, calls)


def timed(args: argparse.Namespace) -> dict[str, list[float]]:
    """The seconds of a step in each round, by way."""
    model, (x, wanted) = block_of(args), batch_of(args)
    ways = ways_of(args.precision)
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(args.rounds):
        for name, block in ways.items():
            time.sleep(args.pause)
            with block():
                found[name].append(seconds(lambda: step(model, x, wanted), args.steps, args.device))
    return found


def trained(args: argparse.Namespace, block: Callable[[], Any], dtype: Any = torch.float32) -> list[float]:
    """The losses of TRAINED steps."""
    model, (x, wanted) = block_of(args).to(dtype), (each.to(dtype) for each in batch_of(args))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    losses = []
    with block():
        for _ in range(TRAINED):
            losses.append(step(model, x, wanted))
            optimizer.step()
    return [float(loss) for loss in losses]


def difference(losses: list[float], others: list[float]) -> float:
    """The largest relative difference of two runs' losses."""
    return max(abs(one - other) / abs(one) for one, other in zip(losses, others, strict=True))


def about(args: argparse.Namespace) -> dict[str, Any]:
    """What was measured, where and when."""
    is_gpu = args.device.startswith("cuda")
    device = torch.cuda.get_device_name(args.device) if is_gpu else "CPU"
    driver = next((d.driver_version for d in pyclmm.devices() if d.vendor == "nvidia" or not is_gpu), "")
    sizes = {name: getattr(args, name) for name in ("width", "heads", "inner", "rows", "tokens")}
    return {
        "device": device,
        "driver": driver,
        "torch": torch.__version__,
        "pyclmm": pyclmm.__version__,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "sizes": sizes,
        "steps": args.steps,
    }


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """All that the JSON has."""
    log, logger = Log(), logging.getLogger("pyclmm.torch")
    logger.addHandler(log)
    logger.setLevel(logging.INFO)
    times = timed(args)
    losses = {name: trained(args, block) for name, block in ways_of(args.precision).items()}
    exact = trained(args, contextlib.nullcontext, torch.float64)
    logger.removeHandler(log)
    first = next(iter(times))
    return about(args) | {
        "milliseconds": {name: statistics.median(found) * 1e3 for name, found in times.items()},
        "speedup": {
            name: statistics.median(times[first]) / statistics.median(found) for name, found in times.items()
        },
        "rounds_ms": {name: [each * 1e3 for each in found] for name, found in times.items()},
        "loss_difference": {name: difference(losses[first], found) for name, found in losses.items()},
        "loss_difference_from_float64": {name: difference(exact, found) for name, found in losses.items()},
        "losses": {name: [found[0], found[-1]] for name, found in losses.items()},
        "choices": log.lines,
    }


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="high", choices=["highest", "high", "medium"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--pause", type=float, default=0.2, help="seconds before each timing")
    for name, default in (("width", 768), ("heads", 12), ("inner", 3072), ("rows", 8), ("tokens", 1024)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in (("rounds", 15), ("steps", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    args = parsed(arguments)
    found = measured(args)
    for name, milliseconds in found["milliseconds"].items():
        print(
            f"{name}: {milliseconds:.3f} ms a step, {found['speedup'][name]:.2f} times PyTorch's speed, "
            f"losses differ by {found['loss_difference'][name]:.1e}, "
            f"from float64's by {found['loss_difference_from_float64'][name]:.1e}"
        )
    print("\n".join(found["choices"]))
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
