"""What the operating system knows of the host's processor: its model, its caches, its matrix units.

A process that uses the tile registers of Intel's AMX without leave is ended, so Linux is asked for it.

Neither a driver's version nor the widths that it reports tell what its compiler compiles for: PoCL 3.0
compiles for AVX-512 on an Intel Xeon, for AVX2 on a Zen 4, which its compiler does not know, and reports
16 floats on both. So :func:`target_of` builds cl/cpu/target.cl once for each driver and processor, past all
caches: a damaged file there could end every process before any kernel is tried. The names of its kernels are
the answer, and none is run.
"""

from __future__ import annotations

import ctypes
import logging
import platform
import re
import secrets
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pyopencl as cl

from .. import environment, fields, store
from ..byte_sizes import parse_bytes
from ..kernels.device import FEATURES, AmxSupport, Caches, Target
from ..kernels.matrix_unit import MATRIX_UNITS
from . import compiler

_CPUINFO = Path("/proc/cpuinfo")
_SYSFS = Path("/sys/devices/system/cpu/cpu0/cache")
# sysctl's names on macOS. Those of perflevel0, the fast cores, exist on Apple's own processors only.
_SYSCTL = (
    "hw.cachelinesize", "hw.l1dcachesize", "hw.l2cachesize", "hw.l3cachesize", "hw.cacheconfig",
    "hw.perflevel0.l1dcachesize", "hw.perflevel0.l2cachesize", "hw.perflevel0.cpusperl2",
)  # fmt: skip
_RELATION_CACHE = 2  # of Windows' GetLogicalProcessorInformationEx
_ARCH_PRCTL = 158  # the system call of Linux on x86-64
_REQUEST = 0x1023  # ARCH_REQ_XCOMP_PERM
_TILE_DATA = 18  # the part of the processor's state: XFEATURE_XTILEDATA
_TYPES = {"amx_int8": "int8", "amx_bf16": "bfloat16"}  # flag of /proc/cpuinfo -> what is multiplied


@dataclass(frozen=True)
class Level:
    """A data or unified cache: its level, bytes, bytes of a line, and how many processors share it."""

    level: int
    nbytes: int
    line: int
    sharers: int


@cache
def description() -> str:
    """What the processor is and can do: on Linux its model and flags, elsewhere what Python knows."""
    text = _text(_CPUINFO)
    if text is None:
        return f"{platform.machine()} {platform.processor()}"
    first = text.partition("\n\n")[0]
    facts = r"^(?:vendor_id|cpu family|model|model name|flags|Features|CPU part)\s*:.*$"
    return "\n".join((platform.machine(), *re.findall(facts, first, re.MULTILINE)))


def caches(global_cache: int, line: int) -> Caches:
    """The data caches, as the system tells; else OpenCL's: *global_cache* bytes of any level, *line*."""
    levels, tlb = _from_system()
    return combined(levels, tlb, global_cache, line)


def combined(levels: Iterable[Level], tlb: int, global_cache: int, line: int) -> Caches:
    """The caches that *levels* tell; the least that processors have where they tell nothing."""
    by_level = {found.level: found for found in levels}
    first, second, third = (by_level.get(level) for level in (1, 2, 3))
    least = Caches()
    l1 = first.nbytes // first.sharers if first else least.l1
    l2 = second.nbytes // second.sharers if second else min(least.l2, global_cache or least.l2)
    l3 = third.nbytes if third else (0 if second else global_cache)
    return Caches(l1, max(l1, l2), l3, (first.line if first else line) or least.line, tlb)


@cache
def _from_system() -> tuple[tuple[Level, ...], int]:
    """The caches and the entries of the second-level TLB, 0 where they are not known."""
    try:
        if sys.platform == "darwin":
            levels = from_sysctl(_sysctl())
        elif sys.platform == "win32":
            levels = from_windows(_windows())
        else:
            levels = from_sysfs(_sysfs())
        return tuple(levels), tlb_entries(_text(_CPUINFO) or "")
    except (OSError, ValueError, AttributeError, subprocess.SubprocessError):  # a system that differs
        return (), 0


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


# Intel's AMX


def amx_of(vendor: str) -> AmxSupport:
    """What the processor multiplies by AMX for the driver of *vendor*. Asks Linux for leave if it can. Leave
    is for the process, its threads and its forks, and for good. The child process of a trial asks for itself.
    """
    if vendor != MATRIX_UNITS["amx"].vendor:
        return AmxSupport(refusal="only PoCL's compiler takes the instructions")
    return _of_process()


@cache
def _of_process() -> AmxSupport:
    if sys.platform != "linux" or platform.machine() != "x86_64" or sys.maxsize < 1 << 32:
        return AmxSupport(refusal="it needs Linux on x86-64")
    types = types_of(description())
    if not types:
        return AmxSupport(refusal="the processor does not have it")
    if not _granted():
        return AmxSupport(refusal="Linux does not let this process use the tile registers")
    return AmxSupport(types)


def types_of(description: str) -> tuple[str, ...]:
    """The types that the processor of that description multiplies; none without the tile registers."""
    flags = _flags(description)
    return tuple(name for flag, name in _TYPES.items() if flag in flags) if "amx_tile" in flags else ()


def _flags(description: str) -> list[str]:
    found = re.search(r"^flags\s*:(.*)$", description, re.MULTILINE)
    return found[1].split() if found else []


def _granted() -> bool:
    try:
        call = ctypes.CDLL(None).syscall
    except (OSError, AttributeError):  # no C library to load
        return False
    call.restype = ctypes.c_long
    return bool(call(ctypes.c_long(_ARCH_PRCTL), ctypes.c_long(_REQUEST), ctypes.c_long(_TILE_DATA)) == 0)


# Linux


def _sysfs() -> Iterator[dict[str, str]]:
    """A dictionary for each cache: the contents of its files by their names."""
    for folder in sorted(_SYSFS.glob("index*")):
        names = ("level", "type", "size", "coherency_line_size", "shared_cpu_list")
        yield {name: (_text(folder / name) or "").strip() for name in names}


def from_sysfs(folders: Iterable[Mapping[str, str]]) -> list[Level]:
    """The caches that Linux describes in /sys/devices/system/cpu/cpu0/cache/index*."""
    return [
        _level(x) for x in folders if x["type"] in ("Data", "Unified") and x["level"].isdigit() and x["size"]
    ]


def _level(told: Mapping[str, str]) -> Level:
    line = int(told["coherency_line_size"] or 0)
    size = parse_bytes("size", re.sub("[KMG]$", r"\g<0>iB", told["size"]), least=0)
    return Level(int(told["level"]), size, line, _count(told["shared_cpu_list"]))


def _count(cpus: str) -> int:
    """How many processors a list such as "0-3,8" names; 1 for an empty one."""
    spans = [span.partition("-") for span in cpus.split(",") if span]
    return sum(int(last or first) - int(first) + 1 for first, _, last in spans) or 1


def tlb_entries(cpuinfo: str) -> int:
    """The entries of the second-level TLB, which Linux tells for AMD's processors; else 0."""
    found = re.search(r"^TLB size\s*:\s*(\d+) 4K pages$", cpuinfo, re.MULTILINE)
    return int(found[1]) if found else 0


# macOS


def _sysctl() -> str:
    """sysctl's lines "name: value". It leaves out names that this processor does not have."""
    done = subprocess.run(
        ["/usr/sbin/sysctl", *_SYSCTL], capture_output=True, text=True, timeout=5, check=False
    )
    return done.stdout


def from_sysctl(text: str) -> list[Level]:
    """The caches that macOS tells: those of the fast cores where there are two kinds."""
    told = {name: value.split() for name, _, value in (line.partition(":") for line in text.splitlines())}

    def number(*names: str) -> int:
        return next((int(told[name][0]) for name in names if told.get(name)), 0)

    # hw.cacheconfig: how many processors share memory, the first level, the second ..
    shared = [int(count) or 1 for count in told.get("hw.cacheconfig", ())]
    sharers = {level: shared[level] if level < len(shared) else 1 for level in (1, 2, 3)}
    sharers[2] = number("hw.perflevel0.cpusperl2") or sharers[2]
    sizes = {
        1: number("hw.perflevel0.l1dcachesize", "hw.l1dcachesize"),
        2: number("hw.perflevel0.l2cachesize", "hw.l2cachesize"),
        3: number("hw.l3cachesize"),
    }
    line = number("hw.cachelinesize")
    return [Level(level, size, line, sharers[level]) for level, size in sizes.items() if size]


# Windows


def _windows() -> bytes:
    """What GetLogicalProcessorInformationEx writes about caches."""
    kernel32: Any = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined]
    size = ctypes.c_uint32(0)
    kernel32.GetLogicalProcessorInformationEx(_RELATION_CACHE, None, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    if not kernel32.GetLogicalProcessorInformationEx(_RELATION_CACHE, buffer, ctypes.byref(size)):
        return b""
    return buffer.raw[: size.value]


def from_windows(content: bytes) -> list[Level]:
    """The first cache of each level in Windows' records, SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX.

    A record: relationship, size (4 bytes each); level, associativity (1 each), line (2), bytes, type (4
    each), 20 bytes that do not matter here, the mask of the processors that share it (8).
    """
    found: dict[int, Level] = {}
    at = 0
    while at + 48 <= len(content):
        relation, size, level, _, line, nbytes, kind, mask = struct.unpack_from("<IIBBHII20xQ", content, at)
        if relation == _RELATION_CACHE and kind in (0, 2):  # unified, data
            found.setdefault(level, Level(level, nbytes, line, mask.bit_count() or 1))
        at += max(48, size)
    return list(found.values())


_log = logging.getLogger(__name__)
_SOURCE = "cpu/target.cl"
_AVX512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"}  # what FOR_TARGET asks for
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
        found = Target(kept["vector_bits"], tuple(kept["features"]))
    else:
        found = _asked(device) or Target()
        if found != Target():
            file.write(vector_bits=found.vector_bits, features=list(found.features))
    return replace(found, beyond=beyond(found, device.platform.version, description()))


def beyond(target: Target, platform: str, processor: str) -> int:
    """``Target.beyond`` for the driver *platform* and the *processor* of that description."""
    told = "avx2" in target.features and target.vector_bits < 512  # clang, of an x86 processor
    tried = re.search(r"\bPoCL 3\.0\b", platform)
    return 512 if told and tried and set(_flags(processor)) >= _AVX512 else 0


def _file(device: cl.Device) -> store.KeptFile:
    """The file of an answer. Its name is a digest of everything that decides what the compiler is told."""
    its = device.platform.name, device.platform.version, device.name, device.driver_version
    options = environment.BUILD_OPTIONS.value
    texts = str(_SCHEMA), *its, options, description(), compiler.expanded(_SOURCE)
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
