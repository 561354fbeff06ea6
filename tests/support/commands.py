"""pyclmm's commands in this process."""

from typing import Any

from click.testing import CliRunner

from pyclmm.tools import cli


def command(*arguments: object, status: int | None = 0) -> Any:
    """What the command line says to these arguments. It ends with that exit status; None: with any."""
    shown = CliRunner().invoke(cli.main, [*map(str, arguments)])
    assert status in (None, shown.exit_code), f"{shown.output}{shown.exception!r}"
    return shown
