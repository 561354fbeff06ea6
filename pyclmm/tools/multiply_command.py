"""`pyclmm multiply`: the product of two matrices in files, which need not fit the memory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.exceptions import Exit

from ..opencl.devices import device_info
from ..problem.precision import PRECISIONS
from ..streaming.streamed import StreamedMatmul, StreamProgress, is_unfinished
from . import output, report
from .matrix_files import Files, MatrixPlace
from .results import Result, result_at
from .terminal import OnStage, Stage, duration, significant

_TRANS = click.Choice(["N", "T", "C"])
_GO_ON = "finished tiles are kept: run the command again to go on"


def _devices(ctx: click.Context, param: click.Parameter, value: str | None) -> list[str] | str | None:
    return value if value in (None, "all") else output.names(ctx, param, value or "")


@click.command("multiply")
@click.argument("a")
@click.argument("b")
@click.argument("out")
@click.option("--memory-limit", help='The most memory of a device to use, such as "8 GiB".')
@click.option("--devices", callback=_devices, help='Several devices: names separated by commas, or "all".')
@output.device_option
@click.option("--checkpoint", type=click.Path(path_type=Path), help="Keep finished tiles in this folder.")
@click.option("--overwrite", is_flag=True, help="Replace OUT if it is such a matrix.")
@click.option("--trans-a", type=_TRANS, default="N", show_default=True, help="T: A is stored transposed.")
@click.option("--trans-b", type=_TRANS, default="N", show_default=True, help="T: B is stored transposed.")
@click.option("--dtype", help="Element type of OUT [that of the product].")
@click.option("--precision", type=click.Choice(PRECISIONS), help="Of float32 and complex64 [highest].")
@click.option("--reproducible", is_flag=True, help="The same bits on every device.")
@click.option("--kernel", default="auto", show_default=True, help="Kernel that multiplies the tiles.")
@click.option("--explain", is_flag=True, help="Say how it would be computed; multiply nothing.")
@output.json_option()
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

    Each is FILE.npy, FILE.h5:DATASET, FOLDER.zarr or FOLDER.zarr:ARRAY. OUT is made when all of it is
    computed. With --checkpoint, a command that was interrupted goes on when it is run again.
    """
    places = [MatrixPlace.of(text) for text in (a, b)]
    result = result_at(MatrixPlace.of(out), checkpoint)
    options["reproducible"] = options["reproducible"] or None
    told = output.Output("multiply", json_target)
    with Files() as files:
        operands = [files.operand(place) for place in places]
        written = {"--checkpoint": checkpoint, "--json": told.file}
        result.refuse_overlaps(files, list(zip(places, operands, strict=True)), written)
        plan = StreamedMatmul(*operands, **options)
        if explain:
            told.save(_head(plan))
            for line in str(plan.explain()).splitlines():
                told.screen.line(line, indent=16)
            return
        result.check(files, plan.dtype, overwrite)
    with Files(result.place) as files:
        run = _Run(told, result, checkpoint, [files.operand(place) for place in places], options)
        run.compute(files, plan.shape, plan.dtype)
        run.tell()


class _Run:
    """One run, which may be the rest of an earlier one."""

    def __init__(
        self, told: output.Output, result: Result, checkpoint: Path | None, operands: list[Any], options: Any
    ) -> None:
        self._told, self._result, self._checkpoint = told, result, checkpoint
        self._operands, self._options = operands, options
        self._seen: list[StreamProgress] = []
        self._head: dict[str, Any] = {}
        self._seconds = 0.0

    @property
    def _is_unfinished(self) -> bool:
        """Whether finished tiles are kept, so that a run can go on."""
        return self._checkpoint is not None and is_unfinished(self._checkpoint)

    def compute(self, files: Files, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Write the result, and give it its place. An error or Ctrl-C leaves OUT as it was.

        What was written until then stays beside it if a run can go on with it.
        """
        result = self._result
        try:
            self._multiply(result.go_on(files) if self._is_unfinished else result.begin(files, shape, dtype))
        except BaseException:
            result.give_up(keep=self._is_unfinished)
            raise
        result.finish()

    def _multiply(self, target: Any) -> None:
        told, begun = self._told, time.perf_counter()
        plan = StreamedMatmul(*self._operands, out=target, checkpoint=self._checkpoint, **self._options)
        with told.measuring(bar=True) as on_stage:
            plan(*self._operands, out=target, progress=_listener(on_stage, self._seen))
        self._head, self._seconds = _head(plan), time.perf_counter() - begun
        if told.interrupted:
            self._save()
            output.say(
                f"Interrupted; {_GO_ON if self._is_unfinished else f'{self._result.place.text} is as it was'}"
            )
            raise Exit(output.INTERRUPTED)

    @property
    def _at(self) -> StreamProgress:
        return self._seen[-1] if self._seen else StreamProgress(0, 0, 0, 0.0, 0.0, self._seconds)

    def _save(self) -> None:
        at = self._at
        found = {
            "out": self._result.place.text,
            "wall_s": self._seconds,
            "gflops": at.flops / self._seconds / 1e9,
            "tiles": at.tiles,
            "all_tiles": at.all_tiles,
            "tiles_of_an_earlier_run": at.resumed,
        }
        self._told.save(self._head | found)

    def tell(self) -> None:
        """Tell how it went."""
        self._save()
        at, size = self._at, " x ".join(map(str, self._head["shape"]))
        earlier = f", {at.resumed} of them by an earlier run" if at.resumed else ""
        rate = significant(at.flops / self._seconds / 1e9)
        self._told.screen.line(
            f"{self._result.place.text}: {size} {self._head['dtype']} in {duration(self._seconds)}, "
            f"{rate} GFLOP/s, {at.all_tiles} tiles{earlier}"
        )
        self._told.finish()


def _listener(on_stage: OnStage, seen: list[StreamProgress]) -> Any:
    on_stage(Stage("starting"))

    def tell(at: StreamProgress) -> None:
        seen[:] = [at]
        rate = f"{significant(at.rate / 1e9)} GFLOP/s"
        on_stage(Stage(rate, at.tiles, at.all_tiles, at.seconds_left))

    return tell


def _head(plan: StreamedMatmul) -> dict[str, Any]:
    devices = [device_info(device) for device in plan.devices]
    return report.header_json(None) | {
        "devices": [report.device_json(device) for device in devices],
        "shape": list(plan.shape),
        "dtype": str(plan.dtype),
        "plan": dict(plan.explain().rows),
    }
