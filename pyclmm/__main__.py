"""``python -m pyclmm``: the command line."""

from .tools.cli import main

main(prog_name="pyclmm")
