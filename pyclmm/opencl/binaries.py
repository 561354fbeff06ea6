"""Compiled programs in the user's cache folder, where the driver keeps none itself.

A child process that tries a program (see checks/isolation.py) hands it to its parent in this way, and every
process to later ones. A file is kept only after the driver has built the program from it once.

PoCL and NVIDIA's driver keep what they compile from source. Besides, PoCL compiles a program a second time to
hand out its binary (`packed`, float32: built in 0.83 s, its binary in 0.92; PoCL 3.0, Zen 4, 2026-11-22). But
no driver keeps what pyclmm makes of a program that it rewrites (compiler.py).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pyopencl as cl

from .. import environment, store
from ..kernels import Program
from ..kernels.device import DeviceInfo
from ..version import __version__
from . import processor

_SCHEMA = 2
_KEEP_THEIR_OWN = ("pocl", "nvidia")  # vendors
_MOST_BYTES = 1 << 28  # of all files; the ones used longest ago are deleted


def are_kept(device: DeviceInfo, program: Program) -> bool:
    """Whether *program* for *device* is kept here."""
    return program.ptx_target is not None or device.vendor not in _KEEP_THEIR_OWN


def place(device: DeviceInfo, source_digest: str, detour: int) -> Path:
    """The file of a program. Its name is a digest of everything that decides what the driver compiles."""
    texts = [
        str(_SCHEMA),
        __version__,
        cl.VERSION_TEXT,
        environment.BUILD_OPTIONS.value,
        *device.identity.values(),
        device.platform_version,
        str(device.opencl_version),
        processor.description() if device.is_cpu else "",  # a home folder may be shared by different machines
        source_digest,
        str(detour),  # past what was kept before it
    ]
    return store.folder("programs", f"{store.digest_of(texts)}.bin")


def read(path: Path) -> bytes | None:
    """The binary in *path*, or None."""
    content = store.read_bytes(path)
    if content is not None:
        with contextlib.suppress(OSError):
            os.utime(path)
    return content


def keep(path: Path, binary: bytes) -> None:
    """Write *binary* to *path*, and delete the oldest files if all of them are too large."""
    if store.write_bytes(path, binary):
        with contextlib.suppress(OSError):  # another process deletes too
            _delete_oldest(path.parent)


def drop(path: Path) -> None:
    """Delete a binary that the driver does not take."""
    with contextlib.suppress(OSError):
        path.unlink()


def _delete_oldest(folder: Path) -> None:
    found = [(path.stat(), path) for path in folder.glob("*.bin")]
    total = 0
    for status, path in sorted(found, key=lambda one: one[0].st_mtime_ns, reverse=True):
        total += status.st_size
        if total > _MOST_BYTES:
            path.unlink()
