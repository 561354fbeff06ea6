"""Progress: how far a streamed product is, for the caller's function."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StreamProgress:
    """How far a streamed product is.

    ``tiles`` of ``all_tiles`` are finished, ``resumed`` of them by an earlier run (from its checkpoint).
    ``flops``: operations done by this run, of ``all_flops`` that it has to do. ``seconds`` since it began.
    """

    tiles: int
    all_tiles: int
    resumed: int
    flops: float
    all_flops: float
    seconds: float

    @property
    def rate(self) -> float:
        """Operations a second of this run; 0 before its first tile."""
        return self.flops / self.seconds if self.flops and self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the end at this rate; None before the first tile."""
        return (self.all_flops - self.flops) / self.rate if self.rate else None

    def __str__(self) -> str:
        left = "" if self.seconds_left is None else f", {self.seconds_left:.1f} s left"
        return f"{self.tiles} of {self.all_tiles} tiles, {self.rate / 1e9:.1f} GFLOP/s{left}"
