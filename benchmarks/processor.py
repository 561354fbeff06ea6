"""Names the processor that a benchmark runs on."""

from __future__ import annotations

import platform
from pathlib import Path


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
