"""The registers of wavefronts that are at the same instruction."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

# Places among the scalar registers; NULL and what follows it are 0.
VCC, TTMP, M0, EXEC, NULL, SCALARS = 106, 108, 124, 126, 128, 130
ACCUMULATORS = 256  # where a0 is among the vector registers


class Waves:
    """Wavefronts in lockstep. Arrays have their lanes last: vector[register, wavefront, lane].

    ``machine``: the memories (access.py).
    ``index``: which wavefronts of the dispatch these are. ``active``: the lanes of EXEC; ``whole``: all are.
    """

    def __init__(self, machine: Any, index: Array, vector: Array, scalar: Array, scc: Array, pc: int) -> None:
        self.machine = machine
        self.index, self.vector, self.scalar, self.scc, self.pc = index, vector, scalar, scc, pc
        self.lanes = vector.shape[2]
        self.active = np.empty(0, bool)
        self.whole = False
        self.exec_changed()

    def exec_changed(self) -> None:
        self.active = self.mask(EXEC)
        self.whole = bool(self.active.all())
        self._of_lanes: Array | None = None

    @property
    def of_lanes(self) -> Array:
        """The wavefront of each active lane."""
        if self._of_lanes is None:
            self._of_lanes = self.index[np.nonzero(self.active)[0]]
        return self._of_lanes

    def mask(self, register: int) -> Array:
        """The scalar registers from *register* as a truth value for each lane."""
        words = np.ascontiguousarray(self.scalar[register : register + self.lanes // 32].T)
        return np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").view(bool)

    def set_mask(self, register: int, lanes: Array) -> None:
        packed = np.packbits(lanes, axis=1, bitorder="little")
        for place, words in enumerate(packed.view(np.uint32).T):
            self.set_scalar(register + place, words)

    def set_scalar(self, register: int, value: Array) -> None:
        """Writes one or two registers, by *value*'s size. Shapes are (), or (wavefronts,)."""
        if register >= NULL:
            return
        if value.dtype.itemsize == 8:
            self.set_scalar(register + 1, (value >> 32).astype(np.uint32))
        self.scalar[register] = value.astype(np.uint32)
        if register >= EXEC:
            self.exec_changed()

    def set_scc(self, value: Array) -> None:
        self.scc = value & np.ones_like(self.scc)

    def set_vector(self, register: int, value: Array) -> None:
        """Writes a register in the active lanes."""
        if self.whole:
            self.vector[register] = value
        else:
            np.copyto(self.vector[register], value, where=self.active)

    def part(self, chosen: Array) -> Waves:
        """Those wavefronts alone."""
        scalar, scc = self.scalar[:, chosen], self.scc[chosen]
        return Waves(self.machine, self.index[chosen], self.vector[:, chosen], scalar, scc, self.pc)

    def joined(self, other: Waves) -> Waves:
        """Both, which are at the same instruction."""
        return Waves(
            self.machine,
            np.concatenate([self.index, other.index]),
            np.concatenate([self.vector, other.vector], axis=1),
            np.concatenate([self.scalar, other.scalar], axis=1),
            np.concatenate([self.scc, other.scc]),
            self.pc,
        )
