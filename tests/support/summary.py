"""What a run of the tests says at its end: on which device, what was shown, and what was skipped and why."""

import re
import textwrap
from collections import Counter

from pyclmm import KERNELS
from tests.support.cases import DEVICE, missing

MOST_REASONS = 6
# What stands before a kernel's own words, and behind the hardware that it needs.
_BEFORE = re.compile(r"^Skipped: |^kernel '\w+' cannot compute .*? on '.*?': ")
# A family's own reason, and what a newcomer understands.
_PLAIN = (
    (re.compile(r"^(?:\w+ )?(needs an? \w+ device)\b.*"), r"\1"),
    (re.compile(r"^amx needs .*"), "needs an Intel processor with AMX"),
    (re.compile(r"^\w+ multiplies .*, not .*"), "the kernel does not multiply these element types"),
)
# What tests show, by their folders in tests/; what lies in no such folder is the first.
AREAS = {
    "functions: NumPy's results, errors, pages": ("problem", "linalg", "many", "formats", "quantized"),
    "kernels, on the device or simulated": ("kernels", "selection"),
    "drivers, faults and the self-check": ("opencl", "execution", "checks", "campaigns", "conformance"),
    "products in tiles": ("streaming",),
    "arrays on CUDA, PyTorch": ("cuda", "frameworks"),
    "commands, examples, the road": ("tools", "examples", "road", "benchmarks", "install"),
}


def lines(stats, fast):
    """*stats*: pytest's reports by outcome. *fast*: whether what is marked slow was left out."""
    passed, skipped = len(stats.get("passed", ())), stats.get("skipped", ())
    able = sum(missing(kernel) is None for kernel in KERNELS)
    device = f"{DEVICE.name} ({DEVICE.platform} {DEVICE.driver_version}, {DEVICE.kind})"
    yield f"Shown on {device}: {passed:,} tests passed; {able} of {len(KERNELS)} kernels can run."
    shown = Counter(area(report.nodeid) for report in stats.get("passed", ()))
    yield from (f"{shown[what]:6,}  {what}" for what in AREAS if shown[what])
    if fast:
        yield "Left out: further combinations of parameters, and long waits. `make test-all` runs them too."
    if not skipped:
        return
    yield f"Skipped, {len(skipped):,} tests:"
    found = Counter(reason(report.longrepr) for report in skipped).most_common()
    yield from (
        f"{count:6,}  {textwrap.shorten(why, 95, placeholder=' ...')}" for why, count in found[:MOST_REASONS]
    )
    if rest := sum(count for _, count in found[MOST_REASONS:]):
        yield f"{rest:6,}  other reasons (`pytest -rs` lists them)"


def reason(longrepr):
    """Why a test was skipped, without the names of kernel and product."""
    text = longrepr[-1] if isinstance(longrepr, tuple) else str(longrepr)
    for _ in range(2):
        text = _BEFORE.sub("", text)
    for pattern, plain in _PLAIN:
        text = pattern.sub(plain, text)
    return text


def area(nodeid):
    """What the test of that name shows, of AREAS."""
    folder = nodeid.split("/")[1]
    return next((what for what, folders in AREAS.items() if folder in folders), next(iter(AREAS)))
