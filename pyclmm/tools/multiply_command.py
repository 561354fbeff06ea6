"""`pyclmm multiply`: the product of two matrices in files, which need not fit the memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.exceptions import Exit

from ..opencl.devices import device_info
from ..problem.precision import PRECISIONS
from ..streaming.streamed import StreamedMatmul, StreamProgress, is_unfinished
from . import report
from .endings import INTERRUPTED, Failure, say
from .matrix_files import KINDS, Files, Place
from .options import device_option, json_option, names
from .output import Output
from .steps import OnStep, Step

_TRANS = click.Choice(["N", "T", "C"])
_GO_ON = "finished tiles are kept: run the command again to go on"


def _devices(ctx: click.Context, param: click.Parameter, value: str | None) -> list[str] | str | None:
    return value if value in (None, "all") else names(ctx, param, value or "")


@click.command("multiply")
@click.argument("a")
@click.argument("b")
@click.argument("out")
@click.option("--memory-limit", help='The most memory of a device to use, such as "8 GiB".')
@click.option("--devices", callback=_devices, help='Several devices: names separated by commas, or "all".')
@device_option
@click.option("--checkpoint", type=click.Path(path_type=Path), help="Keep finished tiles in this folder.")
@click.option("--overwrite", is_flag=True, help="Write OUT anew if it is there.")
@click.option("--trans-a", type=_TRANS, default="N", show_default=True, help="T: A is stored transposed.")
@click.option("--trans-b", type=_TRANS, default="N", show_default=True, help="T: B is stored transposed.")
@click.option("--dtype", help="Element type of OUT [that of the product].")
@click.option("--precision", type=click.Choice(PRECISIONS), help="Of float32 and complex64 [highest].")
@click.option("--reproducible", is_flag=True, help="The same bits on every device.")
@click.option("--kernel", default="auto", show_default=True, help="Kernel that multiplies the tiles.")
@click.option("--explain", is_flag=True, help="Say how it would be computed; multiply nothing.")
@json_option()
def multiply_command(
    a: str,
    b: str,
    out: str,
    checkpoint: Path | None,
    overwrite: bool,
    explain: bool,
    json_target: str | None,
    **options: Any,
) -> None:
    """Multiply matrices in files, in tiles: OUT = A x B. None of them has to fit the memory.

    Each is FILE.npy, FILE.h5:DATASET, FOLDER.zarr or FOLDER.zarr:ARRAY. OUT is made. With --checkpoint, a
    command that was interrupted goes on when it is run again; without, Ctrl-C removes OUT.
    """
    places = [Place.of(text) for text in (a, b, out)]
    result = places[2]
    if any(result.is_same(place) for place in places[:2]):
        raise Failure(f"{out}: OUT is an operand too; name another, of {KINDS}")
    options["reproducible"] = options["reproducible"] or None
    told = Output("multiply", json_target)
    with Files(result) as files:
        operands = [files.operand(place) for place in places[:2]]
        plan = StreamedMatmul(*operands, **options)
        if explain:
            told.save(_head(plan))
            for line in str(plan.explain()).splitlines():
                told.screen.line(line, indent=16)
            return
        run = _Run(told, files, checkpoint)
        with run.target(plan, overwrite) as target:
            run.compute(StreamedMatmul(*operands, out=target, checkpoint=checkpoint, **options))


class _Run:
    """One run, which may be the rest of an earlier one."""

    def __init__(self, told: Output, files: Files, checkpoint: Path | None) -> None:
        self._told, self._files, self._checkpoint = told, files, checkpoint

    @property
    def _is_unfinished(self) -> bool:
        """Whether finished tiles are kept, so that a run can go on."""
        return self._checkpoint is not None and is_unfinished(self._checkpoint)

    @contextmanager
    def target(self, plan: StreamedMatmul, overwrite: bool) -> Iterator[Any]:
        """What gets the result in this block: new, or that of an unfinished run.

        A new one is removed if an error or Ctrl-C ends the block, unless a run can go on with it.
        """
        text, unfinished, there = self._files.result.text, self._is_unfinished, self._files.has_result()
        if unfinished and overwrite:
            raise Failure(
                f"{self._checkpoint} holds an unfinished run: leave out --overwrite, or delete the folder"
            )
        if unfinished and not there:
            raise Failure(
                f"{text} is not there, but {self._checkpoint} holds finished tiles of it; delete the folder"
            )
        if there and not unfinished and not overwrite:
            raise Failure(f"{text} is there; name another, or pass --overwrite")
        files = self._files
        try:
            yield files.existing_result() if unfinished else files.new_result(plan.shape, plan.dtype)
        except BaseException:
            if not self._is_unfinished:
                files.remove_result()
            raise

    def compute(self, plan: StreamedMatmul) -> None:
        """Compute *plan*, and tell how it went."""
        told, place = self._told, self._files.result
        seen: list[StreamProgress] = []
        begun = time.perf_counter()
        with told.measuring(bar=True) as on_step:
            plan(progress=_listener(on_step, seen))
        seconds = time.perf_counter() - begun
        told.save(_head(plan) | _result(place, seconds, seen))
        if told.interrupted:
            say(f"Interrupted; {_GO_ON if self._is_unfinished else f'{place.text} is removed'}")
            raise Exit(INTERRUPTED)
        told.screen.line(_line(place, plan, seconds, seen))
        told.finish()


def _listener(on_step: OnStep, seen: list[StreamProgress]) -> Any:
    on_step(Step("starting"))

    def tell(at: StreamProgress) -> None:
        seen[:] = [at]
        rate = f"{report.significant(at.rate / 1e9)} GFLOP/s"
        on_step(Step(rate, at.tiles, at.all_tiles, at.seconds_left))

    return tell


def _head(plan: StreamedMatmul) -> dict[str, Any]:
    devices = [device_info(device) for device in plan.devices]
    return report.header_json(None) | {
        "devices": [report.device_json(device) for device in devices],
        "shape": list(plan.shape),
        "dtype": str(plan.dtype),
        "plan": dict(plan.explain().rows),
    }


def _result(place: Place, seconds: float, seen: list[StreamProgress]) -> dict[str, Any]:
    at = seen[-1] if seen else StreamProgress(0, 0, 0, 0.0, 0.0, seconds)
    return {
        "out": place.text,
        "wall_s": seconds,
        "gflops": at.flops / seconds / 1e9,
        "tiles": at.tiles,
        "all_tiles": at.all_tiles,
        "tiles_of_an_earlier_run": at.resumed,
    }


def _line(place: Place, plan: StreamedMatmul, seconds: float, seen: list[StreamProgress]) -> str:
    size = " x ".join(map(str, plan.shape))
    text = f"{place.text}: {size} {plan.dtype} in {report.duration(seconds)}"
    if not seen:
        return text
    earlier = f", {seen[-1].resumed} of them by an earlier run" if seen[-1].resumed else ""
    rate = report.significant(seen[-1].flops / seconds / 1e9)
    return f"{text}, {rate} GFLOP/s, {seen[-1].all_tiles} tiles{earlier}"
