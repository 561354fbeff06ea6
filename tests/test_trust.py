"""What pyclmm reads back: files of others, links and exchanged files are not believed."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

import pyclmm
from pyclmm import store
from pyclmm.errors import CacheWarning
from pyclmm.kernels.rates import as_numbers
from pyclmm.opencl import binaries, crash_marks, processor, user_rates
from pyclmm.opencl.devices import default_device, device_info
from pyclmm.selection import tables
from tests.support.contexts import new_queue
from tests.support.faults import Call, refuse_kernels, replace_driver
from tests.support.processes import as_in_a_new_process, as_user, nothing_checked, pyopencls_cache

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="this system has no owners and modes")
NOBODY = 65534
DEVICE = default_device()
HERE = device_info(DEVICE)


@pytest.fixture(autouse=True)
def folder(device_read_anew, own_caches):
    return own_caches


# What makes a file, or the folder that it is in, one that others may have made. Root needs no trick.


def of_another(path, monkeypatch):
    if os.geteuid() == 0:
        os.lchown(path, NOBODY, NOBODY)
    else:
        as_user(monkeypatch, NOBODY)


def writable(bits):
    return lambda path, _: path.chmod(path.stat().st_mode | bits)


def linked(path, _):
    real = path.parent.with_name("elsewhere")
    path.rename(real)
    path.symlink_to(real)


DOUBTFUL = {
    "of another user": (of_another, "another user owns it"),
    "others may write": (writable(0o002), "others can write it"),
    "the group may write": (writable(0o020), "others can write it"),
    "a link": (linked, "a link"),
}
doubtful = pytest.mark.parametrize(("spoil", "reason"), DOUBTFUL.values(), ids=DOUBTFUL)


@dataclass(frozen=True)
class Kept:
    """A kind of file: how one is written, where it is then, and what is read of it."""

    path: Callable[[], Path]
    write: Callable[[], Any]
    read: Callable[[Path], Any]


KINDS = {
    "json": Kept(
        lambda: store.folder("selfcheck", "0.json"),
        lambda: store.write_json(store.folder("selfcheck", "0.json"), 1),
        lambda path: store.read_json(path, lambda *_: None),
    ),
    "program": Kept(
        lambda: store.folder("programs", "0.bin"),
        lambda: binaries.keep(store.folder("programs", "0.bin"), b"x"),
        binaries.read,
    ),
    "rates": Kept(
        lambda: user_rates.file_of(HERE.identity).path,
        lambda: user_rates.write(HERE.identity, as_numbers(HERE.rates), "2026-11-22"),
        lambda _: user_rates.read(HERE.identity),
    ),
    "detour": Kept(
        lambda: next(store.folder("detours").glob("*.json")),
        lambda: crash_marks.take_detour(HERE, 3, keep=True),
        lambda _: crash_marks.detour(HERE) or None,
    ),
}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@kinds
@doubtful
def test_a_file_that_others_may_have_written_is_ignored_with_one_warning(monkeypatch, kind, spoil, reason):
    kind.write()
    nothing_checked(monkeypatch)
    path = kind.path()
    spoil(path, monkeypatch)
    before = path.read_bytes()
    with pytest.warns(CacheWarning, match=reason) as heard:
        assert [kind.read(path) for _ in range(2)] == [None, None]
    assert len(heard) == 1
    assert path.read_bytes() == before


@kinds
def test_a_file_of_this_user_alone_is_read(monkeypatch, kind):
    kind.write()
    nothing_checked(monkeypatch)
    assert kind.read(kind.path()) is not None


@doubtful
def test_a_folder_that_others_may_fill_is_not_read_and_not_written(monkeypatch, spoil, reason, tmp_path):
    path = store.folder("selfcheck", "0.json")
    assert store.write_json(path, 1)
    spoil(path.parent, monkeypatch)
    locks = [lambda: store.create_locked(path.with_name("mark")), lambda: store.locked(path).__enter__()]
    with pytest.warns(CacheWarning, match=reason) as heard:
        assert store.read_json(path, lambda *_: None) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not store.write_json(path, 2)
        assert [lock() for lock in locks] == [None, None]
    assert len(heard) == 1
    assert [x.name for x in path.parent.iterdir()] == ["0.json"]
    assert json.loads(path.read_text()) == 1


@pytest.mark.parametrize(("spoil", "reason"), [DOUBTFUL["of another user"], DOUBTFUL["a link"]])
def test_a_cache_folder_of_another_or_a_link_is_not_used(monkeypatch, folder, spoil, reason):
    Call(kernel="naive")()
    before = sorted(folder.rglob("*"))
    as_in_a_new_process(monkeypatch)
    spoil(folder, monkeypatch)
    with pytest.warns(CacheWarning, match=rf"is ignored: .*{reason}; .*PYCLMM_CACHE_DIR"):
        Call(kernel="naive", dtype="float64").check_works()
    assert len(sorted(folder.rglob("*"))) == len(before)


def test_a_cache_folder_that_others_can_write_keeps_what_is_ours(monkeypatch, folder):
    """As a volume of a container is. What pyclmm makes in it is its own."""
    folder.mkdir()
    folder.chmod(0o777)
    Call(kernel="naive")()
    [file] = folder.glob("selfcheck/*.json")
    assert file.parent.stat().st_mode & 0o777 == 0o700
    as_in_a_new_process(monkeypatch)
    Call(kernel="naive").check_works()


def test_what_root_has_filled_is_read_by_others(monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("only root makes files of root")
    path = store.folder("selfcheck", "0.json")
    store.write_json(path, 1)
    as_user(monkeypatch, NOBODY)
    assert store.read_json(path, lambda *_: None) == 1


def test_a_planted_lock_is_not_followed_and_holds_up_nobody(folder):
    path, precious = tables.own_path(HERE), folder.with_name("precious")
    path.parent.mkdir(parents=True, mode=0o700)
    path.with_suffix(".lock").symlink_to(precious)
    with pytest.warns(CacheWarning, match=r"\.lock is ignored: it is a link"):
        assert tables.merge(HERE, [])
    assert not precious.exists()


# what a forged file could do


def forged(file, **changes):
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_a_forged_verdict_admits_no_kernel(monkeypatch, folder):
    """It says that a kernel is right which the check would refuse."""
    Call(kernel="naive")()
    [file] = folder.glob("selfcheck/*.json")
    assert json.loads(file.read_text())["reason"] is None
    file.chmod(0o666)
    of_another(file, monkeypatch)
    as_in_a_new_process(monkeypatch)
    refuse_kernels(monkeypatch, "seeded")
    with pytest.warns(CacheWarning, match="another user owns it"), pytest.raises(pyclmm.UnsupportedError):
        Call(kernel="naive")()


def test_verdicts_that_were_exchanged_are_noticed(monkeypatch, folder):
    for dtype in ("float32", "float64"):
        x = np.ones((9, 9), dtype)
        pyclmm.matmul(x, x, kernel="naive")
    one, other = folder.glob("selfcheck/*.json")
    exchange(one, other)
    as_in_a_new_process(monkeypatch)
    with pytest.warns(CacheWarning, match="set aside: content.key is"):
        pyclmm.matmul(x, x, kernel="naive")


def exchange(one, other):
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def test_compiled_programs_that_were_exchanged_are_noticed(monkeypatch, limits, queue, folder):
    """Each is whole and of this user, but the other one's. Both are compiled again."""
    limits(vendors=())
    built = []
    count = {"Program": lambda *args: built.append(len(args)) or cl.Program(*args)}
    replace_driver(monkeypatch, "opencl", **count)
    rng = np.random.default_rng(1)
    integers = rng.integers(-9, 9, (17, 17), dtype=np.int32)

    def products():
        for x in (integers, integers.astype(np.float32)):
            own = new_queue(queue.device)
            assert np.array_equal(pyclmm.matmul(x, x, kernel="naive", queue=own), x @ x)

    products()
    one, other = folder.glob("programs/*.bin")
    exchange(one, other)
    del built[:]
    with pytest.warns(CacheWarning, match="not the one that was written under this name") as heard:
        products()
    assert len(heard) == 2
    assert built == [2, 3] * 2, "from source, and then from its binary"


def test_an_exchanged_answer_of_the_compiler_is_asked_again(folder):
    if not HERE.is_cpu:
        pytest.skip("a CPU's compiler is asked")
    found = processor.target_of(DEVICE)
    [file] = folder.glob("targets/*.json")
    forged(file, key="0" * 64)
    with pytest.warns(CacheWarning, match="key"):
        assert processor.target_of(DEVICE) == found


def test_rates_beyond_physics_do_not_end_a_product(folder):
    assert user_rates.write(HERE.identity, as_numbers(HERE.rates), "2026-11-22")
    path = user_rates.file_of(HERE.identity).path
    forged(path, rates={**as_numbers(HERE.rates), "float32": 10**400})
    device_info.cache_clear()
    with pytest.warns(CacheWarning, match=r"set aside: content\.rates\.\w+ is .*, not a number from"):
        Call().check_works()
    assert path.with_suffix(".bad").exists()


def test_a_table_of_another_user_chooses_nothing(monkeypatch):
    path = tables.own_path(HERE)
    store.write_json(path, tables.table_json(HERE, []))
    of_another(path, monkeypatch)
    tables.forget()
    with pytest.warns(CacheWarning, match="another user owns it"):
        Call().check_works()


# caches of others


@pytest.fixture
def others_caches(monkeypatch, tmp_path):
    """PyOpenCL's caches are on, and PoCL's folder is there, in new folders."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "kcache"))
    pyopencls_cache(monkeypatch, True)
    folders = {name: tmp_path / name for name in ("pytools", "pyopencl", "kcache")}
    for folder in folders.values():
        folder.mkdir()
        (folder / "file").touch()
    return folders


@pytest.mark.parametrize("name", ["pytools", "pyopencl"])
@pytest.mark.parametrize("inside", [False, True], ids=["folder", "file"])
@pytest.mark.parametrize("spoil", [of_another, writable(0o002)], ids=["of another", "writable"])
def test_pyopencls_caches_of_others_are_not_used(monkeypatch, others_caches, name, inside, spoil):
    """They hold pickles and Python code."""
    folder = others_caches[name]
    spoil(folder / "file" if inside else folder, monkeypatch)
    with pytest.warns(CacheWarning, match=rf"{name}.*(user owns|can write) it.*XDG_CACHE_HOME"):
        assert binaries.with_pyopencl_caches(lambda: cl._PYOPENCL_NO_CACHE) is True


def test_pocls_cache_of_others_is_warned_of(monkeypatch, others_caches):
    others_caches["kcache"].chmod(0o777)
    with pytest.warns(CacheWarning, match="kcache: others can write it; PoCL runs .* set POCL_CACHE_DIR"):
        assert binaries.with_pyopencl_caches(lambda: cl._PYOPENCL_NO_CACHE) is False


def test_caches_that_the_users_own_group_may_write_are_used(others_caches):
    """As with a umask of 002, which many systems set."""
    for folder in others_caches.values():
        os.chown(folder, -1, os.getegid())
        folder.chmod(0o775)
    assert binaries.with_pyopencl_caches(lambda: cl._PYOPENCL_NO_CACHE) is False
