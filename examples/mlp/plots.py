"""A picture of a training: the loss and accuracy of each epoch, and pictures that the model gets wrong."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .checkpoint import Saved
from .data import Data

_ROWS, _COLUMNS = 4, 6


class PlotRefused(Exception):  # noqa: N818
    """No picture can be drawn to this file."""


def check(path: Path) -> None:
    """To be called before training. Raises PlotRefused without matplotlib, or for a name without a format."""
    try:
        figure = import_module("matplotlib.figure").Figure()
    except ImportError as error:
        raise PlotRefused('--plot needs matplotlib: pip install "pyclmm[plot]"') from error
    if path.suffix.lower().removeprefix(".") not in figure.canvas.get_supported_filetypes():
        raise PlotRefused(f"--plot {path}: its name tells no format; end it in .png, .svg or .pdf")


def draw(path: Path, saved: Saved, data: Data, found: NDArray[np.int32]) -> None:
    """Write *path* (.png, .svg, .pdf). *found*: the classes of the unseen pictures."""
    figure = import_module("matplotlib.figure").Figure(figsize=(11, 5), layout="constrained")
    left, right = figure.subfigures(1, 2)
    _curves(left, saved)
    _mistakes(right, data, found)
    figure.savefig(path, dpi=110)


def _curves(figure: Any, saved: Saved) -> None:
    """The loss on the left axis, on a scale of powers; the accuracy on the right one."""
    epochs = range(1, len(saved.losses) + 1)
    losses = figure.subplots()
    losses.plot(epochs, saved.losses, "o-", color="#4477aa")
    losses.set(xlabel="epoch", ylabel="mean loss of the epoch", yscale="log")
    losses.yaxis.label.set_color("#4477aa")
    losses.xaxis.get_major_locator().set_params(integer=True)
    accuracies = losses.twinx()
    accuracies.plot(epochs, saved.accuracies, "s-", color="#aa3377")
    accuracies.set_ylabel("accuracy on unseen pictures", color="#aa3377")
    losses.grid(True, alpha=0.3)


def _mistakes(figure: Any, data: Data, found: NDArray[np.int32]) -> None:
    """The first mistakes, each with its label and what the model took it for."""
    wrong = np.flatnonzero(found != data.unseen.labels)
    title = f"{len(wrong)} of {len(found)} unseen pictures are wrong\neach: its label, what it was taken for"
    figure.suptitle(title, fontsize=10)
    for axes, index in zip(figure.subplots(_ROWS, _COLUMNS).flat, [*wrong, *[None] * 99], strict=False):
        axes.set_axis_off()
        if index is not None:
            axes.imshow(data.unseen.images[index].reshape(data.shape), cmap="gray_r")
            axes.set_title(f"{data.unseen.labels[index]}, {found[index]}", fontsize=9)
