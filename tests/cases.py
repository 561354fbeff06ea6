"""Every kernel in every configuration worth testing, found by walking KERNELS; operands for them."""

from __future__ import annotations

import os

import numpy as np
import pytest

import pyclmm
from pyclmm import KERNELS, TileConfig
from pyclmm.device import device_info
from pyclmm.problem import checked_gemm, dense
from pyclmm.queues import default_device

# On PoCL, the driver that CI uses, these must run: a skip there is a failure.
NEVER_SKIPPED = ("packed", "thin", "register", "tiled", "naive", "flat", "single_group", "sequential")

# How many of a family's own configurations are tested: compiling them is what takes the time.
# PYCLMM_TEST_CONFIGS=all takes all of them.
SPREAD = 1000 if os.environ.get("PYCLMM_TEST_CONFIGS") == "all" else 3
VARIANTS = 5  # programs, or sizes of work-groups, that one test may compile for different shapes


def _tile(*, options=(), **sizes):
    return TileConfig(**sizes, options=tuple(sorted(dict(options).items())))


_REGISTERS = {"held": 1, "slices": 1, "fetch_b": 0}
# Odd sizes that no device would be tuned to, and that compile fast. A kernel is tested in those that
# it does not refuse; of several that launch the same, one is taken.
ODD_TILES = (
    TileConfig.square(3),
    TileConfig.square(5),
    _tile(bm=3, bn=5),
    _tile(bm=8, bn=8, bk=4, sgm=8, sgn=8, tm=2, tn=2, stages=2, split_k=3, options=_REGISTERS),
    _tile(bm=12, bn=8, bk=4, sgm=12, sgn=8, tm=3, tn=2, stages=2, split_k=0, options=_REGISTERS),
    _tile(bm=8, bn=8, bk=8, sgm=8, sgn=8, tm=4, tn=4, stages=2, options=_REGISTERS | {"slices": 2}),
    _tile(bm=9, bn=12, bk=8, tm=3, tn=4, vec=4, split_k=3),
    _tile(bm=4, bn=8, bk=4, tm=2, tn=4, vec=4),
    _tile(vec=1, split_k=3, options={"lanes": 4, "teams": 2, "depth": 3}),
    _tile(vec=1, split_k=0, options={"lanes": 2, "teams": 2, "depth": 1}),
)

DEVICE = device_info(default_device())


def problem_of(m, n, k, dtype="f4"):
    """The product of dense matrices of one dtype."""
    dtype = np.dtype(dtype)
    return checked_gemm(dense((m, k), dtype), dense((k, n), dtype)).problem


SAMPLE = problem_of(4, 4, 4)


def refused(kernel, reason):
    """Skip the test, unless this kernel must not be skipped here."""
    if kernel.name in NEVER_SKIPPED and DEVICE.vendor == "pocl":
        pytest.fail(f"{kernel.name} must run on {DEVICE.name!r}, but: {reason}")
    pytest.skip(reason)


class Subject:
    """A kernel in one configuration, ready to be tested; None is the one it takes by itself."""

    def __init__(self, kernel, config=None):
        self.kernel, self.config = kernel, config
        self.used = 0  # calls that ran in that configuration

    def __repr__(self):
        return f"{self.kernel.name}-{self.config or 'default'}".replace(" ", ",")

    def __call__(self, *args, **kwargs):
        """gemm by this kernel; in its default configuration where the operands rule out this one."""
        choices = [(self.kernel.name, self.config)] if self.config else []
        for choice in [*choices, self.kernel.name]:
            try:
                result = pyclmm.gemm(*args, kernel=choice, **kwargs)
            except pyclmm.UnsupportedError as error:
                refused(self.kernel, str(error))
            except pyclmm.ArgumentError as error:
                if "cannot use" not in str(error) or choice == self.kernel.name:
                    raise
            else:
                self.used += choice != self.kernel.name or self.config is None
                return result
        raise AssertionError("a kernel refused its own default")

    def takes(self, m, n, k):
        """Whether the kernel takes that shape at all."""
        return self.kernel.supports(problem_of(m, n, k), DEVICE) is None

    def shape(self, m, n, k):
        """That shape, with fewer rows or columns where the kernel takes no more."""
        for rows, columns in ((m, n), (m, 5), (5, n), (5, 5)):
            if self.takes(rows, columns, k):
                return rows, columns, k
        return refused(self.kernel, f"{self} takes no shape like {m} x {n} x {k}")

    def _variant(self, m, n, k):
        """What is compiled for that shape: programs, and by some drivers each size of work-groups."""
        problem = problem_of(m, n, k)
        config = self.config
        if config is None or self.kernel.violations(problem, config, DEVICE):
            config = self.kernel.configs(problem, DEVICE)[0]
        launches = self.kernel.launches(problem, config, DEVICE).launches
        return tuple((launch.program, launch.local_size) for launch in launches)

    def shapes(self, wanted):
        """Those that the kernel takes, in at most VARIANTS variants, from all over the list."""
        mine = [s for s in dict.fromkeys(wanted) if self.takes(*s)]
        variants = list(dict.fromkeys(self._variant(*s) for s in mine))
        kept = variants[:: max(1, -(-len(variants) // VARIANTS))]
        found = [s for s in mine if self._variant(*s) in kept]
        assert found, "a kernel that takes none of the shapes is not tested"
        return found


def _distinct(kernel, configs):
    """Without those that launch the same."""
    found = {}
    for config in configs:
        if not kernel.violations(SAMPLE, config, DEVICE):
            found.setdefault(kernel.launches(SAMPLE, config, DEVICE), config)
    return list(found.values())


def own_configs(kernel):
    """The kernel's candidates, from first to last, a few of them."""
    found = _distinct(kernel, kernel.configs(SAMPLE, DEVICE))
    return found[:: max(1, -(-len(found) // SPREAD))]


def odd_configs(kernel):
    """The odd tiles that the kernel can use and its device would not."""
    own = _distinct(kernel, kernel.configs(SAMPLE, DEVICE))
    return [c for c in _distinct(kernel, [*own, *ODD_TILES]) if c not in own][:3]


def _parameters(subjects):
    return pytest.mark.parametrize("subject", [pytest.param(s, id=repr(s)) for s in subjects])


every_config = _parameters(
    [Subject(k, c) for k in KERNELS for c in (*own_configs(k), *odd_configs(k)) or (None,)]
)
# What the kernel takes by itself, and a tile that no shape divides.
two_configs = _parameters([Subject(k, c) for k in KERNELS for c in (None, *odd_configs(k)[:1])])
# The one of a family's that compiles fastest: for tests of types and epilogues, which share their code.
every_kernel = _parameters([Subject(k, (*odd_configs(k)[:1], None)[0]) for k in KERNELS])
defaults = _parameters([Subject(k) for k in KERNELS])


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
