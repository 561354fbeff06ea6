"""`pyclmm multiply`: the product of two matrices in files, which need not fit the memory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
from click.exceptions import Exit

from ..errors import amount
from ..opencl.devices import device_info
from ..problem.settings import PRECISIONS
from ..streaming.checkpoint import Checkpoint
from ..streaming.streamed import StreamedMatmul, StreamProgress
from . import output, report
from .matrix_files import Files, MatrixPlace
from .result import Result
from .results import result_at
from .terminal import OnStage, Stage, duration, significant

_TRANS = click.Choice(["N", "T", "C"])
_GO_ON = "finished tiles are kept: run the command again to go on"


def _folder(ctx: click.Context, param: click.Parameter, value: str | None) -> Path | None:
    if value == "":  # pathlib takes it for the working directory
        raise click.BadParameter("'' names no folder")
    return None if value is None else Path(value)


def _devices(ctx: click.Context, param: click.Parameter, value: str | None) -> list[str] | str | None:
    return value if value in (None, "all") else output.names(ctx, param, value or "")


@click.command("multiply")
@click.argument("a")
@click.argument("b")
@click.argument("out")
@click.option("--memory-limit", help='The most memory of a device to use, such as "8 GiB".')
@click.option("--devices", callback=_devices, help='Several devices: names separated by commas, or "all".')
@output.device_option
@click.option("--checkpoint", type=click.Path(), callback=_folder, help="Keep finished tiles in this folder.")
@click.option("--overwrite", is_flag=True, help="Replace OUT if it is such a matrix.")
@click.option("--trans-a", type=_TRANS, default="N", help="T: A is stored transposed.")
@click.option("--trans-b", type=_TRANS, default="N", help="T: B is stored transposed.")
@click.option("--dtype", help="Element type of OUT [that of the product].")
@click.option("--precision", type=click.Choice(PRECISIONS), help="Of float32 and complex64 [highest].")
@click.option("--reproducible", is_flag=True, help="The same bits on every device.")
@click.option("--kernel", default="auto", help="Kernel that multiplies the tiles.")
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
            told.screen.lines(*str(plan.explain()).splitlines(), indent=16)
            return
        result.check(files, plan.dtype, overwrite)
    with Files(result.place) as files:
        operands = [files.operand(place) for place in places]
        _multiply(told, files, result, operands, plan, checkpoint, options)


def _multiply(
    told: output.Output,
    files: Files,
    result: Result,
    operands: list[Any],
    like: StreamedMatmul,
    checkpoint: Path | None,
    options: dict[str, Any],
) -> None:
    """Write the result, which is *like* that of a plan, and give it its place. An error or Ctrl-C leaves OUT
    as it was. What was written until then stays beside it if a run can go on with it.
    """

    seen: list[StreamProgress] = []
    try:
        resumed = _is_unfinished(checkpoint)
        target = result.go_on(files) if resumed else result.begin(files, like.shape, like.dtype)
        begun = time.perf_counter()
        plan = StreamedMatmul(*operands, out=target, checkpoint=checkpoint, **options)
        with told.measuring(bar=True) as on_stage:
            plan(*operands, out=target, progress=_listener(on_stage, seen))
            files.flush()
        seconds = time.perf_counter() - begun
        at = seen[-1] if seen else StreamProgress(0, 0, 0, 0.0, 0.0, seconds)
        found = {"out": result.place.text, "wall_s": seconds, "gflops": at.flops / seconds / 1e9}
        found |= {"tiles": at.tiles, "all_tiles": at.all_tiles, "tiles_of_an_earlier_run": at.resumed}
        if told.interrupted:
            told.save(_head(plan) | found)
            kept = _GO_ON if _is_unfinished(checkpoint) else f"{result.place.text} is as it was"
            output.say(f"Interrupted; {kept}")
            raise Exit(output.INTERRUPTED)
    except BaseException:
        result.give_up(keep=_is_unfinished(checkpoint))
        raise
    result.finish()
    told.save(_head(plan) | found)
    size, earlier = " x ".join(map(str, plan.shape)), f", {at.resumed} of them by an earlier run"
    told.screen.lines(
        f"{result.place.text}: {size} {plan.dtype} in {duration(seconds)}, "
        f"{significant(at.flops / seconds / 1e9)} GFLOP/s, {amount(at.all_tiles, 'tiles')}"
        f"{earlier * bool(at.resumed)}"
    )
    told.finish()


def _is_unfinished(checkpoint: Path | None) -> bool:
    return checkpoint is not None and Checkpoint.peek(checkpoint) is not None


def _listener(on_stage: OnStage, seen: list[StreamProgress]) -> Any:
    on_stage(Stage("starting"))

    def tell(at: StreamProgress) -> None:
        seen[:] = [at]
        rate = f"{significant(at.rate / 1e9)} GFLOP/s"
        on_stage(Stage(rate, at.tiles, at.all_tiles, at.seconds_left))

    return tell


def _head(plan: StreamedMatmul) -> dict[str, Any]:
    devices = [device_info(device) for device in plan.devices]
    own = {"devices": [report.device_json(device) for device in devices], "shape": list(plan.shape)}
    return report.header_json(None) | own | {"dtype": str(plan.dtype), "plan": dict(plan.explain().rows)}
