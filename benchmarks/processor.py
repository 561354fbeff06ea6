"""Names the processor that a benchmark runs on, with its vectors and caches."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyclmm.byte_sizes import format_bytes


def described(cpuinfo: str | None = None) -> str:
    """The processor's name, with its family and model where Linux tells them: a virtual machine may hide the
    name. *cpuinfo*: the text of /proc/cpuinfo, read if not given.
    """
    if cpuinfo is None:
        path = Path("/proc/cpuinfo")
        cpuinfo = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = (line.partition(":") for line in reversed(cpuinfo.splitlines()))
    facts = {key.strip(): value.strip() for key, _, value in lines}
    name = facts.get("model name") or platform.processor() or platform.machine()
    numbers = [f"{key} {facts[field]}" for key, field in _NUMBERS.items() if field in facts]
    return ", ".join([name, *numbers])


_NUMBERS = {"family": "cpu family", "model": "model"}


def with_facts(name: str, device: Mapping[str, Any]) -> str:
    """*name*, the vectors that the driver compiles for, and the caches. *device*: a DeviceInfo from a file.

    Those of before 2026-11-22 tell neither.
    """
    caches = device.get("caches")
    if not caches:
        return name
    bits = device["target"]["vector_bits"] or 32 * device["float_vector_width"]
    sizes = ", ".join(format_bytes(caches[level]) for level in ("l1", "l2", "l3") if caches[level])
    return f"{name}; {bits}-bit vectors; caches {sizes}"
