"""Runs pyclmm's launches on an emulated AMD GPU: clang compiles and links them, and machine.py executes the
machine code. pyclmm's checks take an Emulator where they expect a queue.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pyclmm.kernels.device import DeviceInfo
from pyclmm.kernels.interface import Launch, Work
from pyclmm.opencl.compiler import expanded
from pyclmm.opencl.launcher import Launcher, Memory, launcher_of
from pyclmm.opencl.program import build_options
from pyclmm.opencl.steps import OFFSET, SCALES, Scalars, converter_of
from pyclmm.problem.dtypes import dtype_of
from tests.conformance import compilers
from tests.conformance.implementations import AMD_LIBRARIES, DEBIAN, TINYGRAD

from .machine import Run, Watch
from .memory import Fault, Global
from .program import OBJDUMP, Program, loaded


def demand_tools() -> None:
    """Raise FileNotFoundError unless what compiles and decodes is here."""
    needed = (DEBIAN / "usr/bin/clang-19", DEBIAN / "usr/bin/ld.lld-19", OBJDUMP, AMD_LIBRARIES, TINYGRAD)
    if missing := [str(path) for path in needed if not path.exists()]:
        raise FileNotFoundError(f"no {', '.join(missing)}: `make offline` fetches them (Debian 12, x86_64)")


@dataclass(eq=False)
class Emulator(Launcher):
    """An AMD device of this processor. Programs are kept in *folder*.

    ``padded`` names workspaces that are read several columns at a time: what is beyond the last is not used,
    and nobody need have written it. ``edit`` changes a program's text before it is compiled. ``watch`` is
    called before each instruction.
    ``products`` counts runs, ``executed`` instructions, once for all wavefronts that execute one together.
    """

    way = "emulated"

    processor: str
    folder: Path
    padded: tuple[str, ...] = ()
    edit: Callable[[str], str] = str
    watch: Watch | None = None
    products: int = 0
    executed: int = 0
    _programs: dict[Path, Program] = field(default_factory=dict)

    def run(
        self, work: Work, memory: Mapping[str, Memory], scales: Sequence[complex], offsets: Mapping[str, int]
    ) -> Memory:
        """Run all launches of *work* and return the bytes of "out".

        *memory*: the host's, by the names of what arguments point to; two names may have the same. *scales*:
        alpha and beta. *offsets* are the other arguments. Raises Fault.
        """
        self.products += 1
        space = Global()
        own = {id(x): space.add(x, constant=x is not memory["out"]) for x in memory.values()}
        places = {name: own[id(x)] for name, x in memory.items()}
        for name, table in work.tables.items():
            places[name] = space.add(table.view(np.uint8).ravel(), constant=True)
        for part in work.workspace:
            empty = np.full(part.nbytes, 0 if part.zeroed else 0xFF, np.uint8)
            places[part.symbol] = space.add(empty, written=part.zeroed or part.name in self.padded)
        values = {**places, **offsets, **dict(zip(SCALES, scales, strict=True))}
        for run in [self._planned(launch, values, space) for launch in work.launches]:
            run.finish()
            self.executed += run.executed
        return space.content(places["out"], memory["out"].size)

    def _planned(self, launch: Launch, values: Mapping[str, Any], space: Global) -> Run:
        acc_type = str(launch.program.define("ACC_TYPE") or "float32")  # without one, no alpha and beta
        scales = {name: np.array(converter_of(acc_type)(values[name]), dtype_of(acc_type)) for name in SCALES}
        # what is not there is read by no kernel: in a buffer at 0 it would be found
        known = {name: np.int64(x) for name, x in values.items() if name not in SCALES} | scales
        given = (known.get(x, np.int64(0)) if isinstance(x, str) else x for x in launch.args)
        return Run(self.program(launch), launch, space, (x.tobytes() for x in given), self.watch)

    def program(self, asked: Launch) -> Program:
        """The launch's program, compiled as a driver does."""
        text, options = self.edit(expanded(asked.program.source)), build_options(asked.program)
        digest = hashlib.sha256(f"{self.processor} {options} {text}".encode()).hexdigest()[:20]
        source = self.folder / f"{digest}.cl"
        library = source.with_suffix(".so")
        if library not in self._programs:
            source.write_text(text, encoding="utf-8")
            compilers.amd_library(self.processor, source, options)
            self._programs[library] = loaded(library, self.processor)
        return self._programs[library]

    def compute(
        self, queue: Any, _: DeviceInfo, work: Work, memory: Mapping[str, Memory], scalars: Scalars, *__: Any
    ) -> None:
        """What checks call of a launcher."""
        *scales, offsets = scalars
        named = {f"{name}{OFFSET}": int(x) for name, x in offsets.items()}
        memory["out"][...] = self.run(work, memory, scales, named)


launcher_of.register(Emulator, lambda emulator: emulator)
__all__ = ["Emulator", "Fault", "demand_tools"]
