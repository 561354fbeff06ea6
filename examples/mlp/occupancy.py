"""How many work-groups of a launch run at once: the host's side of occupancy.cl."""

from __future__ import annotations

import numpy as np
import pyopencl as cl

_FOUND = 32  # words: FOUND of occupancy.cl
_FLAGS = 96  # words: FLAGS of occupancy.cl


class Meeting:
    """The words by which the work-groups of a launch find each other, for up to *groups* of them."""

    def __init__(self, context: cl.Context, groups: int) -> None:
        self._bytes = 4 * (_FLAGS + groups)
        self.buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, self._bytes)

    def clear(self, queue: cl.CommandQueue) -> None:
        """Prepare the next launch; the queue is in order."""
        cl.enqueue_fill_buffer(queue, self.buffer, np.uint32(0), 0, self._bytes)

    def found(self, queue: cl.CommandQueue) -> int:
        """How many work-groups worked together in the last launch. Waits for it."""
        word = np.zeros(1, np.uint32)
        cl.enqueue_copy(queue, word, self.buffer, src_offset=4 * _FOUND)
        return int(word[0])
