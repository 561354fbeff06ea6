"""Which kernel and configuration a product gets: a pure function of problem and device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .config import TileConfig
from .device import DeviceInfo
from .errors import ArgumentError, UnsupportedError
from .kernels import KERNELS, Kernel, kernel_named
from .problem import GemmProblem

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


def candidates(problem: GemmProblem, device: DeviceInfo, kernel: KernelChoice) -> Iterator[Choice]:
    """Choices from best to last resort; just one for a kernel asked for by name.

    Raises UnsupportedError with every kernel's reason where there is none.
    """
    if kernel != "auto":
        yield _asked_for(problem, device, kernel)
        return
    reasons = {}
    found = False
    for family in (k for k in KERNELS if k.automatic):
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
