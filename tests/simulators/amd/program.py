"""A program that clang compiled and linked for an AMD processor: an ELF file, as the driver would load it."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from bisect import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgpack

from tests.conformance.implementations import DEBIAN, DEBIAN_LIB

LLVM = DEBIAN / DEBIAN_LIB / "libLLVM.so.19.1"


@dataclass(frozen=True)
class Argument:
    """An argument's place in the memory of arguments. ``kind`` is the ABI's value kind."""

    offset: int
    size: int
    kind: str


@dataclass(frozen=True)
class Descriptor:
    """What a kernel asks of the dispatcher (LLVM's "User Guide for AMDGPU Backend", kernel descriptor)."""

    entry: int  # the address of its first instruction
    local_bytes: int
    private_bytes: int  # of a work-item
    argument_bytes: int
    properties: int  # which registers the dispatcher sets
    rsrc2: int
    arguments: tuple[Argument, ...]

    @property
    def lanes(self) -> int:
        return 32 if self.properties >> 10 & 1 else 64


@dataclass(frozen=True)
class Line:
    """An instruction: its address, its name, the operands and modifiers that LLVM prints.

    ``source``: the line of OpenCL C that it was compiled from, such as "unit.cl:77", or "".
    """

    address: int
    name: str
    operands: tuple[str, ...]
    modifiers: Mapping[str, str]
    text: str
    source: str = ""


@dataclass(frozen=True)
class Program:
    """``segments``: (address, bytes) of what is loaded. ``lines``: the instructions, in their order."""

    processor: str
    segments: tuple[tuple[int, bytes], ...]
    kernels: Mapping[str, Descriptor]
    lines: tuple[Line, ...]
    steps: dict[int, Any] = field(default_factory=dict, compare=False)  # those that machine.py has decoded


def loaded(path: Path, processor: str) -> Program:
    content = path.read_bytes()
    sections = _sections(content)
    text = sections[".text"]
    segments = tuple(
        (address, content[start : start + length].ljust(size, b"\0"))
        for kind, start, address, length, size in _segments(content)
        if kind == 1
    )
    return Program(
        processor,
        segments,
        _kernels(content, sections),
        tuple(_disassembled(content[text[1] : text[1] + text[2]], text[0], processor, _sources(path))),
    )


def metadata(content: bytes) -> list[dict[str, Any]]:
    """What AMD's compiler says of each kernel function of a program: its registers, spills, arguments."""
    found: list[dict[str, Any]] = _notes(content, _sections(content))["amdhsa.kernels"]
    return found


def _segments(content: bytes) -> list[tuple[int, int, int, int, int]]:
    """(type, offset, address, bytes in the file, bytes in memory) of each program header."""
    (table,) = struct.unpack_from("<Q", content, 0x20)
    (count,) = struct.unpack_from("<H", content, 0x38)
    found = []
    for i in range(count):
        kind, _, offset, address, _, length, size, _ = struct.unpack_from(
            "<IIQQQQQQ", content, table + 56 * i
        )
        found.append((kind, offset, address, length, size))
    return found


def _sections(content: bytes) -> dict[str, tuple[int, int, int]]:
    """Name -> (address, offset, bytes)."""
    (table,) = struct.unpack_from("<Q", content, 0x28)
    count, names = struct.unpack_from("<HH", content, 0x3C)
    headers = [struct.unpack_from("<IIQQQQ", content, table + 64 * i) for i in range(count)]
    return {_text(content, headers[names][4] + h[0]): (h[3], h[4], h[5]) for h in headers}


def _text(content: bytes, at: int) -> str:
    return content[at : content.index(b"\0", at)].decode()


def _symbols(content: bytes, sections: dict[str, tuple[int, int, int]]) -> dict[str, int]:
    """Name -> address."""
    _, start, length = sections[".dynsym"]
    strings = sections[".dynstr"][1]
    found = {}
    for at in range(start, start + length, 24):
        name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", content, at)
        found[_text(content, strings + name)] = value
    return found


def _notes(content: bytes, sections: dict[str, tuple[int, int, int]]) -> Any:
    """AMD's metadata, a MessagePack map."""
    _, at, _ = sections[".note"]
    name, size, _ = struct.unpack_from("<III", content, at)
    start = at + 12 + (name + 3) // 4 * 4
    return msgpack.unpackb(content[start : start + size])


def _kernels(content: bytes, sections: dict[str, tuple[int, int, int]]) -> dict[str, Descriptor]:
    symbols = _symbols(content, sections)
    found = {}
    for kernel in _notes(content, sections)["amdhsa.kernels"]:
        address = symbols[kernel[".symbol"]]
        at = next(
            start + address - base
            for base, start, size in sections.values()
            if base and base <= address < base + size
        )
        local, private, arguments = struct.unpack_from("<III", content, at)
        (entry,) = struct.unpack_from("<q", content, at + 16)
        (rsrc2,) = struct.unpack_from("<I", content, at + 52)
        (properties,) = struct.unpack_from("<H", content, at + 56)
        listed = tuple(Argument(x[".offset"], x[".size"], x[".value_kind"]) for x in kernel.get(".args", ()))
        found[kernel[".name"]] = Descriptor(
            address + entry, local, private, arguments, properties, rsrc2, listed
        )
    return found


_ENV = {"LD_LIBRARY_PATH": str(DEBIAN / DEBIAN_LIB), "PATH": "/usr/bin:/bin"}
_ROW = re.compile(r"^(\S+) +(\d+) +0x([0-9a-f]+)", re.MULTILINE)


def _sources(path: Path) -> list[tuple[int, str]]:
    """(address, line of OpenCL C) from which on instructions are that line's, in order."""
    command = [DEBIAN / "usr/bin/readelf", "--debug-dump=decodedline", path]
    told = subprocess.run(command, capture_output=True, check=True, text=True, env=_ENV).stdout
    rows = (
        (int(at, 16), f"{name}:{number}" if number != "0" else "") for name, number, at in _ROW.findall(told)
    )
    return sorted(rows, key=lambda row: row[0])


def _disassembled(code: bytes, base: int, processor: str, sources: list[tuple[int, str]]) -> Iterator[Line]:
    command = [sys.executable, Path(__file__).with_name("llvm.py"), LLVM, processor]
    done = subprocess.run(command, input=code, capture_output=True, check=True, env=_ENV)
    for text in done.stdout.decode().splitlines():
        offset, instruction = text.split("\t", 1)
        address = base + int(offset)
        place = bisect(sources, address, key=lambda row: row[0])
        yield replace(line(address, instruction), source=sources[place - 1][1] if place else "")


_MODIFIER = re.compile(r"^(\w+):(\[[^\]]*\]|\S+)$")


def line(address: int, text: str) -> Line:
    """The parts of an instruction's text. What follows the operands without a comma are modifiers."""
    name, _, rest = text.partition(" ")
    if " :: " in rest:  # two instructions in one: its parts are taken apart where it is decoded
        return Line(address, name, (), {}, text)
    operands: list[str] = []
    modifiers: dict[str, str] = {}
    for part in re.split(r",\s*(?![^\[(]*[\])])", rest.strip()):
        first, *more = re.split(r"\s+(?![^\[]*\])", part.strip())
        for word in (first, *more):
            match = _MODIFIER.match(word)
            if match:
                modifiers[match[1]] = match[2]
            elif word is first and word:
                operands.append(word)
            elif word:
                modifiers[word] = ""
    return Line(address, name, tuple(operands), modifiers, text)
