"""What the operating system knows of the host's processor."""

from __future__ import annotations

import platform
import re
from functools import cache
from pathlib import Path


@cache
def description() -> str:
    """What the processor is and can do: on Linux its model and flags, elsewhere what Python knows."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    first = text.partition("\n\n")[0]
    facts = r"^(?:vendor_id|cpu family|model|model name|flags|Features|CPU part)\s*:.*$"
    return "\n".join((platform.machine(), *re.findall(facts, first, re.MULTILINE)))
