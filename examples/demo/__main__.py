"""Shows in 30 lines that products are right, how they become fast, and what that is good for.

    python -m examples.demo [--all] [--device DEVICE] [--data FOLDER]

--all multiplies five real products by every kernel instead, and prints a table of each. DEVICE is a number or
a name that `pyclmm info` lists; FOLDER holds MNIST's test files (t10k-*.gz), whose digits are used in place
of drawn pictures. Exit codes: 0: success; 1: wrong result; 2: invalid arguments.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pyclmm.errors import PyclmmError
from pyclmm.opencl.devices import find_device
from pyclmm.opencl.queues import new_queue
from pyclmm.tools.terminal import Screen

from . import tables, tour


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; *arguments*: those after the module's name, if not the process's own."""
    parser = argparse.ArgumentParser("python -m examples.demo", description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="tables of five products by every kernel")
    parser.add_argument("--device", help="a number or a name, as `pyclmm info` lists them")
    parser.add_argument("--data", type=Path, help="a folder with MNIST's test files (t10k-*.gz)")
    given = parser.parse_args(arguments)
    try:
        queue = new_queue(find_device(given.device), profiling=True)
        if given.all:
            return int(any(rung.wrong for rung in tables.run(Screen(), queue, given.data)))
        return int(not tour.run(Screen(), queue, given.data, given.device))
    except PyclmmError as error:
        parser.exit(2, f"Error: {error}\n")


if __name__ == "__main__":
    sys.exit(main())
