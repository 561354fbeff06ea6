"""Calls of kernel functions from OpenCL C whose arguments are 64-bit words: numbers, and addresses."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from pyclmm.kernels.interface import Launch


def call(launch: Launch) -> str:
    """The call of the launch's kernel. Its arguments are in `args`, those of type ACC_T by address."""
    words = []
    for i, arg in enumerate(launch.args):
        if isinstance(arg, np.generic):
            words.append(f"({'int' if arg.itemsize == 4 else 'long'})args[{i}]")
        elif arg in ("alpha", "beta"):
            words.append(f"*(__global const ACC_T *)args[{i}]")
        elif arg.endswith("_offset"):
            words.append(f"(long)args[{i}]")
        else:
            words.append(f"(__global void *)args[{i}]")
    return f"{launch.kernel}({', '.join(words)});"


def library(
    folder: Path,
    processor: str,
    text: str,
    options: Sequence[str],
    make: Callable[[str, Path, Sequence[str]], None],
) -> Path:
    """The library that *make* makes of the source *text*, in *folder*; made once."""
    digest = hashlib.sha256(f"{processor} {options} {text}".encode()).hexdigest()[:20]
    source = folder / f"{digest}.cl"
    found = source.with_suffix(".so")
    if not found.exists():
        source.write_text(text, encoding="utf-8")
        make(processor, source, options)
    return found
