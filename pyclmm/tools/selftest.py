"""`pyclmm selftest`: every kernel under every law on the user's device, and a report of it.

Each kernel runs in a child process with a time limit, so that a driver that crashes or hangs is reported
and the next kernel goes on. The report is fit for a bug report: no user name, host name or path is in it.
"""

from __future__ import annotations

import getpass
import math
import re
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .. import fields
from ..checks import fixed_products, isolation, worker
from ..errors import BuildError, PyclmmError, UnsupportedError
from ..kernels import KERNELS, Kernel, kernel_named
from ..kernels.device import DeviceInfo
from ..opencl.queues import new_queue
from . import laws, report
from .terminal import OnStage, Stage, TextTable

LIMITS = {False: 180.0, True: 1800.0}  # seconds a kernel: --quick, --full
PASSED, REFUSED, WRONG, FAILED, CRASHED, HUNG = "passed", "refused", "wrong", "failed", "crashed", "hung"
_BAD = (WRONG, FAILED, CRASHED, HUNG)  # worst last
_LAWS = len(laws.LAWS) + 2  # and the interface and the bits
_SHOWN = "float32 normal"  # the fixed product whose digest is printed
_LONGEST = 2000  # characters of a reason
_NUMBER = fields.number(0, 1e300)
_VERDICT = {
    "law": fields.text(_LONGEST),
    "verdict": fields.one_of(PASSED, REFUSED, WRONG, FAILED),
    "cases": fields.integer(0, 10**9),
    "error_ratio": fields.optional(_NUMBER),
    "error_limit": _NUMBER,
    "reason": fields.optional(fields.matching("(?s).*", "text")),
}
# What is left of one already found, or begins with a drive, a host, ~ or / and not within a word (a/b).
_PATH = re.compile(
    r"<path>[^\s'\"(),;:]*|(?:(?<![\w.)])|(?<=-[IL]))(?:[A-Za-z]:[\\/]|\\\\|~?/)[^\s'\"(),;:]+"
)


@dataclass(frozen=True)
class LawVerdict:
    """What became of one law: one of the words above, cases run, error in units of its bound, reason."""

    law: str
    verdict: str
    cases: int = 0
    error_ratio: float | None = 0.0  # None: no finite number
    error_limit: float = 0.0
    reason: str | None = None


@dataclass(frozen=True)
class Tested:
    """One kernel and its laws."""

    kernel: str
    seconds: float
    laws: tuple[LawVerdict, ...]

    @property
    def verdict(self) -> str:
        """The worst of the laws'; refused where nothing ran."""
        found = [v.verdict for v in self.laws]
        worst = [word for word in _BAD if word in found]
        if worst:
            return worst[-1]
        return PASSED if PASSED in found else REFUSED

    @property
    def is_bad(self) -> bool:
        return self.verdict in _BAD

    @property
    def worst(self) -> float:
        """The largest error as a share of its bound."""
        return max((v.error_ratio / v.error_limit for v in self.laws if v.error_ratio), default=0.0)


def answers(request: Any) -> Iterator[dict[str, Any]]:
    """The child: the law that begins as ``{"begins": name}``, then its :class:`LawVerdict`."""
    queue = new_queue(isolation.device_of(request["device"]))
    kernel, full = kernel_named(request["kernel"]), bool(request["full"])
    for law, check in laws.checks(queue, kernel, full):
        yield {"begins": law}
        yield asdict(_judged(law, check))


def _judged(law: str, check: Callable[[], laws.Found]) -> LawVerdict:
    try:
        found = check()
    except UnsupportedError as error:
        return LawVerdict(law, REFUSED, reason=str(error))
    except BuildError as error:
        return LawVerdict(law, FAILED, reason=f"BuildError: {error.log}; options: {error.options}")
    except (PyclmmError, MemoryError) as error:
        return LawVerdict(law, FAILED, reason=f"{type(error).__name__}: {error}")
    ratio = found.ratio if math.isfinite(found.ratio) else None
    verdict = WRONG if found.wrong is not None else PASSED if found.cases else REFUSED
    return LawVerdict(law, verdict, found.cases, ratio, found.limit, found.wrong or found.refused)


def run(
    device: DeviceInfo,
    full: bool,
    on_stage: OnStage,
    limit: float | None = None,
    asked: Sequence[str] = (),
) -> Iterator[Tested]:
    """Test the kernels that are *asked* for by name, or every one, each in a child of its own."""
    kernels = tuple(map(kernel_named, asked)) or KERNELS
    with tempfile.TemporaryDirectory(prefix="pyclmm-selftest-") as folder:
        environment = {"PYCLMM_CACHE_DIR": folder, "PYCLMM_TRIAL": "off"}
        for number, kernel in enumerate(kernels):

            def on_law(law: str, at: int, number: int = number, kernel: Kernel = kernel) -> None:
                on_stage(Stage(f"{kernel.name}: {law}", number * _LAWS + at, len(kernels) * _LAWS))

            request = {"device": device.identity, "kernel": kernel.name, "full": full}
            yield _tested(request, limit or LIMITS[full], environment, on_law)


def _tested(
    request: dict[str, Any], limit: float, environment: dict[str, str], on_law: Callable[[str, int], None]
) -> Tested:
    found: list[LawVerdict] = []
    begun = ["start of the child process"]

    def begins(begins: str) -> None:
        begun.append(begins)
        on_law(begins, len(begun) - 2)

    def judged(**verdict: Any) -> None:
        found.append(LawVerdict(**verdict))

    forms = (({"begins": fields.text(_LONGEST)}, begins), (_VERDICT, judged))
    start = time.perf_counter()
    failure = worker.ask(
        "tools.selftest", request, limit, lambda answer: fields.hear(answer, forms), environment
    )
    if failure is not None:
        word = HUNG if failure.hung else CRASHED if failure.crashed else FAILED
        found.append(LawVerdict(begun[-1], word, reason=failure.reason))
    cleaned = tuple(LawVerdict(**_clean(asdict(v))) for v in found)
    return Tested(request["kernel"], time.perf_counter() - start, cleaned)


def table(tested: list[Tested]) -> TextTable:
    """A line for each kernel that the device can run."""
    head = ("kernel", "verdict", "laws", "cases", "error/bound", "seconds")
    rows = []
    for one in tested:
        if one.verdict == REFUSED:
            continue
        passed = sum(v.verdict == PASSED for v in one.laws)
        cases = sum(v.cases for v in one.laws)
        word = one.verdict.upper() if one.is_bad else one.verdict
        numbers = (f"{passed} of {_LAWS}", str(cases), f"{one.worst:.2g}", f"{one.seconds:.1f}")
        rows.append((one.kernel, word, *numbers))
    return TextTable(head, tuple(rows), text=head[:2])


def digest_line(tested: list[Tested]) -> str:
    """The digest of a fixed product, and the kernels that gave every digest in the package."""
    passed = [
        one.kernel for one in tested if any(v.law == laws.BITS and v.verdict == PASSED for v in one.laws)
    ]
    digest = fixed_products.digests()[_SHOWN]
    names = ", ".join(passed) or "no kernel"
    return f"fixed product {_SHOWN!r}: SHA-256 {digest}, as in the package, by {names}"


def notes(tested: list[Tested]) -> list[str]:
    """A line for each law that a kernel broke or cannot be asked about, and one for all kernels that cannot
    run. Before them a line for each element type whose package is not installed.
    """
    lines = [f"skipped: {reason}" for reason in laws.skipped().values()]
    lines += [
        f"{one.kernel}: {v.law}: {v.verdict}: {v.reason}"
        for one in tested
        for v in one.laws
        if v.verdict != PASSED and one.verdict != REFUSED
    ]
    refused = [one.kernel for one in tested if one.verdict == REFUSED]
    return lines + [f"cannot run here: {', '.join(refused)} (--reasons says why)"] * bool(refused)


def reasons(tested: list[Tested]) -> list[str]:
    """A line for each kernel that cannot run, with its reason."""
    return [f"{one.kernel}: {one.laws[0].reason}" for one in tested if one.verdict == REFUSED and one.laws]


def as_json(device: DeviceInfo, full: bool, tested: list[Tested]) -> dict[str, Any]:
    """The report: versions, device, verdicts."""
    kernels = [
        {"kernel": one.kernel, "verdict": one.verdict, "worst_error_to_bound": one.worst}
        | {"seconds": round(one.seconds, 2), "laws": [asdict(v) for v in one.laws]}
        for one in tested
    ]
    content = report.header_json(device) | {"full": full, "skipped": laws.skipped(), "kernels": kernels}
    cleaned: dict[str, Any] = _clean(content)
    return cleaned


def _clean(value: Any) -> Any:
    """*value* with every text in it :func:`anonymous`."""
    if isinstance(value, dict):
        return {name: _clean(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(x) for x in value]
    return anonymous(value) if isinstance(value, str) else value


def anonymous(text: str) -> str:
    """*text* in one line of printable characters, without paths and the names of user and host."""
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    for secret, shown in _secrets():
        within = "" if shown == "<path>" else r"(?<!\w)"
        text = re.sub(rf"{within}{re.escape(secret)}(?!\w)", shown, text, flags=re.IGNORECASE)
    text = _PATH.sub("<path>", text)
    return text[:_LONGEST]


def _secrets() -> Iterator[tuple[str, str]]:
    """What must not be told, longest first, and what stands in its place."""
    host = socket.gethostname()
    named = [(str(path), "<path>") for path in (_known(Path.home), _known(Path.cwd), tempfile.gettempdir())]
    named += [(host, "<host>"), (host.split(".")[0], "<host>"), (_known(getpass.getuser), "<user>")]
    yield from sorted(((s, shown) for s, shown in named if len(s) > 1), key=lambda pair: -len(pair[0]))


def _known(what: Callable[[], object]) -> str:
    """What it returns; nothing for a user without a name or home, or a folder that is gone."""
    try:
        return str(what())
    except (OSError, KeyError, ImportError, RuntimeError):
        return ""
