"""Trains a multilayer perceptron on pictures of digits, on any OpenCL device.

    python -m examples.mlp [--data DIR] [--mode auto|layers|fused] [--plot FILE] [--save FILE] ...

The last line is the accuracy on pictures that were not learnt from. Exit codes: 0: success; 2: invalid
arguments or files, or the device cannot do it; 130: Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pyopencl as cl
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

import pyclmm

from . import checkpoint, compare, plots
from . import data as pictures
from .checkpoint import Saved, Settings
from .model import FusedRefused
from .train import Epoch, Trainer

_ERRORS = (
    pictures.DataError,
    checkpoint.CheckpointError,
    pyclmm.PyclmmError,
    FusedRefused,
    compare.PeerRefused,
    plots.PlotRefused,
    OSError,
)


class UsageError(ValueError):
    """An argument has a value with which nothing can be trained."""


def arguments() -> argparse.ArgumentParser:
    """The command line. A setting that is not given is None: that of --resume, or the default, holds then."""
    usual = Settings()
    parser = argparse.ArgumentParser(
        "python -m examples.mlp", description="Train a multilayer perceptron on pictures of digits."
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="MNIST's files; default: scikit-learn's digits, which need `pip install scikit-learn`",
    )
    parser.add_argument("--device", help="a number or a part of a name, as `pyclmm info` lists them")
    parser.add_argument(
        "--mode", choices=("auto", "layers", "fused"), help="default: auto, fused where it can run"
    )
    parser.add_argument("--operands", choices=("float32", "float16"), help=f"default: {usual.operands}")
    parser.add_argument(
        "--hidden",
        type=_positive(int),
        nargs="+",
        metavar="N",
        help=f"sizes of the hidden layers, or one of all; default: {usual.hidden[0]}",
    )
    parser.add_argument(
        "--layers", type=_positive(int), metavar="N", help=f"hidden layers; default: {len(usual.hidden)}"
    )
    parser.add_argument(
        "--batch", type=_positive(int), metavar="N", help=f"pictures of a step; default: {usual.batch}"
    )
    parser.add_argument(
        "--learning-rate", type=_positive(float), metavar="X", help=f"default: {usual.learning_rate}"
    )
    parser.add_argument("--seed", type=_not_negative, metavar="N", help=f"default: {usual.seed}")
    parser.add_argument("--epochs", type=_positive(int), default=10, metavar="N", help="in all; default: 10")
    parser.add_argument(
        "--save", type=Path, metavar="FILE", help="write weights and progress (.npz) after each epoch"
    )
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="go on from a file that --save has written"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="a picture of the losses and of mistakes (.png)"
    )
    parser.add_argument("--compare", action="store_true", help="train the same with PyTorch too")
    return parser


def _positive(kind: type[int] | type[float]) -> Callable[[str], float]:
    def converted(text: str) -> float:
        value = kind(text)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
        return value

    return converted


def _not_negative(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0; a seed is 0 or more")
    return value


def queue_for(name: str | None) -> cl.CommandQueue:
    """An in-order queue on the device that *name* is a number or a part of the name of."""
    if name is None:
        return pyclmm.default_queue()
    found = [
        record for record in pyclmm.devices() if record.number == name or name.lower() in record.name.lower()
    ]
    if len(found) != 1:
        every = "; ".join(map(str, pyclmm.devices()))
        raise UsageError(f"--device: {name} names {len(found)} devices; name one of these: {every}")
    return cl.CommandQueue(cl.Context([found[0].device]), found[0].device)


def settings_for(given: argparse.Namespace, data: pictures.Data, saved: Saved | None) -> Settings:
    """The settings of this training. Raises UsageError or CheckpointError."""
    options = {name: getattr(given, name, None) for name in asdict(Settings())}
    options["hidden"] = hidden_sizes(given.hidden, given.layers, saved.settings.hidden if saved else None)
    options["data"] = data.digest
    if saved and options["mode"] == "auto":
        options["mode"] = None  # the saved one
    chosen = {name: value for name, value in options.items() if value is not None}
    settings = checkpoint.agreed(saved.settings, chosen) if saved else replace(Settings(), **chosen)
    if settings.mode == "fused" and settings.operands != "float32":
        raise UsageError("--operands float16 is for --mode layers; fused reads float32 pictures")
    if settings.operands != "float32":
        settings = replace(settings, mode="layers")
    if settings.batch > len(data.learnt):
        raise UsageError(
            f"--batch {settings.batch} is more than the {len(data.learnt)} pictures to learn from; take fewer"
        )
    return settings


def hidden_sizes(
    sizes: list[int] | None, layers: int | None, saved: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    """The sizes of --hidden and --layers; None if neither is given. Raises UsageError if they differ."""
    if sizes is None and layers is None:
        return None
    usual = saved or Settings().hidden
    each = tuple(sizes or usual[:1])
    if len(each) == 1:
        return each * (layers or len(usual))
    if layers not in (None, len(each)):
        raise UsageError(
            f"--hidden names {len(each)} sizes and --layers {layers}; name one size, or {layers}"
        )
    return each


def check_writable(option: str, path: Path | None) -> None:
    """Raise UsageError if *path*, of *option*, cannot become a file. Before the training, not after it."""
    if path is None:
        return
    if path.exists() and not path.is_file():
        raise UsageError(f"{option} {path}: it is there, and is no file; give the name of a file")
    if not path.resolve().parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {path.resolve().parent}")


def main(words: Sequence[str] | None = None) -> int:
    """Train as the command line, or *words* in its place, say."""
    parser = arguments()
    given = parser.parse_args(words)
    try:
        run(given, Console(highlight=False, soft_wrap=True))
    except KeyboardInterrupt:
        parser.exit(130, "\nstopped; --save keeps each epoch, --resume goes on from it\n")
    except (*_ERRORS, UsageError) as error:
        parser.exit(2, f"Error: {error}\n")
    return 0


def run(given: argparse.Namespace, console: Console) -> None:
    """Train, and print how it goes."""
    if given.compare:
        compare.find_torch()
    for option, path in (("--save", given.save), ("--plot", given.plot)):
        check_writable(option, path)
    if given.plot:
        plots.check(given.plot)
    data = pictures.digits() if given.data is None else pictures.load(given.data)
    saved = checkpoint.load(given.resume) if given.resume else None
    settings = settings_for(given, data, saved)
    queue = queue_for(given.device)
    trainer = Trainer(queue, settings, data, saved)
    _say_what(console, trainer, data, queue.device)
    for _ in range(len(trainer.losses), given.epochs):
        _say_epoch(console, _with_bar(console, trainer), given.epochs)
        if given.save:
            checkpoint.save(given.save, trainer.saved())
    if given.plot:
        plots.draw(given.plot, trainer.saved(), data, trainer.predicted())
        console.print(f"wrote {given.plot}")
    if given.compare:
        _compare(console, trainer, data, bool(queue.device.type & cl.device_type.GPU))
    console.print(f"accuracy {trainer.accuracy():.3f}")


def _say_what(console: Console, trainer: Trainer, data: pictures.Data, device: cl.Device) -> None:
    settings, sizes = trainer.settings, "-".join(map(str, trainer.begin.sizes))
    console.print(f"{data.name}: {len(data.learnt)} pictures to learn from, {len(data.unseen)} unseen")
    console.print(
        f"{sizes}, batch {settings.batch}, learning rate {settings.learning_rate:g}, seed {settings.seed}, "
        f"{settings.operands} operands, on {device.name}"
    )
    why = f", because fused is refused: {trainer.refusal}" if trainer.refusal else ""
    console.print(f"trained by {trainer.model.name}{why}")


def _with_bar(console: Console, trainer: Trainer) -> Epoch:
    """Train an epoch with a progress bar, which only a terminal shows."""
    bar = Progress(
        TextColumn("epoch"), BarColumn(), console=console, transient=True, disable=not console.is_terminal
    )
    with bar:
        task = bar.add_task("", total=1.0)
        return trainer.epoch(lambda part: bar.update(task, completed=part))


def _say_epoch(console: Console, epoch: Epoch, epochs: int) -> None:
    console.print(
        f"epoch {epoch.number:3}/{epochs}  loss {epoch.loss:.4f}  accuracy {epoch.accuracy:.3f}  "
        f"{epoch.step_seconds * 1e6:.1f} us a step"
    )


def _compare(console: Console, trainer: Trainer, data: pictures.Data, on_gpu: bool) -> None:
    """Train the same epochs from the same parameters with PyTorch, each way that can run here."""
    settings = trainer.settings
    for name in compare.usual(on_gpu):
        try:
            peer = compare.new_peer(
                name,
                trainer.begin,
                data.learnt,
                batch=settings.batch,
                learning_rate=settings.learning_rate,
                on_gpu=on_gpu,
            )
        except compare.PeerRefused as refused:
            console.print(f"PyTorch, {name}: not run: {refused}")
            continue
        seconds = compare.train(peer, trainer.orders(), trainer.steps)
        console.print(
            f"PyTorch, {name}: accuracy {peer.accuracy(data.unseen):.3f}  {seconds * 1e6:.1f} us a step"
        )


if __name__ == "__main__":
    sys.exit(main())
