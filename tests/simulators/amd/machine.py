"""Runs a kernel's machine code on made-up wavefronts.

All wavefronts of a launch go in lockstep while they are at the same instruction. Where a branch divides them,
those that are behind go first, until they are together again. At a barrier each waits for its work-group.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from . import matrix
from .access import Machine, access, shortest_local
from .memory import Fault, Global, Local
from .program import Descriptor, Line, Program
from .steps import NOTHING, VCC, Step, arithmetic
from .waves import ACCUMULATORS, EXEC, SCALARS, TTMP, Array, Waves

_BRANCH: dict[str, Callable[[Waves], Array]] = {
    "s_branch": lambda g: np.ones(g.index.size, bool),
    "s_cbranch_scc0": lambda g: ~g.scc,
    "s_cbranch_scc1": lambda g: g.scc,
    "s_cbranch_vccz": lambda g: np.asarray(~g.mask(VCC).any(axis=1)),
    "s_cbranch_vccnz": lambda g: np.asarray(g.mask(VCC).any(axis=1)),
    "s_cbranch_execz": lambda g: np.asarray(~g.active.any(axis=1)),
    "s_cbranch_execnz": lambda g: np.asarray(g.active.any(axis=1)),
}
_BARRIER = ("s_barrier", "s_barrier_wait")
# Bits of a descriptor's properties, and the user registers that each asks for, in their order.
_USER = ((0, 4), (1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (6, 1))
_ARGUMENTS = 3  # the place of the arguments' address among them
_APART = ("gfx1030",)  # work-item ids in v0, v1, v2; others have all in v0
_MOST = 50_000_000  # instructions of a launch, of all groups of wavefronts


@dataclass
class Launch:
    """Sizes in work-items, and the values of arguments: bytes, in the order of the kernel's."""

    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    arguments: Sequence[bytes]


class Run:
    """One launch. ``watch`` is called before each instruction with its line and the wavefronts."""

    def __init__(
        self, program: Program, kernel: str, launch: Launch, memory: Global, base: int, arguments: int
    ) -> None:
        self._program, self._launch = program, launch
        self._kernel: Descriptor = program.kernels[kernel]
        self._local = tuple((*launch.local_size, 1, 1)[:3])
        self._groups = tuple(
            -(-g // n) for g, n in zip((*launch.global_size, 1, 1), self._local, strict=False)
        )
        self._each = -(-prod(self._local) // self._kernel.lanes)  # wavefronts of a work-group
        count = self._each * prod(self._groups)
        self._of_group = np.repeat(np.arange(prod(self._groups)), self._each)
        private = (count, self._kernel.lanes, max(1, self._kernel.private_bytes))
        self._machine = Machine(
            memory,
            Local(prod(self._groups), self._kernel.local_bytes, shortest_local(program.lines)),
            np.zeros(private, np.uint8),
            np.zeros(private, bool),
            self._of_group,
            base,
        )
        self._arguments, self._steps = arguments, program.steps
        self._places = {at.address: i for i, at in enumerate(program.lines)}
        self.executed = 0
        self.watch: Callable[[Line, Waves], None] | None = None

    def finish(self) -> None:
        """Run all wavefronts to their end. Raises Fault with the instruction's text."""
        ready, waiting, ended = [self._begin()], [], np.zeros(self._of_group.size, bool)
        with np.errstate(all="ignore"):
            while ready or waiting:
                if not ready:
                    ready, waiting = self._released(waiting, ended), []
                ready.sort(key=lambda g: -g.pc)
                g = ready.pop()
                while ready and ready[-1].pc == g.pc:
                    g = g.joined(ready.pop())
                why = self._advance(g, ready[-1].pc if ready else len(self._program.lines))
                if why == "barrier":
                    waiting.append(g)
                elif why == "end":
                    ended[g.index] = True
                else:
                    ready += self._branched(g) if why == "branch" else [g]

    def _advance(self, g: Waves, until: int) -> str:
        """Go on to a branch that divides, a barrier, the end, or *until*, where others are."""
        lines = self._program.lines
        while g.pc < until:
            at = lines[g.pc]
            self.executed += 1
            if self.executed > _MOST:
                raise Fault(f"it has not ended after {_MOST} instructions, at {at.text}")
            if self.watch is not None:
                self.watch(at, g)
            if at.name in _BRANCH:
                taken = _BRANCH[at.name](g)
                if taken.any() and not taken.all():
                    return "branch"
                g.pc = self._target(at) if taken.all() else g.pc + 1
            elif at.name == "s_endpgm":
                return "end"
            elif at.name in _BARRIER:
                g.pc += 1
                return "barrier"
            else:
                self._step(g, at)
                g.pc += 1
        return "met"

    def _step(self, g: Waves, at: Line) -> None:
        step = self._steps.get(g.pc)
        if step is None:
            step = self._steps[g.pc] = self._decoded(g.pc)
        try:
            step(g)
        except Fault as fault:
            groups = sorted(set(self._of_group[g.index].tolist()))[:4]
            where = f"{at.address:#x} {at.source}".strip()
            raise Fault(f"{at.text} at {where}, work-groups {groups}: {fault}") from None

    def _decoded(self, place: int) -> Step:
        at = self._program.lines[place]
        processor = self._program.processor
        if NOTHING.fullmatch(at.name):
            return lambda g: None
        if matrix.MATRIX.match(at.name):
            return matrix.step(at)
        if at.name.startswith(("global_", "flat_", "scratch_", "buffer_", "ds_", "s_load")):
            return access(at)
        return arithmetic(processor, at, self._relative(place))

    def _relative(self, place: int) -> str:
        """The operand that s_set_gpr_idx_on moves at this instruction."""
        for at in reversed(self._program.lines[max(0, place - 8) : place]):
            if at.name == "s_set_gpr_idx_on":
                return at.operands[1].removeprefix("gpr_idx(").rstrip(")")
            if at.name == "s_set_gpr_idx_off" or at.name in _BRANCH:
                break
        return ""

    def _target(self, at: Line) -> int:
        """Branches say how many words further than the next instruction."""
        words = int(at.operands[0], 0) & 0xFFFF
        words -= (words & 0x8000) << 1
        return self._places[at.address + 4 + 4 * words]

    def _branched(self, g: Waves) -> list[Waves]:
        at = self._program.lines[g.pc]
        taken = _BRANCH[at.name](g)
        there, here = g.part(taken), g.part(~taken)
        there.pc = self._target(at)
        here.pc += 1
        return [there, here]

    def _released(self, waiting: list[Waves], ended: Array) -> list[Waves]:
        """All go on whose work-group is at the same barrier."""
        at = np.full(ended.size, -1)
        for g in waiting:
            at[g.index] = g.pc
        by_group = at.reshape(-1, self._each)
        if (by_group != by_group[:, :1]).any():
            stuck = int((by_group != by_group[:, :1]).any(axis=1).argmax())
            raise Fault(f"wavefronts of work-group {stuck} wait at different barriers, or have ended")
        arrived = at >= 0
        self._machine.local.barrier(self._of_group[arrived])
        return waiting

    # ---- what the dispatcher sets ----

    def _begin(self) -> Waves:
        lanes, count = self._kernel.lanes, self._of_group.size
        vector = np.full(
            (512, count, lanes), 0xFFFFFFFF, np.uint32
        )  # whoever reads what nobody set gets NaN or -1
        scalar = np.full((SCALARS, count), 0xDEADBEEF, np.uint32)
        item = np.arange(self._each * lanes).reshape(self._each, lanes)
        x, y = item % self._local[0], item // self._local[0] % self._local[1]
        z = item // (self._local[0] * self._local[1])
        inside = np.tile(item < prod(self._local), (count // self._each, 1))
        ids = [np.tile(i, (count // self._each, 1)) for i in (x, y, z)]
        if self._program.processor in _APART:
            vector[:3] = ids
        else:
            vector[0] = ids[0] | ids[1] << 10 | ids[2] << 20
        self._set_scalars(scalar)
        pc = self._places[self._kernel.entry]
        g = Waves(self._machine, np.arange(count), vector, scalar, np.zeros(count, bool), pc)
        g.scalar[EXEC : EXEC + 2] = 0
        g.set_mask(EXEC, inside)
        return g

    def _set_scalars(self, scalar: Array) -> None:
        k, place = self._kernel, 0
        for bit, registers in _USER:
            if k.properties >> bit & 1:
                if bit == _ARGUMENTS:
                    scalar[place] = self._arguments & 0xFFFFFFFF
                    scalar[place + 1] = self._arguments >> 32
                place += registers
        place = k.rsrc2 >> 1 & 0x1F
        of = [self._of_group % self._groups[0], self._of_group // self._groups[0] % self._groups[1]]
        of.append(self._of_group // (self._groups[0] * self._groups[1]))
        for dimension, ids in enumerate(of):
            if k.rsrc2 >> (7 + dimension) & 1:
                scalar[place] = ids
                place += 1
        if self._program.processor.startswith("gfx12"):
            scalar[TTMP + 9] = of[0]
            scalar[TTMP + 7] = of[1] | of[2] << 16


def _registers(lines: Sequence[Line]) -> int:
    """Vector registers that the program names, and one after another those between."""
    text = " ".join(at.text for at in lines)
    last = {"v": 3, "a": -1}
    for kind, one, end in re.findall(r"\b([va])(?:(\d+)|\[\d+:(\d+)\])", text):
        last[kind] = max(last[kind], int(one or end))
    return ACCUMULATORS + last["a"] + 1 if last["a"] >= 0 else last["v"] + 1


def argument_bytes(kernel: Descriptor, launch: Launch) -> bytes:
    """The memory of arguments, hidden ones too: what OpenCL's functions of the index space ask for."""
    found = bytearray(kernel.argument_bytes)
    shown = iter(launch.arguments)
    sizes, local = (*launch.global_size, 1, 1)[:3], (*launch.local_size, 1, 1)[:3]
    hidden: Mapping[str, Any] = {"hidden_grid_dims": len(launch.global_size)}
    for name, size, group in zip("xyz", sizes, local, strict=True):
        hidden |= {
            f"hidden_block_count_{name}": size // group,
            f"hidden_group_size_{name}": group,
            f"hidden_remainder_{name}": size % group,
        }
    for argument in kernel.arguments:
        if argument.kind.startswith("hidden_"):
            value = int(hidden.get(argument.kind, 0)).to_bytes(argument.size, "little")
        else:
            value = next(shown)
            if len(value) != argument.size:
                raise ValueError(f"an argument of {argument.size} bytes is given {len(value)}")
        found[argument.offset : argument.offset + argument.size] = value
    return bytes(found)
