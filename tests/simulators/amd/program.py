"""A program that clang compiled and linked for an AMD processor: an ELF file, as the driver would load it."""

import ast
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from io import BytesIO
from pathlib import Path
from struct import unpack_from
from typing import Any

import msgpack
import numpy as np
from elftools.elf.elffile import ELFFile

from tests.conformance.implementations import DEBIAN, DEBIAN_LIB

from .waves import ACCUMULATORS, EXEC, M0, NULL, SCC, TTMP, VCC

OBJDUMP = DEBIAN / "usr/bin/llvm-objdump-19"
_ENV = {"LD_LIBRARY_PATH": str(DEBIAN / DEBIAN_LIB), "PATH": "/usr/bin:/bin"}
# A line of OpenCL C, or an instruction and its address.
_TOLD = re.compile(r"; .*?([^/]+:\d+)$|\t(.*?) *// (\w+):", re.MULTILINE)
_OPERANDS = re.compile(r",\s*(?![^\[(]*[\])])")
_NAMED = {
    "vcc": f"s[{VCC}:{VCC + 1}]", "vcc_lo": f"s{VCC}", "vcc_hi": f"s{VCC + 1}",
    "exec": f"s[{EXEC}:{EXEC + 1}]", "exec_lo": f"s{EXEC}", "exec_hi": f"s{EXEC + 1}",
    "m0": f"s{M0}", "null": f"s{NULL}", "src_scc": f"s{SCC}", "flat_scratch": "s[102:103]",
    "flat_scratch_lo": "s102", "flat_scratch_hi": "s103",
}  # fmt: skip
_OPERAND = re.compile(
    r"(?P<minus>-(?=[a-z|(\[]))?(?P<bar>\|)?(?P<sext>sext\()?"
    r"(?P<text>(?P<file>v|s|a|ttmp)(?:(?P<one>\d+)|\[(?P<first>\d+):(?P<last>\d+)\])|[^|()]*)[|)]?"
)
_FIRST = {"v": 0, "s": 0, "a": ACCUMULATORS, "ttmp": TTMP}


@dataclass(frozen=True)
class Operand:
    """A register's place, or a constant's text. ``kind``: "v", "s" or "constant"."""

    kind: str
    # what differs between instructions that have the same code
    place: int = field(default=0, compare=False)
    count: int = field(default=1, compare=False)  # of 32-bit registers
    text: str = field(default="", compare=False)
    negated: bool = False
    absolute: bool = False
    extended: bool = False  # sext() of SDWA


@cache
def operand(text: str) -> Operand:
    found = _OPERAND.fullmatch(re.sub(r"[a-z]\w*", lambda name: _NAMED.get(name[0], name[0]), text))
    if found is None:
        raise NotImplementedError(text)
    file, marks = found["file"], [found[name] is not None for name in ("minus", "bar", "sext")]
    if file is None:
        return Operand("constant", 0, 1, found["text"], *marks)
    first = int(found["one"] or found["first"])
    count = int(found["last"] or first) - first + 1
    return Operand("v" if file in "va" else "s", _FIRST[file] + first, count, "", *marks)


@cache
def constant(text: str, kind: str) -> np.unsignedinteger:
    """The bits of a constant where the instruction reads it as *kind*."""
    unsigned = np.uint64 if kind.endswith("64") else np.uint32
    if "." in text or ("e" in text and not text.startswith("0x")):
        number: Any = {"f16": np.float16, "f64": np.float64}.get(kind, np.float32)(text)
        return unsigned(number.view(f"u{number.itemsize}"))
    value = int(text, 0)
    if kind == "f64" and text.startswith("0x") and value < 1 << 32:
        value <<= 32  # a literal is the upper half
    return unsigned(value % (1 << 8 * unsigned().itemsize))


@dataclass(eq=False)
class Line:
    """An instruction: its address, and what LLVM prints. What has no comma before it is a modifier."""

    address: int
    text: str
    source: str = ""  # the line of OpenCL C of this or an instruction before, such as "unit.cl:77"
    step: Callable[[Any], str | None] | None = None

    @cached_property
    def name(self) -> str:
        return self.text.partition(" ")[0]

    @cached_property
    def operands(self) -> list[Operand]:
        return [operand(part.split()[0]) for part in _OPERANDS.split(self.text.partition(" ")[2]) if part]

    @cached_property
    def modifiers(self) -> dict[str, Any]:
        """A value like [0,1,0] as a tuple."""
        words = _OPERANDS.split(self.text.partition(" ")[2])[-1].split()[1:]
        pairs = (word.partition(":")[::2] for word in words)
        return {key: tuple(ast.literal_eval(told)) if told[:1] == "[" else told for key, told in pairs}


@dataclass(frozen=True)
class Program:
    """``image``: what is loaded. ``lines``: the instructions, in their order.

    ``kernels``: what the compiler says of each, and from its descriptor (LLVM's "User Guide for AMDGPU
    Backend") the address of the first instruction, and which registers the dispatcher sets.
    """

    processor: str
    image: np.ndarray[Any, np.dtype[np.uint8]]
    kernels: Mapping[str, Mapping[str, Any]]
    lines: tuple[Line, ...]


def loaded(path: Path, processor: str) -> Program:
    content = path.read_bytes()
    elf, image = ELFFile(BytesIO(content)), bytearray()
    for segment in elf.iter_segments("PT_LOAD"):
        image[segment["p_vaddr"] :] = bytes(max(0, segment["p_vaddr"] - len(image))) + segment.data()
    symbols = {one.name: one["st_value"] for one in elf.get_section_by_name(".dynsym").iter_symbols()}
    kernels = {}
    for about in metadata(content):
        address = symbols[about[".symbol"]]  # the descriptor's
        entry, rsrc2, asked = unpack_from("<16xq28xIH", image, address)
        kernels[about[".name"]] = {**about, "entry": address + entry, "rsrc2": rsrc2, "asks": asked}
    command = [OBJDUMP, "--disassemble", "--line-numbers", path]
    told = subprocess.run(command, capture_output=True, check=True, text=True, env=_ENV).stdout
    lines, source = [], ""
    for at, text, address in _TOLD.findall(told):
        source = at or source
        if text:
            lines.append(Line(int(address, 16), text, source))
    return Program(processor, np.frombuffer(image, np.uint8), kernels, tuple(lines))


def metadata(content: bytes) -> list[dict[str, Any]]:
    """What AMD's compiler says of each kernel function of a program: its registers, spills, arguments."""
    (note,) = ELFFile(BytesIO(content)).get_section_by_name(".note").iter_notes()
    found: list[dict[str, Any]] = msgpack.unpackb(note["n_descdata"])["amdhsa.kernels"]
    return found
