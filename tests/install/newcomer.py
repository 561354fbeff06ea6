"""A newcomer's first hour: what the README and the first products show, in a fresh environment.

    python -m tests.install.newcomer [--no-extras] [--no-pocl] [--no-newest] [--no-dockerfile]

Commands and snippets, from the clone's root, its parent and elsewhere: in the first two Python finds folders
named like the package.
Then commands that no page's block has, and each extra alone beside the README's install, put to its use.
Then PoCL beside Intel's runtime, the README with the newest Python, the steps of the Dockerfile. `make demo`
and `make test` are CI's own.
"""

from __future__ import annotations

import argparse
import configparser
import shlex
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.support import pages

from . import clean, dockerfile, newest
from .clean import ROOT, Place

README = ROOT / "README.md"
USE = ROOT / "docs" / "howto" / "use.md"
OTHERS = ("make", "python3", ".")  # commands that CI follows by themselves; clean.make makes the environment

# Commands that no page's block has, for the README's install.
USES = (
    "selftest",
    "road --size 64",
    "tune --shapes 64x64x64 --layout NN --budget 10s",
    "multiply a.npy b.npy c.npy --overwrite",
)
MATRICES = "import numpy as np; [np.save(name, np.ones((64, 64), np.float32)) for name in ('a.npy', 'b.npy')]"
# What an extra is for: a command, or a program that prints True.
USES_OF = {
    "bfloat16": """
import ml_dtypes, numpy as np, pyclmm
x = np.ones((64, 64), ml_dtypes.bfloat16)
print(bool((pyclmm.matmul(x, x) == 64).all()))""",
    "hdf5": "pyclmm multiply a.npy b.npy new.h5:c",
    "zarr": "pyclmm multiply a.npy b.npy c.zarr",
    "dask": """
import dask.array as da, numpy as np, pyclmm.dask
x = da.ones((64, 64), chunks=32, dtype=np.float32)
print(bool((pyclmm.dask.matmul(x, x).compute() == 64).all()))""",
    "plot": "pyclmm road --size 64 --plot road.png",
    "digits": """
import numpy as np, pyclmm
from sklearn.datasets import load_digits
x = load_digits().data.astype(np.float32)
print(bool(np.allclose(pyclmm.matmul(x, x.T), x @ x.T)))""",
    "gguf": """
import gguf, numpy as np, pyclmm
w = pyclmm.quantize(np.ones((64, 64), np.float32), mode="q8_0")
file = gguf.GGUFWriter("ones.gguf", "none")
file.add_tensor("w", w.data, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
for write in (file.write_header_to_file, file.write_kv_data_to_file, file.write_tensors_to_file, file.close):
    write()
x = np.ones((2, 64), np.float32)
print(bool(np.allclose(pyclmm.matmul(x, pyclmm.from_gguf("ones.gguf")["w"].T), 64, rtol=1e-3)))""",
    "safetensors": """
import numpy as np, pyclmm
w = pyclmm.quantize(np.ones((64, 64), np.float32))
w.save("ones.safetensors")
print(bool((pyclmm.QuantizedArray.load("ones.safetensors").data == w.data).all()))""",
}
FOR_DEVELOPERS = ("docs", "test", "dev")
LARGE = "torch"  # PyTorch and its CUDA libraries are 3 GB: eight minutes for one import
IN_BOTH = "pocl"  # needs a command of its own, and comes last

BOTH = """
import pyclmm
found = {d.platform: d for d in pyclmm.devices()}
assert set(found) == {"Portable Computing Language", "Intel(R) OpenCL"}, found
assert found["Intel(R) OpenCL"].default, found
import numpy as np
x = np.ones((300, 300), np.float32)
for d in found.values():
    assert (pyclmm.matmul(x, x, device=d) == 300).all(), d
"""


def commands() -> Iterator[list[str]]:
    """The shell commands of the README and of the first products, but for OTHERS."""
    return (words for _, words in pages.commands(README, USE) if words[0] not in OTHERS)


def install(place: Place) -> None:
    """Follow the README's commands up to the first snippet: those of pip, and of Python."""
    for words in commands():
        if words[0] in ("pip", "python"):
            place.run(words, place.clone)


def follow(place: Place, where: Path) -> None:
    """Run each page's snippets, as one program, and the commands of pyclmm."""
    for page in (README, USE):
        place.run([place.python, "-W", "error", "-c", "\n".join(pages.blocks(page, "python"))], where)
    for words in commands():
        if words[0] == "pyclmm":
            assert place.run(words, where), words


def briefly(place: Place, where: Path) -> None:
    """The README's install, its pages from *where*, and the self-test of two kernels."""
    install(place)
    follow(place, where)
    use(place, where, ("selftest --kernel naive --kernel packed",))


def extras() -> list[str]:
    """The extras of setup.cfg that users install."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    return [
        name for name in config["options.extras_require"] if name not in (*FOR_DEVELOPERS, IN_BOTH, LARGE)
    ]


def use(place: Place, where: Path, uses: Iterable[str]) -> None:
    """Run commands of pyclmm, each of which must print something and end with 0."""
    for words in uses:
        assert place.run(["pyclmm", *shlex.split(words)], where), words


def use_with(place: Place, where: Path, extra: str) -> str:
    """Install an *extra*, use it, and remove what came with it. Returns what was done."""

    def installed() -> set[str]:
        return {line.partition("==")[0] for line in place.run(["pip", "freeze"], where).splitlines()}

    before = installed()
    place.run(["pip", "install", "-q", f".[{extra}]"], place.clone)
    added = sorted(name for name in installed() - before if not name.startswith("pyclmm"))
    if not added:
        return f"[{extra}] brings nothing more"
    purpose = USES_OF[extra]
    if purpose.startswith("pyclmm "):
        use(place, where, (purpose.removeprefix("pyclmm "),))
    else:
        printed = place.run([place.python, "-W", "error", "-c", purpose], where)
        assert printed == "True\n", (extra, printed)
    place.run(["pip", "uninstall", "-q", "-y", *added], where)
    return f"[{extra}]: {', '.join(added)}; used"


def main() -> None:
    """Do everything, with a line for each step. A command that fails ends it with its output."""
    parser = argparse.ArgumentParser(prog="python -m tests.install.newcomer")
    parser.add_argument("--no-extras", action="store_true", help="leave out the extras")
    parser.add_argument("--no-pocl", action="store_true", help="leave out PoCL beside it")
    parser.add_argument("--no-newest", action="store_true", help="leave out the newest Python")
    parser.add_argument("--no-dockerfile", action="store_true", help="leave out the steps of the Dockerfile")
    options = parser.parse_args()
    start = time.monotonic()

    def told(what: str) -> None:
        print(f"{time.monotonic() - start:5.0f} s  {what}", flush=True)

    with tempfile.TemporaryDirectory(prefix="pyclmm-newcomer-") as name:
        place = clean.make(Path(name))
        elsewhere = place.folder / "elsewhere"
        elsewhere.mkdir()
        told("a copy of the clone, an empty environment")
        install(place)
        told("installed by the README's commands")
        for where in (place.clone, place.clone.parent, elsewhere):
            follow(place, where)
            told(f"snippets and commands from {where.relative_to(place.folder)}")
        place.run([place.python, "-c", MATRICES], elsewhere)
        use(place, elsewhere, USES)
        told("selftest, road, tune, multiply")
        for extra in [] if options.no_extras else extras():
            told(use_with(place, elsewhere, extra))
        if not options.no_pocl:
            place.run(["pip", "install", "-q", ".[pocl]"], place.clone)
            place.run([place.python, "tests/install/pocl_wheel.py"], place.clone)
            place.run([place.python, "-W", "error", "-c", BOTH], elsewhere)
            told("[pocl] beside [cpu]: both listed and right, Intel's the default")
    if not options.no_newest:
        told(newest.follow(briefly))
    if not options.no_dockerfile:
        with tempfile.TemporaryDirectory(prefix="pyclmm-newcomer-") as name:
            dockerfile.follow(clean.make(Path(name)))
            told("the steps of the Dockerfile")


if __name__ == "__main__":
    try:
        main()
    except clean.FailedError as error:
        raise SystemExit(str(error)) from None
