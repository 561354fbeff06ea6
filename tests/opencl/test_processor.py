"""The processor's caches, from made-up texts of Linux, macOS and Windows, and from this machine."""

import struct
import sys
from pathlib import Path

import pytest

from pyclmm.kernels.device import Caches
from pyclmm.opencl import processor
from pyclmm.opencl.processor import Level, combined, from_sysctl, from_sysfs, from_windows, tlb_entries

MIB = 1 << 20


def folder(level, kind, size, cpus, line="64"):
    """One of Linux's folders index*."""
    return {"level": level, "type": kind, "size": size, "coherency_line_size": line, "shared_cpu_list": cpus}


XEON = [  # two threads a core
    folder("1", "Data", "48K", "0,32"),
    folder("1", "Instruction", "32K", "0,32"),
    folder("2", "Unified", "2048K", "0,32"),
    folder("3", "Unified", "105M", "0-15,32-47"),
]


def test_linux():
    levels = [Level(1, 48 << 10, 64, 2), Level(2, 2 * MIB, 64, 2), Level(3, 105 * MIB, 64, 32)]
    assert from_sysfs(XEON) == levels
    assert from_sysfs([]) == []
    assert from_sysfs([folder("", "", "", "")]) == [], "files that cannot be read"
    assert from_sysfs([folder("1", "Data", "32K", "", "")]) == [Level(1, 32 << 10, 0, 1)]
    with pytest.raises(ValueError, match="size is 'many'"):
        from_sysfs([folder("1", "Data", "many", "0")])


@pytest.mark.parametrize(("cpus", "count"), [("0", 1), ("0-1", 2), ("0-3,8,12-13", 7), ("", 1)])
def test_how_many_processors_share_a_cache(cpus, count):
    [level] = from_sysfs([folder("2", "Unified", "1M", cpus)])
    assert level.sharers == count


def test_the_tlb_of_amds_processors():
    assert tlb_entries("bogomips\t: 5192.27\nTLB size\t: 3584 4K pages\nclflush size\t: 64\n") == 3584
    assert tlb_entries("model name\t: Intel(R) Xeon(R)\n") == 0


M1 = """hw.cachelinesize: 128
hw.l1dcachesize: 65536
hw.l2cachesize: 4194304
hw.cacheconfig: 8 1 4 0 0 0 0 0 0 0
hw.perflevel0.l1dcachesize: 131072
hw.perflevel0.l2cachesize: 12582912
hw.perflevel0.cpusperl2: 4
"""
INTEL_MAC = """hw.cachelinesize: 64
hw.l1dcachesize: 32768
hw.l2cachesize: 262144
hw.l3cachesize: 12582912
hw.cacheconfig: 12 2 2 12 0 0 0 0 0 0
"""


def test_macos():
    assert from_sysctl(M1) == [Level(1, 128 << 10, 128, 1), Level(2, 12 * MIB, 128, 4)]
    levels = [Level(1, 32 << 10, 64, 2), Level(2, 256 << 10, 64, 2), Level(3, 12 * MIB, 64, 12)]
    assert from_sysctl(INTEL_MAC) == levels
    assert from_sysctl("") == []


def record(level, nbytes, kind, mask, relation=2):
    """One of Windows' records of 56 bytes."""
    return struct.pack("<IIBBHII20xQ8x", relation, 56, level, 8, 64, nbytes, kind, mask)


def test_windows():
    content = b"".join(
        (
            record(1, 32 << 10, 2, 0b11),
            record(1, 64 << 10, 1, 0b11),  # for instructions
            record(2, MIB, 0, 0b11),
            record(1, 48 << 10, 2, 0b1100),  # of the second core
            record(3, 16 * MIB, 0, 0xFFFF),
            record(3, 99, 0, 1, relation=1),
        )
    )
    levels = [Level(1, 32 << 10, 64, 2), Level(2, MIB, 64, 2), Level(3, 16 * MIB, 64, 16)]
    assert from_windows(content) == levels
    assert from_windows(b"") == from_windows(content[:20]) == []
    assert from_windows(bytes(56)) == [], "a record of size 0 ends no loop"


def test_what_is_shared_is_divided_and_what_is_missing_has_a_fallback():
    assert combined(from_sysfs(XEON), 0, 2 * MIB, 64) == Caches(24 << 10, MIB, 105 * MIB, 64)
    assert combined(from_sysctl(M1), 0, 0, 0) == Caches(128 << 10, 3 * MIB, 0, 128)
    assert combined([], 0, 0, 0) == Caches()
    assert combined([], 0, 32 * MIB, 128) == Caches(32 << 10, 256 << 10, 32 * MIB, 128)
    assert combined([], 0, 16 << 10, 64) == Caches(32 << 10, 32 << 10, 16 << 10), "never less than the first"


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's folders")
def test_a_system_that_tells_nothing_or_nonsense_is_no_error(monkeypatch, tmp_path):
    monkeypatch.setattr(processor, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(processor, "_SYSFS", tmp_path)
    monkeypatch.setattr(processor, "_from_system", processor._from_system.__wrapped__)
    assert processor.caches(0, 0) == Caches()
    (tmp_path / "index0").mkdir()
    for name, text in folder("1", "Data", "many", "0").items():
        (tmp_path / "index0" / name).write_text(text)
    assert processor.caches(0, 0) == Caches()


@pytest.mark.skipif(not Path("/sys/devices/system/cpu/cpu0/cache/index0/size").exists(), reason="Linux")
def test_this_machine():
    found = processor.caches(0, 0)
    assert 4 << 10 <= found.l1 <= found.l2
    assert found.line in (32, 64, 128, 256)
