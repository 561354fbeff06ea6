"""Prints a wavefront's registers before instructions of a kernel's machine code.

    python -m tests.simulators.amd.follow gfx942 mfma bfloat16 --at v_mfma --registers "v[0:3] exec" --most 2
    python -m tests.simulators.amd.follow gfx942 mfma bfloat16 --at unit.cl:77 --registers "v[0:3] exec"
    python -m tests.simulators.amd.follow gfx1100 tiled float32 --listing

The product is a small one of integers. `make emulator` fetches what it needs.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from pyclmm.checks.drawn import Drawn
from pyclmm.checks.layouts import Decks, resized
from pyclmm.kernels import kernel_named
from tests.conformance.amd_products import DEVICES, of_type, run

from .emulator import Emulator, demand_tools
from .program import Line, operand
from .waves import Waves


def told(line: Line, g: Any = None, wave: int = 0, registers: str = "") -> Iterator[str]:
    """An instruction, and *registers* as hexadecimal words: of a vector register one for each lane."""
    yield f"{line.address:#x}: {line.text}".ljust(80) + line.source
    for text in registers.split():
        op, place = operand(text), int(np.flatnonzero(g.index == wave)[0])
        if op.kind == "constant":
            raise click.BadParameter(f"{text} is no register")
        for number in range(op.place, op.place + op.count):
            words = (g.vector if op.kind == "v" else g.scalar)[number, place]
            yield f"  {text}, register {number}: {' '.join(f'{word:08x}' for word in words.tolist())}"


@click.command(help=__doc__)
@click.argument("processor", type=click.Choice(sorted(DEVICES)))
@click.argument("kernel")
@click.argument("dtype")
@click.option("--at", default="s_endpgm", help="Before those with this in their text, or of this line.")
@click.option("--registers", default="v0 exec", help="As the machine code names them.")
@click.option("--wave", default=0, help="Which wavefront, over all work-groups.")
@click.option("--most", default=4, help="How often at most.")
@click.option("--shape", nargs=3, default=(37, 45, 51), help="M, N, K.")
@click.option("--listing", is_flag=True, help="All instructions, in the order of their addresses.")
def main(processor: str, kernel: str, dtype: str, at: str, registers: str, **asked: Any) -> None:
    demand_tools()
    device, family, shown = DEVICES[processor], kernel_named(kernel), 0

    def watch(line: Line, g: Waves) -> None:
        nonlocal shown
        if (at in line.text or at == line.source) and asked["wave"] in g.index and shown < asked["most"]:
            shown += 1
            click.echo("\n".join(told(line, g, asked["wave"], registers)))

    given = resized(of_type(dtype), *asked["shape"])
    if reason := family.refuses(given, device):
        raise click.UsageError(reason)
    with tempfile.TemporaryDirectory() as folder:
        emulator = Emulator(processor, Path(folder), watch=watch)
        if asked["listing"]:
            work = family.launches(given, family.configs(given, device)[0], device)
            click.echo("\n".join("".join(told(line)) for line in emulator.program(work.launches[0]).lines))
            return
        decks = Decks(np.random.default_rng(0))
        wrong = run(emulator, device, family, None, given, Drawn.INTEGERS, decks)
    click.echo(f"the product is {'right' if wrong is None else wrong}")


if __name__ == "__main__":
    main()
