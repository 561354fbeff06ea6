"""StreamedMatmul: a product of operands that need not fit a device, planned in tiles."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import DTypeLike

from ..byte_sizes import parse_limit
from ..errors import ArgumentError, DTypeError, brief
from ..execution import kinds
from ..execution.casts import cast_into, errors_of_caller
from ..execution.operands import check_writeable, named
from ..execution.options import Options, WithOptions, beta_of, plain_numbers
from ..opencl import forks
from ..opencl.devices import DeviceChoice
from ..opencl.mappings import overlaps_itself
from ..problem.dtypes import check_scalars
from ..problem.literals import Activation, Casting, Precision, Trans, Verify
from ..raising import guarded
from ..repr_tables import aligned
from ..selection.explanation import Explanation
from ..selection.select import KernelChoice
from . import machines, tiles
from .checkpoint import Checkpoint
from .job import Job
from .journal import unusable
from .operands import Given, Shapes, in_dtype
from .run import Report, StreamProgress, run
from .storage import sink, source
from .tiles import Blocking, Region, Tile, region_of

__all__ = ["StreamExplanation", "StreamProgress", "StreamedMatmul"]


@dataclass(frozen=True, repr=False)
class StreamExplanation:
    """How a streamed product is computed; ``str()`` and ``repr()`` of it are for people.

    ``rows``: (what, text) about tiles, order, bytes and times. ``tile`` explains the kernel of one chunk of a
    whole tile on the fastest device; None if nothing is multiplied.
    """

    rows: tuple[tuple[str, str], ...]
    tile: Explanation | None

    def __str__(self) -> str:
        tile = [] if self.tile is None else ["", "one chunk of a tile:", str(self.tile)]
        return "\n".join([*aligned(self.rows), *tile])

    __repr__ = __str__


class StreamedMatmul(WithOptions):
    """``act(alpha op(a) op(b) + beta c + bias)`` in tiles, for operands that need not fit a device.

    Operands and *out* are NumPy arrays, memory-mapped files (``np.memmap``), HDF5 and Zarr datasets, or
    anything with a shape, a NumPy dtype and slicing. Other arguments are those of :func:`pyclmm.gemm`, and:

    memory_limit
        The most bytes of a device's memory to use: a number, or a text such as "8 GiB". Default: three
        quarters of the memory of a device that has its own, half of the host's for any other.
    devices
        A list of devices (each as for ``device=``), or "all": every GPU and accelerator and one CPU. Each
        gets tiles as it finishes them. A device that is lost gives its tiles to the others, with a
        DeviceWarning.
    checkpoint
        A folder. Finished tiles are kept there by digest of the problem; if *out* is a file or dataset, only
        their digests. A later run with the same arguments verifies them, computes the rest, and empties the
        folder when the product is complete. Tiles that *out* has lost are computed again, with a
        CheckpointWarning.

    ``plan(a, b)`` computes the product of operands like those that the plan was made for, as that of a
    :class:`pyclmm.Matmul` does, and keeps none of them. :meth:`explain` tells the tiles, their order, the
    bytes that are moved, and whether arithmetic hides the transfers (docs/scale.md).

    Raises what :func:`pyclmm.gemm` raises, StorageError for a file or dataset that cannot be read or written,
    and CheckpointError for a folder that belongs to another product, *out* or user, or is damaged.
    """

    @guarded("StreamedMatmul")
    def __init__(
        self,
        a: Any,
        b: Any,
        c: Any = None,
        /,
        *,
        alpha: complex = 1.0,
        beta: complex | None = None,
        trans_a: Trans = "N",
        trans_b: Trans = "N",
        bias: Any = None,
        activation: Activation | None = None,
        out: Any = None,
        memory_limit: int | str | None = None,
        devices: Sequence[DeviceChoice] | str | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        queue: cl.CommandQueue | None = None,
        device: DeviceChoice | None = None,
        kernel: KernelChoice = "auto",
        precision: Precision | None = None,
        reproducible: bool | None = None,
        verify: Verify | None = None,
        dtype: DTypeLike | None = None,
        casting: Casting = "same_kind",
    ) -> None:
        forks.check_process()
        limit = parse_limit("memory_limit", memory_limit)
        alpha, beta = plain_numbers(alpha, beta_of(beta, c))
        options = Options(
            trans_a=trans_a, trans_b=trans_b, activation=activation, kernel=kernel, precision=precision,
            reproducible=reproducible, casting=casting, verify=verify,
            dtype=kinds.computed_dtype({"a": a, "b": b}) if dtype is None else dtype,
        )  # fmt: skip
        places = machines.places(devices, queue, device)
        given = Given.of(a, b, c, bias, out, beta, options)
        self._layouts, self._shapes = given.layouts, Shapes.of(given, alpha, beta)
        self._places = machines.able(places, self._shapes, devices)
        check_scalars(self._shapes.gemm.dtype, (alpha, beta))
        self._options, self._alpha, self._beta = options, alpha, beta
        self._has_same_bits = self._shapes.gemm.problem.has_same_bits
        self._checkpoint = None if checkpoint is None else _path(checkpoint)
        self._check_overlaps(given)
        self._fit = machines.Fit(self._shapes, options, self._places, limit)
        begun = None if self._checkpoint is None else Checkpoint.peek(self._checkpoint)
        self._blocking = self._fit.blocking(None if begun is None else begun.get("blocking"))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the product."""
        return tuple(self._shapes.gemm.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the product where no ``out`` has another."""
        return self._shapes.gemm.dtype

    @property
    def devices(self) -> tuple[cl.Device, ...]:
        """The devices that compute it."""
        return tuple(device for device, _ in self._places)

    @property
    def blocking(self) -> Blocking:
        """The sizes of tiles and chunks."""
        return self._blocking

    def explain(self) -> StreamExplanation:
        """The tiles, their order, the bytes that are moved, and the predicted times."""
        return StreamExplanation(tuple(self._fit.rows(self._blocking)), self._fit.kernel(self._blocking))

    def __repr__(self) -> str:
        how = dict(self._fit.rows(self._blocking))
        return f"<StreamedMatmul {self.shape} {self.dtype}: tiles {how['tiles']}; on {how['devices']}>"

    @guarded("StreamedMatmul")
    def __call__(
        self,
        a: Any,
        b: Any,
        c: Any = None,
        /,
        *,
        bias: Any = None,
        out: Any = None,
        progress: Report | None = None,
    ) -> Any:
        """Compute the product of operands with the planned shapes and dtypes into *out*, or a new array.

        Returns what it is in. Raises ArgumentError if the operands differ from the planned ones.

        *progress* is called in this thread with a :class:`StreamProgress` after each tile, and once if an
        earlier run has finished all. What it raises, and Ctrl-C, ends the run; nothing then uses the
        operands.
        """
        if progress is not None and not callable(progress):
            raise ArgumentError(f"progress is {brief(progress)}; pass a function that takes a StreamProgress")
        given = Given.of(a, b, c, bias, out, self._beta, self._options)
        self._check_fits(given)
        self._check_overlaps(given)
        if given.out is not None and isinstance(given.out, np.ndarray):
            check_writeable(given.out)
        target = given.out
        if target is None or (isinstance(target, np.ndarray) and self._needs_copy(given)):
            target = np.empty(self.shape, self.dtype)
        if 0 not in self._shapes.gemm.shape:
            self._compute(given, target, progress)
        if given.out is None and not target.ndim:
            target = target[()]
        return kinds.returned(named(a, b, c, bias, out), target)

    def _check_fits(self, given: Given) -> None:
        """Raise ArgumentError if the plan was made for other operands than *given*."""
        for name in dict.fromkeys([*self._layouts, *given.layouts]):
            planned, now = self._layouts.get(name), given.layouts.get(name)
            if planned != now:
                its, wanted = (
                    "none" if x is None else f"shape {x.shape} and dtype {x.dtype}" for x in (now, planned)
                )
                raise ArgumentError(
                    f"{name} is not what the plan was made for: it has {its}, the plan {wanted}; "
                    "make a plan for it"
                )
        if Shapes.of(given, self._alpha, self._beta) != self._shapes:
            raise ArgumentError(
                "the operands lie otherwise than those that the plan was made for (in files or in memory, "
                "with other strides); make a plan for them"
            )

    def _check_overlaps(self, given: Given) -> None:
        """Raise ArgumentError for an *out* whose tiles would change what is read later."""
        if given.out is not None and not isinstance(given.out, np.ndarray) and given.is_in_place:
            raise ArgumentError("out is a dataset that is also an operand; pass another out")
        if self._checkpoint is not None and (given.is_in_place or given.updates_c):
            raise ArgumentError(
                "checkpoint is given, but out overlaps an operand, which a second run would find changed; "
                "pass another out"
            )

    def _needs_copy(self, given: Given) -> bool:
        """Whether the result is computed elsewhere first: *out* overlaps an operand or itself, or the rule
        for casts is not that of tiles."""
        overlaps = given.is_in_place or overlaps_itself(given.out)
        return overlaps or not np.can_cast(self.dtype, given.out.dtype, "same_kind")

    def _compute(self, given: Given, target: Any, progress: Report | None) -> None:
        job, folder = self._job(given, target), self._checkpoint
        # Before the tiles: small ones of another product may be too many of this one for a list.
        count = tiles.count(job.product, job.blocking)
        problem = {} if folder is None else self._problem(given)
        kept = None if folder is None else Checkpoint.open(folder, problem, count, job.sink)
        with nullcontext() if kept is None else kept:
            todo = every = tiles.tiles(job.product, job.blocking)
            if kept is not None:
                todo = _restored(job, every, kept)
            if todo:
                seconds = self._fit.tile_seconds(job.blocking)
                run(job, self._places, seconds, todo, count, kept, progress)
            elif progress is not None:
                progress(StreamProgress(count, count, count, 0.0, 0.0, 0.0))
                forks.check_process()  # what it has forked would end the parent's checkpoint
            if given.out is not None and target is not given.out:
                out = source("out", given.matrices(given.out))  # its file may have been cut since
                cast_into(given.out, target, self._options.casting)
                if kept is not None:  # whose folder has the only other copy
                    out.flush()

    def _job(self, given: Given, target: Any) -> Job:
        fit, at, dtype = self._fit, self._blocking, self.dtype
        product = fit.product(at)
        out = sink(given.matrices(target), (*product.stack, product.m, product.n), dtype, given.lock)
        scalars = self._alpha, self._beta
        read, options = given.operands, fit.options(at)
        if given.updates_c and target is given.out:  # one storage, whose reads wait for its writes
            read = {**read, "c": out}
        # A sum in a wider type is one of operands in the result's, as without tiles.
        acc_dtype = fit.acc_dtype(at)
        narrow = None if acc_dtype == dtype else dtype
        read, bias = {name: in_dtype(x, narrow) for name, x in read.items()}, given.bias_values(narrow)
        return Job(product, at, read, bias, out, options, *scalars, dtype, acc_dtype)

    def _problem(self, given: Given) -> dict[str, Any]:
        """What a checkpoint is kept by."""
        options = self._options
        named = ("trans_a", "trans_b", "precision", "reproducible", "casting")
        return {
            **{name: getattr(options, name) for name in named}, "kernel": str(options.kernel),
            "dtype": str(self.dtype), "shape": list(self.shape), "activation": options.activation or "none",
            "alpha": _text(self._alpha), "beta": _text(self._beta),
            "operands": given.fingerprints(), "blocking": asdict(self._blocking),
        }  # fmt: skip


def _text(number: complex) -> str:
    """The same for all numbers that are equal. Python prints no long integer but in base 16."""
    with suppress(OverflowError):
        if (plain := float(number.real)) == number:
            return str(plain)
    return hex(number) if isinstance(number, int) else str(number)


def _path(checkpoint: Any) -> Path:
    """The path of a checkpoint's folder. Raises DTypeError, ArgumentError and CheckpointError."""
    if not isinstance(checkpoint, str | bytes | os.PathLike):
        raise DTypeError(f"checkpoint is {brief(checkpoint)}; pass the path of a folder")
    path = os.fsdecode(checkpoint)
    try:
        is_path = bool(path) and b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:  # half of a pair of UTF-16
        is_path = False
    if not is_path:
        raise ArgumentError(f"checkpoint is {brief(path)}; pass the path of a folder")
    with unusable(Path(path), "cannot be reached"):
        return Path(path).absolute()


def _restored(job: Job, every: Sequence[Tile], kept: Checkpoint) -> list[Tile]:
    """The tiles that are left; those in ``out`` are verified, those that the checkpoint has are written."""

    def region(number: int) -> Region:
        return region_of(every[number], job.product.stack)

    kept.verify(region)
    with np.errstate(**errors_of_caller()):
        for number, content in kept.blocks():
            where = region(number)
            job.sink.write(np.frombuffer(content, job.dtype).reshape(where.shape), where)
    finished = kept.finished
    return [tile for tile in every if tile.number not in finished]
