"""Drawn products for `pyclmm selftest --full`: the self-check of what users may ask of a kernel.

A product is drawn as a call has it: element types of operands and result, transposes, conjugation, padded
rows, stack, C, bias, activation, precision, reproducible bits, sizes. So is one of the kernel's
configurations for it. The self-check then runs its small problems with the programs of that product. A number
gives the same product of a kernel on a device each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyopencl as cl

from ..errors import DTypeError, PyclmmError
from ..kernels import Kernel
from ..kernels.config import TileConfig
from ..kernels.device import DeviceInfo
from ..kernels.interface import fitted
from ..opencl.launcher import info_of
from ..problem import dtypes
from ..problem.canonical import Epilogue, checked_gemm
from ..problem.gemm import ACTIVATIONS, GemmProblem, Operand, dense
from .layouts import Decks
from .small_problems import first_wrong_result

SEED = 42
MOST = 100  # products of a kernel
_DRAWS = 2000  # of which a kernel takes some
_LENGTHS = 1500  # the most of M, N and K
_THIN = ((0, 0), (0, 0), (0, 8), (8, 0), (0, 1), (1, 0))  # the most of M and of N; 0: _LENGTHS
_REAL = ("float16", "bfloat16", "float32", "float64")  # drawn twice as often as others
# Element types that kernels read and write beside the computed type.
_BESIDE = {"float32": ("float16", "bfloat16"), "int32": ("int8", "uint8")}


@dataclass(frozen=True)
class DrawnProduct:
    """Product *number* of a kernel, and a configuration for it."""

    number: int
    problem: GemmProblem
    config: TileConfig

    def __str__(self) -> str:
        p = self.problem
        more = [p.activation, f"bias of a {p.bias}"]
        more = [x for x in more if "none" not in x] + ["C"] * p.has_c + [f"to {p.out_type}"]
        return f"product {self.number}, {p}, {', '.join(more)}, {self.config}"

    def check(self, queue: cl.CommandQueue, kernel: Kernel) -> str | None:
        """Why the self-check says that it is wrong; None if it is right."""
        work = kernel.launches(self.problem, self.config, info_of(queue))
        reason = first_wrong_result(queue, self.problem, kernel, self.config, work)
        return None if reason is None else f"{self}: {reason}"


def skipped() -> dict[str, str]:
    """The element types that are not tested because they need a package that is not installed, with it."""
    found = {}
    for name in dtypes.ELEMENT_TYPES:
        try:
            dtypes.dtype_of(name)
        except DTypeError as error:
            found[name] = str(error)
    return found


def products(kernel: Kernel, device: DeviceInfo) -> Iterator[DrawnProduct]:
    """The drawn products that *kernel* takes on *device*, at most ``MOST``."""
    rng, number = np.random.default_rng(SEED), 0
    decks = Decks(rng)
    types = [name for name in (*dtypes.ELEMENT_TYPES, *_REAL) if name not in skipped()]
    for _ in range(_DRAWS if kernel.unsuited(device) is None else 0):
        problem = _drawn(decks, types, device)
        chosen = rng.random()
        if problem is None or kernel.refuses(problem, device) is not None:
            continue
        configs = kernel.configs(problem, device)
        if configs:
            yield DrawnProduct(number, problem, configs[int(chosen * len(configs))])
            number += 1
        if number == MOST:
            return


def _drawn(decks: Decks, types: list[str], device: DeviceInfo) -> GemmProblem | None:
    """A product, or None if what was drawn is none."""
    computed = decks.next("type", types)
    beside = [name for name in _BESIDE.get(computed, ()) if name in types]
    a, b, out = (decks.next(f"{computed} {name}", (*(computed,) * 4, *beside)) for name in ("a", "b", "out"))
    conj = ("NN", "NT", "TN", "TT", *(("CN", "NC") if computed in dtypes.COMPLEX else ()))
    trans = decks.next(f"trans of {len(conj)}", conj)
    most_m, most_n = decks.next("thin", _THIN)
    m, n, k = (
        int(2 ** decks.rng.uniform(0, np.log2((most or _LENGTHS) + 1))) for most in (most_m, most_n, 0)
    )
    stack = decks.next("stack", ((), (), (3,), (2, 2)))
    c = dense((*stack, m, n), dtypes.dtype_of(out)) if decks.next("c", (True, False, False)) else None
    bias = decks.next("bias", (None, (n,), (m, 1)))
    is_active = computed in _REAL and decks.next("active", (True, False))
    activation = decks.next("activation", ACTIVATIONS) if is_active else None
    precision = decks.next(f"precision of {computed}", ("highest", "highest", "high", "medium"))
    try:
        problem = checked_gemm(
            _operand(decks, (*stack, *((m, k) if trans[0] == "N" else (k, m))), a),
            _operand(decks, (*stack, *((k, n) if trans[1] == "N" else (n, k))), b),
            dtype=dtypes.dtype_of(computed),
            out=_operand(decks, (*stack, m, n), out),
            trans_a=trans[0],
            trans_b=trans[1],
            epilogue=Epilogue(
                {"c": c, "bias": None if bias is None else dense(bias, dtypes.dtype_of(out))}, activation
            ),
            reproducible=decks.next(f"bits of {computed}", (True, False, False)),
            precision=precision,
        ).problem
    except PyclmmError:  # some activations cannot be reproducible
        return None
    return fitted(problem, device)


def _operand(decks: Decks, shape: tuple[int, ...], name: str) -> Operand:
    """A dense array, or one whose rows are padded, so that they are aligned to fewer bytes."""
    dtype = dtypes.dtype_of(name)
    padded = (*shape[:-1], shape[-1] + decks.next("pad", (0, 0, 1, 3)))
    return replace(dense(padded, dtype), shape=shape, align=decks.next("align", (64, 64, dtype.itemsize)))
