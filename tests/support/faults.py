"""Faults for tests: a function of the driver, or of a module, fails at a chosen call."""

import json
import math
import sys
import threading
from contextlib import contextmanager

import numpy as np
import pyopencl as cl
import pytest

import pyclmm
from pyclmm import store
from pyclmm.checks import selfcheck, small_problems
from pyclmm.opencl import compiler, crash_marks, steps, workspace
from pyclmm.selection import tables

INVALID_KERNEL_ARGS = cl.status_code.INVALID_KERNEL_ARGS
OUT_OF_RESOURCES = cl.status_code.OUT_OF_RESOURCES
INVALID_WORK_GROUP_SIZE = cl.status_code.INVALID_WORK_GROUP_SIZE
ALLOCATION_FAILURE = cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE
BUILD_FAILURE = cl.status_code.BUILD_PROGRAM_FAILURE
DEVICE_NOT_AVAILABLE = cl.status_code.DEVICE_NOT_AVAILABLE
INVALID_COMMAND_QUEUE = cl.status_code.INVALID_COMMAND_QUEUE
EXECUTION_FAILED = cl.status_code.EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST


def cl_error(code, routine="clInjected", text=""):
    """The exception that PyOpenCL raises for that code."""
    kind = cl.MemoryError if code == ALLOCATION_FAILURE else cl.RuntimeError
    return kind(cl._cl._ErrorRecord(routine, code, text))


class Part:
    """A module with some functions replaced."""

    def __init__(self, module, **replaced):
        self.__dict__.update(replaced)
        self._module = module

    def __getattr__(self, name):
        return getattr(self._module, name)


class Failing:
    """A function that raises *error* at *times* calls from number *at* on, or with *always* at all of them.

    With *after* the call is made first.
    """

    def __init__(self, real, error, at=1, times=1, always=False, after=False):
        self.real, self.error, self.after = real, error, after
        self.first, self.end = at, math.inf if always else at + times
        self.calls = 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        hit = self.first <= self.calls < self.end
        if hit and not self.after:
            raise self.error
        result = self.real(*args, **kwargs)
        if hit:
            raise self.error
        return result


class Seam:
    """What stands in PyOpenCL for its function *name*: *put* for calls from that room, else the real one.

    All modules call ``cl.name``, so this is the one place where tests put a driver's faults. *room*: a folder
    of pyclmm, or a module of it where others of its folder call the function too, as "opencl.host_memory".
    """

    def __init__(self, name, put, room):
        self.real, self._put, self._room = getattr(cl, name), put, f"pyclmm.{room}"

    def __call__(self, *args, **kwargs):
        caller = sys._getframe(1).f_globals["__name__"]
        function = self._put if f"{caller}.".startswith(f"{self._room}.") else self.real
        return function(*args, **kwargs)

    def __instancecheck__(self, x):
        return isinstance(x, self.real)

    def __getattr__(self, name):
        return getattr(self.real, name)


def replace_driver(patch, room, **functions):
    """The driver's functions of these names are those, for calls from that room (:class:`Seam`)."""
    for name, function in functions.items():
        if name == "enqueue_nd_range_kernel":
            replace_library(patch, enqueue=None)  # all launches then go through PyOpenCL
        patch.setattr(cl, name, Seam(name, function, room))


def replace_library(patch, **functions):
    """The functions of the driver's library that pyclmm calls itself are those; None: the library has none.

    They are ``enqueue``, ``set_arg`` and ``set_address``.
    """
    for name, function in functions.items():
        patch.setattr(steps, f"_{name}", function)


@contextmanager
def failing(where, name, error, library="cl", **how):
    """Inside the block a function raises *error*, as :class:`Failing` says; yields the Failing.

    It is the driver's function *name*, for calls from the room *where*. Or *where* is a module, or an object,
    and the function is that of its *library*, or with "" its own.
    """
    is_driver = isinstance(where, str)
    owner = cl if is_driver else getattr(where, library) if library else where
    fault = Failing(getattr(owner, name), error, **how)
    with pytest.MonkeyPatch.context() as patch:
        if is_driver:
            replace_driver(patch, where, **{name: fault})
        elif library:
            patch.setattr(where, library, Part(owner, **{name: fault}))
        else:
            patch.setattr(where, name, fault)
        yield fault


class Given(tuple):
    """The arguments of a call. ``keywords``: those by name."""

    keywords: dict[str, object]


def noted(patch, owner, name, before=None):
    """A list of the Given of each call of *owner*'s function *name* since. *before* is called first."""
    found, real = [], getattr(owner, name)

    def call(*args, **keywords):
        found.append(Given(args))
        found[-1].keywords = keywords
        if before is not None:
            before(*args)
        return real(*args, **keywords)

    patch.setattr(owner, name, call)
    return found


def refuse_kernels(patch, because, kernel=None):
    """The self-check refuses *kernel*, or every one, by that reason. Right verdicts that are known stay."""
    real = small_problems.first_wrong_result

    def first_wrong_result(queue, problem, its, *rest):
        return because if kernel in (None, its.name) else real(queue, problem, its, *rest)

    patch.setattr(selfcheck, "first_wrong_result", first_wrong_result)


def changed_sources(patch, change):
    """Each source of cl/ that is read since is what *change* makes of its name and text."""
    real = compiler.read_source
    patch.setattr(compiler, "read_source", lambda name: change(name, real(name)))
    patch.setattr(compiler, "expanded", compiler.expanded.__wrapped__)


def changed_source(patch, file, right, wrong):
    """In that source of cl/ the text *right* is *wrong*."""

    def change(name, text):
        assert name != file or right in text
        return text.replace(right, wrong) if name == file else text

    changed_sources(patch, change)


def refused_launch(error, **how):
    """Inside the block the driver refuses a launch with that error, or code, as :class:`Failing` says."""
    fault = error if isinstance(error, BaseException) else cl_error(error)
    return failing("opencl", "enqueue_nd_range_kernel", fault, **how)


def noted_launches(patch):
    """A list of the launches since: (kernel object, wait list, event)."""
    found = []

    def enqueue(queue, kernel, *rest):
        event = cl.enqueue_nd_range_kernel(queue, kernel, *rest)
        found.append((kernel, rest[-1], event))
        return event

    replace_driver(patch, "opencl", enqueue_nd_range_kernel=enqueue)
    return found


def lent_workspace(patch, fill=None):
    """A list of what calls borrow since: (what they need, the Spaces). *fill*: a byte for each buffer."""
    found, real = [], workspace.Lender.borrow

    def borrow(self, needs, number):
        spaces = real(self, needs, number)
        for buffer in spaces.buffers if fill is not None else ():
            cl.enqueue_fill_buffer(self.queue, buffer, np.uint8(fill), 0, buffer.size).wait()
        found.append((needs, spaces))
        return spaces

    patch.setattr(workspace.Lender, "borrow", borrow)
    return found


@contextmanager
def refusing_buffers(nbytes):
    """Inside the block the driver refuses pyclmm each buffer of exactly so many bytes. None is kept."""
    pyclmm.release()

    def buffer(*args, real=cl.Buffer, **kwargs):
        made = real(*args, **kwargs)
        if made.size == nbytes:
            made.release()
            raise cl_error(ALLOCATION_FAILURE)
        return made

    with pytest.MonkeyPatch.context() as patch:
        replace_driver(patch, "opencl", Buffer=buffer)
        yield


class Call:
    """A product and its arrays, which a failing call must not change."""

    def __init__(self, seed=1, shape=(33, 29, 41), **options):
        m, n, k = shape
        rng = np.random.default_rng(seed)
        self.a = rng.standard_normal((m, k), dtype=np.float32)
        self.b = rng.standard_normal((k, n), dtype=np.float32)
        self.out = np.full((m, n), 7, np.float32)
        self.before = [x.copy() for x in (self.a, self.b, self.out)]
        self.options = options

    def __call__(self):
        return pyclmm.matmul(self.a, self.b, out=self.out, **self.options)

    def check_untouched(self, out=True):
        now = (self.a, self.b, self.out)[: 3 if out else 2]
        for name, x, y in zip(("a", "b", "out"), now, self.before, strict=False):
            assert np.array_equal(x, y), f"{name} was changed by a call that failed"

    def check_works(self):
        """The next call is right, also in another thread: no lock is held."""
        self._check_result()
        failures = []

        def other():
            try:
                self._check_result()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=other, daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive(), "a lock is held"
        assert not failures, failures

    def _check_result(self):
        c = self()
        assert pyclmm.checks.reference.error_ratio(c, self.a, self.b) < pyclmm.checks.reference.limit(
            self.a.shape[1]
        )


def check_caches(folder):
    """Every file of the cache is complete, and there is no other file but this process's marks."""
    for file in folder.rglob("*"):
        if file.suffix == ".bin":  # of a driver that keeps no programs itself
            assert store.read_bytes(file), file
        elif file.is_file() and file not in crash_marks._marks:
            assert file.suffix == ".json", file
            schemas = {"selfcheck": selfcheck._SCHEMA, "detours": crash_marks._SCHEMA, "tuned": tables.SCHEMA}
            assert json.loads(file.read_text())["schema"] == schemas[file.parent.name]
