"""The kernel and configuration of a product: a pure function of problem, device and measured tables.

The choice of a measured table comes first (see tables.py). Then come the families by their estimates in
seconds, each with its best configuration. All of them meet the precision that is asked for, or a higher one.
A table can choose only a configuration that the family itself offers. What needs more workspace than
:func:`no_room` allows is used only if it is asked for by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heappop, heappush
from typing import NamedTuple

from ..errors import ArgumentError, UnsupportedError
from ..kernels import KERNELS, Kernel, kernel_named
from ..kernels.config import Ranked, TileConfig
from ..kernels.device import DeviceInfo
from ..kernels.interface import Work
from ..problem.gemm import GemmProblem
from .tables import Entry, MeasuredTable, key_of, tables_for

# Workspace may take 1 / 4 of a device's memory, as much as OpenCL lets one buffer have on every device
# (CL_DEVICE_MAX_MEM_ALLOC_SIZE).
_MEMORY_PART = 4
_NONE_FITS = "no configuration fits the device's limits"

# "auto", a kernel's name, or a name with the configuration to use.
KernelChoice = str | tuple[str, TileConfig]


@dataclass(frozen=True)
class Choice:
    """A kernel family and its configuration; ``work``: its launches, if made; ``entry``: of a table."""

    kernel: Kernel
    config: TileConfig
    work: Work | None = field(default=None, repr=False, compare=False)
    entry: Entry | None = field(default=None, repr=False, compare=False)


Offer = list[Ranked] | str  # the configurations of a family, best first; or why it has none


class _Waiting(NamedTuple):
    """The best of an offer that was not tried; ``place``: the family's in KERNELS. They compare in order.

    ``offer`` is None before it is made; ``seconds`` is then under any estimate.
    """

    seconds: float
    place: int
    family: Kernel
    offer: list[Ranked] | None = None


def offer(kernel: Kernel, problem: GemmProblem, device: DeviceInfo, has_constant: bool = False) -> Offer:
    """What *kernel* offers for *problem* on *device*. *has_constant*: as in :func:`candidates`."""
    return kernel.refuses(problem, device) or _offered(kernel, problem, device, has_constant)


def _offered(kernel: Kernel, problem: GemmProblem, device: DeviceInfo, has_constant: bool) -> Offer:
    """:func:`offer` of a family that does not refuse."""
    unfused = problem.reproducible and device.unfused(problem.acc_type)
    if unfused:
        return unfused
    found = kernel.ranked(problem, device)
    if not found and problem.reproducible:
        disorders = (kernel.out_of_order(problem, config) for config in kernel.candidates(problem, device))
        return next(filter(None, disorders), _NONE_FITS)
    if has_constant:
        found = [one for one in found if not kernel.repacks(one.config)] or found
    return found or _NONE_FITS


def refusal(kernel: Kernel, problem: GemmProblem, device: DeviceInfo) -> str | None:
    """Why *kernel* cannot compute *problem* on *device*, or None."""
    found = offer(kernel, problem, device)
    return found if isinstance(found, str) else None


def best(kernel: Kernel, problem: GemmProblem, device: DeviceInfo) -> Ranked | str:
    """The configuration by which "auto" compares *kernel* with others, or why it has none."""
    found = offer(kernel, problem, device)
    if isinstance(found, str):
        return found
    reasons = []
    for one in found:
        reason = no_room(kernel.launches(problem, one.config, device), device)
        if reason is None:
            return one
        reasons.append(reason)
    return reasons[0]


def no_room(work: Work, device: DeviceInfo) -> str | None:
    """Why *device* has no room for the workspace of *work*, or None if it has."""
    most = device.max_mem_alloc_size
    for space in work.workspace:
        if space.nbytes > most:
            return f"its workspace {space.name!r} needs {space.nbytes} bytes; a buffer may have {most}"
    share = device.global_mem_size // _MEMORY_PART
    if work.workspace_nbytes > share:
        return f"its workspace needs {work.workspace_nbytes} bytes; 1/{_MEMORY_PART} of the memory is {share}"
    return None


def candidates(
    problem: GemmProblem,
    device: DeviceInfo,
    kernel: KernelChoice,
    tables: Sequence[MeasuredTable] | None = None,
    has_constant: bool = False,
) -> Iterator[Choice]:
    """The choices for *problem*, best first; the later ones are fallbacks. One if *kernel* names a kernel.

    *tables*: measured tables; None for the user's own and the shipped ones. *has_constant*: an operand stays
    the same between calls, so what packs it should be a launch of its own, which later calls skip.

    Raises UnsupportedError with every kernel's reason if no kernel can compute the problem, and ArgumentError
    for an unknown name or a configuration that cannot be used.
    """
    if kernel != "auto":
        yield _requested(problem, device, kernel, has_constant)
        return
    measured = _measured(problem, device, tables_for(device) if tables is None else tables, has_constant)
    if measured is not None:
        yield measured
    yield from (choice for choice in _modelled(problem, device, has_constant) if choice != measured)


def _measured(
    problem: GemmProblem, device: DeviceInfo, tables: Sequence[MeasuredTable], has_constant: bool
) -> Choice | None:
    """The choice of the first table whose entry for *problem* is one that its family offers here."""
    key = key_of(problem)
    for entry in (table[key] for table in tables if key is not None and key in table):
        family = next((k for k in KERNELS if k.automatic and k.name == entry.kernel), None)
        found = "" if family is None else offer(family, problem, device, has_constant)
        if family is None or isinstance(found, str) or entry.config not in [one.config for one in found]:
            continue
        if no_room(family.launches(problem, entry.config, device), device) is None:
            return Choice(family, entry.config, entry=entry)
    return None


@lru_cache(maxsize=64)
def _suited(families: tuple[Kernel, ...], device: DeviceInfo) -> list[tuple[int, Kernel]]:
    """Those of *families* that "auto" may choose on *device*, each with its place."""
    every = enumerate(families)
    return [(place, family) for place, family in every if family.automatic and not family.unsuited(device)]


def _modelled(problem: GemmProblem, device: DeviceInfo, has_constant: bool) -> Iterator[Choice]:
    """Each family's best configuration that has room, the one with the least estimate first.

    On a CPU the families for GPUs are asked if no family for CPUs has the least estimate, and for fallbacks.
    Configurations are made only by a family that may be the next one, and launches by the next one.
    """

    def taking(made_last: bool) -> list[_Waiting]:
        return [
            _Waiting(family.least_seconds(problem, device), place, family)
            for place, family in _suited(tuple(KERNELS), device)
            if (device.is_cpu and family.made_for == "gpu") == made_last
            and family.refuses(problem, device) is None
        ]

    waiting, all_asked, nothing = sorted(taking(made_last=False)), not device.is_cpu, True
    while waiting or not all_asked:
        first = waiting[0] if waiting and nothing else None
        if not all_asked and (first is None or (first.offer and first.family.made_for != "cpu")):
            waiting, all_asked = sorted([*waiting, *taking(made_last=True)]), True
            continue
        _, place, family, found = heappop(waiting)
        others: Offer
        if found is None:
            others = _offered(family, problem, device, has_constant)
        else:
            one, *others = found
            work = family.launches(problem, one.config, device)
            if no_room(work, device) is None:
                nothing = False
                yield Choice(family, one.config, work)
                continue
        if others and not isinstance(others, str):
            heappush(waiting, _Waiting(others[0].seconds, place, family, others))
    if nothing:
        every = [k for k in KERNELS if k.automatic]
        asked = [k for k in every if k.accepts.refusal(k.name, problem) is None] or every
        listed = "; ".join(f"{k.name}: {best(k, problem, device)}" for k in asked)
        raise UnsupportedError(f"no kernel can compute {problem} on {device.name!r}: {listed}")


def _requested(problem: GemmProblem, device: DeviceInfo, kernel: KernelChoice, has_constant: bool) -> Choice:
    name, config = kernel if isinstance(kernel, tuple) else (kernel, None)
    family = kernel_named(name)
    found = offer(family, problem, device, has_constant)
    if isinstance(found, str):
        raise UnsupportedError(f"kernel {name!r} cannot compute {problem} on {device.name!r}: {found}")
    if config is None:
        return Choice(family, found[0].config)
    unknown = config.unknown_to(family.options)
    if unknown:
        known = f"its options are {', '.join(family.options)}" if family.options else "it has none"
        raise ArgumentError(f"kernel {name!r} has no option {unknown[0]!r} in TileConfig.options; {known}")
    broken = family.violations(problem, config, device)
    if problem.reproducible and not broken and (disorder := family.out_of_order(problem, config)):
        broken = [f"it cannot be reproducible: it {disorder}"]
    if broken:
        raise ArgumentError(f"kernel {name!r} cannot use {config} on {device.name!r}: {'; '.join(broken)}")
    return Choice(family, config)
