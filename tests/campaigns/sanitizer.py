"""Small products of every kernel that a CUDA device has, on PyTorch's tensors, under compute-sanitizer.

    python -m tests.campaigns.sanitizer [--tools memcheck racecheck synccheck initcheck] [--jobs 8]

Needs NVIDIA's compute-sanitizer, PyTorch and a GPU. A process for each tool and kernel; a first one without a
tool compiles, so that the tools need not wait for that. Ends with 1 if a tool found something.
"""

import argparse
import itertools
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pyclmm

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
LAYOUTS = ("NN", "NT", "TN")
# A product of several tiles in each layout, and those for few rows or columns.
SHAPES = (*(((72, 40, 200), layout) for layout in LAYOUTS), ((1, 300, 500), "NN"), ((200, 4, 96), "NN"))
FLOATS = (("float32", "highest"), ("float32", "high"), ("float32", "medium"), ("float64", "highest"))
TYPES = (
    *FLOATS,
    ("float64", "high"),
    ("complex64", "high"),
    ("float16", "highest"),
    ("bfloat16", "highest"),
    ("int8", "highest"),
)
LIMIT = 900  # seconds of one process


def products(kernel: str) -> int:
    """Launch all of *kernel*'s. Returns how many there were."""
    import torch  # noqa: PLC0415 - the process that starts the others needs none

    count = 0
    for (name, precision), ((m, n, k), layout) in itertools.product(TYPES, SHAPES):
        shapes = ((m, k)[:: -1 if layout[0] == "T" else 1], (k, n)[:: -1 if layout[1] == "T" else 1])
        a, b = (torch.ones(shape, device="cuda").to(getattr(torch, name)) for shape in shapes)
        a, b = (x.t() if word == "T" else x for x, word in zip((a, b), layout, strict=True))
        try:
            got = pyclmm.matmul(a, b, kernel=kernel, precision=precision)
        except pyclmm.UnsupportedError:
            continue
        expected = k if name != "int8" else (k + 128) % 256 - 128
        assert bool((got == expected).all()), (kernel, name, precision, (m, n, k), layout)
        count += 1
    return count


def checked(tool: str | None, kernel: str) -> tuple[int, str]:
    """The exit status of a process, and what it printed."""
    before = () if tool is None else ("compute-sanitizer", "--tool", tool, "--error-exitcode", "9")
    command = [*before, sys.executable, "-m", "tests.campaigns.sanitizer", "--kernel", kernel]
    environment = os.environ | {"PYCLMM_SELFCHECK": "off"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, env=environment, check=False
    )
    return done.returncode, done.stdout + done.stderr


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--kernel", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.kernel:
        print(f"{products(args.kernel)} products")
        return 0
    names = [kernel.name for kernel in pyclmm.KERNELS]
    failed = False
    with ThreadPoolExecutor(args.jobs) as pool:
        plain = dict(zip(names, pool.map(lambda name: checked(None, name), names), strict=True))
        used = [name for name in names if plain[name] != (0, "0 products\n")]
        jobs = list(itertools.product(args.tools, used))
        for (tool, name), (status, text) in zip(jobs, pool.map(lambda job: checked(*job), jobs), strict=True):
            counted = next((line for line in text.splitlines() if line.endswith(" products")), "did not end")
            print(f"{tool:10} {name:16} {counted}: {'FOUND' if status else 'nothing found'}", flush=True)
            if status:
                print(text)
                failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
