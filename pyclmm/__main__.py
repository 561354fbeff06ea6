"""``python -m pyclmm``: the command line."""

from .cli import main

main(prog_name="pyclmm")
