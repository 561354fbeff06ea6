"""`pyclmm multiply`: matrices in files of every kind, runs that go on, and what is refused."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import pyclmm
from tests.support.faults import failing
from tests.support.matrix_files import kept
from tests.support.matrix_files import multiply as run
from tests.support.optional import optional
from tests.support.processes import python, with_this_package

pseudo = optional("tests.support.terminal")  # Windows has no pseudo-terminals
h5py = optional("h5py")
zarr = optional("zarr")

RNG = np.random.default_rng(5)
A = RNG.standard_normal((60, 50)).astype(np.float32)
B = RNG.standard_normal((50, 40)).astype(np.float32)
TILES = ("--memory-limit", "8 KiB")
KINDS = ("{}.npy", "{}.h5:{}", "all.h5:group/{}", "{}.zarr", "all.zarr:{}")


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    """A folder with A and B, in which the command runs."""
    monkeypatch.chdir(tmp_path)
    for name, x in (("a", A), ("b", B)):
        keep(f"{name}.npy", x)
    return tmp_path


def keep(place, x):
    """Write *x* where *place* says."""
    path, _, name = place.partition(":")
    if path.endswith(".npy"):
        np.save(path, x)
    elif path.endswith(".h5"):
        with h5py.File(path, "a") as file:
            file[name] = x
    elif name:
        zarr.open_group(path, mode="a").create_array(name, data=x, chunks=(16, 16))
    else:
        zarr.save_array(path, x)


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_each_kind_are_multiplied(kind):
    """In "all", the result lies in the file of the operands."""
    a, b, out = (kind.replace("{}", name) for name in ("x", "y", "z"))
    keep(a, A)
    keep(b, B)
    shown = run(a, b, out, *TILES)
    np.testing.assert_allclose(kept(out), A @ B, rtol=1e-4, atol=1e-4)
    assert re.match(rf"{out}: 60 x 40 float32 in .+ GFLOP/s, \d+ tiles\n", shown.stdout)
    np.testing.assert_array_equal(kept(a), A)


def test_options_reach_the_product():
    keep("at.npy", np.ascontiguousarray(A.T))
    run("at.npy", "b.npy", "c.npy", "--trans-a", "T", "--dtype", "float64", "--kernel", "tiled", *TILES)
    assert kept("c.npy").dtype == np.float64
    np.testing.assert_allclose(kept("c.npy"), A.astype(float) @ B, rtol=1e-12)
    run("a.npy", "b.npy", "r.npy", "--reproducible", "--devices", "0:0", *TILES)
    np.testing.assert_array_equal(kept("r.npy"), pyclmm.matmul(A, B, reproducible=True))


def test_json_tells_the_same():
    shown = run("a.npy", "b.npy", "c.npy", "--json", *TILES)
    data = json.loads(shown.stdout)
    assert (data["command"], data["interrupted"], data["out"]) == ("multiply", False, "c.npy")
    assert (data["shape"], data["dtype"], data["tiles_of_an_earlier_run"]) == ([60, 40], "float32", 0)
    assert data["tiles"] == data["all_tiles"] > 1
    assert data["gflops"] == pytest.approx(2 * 60 * 50 * 40 / data["wall_s"] / 1e9)
    assert data["devices"][0]["name"]


def test_explain_writes_nothing(here):
    shown = run("a.npy", "b.npy", "c.npy", "--explain", *TILES)
    assert re.search(r"^tiles +\d", shown.stdout, re.M)
    assert "memory limit   8" in shown.stdout
    assert json.loads(run("a.npy", "b.npy", "c.npy", "--explain", "--json").stdout)["plan"]["tiles"]
    assert sorted(path.name for path in here.iterdir()) == ["a.npy", "b.npy"]


def test_a_result_that_is_there_is_kept_unless_asked():
    for kind in KINDS:
        out = kind.replace("{}", "c")
        keep(out, np.zeros((2, 2), np.float32))
        shown = run("a.npy", "b.npy", out, status=2)
        assert kept(out).shape == (2, 2)
        assert f"{out} is there; name another, or pass --overwrite" in shown.stderr
        run("a.npy", "b.npy", out, "--overwrite")
        np.testing.assert_allclose(kept(out), A @ B, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_leaves_nothing_of_a_result_that_is_not_whole(interrupted, kind, here):
    if ":" in kind:
        keep(
            kind.replace("{}", "c").replace("group/c", "beside"), B
        )  # in the same file, unless that has one name
    before = sorted(str(path) for path in here.rglob("*"))
    out = kind.replace("{}", "d" if ":" in kind else "c")
    shown = run("a.npy", "b.npy", out, *TILES, status=130)
    assert shown.stderr == f"Interrupted; {out} is as it was\n"
    assert sorted(str(path) for path in here.rglob("*") if path.name != "zarr.json") == [
        path for path in before if not path.endswith("zarr.json")
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_checkpoint_the_next_run_goes_on(interrupted, kind, here):
    out = kind.replace("{}", "c")
    command = ("a.npy", "b.npy", out, "--checkpoint", "kept", *TILES)
    first = run(*command, status=130)
    assert "finished tiles are kept: run the command again to go on" in first.stderr
    interrupted()  # no more
    last = run(*command)
    assert re.search(r"tiles, [1-9] of them by an earlier run", " ".join(last.stdout.split()))
    np.testing.assert_allclose(kept(out), A @ B, rtol=1e-4, atol=1e-4)
    assert not (here / "kept").exists()
    assert "is there; name another" in run(*command, status=2).stderr


def test_finished_tiles_of_a_result_that_is_gone_are_no_result(interrupted, here):
    command = ("a.npy", "b.npy", "c.npy", "--checkpoint", "kept", *TILES)
    run(*command, status=130)
    [folder] = here.glob("c.npy.unfinished-*")
    shutil.rmtree(folder)
    shown = run(*command, status=2)
    assert "c.npy: kept holds finished tiles of another OUT, or of one that is gone" in shown.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("none.npy", "b.npy", "c.npy"), "none.npy: there is no such file"),
        (("a.txt", "b.npy", "c.npy"), "a.txt: its kind is not known; name FILE.npy, FILE.h5:DATASET"),
        (("a.npy", "b.npy", "c"), "c: its kind is not known"),
        (("a.npy", "b.npy", "a.npy"), "a.npy: OUT is an operand too"),
        (("a.npy", "b.npy", "./b.npy", "--overwrite"), "./b.npy: OUT is an operand too"),
        (("a.npy", "b.npy", "no/c.npy"), "no/c.npy: there is no folder"),
        (("objects.npy", "b.npy", "c.npy"), "objects.npy: it is no array that NumPy can map"),
        (("m.h5", "b.npy", "c.npy"), "m.h5: name a dataset of the file too, such as m.h5:A"),
        (("a.npy", "b.npy", "c.h5:/"), "c.h5:/: name a dataset of the file too, such as c.h5:A"),
        (("m.h5:z", "b.npy", "c.npy"), "m.h5:z: the file has no dataset 'z'; it has x"),
        (("m.h5:x", "b.npy", "c.npy"), "m.h5:x: it holds several matrices; name one"),
        (("m.zarr", "b.npy", "c.npy"), "m.zarr: it holds several matrices; name one"),
        (("a.npy", "b.npy", "c.zarr:" + 300 * "x"), "File name too long"),
        (("a.npy", "a.npy", "c.npy"), "K is 50 in a and 60 in b"),
        (("a.npy", "b.npy", "c.npy", "--memory-limit", "3"), "memory_limit"),
        (("a.npy", "b.npy", "c.npy", "--dtype", "bfloat16"), "c.npy: files have no name for bfloat16"),
        (("a.npy", "b.npy", "c.npy", "--devices", "all", "--device", "0:0"), "devices is given beside"),
        (("a.npy", "b.npy", "c.npy", "--devices", ","), "names nothing"),
        (("a.npy", "b.npy", "c.npy", "--checkpoint", "m.zarr"), "holds other files"),
        (("a.npy", "b.npy", "c.npy", "--checkpoint", ""), "'' names no folder"),
    ],
    ids=lambda x: "-".join(x) if isinstance(x, tuple) else "",
)
def test_what_cannot_be_done_is_one_line_and_leaves_nothing(here, arguments, words):
    np.save("objects.npy", np.array([1, None], object), allow_pickle=True)
    with h5py.File("m.h5", "w") as file:
        file["x/y"] = A
    zarr.open_group("m.zarr", mode="w")
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    shown = run(*arguments, status=2)
    assert words in shown.stderr
    assert re.search(r"^Error: .+\n\Z", shown.stderr, re.M)
    assert {path: path.read_bytes() for path in here.rglob("*") if path.is_file()} == before


def test_an_error_of_the_disk_is_told_and_the_result_removed(here):
    full = pyclmm.StorageError("out: rows 0 to 8 could not be written: No space left on device")
    with failing(pyclmm.StreamedMatmul, "__call__", full, library=""):
        shown = run("a.npy", "b.npy", "c.npy", *TILES, status=2)
    assert shown.stderr == "Error: out: rows 0 to 8 could not be written: No space left on device\n"
    assert not (here / "c.npy").exists()


def test_a_full_disk_for_metadata_is_told(here):
    """An error without a file's name, as of a write, is not told as one of the text's output."""
    with failing(zarr, "open_array", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), library=""):
        shown = run("a.npy", "b.npy", "c.zarr", *TILES, status=2)
    assert re.fullmatch(r"Error: c\.zarr: .+unfinished.+ could not be written: .+No space.+\n", shown.stderr)
    assert [path.name for path in here.iterdir() if "c.zarr" in path.name] == []


def test_a_file_system_without_locks_is_said_to_be_so(here):
    fcntl = pytest.importorskip("fcntl")
    with failing(fcntl, "flock", OSError(errno.ENOLCK, "no locks here"), library="", always=True):
        shown = run("a.npy", "b.npy", "c.npy", *TILES, status=2)
    said = r"Error: .*c\.npy\.unfinished-.*/lock: it cannot be locked: no locks here\n"
    assert re.fullmatch(said, shown.stderr)


LATE = """
import sys, numpy as np
from pyclmm.tools.matrix_files import Files, MatrixPlace
from pyclmm.tools.results import result_at
result = result_at(MatrixPlace.of("c.zarr"), None)
result.begin(Files(), (4, 4), np.dtype("f4"))
result.give_up(keep=False)
(result.staged / "c/0").mkdir(parents=True)
(result.staged / "c/0/0").touch()
"""


def test_a_chunk_that_is_written_after_an_error_is_removed_too(here):
    python("-c", LATE, check=True, env=with_this_package())
    assert [path.name for path in here.iterdir() if "c.zarr" in path.name] == []


FULL = """
import resource, sys
import pyclmm
from pyclmm.tools.cli import main
from tests.support.matrix_files import kept
pyclmm.matmul(kept("a.npy"), kept("b.npy"), memory_limit="8 KiB")  # compiles, which takes files too
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
main(["multiply", "a.npy", "b.npy", "c.h5:c", "--memory-limit", "8 KiB", *sys.argv[2:]])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit of a file's length")
@pytest.mark.parametrize("more", [(), ("--checkpoint", "tiles")])
def test_a_file_of_hdf5_that_cannot_grow_ends_the_command_with_its_error(here, more):
    """HDF5 cannot close such a file, and dies by SIGSEGV when it tries again."""
    ended = python("-c", FULL, "6000", *more, env=with_this_package())
    assert ended.returncode == 2, ended.stderr
    assert re.fullmatch(r"Error: out: .+ could not be (written|flushed): .+\n", ended.stderr)
    assert (here / "c.h5").exists() == bool(more)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit of a file's length")
def test_a_file_of_hdf5_that_cannot_be_made_is_not_left_empty(here):
    """HDF5 would refuse the empty file in each later run."""
    ended = python("-c", FULL, "0", env=with_this_package())
    assert ended.returncode == 2
    assert "Error: c.h5: it cannot be opened: " in ended.stderr
    assert not (here / "c.h5").exists()


def test_a_dataset_that_hdf5_cannot_make_leaves_no_file(here):
    np.save("many.npy", np.ones((1,) * 31 + (40, 40), "f4"))  # HDF5 knows 32 axes
    shown = run("many.npy", "many.npy", "c.h5:c", status=2)
    assert shown.stderr.startswith("Error: c.h5:c: ")
    assert not (here / "c.h5").exists()


HELD = "import h5py, sys; file = h5py.File('m.h5', 'a'); print('open', flush=True); sys.stdin.read()"


@pytest.mark.skipif(sys.platform == "win32", reason="HDF5 locks its files otherwise")
@pytest.mark.parametrize("places", [("m.h5:x", "b.npy", "c.npy"), ("a.npy", "b.npy", "m.h5:c")])
def test_a_file_of_hdf5_that_another_program_has_open_is_named(here, places):
    command = [sys.executable, "-c", HELD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"open\n"
        shown = run(*places, status=2)
    words = r"Error: m\.h5.*: another program has it open; close it there, or wait\n"
    assert re.fullmatch(words, shown.stderr)


def test_a_name_that_hdf5_cannot_have_is_refused_at_once(here):
    shown = run("a.npy", "b.npy", "c.h5:\udcff", status=2)
    assert not (here / "c.h5").exists()
    assert shown.stderr == "Error: 'c.h5:\\udcff': names within HDF5 files are UTF-8, and this one is not\n"


def test_a_name_that_is_empty_is_shown(here):
    shown = run("", "b.npy", "c.npy", status=2)
    assert shown.stderr.startswith("Error: '': its kind is not known; name FILE.npy")


def test_a_terminal_shows_a_bar():
    """Of 30 columns where there is room, with the rate and the time left."""
    shown = pseudo.run("multiply", "a.npy", "b.npy", "c.npy", *TILES, columns=100)
    assert shown.status == 0, shown.raw
    assert re.search(r"━{30} .+ GFLOP/s .+ of \d+, .+ left", shown.words)
