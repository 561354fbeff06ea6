"""Rewrites NVIDIA's program text for sm_90a, to use instructions that its OpenCL C compiler rejects.

NVIDIA's compiler turns OpenCL C into PTX, which is text, for ``.target sm_90``. The instructions of
``sm_90a`` (wgmma, tensormap.replace) exist only for that target, and no compiler option selects it. So
sources write them as comments inside ``asm``, where the compiler still fills in operands::

    asm volatile("//@sm_90a wgmma.commit_group.sync.aligned;");

The compiled text is rewritten before it is loaded: the marks are removed and the target is changed. With
``setmaxnreg`` every work-group of a required size also gets ``.minnctapersm 1``.
"""

from __future__ import annotations

import re

TARGET = "sm_90a"
MARK = b"//@sm_90a "
# Moves registers from one part of a work-group to another. The assembler ignores it unless the program says
# that one work-group on a compute unit is enough.
_REGISTERS = b"setmaxnreg"
_WORK_GROUP = re.compile(rb"^(\.reqntid[ \t].*)$", re.MULTILINE)
_TARGET_LINE = re.compile(rb"^(\.target[ \t]+)sm_90(?=[,\s])", re.MULTILINE)


def rewritten(binary: bytes) -> bytes:
    """The program text for sm_90a. Raises ValueError if *binary* is not PTX for sm_90 with marks."""
    if b".version" not in binary[:4096]:
        raise ValueError("the program binary is not PTX text")
    if MARK not in binary:
        raise ValueError(f"the program text has no {MARK.decode().strip()} marks: the compiler dropped them")
    text, targets = _TARGET_LINE.subn(rb"\1sm_90a", binary)
    if targets != 1:
        raise ValueError("the program text was not compiled for sm_90")
    if _REGISTERS in text:
        text = _WORK_GROUP.sub(rb"\1\n.minnctapersm 1", text)
    return text.replace(MARK, b"")
