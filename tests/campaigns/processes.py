"""Faults of processes and caches, against real processes: ``make campaign``.

    python -m tests.campaigns.processes [--seconds 600] [--seed N] [--only PATTERN] [--driver pocl-3.1]
                                        [--record FILE.json]

Processes are killed while they plan, compile and check; files of every cache are damaged; caches cannot be
written; disks are full; queues are out of order. Afterwards a new process must give right products by the
kernels that a healthy one uses, without a warning that stays. A line tells the seed, what was done and the
outcome of each scenario; a table counts them. Exit code 1 at any failure.

Linux only. What needs root (mounts, another user) is skipped with that reason for others.
"""

import argparse
import json
import os
import random
import re
import secrets
import subprocess
import sys
import time
from collections import Counter
from itertools import zip_longest
from pathlib import Path

from tests.campaigns.box import CHILD, ROOT, Box, Failed
from tests.conformance.implementations import IMPLEMENTATIONS
from tests.conformance.run import environment as environment_of

KILLS = 1000
HOW = {
    "cut": lambda content, r: content[: r.randrange(len(content))],
    "random": lambda content, r: r.randbytes(len(content)),
    "emptied": lambda content, r: b"",
}
DTYPES = ("float32", "float64", "float16", "complex64", "complex128", "int8", "int32", "int64")
NO_PYOPENCL_CACHE = "CacheWarning: PyOpenCL's caches in "
NOT_KEPT = ": not all can be kept, so "  # in pyclmm's own
SET_ASIDE = "was set aside"
PAST_THE_CACHE = "compiled past the driver's cache"
OUTCOMES = ("passed", "failed", "skipped")


class Skipped(Exception):  # noqa: N818 - an outcome, as in pytest
    """The scenario cannot be run here."""


class Lab:
    """Makes boxes of one driver, empty ones and copies of a box whose caches a healthy process has filled."""

    def __init__(self, base):
        self.base = base
        self.filled = Box(base)
        start = time.monotonic()
        self.healthy = self.filled.multiply()
        self.cold_s = time.monotonic() - start
        if self.healthy.warnings:
            raise Failed(f"a healthy process warns: {self.healthy.warnings}")

    def box(self):
        return Box(self.base)

    def copy(self):
        return Box(self.base, like=self.filled)

    def kinds(self):
        """Kinds of files in the caches ("pyclmm .json") -> their paths in the home."""
        found = {}
        for path in self.filled.files():
            within = path.relative_to(self.filled.home)
            owner = within.parts[1] if within.parts[0] == ".cache" else within.parts[0]
            name = within.suffix or re.sub(r"_\w{6}$", "", within.name)  # PoCL's temporary names
            found.setdefault(f"{owner} {name}", []).append(within)
        return found

    def check(self, box, first=(), later=(), before=(), needed=()):
        """Two new processes give right products, by the usual kernels. They may give only these warnings, and
        give those *needed*, each once.
        """
        for allowed in (first, later):
            said = box.multiply(before=before)
            if said.kernels != self.healthy.kernels:
                raise Failed(f"other kernels: {said.kernels}, {said.warnings}")
            unexpected = [text for text in said.warnings if not any(words in text for words in allowed)]
            if unexpected:
                raise Failed(f"it warns: {unexpected[0][:300]}")
            for words in needed:
                if (times := sum(words in text for text in said.warnings)) != 1:
                    raise Failed(f"it warns {times} times: {words}")
        for path in (box.home / ".cache" / "pyclmm").rglob("*.json"):
            try:
                json.loads(path.read_text())
            except ValueError:
                raise Failed(f"{path.name} stays damaged") from None


# -- processes are killed


def kill(lab, r):
    with lab.box() as box:
        processes = [box.start() for _ in range(r.randint(1, 3))]
        moment, all_of_them = r.uniform(0, lab.cold_s), r.random() < 0.5
        time.sleep(moment)
        for process in processes:
            process.kill()
        if all_of_them:
            box.kill_all()
        for process in processes:
            process.communicate()
        lab.check(box, first=(SET_ASIDE, "invalid info file"))
    children = " and their children" if all_of_them else ""
    return f"{len(processes)} processes{children} killed after {moment:.2f} s of {lab.cold_s:.1f}"


# -- files are damaged


def damage(kind, how):
    def scenario(lab, r):
        files = lab.kinds()[kind]
        with lab.copy() as box:
            for name in files:
                path = box.home / name
                content = path.read_bytes()
                path.write_bytes(HOW[how](content, r) if content else b"")
            if kind.startswith("pyclmm"):
                lab.check(box, first=(SET_ASIDE,))
            elif kind.startswith("pocl"):  # PoCL may end the process that meets the files
                box.ended(box.start())
                lab.check(box, first=(PAST_THE_CACHE,))
            else:
                words = ("PyOpenCL's caches", "invalid info file")
                lab.check(box, first=words, later=words)
        return f"{len(files)} files {how}"

    return scenario


# -- caches cannot be written


def mounted(script):
    """A command that runs another one in mounts of its own, after *script*. Only root can."""
    if os.geteuid():
        raise Skipped("needs root, to mount")
    return ("unshare", "-m", "sh", "-ec", f'{script}\nexec "$@"', "sh")


def as_user(number):
    """A command that runs another one as that user, who may read everything. Only root can."""
    if os.geteuid():
        raise Skipped("needs root, to become another user")
    reads = "+dac_read_search"
    who = (f"--reuid={number}", f"--regid={number}", "--clear-groups")
    return ("setpriv", *who, f"--inh-caps={reads}", f"--ambient-caps={reads}")


UNUSED = NO_PYOPENCL_CACHE, NOT_KEPT


def refused(lab, before=(), needed=UNUSED, **environment):
    """PyOpenCL's caches and pyclmm's cannot be used: each process warns, once of each. PoCL's can."""
    with lab.box() as box:
        pocl = box.home / "pocl"
        pocl.mkdir()
        for folder in (box.folder, box.home):
            folder.chmod(0o755)
        for user in (int(part.partition("=")[2]) for part in before if part.startswith("--reuid=")):
            os.chown(pocl, user, user)
        (box.home / "file").touch()
        (box.home / ".cache").mkdir()
        for name, value in environment.items():
            box.environment[name] = value.format(home=box.home)
            if not value:
                del box.environment[name]
        before = tuple(part.format(home=box.home) for part in before)
        lab.check(box, first=UNUSED, later=UNUSED, before=before, needed=needed)
    return "products without caches"


def below_a_file(lab, _r):
    return refused(lab, XDG_CACHE_HOME="{home}/file")


def home_is_proc(lab, _r):
    return refused(lab, HOME="/proc")


def read_only_root(lab, _r):
    return refused(lab, mounted("mount -t tmpfs -o mode=700 none {home}/pocl; mount -o remount,bind,ro /"))


def nobody(lab, _r):
    return refused(lab, as_user(65534), HOME="/")


def unknown_user(lab, _r):
    return refused(lab, as_user(54321), HOME="")


def full_disk(lab, _r):
    fill = "mount -t tmpfs -o size=16k none {home}/.cache; head -c 64k /dev/zero > {home}/.cache/x || true"
    return refused(lab, mounted(fill))


def nearly_full_disk(lab, _r):
    """PyOpenCL's database has no room; pyclmm's small files may have."""
    mount = "mount -t tmpfs -o size=16k none {home}/.cache"
    return refused(lab, mounted(mount), needed=(NO_PYOPENCL_CACHE,))


def pocl_says_what_would_do(lab, before=(), **environment):
    if "pocl" not in {path.name for path in lab.filled.home.iterdir()}:
        raise Skipped("the driver is not PoCL")
    with lab.box() as box:
        (box.home / "pocl").mkdir()
        (box.home / "file").touch()
        box.environment |= {name: value.format(home=box.home) for name, value in environment.items()}
        before = tuple(part.format(home=box.home) for part in before)
        code, _, err = box.ended(box.start(before=before))
        if code != 1 or "set POCL_CACHE_DIR" not in err:
            raise Failed(f"exit code {code}: {err.strip()[-300:]}")
    return "an error that names POCL_CACHE_DIR"


def pocl_below_a_file(lab, _r):
    return pocl_says_what_would_do(lab, POCL_CACHE_DIR="{home}/file/pocl")


def pocl_full_disk(lab, _r):
    mount = "mount -t tmpfs -o size=16k,mode=700 none {home}/pocl"
    fill = f"{mount}; head -c 64k /dev/zero > {{home}}/pocl/x || true"
    return pocl_says_what_would_do(lab, mounted(fill))


# -- queues


def out_of_order(lab, _r):
    """A process that fills the caches on an out-of-order queue, then one on an in-order queue."""
    with lab.box() as box:
        said = [box.multiply("--queue", order, "--dtype", *DTYPES) for order in ("out-of-order", "in-order")]
    for each in said:
        if each.warnings:
            raise Failed(f"it warns: {each.warnings[0][:300]}")
    if said[0].kernels != said[1].kernels:
        raise Failed(f"other kernels: {said[0].kernels}, {said[1].kernels}")
    return f"{len(DTYPES)} dtypes"


UNWRITABLE = (
    below_a_file,
    home_is_proc,
    read_only_root,
    nobody,
    unknown_user,
    full_disk,
    nearly_full_disk,
    pocl_below_a_file,
    pocl_full_disk,
)


def scenarios(lab, r):
    """(name, scenario) of each, taken from every family in turn, so that a short run has some of all."""
    kinds = [(f"damage {kind} {how}", damage(kind, how)) for kind in sorted(lab.kinds()) for how in HOW]
    families = [
        [(f"kill {number}", kill) for number in range(KILLS)],
        r.sample(kinds, len(kinds)),
        r.sample([(f"unwritable {x.__name__}", x) for x in UNWRITABLE], len(UNWRITABLE)),
        [("queue out_of_order", out_of_order)],
    ]
    return [one for turn in zip_longest(*families) for one in turn if one is not None]


def outcome(scenario, lab, r):
    """(outcome, what was done or why not) of one scenario."""
    try:
        return "passed", scenario(lab, r)
    except Skipped as reason:
        return "skipped", str(reason)
    except Failed as reason:
        return "failed", str(reason)


def run(lab, options, seed):
    """Run scenarios until the time is over; a record of each."""
    records, end = [], time.monotonic() + options.seconds
    for name, scenario in scenarios(lab, random.Random(seed)):
        if not re.search(options.only, name):
            continue
        start = time.monotonic()
        if start > end:
            break
        how, text = outcome(scenario, lab, random.Random(f"{seed} {name}"))
        seconds = round(time.monotonic() - start, 1)
        records.append({"scenario": name, "outcome": how, "what": text, "seconds": seconds})
        print(f"seed {seed}, {name}: {how}: {text} ({seconds} s)", flush=True)
    return records


def summary(records, names):
    """A table: a row for each family, with how many of its scenarios ended how, and how many there are."""
    counts, there = Counter(), Counter(name.split()[0] for name in names)
    for record in records:
        counts[record["scenario"].split()[0], record["outcome"]] += 1
    yield f"| scenarios | {' | '.join(OUTCOMES)} | there are |"
    yield "|---" * (len(OUTCOMES) + 2) + "|"
    for family in there:
        row = [str(counts[family, how]) for how in OUTCOMES]
        yield f"| {family} | {' | '.join(row)} | {there[family]} |"


def header(base):
    """The device and the versions, from a process that sees the driver."""
    code = """import json
from pyclmm.opencl.devices import default_device, device_info
from pyclmm.tools.report import header_json
print(json.dumps(header_json(device_info(default_device()))))"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=base | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def main(arguments=None, base=None):
    """Run the campaign; returns how many scenarios failed. *base*: the environment of its processes."""
    parser = argparse.ArgumentParser(description=f"faults of processes and caches; a process is {CHILD.name}")
    parser.add_argument("--seconds", type=float, default=600, help="begin no scenario after that time")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", default="", help="scenarios whose names match this pattern")
    parser.add_argument("--driver", choices=[one.name for one in IMPLEMENTATIONS], help="as in conformance")
    parser.add_argument("--record", type=Path, help="write what was done, device and versions to this file")
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    base = dict(os.environ) if base is None else base
    if options.driver:
        base |= environment_of(next(one for one in IMPLEMENTATIONS if one.name == options.driver))
    lab = Lab(base)
    with lab.filled:
        print(f"seed {seed}, a healthy process: {lab.cold_s:.1f} s, {lab.healthy.kernels}", flush=True)
        records = run(lab, options, seed)
        names = [name for name, _ in scenarios(lab, random.Random(seed)) if re.search(options.only, name)]
        print(*summary(records, names), sep="\n")
    if options.record:
        found = header(base) | {"seed": seed, "healthy": lab.healthy.kernels, "scenarios": records}
        options.record.write_text(json.dumps(found, indent=1) + "\n")
    return sum(record["outcome"] == "failed" for record in records)


if __name__ == "__main__":
    raise SystemExit(bool(main()))
