"""An emulated device where pyclmm's checks expect a queue: they launch on it, and judge, as on any device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyclmm.kernels.device import DeviceInfo
from pyclmm.kernels.interface import Work
from pyclmm.opencl.launcher import Launcher, Memory, launcher_of
from pyclmm.opencl.steps import Scalars

from .emulator import Emulator


class _EmulatedLauncher(Launcher):
    """Checks call ``compute`` alone."""

    way = "emulated"

    def compute(
        self,
        queue: Any,
        device: DeviceInfo,
        work: Work,
        memory: Mapping[str, Memory],
        scalars: Scalars,
        make: Any = None,
    ) -> None:
        alpha, beta, offsets = scalars
        named = {f"{name}_offset": x if isinstance(x, int) else int(x) for name, x in offsets.items()}
        memory["out"][...] = queue.run(work, memory, (alpha, beta), named)


_LAUNCHER = _EmulatedLauncher()


@launcher_of.register
def _of_emulator(_queue: Emulator) -> Launcher:
    return _LAUNCHER
