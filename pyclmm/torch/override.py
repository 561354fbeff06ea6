"""installed: aten's mm, addmm, bmm and baddbmm by pyclmm, in a block.

The kernels of these four operators for CUDA are replaced while a block is open. A matmul, a linear layer, an
einsum and the backward of all are made of them.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ..opencl.queues import at_release
from ..problem.literals import Precision, Verify
from ..problem.settings import block, chosen, is_reproducible, is_verified
from ..untraced import untraced
from .estimates import TYPES, Asked, Decision, decide
from .products import product

_log = logging.getLogger("pyclmm.torch")
_MOST = 4096  # decisions that are kept for each way of asking
_decisions: dict[Asked, dict[Any, Decision]] = {}  # by operator and layouts
at_release(_decisions.clear)

Multiply = Callable[..., Tensor]


class _TorchBlock:
    """An open block: what it asks, and what was decided for all blocks that ask the same."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.decided = _decisions.setdefault(asked, {})
        self.ways: dict[str, Any] = {x: getattr(asked, x) for x in ("precision", "reproducible", "verify")}

    @untraced
    def takes(self, name: str, a: Tensor, b: Tensor, c: Tensor | None, form: str) -> bool:
        """Whether pyclmm computes this product. *form*: "bias" or "c", what c is there; or "none"."""
        key = (
            *(name, form, a.dtype, b.dtype, a.device, b.device, a.shape, a.stride(), b.shape, b.stride()),
            *(() if c is None else (c.shape, c.stride(), c.dtype, c.device)),
        )
        found = self.decided.get(key)
        return (found or self._decided(key, name, a, b, c, form)).ours

    def _decided(self, key: Any, name: str, a: Tensor, b: Tensor, c: Tensor | None, form: str) -> Decision:
        whole = _whole(c, a, b) if c is not None and form == "c" else None
        found = decide(a, b, whole, c if form == "bias" else None, self.asked)
        if len(self.decided) >= _MOST:
            self.decided.clear()
        self.decided[key] = found
        shapes = " by ".join(" x ".join(map(str, x.shape)) for x in (a, b))
        asked = "reproducible" if self.asked.reproducible else f"precision {self.asked.precision!r}"
        who = "pyclmm" if found.ours else "PyTorch"
        _log.info(
            "%s of %s, %s on %s, %s: %s (%s)", name, shapes, a.dtype, a.device, asked, who, found.reason
        )
        return found


class _Override:
    """PyTorch's kernels for one dispatch key, replaced while a block is open."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.lock = threading.RLock()
        self.open: list[_TorchBlock] = []  # of all threads, in the order in which they were entered
        self.block: _TorchBlock | None = None  # the last of them
        self.library: Any = None  # PyTorch's kernels come back when it is freed

    def enter(self, block: _TorchBlock) -> None:
        with self.lock:
            if not self.open:
                self.library = self._registered()
            self.open.append(block)
            self.block = block

    def leave(self, block: _TorchBlock) -> None:
        with self.lock:
            self.open.remove(block)
            self.block = self.open[-1] if self.open else None
            if not self.open:
                self.library = None

    def _registered(self) -> Any:
        library = torch.library.Library("aten", "IMPL")
        if self.key == "CUDA" and not torch.backends.cuda.is_built():
            return library
        makers = {"mm": self._two, "bmm": self._two, "addmm": self._three, "baddbmm": self._three}
        with warnings.catch_warnings():  # older versions warn of what is meant here
            warnings.filterwarnings("ignore", "Warning only once for all operators", UserWarning)
            for name, made in makers.items():
                library.impl(name, made(name, _own_kernel(name, self.key)), self.key, with_keyset=True)
        return library

    def _two(self, name: str, own: Multiply) -> Multiply:
        def multiply(keys: Any, a: Tensor, b: Tensor) -> Tensor:
            block = self.block
            if block is None or a.dtype not in TYPES or not block.takes(name, a, b, None, "none"):
                return own(keys, a, b)
            return product(a, b, **block.ways)

        return multiply

    def _three(self, name: str, own: Multiply) -> Multiply:
        def multiply(keys: Any, c: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
            block = self.block
            form = _form(c, b, beta)
            if block is None or a.dtype not in TYPES or not block.takes(name, a, b, c, form):
                return own(keys, c, a, b, beta=beta, alpha=alpha)
            if form == "c":
                return product(a, b, _whole(c, a, b), alpha=alpha, beta=beta, **block.ways)
            return product(a, b, bias=c if form == "bias" else None, alpha=alpha, **block.ways)

        return multiply


def _form(c: Tensor, b: Tensor, beta: complex) -> str:
    """What c is in a product: the bias of a linear layer, or c, repeated to fit."""
    return "bias" if beta == 1 and c.shape == b.shape[-1:] else "c"


def _whole(c: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """c, repeated to the shape of the result. Raises RuntimeError, as PyTorch does, if it does not fit."""
    return c.expand(*a.shape[:-1], b.shape[-1])


def _own_kernel(name: str, key: str) -> Multiply:
    """PyTorch's kernel of the operator for *key*, as it is before it is replaced."""
    if hasattr(torch.library, "get_kernel"):
        kernel: Multiply = torch.library.get_kernel(f"aten::{name}", key).call_boxed
        return kernel
    into = getattr(torch.ops.aten, name).out  # before PyTorch 2.10: the kernel that is not replaced

    def multiply(keys: Any, *operands: Tensor, **scalars: Any) -> Tensor:
        result: Tensor = into(*operands, out=operands[0].new_empty(0), **scalars)
        return result

    return multiply


def _has_tf32() -> bool:
    """Whether PyTorch's own float32 products on CUDA may be of TF32, by its newer or its older setting."""
    setting = torch.backends.cuda.matmul
    if hasattr(setting, "fp32_precision"):  # where that was set, to read the older one raises
        return bool(setting.fp32_precision == "tf32")
    return bool(setting.allow_tf32)


_overrides: dict[str, _Override] = {}
_lock = threading.RLock()


@block
def installed(
    precision: Precision | None = None,
    reproducible: bool | None = None,
    *,
    verify: Verify | None = None,
    _key: str = "CUDA",
) -> Iterator[None]:
    """In this block PyTorch's products of CUDA tensors are pyclmm's where that is faster, or is demanded.

    Parameters
    ----------
    precision
        As for :func:`pyclmm.matmul`.
    reproducible
        True: every product of the block is pyclmm's and has the same bits on every device.
    verify
        As for :func:`pyclmm.matmul`. True or "repair": every product of the block is pyclmm's.

    That holds for aten's ``mm``, ``addmm``, ``bmm`` and ``baddbmm`` of float32, float64, complex64 and
    complex128, and so for matmul, ``@``, linear layers, einsum, and the backward of all. PyTorch's own
    kernels compute the rest, as they do outside: other types and operators, ``out=`` and in-place forms, and
    products for which the estimate of pyclmm is not clearly below that of cuBLAS. Where PyTorch is set to
    TF32 when the block begins, "highest" and "high" demand pyclmm for float32. The logger ``pyclmm.torch``
    says at INFO, once for each shape, which it was and why.

    The block counts for all threads of the process, because PyTorch runs backward in threads of its own. Of
    several open blocks the one that was entered last counts. The end of the last one, by an exception too,
    brings PyTorch's kernels back. Code that torch.compile has compiled with Inductor calls forms with
    ``out=``: write :func:`matmul` there.

    Raises ArgumentError (a ValueError) for an unknown precision, DTypeError (a TypeError) for what is no
    string or no bool; in the block products raise as :func:`pyclmm.matmul` does.
    """
    ways = (chosen(precision), is_reproducible(reproducible))
    block = _TorchBlock(Asked(*ways, _key == "CUDA" and _has_tf32(), is_verified(verify)))
    with _lock:
        override = _overrides.setdefault(_key, _Override(_key))
    override.enter(block)
    try:
        yield
    finally:
        override.leave(block)
