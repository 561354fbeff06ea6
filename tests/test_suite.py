"""The suite itself: what `make test` leaves out, what a run says at its end, and the driver it means."""

import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyclmm.opencl.devices import default_device
from tests.support import driver, optional, short_headers, summary
from tests.support.processes import python
from tests.support.selection import few, slow

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[1]
ALONE = ("-p", "no:benchmark")  # a plugin that warns beside xdist, so that no test of the inner run is run

COMBINED = """
import pytest
from tests.support.selection import mark_combinations, slow

def pytest_collection_modifyitems(items):
    mark_combinations(items)
"""
CASES = """
import pytest
from tests.support.selection import slow

@pytest.mark.parametrize("a", [1, 2, 3])
@pytest.mark.parametrize("b", "uvwxy")
def test_two(a, b): pass

@pytest.mark.parametrize("a", [1, *slow(2, 3)])
def test_one(a): pass

@pytest.mark.parametrize(("a", "b"), [(1, 2), (1, 3)])
def test_rows(a, b): pass
"""


def test_each_value_runs_once_and_all_combinations_in_all(pytester):
    pytester.makeconftest(COMBINED)
    pytester.makepyfile(CASES)
    pytester.makeini("[pytest]\nmarkers =\n  slow: x\n")
    kept = pytester.inline_run(*ALONE, "-m", "not slow").listoutcomes()[0]
    names = [report.nodeid.split("::")[1] for report in kept]
    two = [set(name.removeprefix("test_two[").rstrip("]").split("-")) for name in names if "two" in name]
    assert set().union(*two) == set("uvwxy123")  # whichever of a and b pytest names first
    assert len(two) == 5
    assert names[5:] == ["test_one[1]", "test_rows[1-2]", "test_rows[1-3]"]
    assert len(pytester.inline_run(*ALONE).listoutcomes()[0]) == 15 + 3 + 2


ROUNDS = """
import pytest
from tests.support.selection import mark_rounds, rounds

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    mark_rounds(items)

@pytest.fixture(name="rounds")
def of_a_test():
    return rounds
"""


def test_what_repeats_itself_runs_again_with_what_is_slow(pytester):
    pytester.makeconftest(ROUNDS)
    pytester.makepyfile("def test_often(rounds): assert rounds(8)\ndef test_once(): pass")
    pytester.makeini("[pytest]\nmarkers =\n  rounds: x\n")
    [rest] = re.findall(r'-m "(slow .*)"', (ROOT / "Makefile").read_text())
    kept = pytester.inline_run(*ALONE, "-m", rest).listoutcomes()[0]
    assert [report.nodeid.split("::")[1] for report in kept] == ["test_often"]
    assert f'"{rest}"' in (ROOT / "tests/campaigns/seeded_faults.py").read_text()


def test_few_rows_have_each_value_of_the_columns():
    rows = [("f4", "N", 1), ("f4", "T", 2), ("f8", "N", 3), ("f8", "T", 4), ("i4", "T", 5)]
    kept = [row.values for row in few(rows, 0, 1) if not row.marks]
    assert {row[0] for row in kept} == {"f4", "f8", "i4"}
    assert {row[1] for row in kept} == set("NT")
    assert len(kept) == 3
    assert [case.values for case in slow(1, 2)] == [(1,), (2,)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Skipped: needs zarr", "needs zarr"),
        ("Skipped: mma needs an NVIDIA device of compute capability 8.0 or more", "needs an NVIDIA device"),
        (
            "Skipped: amx needs PoCL on a processor of Intel's with AMX: x",
            "needs an Intel processor with AMX",
        ),
        (
            "Skipped: limbs multiplies float64 with precision='high', not float32 by float32",
            "the kernel does not multiply these element types",
        ),
        ("Skipped: kernel 'dpas' cannot compute 1 x 2 on 'x': dpas needs an Intel device with", None),
    ],
)
def test_a_reason_is_told_without_names(text, told):
    assert summary.reason(("file", 3, text)) == (told or "needs an Intel device")


def test_the_last_lines_are_few_whatever_was_skipped():
    skipped = [
        SimpleNamespace(longrepr=("file", 1, f"Skipped: reason {n % 40} {'word ' * 30}")) for n in range(1256)
    ]
    passed = [SimpleNamespace(nodeid=name) for name in ("tests/kernels/test_a.py::x", "tests/test_b.py::y")]
    told = list(summary.lines({"passed": passed * 750, "skipped": skipped}, fast=True))
    assert told[1:3] == [
        "   750  functions: NumPy's results, errors, pages",
        "   750  kernels, on the device or simulated",
    ]
    del told[1:3]
    assert len(told) == 2 + 1 + summary.MOST_REASONS + 1
    assert all(line.endswith("word ...") for line in told[3:-1]), "no word is cut"
    assert default_device().name.strip() in told[0]
    assert "1,500 tests passed" in told[0]
    assert "make test-all" in told[1]
    assert told[2] == "Skipped, 1,256 tests:"
    assert sum(int(line.split()[0].replace(",", "")) for line in told[3:]) == 1256


def test_what_is_shown_is_told_of_every_folder():
    folders = {path.name for path in (ROOT / "tests").iterdir() if list(path.glob("**/test_*.py"))}
    assert {folder for folders in summary.AREAS.values() for folder in folders} == folders


def test_the_driver_of_the_default_device_is_named_where_there_are_several(monkeypatch, tmp_path):
    for name in ("OCL_ICD_VENDORS", "PYOPENCL_CTX"):
        monkeypatch.setenv(name, "")  # and as it was, after the test
    wanted = driver.default_device()
    [library, *_] = [
        name for name in driver.libraries() if driver.default_device(**alone(tmp_path, name)) == wanted
    ]
    monkeypatch.setattr(driver, "libraries", lambda: ["/no/such/library.so", library])
    driver.name_it(tmp_path)
    assert Path((tmp_path / "tested.icd").read_text().strip()).resolve() == Path(library).resolve()
    assert os.environ["OCL_ICD_VENDORS"] == str(tmp_path / "tested.icd")


def alone(folder, library):
    (folder / "one.icd").write_text(f"{library}\n")
    return {"OCL_ICD_VENDORS": str(folder / "one.icd"), "PYOPENCL_CTX": ""}


def test_only_declarations_that_a_source_may_need_are_kept(monkeypatch):
    monkeypatch.setattr(short_headers, "words", lambda: {"fmax", "fma", "vload"})
    kept = "#define twice(x) x * 2\nfloat4 __ovld __cnfn fma(float4 x, float4 y, float4 z);\n"
    kept += "float __ovld fmax(float, float);\nint4 __ovld vload4(size_t n, const int *p);\n"
    left_out = (
        "float __ovld __cnfn fmin(float x,\n    float y);\nfloat3 __ovld fma(float3 x, float3, float3);\n"
    )
    left_out += "float4 __ovld fmax(float4 x, float4 y);\nint3 __ovld vload3(size_t n, const int *p);\n"
    end = "#ifdef cl_khr_fp16\nhalf __ovld fmax(half, half);\n#endif\ntypedef enum { one, two } kind;\n"
    assert short_headers.declarations(kept + left_out + end) == kept + end


@pytest.mark.parametrize("name", ["libnvidia-opencl.so.1", "/lib/libpocl.so.2", "libpocl.so"])
def test_another_driver_is_left_as_it_is(tmp_path, name):
    assert short_headers.shortened(Path(name), tmp_path) == Path(name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("library", "data"),
    [
        ("pyopencl/.libs/libpocl-1.so", "pocl_binary_distribution/.libs/share/pocl"),
        ("lib/x86_64-linux-gnu/libpocl.so.2.10.0", "share/pocl"),
    ],
)
def test_a_driver_that_the_user_names_is_replaced_by_one_with_fewer_declarations(
    monkeypatch, tmp_path, library, data
):
    there, here = tmp_path / "there", tmp_path / "here"
    here.mkdir()
    for name in (library, f"{data}/kernel.bc", f"{data}/include/opencl-c.h"):
        (there / name).parent.mkdir(parents=True, exist_ok=True)
        (there / name).write_text("int __ovld nobody_calls_this(int);\n")
    (tmp_path / "one.icd").write_text(f"{there / library}\n")
    monkeypatch.setattr(short_headers, "words", set)
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path / "one.icd"))
    driver.name_it(here)
    own = Path(Path(os.environ["OCL_ICD_VENDORS"]).read_text().strip())
    assert own == here / "driver" / library
    assert own.resolve() == there / library
    assert (here / "driver" / data / "kernel.bc").resolve() == there / data / "kernel.bc"
    assert not (here / "driver" / data / "include" / "opencl-c.h").read_text()


@pytest.mark.parametrize("vendors", ["nobody.icd", "."])
def test_what_else_the_user_names_is_left_as_it_is(monkeypatch, tmp_path, vendors):
    monkeypatch.setenv("OCL_ICD_VENDORS", vendors)
    driver.name_it(tmp_path)
    assert os.environ["OCL_ICD_VENDORS"] == vendors


def test_a_failure_over_a_missing_package_is_a_skip_and_no_other_is(monkeypatch):
    monkeypatch.setattr(optional, "PACKAGES", ("numpy", "nosuch"))
    assert optional.named_in("E DTypeError: bfloat16 needs nosuch: pip install") == "nosuch"
    assert optional.named_in("E ModuleNotFoundError: No module named 'nosuch.sub'") == "nosuch"
    for failure in ("E needs numpy", "E AssertionError: nosuch", "E No module named 'nosuchother'"):
        assert optional.named_in(failure) is None


def test_no_device_is_read_before_its_driver_and_the_cache_folder_are_named():
    """Importing conftest.py comes before pytest_configure: it found the user's rates and driver."""
    read = "from pyclmm.opencl.devices import device_info; print(device_info.cache_info().currsize)"
    assert python("-c", f"import tests.conftest; {read}").stdout == "0\n"
