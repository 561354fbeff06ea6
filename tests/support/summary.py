"""What a run of the tests says at its end: on which device, what was shown, and what was skipped and why."""

import re
from collections import Counter

from pyclmm import KERNELS
from tests.support.cases import DEVICE, missing

MOST_REASONS = 6
# What stands before a kernel's own words, and behind the hardware that it needs.
_BEFORE = re.compile(r"^Skipped: |^kernel '\w+' cannot compute .*? on '.*?': ")
_HARDWARE = re.compile(r"^(?:\w+ )?(needs an? \w+ device)\b.*")


def lines(stats, fast):
    """*stats*: pytest's reports by outcome. *fast*: whether what is marked slow was left out."""
    passed, skipped = len(stats.get("passed", ())), stats.get("skipped", ())
    able = sum(missing(kernel) is None for kernel in KERNELS)
    device = f"{DEVICE.name} ({DEVICE.platform} {DEVICE.driver_version}, {DEVICE.kind})"
    yield f"Shown on {device}: {passed:,} tests passed; {able} of {len(KERNELS)} kernels can run."
    if fast:
        yield "Left out: further combinations of parameters, and long waits. `make test-all` runs them too."
    if not skipped:
        return
    yield f"Skipped, {len(skipped):,} tests:"
    found = Counter(reason(report.longrepr) for report in skipped).most_common()
    yield from (f"{count:6,}  {why[:95]}" for why, count in found[:MOST_REASONS])
    if rest := sum(count for _, count in found[MOST_REASONS:]):
        yield f"{rest:6,}  other reasons (`pytest -rs` lists them)"


def reason(longrepr):
    """Why a test was skipped, without the names of kernel and product."""
    text = longrepr[-1] if isinstance(longrepr, tuple) else str(longrepr)
    for _ in range(2):
        text = _BEFORE.sub("", text)
    return _HARDWARE.sub(r"\1", text)
