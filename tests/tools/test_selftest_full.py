"""`pyclmm selftest --full`: drawn products find faults that no law has, and its time is shared and told."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import asdict
from itertools import islice

import numpy as np
import pytest

from pyclmm.checks import drawn_products
from pyclmm.kernels import KERNELS, kernel_named
from pyclmm.opencl import compiler
from pyclmm.opencl.devices import default_device, device_info
from pyclmm.opencl.queues import default_queue
from pyclmm.problem.dtypes import ELEMENT_TYPES
from pyclmm.problem.gemm import ACTIVATIONS
from pyclmm.tools import laws, selftest
from tests.support import made_up
from tests.support.commands import command
from tests.support.contexts import new_queue
from tests.support.faults import changed_source

DEVICE = device_info(default_device())
NAIVE = kernel_named("naive")


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch):
    """A child has a context of its own; this process would go on with the programs that it has."""
    monkeypatch.setattr(selftest, "new_queue", lambda _: new_queue())


def asked(kernel="naive", case=None, seconds=600.0, full=True, what=None):
    """The verdicts that a child answers, or *what* else."""
    request = {"device": DEVICE.identity, "kernel": kernel, "full": full, "case": case, "seconds": seconds}
    said = list(selftest.answers(request))
    return [one[what] for one in said if what in one] if what else [one for one in said if "verdict" in one]


def drawn(wanted):
    """The number of the first drawn product of naive that is as *wanted*."""
    return next(one.number for one in drawn_products.products(NAIVE, DEVICE) if wanted(one.problem))


# -- what is drawn


def test_a_number_is_the_same_product_each_time():
    first, again = (list(drawn_products.products(NAIVE, DEVICE)) for _ in range(2))
    assert first == again
    assert [one.number for one in first] == list(range(drawn_products.MOST))
    assert list(islice(drawn_products.products(kernel_named("mma"), made_up.H200), 20))


def test_everything_that_a_user_may_ask_is_drawn():
    problems = [one.problem for one in drawn_products.products(NAIVE, DEVICE)]
    assert {p.a_type for p in problems} == set(ELEMENT_TYPES)
    assert {p.activation for p in problems} == set(ACTIVATIONS)
    assert {p.layout for p in problems} == {"NN", "NT", "TN", "TT"}
    assert {p.bias for p in problems} == {"none", "row", "column"}
    assert {len(p.batch_shape) for p in problems} >= {0, 1}
    assert {(p.has_c, p.reproducible) for p in problems} == {
        (c, r) for c in (True, False) for r in (True, False)
    }
    assert any(p.conj_a or p.conj_b for p in problems)
    assert any(p.a_type != p.b_type for p in problems)
    assert any(p.out_type != p.a_type for p in problems)
    assert min(p.a_align for p in problems) < 16
    assert max(p.m * p.n * p.k for p in problems) > 10**7


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_every_configuration_fits(kernel):
    for device in (DEVICE, made_up.H200, made_up.MI250):
        for one in islice(drawn_products.products(kernel, device), 5):
            assert kernel.refuses(one.problem, device) is None
            assert not kernel.violations(one.problem, one.config, device)


# -- what it finds: (source, right text, wrong text, what the product must have)

TYPES = "include/types.h"
FLAWS = {
    "slope": ("include/activation.h", "CONSTANT(0.01,", "CONSTANT(0.1,",
              lambda p: p.activation == "leaky_relu"),
    "int16": (TYPES, "_whole(p, i) ((p)[i])", "_whole(p, i) ((char)(p)[i])", lambda p: p.a_type == "int16"),
    "bits": (TYPES, "mac_real(acc, x, y) FMA(x, y, acc)", "mac_real(acc, x, y) ((acc) + FMA(x, y, 0))",
             lambda p: p.reproducible and p.a_type == p.out_type == "float32"),
}  # fmt: skip


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_drawn_product_finds_a_fault_and_its_number_repeats_it(monkeypatch, flaw):
    source, right, wrong, wanted = FLAWS[flaw]
    number = drawn(wanted)
    [said] = [said for said in asked(case=number) if said["cases"]]
    assert said["verdict"] == "passed"
    changed_source(monkeypatch, source, right, wrong)
    for _ in range(2):
        [said] = asked(case=number)
        assert (said["law"], said["verdict"], said["number"]) == (selftest.DRAWN, "wrong", number)
        assert f"product {number}, " in said["reason"]


def test_after_a_few_wrong_products_the_others_are_left_out(monkeypatch, use_laws):
    use_laws((), ())
    changed_source(monkeypatch, "textbook/naive.cl", "k < K; ++k", "k < K - 1; ++k")
    *bad, rest = [one for one in asked() if one["law"] == selftest.DRAWN]
    assert [one["verdict"] for one in bad] == ["wrong"] * selftest._ENOUGH
    assert (rest["verdict"], rest["left_out"]) == ("left out", drawn_products.MOST - selftest._ENOUGH)


def test_what_auto_chooses_is_tested_too(monkeypatch):
    found = asked("auto")
    assert [one["law"] for one in found] == [laws.INTERFACE, laws.BITS, laws.TILES]
    assert {one["verdict"] for one in found} == {"passed"}
    monkeypatch.setattr(laws, "gemm", lambda a, b, **_: np.zeros((a.shape[0], b.shape[1]), a.dtype))
    assert laws.check_tiles(default_queue()).wrong is not None


# -- its time


@pytest.mark.parametrize("full", [True, False])
def test_no_case_begins_after_the_time(full):
    found = asked(seconds=0.0, full=full)
    by_law = {one["law"]: one for one in found}
    assert {by_law[law.name]["verdict"] for law in laws.LAWS} == {"left out"}
    assert by_law[laws.LAWS[0].name]["left_out"] > 10
    assert by_law.get(selftest.DRAWN, {"left_out": 0})["left_out"] == drawn_products.MOST * full


def test_the_time_is_shared_by_the_kernels_that_can_run(clock, children):
    """A kernel that is refused takes none, and what one leaves the next ones get."""

    def answers(request):  # a slow kernel leaves cases out before it counts as hung
        clock.now += {"tiled": 100.0, "naive": 700.0, "flat": 500.0}[request["kernel"]]
        return ()

    children.answers = answers
    names = ("dpas", "tiled", "naive", "flat")
    assert len(list(selftest.run(DEVICE, 900.0, lambda _: None, asked=names))) == 4  # with the refusal
    shares = [request["seconds"] for request in children.requests]
    assert shares == [300.0, 400.0, 100.0]
    [grace] = {limit - share for limit, share in zip(children.limits, shares, strict=True)}
    assert 0 < grace < 15 * 60 - selftest.BUDGET


def test_ctrl_c_keeps_the_laws_of_the_kernel_that_runs():
    tested, begun = [], []

    def stop(stage):
        begun.append(stage)
        if len(begun) == 3:
            raise KeyboardInterrupt

    def collect():
        for one in selftest.run(DEVICE, 60.0, stop, asked=("naive",)):
            tested.append(one)

    with pytest.raises(KeyboardInterrupt):
        collect()
    [one] = tested
    assert [v.law for v in one.laws] == [law.name for law in laws.LAWS[:2]]


# -- the report


def test_the_report_says_how_to_repeat_what_failed(monkeypatch, children, use_laws, tmp_path):
    """The child is this process, so that the fault is in it."""
    flaw = FLAWS["slope"]
    number = drawn(flaw[3])
    changed_source(monkeypatch, *flaw[:3])
    use_laws((), ())
    few = [one for one in drawn_products.products(NAIVE, DEVICE) if one.number in (number - 1, number)]
    monkeypatch.setattr(drawn_products, "products", lambda *_: iter(few))

    children.answers = selftest.answers
    file = tmp_path / "report.json"
    done = command("selftest", "--full", "--kernel", "naive", "--report", str(file), status=1)
    [kernel] = json.loads(file.read_text())["kernels"]
    [bad] = [law for law in kernel["laws"] if law["verdict"] == "wrong"]
    assert bad["repeat"] in " ".join(done.output.split())
    words = shlex.split(bad["repeat"])
    assert words[-4:] == ["--kernel", "naive", "--case", str(number)]
    again = command(*words[1:], status=1)
    assert f"product {number}, " in again.output
    assert "covered: " not in again.output


def test_a_number_that_no_kernel_has_is_an_error(children):
    children.answers = selftest.answers
    arguments = ["selftest", "--kernel", "naive", "--kernel", "auto", "--case", "9999"]
    done = command(*arguments, status=2)
    assert "without a drawn product of this number: naive, auto\n" in done.stdout
    assert "cannot run here" not in done.stdout
    assert done.stderr.startswith("Error: --case 9999: no kernel that was asked for has such a product here")


def test_auto_may_be_asked_for_alone(children):
    children.answers = lambda request: [asdict(selftest.LawVerdict("x", selftest.PASSED, 1))]
    command("selftest", "--kernel", "auto")
    assert [request["kernel"] for request in children.requests] == ["auto"]


def test_what_a_compiler_says_is_in_the_report(monkeypatch):
    monkeypatch.setattr(compiler, "logs", lambda program: ["a register was spilled"])
    said = asked(case=0, what="log")
    assert said == ["the compiler says of textbook/naive.cl: a register was spilled"]


def test_a_compilers_warning_is_read(monkeypatch):
    changed_source(monkeypatch, "textbook/naive.cl", "__kernel void", "#warning odd\n__kernel void")
    said = asked(case=0, what="log")
    if not said:
        pytest.skip("the driver keeps its warnings to itself")
    assert re.search("textbook/naive.cl.*odd", said[0])
