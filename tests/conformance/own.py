"""Programs for AMD's and Intel's GPUs, built by the compilers of their drivers: comgr, and ocloc with IGC.

They come with newer.py and run there (builds.py). A driver calls them when a user's program is built, so what
they say is what a user would see. Whatever they say is an error here, except of registers.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyclmm.opencl.compiler import expanded
from pyclmm.opencl.program import build_options, source_hash
from tests.simulators.amd.program import metadata

from . import newer
from .compilers import Resources
from .offline import TARGETS, Compiled, Job, Target, copies, launches

BUILDS = Path(__file__).with_name("builds.py")
_BY_NAME = {target.name: target for target in TARGETS}
AMD = tuple(target for target in TARGETS if target.device.vendor == "amd")
INTEL = (
    replace(_BY_NAME["dg2-g10"], name="dg2"),
    *(replace(_BY_NAME["pvc"], name=name) for name in ("pvc", "bmg", "lnl")),
)
# All families are asked for these; of their programs each target gets every third, so that they complement
# each other: together they have all.
WHOLE = (_BY_NAME["gfx90a"], _BY_NAME["gfx1030"], INTEL[0], replace(INTEL[2], families=()))
SHARE = 3
_OF_REGISTERS = re.compile(r"^.*(Build succeeded|RetryManager|allocated \d+ regs and spilled).*$", re.M)


def shared() -> Iterator[Job]:
    """The programs of docs/conformance.md that the compilers get."""
    for first, target in enumerate(WHOLE):
        for job in [*launches(target), *copies(target.device)][first % SHARE :: SHARE]:
            yield target, *job


@dataclass(frozen=True)
class _Build:
    """A program for a target, and its place among the jobs."""

    places: tuple[int, ...]
    vendor: str
    target: str
    source: str
    options: tuple[str, ...]


class _Workers:
    """A process of builds.py for each thread. One that dies is begun again. Leaving the block ends them."""

    def __enter__(self) -> _Workers:
        self._of = threading.local()
        self._all: list[subprocess.Popen[str]] = []
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._all:
            process.communicate()

    def _process(self) -> Any:
        process: Any = getattr(self._of, "process", None)
        if process is None or process.poll() is not None:
            pipe = subprocess.PIPE
            command = newer.inside([newer.PYTHON, BUILDS])
            process = subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe)
            self._of.process = process
            self._all.append(process)
        return process

    def asked(self, job: dict[str, Any]) -> dict[str, str]:
        """The result of a job."""
        process = self._process()
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
        if line := process.stdout.readline():
            found: dict[str, str] = json.loads(line)
            return found
        said = process.stderr.read()[-2000:]
        return {"log": said, "failed": f"the compiler's process ended with {process.wait()}"}


def compile_own(jobs: Sequence[Job], at_once: int = 2) -> list[Compiled]:
    """Build these (target, family, dtype, launch) for these GPUs; results are in the same order."""
    rows = [Compiled(f"{f}: {launch.kernel}", dtype, t.name) for t, f, dtype, launch in jobs]
    with tempfile.TemporaryDirectory() as name, _Workers() as workers, ThreadPoolExecutor(at_once) as pool:
        builds = list(_builds(jobs, Path(name)))

        def build(one: tuple[int, _Build]) -> None:
            number, asked = one
            output = Path(name) / f"{number}.out"
            job = {"vendor": asked.vendor, "target": asked.target, "source": asked.source}
            said = workers.asked(job | {"options": asked.options, "output": str(output)})
            log = _OF_REGISTERS.sub("", said["log"]).strip()
            for at in asked.places:
                if said["failed"] or log:
                    error = f"{said['failed']} {' '.join(asked.options)}\n{log[:2000]}"
                    rows[at] = replace(rows[at], error=error)
                else:
                    needed = NEEDED[asked.vendor](output.read_bytes(), jobs[at][3].kernel)
                    rows[at] = replace(rows[at], resources=needed)

        list(pool.map(build, enumerate(builds)))
    return rows


def _builds(jobs: Sequence[Job], folder: Path) -> Iterator[_Build]:
    """Each program of *jobs* once for each target; its source lies in *folder*."""
    found: dict[tuple[str, str, str, tuple[str, ...]], list[int]] = {}
    for place, (target, _, _, launch) in enumerate(jobs):
        source = folder / f"{source_hash(launch.program)}.cl"
        source.write_text(expanded(launch.program.source))
        key = (target.device.vendor, target.name, str(source), tuple(build_options(launch.program)))
        found.setdefault(key, []).append(place)
    for key, places in found.items():
        yield _Build(tuple(places), *key)


def of_amd(program: bytes, kernel: str) -> Resources:
    """What comgr wrote beside a kernel function. Registers are of both kinds, where a processor has two."""
    (found,) = (one for one in metadata(program) if one[".name"] == kernel)
    return Resources(found[".vgpr_count"], found[".vgpr_spill_count"], found[".group_segment_fixed_size"])


def of_intel(program: bytes, kernel: str) -> Resources:
    """What IGC wrote, in YAML: registers of a thread, and bytes."""
    text = program[program.index(b"\nkernels:") :].split(b"\nkernels_misc_info:")[0].decode(errors="replace")
    (found,) = (part for part in re.split(r"^  - name: +", text, flags=re.M) if part.split()[0] == kernel)

    def number(name: str) -> int:
        value = re.search(rf"^ +{name}: +(\d+)", found, re.M)
        return int(value[1]) if value else 0

    return Resources(number("grf_count"), number("spill_size"), number("slm_size"))


NEEDED: dict[str, Callable[[bytes, str], Resources]] = {"amd": of_amd, "intel": of_intel}


def title(target: Target) -> str:
    """The compiler of a target, with its version."""
    if target.device.vendor == "amd":
        return f"comgr {newer.version('libamd-comgr3')}"
    return f"ocloc {newer.version('intel-ocloc')} with IGC {newer.version('libigc2')}"
