"""Spoils results: between the launches of a product and those that check it, what it wrote is changed."""

import weakref
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pyopencl as cl

from pyclmm.kernels.verification import _Form
from pyclmm.opencl.binding import Binding

_SUMS = "workspace:verify_sums"  # where there is an activation, this is checked in place of out


class Spoiler:
    """Changes the results of the next products on OpenCL devices, once for each change that waits."""

    def __init__(self):
        self.waiting = []  # functions of (the bytes of the checked memory, as an array)
        self.always = None  # one that every checked product suffers
        self.kernels = []  # names of the checked launches, in order
        self._outs = weakref.WeakKeyDictionary()

    def element(self, index, dtype, change):
        """Spoil the element *index* of dense memory: *change* maps it to another."""
        self.waiting.append(at(index, dtype, change))

    def before(self, binding, buffers, borrowed):
        """verify_out is about to be launched."""
        if "out" in buffers:
            self._outs[binding] = buffers["out"]
        change = self.waiting.pop(0) if self.waiting else self.always
        if change is None:
            return
        target = self._outs[binding]
        for space, memory in zip(binding._needs, borrowed, strict=False):
            target = memory if space.symbol == _SUMS else target
        binding.queue.finish()
        words = np.empty(target.size, np.uint8)
        cl.enqueue_copy(binding.queue, words, target)
        change(words)
        cl.enqueue_copy(binding.queue, target, words)


def at(index, dtype, change):
    """A change of one element of dense memory of *dtype*."""

    def spoil(words):
        elements = words[: len(words) // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize].view(dtype)
        with np.errstate(all="ignore"):
            elements[index] = change(elements[index])

    return spoil


@contextmanager
def installed(found):
    """*found* sees all products on OpenCL devices, while the block runs."""
    enqueue = Binding._enqueue_part

    def spoiling(self, step, part, launch, after, given, with_events):
        found.kernels.append(step.kernel.function_name)
        if step.kernel.function_name == "verify_out":
            found.before(self, given[0], given[2])
        return enqueue(self, step, part, launch, after, given, with_events)

    with patch.object(Binding, "_enqueue_part", spoiling):
        yield found


def gpu_form(monkeypatch):
    """cl/verify/ with the work-groups that GPUs run, though smaller ones."""
    form = _Form(items=8, rows=4, vec=4, lanes=1, slices=2, parts=16)
    monkeypatch.setattr(_Form, "of", classmethod(lambda cls, problem, device: form))
