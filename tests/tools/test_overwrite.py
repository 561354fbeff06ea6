"""`pyclmm multiply` destroys no operand, no file of others, no old result before the new one is whole."""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyclmm.streaming.journal import FolderLock
from pyclmm.tools import results
from pyclmm.tools.matrix_files import MatrixPlace
from tests.support.commands import command
from tests.support.faults import failing
from tests.support.matrix_files import kept
from tests.support.matrix_files import multiply as run
from tests.support.processes import ended, with_this_package
from tests.support.selection import slow

h5py = pytest.importorskip("h5py", reason="needs h5py")
zarr = pytest.importorskip("zarr", reason="needs zarr")

A, B, D = (np.arange(i, i + 64, dtype=np.float32).reshape(8, 8) for i in range(3))
OLD = np.full((2, 2), 7, np.float32)


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    """A folder with matrices of each kind, in which the command runs."""
    monkeypatch.chdir(tmp_path)
    for name, x in (("a", A), ("b", B), ("d", D)):
        np.save(f"{name}.npy", x)
        zarr.save_array(f"{name}.zarr", x)
    with h5py.File("f.h5", "w") as file:
        file["g/A"], file["B"], file["D"] = A, B, D
    group = zarr.open_group("x.zarr", mode="w")
    for name, x in (("A", A), ("B", B), ("D", D), ("g/E", D)):
        group.create_array(name, data=x, chunks=(4, 4))
    return tmp_path


def content(folder):
    """Every file with its bytes, every link with its target, every folder."""
    return {
        str(path.relative_to(folder)): os.readlink(path)
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else None
        for path in folder.rglob("*")
    }


def link_in_hdf5(make):
    with h5py.File("f.h5", "a") as file:
        make(file)


def external(name, path="/A"):
    with h5py.File("other.h5", "w") as file:
        file["A"] = A
    link_in_hdf5(lambda file: file.__setitem__(name, h5py.ExternalLink("other.h5", path)))


def virtual(path="f.h5", of="D"):
    """The dataset v of that file, which is *of* in f.h5."""
    os.makedirs("sub", exist_ok=True)
    layout = h5py.VirtualLayout((8, 8), np.float32)
    layout[:] = h5py.VirtualSource("f.h5", of, (8, 8))
    with h5py.File(path, "a") as file:
        file.create_virtual_dataset("v", layout)


def virtual_of_virtual():
    virtual()
    virtual("w.h5", of="v")


def raw(path="r.h5"):
    """The dataset x of that file, whose numbers lie in raw.npy."""
    os.makedirs("sub", exist_ok=True)
    os.rename("d.npy", "raw.npy")
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (4, 8), np.float32, external=[("raw.npy", 128, 128)])


def virtual_of_numbered(files="p-%b.h5", name="D"):
    """Its sources are p-0.h5:D and p-1.h5:D, or other numbered names."""
    for number in "01":
        with h5py.File("v.h5" if files == "." else files.replace("%b", number), "a") as file:
            file[name.replace("%b", number)] = D[:4]
    create, unlimited = h5py.h5p.create(h5py.h5p.DATASET_CREATE), h5py.h5s.UNLIMITED
    space = h5py.h5s.create_simple((8, 8), (unlimited, 8))
    space.select_hyperslab(start=(0, 0), count=(unlimited, 1), stride=(4, 8), block=(4, 8))
    create.set_virtual(space, files.encode(), name.encode(), h5py.h5s.create_simple((4, 8)))
    with h5py.File("v.h5", "a") as file:
        whole = h5py.h5s.create_simple((8, 8), (unlimited, 8))
        h5py.h5d.create(file.id, b"v", h5py.h5t.NATIVE_FLOAT, whole, create)
        assert file["v"][7, 7] == D[3, 7]


def staged(out):
    """Where OUT is written first."""
    found: Any = results.result_at(MatrixPlace.of(out), None)
    return found.staged


def link_to_staged(out):
    at = staged(out)
    at.parent.mkdir()
    shutil.move("d.npy" if out.endswith(".npy") else "d.zarr", at)
    os.symlink(at, f"link{Path(out).suffix}")


def nothing():
    pass


# (what is prepared, A, OUT)
OVERLAPS = {
    "the same file": (nothing, "a.npy", "./a.npy"),
    "a hard link": (lambda: os.link("a.npy", "o.npy"), "a.npy", "o.npy"),
    "a symbolic link": (lambda: os.symlink("a.npy", "o.npy"), "a.npy", "o.npy"),
    "a link to the operand's folder": (lambda: os.symlink(".", "o"), "a.npy", "o/a.npy"),
    "a hard link as another kind": (lambda: os.link("f.h5", "o.npy"), "f.h5:g/A", "o.npy"),
    "the group of both": (nothing, "x.zarr:A", "x.zarr"),
    "a group of groups": (nothing, "x.zarr:g/E", "x.zarr:g"),
    "its chunk folder": (nothing, "a.zarr", "a.zarr:c"),
    "one chunk's folder": (nothing, "x.zarr:A", "x.zarr:A/c/0"),
    "a name within the array": (nothing, "x.zarr:A", "x.zarr:A/new"),
    "a file within the array": (nothing, "a.zarr", "a.zarr/c/new.npy"),
    "the array by a link": (lambda: os.symlink("a.zarr", "o.zarr"), "o.zarr", "a.zarr"),
    "the array by its folder": (nothing, "x.zarr/A.zarr", "x.zarr:A.zarr"),
    "an array in the group by a link": (lambda: os.symlink("A", "x.zarr/L"), "x.zarr:L", "x.zarr:A"),
    "where its chunks lie": (
        lambda: (shutil.rmtree("a.zarr/c"), os.symlink("../d.zarr/c", "a.zarr/c")), "a.zarr", "d.zarr",
    ),
    "a group of HDF5": (nothing, "f.h5:g/A", "f.h5:g"),
    "the root of HDF5": (nothing, "f.h5:g/A", "f.h5:/"),
    "a name below a dataset": (nothing, "f.h5:B", "f.h5:B/new"),
    "a hard link in HDF5": (
        lambda: link_in_hdf5(lambda f: f.__setitem__("o", f["g/A"])), "f.h5:g/A", "f.h5:o",
    ),
    "a soft link in HDF5": (
        lambda: link_in_hdf5(lambda f: f.__setitem__("o", h5py.SoftLink("/g/A"))), "f.h5:o", "f.h5:g/A",
    ),
    "a soft link to its group": (
        lambda: link_in_hdf5(lambda f: f.__setitem__("o", h5py.SoftLink("/g"))), "f.h5:g/A", "f.h5:o/A",
    ),
    "an external link": (lambda: external("o"), "f.h5:o", "other.h5:A"),
    "an external link as OUT": (lambda: external("o"), "other.h5:A", "f.h5:o"),
    "a hard link of the HDF5 file": (lambda: os.link("f.h5", "o.h5"), "f.h5:g/A", "o.h5:g/A"),
    "the source of a virtual dataset": (virtual, "f.h5:v", "f.h5:D"),
    "the source of its source": (virtual_of_virtual, "w.h5:v", "f.h5:D"),
    "its raw file": (raw, "r.h5:x", "raw.npy"),
    "its raw file from here": (lambda: raw("sub/r.h5"), "sub/r.h5:x", "raw.npy"),
    "the source of a virtual dataset from here": (lambda: virtual("sub/v.h5"), "sub/v.h5:v", "f.h5:D"),
    "a source of many": (virtual_of_numbered, "v.h5:v", "p-1.h5:D"),
    "a dataset of many": (lambda: virtual_of_numbered(".", "D%b"), "v.h5:v", "v.h5:D1"),
    "an external link in the middle": (lambda: external("o", "/"), "f.h5:o/A", "other.h5:A"),
    "what is written first in HDF5": (
        lambda: link_in_hdf5(lambda f: f.__setitem__(staged("f.h5:C"), A)), f"f.h5:{staged('f.h5:C')}",
        "f.h5:C",
    ),
    "what is written first": (lambda: link_to_staged("c.npy"), "link.npy", "c.npy"),
    "the Zarr array that is written first": (lambda: link_to_staged("c.zarr"), "link.zarr", "c.zarr"),
}  # fmt: skip


@pytest.mark.parametrize("case", OVERLAPS)
def test_out_that_shares_bytes_with_an_operand_is_refused_before_a_byte_changes(here, case):
    prepare, a, out = OVERLAPS[case]
    if case == "the array by its folder":
        zarr.open_group("x.zarr", mode="a").create_array("A.zarr", data=A)
    prepare()
    before = content(here)
    for operands in ((a, "b.npy"), ("b.npy", a)):
        shown = run(*operands, out, "--overwrite", status=2)
        assert content(here) == before
        assert re.fullmatch(r"Error: .+\n", shown.stderr)
        assert out in shown.stderr


# (what is mounted on what, A, OUT)
MOUNTS = {
    "A's chunks in the old OUT": ("a.zarr/c", "d.zarr/c", "a.zarr", "d.zarr"),
    "the old OUT's chunks in A": ("d.zarr/c", "a.zarr/c", "a.zarr", "d.zarr"),
    "a folder around OUT in A": ("sub", "a.zarr/c/0", "a.zarr", "sub/c.npy"),
    "A as OUT": ("a.zarr", "d.zarr", "a.zarr", "d.zarr"),
    "A's file as OUT": ("a.npy", "d.npy", "a.npy", "d.npy"),
}


@pytest.mark.parametrize("case", [*list(MOUNTS)[::2], *slow(*list(MOUNTS)[1::2])])
def test_out_that_shares_bytes_with_an_operand_by_a_mount_is_refused(here, case):
    source, target, a, out = MOUNTS[case]
    os.mkdir("sub")
    before = content(here)
    multiply = f"{sys.executable} -m pyclmm multiply {a} b.npy {out} --overwrite"
    shell = ("unshare", "-rm", "sh", "-c")
    can = shutil.which("unshare") and not subprocess.call([*shell, "mount --bind sub sub"])
    if not can:
        pytest.skip("mounts need unshare and user namespaces, or root")
    mounted = f"mount --bind {source} {target} && exec {multiply}"
    done = ended(*shell, mounted, env=with_this_package())
    assert (done.returncode, content(here) == before) == (2, True), done.stderr
    assert re.fullmatch(r"Error: .+\n", done.stderr)


# (what is prepared, OUT, words of the error)
NO_MATRIX = {
    "a plain folder": (lambda: (os.mkdir("o.zarr"), keep("o.zarr/notes.txt")), "o.zarr", "cannot be opened"),
    "an empty folder": (lambda: os.mkdir("o.zarr"), "o.zarr", "cannot be opened"),
    "a group": (nothing, "x.zarr", "a Zarr group"),
    "an array with a file of others": (lambda: keep("d.zarr/notes.txt"), "d.zarr", "other files (notes.txt)"),
    "an array with an array in it": (
        lambda: shutil.copytree("a.zarr", "d.zarr/more.zarr"), "d.zarr", "other files (more.zarr/",
    ),
    "within an array": (nothing, "x.zarr:D/c/new", "lies within the Zarr array"),
    "a file within an array": (nothing, "d.zarr/new.npy", "lies within the Zarr array"),
    "a file as a store": (lambda: keep("o.zarr"), "o.zarr", "is no folder"),
    "a group in a file": (lambda: keep("o.zarr"), "o.zarr:C", "is no folder"),
    "a link to an array": (lambda: os.symlink("d.zarr", "o.zarr"), "o.zarr", "is a link, to"),
    "a link in a group": (lambda: os.symlink("D", "x.zarr/L"), "x.zarr:L", "is a link, to"),
    "a text": (lambda: keep("o.npy"), "o.npy", "it is no array that NumPy can map"),
    "a link to a matrix": (lambda: os.symlink("d.npy", "o.npy"), "o.npy", "is a link, to"),
    "a link to nothing": (lambda: os.symlink("none.npy", "o.npy"), "o.npy", "is a link, to"),
    "a folder": (lambda: os.mkdir("o.npy"), "o.npy", "it is no regular file"),
    "a pipe": (lambda: os.mkfifo("o.npy"), "o.npy", "it is no regular file"),
    "a pipe of that name": (lambda: os.mkfifo("o.h5"), "o.h5:C", "it is no regular file"),
    "texts": (lambda: np.save("o.npy", np.array(["a", "b"])), "o.npy", "it holds <U1"),
    "a group of HDF5": (nothing, "f.h5:g", "it is no dataset, but holds others"),
    "below a dataset": (nothing, "f.h5:D/new", "it lies below the dataset /D"),
    "a soft link": (
        lambda: link_in_hdf5(lambda f: f.__setitem__("o", h5py.SoftLink("/D"))), "f.h5:o",
        "o is a link, to /D",
    ),
    "a soft link to nothing": (
        lambda: link_in_hdf5(lambda f: f.__setitem__("o", h5py.SoftLink("/none"))), "f.h5:o",
        "o is a link, to /none",
    ),
    "an external link": (lambda: external("o"), "f.h5:o", "o is a link, to /A"),
    "no HDF5 file": (lambda: keep("o.h5"), "o.h5:A", "it cannot be opened"),
}  # fmt: skip


def keep(path):
    with open(path, "w", encoding="utf-8") as file:
        file.write("kept for years\n")


@pytest.mark.parametrize("case", NO_MATRIX)
def test_only_a_matrix_of_the_same_kind_is_replaced(here, case):
    prepare, out, words = NO_MATRIX[case]
    prepare()
    before = {name: x for name, x in content(here).items() if name != "o.npy" or os.path.isfile("o.npy")}
    shown = run("a.npy", "b.npy", out, "--overwrite", status=2)
    assert words in shown.stderr
    assert re.fullmatch(r"Error: .+\n", shown.stderr)
    after = {name: x for name, x in content(here).items() if name != "o.npy" or os.path.isfile("o.npy")}
    assert after == before


OUTS = ("d.npy", "d.zarr", "x.zarr:D", "x.zarr:g/E", "f.h5:D")


@pytest.mark.parametrize("out", OUTS)
def test_what_is_replaced_leaves_its_neighbours(out):
    os.link("d.npy", "linked.npy")
    run("a.npy", "b.npy", out, "--overwrite")
    np.testing.assert_array_equal(kept(out), A @ B)
    neighbours = {"a.npy": A, "linked.npy": D, "a.zarr": A, "x.zarr:A": A, "f.h5:g/A": A, "f.h5:B": B}
    for place, x in (neighbours | {place: D for place in OUTS if place != out}).items():
        np.testing.assert_array_equal(kept(place), x)
    assert set(zarr.open_group("x.zarr", mode="r")) == {"A", "B", "D", "g"}
    assert not [name for name in os.listdir() if "unfinished" in name]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
@pytest.mark.parametrize(("out", "root"), [("d.npy", "d.npy"), ("d.zarr", "d.zarr"), ("f.h5:D", "f.h5")])
def test_what_is_replaced_keeps_its_permissions(out, root):
    os.chmod(root, 0o750)
    run("a.npy", "b.npy", out, "--overwrite")
    assert Path(root).stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("name", ["report.json", "picture.png"])
def test_a_report_keeps_its_permissions(name):
    asked = ("bench", "8", "8", "8", "--kernel", "naive", "--rounds", "1")
    option = "--json" if name.endswith(".json") else "--plot"
    for mode in (None, 0o640):
        if mode is not None:
            os.chmod(name, mode)
        command(*asked, option, name)
        Path("model").touch()
        assert Path(name).stat().st_mode & 0o777 == (mode or Path("model").stat().st_mode & 0o777)


@pytest.mark.parametrize("consolidated", [False, True], ids=["", "consolidated"])
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", ["D", "g/E", "C", "g/C", "h/C"])
def test_a_group_shows_a_result_in_it(name, zarr_format, consolidated):
    """It has the group's format, and what the group has gathered of its arrays is written anew."""
    if int(zarr.__version__.partition(".")[0]) < 3:
        pytest.skip("zarr 2 has one format")
    group = zarr.open_group("y.zarr", mode="w", zarr_format=zarr_format)
    for old in ("D", "g/E"):
        group.create_array(old, data=D, chunks=(4, 4))
    if consolidated:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # format 3 does not specify it
            zarr.consolidate_metadata("y.zarr")
    run("a.npy", "b.npy", f"y.zarr:{name}", "--overwrite")
    group = zarr.open_group("y.zarr", mode="r")
    np.testing.assert_array_equal(group[name][()], A @ B)
    assert group[name].metadata.zarr_format == zarr_format


def test_groups_that_cannot_be_told_of_a_result_are_named(monkeypatch):
    group = zarr.open_group("y.zarr", mode="w")
    group["D"] = D
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata("y.zarr")
    with failing(zarr, "consolidate_metadata", OSError("no space left"), library=""):
        shown = run("a.npy", "b.npy", "y.zarr:D", "--overwrite", status=2)
    assert "the result is there" in shown.output.replace("\n", " ")
    assert "no space left" in shown.output
    np.testing.assert_array_equal(zarr.open_array("y.zarr/D", mode="r")[()], A @ B)
    assert not [name for name in os.listdir() if "unfinished" in name]


@pytest.mark.parametrize("out", ["other.h5:C", "f.h5:C"])
def test_an_operand_may_lie_at_the_end_of_an_external_link(out):
    external("o", "/")
    run("f.h5:o/A", "b.npy", out)
    np.testing.assert_array_equal(kept(out), A @ B)


@pytest.mark.parametrize("out", ["n.npy", "n.zarr", "n.zarr:C", "x.zarr:h/i/C", "n.h5:C", "f.h5:h/i/C"])
def test_a_new_result_may_lie_in_new_groups(out):
    run("a.npy", "b.npy", out)
    np.testing.assert_array_equal(kept(out), A @ B)


def check_whole(out):
    """The product is there, and nothing else is new."""
    np.testing.assert_array_equal(kept(out), A @ B)
    assert not [name for name in os.listdir() if "unfinished" in name]
    with h5py.File("f.h5", "r") as file:
        assert set(file) == {"g", "B", "D"}


@pytest.mark.parametrize("out", OUTS)
@pytest.mark.parametrize("checkpoint", [(), ("--checkpoint", "kept")], ids=["plain", "checkpoint"])
def test_the_old_result_is_there_until_the_new_one_is_whole(interrupted, out, checkpoint):
    command = ("a.npy", "b.npy", out, "--overwrite", "--memory-limit", "1 KiB", *checkpoint)
    run(*command, status=130)
    np.testing.assert_array_equal(kept(out), D)
    interrupted()
    run(*command)
    check_whole(out)


@pytest.mark.parametrize("out", OUTS)
def test_a_leftover_of_a_killed_run_is_replaced(monkeypatch, interrupted, out):
    with monkeypatch.context() as patch:
        for kind in (results._WrittenBeside, results._Hdf5):
            give_up = kind.give_up
            patch.setattr(kind, "give_up", lambda self, keep, give_up=give_up: give_up(self, True))
        run("a.npy", "b.npy", out, "--overwrite", status=130)
    interrupted()
    run("a.npy", "b.npy", out, "--overwrite")
    check_whole(out)


@pytest.fixture
def at_exit(monkeypatch):
    """What the command has put off to the end of its process; a call makes it."""
    later = []
    monkeypatch.setattr(atexit, "register", lambda f, *args, **keywords: later.append((f, args, keywords)))

    def ends():
        own = [each for each in later if each[0] is shutil.rmtree]
        for f, args, keywords in own:
            f(*args, **keywords)
        return len(own)

    return ends


@pytest.mark.parametrize("out", ["c.npy", "c.zarr"])
def test_files_of_others_in_a_leftover_are_kept(here, at_exit, out):
    folder = here / f"{out}.{results.result_at(MatrixPlace.of(out), None).tag}"
    folder.mkdir()
    keep(folder / "old")
    before = content(here)
    shown = run("a.npy", "b.npy", out, status=2)
    at_exit()
    assert "it holds old, put there by" in shown.stderr
    assert content(here) == before


@pytest.mark.parametrize("out", ["c.npy", "c.zarr"])
def test_one_result_is_written_by_one_command_at_a_time(here, at_exit, out):
    folder = here / f"{out}.{results.result_at(MatrixPlace.of(out), None).tag}"
    folder.mkdir()
    lock = FolderLock(folder / "lock")
    keep(folder / "new")
    shown = run("a.npy", "b.npy", out, status=2)
    at_exit()
    assert (folder / "new").exists()
    lock.release()
    assert "another command is writing it" in shown.stderr


def test_a_command_that_succeeds_removes_nothing_later(here, at_exit):
    run("a.npy", "b.npy", "c.zarr")
    assert at_exit() == 0


def test_another_product_between_does_not_reach_one_that_goes_on(interrupted):
    first = ("a.npy", "b.npy", "c.npy", "--checkpoint", "kept", "--memory-limit", "1 KiB", "--overwrite")
    run(*first, status=130)
    interrupted()
    run("d.npy", "d.npy", "c.npy", "--overwrite")
    np.testing.assert_array_equal(np.load("c.npy"), D @ D)
    assert "c.npy is there" in run(*first[:-1], status=2).stderr
    run(*first)
    np.testing.assert_array_equal(np.load("c.npy"), A @ B)


def test_a_file_that_somebody_makes_meanwhile_is_kept(at_tile):
    at_tile(lambda at: np.save("c.npy", OLD))
    shown = run("a.npy", "b.npy", "c.npy", status=2)
    staged = re.search(r"the result is complete in (\S+): somebody else has changed OUT", shown.stderr)
    np.testing.assert_array_equal(np.load("c.npy"), OLD)
    np.testing.assert_array_equal(np.load(staged[1]), A @ B)


@pytest.mark.parametrize("out", ["c.npy", "c.zarr"])
def test_a_result_that_somebody_removes_meanwhile_is_told(out, at_tile):
    """Zarr makes folders anew, so that only the chunks would be there that came later."""
    at_tile(lambda at: at.tiles == 1 and shutil.rmtree(next(Path().glob(f"{out}.unfinished-*"))))
    shown = run("a.npy", "b.npy", out, "--memory-limit", "1 KiB", status=2)
    assert f"{out}: the result is lost with " in shown.stderr
    assert not list(Path().glob(f"{out}*"))


@pytest.mark.parametrize("out", ["c.npy", "c.zarr"])
def test_a_result_that_cannot_be_opened_at_the_end_is_there(out, at_tile):
    """The process has no number for a file left: what is complete is not thrown away."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    at_tile(lambda at: resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1])))
    try:
        run("a.npy", "b.npy", out)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    np.testing.assert_array_equal(kept(out), A @ B)


# (further arguments, words of the error)
WRITTEN = {
    "the product": (("--json", "c.npy"), "--json is, or lies in or around, c.npy"),
    "an operand": (("--json", "a.npy"), "it is there and is no JSON report"),
    "a link to an operand": (("--json", "link.json"), "it is there and is no JSON report"),
    "a text": (("--json", "notes.txt"), "it is there and is no JSON report"),
    "JSON of others": (("--json", "own.json"), "it is there and is no JSON report"),
    "within an operand": (("--json", "a.zarr/report.json"), "--json is, or lies in or around, a.zarr"),
    "the checkpoint": (("--json", "kept", "--checkpoint", "kept"), "--json is, or lies in or around"),
    "a checkpoint around all": (("--checkpoint", "."), "--checkpoint is, or lies in or around, "),
    "a checkpoint in an operand": (("--checkpoint", "a.zarr/kept"), "--checkpoint is, or lies in or around"),
}


@pytest.mark.parametrize("case", WRITTEN)
@pytest.mark.parametrize("explain", [(), ("--explain",)], ids=["", "explain"])
def test_json_and_checkpoint_replace_nothing_of_others(here, case, explain):
    keep("notes.txt")
    os.symlink("a.npy", "link.json")
    with open("own.json", "w", encoding="utf-8") as file:
        json.dump({"command": "multiply", "mine": 1}, file, indent=2)
    before = content(here)
    arguments, words = WRITTEN[case]
    shown = run("a.zarr", "b.npy", "c.npy", *arguments, *explain, status=2)
    assert content(here) == before
    assert words in shown.stderr


def test_an_older_report_is_replaced():
    for _ in range(2):
        run("a.npy", "b.npy", "c.npy", "--overwrite", "--json", "report.json")
    with open("report.json", encoding="utf-8") as file:
        assert json.load(file)["out"] == "c.npy"


# -- the files that other commands write


@pytest.mark.parametrize(
    "arguments",
    [
        ("info", "--json"), ("bench", "8", "8", "8", "--json"), ("bench", "8", "8", "8", "--plot"),
        ("road", "--size", "8", "--plot"), ("tune", "--export"), ("tune", "--plot"),
        ("tune", "--rates", "--json"), ("selftest", "--report"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_no_command_replaces_a_file_that_pyclmm_has_not_written(here, arguments):
    for name in ("mine.png", "mine.json"):
        keep(name)
    before = content(here)
    name = "mine.png" if "--plot" in arguments else "mine.json"
    shown = command(*arguments, name, status=2)
    assert content(here) == before
    assert re.search(rf"^Error: {name}: it is there and is no .+ of pyclmm; name another file$", shown.stderr)


def test_a_report_that_fails_leaves_the_last_one(here, monkeypatch):
    """It is written beside, and renamed when it is whole. A link stays one."""
    report = ("info", "--json", "link.json")
    Path("link.json").symlink_to("r.json")
    command(*report)
    before = content(here)

    def half(path, text, **_):
        path.write_bytes(text[:9].encode())
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    failed = command(*report, status=2)
    assert content(here) == before
    assert "cannot write link.json: No space left on device" in failed.stderr
    assert Path("link.json").is_symlink()


def test_two_options_do_not_name_one_file():
    shown = command("bench", "8", "8", "8", "--json", "x.svg", "--plot", "./x.svg", status=2)
    assert "two options name this file" in shown.stderr
