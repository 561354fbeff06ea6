"""The registers of wavefronts that are at the same instruction."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

# Places among the scalar registers; NULL and what follows it are 0.
VCC, TTMP, M0, EXEC, NULL, SCC, SCALARS = 106, 108, 124, 126, 128, 130, 131
ACCUMULATORS = 256  # where a0 is among the vector registers


class Waves:
    """Wavefronts in lockstep: vector[register, wavefront, lane] and scalar[register, wavefront, 0].

    ``run``: what they run for (emulator.py).
    ``index``: which wavefronts of the dispatch these are. ``active``: the lanes of EXEC; ``whole``: all are.
    """

    def __init__(self, run: Any, index: Array, vector: Array, scalar: Array, pc: int) -> None:
        self.run, self.index, self.vector, self.scalar, self.pc = run, index, vector, scalar, pc
        self.lanes = vector.shape[2]
        self._exec_changed()

    def _exec_changed(self) -> None:
        self.active = self.mask(EXEC)
        self.whole = bool(self.active.all())
        self.__dict__.pop("of_lanes", None)

    @cached_property
    def of_lanes(self) -> Array:
        """The wavefront of each active lane."""
        return self.index[np.nonzero(self.active)[0]]

    def mask(self, register: int) -> Array:
        """The scalar registers from *register* as a truth value for each lane."""
        words = np.ascontiguousarray(self.scalar[register : register + self.lanes // 32, :, 0].T)
        return np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").view(bool)

    def set_mask(self, register: int, lanes: Array) -> None:
        packed = np.packbits(lanes, axis=1, bitorder="little").view(np.uint32)
        self.set_scalar(register, packed.T[..., None])

    def set_scalar(self, register: int, value: Array) -> None:
        """Writes a register, or the two of a mask's words."""
        if register in (NULL, NULL + 1):
            return
        self.scalar[register : register + (len(value) if value.ndim == 3 else 1)] = value
        if register in (EXEC, EXEC + 1):
            self._exec_changed()

    def set_vector(self, register: int, value: Array) -> None:
        """Writes a register in the active lanes. The translated instructions call this."""
        if self.whole:
            self.vector[register] = value
        else:
            np.copyto(self.vector[register], value, where=self.active)

    def jump(self, addresses: Array) -> str | None:
        """Go on there, if all go to the same instruction; else it says that they part."""
        self.targets = np.ravel(addresses)
        if (self.targets == self.targets[0]).all():
            self.pc = self.run.places[int(self.targets[0])] - 1  # it is the next one's place thereafter
            return None
        return "part"

    def parted(self) -> Iterator[Waves]:
        """A group for each instruction where they jump to."""
        for to in set(self.targets.tolist()):
            own = self.targets == to
            vector, scalar = self.vector[:, own], self.scalar[:, own]
            yield Waves(self.run, self.index[own], vector, scalar, self.run.places[to])

    def joined(self, other: Waves) -> Waves:
        """Both, which are at the same instruction."""
        index = np.concatenate([self.index, other.index])
        vector = np.concatenate([self.vector, other.vector], axis=1)
        scalar = np.concatenate([self.scalar, other.scalar], axis=1)
        return Waves(self.run, index, vector, scalar, self.pc)
