"""Runs kernels for CPUs on an Arm processor that qemu emulates.

clang 15 compiles OpenCL C with the builtins of arm_builtins.h, lld links it to a shared library, and
arm_player.c plays the launches. All memory is one file, so whatever a kernel writes is seen.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pyclmm.kernels.interface import Launch, Program, Work
from pyclmm.opencl.compiler import expanded
from pyclmm.opencl.launcher import Launcher, Memory, launcher_of
from pyclmm.opencl.program import build_options
from pyclmm.opencl.steps import SCALES, Scalars
from pyclmm.problem.dtypes import converter_of, dtype_of
from tests.conformance import compilers
from tests.conformance.implementations import ARM_LIBC, DEBIAN, DEBIAN_LIB, DEBIAN_PACKAGES
from tests.simulators import entry

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
HERE = Path(__file__).parent
BUILTINS = (HERE / "arm_builtins.h").read_text(encoding="utf-8")
QEMU = DEBIAN / "usr/bin/qemu-aarch64"
# What clang compiles for, and the processor that qemu emulates: one with no more than these instructions.
PROCESSORS = {"armv8-a": "cortex-a57", "neoverse-n1": "neoverse-n1"}
_UNREAD = ("a", "b", "c", "bias")  # arguments that are not always there, as no kernel reads them then
_PAGE = 4096  # bytes, as in arm_player.c
_LINE = 64  # bytes; workspace begins at a multiple, as OpenCL promises
_LIMIT_S = 60


def demand_tools() -> None:
    """Raise FileNotFoundError unless what compiles, links and runs is here."""
    needed = (QEMU, ARM_LIBC / "lib/crt1.o", DEBIAN / "usr/bin/clang-15", DEBIAN / "usr/bin/ld.lld-19")
    if missing := [str(path) for path in needed if not path.exists()]:
        raise FileNotFoundError(
            f"no {', '.join(missing)}: `make offline` fetches them from Debian 12 (x86_64), or unpack "
            f"{', '.join(DEBIAN_PACKAGES)} and their dependencies to {DEBIAN}"
        )


@dataclass(frozen=True)
class Place:
    """Where an array is in the image: bytes [start, start + nbytes)."""

    start: int
    nbytes: int


class Image:
    """The memory of a run: each array ends where a page begins that must not be touched.

    Bytes that belong to no array are 0xFF, NaN and -1, which spoil the sums of what reads them.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._nbytes = 0
        self.guards: list[int] = []  # where the pages begin that must not be touched

    def add(self, content: bytes, align: int = 1) -> Place:
        """Append *content*, which begins at a multiple of *align* bytes."""
        self._guard()
        before = -len(content) % _PAGE // align * align
        place = Place(self._nbytes + before, len(content))
        self._append(b"\xff" * before + content)
        return place

    def content(self) -> bytes:
        self._guard()
        return b"".join(self._parts)

    def _guard(self) -> None:
        self._append(b"\xff" * (-self._nbytes % _PAGE))
        self.guards.append(self._nbytes)
        self._append(b"\xff" * _PAGE)

    def _append(self, content: bytes) -> None:
        self._parts.append(content)
        self._nbytes += len(content)


@dataclass(frozen=True)
class Emulator(Launcher):
    """Compiles for *processor*, one of PROCESSORS, and keeps the results in *folder*.

    Arrays begin at multiples of *align* bytes and end less than that before what must not be touched.
    """

    processor: str
    folder: Path
    align: int = _LINE
    way = "emulated"

    def compute(
        self, queue: Any, _: Any, work: Work, memory: Mapping[str, Memory], scalars: Scalars, *__: Any
    ) -> None:
        """Run all launches of *work*, as :meth:`Launcher.compute` says.

        Raises AssertionError if the program fails, as it does where it touches what is beyond an array, or if
        a byte has changed that belongs neither to "out" nor to workspace.
        """
        *scales, offsets = scalars
        acc_type = next(filter(None, (x.program.define("ACC_TYPE") for x in work.launches)), "float32")
        image = Image()
        own = {id(x): image.add(x.tobytes(), self.align) for x in memory.values()}
        places = {name: own[id(x)] for name, x in memory.items()}
        for name, x in zip(SCALES, scales, strict=True):
            places[name] = image.add(np.array(converter_of(acc_type)(x), dtype_of(acc_type)).tobytes())
        places |= {name: image.add(x.tobytes()) for name, x in work.tables.items()}
        for space in work.workspace:
            fill = b"\0" if space.zeroed else b"\xff"
            places[space.symbol] = image.add(fill * space.nbytes, align=_LINE)
        before = np.frombuffer(image.content(), np.uint8)
        path = self.folder / "image"
        path.write_bytes(before.tobytes())
        lines = [f"guard {start}\n" for start in image.guards]
        offsets = {f"{name}_offset": int(x) for name, x in offsets.items()}
        lines += [self._line(work, launch, places, offsets) for launch in work.launches]
        self._play(path, "".join(lines))
        after = np.fromfile(path, np.uint8)
        self._check_rest(before, after, [places["out"], *(places[space.symbol] for space in work.workspace)])
        memory["out"][...] = after[places["out"].start :][: places["out"].nbytes]

    def _check_rest(self, before: Bytes, after: Bytes, written: list[Place]) -> None:
        same = before == after
        for place in written:
            same[place.start : place.start + place.nbytes] = True
        assert same.all(), f"bytes {np.flatnonzero(~same)[:8]} changed, which no kernel may write"

    def _play(self, image: Path, script: str) -> None:
        command = [QEMU, "-cpu", PROCESSORS[self.processor], "-L", ARM_LIBC, _player(self.folder), image]
        env = {"LD_LIBRARY_PATH": str(DEBIAN / DEBIAN_LIB)}
        done = subprocess.run(
            command,
            input=script,
            cwd=self.folder,  # for core files
            capture_output=True,
            text=True,
            check=False,
            env=env,
            timeout=_LIMIT_S,
        )
        assert done.returncode == 0, f"qemu ended with status {done.returncode}: {done.stderr}"

    def _line(
        self, work: Work, launch: Launch, places: Mapping[str, Place], offsets: Mapping[str, int]
    ) -> str:
        kernels = tuple(
            dict.fromkeys((x.kernel, entry.call(x)) for x in work.launches if x.program == launch.program)
        )
        sizes = [*launch.global_size, 1, 1][:3] + [*launch.local_size, 1, 1][:3]
        words = [_word(arg, places, offsets) for arg in launch.args]
        library = self._library(launch.program, kernels)
        return " ".join([str(library), f"entry_{launch.kernel}", *map(str, sizes), *words]) + "\n"

    def _library(self, wanted: Program, kernels: tuple[tuple[str, str], ...]) -> Path:
        """*wanted* with a function entry_<kernel> for each kernel, which takes its arguments as words."""
        entries = [f"void entry_{name}(__global ulong *args)\n{{\n  {text}\n}}" for name, text in kernels]
        text = "\n".join([BUILTINS, expanded(wanted.source), *entries])
        return entry.library(self.folder, self.processor, text, build_options(wanted), compilers.arm_library)


launcher_of.register(Emulator, lambda emulator: emulator)


@cache
def _player(folder: Path) -> Path:
    """arm_player.c, compiled. The plain processor's runs on all."""
    built = folder / "player"
    compilers.arm_program("armv8-a", HERE / "arm_player.c", built)
    return built


def _word(arg: np.generic | str, places: Mapping[str, Place], offsets: Mapping[str, int]) -> str:
    """An argument in arm_player.c's script. For an array that no kernel reads, any place will do."""
    if isinstance(arg, np.generic):
        return f"v{int(arg) % 2**64}"
    if arg.endswith("_offset"):
        return f"v{offsets.get(arg, 0) % 2**64}"
    place = places["out"] if arg in _UNREAD and arg not in places else places[arg]
    return f"p{place.start}"
