"""Asks a CPU device's compiler which processor it compiles for, and keeps the answer in the cache folder.

Neither the driver's version nor the widths that it reports tell: PoCL 3.0 compiles for AVX-512 on an Intel
Xeon, and for AVX2 on a Zen 4, which its compiler does not know; it reports 16 floats on both. So
cl/cpu/target.cl is built once for each driver and processor. The names of its kernels are the answer, and
none is run.

Caches are passed by, because a damaged file there could end every process before any kernel is tried.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
from functools import partial
from pathlib import Path
from typing import Any

import pyopencl as cl

from .. import environment, store
from ..kernels.device import FEATURES, Target
from . import compiler, processor

_log = logging.getLogger(__name__)
_SOURCE = "cpu/target.cl"
_SCHEMA = 1
_BITS = (0, 128, 256, 512)
_KEYS = {"schema", "device", "vector_bits", "features"}


def target_of(device: cl.Device) -> Target:
    """What the compiler of *device* says: kept, or asked for now. ``Target()`` if it cannot be asked."""
    path = _path(device)
    kept = store.read_json(path, partial(fault, device=device.name.strip()))
    if kept is not None:
        return Target(kept["vector_bits"], tuple(kept["features"]))
    found = _asked(device)
    if found is None:
        return Target()
    record = {"schema": _SCHEMA, "device": device.name.strip(), "vector_bits": found.vector_bits}
    store.write_json(path, record | {"features": found.features})
    return found


def _path(device: cl.Device) -> Path:
    """The file of an answer. Its name is a digest of everything that decides what the compiler is told."""
    texts = (
        device.platform.name,
        device.platform.version,
        device.name,
        device.driver_version,
        environment.BUILD_OPTIONS.value,
        processor.description(),
        compiler.expanded(_SOURCE),
    )
    return store.folder("targets", f"{hashlib.sha256(chr(10).join(texts).encode()).hexdigest()}.json")


def _asked(device: cl.Device) -> Target | None:
    options = ("-cl-std=CL1.2", f"-DASKED={secrets.randbits(62)}")
    try:
        with compiler.quiet:
            context = cl.Context([device])
            built = compiler.compiled(context, compiler.expanded(_SOURCE), options, pyopencl_keeps=False)
        names: Any = built.get_info(cl.program_info.KERNEL_NAMES)
    except cl.Error as error:  # the product's own build will fail too, and tell the user
        _log.info("%s does not tell its target: %s", device.name, compiler.without_file(str(error)))
        return None
    return answer(names)


def answer(names: str) -> Target:
    """The target that the names of the kernels of cl/cpu/target.cl tell."""
    bits = re.search(r"\bbits_(\d+)\b", names)
    has = frozenset(re.findall(r"\bhas_(\w+)", names))
    return Target(int(bits[1]) if bits else 0, tuple(name for name in FEATURES if name in has))


def fault(content: Any, device: str) -> str | None:
    """What is wrong with a kept answer for *device*, or None."""
    if not isinstance(content, dict) or set(content) != _KEYS or content["schema"] != _SCHEMA:
        return f"it has not the keys of schema {_SCHEMA}"
    if type(content["vector_bits"]) is not int or content["vector_bits"] not in _BITS:
        return "it has no width of vectors"
    features = content["features"]
    if not isinstance(features, list) or not all(isinstance(x, str) and x in FEATURES for x in features):
        return "it has unknown features"
    return None if content["device"] == device else "it is for another device"
