"""LaunchGroup: products that one launch computes, with the kernel for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyopencl as cl

from ..errors import REFUSED
from ..execution.execute import Executable
from ..execution.options import Options
from ..execution.placement import placed
from ..opencl.devices import device_info
from ..opencl.steps import scalars_of
from ..problem.gemm import Gemm
from .entries import Key, ListEntry, Starts, grouped, listed

_SCALARS = scalars_of(1.0, 0.0)  # alpha and beta of each product are in the table


class LaunchGroup:
    """Products of one launch."""

    def __init__(self, entries: Sequence[ListEntry], gemm: Gemm, options: Options, queue: Any) -> None:
        self.executable = Executable(queue, gemm, options)
        self._keys = {name: key for one in entries for name, key in one.keys.items()}

    def enqueue(
        self,
        queue: cl.CommandQueue,
        memory: Mapping[Key, Any],
        wait_for: list[cl.Event],
        *,
        with_events: bool = True,
        is_waited_for: bool = False,
    ) -> list[cl.Event]:
        """Enqueue the products, by the next kernel if one is refused; their events, as Binding.enqueue's.

        *memory*: the buffers. Raises LaunchError, DeviceMemoryError or DeviceLostError.
        """
        buffers = {name: memory[key] for name, key in self._keys.items()}
        while True:
            choice = self.executable.choice
            try:
                binding = self.executable.binding(queue)
                events: list[cl.Event] = binding.enqueue(
                    buffers, _SCALARS, wait_for, None, with_events, None, is_waited_for
                )
                return events
            except REFUSED as error:
                self.executable.fall_back(choice, queue, error)

    def settle(self) -> None:
        """Call it when the products are complete."""
        binding = self.executable.latest_binding()
        if binding is not None:
            binding.settle()


def groups_of(
    entries: Sequence[ListEntry], starts: Starts, options: Options, queue: Any
) -> tuple[list[LaunchGroup], Any]:
    """The groups of *entries*, that with the most operations first, and the queue for them: *queue*, or where
    a free one leaves the first of them."""
    is_cpu = device_info(queue.device).is_cpu
    gemms = [(one, listed(one, starts)) for one in grouped(entries, is_cpu)]
    gemms.sort(key=lambda pair: -pair[1].problem.flops)
    if gemms:
        first = gemms[0][1]
        queue = placed(queue, replace(first, problem=first.problem.typical), options).queue
    return [LaunchGroup(*one, options, queue) for one in gemms], queue
