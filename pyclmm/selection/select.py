"""The kernel and configuration of a product: a pure function of problem, device and measured tables.

The choice of a measured table comes first (see tables.py). Then come the families by their estimates in
seconds, each with its best configuration. All of them meet the precision that is asked for, or a higher one.
A table can choose only a configuration that the family itself offers.
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
    """A kernel family and the configuration to build it with."""

    kernel: Kernel
    config: TileConfig


class _Offers:
    """The configurations that each family offers for a problem on a device, computed once for each family."""

    def __init__(self, problem: GemmProblem, device: DeviceInfo) -> None:
        self._problem, self._device = problem, device
        self._found: dict[str, Sequence[TileConfig] | str] = {}

    def of(self, kernel: Kernel) -> Sequence[TileConfig] | str:
        """The configurations of *kernel*, or why it has none."""
        if kernel.name not in self._found:
            self._found[kernel.name] = offered(kernel, self._problem, self._device)
        return self._found[kernel.name]


def offered(kernel: Kernel, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig] | str:
    """The configurations of *kernel* for *problem* on *device*, best first, or why it cannot compute it."""
    reason = kernel.supports(problem, device)
    if reason is not None:
        return reason
    return kernel.configs(problem, device) or "no configuration fits the device's limits"


def refusal(kernel: Kernel, problem: GemmProblem, device: DeviceInfo) -> str | None:
    """Why *kernel* cannot compute *problem* on *device*, or None."""
    found = offered(kernel, problem, device)
    return found if isinstance(found, str) else None


def candidates(
    problem: GemmProblem, device: DeviceInfo, kernel: KernelChoice, tables: Sequence[Table] | None = None
) -> Iterator[Choice]:
    """The choices for *problem*, best first; the later ones are fallbacks. One if *kernel* names a kernel.

    *tables*: measured tables; None for the user's own and the shipped ones.

    Raises UnsupportedError with every kernel's reason if no kernel can compute the problem, and ArgumentError
    for an unknown name or a configuration that cannot be used.
    """
    offers = _Offers(problem, device)
    if kernel != "auto":
        yield _requested(offers, problem, device, kernel)
        return
    measured = _measured(offers, problem, device, tables_for(device) if tables is None else tables)
    if measured is not None:
        yield measured
    yield from (choice for choice in _modelled(offers, problem, device) if choice != measured)


def _measured(
    offers: _Offers, problem: GemmProblem, device: DeviceInfo, tables: Sequence[Table]
) -> Choice | None:
    """The choice of the first table whose entry for *problem* is one that its family offers here."""
    key = key_of(problem)
    for entry in (table[key] for table in tables if key is not None and key in table):
        family = next((k for k in KERNELS if k.automatic and k.name == entry.kernel), None)
        configs = "" if family is None else offers.of(family)
        if family is None or isinstance(configs, str) or entry.config not in configs:
            continue
        if not family.violations(problem, entry.config, device):
            return Choice(family, entry.config)
    return None


def _modelled(offers: _Offers, problem: GemmProblem, device: DeviceInfo) -> Iterator[Choice]:
    """Each family's best configuration, the one with the least estimate first."""
    reasons, found = {}, []
    for family in (k for k in KERNELS if k.automatic):
        configs = offers.of(family)
        if isinstance(configs, str):
            reasons[family.name] = configs
        else:
            found.append(Choice(family, configs[0]))
    if not found:
        listed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        raise UnsupportedError(f"no kernel can compute {problem} on {device.name!r}: {listed}")
    yield from sorted(found, key=lambda choice: choice.kernel.estimate(problem, choice.config, device))


def _requested(offers: _Offers, problem: GemmProblem, device: DeviceInfo, kernel: KernelChoice) -> Choice:
    name, config = kernel if isinstance(kernel, tuple) else (kernel, None)
    family = kernel_named(name)
    configs = offers.of(family)
    if isinstance(configs, str):
        raise UnsupportedError(f"kernel {name!r} cannot compute {problem} on {device.name!r}: {configs}")
    if config is None:
        return Choice(family, configs[0])
    broken = family.violations(problem, config, device)
    if broken:
        raise ArgumentError(f"kernel {name!r} cannot use {config} on {device.name!r}: {'; '.join(broken)}")
    return Choice(family, config)
