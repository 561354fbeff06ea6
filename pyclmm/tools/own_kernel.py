"""`pyclmm road FILE`: a reader's own kernel in the place of a step of the road, compiled, checked and timed.

The file's one kernel has the name of a step's, such as matmul_tiled, and is launched like it. All that
compiles or runs it happens in a child process, with a time limit and a cache folder of its own: it may crash
or hang, and no verdict on it is kept.
"""

from __future__ import annotations

import math
import re
import shlex
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl

from .. import fields, kernels
from ..checks import child, isolation, worker
from ..checks.drawn import Drawn
from ..checks.known_answers import Wrong, outcome
from ..checks.layouts import Decks
from ..errors import ArgumentError, BuildError, PyclmmError, UnsupportedError
from ..kernels import Kernel, Kernels, Work, kernel_named
from ..kernels.accepts import GENERAL, Accepts, Types
from ..kernels.config import TileConfig
from ..kernels.device import DeviceInfo
from ..kernels.interface import gemm_launch, gemm_program
from ..opencl import compiler
from ..opencl.devices import device_info
from ..opencl.program import new_kernel
from ..opencl.queues import new_queue
from ..problem.canonical import problem_of
from ..problem.dtypes import ELEMENTS
from ..problem.gemm import GemmProblem
from ..selection.select import refusal
from . import laws
from .bench import Others, Row, Track
from .terminal import OnStage, Screen, Stage
from .timing import Sample, Size, Terms

LIMIT = 60.0  # seconds to build a kernel, and for each law
_CALL, _TERMS = 0.25, Terms(arrays=True, rounds=5, limit=1.0)  # seconds of a call that is timed
_ROWS, _COLUMNS = 16, 64  # the most that is drawn of a result
_FLOAT32 = np.dtype(np.float32)
_LINE = fields.matching("(?s).{0,4000}", "text")
_NUMBER = fields.number(-1e300, 1e300)
_TIMES = fields.list_of(_NUMBER, 0, 100)
_KEPT = {"law": _LINE, "cases": fields.integer(0, 10**6)}
_FAILS = {"failure": _LINE, "wrong": fields.one_of(True, False), "lines": fields.list_of(_LINE, 0, 100)}
_TIMED = {"kernel": _LINE, "side": fields.integer(1, 1 << 30), "walls": _TIMES, "others": _TIMES}
_TIMED |= dict.fromkeys(("error_ratio", "error_limit"), fields.optional(_NUMBER))
_TIMED |= {"reason": fields.optional(_LINE)}

_ALONE = "If it is for float32 alone, say so in a line of a comment: types: float32"
# STORE_RESULT of a program that stores who stores.
_STORES = """#include "include/gemm.h"
#undef STORE_RESULT
#define STORE_RESULT(i, j, acc, result) \\
  if ((i) < M && (j) < N) out[(i) * ldo + (j)] = 1 + get_global_id(1) * get_global_size(0) + get_global_id(0)
"""


def own_kernel(path: Path, device: DeviceInfo) -> tuple[Kernel, Kernel]:
    """The kernel in the file *path* with its tile, and the family that launches it. Raises ArgumentError."""
    text = _read(path)
    family = _family(path.name, _code(text))
    source, entry = compiler.named(path), f"matmul_{family.name}"

    def one_launch(
        self: Kernel, problem: Any, size: Any, local: Any, defines: Any = (), acc_type: str | None = None
    ) -> Work:
        program = gemm_program(problem, source, defines, acc_type)
        return Work((gemm_launch(problem, program, entry, size, local),))

    own = {
        "name": path.name,
        "accepts": Accepts(_types(path.name, _said(text, "types")), family.accepts.fields & GENERAL),
        "tiles": (_own_tile(path.name, _said(text, "tile"), family, device),),
        "one_launch": one_launch,
    }
    return type("OwnKernel", (type(family),), own)(), family


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8-sig")  # a mark of byte order is none of C
    except FileNotFoundError as error:
        named = re.fullmatch(r"step([1-9]|10)\.cl", path.name)
        write = f"`pyclmm road --start {named[1] if named else 5}`"
        raise ArgumentError(f"{path}: there is no such file; {write} writes one to change") from error
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{path}: it is no text in UTF-8") from error
    for name in re.findall(r'^#include "([\w/.]+)"\s*$', text, re.M):
        try:
            compiler.read_source(name)
        except OSError as error:
            reason = "only files of pyclmm's cl/ can be included, such as include/gemm.h"
            raise ArgumentError(f"{path} includes {name}, which is not there: {reason}") from error
    return text


def _family(name: str, code: str) -> Kernel:
    """The family that launches the one kernel of *code*."""
    entries = re.findall(r"\b(?:__)?kernel\b[^;{}]*?\bvoid\s+(\w+)\s*\(", code)
    families = dict.fromkeys([*(step for step, _ in STARTS.values()), "double_buffer"])
    entry = entries[0].removeprefix("matmul_") if len(entries) == 1 else ""
    if entry not in families or not entries[0].startswith("matmul_"):
        has = f"the kernels {', '.join(entries)}" if entries else "no kernel"
        raise ArgumentError(
            f"{name} has {has}; it needs one, with the name of the step that it replaces: "
            f"{', '.join(f'matmul_{x}' for x in families)}. `pyclmm road --start 5` writes such a file"
        )
    return kernel_named(entry)


def _code(text: str) -> str:
    """*text* without comments."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)


def _said(text: str, word: str) -> str:
    """What stands behind *word* and a colon, at the beginning of a line."""
    found = re.search(rf"^[\s/*]*{word}:(.*?)(?:\*/)?\s*$", text, re.M)
    return found[1].strip() if found else ""


def _types(name: str, said: str) -> tuple[Types, ...]:
    words = said.replace(",", " ").split()
    if words and not ("float32" in words and set(words) <= ELEMENTS.keys()):
        known = ", ".join(ELEMENTS)
        raise ArgumentError(f"{name}: types: {said}: float32, in which it is timed, and others of {known}")
    return tuple(Types((word,), ELEMENTS[word].accumulator) for word in words)


def _own_tile(name: str, said: str, family: Kernel, device: DeviceInfo) -> TileConfig:
    """The tile that is said, or the family's first that *device* takes: what is checked is then timed."""
    like, one = tiles(family)[0], problem_of(1, 1, 1, _FLOAT32)
    sizes: dict[str, Any] = {word: int(size) for word, size in re.findall(r"(\w+)=(\d{1,5})(?!\S)", said)}
    if len(sizes) != len(said.split()) or not sizes.keys() <= like.as_dict().keys():
        right = f"write it as tile: {like}" if like.as_dict() else f"{family.name} has none"
        raise ArgumentError(f"{name}: tile: {said!r} is no tile of {family.name}; {right}")
    found = [TileConfig(**sizes)] if said else tiles(family)
    reasons = {tile: "; ".join(family.violations(one, tile, device)) for tile in found}
    if all(reasons.values()):
        raise ArgumentError(f"{name}: {reasons[found[0]]}")
    return next(tile for tile, reason in reasons.items() if not reason)


# The child


def answers(request: Any) -> Iterator[dict[str, Any]]:
    """The child: builds the kernel, tries it on every law until it breaks one, and times it. What begins as
    ``{"begins": text}``; then a law that it keeps, its failure, or its times.
    """
    queue = new_queue(isolation.device_of(request["device"]), profiling=True)
    path, limit = Path(request["path"]), request["limit"]
    device = device_info(queue.device)
    own, _ = own_kernel(path, device)
    kernels.KERNELS = Kernels((*kernels.KERNELS, own))  # of this process, which ends with this request
    yield {"begins": "its build"}
    child.within(limit)
    [config], law = tiles(own), "its build"
    launch = own.launches(problem_of(1, 1, 1, _FLOAT32), config, device).launches[0]
    try:
        new_kernel(queue.context, launch.program, launch.kernel)
        for law, check in laws.checks(queue, own, full=False):
            yield {"begins": law}
            child.within(limit)
            try:
                found = check(math.inf)
            except UnsupportedError:  # the law of reproducible bits
                continue
            if found.wrong is not None:
                shown = [] if found.first is None else _drawn(queue, own, config, found.first, path)
                shown += [_ALONE] * (" @ " in found.wrong and "float32 @" not in found.wrong)
                yield {"wrong": True, "failure": f"{law}: {found.wrong}", "lines": shown}
                return
            yield {"law": law, "cases": found.cases}
    except BuildError as error:
        log = error.log.replace(compiler.named(path), path.name).splitlines()
        log += [_ALONE] * (law != "its build")
        yield {"wrong": False, "failure": f"{law}: the compiler refuses it", "lines": log[:60]}
    except PyclmmError as error:
        yield {"wrong": False, "failure": f"{law}: {error}", "lines": []}
    else:
        yield {"begins": "its times"}
        child.within(3 * limit)
        yield from _times(queue, [own.name, *request["beside"]], request["side"])


def _times(queue: cl.CommandQueue, names: list[str], side: int) -> Iterator[dict[str, Any]]:
    """Race the kernels at the largest of *side*, its half, ... where a call of the first is short."""
    track, first = Track(queue, names, _TERMS), kernel_named(names[0])
    sides = [x for shift in range(32) if (x := side >> shift)]
    able = [x for x in sides if refusal(first, problem_of(x, x, x, _FLOAT32), track.device) is None]
    rung = track.climb([Size(x, x, x) for x in able], _FLOAT32, _CALL)
    about = {"side": rung.size.n, "others": [track.others.seconds, track.others.busy]}
    judged = ("kernel", "walls", "error_ratio", "error_limit", "reason")
    yield from ({name: getattr(row, name) for name in judged} | about for row in rung.rows)


def _drawn(queue: cl.CommandQueue, own: Kernel, config: TileConfig, wrong: Wrong, path: Path) -> list[str]:
    """The first wrong element, who stores it, and a drawing of what is right and wrong around it."""
    *stack, i, j = map(int, np.argwhere(wrong.where)[0])
    where, got, right = (x[tuple(stack)] for x in (wrong.where, wrong.got, wrong.right))
    part = np.ones_like(where)
    product = f"product {stack[0]} of the stack, " if stack else ""
    lines = [
        f"first wrong element: {product}row {i}, column {j}: {got[i, j]!s} in place of {right[i, j]!s}; "
        f"{np.count_nonzero(where)} of {where.size} are wrong"
    ]
    stored = _stored_by(queue, own, config, where.shape, path)
    if stored is None:
        lines.append("who stores it is not known: it is not stored by STORE_RESULT, which also applies alpha")
    elif stored[i, j, 0, 1] < 0:
        lines.append("no work-item stores it: that is what the memory held before")
    else:
        group, item = (f"({x}, {y})" for x, y in stored[i, j])
        lines.append(f"work-item {item} of work-group {group} stores it; what this work-group stores:")
        part = (stored[..., 0, :] == stored[i, j, 0]).all(-1)
    return lines + _picture(where, part, i, j)


def _stored_by(
    queue: cl.CommandQueue, own: Kernel, config: TileConfig, shape: tuple[int, ...], path: Path
) -> Any:
    """Which work-group, by x and y, and which item in it stores each element: M x N x 2 x 2, or None."""
    device, problem = device_info(queue.device), problem_of(shape[0], shape[1], 9, _FLOAT32)
    text = _read(path)
    if "STORE_RESULT" not in _code(text):
        return None
    with tempfile.TemporaryDirectory(prefix="pyclmm-own-") as folder:
        probe = Path(folder, "stores.cl")
        probe.write_text(_STORES + text, encoding="utf-8")
        launch = own.launches(problem, config, device).launches[0]
        program = replace(launch.program, source=compiler.named(probe))
        work, decks = Work((replace(launch, program=program),)), Decks(np.random.default_rng(0))
        found = outcome(queue, problem, work, device, decks, Drawn.INTEGERS)
    if found.wrong is None:
        return None
    ids, along = np.rint(found.wrong.got).astype(np.int64) - 1, launch.global_size[0]
    both, local = np.stack([ids % along, ids // along], -1), np.array([*launch.local_size, 1][:2])
    return np.stack([both // local, both % local], -2)


def _picture(where: Any, part: Any, i: int, j: int) -> list[str]:
    """Rows and columns of *part* of a result around element (i, j): right, wrong, and that one."""
    rows, columns = (np.flatnonzero(part.any(axis)) for axis in (1, 0))
    top = max(rows[0], min(i - _ROWS // 2, rows[-1] + 1 - _ROWS))
    left = max(columns[0], min(j - _COLUMNS // 2, columns[-1] + 1 - _COLUMNS))
    marks = np.where(part, np.where(where, "x", "."), " ")
    marks[i, j] = "#"
    seen = marks[top : min(top + _ROWS, rows[-1] + 1), left : min(left + _COLUMNS, columns[-1] + 1)]
    lines = [f"  row {top + at:>5}  {''.join(row).rstrip()}" for at, row in enumerate(seen)]
    return [f"  from column {left}", *lines, "  . right   x wrong   # the first wrong element"]


# The parent


class OwnAttempt:
    """A reader's kernel in *file*, and what becomes of it: the ``laws`` that it keeps, with how many cases of
    each; or why it fails, and ``lines`` that show it; ``wrong``: by a result. Raises ArgumentError.
    """

    def __init__(self, file: Path, device: DeviceInfo) -> None:
        self.file, self.device, self.others = file, device, Others()
        self.own, self.step = own_kernel(file, device)
        self.laws: dict[str, int] = {}
        self.failure: str | None = None
        self.wrong, self.lines = False, list[str]()

    def as_json(self) -> dict[str, Any]:
        return {"step": self.step.name, "laws": self.laws, "failure": self.failure, "lines": self.lines}

    def show(self, screen: Screen) -> None:
        """The laws that it keeps, and what shows that it fails."""
        for law, cases in self.laws.items():
            screen.lines(f"right: {law} ({cases})" if cases else f"not for it: {law}")
        if self.failure is not None:
            screen.lines(f"FAILED: {self.failure}")
        screen.lines(*self.lines, *[""] * bool(self.laws), indent=12)

    def check(
        self, beside: Sequence[str], side: int, on_stage: OnStage
    ) -> dict[str, tuple[Kernel, GemmProblem, Row]]:
        """Try the kernel, and time it with those *beside*, at *side* or less: by name the product and the
        times. After Ctrl-C this object has what was found until then.
        """
        begun, found = ["its start"], dict[str, tuple[Kernel, GemmProblem, Row]]()

        def begins(begins: str) -> None:
            begun.append(begins)
            on_stage(Stage(f"{self.own.name}: {begins}", len(begun) - 2, len(laws.LAWS) + 4))

        def timed(kernel: str, walls: list[float], side: int, others: list[float], **judged: Any) -> None:
            problem, self.others = problem_of(side, side, side, _FLOAT32), Others(*others)
            family = self.own if kernel == self.own.name else kernel_named(kernel)
            config = next(iter(family.configs(problem, self.device)), None)
            row = Row(kernel, config, tuple(map(Sample, walls)), problem.flops, **judged)
            found[kernel] = family, problem, row

        hear = fields.hearing(
            ({"begins": _LINE}, begins),
            (_KEPT, lambda law, cases: self.laws.update({law: cases})),
            (_FAILS, vars(self).update),
            (_TIMED, timed),
        )
        request = {"device": self.device.identity, "path": str(self.file.resolve()), "limit": LIMIT}
        request |= {"beside": list(beside), "side": side}
        with tempfile.TemporaryDirectory(prefix="pyclmm-own-") as folder:
            environment = {"PYCLMM_CACHE_DIR": folder, "PYCLMM_TRIAL": "off", "PYCLMM_SELFCHECK": "off"}
            ended = worker.ask("tools.own_kernel", request, 20 * LIMIT, hear, environment)
        if ended is not None:
            self.failure = f"{begun[-1]}: {_told(ended)}"
        elif self.failure is None and found.keys() != {self.own.name, *beside}:
            self.failure = f"{begun[-1]}: the child process gave no answer"
        return found


def _told(ended: worker.Failure) -> str:
    """Why a child gave no answer, and what the reader may look at."""
    reason = ended.reason.replace("it ended with SIGALRM", f"it did not end in {LIMIT:g} s")
    if ended.hung:
        return f"{reason}; is it slow, a loop without an end, or a barrier that some work-items never reach?"
    return f"{reason}; does it read or write outside of its arrays?" if ended.crashed else reason


_FOURTHS = "Sum the products of every fourth k apart, and add the four sums at the end."
# The step of the road -> the kernel that its starter file has, and what to change.
STARTS = {
    1: ("sequential", "Nest the loops over i and j the other way round. Which is faster here, and why?"),
    2: ("single_group", _FOURTHS), 3: ("naive", _FOURTHS),
    4: ("flat", "Exercise 2: divide by N with a multiplication and a shift. Is it faster?"),
    5: ("tiled", "Exercise 3: make the tiles twice as long along K: TW x 2 TW and 2 TW x TW."),
    6: ("strip", "Exercise 3: sum TM elements of a column straight from global memory."),
    7: ("block", "Let the TN columns of a work-item lie side by side, as in exercise 2."),
    8: ("vector", "Exercise 3: load the vectors straight from global memory."),
    9: ("tiled", "Exercise 3: write it with two pairs of tiles and one barrier a step. (double_buffer is the "
        "answer for block, so the file begins with tiled.)"),
    10: ("block", "Exercise 3: sum the TM x TN elements of a work-item straight from global memory. "
         "(register is several files, with tiles that fit the device. block is its idea in one file.)"),
}  # fmt: skip
LAST = 15  # step of the road
_STARTER = """\
/* Step {step} of the road. Below is pyclmm's kernel {name}, as it is. Change it:
 *
 *   {task}
 *
 * Then check it, and time it beside its neighbours:   pyclmm road {file}
 *
 * Its name, matmul_{name}, says that it is launched as {name} is. It computes out = A B, M x K times K x N:
 *   LOAD_A(a, A_INDEX(i, k, lda))      A(i, k) as ACC_T, the type of sums, whatever its type and layout
 *   LOAD_B(b, B_INDEX(k, j, ldb))      B(k, j)
 *   GUARDED_A(a, i, k, lda, M, K)      the same, but 0 outside of the matrix; GUARDED_B(b, k, j, ldb, K, N)
 *   MAC(acc, x, y)                     acc + x y
 *   STORE_RESULT(i, j, acc, RESULT)    stores out(i, j), unless it lies outside, with alpha, beta and bias
 *
 * Delete the bar of a line below to ask for these element types only, or for this tile:
 *   | types: float32
{tile} */
"""


def start(step: int, path: Path) -> str:
    """Write the file that the exercise of a *step* begins with, and say so. Raises ArgumentError."""
    if step not in STARTS:
        last = max(STARTS)
        raise ArgumentError(
            f"step {step} has no starter file: the kernels of steps {last + 1} to {LAST} are of several "
            f"files and launches; --start 1 to --start {last} write one"
        )
    name, task = STARTS[step]
    task = "\n *   ".join(textwrap.wrap(task, 100))
    source, tile = compiler.read_source(f"textbook/{name}.cl"), tiles(kernel_named(name))[0]
    while found := re.search(r'^#include "(textbook/\w+\.h)"\n', source, re.M):
        source = source[: found.start()] + compiler.read_source(found[1]) + source[found.end() :]
    tile_line = f" *   | tile: {tile}\n" if tile.as_dict() else ""
    quoted = shlex.quote(str(path))
    head = _STARTER.format(step=step, name=name, task=task, file=quoted, tile=tile_line)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(head + source)
    except FileExistsError:
        other = f"`pyclmm road --start {step} OTHER.cl`"
        raise ArgumentError(f"{path}: File exists, and stays as it is; {other} writes another") from None
    return f"{path} is written, with the kernel {name}: change it, and check it by `pyclmm road {quoted}`"


def tiles(textbook: Kernel) -> Sequence[TileConfig]:
    """The configurations of a textbook's kernel."""
    return textbook.tiles  # type: ignore[attr-defined,no-any-return]
