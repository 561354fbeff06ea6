"""Training that was saved: parameters, settings and progress in one .npz file, without pickle."""

from __future__ import annotations

import os
import zipfile
import zlib
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from .model import Parameters

_FORMAT = 1


@dataclass(frozen=True)
class Settings:
    """What decides the bits of the parameters after each epoch, on one device and driver."""

    mode: str = "auto"
    operands: str = "float32"
    hidden: tuple[int, ...] = (128, 128, 128)
    batch: int = 32
    learning_rate: float = 0.1
    seed: int = 0
    data: int = 0  # Data.digest


@dataclass
class Saved:
    """Training after some epochs. *losses*: the mean loss of each epoch; *accuracies*: after each epoch."""

    settings: Settings
    parameters: Parameters
    losses: list[float]
    accuracies: list[float]


class CheckpointError(ValueError):
    """A file of weights cannot be used."""


def save(path: Path, saved: Saved) -> None:
    """Write *saved*. A file of that name stays whole until the new one is: it is replaced in one step."""
    arrays = {
        **{f"weights_{layer}": w for layer, w in enumerate(saved.parameters.weights)},
        **{f"biases_{layer}": b for layer, b in enumerate(saved.parameters.biases)},
        **{name: np.array(value) for name, value in asdict(saved.settings).items()},
        "losses": np.array(saved.losses, np.float64),
        "accuracies": np.array(saved.accuracies, np.float64),
        "format": np.array(_FORMAT),
    }
    path = path.resolve()  # what a link names is replaced, not the link
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def load(path: Path) -> Saved:
    """Read what :func:`save` wrote. Raises CheckpointError for any other file."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        return _saved(arrays)
    except OSError as error:
        raise CheckpointError(f"--resume: cannot read {path}: {error.strerror or error}") from error
    except (EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise CheckpointError(
            f"--resume: {path} is not a file that this program has saved: {error}"
        ) from error


def agreed(saved: Settings, given: dict[str, object]) -> Settings:
    """The saved settings. Raises CheckpointError if one was *given* that differs."""
    for name, value in given.items():
        was = getattr(saved, name)
        if value == was:
            continue
        if name == "data":
            raise CheckpointError(
                "--resume: the file was trained on other pictures; pass the --data that it was trained on"
            )
        raise CheckpointError(
            f"--resume: the file was trained with {name} {was}, and {value} is given; leave that option out"
        )
    return saved


def _saved(arrays: dict[str, np.ndarray]) -> Saved:
    if arrays["format"] != _FORMAT:
        raise ValueError(f"its format is {arrays['format']}, and this program reads {_FORMAT}")
    values = {field.name: arrays[field.name].tolist() for field in fields(Settings)}
    settings = Settings(**{**values, "hidden": tuple(values["hidden"])})
    count = len(settings.hidden) + 1
    weights = [arrays[f"weights_{layer}"] for layer in range(count)]
    biases = [arrays[f"biases_{layer}"] for layer in range(count)]
    for layer, (w, b) in enumerate(zip(weights, biases, strict=True)):
        rows = w.shape[0] if layer == 0 else weights[layer - 1].shape[1]
        if w.dtype != np.float32 or b.dtype != np.float32 or w.ndim != 2 or w.shape != (rows, *b.shape):
            raise ValueError(f"layer {layer} has weights {w.dtype} {w.shape} and biases {b.dtype} {b.shape}")
    return Saved(
        settings, Parameters(weights, biases), arrays["losses"].tolist(), arrays["accuracies"].tolist()
    )
