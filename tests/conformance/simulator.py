"""What Oclgrind needs around it to be believed: patches for the tests, nothing that pyclmm knows of.

Oclgrind 21.10 keeps a note of what is initialized for each buffer, and leaves that note behind when the
buffer is released. The next buffer gets its number and with it the note, of the wrong length: writes
beyond it are not noted, so that reading them back counts as uninitialized, and where the old buffer
was written the new one counts as written. So no buffer is released before the run ends.
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
    """Within, a buffer lives until the process ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cl, "Buffer", _Kept)
        yield


@contextmanager
def called_a_cpu() -> Iterator[None]:
    """Within, pyclmm takes the device for a CPU: Oclgrind calls itself a GPU, and runs CPU kernels too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "_kind", lambda _: "cpu")
        devices.device_info.cache_clear()
        yield
    devices.device_info.cache_clear()
