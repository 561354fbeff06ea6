"""Asks a CPU device's compiler which processor it compiles for, and keeps the answer in the cache folder.

Neither the driver's version nor the widths that it reports tell: PoCL 3.0 compiles for AVX-512 on an Intel
Xeon, and for AVX2 on a Zen 4, which its compiler does not know; it reports 16 floats on both. So
cl/cpu/target.cl is built once for each driver and processor. The names of its kernels are the answer, and
none is run.

Caches are passed by, because a damaged file there could end every process before any kernel is tried.
"""

from __future__ import annotations

import logging
import re
import secrets
from typing import Any

import pyopencl as cl

from .. import environment, fields, store
from ..kernels.device import FEATURES, Target
from . import compiler, processor

_log = logging.getLogger(__name__)
_SOURCE = "cpu/target.cl"
_SCHEMA = 2
_CHECKS = {
    "vector_bits": fields.one_of(0, 128, 256, 512),
    "features": fields.list_of(fields.one_of(*FEATURES), 0, len(FEATURES)),
}


def target_of(device: cl.Device) -> Target:
    """What the compiler of *device* says: kept, or asked for now. ``Target()`` if it cannot be asked."""
    file = _file(device)
    kept = file.read()
    if kept is not None:
        return Target(kept["vector_bits"], tuple(kept["features"]))
    found = _asked(device)
    if found is None:
        return Target()
    file.write(vector_bits=found.vector_bits, features=list(found.features))
    return found


def _file(device: cl.Device) -> store.KeptFile:
    """The file of an answer. Its name is a digest of everything that decides what the compiler is told."""
    texts = (
        str(_SCHEMA),
        device.platform.name,
        device.platform.version,
        device.name,
        device.driver_version,
        environment.BUILD_OPTIONS.value,
        processor.description(),
        compiler.expanded(_SOURCE),
    )
    key = store.digest_of(texts)
    return store.KeptFile("targets", key, _SCHEMA, {"key": key}, _CHECKS)


def _asked(device: cl.Device) -> Target | None:
    options = ("-cl-std=CL1.2", f"-DASKED={secrets.randbits(62)}")
    try:
        with compiler.quiet:
            context = cl.Context([device])
            built = compiler.compiled(context, compiler.expanded(_SOURCE), options)
        names: Any = built.get_info(cl.program_info.KERNEL_NAMES)
    except cl.Error as error:  # the product's own build will fail too, and tell the user
        _log.info("%s does not tell its target: %s", device.name, compiler.driver_log(error))
        return None
    return answer(names)


def answer(names: str) -> Target:
    """The target that the names of the kernels of cl/cpu/target.cl tell."""
    bits = re.search(r"\bbits_(\d+)\b", names)
    has = frozenset(re.findall(r"\bhas_(\w+)", names))
    return Target(int(bits[1]) if bits else 0, tuple(name for name in FEATURES if name in has))
