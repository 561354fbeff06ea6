"""The verdicts of `make conformance`: what fails a run, and that a crash ends only its own run."""

import sys

import pytest

from pyclmm.checks.fixed_products import PRODUCTS
from pyclmm.formats import FORMATS
from pyclmm.kernels import KERNELS
from pyclmm.problem.dtypes import dtype_of
from tests.conformance import __main__ as command
from tests.conformance import grid, report, run
from tests.conformance.implementations import IMPLEMENTATIONS, MATRIX_UNITS, Implementation

pytestmark = pytest.mark.slow  # no function of pyclmm: what runs `make conformance`

HEAD = """
import os, time
import pytest

def about(kernel, dtype="float32"):
    return pytest.mark.parametrize(("kernel", "dtype"), [(kernel, dtype)])
"""
RIGHT = '@about("naive")\ndef test_right(kernel, dtype): pass\n'
WRONG = '@about("tiled")\ndef test_wrong(kernel, dtype): assert 1 == 2, "off by one"\n'
ERROR = (
    "@pytest.fixture\ndef broken(): raise RuntimeError('no queue')\n"
    '@about("tiled")\ndef test_error(kernel, dtype, broken): pass\n'
)
DIES = '@about("tiled")\ndef test_dies(kernel, dtype): os.abort()\n'
HANGS = '@about("tiled")\ndef test_hangs(kernel, dtype): time.sleep(600)\n'
KNOWN = (
    '@about("tiled", "float64")\ndef test_known(kernel, dtype): pytest.skip("float64 needs cl_khr_fp64")\n'
)
UNKNOWN = '@about("tiled")\ndef test_unknown(kernel, dtype): pytest.skip("not today")\n'
BROKEN = "import no_such_module\n"


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """A function that runs the text of a test module on a fake implementation."""
    monkeypatch.setattr(run, "HOME", tmp_path)
    (tmp_path / "driver.so").touch()

    def ran(text, name="fake", limit_s=600.0):
        module = tmp_path / f"test_{name}.py"
        module.write_text(HEAD + text)
        fake = Implementation(name, name, tmp_path, "driver.so", refusals=(r"needs cl_khr_fp64",))
        return run.run(fake, (str(module), "-p", "no:cacheprovider"), limit_s)

    return ran


def verdicts(found):
    return {outcome.test.split("::")[1].split("[")[0]: outcome.verdict for outcome in found.outcomes}


def test_right_answers_and_known_refusals_are_good(ran):
    found = ran(RIGHT + KNOWN)
    assert verdicts(found) == {"test_right": "passed", "test_known": "refused"}
    assert found.good
    rows = report.kernel_table([found])
    assert rows[1:] == [["naive", "float32", "passed"], ["tiled", "float64", "refused"]]
    assert report.reasons([found])[1][-2:] == ["refused", "float64 needs cl_khr_fp64"]


@pytest.mark.parametrize(
    ("text", "test", "reason"),
    [
        (WRONG, "test_wrong", "off by one"),
        (ERROR, "test_error", "no queue"),
        (UNKNOWN, "test_unknown", "not today"),
    ],
)
def test_wrong_answers_and_unexplained_skips_fail(ran, text, test, reason):
    found = ran(RIGHT + text)
    assert verdicts(found) == {"test_right": "passed", test: "FAILED"}
    assert not found.good
    assert reason in found.outcomes[1].reason
    assert ["tiled", "float32", "FAILED"] in report.kernel_table([found])


@pytest.mark.skipif(sys.platform == "win32", reason="signals are another matter there")
def test_a_process_that_dies_names_its_test_and_ends_no_other(ran):
    dead, well = ran(RIGHT + DIES, "dead"), ran(RIGHT, "well")
    assert dead.trouble == "the process died: SIGABRT"
    assert verdicts(dead) == {"test_right": "passed", "test_dies": "FAILED"}
    assert not dead.good
    assert well.good


def test_a_process_that_hangs_is_ended(ran):
    found = ran(RIGHT + HANGS, limit_s=20.0)  # long enough to begin on a busy machine
    assert found.trouble == "not finished after 20 s"
    assert verdicts(found)["test_hangs"] == "FAILED"
    assert not found.good


@pytest.mark.parametrize("text", [BROKEN, ""])
def test_a_run_without_tests_fails(ran, text):
    found = ran(text)
    assert found.trouble
    assert not found.good


def test_a_missing_implementation_fails_the_run(ran, tmp_path):
    absent = Implementation("absent", "absent", tmp_path, "no-such-library.so")
    found = run.run(absent, (), 60.0)
    assert "no no-such-library.so below" in found.trouble
    assert not found.good


def test_every_kernel_has_to_pass_somewhere():
    names = [kernel.name for kernel in KERNELS if kernel.name not in MATRIX_UNITS]
    found = run.Run(IMPLEMENTATIONS[0])
    found.outcomes = [run.Outcome(name, "float32", "test", "passed") for name in names[1:]]
    found.demand_every_kernel()
    assert found.trouble == f"never passed: {names[0]}"


@pytest.fixture(params=[False, True])
def few(request, monkeypatch):
    """Whether the grid is of the drivers that share it."""
    monkeypatch.setattr(grid, "FEW", request.param)
    return request.param


@pytest.mark.usefixtures("few")
def test_a_share_leaves_each_kernel_what_it_must_pass():
    kept = {case.values[0].name for case in (*grid.grid(), *grid.weights_grid()) if case.marks}
    # Matrix units' families for weights run nowhere here: their tests are those of their emulation
    assert kept == {kernel.name for kernel in (*grid.OF_NUMBERS, *grid.OF_WEIGHTS, *grid.OF_ROUNDED)}
    assert {kernel.name for kernel in KERNELS} - kept <= {
        "mma_quantized",
        "wgmma_quantized",
        "wgmma_fragments",
    }


def test_weights_of_every_kind_are_multiplied_by_every_family_for_them(few):
    cases = [case.values for case in grid.weights_grid()]
    assert {kernel for kernel, *_ in cases} == {*grid.OF_WEIGHTS, *grid.OF_ROUNDED}
    rounded = {case.form for kernel, _, case in cases if kernel in grid.OF_ROUNDED}
    assert rounded == {form for form in grid.KINDS_OF_WEIGHTS if form.has_codes}
    assert few or {dtype for _, dtype, _ in cases} == {"float32", "float16", "bfloat16"}
    assert any(case.reproducible for *_, case in cases)
    assert any(case.epilogue for *_, case in cases)
    assert few or {case.form for *_, case in cases} == set(grid.KINDS_OF_WEIGHTS)
    known = {(form.mode, form.bits) for form in grid.KINDS_OF_WEIGHTS}
    assert known == {(form.mode, form.bits) for form in FORMATS}


@pytest.mark.parametrize(
    ("outcome", "status"), [("passed", 0), ("refused", 0), ("FAILED", 1), (None, 1)], ids=str
)
def test_ci_fails_for_one_bad_run(monkeypatch, tmp_path, capsys, outcome, status):
    """One of the five runs has this outcome. None: its process died before any test."""
    runs = [run.Run(one, [run.Outcome("naive", "int8", "test", "passed")]) for one in IMPLEMENTATIONS]
    runs[3].outcomes = [run.Outcome("naive", "int8", "test", outcome, "its reason")] if outcome else []
    runs[3].trouble = "" if outcome else "the process died: SIGSEGV"
    ready = {
        "prepare": lambda: None,
        "newer_ones": lambda _: [],
        "run_all": lambda *_: runs,
        "HOME": tmp_path,
    }
    for name, value in ready.items():
        monkeypatch.setattr(command, name, value)
    assert command.main(["--no-offline", "--tests", "some"]) == status
    shown = capsys.readouterr().out
    assert ("its reason" in shown) == (outcome in ("refused", "FAILED"))
    assert ("SIGSEGV" in shown) == (outcome is None)


@pytest.mark.parametrize(
    ("name", "value", "least", "share"), [("FEW", True, 3, 2), ("OCLGRIND_LOG", "a log", 1, 5)]
)
def test_few_fixed_products_are_all_of_them_together(monkeypatch, name, value, least, share):
    whole = fixed_products()
    monkeypatch.setattr(grid, name, value)
    chosen = fixed_products()
    assert whole.keys() == chosen.keys() == {kernel.name for kernel in grid.OF_NUMBERS}
    for kernel, products in chosen.items():
        assert not grid.FEW or kinds(products) == kinds(whole[kernel]), kernel
    able = [chosen[kernel] for kernel in chosen if kernel not in MATRIX_UNITS]
    for product in PRODUCTS:
        assert sum(product in products for products in able) >= least, product.name
    assert sum(map(len, chosen.values())) < sum(map(len, whole.values())) / share


def fixed_products():
    found = {}
    for kernel, _, product in (case.values for case in grid.offers()):
        found.setdefault(kernel.name, []).append(product)
    return found


def kinds(products):
    """The float types, kinds of data and shapes of products without epilogue and stack."""
    plain = [p for p in products if f"{p.dtype} {p.data}" == p.name and dtype_of(p.dtype).kind in "fcV"]
    return {p.dtype for p in plain}, {p.data for p in plain}, {p.shape for p in plain}
