"""Runs pyclmm's launches on an emulated AMD GPU: clang compiles and links them, and the machine code is
executed. pyclmm's checks take an Emulator where they expect a queue.

All wavefronts of a launch go in lockstep while they are at the same instruction. Where a branch divides them,
those that are behind go first, until they are together again. At a barrier each waits for its work-group.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from pyclmm.kernels.device import DeviceInfo
from pyclmm.kernels.interface import Launch, Work
from pyclmm.opencl.compiler import expanded
from pyclmm.opencl.launcher import Launcher, Memory, launcher_of
from pyclmm.opencl.program import build_options
from pyclmm.opencl.steps import OFFSET, SCALES, Scalars, Scales
from pyclmm.problem.dtypes import converter_of, dtype_of
from tests.conformance import compilers
from tests.conformance.implementations import AMD_LIBRARIES, DEBIAN, TINYGRAD
from tests.simulators import entry

from .arithmetic import Step, arithmetic
from .matrix import MATRIX, multiply
from .memory import ACCESS, Fault, Global, Local, Private, access, shortest_local
from .program import OBJDUMP, Line, Program, loaded
from .waves import EXEC, NULL, SCALARS, TTMP, Waves

_ENDS = {"s_endpgm": "end", "s_barrier": "barrier", "s_barrier_wait": "barrier"}
# They order or prefetch what the emulator does in order, or say what becomes of registers.
_NOTHING = re.compile(
    r"s_(nop|waitcnt\w*|wait_\w+|delay_alu|clause|inst_prefetch|set_inst_prefetch_distance|sendmsg|code_end|"
    r"setprio|sleep|barrier_signal)|buffer_(gl[01]_inv|inv|wbl2|wbinvl1\w*)|global_(inv|wb\w*)|v_nop"
)
Watch = Callable[[Line, Waves], None]
_MOST = 50_000_000  # instructions of a launch, of all groups of wavefronts


class Run:
    """A launch. *given*: the bytes of arguments. *watch* is called before each instruction.

    ``base`` is where the program is in *memory*. ``memories`` go by the first part of an instruction's name,
    ``places`` of instructions by their addresses.
    """

    executed = 0

    def __init__(
        self, program: Program, launch: Launch, memory: Global, given: Iterable[bytes], watch: Watch | None
    ) -> None:
        self._program, self._watch, self._about = program, watch, program.kernels[launch.kernel]
        self._lanes = self._about[".wavefront_size"]
        self._sizes, self._local = ((*x, 1, 1)[:3] for x in (launch.global_size, launch.local_size))
        self._groups = tuple(-(-size // each) for size, each in zip(self._sizes, self._local, strict=True))
        self._each = -(-prod(self._local) // self._lanes)  # wavefronts of a work-group
        self._of_group = np.repeat(np.arange(prod(self._groups)), self._each)
        private = Private(self._of_group.size * self._lanes, self._about[".private_segment_fixed_size"])
        nbytes, unit = self._about[".group_segment_fixed_size"], shortest_local(program.lines)
        self._ds = Local(self._of_group, nbytes, unit)
        self.memories = {"ds": self._ds, "scratch": private, "buffer": private}
        self.memories |= dict.fromkeys(("s", "global", "flat"), memory)
        self.base = memory.add(program.image, constant=True, align=4096)
        self.places = {self.base + at.address: place for place, at in enumerate(program.lines)}
        content = self._argument_bytes(len(launch.global_size), iter(given))
        self._arguments = memory.add(np.frombuffer(content, np.uint8), constant=True)

    def finish(self) -> None:
        """Run all wavefronts to their end. Raises Fault with the instruction's text."""
        ready, waiting = [self._begin()], []
        with np.errstate(all="ignore"):
            while ready or waiting:
                if not ready:
                    ready, waiting = self._released(waiting), []
                ready.sort(key=lambda g: -g.pc)
                g = ready.pop()
                while ready and ready[-1].pc == g.pc:
                    g = g.joined(ready.pop())
                why = self._advance(g, ready[-1].pc if ready else len(self._program.lines))
                if why == "barrier":
                    g.pc += 1
                    waiting.append(g)
                elif why != "end":
                    ready += g.parted() if why == "part" else [g]

    def _advance(self, g: Waves, until: int) -> str:
        """Go on to a branch that divides, a barrier, the end, or *until*, where others are."""
        while g.pc < until:
            at = self._program.lines[g.pc]
            self.executed += 1
            if self._watch is not None:
                self._watch(at, g)
            try:
                if self.executed > _MOST:
                    raise Fault(f"it has not ended after {_MOST} instructions")
                why = (at.step or self._decoded(at))(g)
            except Fault as fault:
                where = f"{at.address:#x} {at.source}".strip()
                groups = sorted(set(self._of_group[g.index].tolist()))[:4]
                raise Fault(f"{at.text} at {where}, work-groups {groups}: {fault}") from None
            if why is not None:
                return why
            g.pc += 1
        return "met"

    def _decoded(self, at: Line) -> Step:
        if at.name in _ENDS or _NOTHING.fullmatch(at.name):
            at.step = lambda _: _ENDS.get(at.name)
        for pattern, decode in ((MATRIX, multiply), (ACCESS, access)):
            if match := pattern.match(at.name):
                at.step = decode(at, match)
        at.step = at.step or arithmetic(self._program.processor, at)
        return at.step

    def _released(self, waiting: list[Waves]) -> list[Waves]:
        """All go on whose work-group is at the same barrier."""
        at = np.full(self._of_group.size, -1)
        for g in waiting:
            at[g.index] = g.pc
        by_group = at.reshape(-1, self._each)
        if (apart := (by_group != by_group[:, :1]).any(axis=1)).any():
            raise Fault(f"wavefronts of group {apart.argmax()} wait at different barriers, or have ended")
        self._ds.barrier(np.flatnonzero(at >= 0))
        return waiting

    # ---- what the dispatcher sets ----

    def _begin(self) -> Waves:
        lanes, count, about = self._lanes, self._of_group.size, self._about
        # accumulators come behind all others; whoever reads what nobody set gets NaN or -1
        registers = 512 if about.get(".agpr_count") else max(4, about[".vgpr_count"])
        vector = np.full((registers, count, lanes), 0xFFFFFFFF, np.uint32)
        scalar = np.full((SCALARS, count, 1), 0xDEADBEEF, np.uint32)
        scalar[NULL:] = scalar[EXEC : EXEC + 2] = 0
        item = np.tile(np.arange(self._each * lanes).reshape(self._each, -1), (prod(self._groups), 1))
        ids = np.unravel_index(item % prod(self._local), self._local[::-1])[::-1]
        if self._program.processor == "gfx1030":
            vector[:3] = ids
        else:
            vector[0] = ids[0] | ids[1] << 10 | ids[2] << 20
        asks, rsrc2 = self._about["asks"], self._about["rsrc2"]
        # behind the registers that other bits of the descriptor's properties ask for
        place = 4 * (asks & 1) + 2 * (asks >> 1 & 1) + 2 * (asks >> 2 & 1)
        scalar[place : place + 2] = [[[self._arguments & 0xFFFFFFFF]], [[self._arguments >> 32]]]
        place = rsrc2 >> 1 & 0x1F
        of = np.unravel_index(self._of_group[:, None], self._groups[::-1])[::-1]
        for dimension, ids in enumerate(of):
            if rsrc2 >> (7 + dimension) & 1:
                scalar[place] = ids
                place += 1
        if self._program.processor.startswith("gfx12"):
            scalar[TTMP + 9], scalar[TTMP + 7] = of[0], of[1] | of[2] << 16
        entry = self.places[self.base + self._about["entry"]]
        g = Waves(self, np.arange(count), vector, scalar, entry)
        g.set_mask(EXEC, item < prod(self._local))
        return g

    def _argument_bytes(self, dimensions: int, shown: Iterator[bytes]) -> bytes:
        """The memory of arguments, hidden ones too: what OpenCL's functions of the index space ask for."""
        found, hidden = bytearray(self._about[".kernarg_segment_size"]), {"hidden_grid_dims": dimensions}
        for name, size, group in zip("xyz", self._sizes, self._local, strict=True):
            hidden[f"hidden_block_count_{name}"], hidden[f"hidden_remainder_{name}"] = divmod(size, group)
            hidden[f"hidden_group_size_{name}"] = group
        for argument in self._about.get(".args", ()):
            start, size, kind = (argument[key] for key in (".offset", ".size", ".value_kind"))
            own = hidden.get(kind, 0).to_bytes(size, "little")
            found[start : start + size] = value = own if kind.startswith("hidden_") else next(shown)
            if len(value) != size:
                raise ValueError(f"an argument of {size} bytes is given {len(value)}")
        return bytes(found)


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

    def compute(
        self, queue: Any, _: DeviceInfo, work: Work, memory: Mapping[str, Memory], scalars: Scalars, *__: Any
    ) -> None:
        """Run all launches of *work*, as :meth:`Launcher.compute` says. Raises Fault."""
        self.products += 1
        space = Global()
        own = {id(x): space.add(x, constant=x is not memory["out"]) for x in memory.values()}
        places = {name: own[id(x)] for name, x in memory.items()}
        for name, table in work.tables.items():
            places[name] = space.add(table.view(np.uint8).ravel(), constant=True)
        for part in work.workspace:
            empty = np.full(part.nbytes, 0 if part.zeroed else 0xFF, np.uint8)
            places[part.symbol] = space.add(empty, written=part.zeroed or part.name in self.padded)
        values = places | {f"{name}{OFFSET}": int(x) for name, x in scalars[2].items()}
        for run in [self._planned(launch, values, scalars[:2], space) for launch in work.launches]:
            run.finish()
            self.executed += run.executed
        memory["out"][...] = space.data[places["out"] :][: memory["out"].size]

    def _planned(self, launch: Launch, values: Mapping[str, int], scales: Scales, space: Global) -> Run:
        acc_type = str(launch.program.define("ACC_TYPE") or "float32")  # without one, no alpha and beta
        # what is not there is read by no kernel: in a buffer at 0 it would be found
        known = {name: np.int64(values.get(name, 0)) for name in launch.args if isinstance(name, str)}
        for name, x in zip(SCALES, scales, strict=True):
            known[name] = np.array(converter_of(acc_type)(x), dtype_of(acc_type))
        given = (known[x] if isinstance(x, str) else x for x in launch.args)
        return Run(self.program(launch), launch, space, (x.tobytes() for x in given), self.watch)

    def program(self, asked: Launch) -> Program:
        """The launch's program, compiled as a driver does."""
        text, options = self.edit(expanded(asked.program.source)), build_options(asked.program)
        library = entry.library(self.folder, self.processor, text, options, compilers.amd_library)
        if library not in self._programs:
            self._programs[library] = loaded(library, self.processor)
        return self._programs[library]


launcher_of.register(Emulator, lambda emulator: emulator)
__all__ = ["Emulator", "Fault", "demand_tools"]
