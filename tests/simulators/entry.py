"""Calls of kernel functions from OpenCL C whose arguments are 64-bit words: numbers, and addresses."""

from __future__ import annotations

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
