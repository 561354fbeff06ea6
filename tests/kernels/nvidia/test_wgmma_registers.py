"""wgmma takes its left operand from registers while its work-item goes on. PTX: they must not change until a
wait for its group. ptxas says nothing where they do, and gives them to others before the wait.
"""

from __future__ import annotations

import re

import pytest

from pyclmm.kernels import kernel_named
from tests.support.made_up import H200

from .test_matrix_units import clang, problem, ptx_of
from .test_quantized_units import WGMMA, of

_LEFT = re.compile(r"wgmma\.mma_async\S+ \{[^}]*\}, \{([^}]*)\}")
_WAIT = re.compile(r"wgmma\.wait_group\S+ (\d+)")
_BRANCH = re.compile(r"(@!?%p\d+\s+)?bra(?:\.uni)?\s+(\S+);")
_RESULTS = re.compile(r"(?:@!?%?\w+\s+)?[a-z][\w.:]*\s+(%\w+|\{[%\w, ]+\})[,|]")


def changed_in_flight(ptx):
    """The lines of *ptx* that write a register which a multiplication may still read, on any way through it.
    What is in flight: the registers of the group that is open, and of those that nobody has waited for."""
    lines = [line.strip().removeprefix("//@sm_90a ") for line in ptx.splitlines()]
    labels = {line[:-1]: at for at, line in enumerate(lines) if line.endswith(":")}
    seen, found = set(), set()
    ways = [(at, frozenset(), ()) for at, line in enumerate(lines) if ".entry" in line]
    while ways:
        at, opened, groups = way = ways.pop()
        if way in seen or at == len(lines):
            continue
        seen.add(way)
        line = lines[at]
        if (jump := _BRANCH.match(line)) or line == "ret;":
            if jump:
                ways.append((labels[jump[2]], opened, groups))
            if not jump or not jump[1]:
                continue
        elif left := _LEFT.search(line):
            opened |= {name.strip() for name in left[1].split(",")}
        elif "wgmma.commit_group" in line:
            opened, groups = frozenset(), (*groups, opened)
        elif wait := _WAIT.search(line):
            groups = groups[len(groups) - min(int(wait[1]), len(groups)) :]
        elif (written := _RESULTS.match(line)) and not opened.union(*groups).isdisjoint(
            re.findall(r"%\w+", written[1])
        ):
            found.add(line)
        ways.append((at + 1, opened, groups))
    return found


@clang
@pytest.mark.parametrize("rows", [8, 128])
@pytest.mark.parametrize("case", ["float16-affine4_g64_float16", "bfloat16-affine3_g32_float32"])
def test_quantised_weights_stay_until_they_are_multiplied(case, rows):
    kind, name = case.split("-")
    given = of(kind, (rows, 4096, 4096), name)
    tiles = {(c.bn, c.bk, c.option("resident", 0)): c for c in WGMMA.candidates(given, H200)}
    check_programs(WGMMA, given, tiles.values())


@clang
@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_operands_that_lie_across_k_stay_until_they_are_multiplied(kind):
    given, kernel = problem(kind, trans="TN", precision="medium"), kernel_named("wgmma")
    check_programs(kernel, given, kernel.candidates(given, H200)[:3])


def check_programs(kernel, given, configs):
    found = 0
    for config in configs:
        for launch in kernel.launches(given, config, H200).launches:
            ptx = ptx_of(launch.program)
            found += len(_LEFT.findall(ptx))
            assert not changed_in_flight(ptx), config
    assert found, "no multiplication takes registers"
