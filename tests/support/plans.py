"""What tests see of plans that users do not: the one place that knows where a plan keeps it."""

from typing import Any

import pyclmm
from pyclmm import calls, plan_cache
from pyclmm.execution import host_path
from pyclmm.opencl import forks


def executable(plan: pyclmm.Matmul) -> Any:
    return plan._executable


def path(plan: pyclmm.Matmul) -> Any:
    """The way that operands take to the device."""
    return plan._product.path


def launched(plan: pyclmm.Matmul) -> list[str]:
    """The kernels that a call launches, in order."""
    return [launch.kernel for launch in executable(plan).work.launches]


def workspace(plan: pyclmm.Matmul, name: str) -> int:
    """The bytes of workspace of that name."""
    return sum(space.nbytes for space in executable(plan).work.workspace if space.name == name)


def of_list(plan: pyclmm.ManyMatmul) -> Any:
    """The launches and copies of a list of products."""
    return plan._many


def last_product() -> Any:
    """That of this thread's last call of matmul or gemm."""
    return calls._last.mine.latest.product()


def last_options() -> Any:
    """What that call asked for."""
    return calls._last.mine.latest.asked


def takes_addresses() -> list[bool]:
    """What devices have shown of addresses of plain arrays."""
    return list(host_path._takes_addresses.values())


def kept_plans() -> dict[Any, Any]:
    """The plans that matmul and gemm keep, by what they are for."""
    return dict(plan_cache._plans.items())


def as_after_a_fork(patch: Any) -> None:
    """This process seems to be a fork of one that has used a device."""
    patch.setattr(forks, "_broken", True)
