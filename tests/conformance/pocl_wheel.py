"""Makes the PoCL 3.0 of PyPI work on processors that are younger than its LLVM.

LLVM 14 calls a processor that it does not know (AMD Zen 5, for one) "generic", and its compiler
then refuses that very name, so that every build fails (pocl issue 1049). The name comes from one
function; this writes "haswell", which every such processor can run, into a copy of the library.

    python pocl_wheel.py LIBRARY        changes LIBRARY in place; a second run changes nothing
"""

from __future__ import annotations

import sys
from pathlib import Path

CPU = b"haswell"
# llvm::sys::getHostCPUName() in pocl-binary-distribution 3.0 for x86_64: where it is in the file,
# and how it starts.
_OFFSET = 0x42E6BC0
_ORIGINAL = bytes.fromhex("31c04889de0fa24887de85c0742d4189c181fe47656e75743781fa656e7469")
# lea rax, [rip + 6]; mov edx, length; ret; then the name: a StringRef is returned in rax and rdx.
_REPLACEMENT = b"\x48\x8d\x05\x06\0\0\0\xba" + len(CPU).to_bytes(4, "little") + b"\xc3" + CPU


def name_the_cpu(library: Path) -> bool:
    """Patch *library*; False where it is not the file that this knows."""
    with library.open("r+b") as file:
        file.seek(_OFFSET)
        found = file.read(len(_ORIGINAL))
        if found.startswith(_REPLACEMENT):
            return True
        if found != _ORIGINAL:
            return False
        file.seek(_OFFSET)
        file.write(_REPLACEMENT)
    return True


if __name__ == "__main__":
    sys.exit(0 if name_the_cpu(Path(sys.argv[1])) else f"{sys.argv[1]} is not PoCL 3.0 of PyPI")
