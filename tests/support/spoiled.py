"""Spoils results: between the launches of a product and those that check it, what it wrote is changed."""

import weakref
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pyopencl as cl
import pytest

import pyclmm
from pyclmm.kernels.verification import _FormOfSums
from pyclmm.opencl import compiler
from pyclmm.opencl.binding import Binding

_SUMS = "workspace:verify_sums"  # where there is an activation, this is checked in place of out


@contextmanager
def wrong_at(rows, columns):
    """A VerificationError names these rows and columns: each is a number, or a first one and an end."""
    with pytest.raises(pyclmm.VerificationError) as caught:
        yield caught
    named = [found if isinstance(found, tuple) else (found, found + 1) for found in (rows, columns)]
    assert [caught.value.rows, caught.value.columns] == named


def alarm(call, *args, **kwargs):
    """The call says that element (3, 6) is wrong."""
    with wrong_at(3, 6):
        call(*args, **kwargs)


class Spoiler:
    """Changes the results of the next products on OpenCL devices, once for each change that waits."""

    def __init__(self):
        self.waiting = []  # functions of (the bytes of the checked memory, as an array)
        self.always = None  # one that every checked product suffers
        self.kernels = []  # names of the checked launches, in order
        self.host = []  # the outs of a list that kernels write where they lie
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
        if target is None:
            for x in self.host:
                change(x.reshape(-1).view(np.uint8))
            return
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

    def spoiling(self, step, part, after, given, with_events):
        found.kernels.append(step.kernel.function_name)
        if step.kernel.function_name == "verify_out":
            found.before(self, given[0], given[2])
        return enqueue(self, step, part, after, given, with_events)

    with patch.object(Binding, "_enqueue_part", spoiling):
        yield found


def gpu_form(monkeypatch):
    """cl/verify/ with the work-groups that GPUs run, though smaller ones, without PoCL 3.0's optimizer.

    With it sums of integers are wrong, and a B that is transposed crashes. Oclgrind and an H200 are right.
    """
    monkeypatch.setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable")
    form = _FormOfSums(items=8, rows=4, vec=4, lanes=1, slices=2, parts=16)
    monkeypatch.setattr(_FormOfSums, "of", classmethod(lambda cls, problem, device: form))


# ---- a build of `tiled` that errs

_TILE = "    barrier(CLK_LOCAL_MEM_FENCE);\n    acc = multiply_tiles"
_SUM = "acc = multiply_tiles(tile_a, tile_b, acc, li, lj);\n"
_FAULT = """
#define FLIP_float32(v, bit) as_float(as_uint(v) ^ 1u << (bit))
#define FLIP_float64(v, bit) as_double(as_ulong(v) ^ 1ul << (bit))
#define FLIP_uint32(v, bit) ((v) ^ 1u << (bit))
#define FAULT(kind, v) do {                                                                     \\
    if ((f >> 40) == (kind) && (f >> 32 & 255) == t / TW && (f >> 24 & 255) == get_group_id(0) && \\
        (f >> 16 & 255) == get_group_id(1) && (f >> 8 & 255) == li * TW + lj)                   \\
      (v) = CAT(FLIP_, ACC_TYPE)(v, (int)(f & 255));                                            \\
  } while (0)
"""
TILE, SUM = 1, 2  # kinds of faults
_ARGS = "matmul_tiled(GEMM_ARGS"


class FaultyTiled:
    """`tiled` that flips a bit while it computes, if it is told where.

    ``place``: see :meth:`at`. A bit is of the accumulator's type, in which local memory holds A, too.
    """

    def __init__(self):
        self.place = 0

    def at(self, kind, step, group, item, bit):
        """Flip *bit* of what work-item *item* of *group* (x, y) loads or has summed in *step* of K."""
        x, y = group
        self.place = kind << 40 | step << 32 | x << 24 | y << 16 | item << 8 | bit

    @contextmanager
    def installed(self):
        """All programs of `tiled` are this build while the block runs."""
        read, enqueue, run_at = compiler.read_source, Binding._enqueue_part, Binding.run_at

        def source(name):
            text = read(name)
            if name != "textbook/tiled.cl":
                return text
            for part in (_TILE, _SUM, _ARGS):
                assert part in text, "tiled.cl is another"
            text = text.replace(_ARGS, f"{_ARGS}, const long f")
            text = text.replace(_TILE, f"    FAULT({TILE}, tile_a[li][lj]);\n{_TILE}")
            return text.replace(_SUM, f"{_SUM}    FAULT({SUM}, acc);\n").replace(
                "__kernel WORK_GROUP", f"{_FAULT}\n__kernel WORK_GROUP"
            )

        def erring(binding, step, part, after, given, with_events):
            if step.kernel.function_name == "matmul_tiled":
                step.kernel.set_arg(step.kernel.num_args - 1, np.int64(self.place))
                binding._alone = None
            return enqueue(binding, step, part, after, given, with_events)

        def erring_at(binding, *given):
            for step in binding._steps:
                if step.kernel.function_name == "matmul_tiled":
                    step.kernel.set_arg(step.kernel.num_args - 1, np.int64(self.place))
            return run_at(binding, *given)

        pyclmm.release()
        compiler.expanded.cache_clear()
        try:
            with (
                patch.object(compiler, "read_source", source),
                patch.object(Binding, "_enqueue_part", erring),
                patch.object(Binding, "run_at", erring_at),
            ):
                yield self
        finally:
            pyclmm.release()
            compiler.expanded.cache_clear()
