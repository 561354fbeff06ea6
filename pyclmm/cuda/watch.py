"""Watch: how the host learns that a checked product on CUDA was wrong, without waiting for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..kernels.verification import VERDICT
from . import driver
from .streams import Context, own_stream


class Watch:
    """Looks at the alarms of a binding's products: words of the host's memory, for each stream and capture.

    *on_alarm* is called when one is set.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._verdicts: list[tuple[driver.SharedWord, driver.Memory]] = []
        self.on_alarm: Callable[[], None]

    def add(self, alarm: driver.SharedWord, verdict: driver.Memory, most: int) -> None:
        """Products of another stream or capture set these from now on. The last *most* are kept."""
        self._verdicts = [*self._verdicts[1 - most :], (alarm, verdict)]

    @property
    def is_open(self) -> bool:
        """Whether a product may have been wrong of which nobody has heard."""
        return bool(self._verdicts)

    def look(self) -> None:
        """Call *on_alarm* if a product that has ended was wrong."""
        for alarm, _ in self._verdicts:
            if alarm.word.value:
                self.on_alarm()

    def finish(self) -> None:
        """Wait for all products so far; then as :meth:`look`. Of a context that is gone nothing is known."""
        if self._verdicts and self._context.is_known:
            driver.wait_for_all(self._context.handle)
            self.look()

    def taken(self) -> Any:
        """The words of cl/verify/ about the wrong products of one stream; they are cleared."""
        alarm, verdict = next(pair for pair in self._verdicts if pair[0].word.value)
        words = np.empty(VERDICT.nbytes // 4, np.int32)
        own = own_stream(self._context).handle
        with driver.current(self._context.handle), driver.uncaptured():
            driver.wait_for_all(self._context.handle)
            verdict.read(words.ctypes.data, own)
            driver.wait(own, "a verdict")
            kept = words.copy()
            kept[2:] = 0
            verdict.write(kept.ctypes.data, own)
            driver.wait(own, "a verdict")
        alarm.word.value = 0
        return words
