"""Self-check: a kernel is used on a device only after it gave right answers there.

What is checked is what will run: the very programs of the launches, with small operands. Integer data
must come out exactly, random data within the error bound, edges and padding included, and nothing behind
the result may be touched. The verdict is kept, in the process and on disk, under a digest of device,
driver, sources and macros, so a new driver or a changed kernel is checked again.

``PYCLMM_SELFCHECK=off`` skips the check for fixed deployments where it has passed before. That gives up
the protection from a wrong driver: products may be wrong without a word.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyopencl as cl

from . import cache, dtypes, reference
from .binding import Binding
from .config import TileConfig
from .device import DeviceInfo, device_info
from .kernels.base import Kernel, Work, round_up
from .problem import ACTIVATIONS, Gemm, GemmProblem
from .program import source_hash
from .recipe import Recipe

Array = np.ndarray[Any, np.dtype[Any]]

_SCHEMA = 1
_CANARY = 127  # elements behind the result that must stay as they are
_LARGEST = 300  # M, N and K of the check: a few work-groups of any tile, well under 50 ms
_known: dict[str, str | None] = {}
_lock = threading.Lock()


def refusal(queue: cl.CommandQueue, problem: GemmProblem, kernel: Kernel, config: TileConfig) -> str | None:
    """Why *kernel* must not be used for *problem* on the queue's device, or None if it is right."""
    if os.environ.get("PYCLMM_SELFCHECK", "").lower() == "off":
        return None
    device = device_info(queue.device)
    digest = _digest(device, kernel.launches(problem, config, device))
    with _lock:
        if digest in _known:
            return _known[digest]
    kept = cache.read_json(_path(digest), _fault)
    verdict: str | None = kept["reason"] if kept else _found_wrong(queue, problem, kernel, config, device)
    if kept is None:
        record = {"schema": _SCHEMA, "device": device.name, "kernel": kernel.name, "reason": verdict}
        cache.write_json(_path(digest), record)
    with _lock:
        _known[digest] = verdict
    return verdict


def _digest(device: DeviceInfo, work: Work) -> str:
    parts = [device.platform, device.platform_version, device.name, device.driver_version]
    parts += [f"{source_hash(launch.program)} {launch.kernel}" for launch in work.launches]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _path(digest: str) -> Any:
    return cache.folder("selfcheck", f"{digest}.json")


def _fault(content: Any) -> str | None:
    """What is wrong with a verdict read from disk."""
    if not isinstance(content, dict) or set(content) != {"schema", "device", "kernel", "reason"}:
        return "it does not have a verdict's keys"
    if content["schema"] != _SCHEMA:
        return f"its schema is not {_SCHEMA}"
    reason = content["reason"]
    if reason is not None and not (isinstance(reason, str) and re.fullmatch(r"[ -~]{1,300}", reason)):
        return "its reason is not a short text"
    return None


@dataclass(frozen=True)
class _Case:
    """Operands of a small problem, host side, and what must come out."""

    problem: GemmProblem
    a: Array
    b: Array
    c: Array
    bias: Array
    alpha: float
    beta: float
    exact: bool


def _found_wrong(
    queue: cl.CommandQueue, problem: GemmProblem, kernel: Kernel, config: TileConfig, device: DeviceInfo
) -> str | None:
    """Run the small problems; the first wrong answer in words, or None."""
    wanted = {x.program for x in kernel.launches(problem, config, device).launches}
    rng = np.random.default_rng(20)
    for small in _small_problems(problem, config):
        if kernel.supports(small, device) is not None or kernel.violations(small, config, device):
            continue
        work = kernel.launches(small, config, device)
        if not {x.program for x in work.launches} <= wanted:
            continue  # it would compile something that is not going to be used
        for exact, spread in _DATA.get(problem.precision, _DATA["highest"]):
            reason = _wrong(queue, _case(small, rng, exact, spread), work, device)
            if reason is not None:
                return f"wrong result in the self-check, {small}: {reason}"
    return None


def _small_problems(problem: GemmProblem, config: TileConfig) -> Iterator[GemmProblem]:
    """Problems that differ from *problem* in sizes only: past a tile by a few, exact tiles, tiny."""
    bm, bn, bk = (min(size, _LARGEST // 2) for size in (config.bm, config.bn, config.bk))
    empty = problem.k == 0
    sizes = [(bm + 3, bn + 5, 2 * bk + 1), (bm, bn, 2 * bk), (2 * bm, 2 * bn, 4 * bk), (3, 2, 5), (1, 1, 1)]
    for m, n, k in dict.fromkeys(sizes):
        yield _resized(problem, m, n, 0 if empty else k)
    yield _resized(problem, min(problem.m, _LARGEST), min(problem.n, _LARGEST), min(problem.k, _LARGEST))


def _resized(problem: GemmProblem, m: int, n: int, k: int) -> GemmProblem:
    """*problem* with other sizes, rows padded to its alignments and at least by one element."""

    def leading(length: int, align: int, name: str) -> int:
        per_line = max(1, align // dtypes.dtype_of(name).itemsize)
        return round_up(length + 1, per_line)

    lda = leading(m if problem.trans_a else k, problem.a_align, problem.a_type)
    ldb = leading(k if problem.trans_b else n, problem.b_align, problem.b_type)
    ldo = leading(n, problem.out_align, problem.out_type)
    batch = (2,) if problem.batch_shape else ()
    rows = (k if problem.trans_a else m, n if problem.trans_b else k)
    strides = ((rows[0] * lda,), (rows[1] * ldb,), (m * n,), (m * ldo,)) if batch else ((),) * 4
    return replace(
        problem,
        m=m,
        n=n,
        k=k,
        lda=lda,
        ldb=ldb,
        ldo=ldo,
        batch_shape=batch,
        batch_strides=strides,
        c_strides=(n, 1),
        bias_stride=1,
    )


def _numbers(rng: np.random.Generator, shape: tuple[int, ...], name: str, exact: bool) -> Array:
    dtype = dtypes.dtype_of(name)
    if dtype.kind in "biu" or exact:
        low = 0 if dtype.kind in "bu" else -3
        values: Array = rng.integers(low, 4, shape).astype(np.float64)
        if dtype.kind == "c":
            values = values + 1j * rng.integers(-3, 4, shape)
        return np.asarray(values.astype(dtype))
    values = rng.standard_normal(shape)
    if dtype.kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return np.asarray(values.astype(dtype))


# (small integers?, exponent that operands are spread around along K, if they are). Products of split
# operands take another way on such data, and a third where it is large besides.
_DATA: dict[str, tuple[tuple[bool, int | None], ...]] = {
    "highest": ((True, None), (False, None)),
    "high": ((True, None), (False, None), (False, 0), (False, 50)),
}


def _spread_along_k(a: Array, b: Array, p: GemmProblem, around: int, rng: np.random.Generator) -> None:
    """Scale what is multiplied at each k by 2^s in A and 2^-s in B, and both by 2^around."""
    s = rng.integers(-30, 31, p.k)
    if p.trans_a:
        a *= np.exp2(around + s).astype(a.dtype)[:, None]
    else:
        a[..., : p.k] *= np.exp2(around + s).astype(a.dtype)
    if p.trans_b:
        b[..., : p.k] *= np.exp2(around - s).astype(b.dtype)
    else:
        b *= np.exp2(around - s).astype(b.dtype)[:, None]


def _case(problem: GemmProblem, rng: np.random.Generator, exact: bool, spread: int | None = None) -> _Case:
    batch = problem.batch_shape
    a_rows = problem.k if problem.trans_a else problem.m
    b_rows = problem.n if problem.trans_b else problem.k
    a = _numbers(rng, (*batch, a_rows, problem.lda), problem.a_type, exact)
    b = _numbers(rng, (*batch, b_rows, problem.ldb), problem.b_type, exact)
    if spread is not None and problem.a_type == problem.b_type == "float32":
        _spread_along_k(a, b, problem, spread, rng)
    _poison(a[..., problem.m if problem.trans_a else problem.k :])
    _poison(b[..., problem.k if problem.trans_b else problem.n :])
    return _Case(
        problem,
        a=a,
        b=b,
        c=_numbers(rng, (*batch, problem.m, problem.n), problem.c_type, exact),
        bias=_numbers(rng, (problem.n if problem.bias == "row" else problem.m,), problem.bias_type, exact),
        alpha=2.0,
        beta=3.0 if problem.has_c else 0.0,
        exact=exact and problem.activation in ("none", "relu"),
    )


def _poison(padding: Array) -> None:
    """Make padding that is read show in the result, even where it is multiplied by zero."""
    padding[...] = 99 if padding.dtype.kind in "biu" else np.nan


def _operand(stored: Array, trans: bool, conj: bool, shape: tuple[int, int]) -> Array:
    """op(X) of a stored, padded stack."""
    x = np.swapaxes(stored, -1, -2) if trans else stored
    x = x[..., : shape[0], : shape[1]]
    return x.conj() if conj else x


def _expected(case: _Case) -> tuple[Array, Array]:
    """(the exact result before its rounding, what its rounding errors are measured against)."""
    p = case.problem
    wide: Any = np.int64 if p.acc_type.startswith("uint") else np.float64
    wide = np.complex128 if p.acc_type in dtypes.COMPLEX else wide
    a = _operand(case.a, p.trans_a, p.conj_a, (p.m, p.k)).astype(wide)
    b = _operand(case.b, p.trans_b, p.conj_b, (p.k, p.n)).astype(wide)
    alpha, beta = wide(case.alpha), wide(case.beta)
    value, scale = alpha * (a @ b), abs(alpha) * (abs(a) @ abs(b))
    if p.has_c:
        value, scale = value + beta * case.c.astype(wide), scale + abs(beta * case.c.astype(wide))
    if p.bias != "none":
        bias = case.bias.astype(wide)
        bias = bias if p.bias == "row" else bias[:, None]
        value, scale = value + bias, scale + abs(bias)
    return reference.activate(value, ACTIVATIONS.index(p.activation)), scale


def _wrong(queue: cl.CommandQueue, case: _Case, work: Work, device: DeviceInfo) -> str | None:
    """Run one case; what is wrong with its answer, or None."""
    p = case.problem
    flat, clean = _run(queue, case, work, device)
    if not clean:
        return "memory behind the result was written"
    got = flat.reshape(*p.batch_shape, p.m, p.ldo)
    if (got[..., p.n :].view(np.uint8) != _FILL).any():
        return "the padding between rows was written"
    expected, scale = _expected(case)
    return _compared(got[..., : p.n], expected, scale, case)


def _compared(got: Array, expected: Array, scale: Array, case: _Case) -> str | None:
    dtype = got.dtype
    if dtype.kind in "biu":
        right = np.array_equal(got, expected.astype(dtype) if dtype.kind != "b" else expected != 0)
        return None if right else "integer data did not come out exactly"
    wide = got.astype(np.complex128 if dtype.kind == "c" else np.float64)
    if case.exact and abs(expected).max(initial=0) < 2 / reference.unit_roundoff(dtype) / 2:
        return None if np.array_equal(wide, expected) else "integer data did not come out exactly"
    u_sum = reference.unit_roundoff(dtypes.dtype_of(case.problem.acc_type))
    bound = (
        reference.limit(case.problem.k) * (u_sum * (scale + 1))
        + _operands_error(case) * scale
        + 2 * reference.unit_roundoff(dtype) * (abs(expected) + 1e-30)
    )
    if not np.isfinite(wide).all() or (abs(wide - expected) > bound).any():
        return "random data came out outside the error bound"
    return None


def _operands_error(case: _Case) -> float:
    """What a product may be off because precision="medium" rounds both operands to TF32 first."""
    p = case.problem
    return 2.0**-10 if p.precision == "medium" and "float32" == p.a_type == p.b_type else 0.0


_FILL = 0xA5  # what the result's memory holds before; whatever a kernel does not write keeps it


def _run(queue: cl.CommandQueue, case: _Case, work: Work, device: DeviceInfo) -> tuple[Array, bool]:
    """(the result's memory with padding, whether the canary behind it is untouched)."""
    p = case.problem
    dtype = dtypes.dtype_of(p.out_type)
    gemm = Gemm(p, (p.m, p.n), dtype)
    binding = Binding(queue, device, Recipe(gemm, work))
    values: dict[str, Any] = {"alpha": case.alpha, "beta": case.beta}
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    used = ["a", "b", *(["c"] if p.has_c else []), *(["bias"] if p.bias != "none" else [])]
    for name in used:
        data = getattr(case, name)
        memory = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        values[name] = cl.Buffer(queue.context, flags, hostbuf=memory) if data.size else binding.nothing
        values[f"{name}_offset"] = 0
    size = p.batch * p.m * p.ldo
    memory = np.full((size + _CANARY) * dtype.itemsize, _FILL, np.uint8)
    values["out"] = cl.Buffer(
        queue.context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=memory
    )
    values["out_offset"] = 0
    binding.fill_unused(values)
    events = binding.enqueue(values, [])
    cl.enqueue_copy(queue, memory, values["out"], wait_for=events[-1:], is_blocking=True)
    clean = bool((memory[size * dtype.itemsize :] == _FILL).all())
    return memory[: size * dtype.itemsize].view(dtype), clean
