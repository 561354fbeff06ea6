"""The interface of a kernel family, and the argument list that every GEMM entry shares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import numpy as np

from ..problem.extras import BIASES
from ..problem.gemm import ACTIVATIONS, GemmProblem
from .accepts import Accepts
from .config import Ranked, TileConfig, slices
from .device import DeviceInfo
from .matrix_unit import MATRIX_UNITS

# An argument of a launch: a NumPy scalar known when the plan is made, or the name of something that each
# call supplies (see binding.py).
Arg = np.generic | str
Table = np.ndarray[Any, np.dtype[np.int64]]  # offsets in elements: one row for each product z of a stack
Defines = tuple[tuple[str, int | str], ...]
GROUP = 8  # rows of tiles that are computed together (cl/include/tile_order.h)
GATE = "workspace:plan"  # the argument `gate` of GEMM_ARGS
LISTED = ("products", "tiles")  # the tables of a list, or the workspace of ragged products (listed.h)
UNUSED = "batch_offsets"  # any pointer, for an argument that the program never reads


@dataclass(frozen=True)
class Program:
    """What is compiled: a file of cl/ with everything it includes, and ``-D`` macros. ``source`` may be
    several files, with spaces between.

    ``ptx_target``: the compiler's PTX is rewritten for this NVIDIA target (see opencl/compiler.py).
    """

    source: str
    defines: Defines
    ptx_target: str | None = None

    def define(self, name: str) -> int | str | None:
        return dict(self.defines).get(name)


@dataclass(frozen=True)
class Launch:
    """One enqueue of a kernel function. Sizes are in work-items, dimension 0 first.

    ``packs`` names the operand ("a" or "b") that this launch packs into workspace. The launch reads nothing
    else, so the packed copy stays valid while the operand does not change. ``first`` is the first product of
    the stack that it computes. ``cluster``: so many work-groups along dimension 0 reach each other's local
    memory (DeviceInfo.clusters).
    """

    program: Program
    kernel: str
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    args: tuple[Arg, ...]
    packs: str = ""
    first: int = 0
    cluster: int = 1

    def renamed(self, names: Mapping[Arg, Arg]) -> Launch:
        """This launch with other arguments in place of the *names*."""
        return replace(self, args=tuple(names.get(arg, arg) for arg in self.args))


@dataclass(frozen=True)
class Workspace:
    """Device memory that a product needs besides operands and result, called "workspace:<name>" in arguments.

    ``zeroed``: filled with zeros when it is allocated. Later calls find what the call before left there.
    ``watched``: the host looks at it while products use it (docs/verification.md).
    ``copy_of``: the operand or result ("a", "b", "out") of which it holds a copy, which every kernel needs.
    """

    name: str
    nbytes: int
    zeroed: bool = False
    copy_of: str = ""
    watched: bool = False

    @property
    def symbol(self) -> str:
        return f"workspace:{self.name}"


# What a product says of itself: where it was wrong, in words of cl/verify/sums.h, and that it was.
VERDICT = Workspace("verify_verdict", 96, zeroed=True)
ALARM = Workspace("verify_alarm", 4, zeroed=True, watched=True)


@dataclass(frozen=True)
class Work:
    """The launches of one problem, in order, with the workspace and the tables of offsets that they need."""

    launches: tuple[Launch, ...]
    workspace: tuple[Workspace, ...] = ()
    tables: Mapping[str, Table] = field(default_factory=dict, compare=False)

    @property
    def workspace_nbytes(self) -> int:
        """Bytes of device memory besides operands and result, including tables."""
        return sum(w.nbytes for w in self.workspace) + sum(t.nbytes for t in self.tables.values())


@dataclass(frozen=True)
class Loops:
    """What a program's loops cover in one pass, along M, N and K. The self-check takes three passes."""

    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]

    @property
    def exchanged(self) -> Loops:
        """Those of a program that computes the transposed product."""
        return Loops(self.n, self.m, self.k)


class Kernel(ABC):
    """A kernel family: its name, and five pure questions about a problem on a device."""

    name: str
    summary: str
    accepts: Accepts  # what it takes of a problem; what that does not name, it refuses
    automatic = True  # whether kernel="auto" may choose it
    made_for = ""  # "cpu" or "gpu"; on a CPU a family for GPUs is asked last
    matrix_units = False  # whether it multiplies on matrix units
    tiles_in_turn = False  # whether a work-group computes tile after tile of a large product
    options: tuple[str, ...] = ()  # the names that its configurations may use in TileConfig.options
    has_barriers = True  # whether work-items of a work-group wait for each other
    risky = True  # whether a compiler might crash on it, so that it is tried in a child process first

    def __repr__(self) -> str:
        return f"<kernel {self.name}: {self.summary}>"

    def refuses(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        """Why this family cannot compute *problem* on *device*, or None if it can."""
        soft = problem.soft_float64 and "soft_float64" in self.accepts.fields
        return (
            self.unsuited(device)
            or (None if device.has_fp64 or soft else device.missing_type(problem.types))
            or self.accepts.refusal(self.name, problem)
            or self.obstacle(problem, device)
        )

    def unsuited(self, device: DeviceInfo) -> str | None:
        """Why this family computes nothing on *device*, or None."""
        return None

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        """Why sizes or layout keep this family from a problem that it accepts, or None."""
        return None

    def in_parts(self, problem: GemmProblem) -> bool:
        """Whether matrix units multiply operands that are split into parts, for float32's accuracy."""
        return False

    def least_seconds(self, problem: GemmProblem, device: DeviceInfo) -> float:
        """Fewer seconds than any estimate, so that a family which cannot be chosen need not estimate."""
        return 0.0

    @abstractmethod
    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        """Seconds on the device, with all launches, from ``device.rates``. Selection takes the least."""

    def out_of_order(self, problem: GemmProblem, config: TileConfig) -> str | None:
        """Why a sum of *config* is not one chain of FMAs over K, in order, or None if every sum is. Asked of
        families that accept reproducible problems. Programs of these have REPRODUCIBLE 1.
        """
        if slices(config) > 1:
            return f"adds the sums of {slices(config)} slices of K"
        number = f"{config.split_k} " if config.split_k else ""  # 0: as many as the family chooses
        return None if config.split_k == 1 else f"adds the sums of {number}ranges of K"

    def multiplied_as(self, problem: GemmProblem, device: DeviceInfo) -> str:
        """The type in which matrix units multiply the operands. With "medium" they round float32 to TF32."""
        single = problem.a_type in ("float32", "complex64")
        return "TF32" if single and problem.precision == "medium" else problem.a_type

    def arithmetic(self, config: TileConfig) -> str:
        """In words, what is multiplied in place of the operands' elements. Empty where these are."""
        return ""

    def repacks(self, config: TileConfig) -> bool:
        """Whether every call packs an operand anew, within its launch, although it may be constant."""
        return False

    def ranked(self, problem: GemmProblem, device: DeviceInfo) -> list[Ranked]:
        """The configurations that this family offers, best first."""
        found = self.candidates(problem, device)
        if problem.reproducible:
            found = [config for config in found if self.out_of_order(problem, config) is None]
        if problem.is_listed:
            found = [config for config in found if not self.violations(problem, config, device)]
        seen = problem.typical
        estimates = [Ranked(self.estimate(seen, config, device), config) for config in found]
        return sorted(estimates, key=attrgetter("seconds"))

    def configs(self, problem: GemmProblem, device: DeviceInfo) -> list[TileConfig]:
        """Those of :meth:`ranked`. The first is the default."""
        return [one.config for one in self.ranked(problem, device)]

    @abstractmethod
    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        """The configurations that fit problem and device, in any order. Empty if none fits the device."""

    @abstractmethod
    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        """Why *config* cannot be used for *problem* on *device*. Empty if it can."""

    @abstractmethod
    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        """What to enqueue. Only called if ``refuses`` and ``violations`` found no reason against it."""

    def shared_tile(self, config: TileConfig) -> tuple[int, int]:
        """Rows and columns of the result for which each element of A and B is loaded once from global memory.

        Work-items that share nothing: one element. `pyclmm road` counts bytes with it, so a kernel of the
        road must answer; there is no default, which could be wrong.
        """
        raise NotImplementedError(f"{self.name} does not say which tile of the result shares its loads")

    def checked_as(self, config: TileConfig) -> tuple[TileConfig, ...]:
        """Configurations that make small problems run the programs that *config* runs for large ones. Where
        the family chooses the number of ranges of K, it takes one for a small problem.
        """
        return (config,) if config.split_k else (config, replace(config, split_k=3))

    def checked_on(self, device: DeviceInfo) -> tuple[DeviceInfo, ...]:
        """Devices, some made up, for which the same programs are launched in all the ways that *device* may
        ask for. With one compute unit, work-groups are as large, or have as much to do, as they may have.
        """
        return (device, replace(device, compute_units=1))

    def loops(self, problem: GemmProblem, config: TileConfig) -> Loops:
        """The loops of the programs of *config*: here a tile, and the stages that are loaded ahead."""
        m, n = ((size, GROUP * size) for size in (config.bm, config.bn))
        found = Loops(m, n, (config.bk, config.bk * config.stages))
        return found.exchanged if config.option("swapped") else found


class MatrixKernel(Kernel):
    """A family that multiplies on a matrix unit, in tiles of BM x BN."""

    matrix_units = True
    unit: str  # the name of its record in MATRIX_UNITS: it runs where that unit is

    def unsuited(self, device: DeviceInfo) -> str | None:
        return None if self.unit in device.matrix_units else MATRIX_UNITS[self.unit].lacking(self.name)

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        return too_long(problem)

    def shared_tile(self, config: TileConfig) -> tuple[int, int]:
        return config.bm, config.bn


def fitted(problem: GemmProblem, device: DeviceInfo) -> GemmProblem:
    """*problem* with the arithmetic that *device* lacks: FMAs of reproducible products, and float64."""
    soft_float64 = not device.has_fp64 and problem.acc_type in ("float64", "complex128")
    soft_fma = problem.reproducible and device.soft_fma
    if (soft_float64, soft_fma) == (problem.soft_float64, problem.soft_fma):
        return problem
    return replace(problem, soft_float64=soft_float64, soft_fma=soft_fma)


def too_long(problem: GemmProblem, limit: int = 2**30) -> str | None:
    """Why a kernel for matrix units cannot take M, N and K of this size, or None if it can."""
    if problem.k == 0:
        return "K is 0: there is nothing to multiply"
    if max(problem.m, problem.n, problem.k) >= limit:
        return f"M, N and K must stay under {limit}"
    return None


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of *multiple* that is at least *value*."""
    return -(-value // multiple) * multiple


def tiles_of(problem: GemmProblem, bm: int, bn: int) -> int:
    """Tiles of BM x BN elements of one product's result."""
    return -(-problem.m // bm) * -(-problem.n // bn)


def vector_defines(config: TileConfig, device: DeviceInfo, size: int = 4) -> tuple[tuple[str, int], ...]:
    """The macros that vectors.h needs, and AVX512 where functions are compiled for the processor itself.
    *size*: bytes of a real number of the sums.
    """
    vectors = (("LANES", config.vec), ("PREFETCHES", int(device.prefetches)))
    return (*vectors, ("AVX512", 1)) if config.vec * size * 8 > device.vector_bits else vectors


def gemm_defines(problem: GemmProblem, acc_type: str | None = None) -> Defines:
    """The macros that types.h, gemm.h and, of products modulo numbers, moduli.h need."""
    gate: Defines = (("GATE", int(problem.fallback)),)
    if problem.moduli:
        listed = ",".join(map(str, problem.moduli))
        gate = (("GATE", 2), ("MODULI", len(problem.moduli)), ("MODULI_LIST", listed))
    return (
        ("A_TYPE", problem.a_type), ("B_TYPE", problem.b_type), ("C_TYPE", problem.c_type),
        ("OUT_TYPE", problem.out_type), ("BIAS_TYPE", problem.bias_type),
        ("ACC_TYPE", acc_type or problem.acc_type),
        ("TRANS_A", int(problem.trans_a)), ("TRANS_B", int(problem.trans_b)),
        ("CONJ_A", int(problem.conj_a)), ("CONJ_B", int(problem.conj_b)),
        ("REPRODUCIBLE", int(problem.reproducible) << problem.soft_fma),
        ("SOFT_FLOAT64", int(problem.soft_float64)), ("DOT_BYTES", int(problem.dot_bytes)),
        ("BATCHED", int(bool(problem.batch_shape))),
        ("LISTED", 2 if problem.ragged and problem.ragged.axis == "k" else int(problem.is_listed)),
        ("HAS_C", int(problem.has_c)), ("BIAS", BIASES.index(problem.bias)),
        ("ACTIVATION", ACTIVATIONS.index(problem.activation)),
        *gate,
    )  # fmt: skip


def gemm_args(problem: GemmProblem) -> tuple[Arg, ...]:
    """The arguments of GEMM_ARGS in cl/include/gemm.h, in its order."""
    return (
        np.int32(problem.m), np.int32(problem.n), np.int32(problem.k),
        "a", "a_offset", np.int64(problem.lda),
        "b", "b_offset", np.int64(problem.ldb),
        "out", "out_offset", np.int64(problem.ldo), "alpha", "beta",
        *(("c", "c_offset", *map(np.int64, problem.c_strides)) if problem.has_c else ()),
        *(("bias", "bias_offset", np.int64(problem.bias_stride)) if problem.bias != "none" else ()),
        *(("batch_offsets",) if problem.batch_shape else ()),
        *((GATE,) if problem.moduli or problem.fallback else ()),
        *(LISTED if problem.products else ()),
        *([f"workspace:{name}" for name in LISTED] if problem.ragged else ()),
    )  # fmt: skip


_OF_OTHER = {"a": "b", "a_offset": "b_offset", "workspace:packed_a": "workspace:packed_b"}
_OF_OTHER |= {b: a for a, b in _OF_OTHER.items()}


def exchanged(args: tuple[Arg, ...]) -> tuple[Arg, ...]:
    """Arguments of a kernel that computes the transposed product: its A is the problem's B, its B the A."""
    return tuple(_OF_OTHER.get(x, x) if isinstance(x, str) else x for x in args)


def gemm_program(
    problem: GemmProblem,
    source: str,
    defines: Iterable[tuple[str, int | str]] = (),
    acc_type: str | None = None,
    ptx_target: str | None = None,
) -> Program:
    """A program of one kernel's source, with the macros that the shared headers need."""
    return Program(source, (*gemm_defines(problem, acc_type), *defines), ptx_target)


def gemm_launch(
    problem: GemmProblem,
    program: Program,
    kernel: str,
    size: tuple[int, ...],
    local: tuple[int, ...],
    extra: tuple[Arg, ...] = (),
    args: tuple[Arg, ...] | None = None,
    together: bool = False,
    entries: int | None = None,
    packs: str = "",
) -> Launch:
    """The launch of *kernel*: *size* work-items for each product of the stack, in work-groups of *local*.

    *extra*: the arguments behind GEMM_ARGS, and *args* those in place of the problem's own. *together*: the
    work-items are for the whole stack; else a stack is dimension 2, or so many *entries* of it. *packs*: see
    :class:`Launch`.
    """
    own = gemm_args(problem) if args is None else args
    if problem.batch_shape and not together:
        size = (*size, *(1,) * (2 - len(size)), problem.batch if entries is None else entries)
        local = (*local, *(1,) * (3 - len(local)))
    return Launch(program, kernel, size, local, (*own, *extra), packs)
