"""How many work-groups of a launch run at once: the host's side of occupancy.cl."""

from __future__ import annotations

import numpy as np
import pyopencl as cl

# Words, as in occupancy.cl.
_REFUSED, _STATE, _FOUND, _FLAGS = 0, 32, 64, 128


class Meeting:
    """The words by which the work-groups of a launch find each other, for up to *groups* of them."""

    def __init__(self, context: cl.Context, groups: int) -> None:
        self._bytes = 4 * (_FLAGS + groups)
        zeros = np.zeros(self._bytes // 4, np.uint32)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self.buffer = cl.Buffer(context, flags, hostbuf=zeros)

    def clear(self, queue: cl.CommandQueue) -> None:
        """Prepare the next launch; the queue is in order."""
        cl.enqueue_fill_buffer(
            queue, self.buffer, np.zeros(1, np.uint32), 4 * _STATE, self._bytes - 4 * _STATE
        )

    def found(self, queue: cl.CommandQueue) -> int:
        """How many work-groups worked together in the last launch. Waits for it."""
        return self._word(queue, _FOUND)

    def refused(self, queue: cl.CommandQueue) -> int:
        """0, or how many work-groups ran at once in a launch that needed more. Waits for all launches."""
        return self._word(queue, _REFUSED)

    def _word(self, queue: cl.CommandQueue, index: int) -> int:
        word = np.zeros(1, np.uint32)
        cl.enqueue_copy(queue, word, self.buffer, src_offset=4 * index)
        return int(word[0])
