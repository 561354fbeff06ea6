"""Turns a driver's error into one of pyclmm's. The only module that knows OpenCL's error codes.

There are three cases: memory is used up, the device or its context is lost, or the driver rejects a command.
The message says what happened and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyopencl as cl

from ..errors import ArgumentError, DeviceLostError, DeviceMemoryError, LaunchError, PyclmmError
from ..kernels.device import DeviceInfo

_MEMORY = (
    cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE,
    cl.status_code.OUT_OF_HOST_MEMORY,
    cl.status_code.INVALID_BUFFER_SIZE,
)
# The codes of commands in a lost context; -9999 is NVIDIA's code for an illegal access.
_LOST = (
    cl.status_code.DEVICE_NOT_AVAILABLE,
    cl.status_code.INVALID_CONTEXT,
    cl.status_code.INVALID_COMMAND_QUEUE,
    -9999,
)


def code_of(error: cl.Error) -> int | None:
    """The OpenCL code of *error*, or None."""
    try:
        return int(error.code)
    except AttributeError:  # PyOpenCL raised it with a text only
        return None


def has_ended(event: cl.Event) -> bool:
    """Whether the command of *event* has ended, if only by an error or with its device."""
    try:
        state: Any = event.command_execution_status
    except cl.Error:  # the device is lost, so nothing runs
        return True
    return bool(state <= cl.command_execution_status.COMPLETE)  # less than that is an error


def failure_of(event: cl.Event) -> str:
    """The error that ended the command of *event*; empty if none has yet."""
    try:
        state: Any = event.command_execution_status
    except cl.Error:  # the device is lost, or its context freed: the call itself says so
        return ""
    codes: Any = cl.status_code
    return str(codes.to_string(state, "code %d")) if state < 0 else ""


def failed_event(what: str, failure: object, cure: str = "") -> ArgumentError:
    """The error for an event of a command that failed, which is no fault of the product's device."""
    return ArgumentError(
        f"{what} ended with an error ({failure}), so what its command was to write may be missing; {cure}"
        "repeat that command"
    )


def refuse_failed(events: Iterable[cl.Event]) -> None:
    """Raise ArgumentError if one of the *events*, of Arrays, has failed. PoCL waits for it forever."""
    for event in events:
        if failure := failure_of(event):
            cure = "take it out of the Array's events, where it stays, and "
            raise failed_event("an event of an operand, or of out,", failure, cure)


def check_events(events: Iterable[Any], context: cl.Context, whose: str) -> None:
    """Raise ArgumentError if one of the *events*, *whose* they are, is not of *context*."""
    try:
        if all(event.context == context for event in events):
            return
    except cl.Error:  # Intel's runtime has freed the context of one (docs/faults.md, Limits)
        pass
    raise ArgumentError(
        f"{whose} an event of another OpenCL context than the queue; wait for it first, event.wait()"
    )


@contextmanager
def available(device: cl.Device) -> Iterator[None]:
    """A block that asks *device*, or makes a context or queue. Raises DeviceLostError or DeviceMemoryError if
    that fails.
    """
    try:
        yield
    except cl.Error as error:
        kind = DeviceMemoryError if code_of(error) in _MEMORY else DeviceLostError
        name = ""
        with suppress(cl.Error):  # it may not even tell its name
            name = f" {device.name.strip()!r}"
        raise kind(
            f"device{name} gives no answer, context or queue ({error}): it may be taken or full, as by "
            "another process; free it, or choose another device by device= or PYOPENCL_CTX"
        ) from error


def arguments_rejected(error: cl.Error) -> bool:
    """Whether the driver rejected a launch because of the kernel object's arguments."""
    return code_of(error) == cl.status_code.INVALID_KERNEL_ARGS


def out_of_memory(nbytes: int, device: DeviceInfo, argument: str, error: cl.Error) -> PyclmmError:
    """The error for an allocation that the driver rejected."""
    if code_of(error) in _LOST:
        return lost(device, error)
    return DeviceMemoryError(
        f"device {device.name!r} rejected {nbytes} bytes for {argument} ({error}); it has "
        f"{device.global_mem_size} bytes in all: free some, or multiply smaller matrices, or NumPy "
        "arrays in tiles by memory_limit="
    )


def rejected(device: DeviceInfo, what: str, error: cl.Error) -> PyclmmError:
    """The error for a command that the driver rejected, so that nothing of it has run."""
    code = code_of(error)
    if code in _LOST:
        return lost(device, error)
    if code in _MEMORY:
        return DeviceMemoryError(
            f"device {device.name!r} had no memory for {what} ({error}): "
            "free some, or multiply smaller matrices, or NumPy arrays in tiles by memory_limit="
        )
    return LaunchError(
        f"device {device.name!r} rejected {what} ({error}); call again, or with another kernel= "
        "(`pyclmm info` lists them); `pyclmm selftest` tells which ones give right results on this device"
    )


def lost(device: DeviceInfo, error: cl.Error) -> DeviceLostError:
    """The error for a command that the driver accepted and did not finish."""
    return DeviceLostError(
        f"device {device.name!r} stopped before the result was complete ({error}); nothing in its "
        "context can be used again: call again with NumPy arrays, or make a new context and new Arrays; "
        "`pyclmm selftest` tells whether a kernel causes this"
    )
