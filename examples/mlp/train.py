"""Trains a model epoch by epoch, and says how it goes."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
from numpy.typing import NDArray

from .checkpoint import Saved, Settings
from .data import CLASSES, Data, Pictures
from .device import Kernels, Shuffle
from .fused import Fused
from .layers import Layers
from .model import FusedRefused, Model, Parameters, Sizes, initial

_PARTS = 20  # of an epoch, after each of which the progress bar moves


@dataclass(frozen=True)
class Epoch:
    """One epoch, from 1 on: mean loss, accuracy on unseen pictures after it, median seconds of a step."""

    number: int
    loss: float
    accuracy: float
    step_seconds: float


def new_model(
    queue: cl.CommandQueue, settings: Settings, parameters: Parameters, learnt: Pictures
) -> tuple[Model, str | None]:
    """The model that *settings* ask for, and for mode "auto" why it is not `fused`. Raises FusedRefused."""
    images = cla.to_device(queue, learnt.images.astype(settings.operands))
    labels = cla.to_device(queue, learnt.labels)
    reason = None
    if settings.mode != "layers":
        try:
            fused = Fused(
                queue,
                parameters,
                images,
                labels,
                batch=settings.batch,
                learning_rate=settings.learning_rate,
            )
            if fused.suits or settings.mode == "fused":
                return fused, None
            reason = "its weights are too large to stay near the compute units; layers is faster"
        except FusedRefused as refused:
            if settings.mode == "fused":
                raise
            reason = refused.reason
    layers = Layers(
        queue, parameters, images, labels, batch=settings.batch, learning_rate=settings.learning_rate
    )
    return layers, reason


class Trainer:
    """Training of one model on *data*, from the beginning or from where *saved* ends."""

    def __init__(
        self, queue: cl.CommandQueue, settings: Settings, data: Data, saved: Saved | None = None
    ) -> None:
        self.steps = len(data.learnt) // settings.batch
        self._queue, self._data = queue, data
        self.begin = saved.parameters if saved else initial(sizes_of(settings, data), settings.seed)
        self.model, self.refusal = new_model(queue, settings, self.begin, data.learnt)
        self.settings = replace(settings, mode=self.model.name)
        self._done = len(saved.losses) if saved else 0
        self.losses = list(saved.losses) if saved else []
        self.accuracies = list(saved.accuracies) if saved else []
        self._order = Shuffle(Kernels(queue), len(data.learnt), settings.seed)
        self._losses = cla.zeros(queue, self.steps, np.float32)
        self._unseen = cla.to_device(queue, data.unseen.images.astype(settings.operands))

    def epoch(self, moved: Callable[[float], object] = lambda part: None) -> Epoch:
        """Train one epoch. *moved* is told the part of it that is done, from 0 to 1.

        Each epoch takes the pictures in a new order. If the batch does not divide their number, the last
        ones of that order are left out.
        """
        number = len(self.losses) + 1
        order = self._order.epoch(number)
        chunk = math.ceil(self.steps / _PARTS)
        seconds = []
        for first in range(0, self.steps, chunk):
            steps = min(chunk, self.steps - first)
            start = time.perf_counter()
            self.model.train(order, first, steps, self._losses)
            self._queue.finish()
            seconds.append((time.perf_counter() - start) / steps)
            moved((first + steps) / self.steps)
        self.losses.append(float(self.last_losses().mean()))
        self.accuracies.append(self.accuracy())
        return Epoch(number, self.losses[-1], self.accuracies[-1], statistics.median(seconds))

    def last_losses(self) -> NDArray[np.float64]:
        """The loss of each step of the last epoch."""
        losses: NDArray[np.float64] = self._losses.get().astype(np.float64)
        return losses

    def predicted(self) -> NDArray[np.int32]:
        """The class that the model finds for each unseen picture."""
        found: NDArray[np.int32] = self.model.predict(self._unseen).get()
        return found

    def accuracy(self) -> float:
        """The fraction of unseen pictures that the model gets right."""
        return float(np.mean(self.predicted() == self._data.unseen.labels))

    def orders(self) -> Iterator[NDArray[np.int32]]:
        """The orders of the pictures in the epochs that this trainer has trained, from `begin` on."""
        for number in range(self._done + 1, len(self.losses) + 1):
            yield self._order.epoch(number).get()

    def saved(self) -> Saved:
        """The training as it is now."""
        return Saved(self.settings, self.model.parameters(), self.losses, self.accuracies)


def sizes_of(settings: Settings, data: Data) -> Sizes:
    """The sizes of a perceptron for pictures of *data*."""
    return (data.learnt.images.shape[1], *settings.hidden, CLASSES)
