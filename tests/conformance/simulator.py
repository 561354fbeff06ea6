"""Patches with which Oclgrind's reports can be trusted. They are for the tests only.

Oclgrind 21.10 records which bytes of each buffer are initialized, and keeps that record when the buffer is
released. The next buffer gets the released one's number and record. The record's length is wrong: writes
beyond it are not recorded, so that reading them counts as uninitialized, and bytes that were written in the
old buffer count as written in the new one. So no buffer is released before the run ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyopencl as cl
import pytest

from pyclmm.opencl import devices

_kept: list[cl.Buffer] = []


class _Kept(cl.Buffer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _kept.append(self)


@contextmanager
def buffers_are_kept() -> Iterator[None]:
    """Buffers made inside the block live until the process ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cl, "Buffer", _Kept)
        yield


@contextmanager
def called_a_cpu() -> Iterator[None]:
    """Inside the block the device counts as a CPU. Oclgrind calls itself a GPU but runs CPU kernels too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "_kind", lambda _: "cpu")
        devices.device_info.cache_clear()
        yield
    devices.device_info.cache_clear()
