"""Watch: how the host learns that a checked product on CUDA was wrong, without waiting for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernels.interface import VERDICT
from ..opencl.watch import Watch, cleared
from . import driver
from .streams import Context, own_stream


class CudaWatch(Watch):
    """Looks at the alarms of a binding's products: words of the host's memory, for each stream and capture.
    Of a context that is gone nothing is known.
    """

    def __init__(self, context: Context) -> None:
        super().__init__()
        self._context = context
        self._verdicts: list[tuple[driver.SharedWord, driver.Memory]] = []

    def add(self, alarm: driver.SharedWord, verdict: driver.Memory, most: int) -> None:
        """Products of another stream or capture set these from now on. The last *most* are kept."""
        self._verdicts = [*self._verdicts[1 - most :], (alarm, verdict)]

    @property
    def is_open(self) -> bool:
        return bool(self._verdicts)

    def look(self) -> None:
        for alarm, _ in self._verdicts:
            if alarm.word.value:
                self.on_alarm()

    def finish(self) -> None:
        if self._verdicts and self._context.is_known:
            driver.wait_for_all(self._context.handle)
            with self.lock:
                self.look()

    def taken(self) -> Any:
        alarm, verdict = next(pair for pair in self._verdicts if pair[0].word.value)
        words = np.empty(VERDICT.nbytes // 4, np.int32)
        own = own_stream(self._context).handle
        with driver.current(self._context.handle), driver.uncaptured():
            driver.wait_for_all(self._context.handle)
            verdict.read(words.ctypes.data, own)
            driver.wait(own, "a verdict")
            kept = cleared(words)
            verdict.write(kept.ctypes.data, own)
            driver.wait(own, "a verdict")
        alarm.word.value = 0
        return words
