"""Which kernel and configuration a product gets: a pure function of problem, device and tables.

First comes what the tables say was measured to be fastest (see tables.py), then each family's own choice
from its model, best family first. A table can only choose among what the families themselves offer here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import ArgumentError, UnsupportedError
from ..kernels import KERNELS, Kernel, kernel_named
from ..kernels.config import TileConfig
from ..kernels.device import DeviceInfo
from ..problem.gemm import GemmProblem
from .tables import Table, key_of, tables_for

# "auto", a kernel's name, or a name with the configuration to use.
KernelChoice = str | tuple[str, TileConfig]


@dataclass(frozen=True)
class Choice:
    """A kernel family with the configuration to build it in."""

    kernel: Kernel
    config: TileConfig


def refusal(kernel: Kernel, problem: GemmProblem, device: DeviceInfo) -> str | None:
    """Why *kernel* cannot compute *problem* on *device*, or None."""
    reason = kernel.supports(problem, device)
    if reason is None and not kernel.configs(problem, device):
        return "no configuration fits the device's limits"
    return reason


def candidates(
    problem: GemmProblem, device: DeviceInfo, kernel: KernelChoice, tables: Sequence[Table] | None = None
) -> Iterator[Choice]:
    """Choices from best to last resort; just one for a kernel asked for by name.

    *tables*: None for the user's own about *device* and those that are shipped.

    Raises UnsupportedError with every kernel's reason where there is none.
    """
    if kernel != "auto":
        yield _asked_for(problem, device, kernel)
        return
    measured = _measured(problem, device, tables_for(device) if tables is None else tables)
    if measured is not None:
        yield measured
    yield from (choice for choice in _modelled(problem, device) if choice != measured)


def _measured(problem: GemmProblem, device: DeviceInfo, tables: Sequence[Table]) -> Choice | None:
    """The first table's entry for such a problem, where its family would take it here too."""
    key = key_of(problem)
    for entry in (table[key] for table in tables if key is not None and key in table):
        family = next((k for k in KERNELS if k.automatic and k.name == entry.kernel), None)
        if family is None or family.supports(problem, device) is not None:
            continue
        offered = entry.config in family.configs(problem, device)
        if offered and not family.violations(problem, entry.config, device):
            return Choice(family, entry.config)
    return None


def _modelled(problem: GemmProblem, device: DeviceInfo) -> Iterator[Choice]:
    reasons = {}
    found = False
    families = (k for k in KERNELS if k.automatic)
    for family in sorted(families, key=lambda k: k.yields(problem, device)):  # those that yield come last
        reason = refusal(family, problem, device)
        if reason is None:
            found = True
            yield Choice(family, family.configs(problem, device)[0])
        else:
            reasons[family.name] = reason
    if not found:
        listed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        raise UnsupportedError(f"no kernel can compute {problem} on {device.name!r}: {listed}")


def _asked_for(problem: GemmProblem, device: DeviceInfo, kernel: KernelChoice) -> Choice:
    name, config = kernel if isinstance(kernel, tuple) else (kernel, None)
    family = kernel_named(name)
    reason = refusal(family, problem, device)
    if reason is not None:
        raise UnsupportedError(f"kernel {name!r} cannot compute {problem} on {device.name!r}: {reason}")
    if config is None:
        return Choice(family, family.configs(problem, device)[0])
    broken = family.violations(problem, config, device)
    if broken:
        raise ArgumentError(f"kernel {name!r} cannot use {config} on {device.name!r}: {'; '.join(broken)}")
    return Choice(family, config)
