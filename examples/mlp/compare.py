"""The same training by PyTorch, three ways, where it is installed: the peers of this example.

eager       each operation when Python comes to it
compiled    torch.compile(mode="max-autotune", fullgraph=True) with autocast, as cuda-mnist measured PyTorch
graph       the whole step in one CUDA graph: the batch is read by its indexes on the device, and a counter on
            the device says which step it is, so the host only replays the graph

Parameters and the order of the pictures are those of our own models. The pictures lie on the device.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .data import Pictures
from .model import Parameters

_WARM_STEPS = 3  # before a capture, as PyTorch's page about CUDA graphs asks for


class PeerRefused(Exception):  # noqa: N818
    """PyTorch cannot train this way here."""


class Peer(Protocol):
    """One way of training in PyTorch."""

    def place(self, order: NDArray[np.int32]) -> None:
        """Put the indexes of the pictures of the next steps onto the device."""

    def train(self, first: int, steps: int) -> None:
        """Train as `Model.train` does, and return when it has ended."""

    def accuracy(self, unseen: Pictures) -> float:
        """The fraction of pictures that the model gets right."""


def find_torch() -> Any:
    """The torch module. Raises PeerRefused if it is not installed."""
    try:
        import torch  # noqa: PLC0415
    except ImportError as error:
        raise PeerRefused("PyTorch is not installed; pip install torch") from error
    return torch


def usual(on_gpu: bool) -> tuple[str, ...]:
    """The peers that fit a device: names for :func:`new_peer`, a way and the type of the operands."""
    if on_gpu:
        return "eager float32", "compiled float16", "graph float32", "graph float16"
    return "eager float32", "compiled float32"


def new_peer(
    name: str, parameters: Parameters, learnt: Pictures, *, batch: int, learning_rate: float, on_gpu: bool
) -> Peer:
    """A peer, such as "eager float32": a way, and float32 or autocast to float16. Raises PeerRefused."""
    torch = find_torch()
    if on_gpu and not torch.cuda.is_available():
        raise PeerRefused("PyTorch finds no GPU")
    way, dtype = name.split()
    if way == "graph" and not on_gpu:
        raise PeerRefused("CUDA graphs need a GPU")
    place = "cuda" if on_gpu else "cpu"
    network = _Network(torch, parameters, learnt, batch, learning_rate, dtype == "float16", place)
    return Graph(network) if way == "graph" else Eager(network, compiled=way == "compiled")


def train(peer: Peer, orders: Iterable[NDArray[np.int32]], steps: int) -> float:
    """Train *steps* steps of each order. Returns the median seconds of a step over the orders."""
    seconds = []
    for order in orders:
        peer.place(order)
        start = time.perf_counter()
        peer.train(0, steps)
        seconds.append((time.perf_counter() - start) / steps)
    return statistics.median(seconds)


class _Network:
    """The perceptron and its data, in PyTorch."""

    def __init__(
        self,
        torch: Any,
        parameters: Parameters,
        learnt: Pictures,
        batch: int,
        learning_rate: float,
        half: bool,
        device: str,
    ) -> None:
        self.torch, self.device, self.batch = torch, device, batch
        self.half = torch.float16 if half else None
        layers: list[Any] = []
        for w, b in zip(parameters.weights, parameters.biases, strict=True):
            linear = torch.nn.Linear(*w.shape)
            with torch.no_grad():
                linear.weight.copy_(torch.from_numpy(np.ascontiguousarray(w.T)))
                linear.bias.copy_(torch.from_numpy(b))
            layers += [linear, torch.nn.ReLU()]
        self.network = torch.nn.Sequential(*layers[:-1]).to(device)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=learning_rate)
        self.images = torch.from_numpy(learnt.images).to(device, self.half)
        self.labels = torch.from_numpy(learnt.labels.astype(np.int64)).to(device)
        self.order = torch.zeros(len(learnt), dtype=torch.int64, device=device)

    def autocast(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = nullcontext()
        return context if self.half is None else self.torch.autocast(self.device, dtype=self.half)

    def step(self, network: Callable[[Any], Any], rows: Any) -> None:
        """One step on the pictures *rows*."""
        with self.autocast():
            loss = self.torch.nn.functional.cross_entropy(network(self.images[rows]), self.labels[rows])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def place(self, order: NDArray[np.int32]) -> None:
        self.order[: len(order)].copy_(self.torch.from_numpy(order.astype(np.int64)))
        self.finish()

    def finish(self) -> None:
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def accuracy(self, unseen: Pictures) -> float:
        images = self.torch.from_numpy(unseen.images).to(self.device)
        with self.torch.no_grad():
            found = self.network(images).argmax(dim=1).cpu().numpy()
        return float(np.mean(found == unseen.labels))


class _Way:
    """What all ways do alike."""

    def __init__(self, network: _Network) -> None:
        self._mine = network

    def place(self, order: NDArray[np.int32]) -> None:
        self._mine.place(order)

    def accuracy(self, unseen: Pictures) -> float:
        return self._mine.accuracy(unseen)


class Eager(_Way):
    """Operation by operation, or with forward and backward compiled."""

    def __init__(self, network: _Network, *, compiled: bool) -> None:
        super().__init__(network)
        run = network.network
        if compiled:
            run = network.torch.compile(run, mode="max-autotune", fullgraph=True)
        self._run = run

    def train(self, first: int, steps: int) -> None:
        mine = self._mine
        for step in range(first, first + steps):
            mine.step(self._run, mine.order[step * mine.batch : (step + 1) * mine.batch])
        mine.finish()


class Graph(_Way):
    """The whole step in one CUDA graph."""

    def __init__(self, network: _Network) -> None:
        super().__init__(network)
        torch, cuda = network.torch, network.torch.cuda
        self._at = torch.zeros((), dtype=torch.int64, device="cuda")
        self._offsets = torch.arange(network.batch, device="cuda")
        before = {name: value.clone() for name, value in network.network.state_dict().items()}
        side = cuda.Stream()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            for _ in range(_WARM_STEPS):
                self._whole_step()
        cuda.current_stream().wait_stream(side)
        network.optimizer.zero_grad()
        self._graph = cuda.CUDAGraph()
        with cuda.graph(self._graph):
            self._whole_step()
        network.network.load_state_dict(before)  # copies into the memory that the graph reads

    def _whole_step(self) -> None:
        mine = self._mine
        mine.step(mine.network, mine.order[self._at + self._offsets])
        self._at += mine.batch

    def train(self, first: int, steps: int) -> None:
        self._at.fill_(first * self._mine.batch)
        for _ in range(steps):
            self._graph.replay()
        self._mine.finish()
