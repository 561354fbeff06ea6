"""What the CUDA driver needs changed in the PTX of NVIDIA's OpenCL compiler. Pure text.

1. OpenCL's compiler reads sizes and offsets of a launch from registers %envreg0 to 8, which CUDA does not
   set: the first group (0 to 2), the global offset (3 to 5), the number of work-groups (6 to 8). A launch of
   CUDA's has 65,535 work-groups at most in dimensions 1 and 2, so one of OpenCL's may take several. Where a
   part begins, and how many work-groups all have in dimension 1, are parameters behind all others. The other
   numbers of work-groups are CUDA's %nctaid.
2. Local memory that a kernel declares may be 48 KiB at most in CUDA. The largest array beyond that becomes
   memory whose size the launch gives.
3. From compute capability 9.0 on, a launch may begin while the last work-groups of the one before still run
   (CUDA's programmatic dependent launch). So each kernel first waits until what came before has ended and its
   memory can be seen: launches overlap, products do not.

What was seen: NVIDIA's driver 580.159.04, PTX 9.0 (docs/cuda.md). Anything else is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_MOST_STATIC = 48 << 10  # bytes
_ENTRY = re.compile(rb"^(?:\.visible\s+)?\.entry\s+([\w$]+)\s*\(", re.MULTILINE)
_READ = re.compile(rb"^([ \t]*)mov\.[bu]32([ \t]+)(%r\d+),[ \t]*%envreg(\d+);", re.MULTILINE)
_ANY = re.compile(rb"%envreg\d+")
_SHARED = re.compile(
    rb"^[ \t]*\.shared[ \t]+\.align[ \t]+(\d+)[ \t]+\.b8[ \t]+([\w$]+)\[(\d+)\];[ \t]*$", re.MULTILINE
)
_ANY_SHARED = re.compile(rb"^[ \t]*\.shared\b[^;]*;", re.MULTILINE)
_HEAD = re.compile(rb"^(\.address_size[^\n]*\n)", re.MULTILINE)
_VERSION = re.compile(rb"^\.version[ \t]+(\d+)\.(\d+)", re.MULTILINE)
_TARGET = re.compile(rb"^\.target[ \t]+sm_(\d+)", re.MULTILINE)
_BODY = re.compile(rb"^\{[ \t]*\n", re.MULTILINE)
_WAIT = b"\tgriddepcontrol.wait;\n"
# The registers that are parameters, in their order: %envreg5 is the first product of a stack, 1 and 4 are the
# first work-group and work-item of dimension 1, 7 is the number of work-groups there.
PARAMETERS = (5, 1, 4, 7)
_NAME = b"%s_pyclmm_envreg%d"


@dataclass(frozen=True)
class Loadable:
    """PTX for the CUDA driver, and the bytes of local memory that launches of each kernel give. ``overlaps``:
    each kernel waits by itself for the work before it.
    """

    text: bytes
    dynamic: dict[str, int]
    overlaps: bool


def loadable(text: bytes) -> Loadable:
    """*text*, of NVIDIA's OpenCL compiler, as the CUDA driver takes it. Raises ValueError with the reason."""
    text = text.rstrip(b"\0")
    starts = [found.start() for found in _ENTRY.finditer(text)]
    if not starts:
        raise ValueError("the program text has no kernel")
    head, parts = text[: starts[0]], [text[i:j] for i, j in zip(starts, [*starts[1:], None], strict=True)]
    if _ANY.search(head):
        raise ValueError("a function beside the kernels reads %envreg registers, which CUDA does not set")
    dynamic, declared, overlaps = {}, b"", _can_wait(head)
    for number, (part, found) in enumerate(zip(parts, _ENTRY.finditer(text), strict=True)):
        shorter, declaration, size = _moved(part, found[1])
        parts[number], declared = _with_launch_sizes(shorter, found[1]), declared + declaration
        if overlaps:
            parts[number] = _BODY.sub(lambda body: body[0] + _WAIT, parts[number], count=1)
        dynamic[found[1].decode()] = size
    head, heads = _HEAD.subn(lambda found: found[1] + declared, head)
    if heads != 1:
        raise ValueError("the program text has no .address_size line")
    return Loadable(head + b"".join(parts) + b"\0", dynamic, overlaps)


def _can_wait(head: bytes) -> bool:
    """Whether PTX of that head has griddepcontrol: from version 7.8 and sm_90 on."""
    version, target = _VERSION.search(head), _TARGET.search(head)
    if version is None or target is None:
        return False
    return (int(version[1]), int(version[2])) >= (7, 8) and int(target[1]) >= 90


def _with_launch_sizes(part: bytes, name: bytes) -> bytes:
    """The kernel *name* without %envreg registers."""

    def read(found: re.Match[bytes]) -> bytes:
        indent, space, register, number = found[1], found[2], found[3], int(found[4])
        if number in PARAMETERS:
            return b"%sld.param.u32%s%s, [%s];" % (indent, space, register, _NAME % (name, number))
        if number > 8:
            raise ValueError(f"{name.decode()} reads %envreg{number}, of which nothing is known")
        value = b"0" if number < 6 else b"%nctaid." + b"xyz"[number - 6 : number - 5]
        return b"%smov.u32%s%s, %s;" % (indent, space, register, value)

    part = _READ.sub(read, part)
    if unknown := _ANY.search(part):
        raise ValueError(f"{name.decode()} reads {unknown[0].decode()} in a way that is not known")
    if not any(_NAME % (name, number) in part for number in PARAMETERS):
        return part
    end = part.index(b"\n)")
    if end > part.index(b"{"):
        raise ValueError(f"{name.decode()} has no list of parameters")
    added = [b",\n\t.param .u32 " + _NAME % (name, number) for number in PARAMETERS]
    return part[:end] + b"".join(added) + part[end:]


def _moved(part: bytes, name: bytes) -> tuple[bytes, bytes, int]:
    """The kernel *name* with at most 48 KiB of local memory, and what was taken out: declaration, size."""
    arrays = list(_SHARED.finditer(part))
    total = sum(int(found[3]) for found in arrays)
    if total <= _MOST_STATIC:
        return part, b"", 0
    largest = max(arrays, key=lambda found: int(found[3]))
    if len(arrays) < len(_ANY_SHARED.findall(part)) or total - int(largest[3]) > _MOST_STATIC:
        raise ValueError(f"{name.decode()} has {total} bytes of local memory in several large arrays")
    part = part[: largest.start()] + part[largest.end() :]
    declared = b".extern .shared .align %s .b8 %s[];\n" % (largest[1], largest[2])
    return part, declared, int(largest[3])
