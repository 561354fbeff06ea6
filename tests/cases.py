"""Every kernel in every configuration worth testing, found by walking KERNELS; operands for them."""

from __future__ import annotations

import numpy as np
import pytest

import pyclmm
from pyclmm import KERNELS, TileConfig
from pyclmm.device import device_info
from pyclmm.problem import GemmProblem
from pyclmm.queues import default_device

# On PoCL, the driver that CI uses, these must run: a skip there is a failure.
NEVER_SKIPPED = ("tiled", "naive", "flat", "single_group", "sequential")

# Odd sizes that no device would be tuned to. A kernel is tested in those that it does not refuse.
ODD_TILES = (
    TileConfig.square(3),
    TileConfig.square(5),
    TileConfig(bm=3, bn=5),
    TileConfig(bm=5, bn=3, bk=7),
    TileConfig(bm=1, bn=7),
    TileConfig(bm=6, bn=10, bk=3, tm=2, tn=5),
    TileConfig(bm=4, bn=12, bk=5, tm=4, tn=4, vec=4),
    TileConfig(bm=24, bn=8, bk=6, tm=3, tn=2, split_k=3),
)

DEVICE = device_info(default_device())
SAMPLE = GemmProblem(4, 4, 4, "float32", "float32", "float32", "float32", lda=4, ldb=4, ldo=4)


def configs(kernel):
    """The kernel's own candidates and the odd tiles, without those that launch the same; a kernel that
    this device cannot run has one, in which its tests are skipped."""
    if kernel.supports(SAMPLE, DEVICE) is not None:
        return [TileConfig()]
    odd = [c for c in ODD_TILES if not kernel.violations(SAMPLE, c, DEVICE)]
    distinct = {}
    for config in (*kernel.configs(SAMPLE, DEVICE), *odd):
        distinct.setdefault(kernel.launches(SAMPLE, config, DEVICE), config)
    return list(distinct.values())


def _case(kernel, *config):
    reason = kernel.supports(SAMPLE, DEVICE)
    marks = [] if reason is None or kernel.name in NEVER_SKIPPED else [pytest.mark.skip(reason=reason)]
    name = "-".join([kernel.name, *(str(c).replace(" ", ",") for c in config)])
    return pytest.param(kernel, *config, id=name, marks=marks)


EVERY_CONFIG = [_case(k, c) for k in KERNELS for c in configs(k)]
# The default, and the last odd tile as one that no shape divides.
TWO_CONFIGS = [_case(k, c) for k in KERNELS for c in dict.fromkeys(configs(k)[:1] + configs(k)[-1:])]
DEFAULTS = [_case(k) for k in KERNELS]


def refused(kernel, reason):
    """Skip the test, unless this kernel must not be skipped here."""
    if kernel.name in NEVER_SKIPPED and DEVICE.vendor == "pocl":
        pytest.fail(f"{kernel.name} must run on {DEVICE.name!r}, but: {reason}")
    pytest.skip(reason)


def run(kernel, config, *args, **kwargs):
    """gemm by that kernel; skips where the device cannot run it."""
    choice = kernel.name if config is None else (kernel.name, config)
    try:
        return pyclmm.gemm(*args, kernel=choice, **kwargs)
    except pyclmm.UnsupportedError as error:
        return refused(kernel, str(error))


def fits(kernel, m, n, k):
    """Whether the kernel takes that shape at all."""
    problem = GemmProblem(m, n, k, "float32", "float32", "float32", "float32", lda=k, ldb=n, ldo=n)
    return kernel.supports(problem, DEVICE) is None


def compiles_each_shape(kernel, config):
    """Whether work-groups follow the shape, so that each one is compiled anew by some drivers."""
    other = GemmProblem(3, 5, 4, "float32", "float32", "float32", "float32", lda=4, ldb=5, ldo=5)
    sizes = (kernel.launches(p, config, DEVICE).launches[-1].local_size for p in (SAMPLE, other))
    return len(set(sizes)) > 1


def numbers(rng, shape, dtype):
    """Random elements: normal for floats, the whole range for integers."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.3
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def small_integers(rng, shape, dtype):
    """Elements whose products and sums are exact in every float type."""
    return rng.integers(-3, 4, shape).astype(dtype)
