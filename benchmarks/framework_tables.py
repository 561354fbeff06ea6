"""Tables of other libraries' arrays, from frameworks-*, torch-block-* and jax-host-* files."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from ratios import spread

RESULTS = Path(__file__).resolve().parent / "results"
RUN = "frameworks-h100-4252.json"
BLOCKS, JAX = ("torch-block-h100.json", "torch-block-h200.json"), "jax-host-h200.json"


def read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return content


def rows() -> list[list[str]]:
    """What was measured, the library's own time, pyclmm's, and how many times as fast that is."""
    content, jax = read(RUN), read(JAX)
    found = [_large(row) for row in content["large"]]
    torch, cupy = content["host"]
    for library, own, ours in (
        ("PyTorch", torch["seconds"]["torch.mm(out=)"], torch["seconds"]["pyclmm.matmul(out=)"]),
        ("CuPy", cupy["seconds"]["cupy.matmul(out=)"], cupy["seconds"]["pyclmm.matmul(out=)"]),
    ):
        found.append(
            _row(f"{library}: the host's part of a call of 64 cubed, `out=`", own * 1e6, ours * 1e6, "us")
        )
    same = "JAX: the same, without `out=`"
    here = content["jax"][0]["seconds"]
    found.append(_row(same, here["jax.numpy.matmul"] * 1e6, here["pyclmm.matmul"] * 1e6, "us"))
    own, ours = (statistics.median(jax["rounds_us"][name]) for name in ("jax.numpy.matmul", "pyclmm.matmul"))
    found.append(_row(f"{same}, on an {jax['device'].split()[-1]}", own, ours, "us"))
    return [*found, *(_block(read(name)) for name in BLOCKS)]


def _block(block: dict[str, Any]) -> list[str]:
    what = 'a transformer block, float32, forward and backward, `installed(precision="high")`'
    took = block["milliseconds"]
    return _row(f"{what}, {block['device'].split()[1]}", took["PyTorch"], took["installed high"], "ms")


def _large(row: dict[str, Any]) -> list[str]:
    name = f'{row["dtype"].removeprefix("torch.")} {row["n"]} cubed, `precision="high"` (`{row["kernel"]}`)'
    return _row(name, row["seconds"]["torch.mm"] * 1e3, row["seconds"]["auto"] * 1e3, "ms")


def _row(name: str, own: float, ours: float, unit: str) -> list[str]:
    return [name, f"{own:.3g} {unit}", f"{ours:.3g} {unit}", f"{own / ours:.2f}"]


def note() -> str:
    """The device, and the summary of the drawn products."""
    content, blocks = read(RUN), [read(name) for name in BLOCKS]
    exact = [block["loss_difference_from_float64"] for block in blocks]
    ours, own = (max(block[side] for block in exact) for side in ("installed high", "PyTorch"))
    return (
        f"{content['device']}, driver {blocks[0]['driver']}, PyTorch {content['torch']}, {content['date']}. "
        'Drawn products of float32 "highest", both sides in a CUDA graph, beside PyTorch (geometric mean, '
        f"tenth percentile, worst): {_drawn(content)}. The block's losses over 100 steps differ from a "
        f"float64 run's by {ours:.1e} at most, those of PyTorch's own by {own:.1e}."
    )


def _drawn(content: dict[str, Any]) -> str:
    ratios = [r["seconds"]["torch.matmul"] / r["seconds"]["pyclmm.matmul"] for r in content["graphs"]]
    mean, tenth, least = spread(ratios)
    return f"{mean:.2f}, {tenth:.2f}, {least:.2f} of {len(ratios)} (seed {content['seed']})"


def first_screen() -> str:
    """One number for the README: float32 "high" on PyTorch's tensors."""
    content = read(RUN)
    row = next(r for r in content["large"] if (r["dtype"], r["n"]) == ("torch.float32", 8192))
    ratio = row["seconds"]["torch.mm"] / row["seconds"]["auto"]
    where = f"{content['device']}, {content['date']}"
    return f'float32 `precision="high"` at 8192 cubed: {ratio:.2f} x torch.mm ({where})'
