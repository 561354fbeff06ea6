"""Disassembles AMD's machine code by LLVM's library. It runs as a program, with the library's path:

    python tests/simulators/amd/llvm.py libLLVM.so PROCESSOR < code > lines

Each line is the offset of an instruction and its text.
"""

import ctypes
import sys

FEATURES = {"gfx9": b"", "gfx1": b"+wavefrontsize32"}


def main(library: str, processor: str) -> None:
    llvm = ctypes.CDLL(library)
    for part in ("TargetInfo", "Target", "TargetMC", "Disassembler"):
        getattr(llvm, f"LLVMInitializeAMDGPU{part}")()
    llvm.LLVMCreateDisasmCPUFeatures.restype = ctypes.c_void_p
    llvm.LLVMDisasmInstruction.restype = ctypes.c_size_t
    features = FEATURES[processor[:4]]
    context = ctypes.c_void_p(
        llvm.LLVMCreateDisasmCPUFeatures(
            b"amdgcn-amd-amdhsa", processor.encode(), features, None, 0, None, None
        )
    )
    code, at = sys.stdin.buffer.read(), 0
    text = ctypes.create_string_buffer(1024)
    given = ctypes.create_string_buffer(code, len(code))
    start = ctypes.addressof(given)
    while at < len(code):
        size = llvm.LLVMDisasmInstruction(
            context, ctypes.c_void_p(start + at), ctypes.c_uint64(len(code) - at), ctypes.c_uint64(at), text,
            ctypes.c_size_t(len(text)),
        )  # fmt: skip
        print(at, text.value.decode().strip() if size else "no instruction", sep="\t")
        at += size or 4


if __name__ == "__main__":
    main(*sys.argv[1:])
