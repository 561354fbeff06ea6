"""pyclmm.torch: a perceptron and a small transformer learn in float32, as they are and inside installed().

    python examples/torch_training.py                    on the CPU, small: nothing changes there, to the bit
    python examples/torch_training.py --device cuda      the same on a GPU
    python examples/torch_training.py --device cuda --large --precision high

Both runs of a model begin with the same seed. Their last losses and the seconds of a step are printed.
"""

import argparse
import contextlib
import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

import pyclmm.torch

Made = tuple[Any, Any, Any]  # a model, a batch, its classes

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", default="cpu", help="cpu or cuda")
parser.add_argument("--large", action="store_true", help="hidden 4096; 768 wide, 12 heads, 8 x 1024 tokens")
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--precision", default="high", choices=["highest", "high", "medium"])
parser.add_argument("--reproducible", action="store_true", help="the same bits on every GPU")
parser.add_argument("--explain", action="store_true", help="say for each shape who computes it, and why")


def perceptron(large: bool) -> Made:
    """784-h-h-h-10, and a batch: pictures and their classes."""
    h, batch = (4096, 4096) if large else (64, 32)
    layers = [nn.Linear(784, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(h, 10)), torch.randn(batch, 784), torch.randint(10, (batch,))


def transformer(large: bool) -> Made:
    """One layer and a classifier of each token, and a batch: rows of tokens and the classes."""
    width, heads, inner, rows, tokens = (768, 12, 3072, 8, 1024) if large else (32, 4, 64, 2, 16)
    layer = nn.TransformerEncoderLayer(
        width, heads, inner, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    model = nn.Sequential(layer, nn.Linear(width, 10), nn.Flatten(0, 1))
    return model, torch.randn(rows, tokens, width), torch.randint(10, (rows * tokens,))


def learned(
    make: Callable[[bool], Made], args: argparse.Namespace, block: AbstractContextManager[None]
) -> tuple[Any, float]:
    """The losses of all steps, and the seconds of one after the first few."""
    torch.manual_seed(0)
    model, x, classes = (part.to(args.device) for part in make(args.large))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    losses, start = [], 0.0
    warm = args.steps // 4  # the first steps choose and compile kernels
    with block:
        for step in range(args.steps):
            if step == warm:
                wait(args.device)
                start = time.perf_counter()
            loss = nn.functional.cross_entropy(model(x), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        wait(args.device)
    return torch.stack(losses).cpu(), (time.perf_counter() - start) / (args.steps - warm)


def wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def main() -> None:
    args = parser.parse_args()
    if args.explain:
        logging.basicConfig(format="%(message)s")
        logging.getLogger("pyclmm.torch").setLevel(logging.INFO)
    for make in (perceptron, transformer):
        plain, plain_seconds = learned(make, args, contextlib.nullcontext())
        block = pyclmm.torch.installed(precision=args.precision, reproducible=args.reproducible)
        ours, our_seconds = learned(make, args, block)
        print(f"{make.__name__}: loss {plain[0]:.6f} at first; after {args.steps} steps")
        print(f"  {plain[-1]:.6f} by PyTorch, {plain_seconds * 1e3:.2f} ms a step")
        print(f"  {ours[-1]:.6f} installed, {our_seconds * 1e3:.2f} ms a step")
        assert plain[-1] < plain[0]
        near = 1e-2 if args.precision == "medium" else 1e-4
        assert torch.allclose(plain, ours, rtol=0 if args.device == "cpu" else near, atol=0), (plain, ours)


if __name__ == "__main__":
    main()
