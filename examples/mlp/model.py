"""What every way of training has in common: the parameters, their start, and the interface `Model`."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray
from pyopencl.array import Array

Sizes = tuple[int, ...]  # inputs, each hidden layer, classes: (784, h, h, h, 10)


class FusedRefused(Exception):  # noqa: N818
    """`fused` cannot run here. *reason* says why; `layers` computes the same."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass
class Parameters:
    """What the perceptron learns: layer l computes ``x @ weights[l] + biases[l]``.

    weights[l] is float32 (inputs, outputs) in C order, biases[l] float32 (outputs,).
    """

    weights: list[NDArray[np.float32]]
    biases: list[NDArray[np.float32]]

    @property
    def sizes(self) -> Sizes:
        """The inputs, the outputs of each hidden layer, and the classes."""
        return (self.weights[0].shape[0], *(w.shape[1] for w in self.weights))


class Model(Protocol):
    """One way of training: `layers` or `fused`. Everything stays on the device of *queue*."""

    name: str
    """"layers" or "fused"."""

    def __init__(
        self,
        queue: cl.CommandQueue,
        parameters: Parameters,
        images: Array,
        labels: Array,
        *,
        batch: int,
        learning_rate: float,
        **options: Any,
    ) -> None:
        """Copy *parameters* to the device.

        *images* is float32 (count, inputs) with elements in [0, 1], or float16 for `layers` with float16
        operands; *labels* is int32 (count,). A step trains on *batch* pictures and takes the mean of their
        gradients *learning_rate* times from the parameters (SGD). `fused` raises FusedRefused where it cannot
        run.
        """
        ...

    def train(self, order: Array, first: int, steps: int, losses: Array) -> None:
        """Train *steps* steps and return once they are enqueued.

        *order* holds indexes of pictures, int32, at least (first + steps) * batch of them. Step s, from 0 on,
        takes the pictures ``order[(first + s) * batch : (first + s + 1) * batch]`` and writes their mean
        cross-entropy before its update to ``losses[first + s]``, float32.
        """
        ...

    def predict(self, images: Array) -> Array:
        """The class of each picture, int32 (count,). Any number of pictures."""
        ...

    def parameters(self) -> Parameters:
        """The parameters, read back once all steps have ended."""
        ...


def initial(sizes: Sizes, seed: int) -> Parameters:
    """He's initialisation: normal weights of variance 2 / inputs, biases 0. One *seed* gives one start."""
    rng = np.random.Generator(np.random.PCG64(seed))
    pairs = list(pairwise(sizes))
    weights = [(rng.standard_normal(pair) * np.sqrt(2 / pair[0])).astype(np.float32) for pair in pairs]
    return Parameters(weights, [np.zeros(outputs, np.float32) for _, outputs in pairs])
