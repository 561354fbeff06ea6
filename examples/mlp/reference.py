"""The same training in NumPy's float64: what every other way is compared with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .model import Parameters

Doubles = NDArray[np.float64]


class Reference:
    """A perceptron in float64 that starts from the same parameters and takes the same batches."""

    def __init__(self, parameters: Parameters, *, learning_rate: float) -> None:
        self.weights: list[Doubles] = [w.astype(np.float64) for w in parameters.weights]
        self.biases: list[Doubles] = [b.astype(np.float64) for b in parameters.biases]
        self.learning_rate = learning_rate

    def activations(self, images: NDArray[Any]) -> list[Doubles]:
        """The pictures, the output of each hidden layer, and the logits."""
        found = [images.astype(np.float64)]
        last = len(self.weights) - 1
        for layer, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            z = found[-1] @ w + b
            found.append(z if layer == last else np.maximum(z, 0))
        return found

    def loss(self, images: NDArray[Any], labels: NDArray[Any]) -> float:
        """The mean cross-entropy of the pictures."""
        return float(_cross_entropy(self.activations(images)[-1], labels)[0])

    def gradients(
        self, images: NDArray[Any], labels: NDArray[Any]
    ) -> tuple[float, list[Doubles], list[Doubles]]:
        """The mean cross-entropy, and its derivatives by each weight and each bias."""
        activations = self.activations(images)
        loss, d = _cross_entropy(activations[-1], labels)
        by_weights, by_biases = [], []
        for layer in reversed(range(len(self.weights))):
            by_weights.append(activations[layer].T @ d)
            by_biases.append(d.sum(axis=0))
            d = (d @ self.weights[layer].T) * (activations[layer] > 0)
        return loss, by_weights[::-1], by_biases[::-1]

    def step(self, images: NDArray[Any], labels: NDArray[Any]) -> float:
        """Train one step on a batch. Returns the loss before it."""
        loss, by_weights, by_biases = self.gradients(images, labels)
        for values, gradients in ((self.weights, by_weights), (self.biases, by_biases)):
            for value, gradient in zip(values, gradients, strict=True):
                np.subtract(value, self.learning_rate * gradient, out=value)
        return loss

    def predict(self, images: NDArray[Any]) -> NDArray[np.int32]:
        """The class of each picture."""
        found: NDArray[np.int32] = self.activations(images)[-1].argmax(axis=1).astype(np.int32)
        return found


def _cross_entropy(logits: Doubles, labels: NDArray[Any]) -> tuple[float, Doubles]:
    """The mean of -log softmax(logits)[label], and its derivatives by the logits."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    probabilities = np.exp(shifted)
    sums = probabilities.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = float(np.mean(np.log(sums[:, 0]) - shifted[rows, labels]))
    d = probabilities / sums
    d[rows, labels] -= 1
    return loss, d / len(labels)
