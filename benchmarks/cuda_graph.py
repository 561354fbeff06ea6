"""Times calls through PyTorch: a CUDA graph of several calls, which waits behind a kernel that spins.

So the calls follow each other without a pause and without the host, as those of burst.py do.
"""

from __future__ import annotations

from collections.abc import Callable

try:
    import torch
except ImportError:
    torch = None

_SPIN = 500_000  # cycles: longer than the host takes to launch the graph


class Graph:
    """A CUDA graph of *calls* times ``call()``."""

    def __init__(self, call: Callable[[], object], calls: int) -> None:
        self.calls = calls
        for _ in range(3):  # outside the graph first: it loads the kernel
            call()
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            for _ in range(calls):
                call()

    def seconds(self) -> float:
        """Device seconds of one call, from a replay."""
        torch.cuda._sleep(_SPIN)
        return elapsed(self._graph.replay) / self.calls


def on_device(call: Callable[[], object], calls: int) -> float:
    """Device seconds of one of *calls* eager calls, after another one."""
    call()
    return elapsed(call, calls)


def elapsed(call: Callable[[], object], calls: int = 1) -> float:
    """Device seconds of one of *calls* calls."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3 / calls
