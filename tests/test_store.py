"""The cache folder: whatever happens to it or lies in it, calls give right results."""

import errno
import io
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import warnings

import platformdirs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import pyclmm
from pyclmm import environment, file_locks, store
from pyclmm.checks import selfcheck
from pyclmm.errors import CacheWarning
from tests.support.faults import Call, Failing, Part, check_caches, failing
from tests.support.processes import as_in_a_new_process, pyopencls_cache

WRITER = """
import sys
from pathlib import Path
from pyclmm import store as cache
path, mine = Path(sys.argv[1]), sys.argv[2]
for number in range(300):
    assert cache.write_json(path, {"who": mine * 5000, "number": number})
    found = cache.read_json(path, lambda *_: None)
    assert set(found) == {"who", "number"} and len(set(found["who"])) == 1, found
"""


_NOT_KEPT = ": not all can be kept, so each process compiles and checks its kernels anew"


@pytest.fixture
def call(own_caches):
    return Call(kernel="naive")


def verdicts(folder):
    return sorted(folder.rglob("*.json"))


@pytest.mark.parametrize(
    "error", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT], ids=errno.errorcode.get
)
@pytest.mark.parametrize("where", ["creation", "writing", "the end"])
def test_a_folder_that_takes_nothing_is_not_fatal(monkeypatch, call, own_caches, error, where):
    """Read-only, forbidden, full or over quota."""
    real = {"creation": tempfile.mkstemp, "writing": io.FileIO.write, "the end": os.replace}[where]
    fault = Failing(real, OSError(error, os.strerror(error)), always=True, after=where == "writing")

    class Full(io.FileIO):
        def write(self, data):
            return fault(self, data)

    names = {"creation": ("tempfile", "mkstemp"), "writing": ("os", "fdopen"), "the end": ("os", "replace")}
    library, name = names[where]
    faulty = Part(getattr(store, library), **{name: Full if where == "writing" else fault})
    monkeypatch.setattr(store, library, faulty)
    with pytest.warns(CacheWarning, match=_NOT_KEPT) as heard:
        call.check_works()
    assert len(heard) == 1
    assert os.strerror(error) in str(heard[0].message)
    assert fault.calls
    assert not [x for x in own_caches.rglob("*") if x.is_file()], "a half-written file is left"


def test_a_folder_that_is_read_only_in_earnest(monkeypatch, call, tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    for place in (blocker, blocker / "below"):
        monkeypatch.setenv("PYCLMM_CACHE_DIR", str(place))
        as_in_a_new_process(monkeypatch)
        words = f"{place}{_NOT_KEPT}.*{blocker} is no folder.* PYCLMM_CACHE_DIR"
        with pytest.warns(CacheWarning, match=words) as heard:
            call.check_works()
        assert len(heard) == 1
        assert heard[0].filename.endswith("faults.py"), "the file that called pyclmm"


def test_a_file_that_this_user_cannot_read_gives_one_warning(monkeypatch, call, own_caches):
    call()
    as_in_a_new_process(monkeypatch)
    said = rf"{own_caches}{_NOT_KEPT}.* cannot be read \(Permission denied\)"
    forbidden = OSError(errno.EACCES, os.strerror(errno.EACCES))
    fault = failing(store, "open", forbidden, library="os", always=True)
    with fault, pytest.warns(CacheWarning, match=said) as heard:
        call.check_works()
    assert len(heard) == 1


def test_an_absent_folder_is_made_for_this_user_only(call, own_caches):
    previous = os.umask(0)
    try:
        call()
    finally:
        os.umask(previous)
    made = [own_caches, own_caches / "selfcheck", *verdicts(own_caches)]
    assert len(made) == 3
    for path in made:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_folder_deleted_in_between_is_made_again(monkeypatch, call, own_caches):
    call()
    for path in [*verdicts(own_caches), own_caches / "selfcheck"]:
        path.unlink() if path.is_file() else path.rmdir()
    shutil.rmtree(own_caches)
    as_in_a_new_process(monkeypatch)
    call.check_works()
    assert verdicts(own_caches)


def _no_home(*_, **__):
    raise RuntimeError("could not determine the home directory")


@pytest.mark.parametrize("found", [_no_home, lambda *_, **__: "~/.cache/pyclmm"], ids=["raises", "literal"])
def test_a_user_without_a_home_keeps_nothing(monkeypatch, call, tmp_path, found):
    """platformdirs 4.14 raises; earlier versions give a folder in the working directory named "~"."""
    monkeypatch.delenv("PYCLMM_CACHE_DIR")
    monkeypatch.setattr(platformdirs, "user_cache_dir", found)
    pyopencls_cache(monkeypatch, False)  # its caches have no folder either
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~").mkdir()
    with pytest.warns(CacheWarning, match=f"~/.cache/pyclmm{_NOT_KEPT}.* is not absolute") as heard:
        call.check_works()
    assert len(heard) == 1
    assert not list((tmp_path / "~").iterdir())


def test_a_relative_folder_lies_in_the_working_directory(monkeypatch, call, tmp_path):
    monkeypatch.setenv("PYCLMM_CACHE_DIR", "here")
    monkeypatch.chdir(tmp_path)
    call()
    assert verdicts(tmp_path / "here")


@pytest.mark.parametrize("blank", ["", " "])
def test_a_folder_without_a_name_is_the_platforms(monkeypatch, blank):
    monkeypatch.setenv("PYCLMM_CACHE_DIR", blank)
    assert store.folder() == environment.user_cache("pyclmm")


def test_a_relative_folder_in_a_deleted_working_directory_keeps_nothing(monkeypatch, call, tmp_path):
    monkeypatch.setenv("PYCLMM_CACHE_DIR", "here")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.warns(CacheWarning, match=f"here{_NOT_KEPT}.* is not absolute"):
        call.check_works()


def _spoil(monkeypatch, call, folder, content):
    """Replace a verdict by *content* and forget it, as in a new process; returns the file."""
    call()
    [file] = verdicts(folder)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    as_in_a_new_process(monkeypatch)
    return file


@pytest.mark.parametrize("content", [0.3, 0.9, "", "[]", '{"schema": 1}', "[" * 100_000])
def test_a_broken_verdict_is_set_aside_with_one_warning(monkeypatch, call, own_caches, content):
    """Half of it was written, or something else."""
    call()
    whole = verdicts(own_caches)[0].read_text()
    text = content if isinstance(content, str) else whole[: int(content * len(whole))]
    file = _spoil(monkeypatch, call, own_caches, text)
    with pytest.warns(CacheWarning, match=f"^cache file {file} was set aside: ") as heard:
        call.check_works()
    assert len(heard) == 1
    assert heard[0].filename.endswith("faults.py"), "the file that called pyclmm"
    assert file.with_suffix(".bad").read_text() == text
    assert json.loads(file.read_text())["reason"] is None, "it was checked again"
    file.with_suffix(".bad").unlink()
    check_caches(own_caches)


def test_a_verdict_of_an_older_version_is_not_looked_at(monkeypatch, call, own_caches):
    """Its digest differs, so that an update gives no warning."""
    monkeypatch.setattr(selfcheck, "_SCHEMA", 0)
    call()
    monkeypatch.setattr(selfcheck, "_SCHEMA", 2)
    as_in_a_new_process(monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call()
    assert len(verdicts(own_caches)) == 2


def test_a_verdict_that_cannot_be_set_aside_is_not_believed(monkeypatch, call, own_caches):
    file = _spoil(monkeypatch, call, own_caches, "{")
    fault = failing(store, "replace", OSError(errno.EROFS, "read-only"), library="os", always=True)
    said = f"^cache file {file} is ignored, and cannot be set aside .read-only.; delete it: "
    with fault, pytest.warns(CacheWarning, match=_NOT_KEPT), pytest.warns(CacheWarning, match=said):
        call.check_works()


@pytest.mark.parametrize(
    ("kind", "reason"), [("pipe", "no regular"), ("folder", "no regular"), ("endless", "a link")]
)
def test_what_is_no_plain_file_is_not_read(monkeypatch, call, own_caches, kind, reason):
    call()
    [file] = verdicts(own_caches)
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        file.symlink_to("/dev/zero")
    as_in_a_new_process(monkeypatch)
    with pytest.warns(CacheWarning, match=f"is ignored: it is .*{reason}") as heard:
        call.check_works()
    assert len(heard) == 1


def test_two_processes_may_write_one_file_at_once(tmp_path):
    path = tmp_path / "caches" / "shared.json"
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*command, who], stderr=subprocess.PIPE, text=True) for who in "ab"]
    for writer in writers:
        _, stderr = writer.communicate(timeout=600)
        assert writer.returncode == 0, stderr
    assert [x.name for x in path.parent.iterdir()] == ["shared.json"]


# -- hostile files

SHELL = (
    "-cl-unsafe-math-optimizations", "-DTW=16;rm -rf ~", "$(reboot)", "`id`", "../../etc/passwd", "\x1b[2J",
)  # fmt: skip

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(SHELL)
    | st.sampled_from([2**31, -(2**63), 10**300]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(
    ["schema", "key", "version", "device", "kernel", "reason", "timed_out", "__class__", "options"]
)
ABOUT = {"key": "0", "version": pyclmm.__version__, "device": "d", "kernel": "k"}
GOOD = {"schema": selfcheck._SCHEMA, **ABOUT, "reason": None, "timed_out": None}
check = store.KeptFile("selfcheck", "0", selfcheck._SCHEMA, ABOUT, selfcheck._CHECKS).check


def fault_of(content):
    try:
        check("content", content)
    except pyclmm.ArgumentError as error:
        return str(error)
    return None


@given(keys, json_values)
@example("schema", True)
@example("schema", float(selfcheck._SCHEMA))
@example("reason", "")
@example("reason", "x" * 301)
@example("reason", "\x1b[31mred")
@example("device", None)
@example("timed_out", -1.0)
@example("timed_out", 1e12)
@example("timed_out", float("nan"))
@example("timed_out", 10**400)
def test_one_wrong_field_is_enough(key, value):
    content = GOOD | {key: value}
    short = key == "reason" and isinstance(value, str) and 0 < len(value) <= 300 and value.isprintable()
    time = key == "timed_out" and type(value) in (int, float) and 0 <= value <= 1e11
    allowed = short or time
    same = key in GOOD and type(value) is type(GOOD[key]) and value == GOOD[key]
    assert (fault_of(content) is None) == (allowed or same)


@given(st.binary(max_size=200))
@example(b"[" * 100_000)
@example(b'{"a":' * 50_000)
@example(b"\xff\xfe{}")
@example(b'{"schema": ' + b"9" * 5000 + b"}")
@example(json.dumps(GOOD | {"reason": "\ud800"}).encode())
def test_any_bytes_are_refused_with_a_reason(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("hostile") / "verdict.json"
    path.write_bytes(content)
    with pytest.warns(CacheWarning, match=r"verdict\.json was set aside: .+"):
        assert store.read_json(path, check) is None
    assert path.with_suffix(".bad").read_bytes() == content


def test_a_file_too_large_is_refused_without_parsing_it(tmp_path):
    path = tmp_path / "verdict.json"
    with path.open("wb") as file:
        file.truncate(store.MAX_BYTES + 1)
    with pytest.warns(CacheWarning, match="larger than"):
        assert store.read_json(path, check) is None


def test_a_refusal_on_disk_is_only_shown(monkeypatch, call, own_caches):
    call()
    content = json.loads(verdicts(own_caches)[0].read_text())
    _spoil(monkeypatch, call, own_caches, json.dumps(content | {"reason": "-DX=`id`"}))
    with pytest.raises(pyclmm.UnsupportedError, match="-DX="):
        call()


# locks


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("lock", [store.try_lock, store.create_locked])
def test_a_lock_ends_with_its_process_though_a_forked_one_lives(tmp_path, lock):
    handle, (told, tell) = lock(tmp_path / "lock"), os.pipe()
    if not (child := os.fork()):
        os.write(tell, b"1")
        signal.pause()
    try:
        os.read(told, 1)
        assert store.is_locked(tmp_path / "lock")
        os.close(handle)  # as the end of the process does
        assert not store.is_locked(tmp_path / "lock")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(told)
        os.close(tell)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_that_unlocks_what_it_inherited_closes_no_other_file(tmp_path):
    handle = store.try_lock(tmp_path / "lock")
    if not (child := os.fork()):
        own = store.try_lock(tmp_path / "own")
        file_locks.unlock(handle)
        os._exit(0 if own and store.is_locked(tmp_path / "own") else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert store.is_locked(tmp_path / "lock")
    file_locks.unlock(handle)
    assert not store.is_locked(tmp_path / "lock")


@pytest.mark.skipif(not file_locks.CAN_LOCK, reason="no locks on this system")
def test_to_unlock_waits_for_no_forked_process(tmp_path):
    """Which has the handle until it has closed it."""
    handle = store.try_lock(tmp_path / "lock")
    inherited = os.dup(handle)
    file_locks.unlock(handle)
    assert not store.is_locked(tmp_path / "lock")
    os.close(inherited)


# files of bytes


def test_bytes_come_back_as_they_were(tmp_path):
    for content in (b"", b"\n", bytes(range(256)) * 100):
        assert store.write_bytes(tmp_path / "file.bin", content)
        assert store.read_bytes(tmp_path / "file.bin") == content
    assert stat.S_IMODE((tmp_path / "file.bin").stat().st_mode) == 0o600
    assert store.read_bytes(tmp_path / "absent.bin") is None


def test_more_bytes_than_the_most_are_not_written(tmp_path):
    assert not store.write_bytes(tmp_path / "file.bin", bytes(store.MAX_CONTENT + 1))
    assert not list(tmp_path.iterdir())


@given(st.binary(max_size=200))
@example(b"pyclmm 2 " + b"0" * 64 + b" 0\n")
@example(b"pyclmm 2 " + b"0" * 64 + b" 99999999\n")
def test_bytes_that_nobody_wrote_are_set_aside(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("bytes") / "file.bin"
    path.write_bytes(content)
    with pytest.warns(CacheWarning, match=r"file.bin was set aside: its digest or its length"):
        assert store.read_bytes(path) is None
    assert not path.exists()
