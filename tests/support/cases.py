"""The kernels and configurations that tests run on, from KERNELS, and operands for them."""

import os
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import pyclmm
from pyclmm import KERNELS, TileConfig
from pyclmm.formats import RUN, format_named
from pyclmm.kernels.interface import round_up
from pyclmm.opencl.devices import default_device, device_info
from pyclmm.problem.canonical import checked_gemm
from pyclmm.problem.gemm import dense

# On PoCL, the driver that CI uses, these must run: a skip there is a failure.
NEVER_SKIPPED = (
    "packed", "thin", "register", "double_buffer", "block", "strip", "tiled", "naive", "flat", "single_group",
    "sequential",
)  # fmt: skip


def taken_by(kernel, problem):
    """*problem*, with quantised weights in place of B for a *kernel* that takes no others."""
    if "b_format" not in kernel.accepts.fields:
        return problem
    own = {"wgmma_quantized": "affine4_g64_float16", "wgmma_fragments": "affine4_g64_float16_fragments"}
    name, unit = (own[kernel.name], 128) if kernel.name in own else ("q8_0", 2 * RUN)
    k = round_up(problem.k, unit)
    row = format_named(name).row_nbytes(k)
    changed = {"b_format": name, "ldb": row, "b_align": format_named(name).align}
    if "quantize_a" in kernel.accepts.fields:
        changed["quantize_a"] = "int8"
    return replace(problem, k=k, lda=k, b_type="uint8", trans_a=False, trans_b=True, **changed)


# Families for quantised weights multiply no arrays of numbers: see tests/test_weights.py.
OF_NUMBERS = tuple(kernel for kernel in KERNELS if "b_format" not in kernel.accepts.fields)

# Compiling takes most of the time, so only some of a family's own configurations are tested.
# TEST_CONFIGS=all takes all of them.
ALL = os.environ.get("TEST_CONFIGS") == "all"
SPREAD = 1000 if ALL else 2
VARIANTS = 3  # most programs, or sizes of work-groups, that a test compiles for its shapes


def _tile(*, options=(), **sizes):
    return TileConfig(**sizes, options=tuple(sorted(dict(options).items())))


_REGISTERS = {"held": 1, "slices": 1, "fetch_b": 0}
# Odd sizes that no device would be tuned to. They compile fast. A kernel is tested in those that it does
# not refuse, and only once in those that launch the same.
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
for_cpus = pytest.mark.skipif(not DEVICE.is_cpu, reason="what is shown is of CPU devices")


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


@cache
def _takes(kernel, m, n, k):
    return kernel.refuses(problem_of(m, n, k), DEVICE) is None


@cache
def _variant(kernel, config, m, n, k):
    """What is compiled for that shape: programs, and in some drivers each size of work-group."""
    if 0 in (m, n):
        return ()  # nothing is launched
    problem = problem_of(m, n, k)
    if config is None or kernel.violations(problem, config, DEVICE):
        config = kernel.configs(problem, DEVICE)[0]
    launches = kernel.launches(problem, config, DEVICE).launches
    return tuple((launch.program, launch.local_size) for launch in launches)


class Subject:
    """A kernel in one configuration; None is the kernel's own choice."""

    def __init__(self, kernel, config=None):
        self.kernel, self.config = kernel, config
        self.used = 0  # calls that used the configuration

    def __repr__(self):
        return f"{self.kernel.name}-{self.config or 'default'}".replace(" ", ",")

    def __call__(self, *args, **kwargs):
        """gemm by this kernel. It uses the default configuration where the operands rule out this one."""
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
        """Whether the kernel takes that shape."""
        return _takes(self.kernel, m, n, k)

    def _rules_out(self, shape):
        """Whether that shape rules out the configuration."""
        return self.config is not None and bool(
            self.kernel.violations(problem_of(*shape), self.config, DEVICE)
        )

    def shape(self, m, n, k):
        """That shape, with fewer rows or columns if the kernel only takes fewer."""
        for rows, columns in ((m, n), (m, 5), (5, n), (5, 5), (m, 1)):
            if self.takes(rows, columns, k):
                return rows, columns, k
        return refused(self.kernel, f"{self} takes no shape like {m} x {n} x {k}")

    def shapes(self, wanted):
        """The *wanted* shapes that the kernel takes, from all over the list, in at most VARIANTS variants."""
        every = list(dict.fromkeys(wanted))
        mine = sorted((s for s in every if self.takes(*s)), key=self._rules_out)
        variants = list(dict.fromkeys(_variant(self.kernel, self.config, *s) for s in mine))
        kept = variants[:: max(1, -(-len(variants) // VARIANTS))]
        found = [s for s in mine if _variant(self.kernel, self.config, *s) in kept]
        if found:
            return found
        why = self.kernel.refuses(problem_of(*every[0]), DEVICE)
        return refused(self.kernel, f"{self} takes none of these shapes: {why}")


def sample(kernel):
    """A small product that the kernel takes, or SAMPLE if it takes none."""
    problems = [SAMPLE, problem_of(4, 1, 4)]
    return next((p for p in problems if kernel.refuses(p, DEVICE) is None), SAMPLE)


def missing(kernel):
    """Why this device cannot run the kernel at all, or None."""
    return kernel.refuses(sample(kernel), DEVICE)


def _distinct(kernel, configs):
    """The configurations without violations, and without those that launch the same as another."""
    found = {}
    for config in configs:
        if not kernel.violations(sample(kernel), config, DEVICE):
            found.setdefault(kernel.launches(sample(kernel), config, DEVICE), config)
    return list(found.values())


def _own(kernel):
    return [] if missing(kernel) else _distinct(kernel, kernel.configs(sample(kernel), DEVICE))


def own_configs(kernel):
    """A few of the kernel's own configurations, spread from first to last; of one for learning the first."""
    found = _own(kernel) or [None]
    return found[:: max(1, -(-len(found) // (SPREAD if kernel.automatic else 1)))]


def _known(kernel, config):
    """*config* with those of its options that the kernel has."""
    return replace(config, options={n: v for n, v in dict(config.options).items() if n in kernel.options})


def odd_configs(kernel):
    """Two of ODD_TILES that the kernel can use, one for learning one of them."""
    if missing(kernel):
        return []
    own = _own(kernel)
    odd = [_known(kernel, config) for config in ODD_TILES]
    return [c for c in _distinct(kernel, [*own, *odd]) if c not in own][: 2 if kernel.automatic else 1]


def _parameter(subject, *case):
    """A pytest parameter. It is skipped with a reason if the device cannot run the kernel and need not."""
    reason = missing(subject.kernel)
    skipped = [pytest.mark.skip(reason=reason)] if reason and subject.kernel.name not in NEVER_SKIPPED else []
    name = "-".join(map(str, (subject.kernel.name, *case))) if case else repr(subject)
    return pytest.param(subject, *case, id=name, marks=skipped)


def _parameters(subjects):
    return pytest.mark.parametrize("subject", [_parameter(s) for s in subjects])


every_config = _parameters([Subject(k, c) for k in OF_NUMBERS for c in (*own_configs(k), *odd_configs(k))])
# The kernel's own choice, and a tile that divides no shape.
two_configs = _parameters([Subject(k, c) for k in OF_NUMBERS for c in (None, *odd_configs(k)[:1])])
# The configuration that compiles fastest, for tests of types and epilogues: all kernels share that code.
every_kernel = _parameters([Subject(k, (*odd_configs(k)[:1], None)[0]) for k in OF_NUMBERS])


def rotated(names, cases, by=3):
    """Each case with one in *by* kernels. They share the tested code, and all pairs would take too long."""
    found = [
        _parameter(Subject(kernel, config), *case)
        for number, kernel in enumerate(OF_NUMBERS)
        for config in [(*odd_configs(kernel)[:1], None)[0]]
        for index, case in enumerate(cases)
        if ALL or (number + index) % by == 0
    ]
    return pytest.mark.parametrize(("subject", *names), found)


defaults = _parameters([Subject(k) for k in OF_NUMBERS])


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


def laid_out(x, letter):
    """*x*, its matrices by columns where *letter*, of a layout such as "NT", is T."""
    return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2) if letter == "T" else x


def zero_products(m, n, k, dtype="f4"):
    """Operands whose product is exactly zero: terms of -0.0, in three ways, and terms that cancel."""
    zeros, ones = (np.zeros, np.ones)
    yield -zeros((m, k), dtype), ones((k, n), dtype)
    yield ones((m, k), dtype), -zeros((k, n), dtype)
    yield -ones((m, k), dtype), zeros((k, n), dtype)
    if k > 1 and np.dtype(dtype).kind != "u":
        cancel = zeros((m, k), dtype)
        cancel[:, 0], cancel[:, k - 1] = -3, 3
        yield cancel, ones((k, n), dtype)


def is_positive_zero(x):
    """Whether every element is +0.0, of a complex number in both parts."""
    return bool((x == 0).all()) and not (np.signbit(x.real).any() or np.signbit(x.imag).any())
