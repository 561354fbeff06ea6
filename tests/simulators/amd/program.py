"""A program that clang compiled and linked for an AMD processor: an ELF file, as the driver would load it."""

from __future__ import annotations

import atexit
import re
import struct
import subprocess
import sys
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from tests.conformance.implementations import DEBIAN, DEBIAN_LIB

LLVM = DEBIAN / DEBIAN_LIB / "libLLVM.so.19.1"
_NO_BITS = 8  # a section that takes no bytes of the file


@dataclass(frozen=True)
class Kernel:
    """What a kernel asks of the dispatcher (LLVM's "User Guide for AMDGPU Backend", kernel descriptor).

    ``about`` is the compiler's metadata: arguments, and bytes of memory.
    """

    entry: int  # the address of its first instruction
    properties: int  # which registers the dispatcher sets
    rsrc2: int
    about: Mapping[str, Any]

    @property
    def lanes(self) -> int:
        return 32 if self.properties >> 10 & 1 else 64

    @property
    def registers(self) -> int:
        """Vector registers; accumulators come behind all others."""
        return 512 if self.about.get(".agpr_count") else max(4, int(self.about[".vgpr_count"]))


@dataclass(frozen=True)
class Line:
    """An instruction: its address, and what LLVM prints. What has no comma before it is a modifier.

    ``source``: the line of OpenCL C that it was compiled from, such as "unit.cl:77", or "".
    """

    address: int
    text: str
    source: str = ""

    @cached_property
    def name(self) -> str:
        return self.text.partition(" ")[0]

    @cached_property
    def modifiers(self) -> dict[str, str]:
        return dict(word.partition(":")[::2] for word in self._words[1])

    @cached_property
    def operands(self) -> list[str]:
        return self._words[0]

    @cached_property
    def _words(self) -> tuple[list[str], list[str]]:
        found: tuple[list[str], list[str]] = [], []
        for part in _OPERANDS.split(self.text.partition(" ")[2].strip()):
            for number, word in enumerate(_WORDS.split(part.strip())):
                key, colon, _ = word.partition(":")
                found[bool(number or (colon and key.isidentifier()))].append(word)
        return tuple(list(filter(None, words)) for words in found)  # type: ignore[return-value]


@dataclass(frozen=True)
class Program:
    """``image``: what is loaded. ``lines``: the instructions, in their order; ``steps``, by their places."""

    processor: str
    image: np.ndarray[Any, np.dtype[np.uint8]]
    kernels: Mapping[str, Kernel]
    lines: tuple[Line, ...]
    steps: dict[int, Callable[[Any], str | None]] = field(default_factory=dict, compare=False)


def loaded(path: Path, processor: str) -> Program:
    content = path.read_bytes()
    sections = _sections(content)
    image = np.zeros(max(address + size for address, _, size, _ in sections.values()), np.uint8)
    for address, start, size, kind in sections.values():
        if address and kind != _NO_BITS:
            image[address : address + size] = np.frombuffer(content, np.uint8, size, start)
    at, start, size, _ = sections[".text"]
    lines = tuple(_disassembled(content[start : start + size], at, processor, _sources(path)))
    return Program(processor, image, _kernels(content, image.tobytes()), lines)


def metadata(content: bytes) -> list[dict[str, Any]]:
    """What AMD's compiler says of each kernel function of a program: its registers, spills, arguments."""
    _, at, _, _ = _sections(content)[".note"]
    name, size, _ = struct.unpack_from("<III", content, at)
    start = at + 12 + (name + 3) // 4 * 4
    found: list[dict[str, Any]] = msgpack.unpackb(content[start : start + size])["amdhsa.kernels"]
    return found


def _sections(content: bytes) -> dict[str, tuple[int, int, int, int]]:
    """Name -> (address, offset, bytes, type)."""
    (table,) = struct.unpack_from("<Q", content, 0x28)
    count, names = struct.unpack_from("<HH", content, 0x3C)
    headers = [struct.unpack_from("<IIQQQQ", content, table + 64 * i) for i in range(count)]
    return {_text(content, headers[names][4] + h[0]): (h[3], h[4], h[5], h[1]) for h in headers}


def _text(content: bytes, at: int) -> str:
    return content[at : content.index(b"\0", at)].decode()


def _kernels(content: bytes, image: bytes) -> dict[str, Kernel]:
    """A descriptor is where the symbol of its name is."""
    sections, symbols = _sections(content), {}
    _, start, length, _ = sections[".dynsym"]
    for name, _, _, _, value, _ in struct.iter_unpack("<IBBHQQ", content[start : start + length]):
        symbols[_text(content, sections[".dynstr"][1] + name)] = value
    found = {}
    for about in metadata(content):
        address = symbols[about[".symbol"]]
        entry, rsrc2, properties = struct.unpack_from("<q", image, address + 16) + struct.unpack_from(
            "<IH", image, address + 52
        )
        found[about[".name"]] = Kernel(address + entry, properties, rsrc2, about)
    return found


_OPERANDS = re.compile(r",\s*(?![^\[(]*[\])])")
_WORDS = re.compile(r"\s+(?![^\[]*\])")
_ENV = {"LD_LIBRARY_PATH": str(DEBIAN / DEBIAN_LIB), "PATH": "/usr/bin:/bin"}
_ROW = re.compile(r"^(\S+) +(\d+) +0x([0-9a-f]+)", re.MULTILINE)


def _sources(path: Path) -> list[tuple[int, str]]:
    """(address, line of OpenCL C) from which on instructions are that line's, in order."""
    command = [DEBIAN / "usr/bin/readelf", "--debug-dump=decodedline", path]
    told = subprocess.run(command, capture_output=True, check=True, text=True, env=_ENV).stdout
    rows = ((int(at, 16), f"{name}:{number}" * (number != "0")) for name, number, at in _ROW.findall(told))
    return sorted(rows, key=lambda row: row[0])


def _disassembled(code: bytes, base: int, processor: str, sources: list[tuple[int, str]]) -> Iterator[Line]:
    process = _disassembler(processor)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{len(code)}\n".encode() + code)
    process.stdin.flush()
    for text in iter(process.stdout.readline, b"\n"):
        offset, instruction = text.decode().rstrip().split("\t")
        address = base + int(offset)
        place = bisect(sources, address, key=lambda row: row[0])
        yield Line(address, instruction, sources[place - 1][1] if place else "")


@cache
def _disassembler(processor: str) -> subprocess.Popen[bytes]:
    """A process that stays: to load the library takes longer than to read a program."""
    command = [sys.executable, Path(__file__).with_name("llvm.py"), LLVM, processor]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_ENV)
    atexit.register(process.communicate)
    return process
