"""`pyclmm selftest`: every kernel under every law on the user's device, and a report of it.

Each kernel runs in a child process with a time limit, so that a driver that crashes or hangs is reported
and the next kernel goes on. The report is fit for a bug report: no user name, host name or path is in it.
The test ends after a budget: a kernel gets its share of the time that is left, and what it did not reach is
told. --full adds products as users call them, by "auto", and drawn products (checks/drawn_products.py).
"""

from __future__ import annotations

import getpass
import logging
import math
import re
import shlex
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyopencl as cl

from .. import fields
from ..checks import drawn_products, isolation, worker
from ..errors import BuildError, PyclmmError, UnsupportedError, VerificationError
from ..kernels import KERNELS, Kernel, kernel_named
from ..kernels.device import DeviceInfo
from ..opencl.devices import device_info
from ..opencl.program import BUILD_LOG
from ..opencl.queues import new_queue
from . import laws, report
from .terminal import OnStage, Stage, TextTable

BUDGET, QUICK_BUDGET = 13.5 * 60, 5.0 * 60  # seconds of --full and of --quick
_GRACE = 60.0  # seconds, for a law that has begun
PASSED, REFUSED, WRONG, FAILED, CRASHED, HUNG = "passed", "refused", "wrong", "failed", "crashed", "hung"
LEFT_OUT = "left out"
_BAD = (WRONG, FAILED, CRASHED, HUNG)  # worst last
_LAWS = len(laws.LAWS) + 2  # and the interface and the bits
DRAWN = "drawn products"
_OF_DRAWN = 4  # shares of the time; a law has one
_ENOUGH = 3  # drawn products that a kernel breaks, before the others are left out
_LOGS = 20  # of a kernel's build logs
_LONGEST = 2000  # characters of a reason
_NUMBER = fields.number(0, 1e300)
_COUNT, _TEXT = fields.integer(0, 10**9), fields.matching("(?s).*", "text")
_VERDICT = {
    "law": fields.text(_LONGEST), "verdict": fields.one_of(PASSED, REFUSED, WRONG, FAILED, LEFT_OUT),
    "cases": _COUNT, "error_ratio": fields.optional(_NUMBER), "error_limit": _NUMBER,
    "reason": fields.optional(_TEXT), "left_out": _COUNT, "number": fields.optional(_COUNT),
}  # fmt: skip
# What is left of one already found, or begins with a drive, a host, ~ or / and not within a word (a/b).
_PATH = re.compile(
    r"<path>[^\s'\"(),;:]*|(?:(?<![\w.)])|(?<=-[IL]))(?:[A-Za-z]:[\\/]|\\\\|~?/)[^\s'\"(),;:]+"
)


@dataclass(frozen=True)
class LawVerdict:
    """What became of one law: one of the words above, cases run, error in units of its bound, reason, cases
    that were left out as the time was up. ``number``: of a drawn product.
    """

    law: str
    verdict: str
    cases: int = 0
    error_ratio: float | None = 0.0  # None: no finite number
    error_limit: float = 0.0
    reason: str | None = None
    left_out: int = 0
    number: int | None = None

    @property
    def is_bad(self) -> bool:
        return self.verdict in _BAD


@dataclass
class Tested:
    """One kernel: its laws, and what the compiler said of programs that it built."""

    kernel: str
    laws: list[LawVerdict] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def verdict(self) -> str:
        """The worst of the laws'; refused where nothing ran."""
        found = {v.verdict for v in self.laws}
        return next((word for word in (*_BAD[::-1], PASSED, LEFT_OUT) if word in found), REFUSED)

    @property
    def is_bad(self) -> bool:
        return self.verdict in _BAD

    @property
    def worst(self) -> float:
        """The largest error as a share of its bound."""
        return max((v.error_ratio / v.error_limit for v in self.laws if v.error_ratio), default=0.0)

    def ask(
        self, request: Any, limit: float, environment: dict[str, str], on_law: Callable[[str, int], None]
    ) -> None:
        """Add what a child answers to *request* in *limit* seconds. It tells *on_law* what begins, and its
        number.
        """
        begun, start = ["start of the child process"], time.perf_counter()

        def begins(begins: str) -> None:
            begun.append(begins)
            on_law(begins, len(begun) - 2)

        hear = fields.hearing(
            ({"begins": fields.text(_LONGEST)}, begins),
            (_VERDICT, self._judged),
            ({"log": fields.text(_LONGEST)}, lambda log: self.logs.append(anonymous(log))),
        )
        try:
            failure = worker.ask("tools.selftest", request, limit, hear, environment)
        finally:
            self.seconds = time.perf_counter() - start
        if failure is not None:
            word = HUNG if failure.hung else CRASHED if failure.crashed else FAILED
            self.laws.append(LawVerdict(begun[-1], word, reason=anonymous(failure.reason)))

    def _judged(self, **verdict: Any) -> None:
        """Keep the verdict; drawn products that pass are one, with those that are left out."""
        new, last = LawVerdict(**_clean(verdict)), self.laws[-1] if self.laws else None
        if last and last.law == new.law and last.verdict == PASSED and not new.is_bad:
            self.laws[-1] = replace(last, cases=last.cases + new.cases, left_out=new.left_out)
        else:
            self.laws.append(replace(new, number=new.number if new.is_bad else None))


def answers(request: Any) -> Iterator[dict[str, Any]]:
    """The child: each law as ``{"begins": name}``, then its :class:`LawVerdict`; build logs. No case begins
    after the *seconds*, of which each law gets a share with *full*. *case*: this drawn product alone.
    """
    queue = new_queue(isolation.device_of(request["device"]))
    kernel = None if request["kernel"] == laws.AUTO else kernel_named(request["kernel"])
    end, logs, full = time.monotonic() + request["seconds"], _Logs(), request["full"]
    if full:
        logger = logging.getLogger("pyclmm.opencl.program")
        logger.addHandler(logs)
        logger.setLevel(logging.INFO)
    checks = list(laws.checks(queue, kernel, full)) if request["case"] is None else []
    for place, (law, check) in enumerate(checks):
        yield {"begins": law}
        now = time.monotonic()
        share = (end - now) / (len(checks) - place + _OF_DRAWN if full else 1)
        yield asdict(_judged(law, partial(check, now + share)))
        yield from logs.new()
    if full and kernel is not None:
        for said in _drawn(queue, kernel, end, request["case"]):
            yield said
            yield from logs.new()


def _drawn(
    queue: cl.CommandQueue, kernel: Kernel, until: float, case: int | None
) -> Iterator[dict[str, Any]]:
    """The drawn products until the time is up, or enough are wrong."""
    bad = left = 0
    for product in drawn_products.products(kernel, device_info(queue.device)):
        if case not in (None, product.number):
            continue
        if bad == _ENOUGH or time.monotonic() >= until:
            left += 1
            continue
        yield {"begins": f"{DRAWN}, {product}"}
        judged = _judged(DRAWN, lambda one=product: laws.Found(1, wrong=one.check(queue, kernel)))  # type: ignore[misc]
        found = replace(judged, number=product.number)
        bad += found.is_bad
        yield asdict(found)
    if left:
        yield asdict(LawVerdict(DRAWN, LEFT_OUT, left_out=left))


class _Logs(logging.Handler):
    """What compilers said of programs that they built, each text once."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._seen: dict[str, bool] = {}  # whether it was told

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg == BUILD_LOG and len(self._seen) < _LOGS:
            self._seen.setdefault(record.getMessage()[:_LONGEST], False)

    def new(self) -> Iterator[dict[str, str]]:
        for text in [text for text, told in self._seen.items() if not told]:
            self._seen[text] = True
            yield {"log": text}


def _judged(law: str, check: Callable[[], laws.Found]) -> LawVerdict:
    try:
        found = check()
    except UnsupportedError as error:
        return LawVerdict(law, REFUSED, reason=str(error))
    except BuildError as error:
        return LawVerdict(law, FAILED, reason=f"BuildError: {error.log}; options: {error.options}")
    except (PyclmmError, MemoryError) as error:
        word = WRONG if isinstance(error, VerificationError) else FAILED
        return LawVerdict(law, word, reason=f"{type(error).__name__}: {error}")
    ratio = found.ratio if math.isfinite(found.ratio) else None
    rest = LEFT_OUT if found.left_out else REFUSED
    verdict = WRONG if found.wrong is not None else PASSED if found.cases else rest
    reason = found.wrong or found.refused
    return LawVerdict(law, verdict, found.cases, ratio, found.limit, reason, found.left_out)


def run(
    device: DeviceInfo,
    budget: float,
    on_stage: OnStage,
    full: bool = False,
    asked: Sequence[str] = (),
    case: int | None = None,
) -> Iterator[Tested]:
    """Test the kernels *asked* for, or all, each in a child of its own, in *budget* seconds that they share.
    Ctrl-C yields what is known of the kernel that runs, before it ends the test.
    """
    asked = asked or [k.name for k in KERNELS] + [laws.AUTO] * (full and case is None)
    refused = {x: None if x == laws.AUTO else laws.refused(kernel_named(x), device) for x in asked}
    names = [name for name, reason in refused.items() if reason is None]
    for name in (name for name, reason in refused.items() if reason is not None):
        yield Tested(name, [LawVerdict(laws.LAWS[0].name, REFUSED, reason=refused[name])])
    end = time.monotonic() + budget
    with tempfile.TemporaryDirectory(prefix="pyclmm-selftest-") as folder:
        for place, name in enumerate(names):

            def on_law(law: str, at: int, place: int = place, name: str = name) -> None:
                on_stage(Stage(f"{name}: {law}", place * _LAWS + min(at, _LAWS - 1), len(names) * _LAWS))

            share = max(0.0, end - time.monotonic()) / (len(names) - place)
            request = {"device": device.identity, "kernel": name, "full": full}
            request |= {"case": case, "seconds": share}
            # The laws judge a kernel themselves. "auto" looks for another one if the self-check refuses it.
            check = {} if name == laws.AUTO else {"PYCLMM_SELFCHECK": "off"}
            environment = {"PYCLMM_CACHE_DIR": folder, "PYCLMM_TRIAL": "off", **check}
            tested = Tested(name)
            try:
                tested.ask(request, share + _GRACE, environment, on_law)
            except KeyboardInterrupt:
                if tested.laws:
                    yield tested
                raise
            yield tested


def table(tested: list[Tested]) -> TextTable:
    """A line for each kernel that the device can run."""
    head = ("kernel", "verdict", "laws", "cases", "error/bound", "seconds")
    rows = []
    for one in tested:
        if one.verdict == REFUSED:
            continue
        passed = {v.law for v in one.laws if v.verdict == PASSED}
        cases = sum(v.cases for v in one.laws)
        word = one.verdict.upper() if one.is_bad else one.verdict
        of = len({v.law for v in one.laws})
        numbers = (f"{len(passed)} of {of}", str(cases), f"{one.worst:.2g}", f"{one.seconds:.1f}")
        rows.append((one.kernel, word, *numbers))
    return TextTable(head, tuple(rows), text=head[:2])


def notes(tested: list[Tested], device: DeviceInfo) -> list[str]:
    """Lines for element types without their package, for each law that a kernel broke, with what repeats it,
    or cannot be asked about, for what was left out, and for all kernels that cannot run.
    """
    lines = [f"skipped: {reason}" for reason in drawn_products.skipped().values()]
    ran = [one for one in tested if one.verdict != REFUSED]
    for one in ran:
        for v in (v for v in one.laws if v.verdict not in (PASSED, LEFT_OUT)):
            lines.append(f"{one.kernel}: {v.law}: {v.verdict}: {v.reason}")
            lines += [f"again: {repeat(one, v, device)}"] * v.is_bad
    left = {one.kernel: sum(v.left_out for v in one.laws) for one in ran}
    told = ", ".join(f"{name} {cases}" for name, cases in left.items() if cases)
    lines += [f"cases left out, as the time was up: {told} (--json has the laws)"] * bool(told)
    unknown = [one.kernel for one in tested if not one.laws]
    lines += [f"without a drawn product of this number: {', '.join(unknown)}"] * bool(unknown)
    refused = [one.kernel for one in tested if one.verdict == REFUSED and one.laws]
    return lines + [f"cannot run here: {', '.join(refused)} (--reasons says why)"] * bool(refused)


def repeat(one: Tested, v: LawVerdict, device: DeviceInfo) -> str:
    """The command that comes to the same verdict."""
    case = "" if v.number is None else f" --case {v.number}"
    named = f"--device {shlex.quote(device.name.strip())} --kernel {one.kernel}"
    return f"pyclmm selftest --full {named}{case}"


def reasons(tested: list[Tested]) -> list[str]:
    """A line for each kernel that cannot run, with its reason."""
    return [f"{one.kernel}: {one.laws[0].reason}" for one in tested if one.verdict == REFUSED and one.laws]


def as_json(device: DeviceInfo, budget: float, full: bool, tested: list[Tested]) -> dict[str, Any]:
    """The report: versions, device, verdicts."""
    kernels = [
        {"kernel": one.kernel, "verdict": one.verdict, "worst_error_to_bound": one.worst}
        | {"seconds": round(one.seconds, 2), "build_logs": one.logs}
        | {"laws": [asdict(v) | {"repeat": repeat(one, v, device) if v.is_bad else None} for v in one.laws]}
        for one in tested
    ]
    content = report.header_json(device) | {"full": full, "budget_s": budget}
    content |= {"seed": drawn_products.SEED, "skipped": drawn_products.skipped(), "kernels": kernels}
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
