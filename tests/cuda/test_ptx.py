"""What is changed in the PTX of NVIDIA's OpenCL compiler. texts/ has the ends of one by driver 580.159.04."""

import re
from pathlib import Path

import pytest

from pyclmm.cuda import ptx

TEXT = (Path(__file__).parent / "texts/add_partial_sums.ptx").read_bytes()
# As that compiler declares local memory in a kernel.
SHARED = b"\t// demoted variable\n\t.shared .align %d .b8 matmul_$_%s[%d];\n"


WAIT = b"\tgriddepcontrol.wait;"


def with_local_memory(*arrays):
    lines = b"".join(SHARED % (align, name, size) for align, name, size in arrays)
    return TEXT.replace(b"\n{\n", b"\n{\n" + lines, 1)


def test_offsets_come_from_parameters():
    assert re.findall(rb"%envreg\d", TEXT) == [b"%envreg0", b"%envreg5"]
    made = ptx.loadable(TEXT + b"\0")
    assert made.dynamic == {"add_partial_sums": 0}
    assert made.text.endswith(b"\0")
    assert b"%envreg" not in made.text
    assert re.search(rb"mov\.u32 +\t%r46, 0;", made.text)
    assert re.search(rb"ld\.param\.u32 +\t%r52, \[add_partial_sums_pyclmm_envreg5\];", made.text)
    names = re.findall(rb"\.param \.\w+ .*?(\w+)[,\n]", made.text.partition(b"{")[0])
    assert names[-5].endswith(b"_%d" % (TEXT.count(b".param .") - 1))
    assert names[-4:] == [b"add_partial_sums_pyclmm_envreg%d" % n for n in ptx.PARAMETERS]


def test_nothing_else_is_changed():
    lines, made = TEXT.splitlines(), ptx.loadable(TEXT).text.rstrip(b"\0").splitlines()
    changed = [line for line in lines if line not in made]
    made.remove(WAIT)
    assert len(made) == len(lines) + len(ptx.PARAMETERS)
    assert len(changed) == 3  # two reads, and a comma after the last parameter


@pytest.mark.parametrize("register", range(9))
def test_each_register(register):
    made = ptx.loadable(TEXT.replace(b"%envreg0", b"%%envreg%d" % register)).text
    fixed = {0: b"0", 2: b"0", 3: b"0", 6: b"%nctaid.x", 8: b"%nctaid.z"}
    if register in fixed:
        assert b"mov.u32 \t%%r46, %s;" % fixed[register] in made
    else:
        assert b"ld.param.u32 \t%%r46, [add_partial_sums_pyclmm_envreg%d];" % register in made


def test_a_kernel_without_an_offset_gets_no_parameter():
    made = ptx.loadable(TEXT.replace(b"%envreg5", b"%envreg2"))
    assert b"pyclmm_envreg" not in made.text
    assert made.text.count(b"\n") == TEXT.count(b"\n") + 1


def test_the_largest_local_memory_over_48_kib_is_given_by_the_launch():
    few = with_local_memory((16, b"a", 40_000), (4, b"b", 9_000))
    assert ptx.loadable(few).dynamic == {"add_partial_sums": 0}
    made = ptx.loadable(with_local_memory((16, b"a", 512), (1024, b"b", 196_608)))
    assert made.dynamic == {"add_partial_sums": 196_608}
    head = made.text.partition(b".entry")[0]
    assert b".address_size 64\n.extern .shared .align 1024 .b8 matmul_$_b[];\n" in head
    assert b"b8 matmul_$_b[196608]" not in made.text
    assert b"b8 matmul_$_a[512];" in made.text


def test_two_kernels_of_a_program():
    second = TEXT[TEXT.index(b".entry") :].replace(b"add_partial_sums", b"other")
    made = ptx.loadable(with_local_memory((16, b"a", 60_000)) + second)
    assert made.dynamic == {"add_partial_sums": 60_000, "other": 0}
    assert b"[other_pyclmm_envreg5]" in made.text
    assert b"[add_partial_sums_pyclmm_envreg5]" in made.text


def test_each_kernel_waits_before_all_else_for_the_work_before_it():
    second = TEXT[TEXT.index(b".entry") :].replace(b"add_partial_sums", b"other")
    made = ptx.loadable(with_local_memory((16, b"a", 60_000)) + second)
    assert made.overlaps
    bodies = re.findall(rb"^\)\n(?:\.[^\n]*\n)*\{\n([^\n]*)\n", made.text, re.MULTILINE)
    assert bodies == [WAIT, WAIT]


@pytest.mark.parametrize(
    ("old", "new", "overlaps"),
    [
        (b".target sm_90", b".target sm_89", False), (b".target sm_90", b".target sm_100", True),
        (b".target sm_90,", b".target sm_90a,", True), (b".version 9.0", b".version 7.8", True),
        (b".version 9.0", b".version 7.7", False), (b".version 9.0", b"// none", False),
    ],
)  # fmt: skip
def test_which_devices_have_the_instruction(old, new, overlaps):
    made = ptx.loadable(TEXT.replace(old, new))
    assert made.overlaps == overlaps
    assert (WAIT in made.text) == overlaps


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"no program", "has no kernel"),
        (TEXT.replace(b".address_size", b".address_of"), "has no .address_size"),
        (TEXT.replace(b"%envreg0", b"%envreg9"), "reads %envreg9, of which nothing is known"),
        (
            TEXT.replace(b"mov.b32 \t%r46, %envreg0", b"add.s32 \t%r46, %r1, %envreg0"),
            "in a way that is not known",
        ),
        (TEXT.replace(b".entry", b".func f() { mov.b32 %r1, %envreg3; }\n.entry"), "beside the kernels"),
        (
            with_local_memory((16, b"a", 60_000), (16, b"b", 60_000)),
            "120000 bytes of local memory in several",
        ),
    ],
)
def test_what_is_not_known_is_refused(text, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        ptx.loadable(text)
