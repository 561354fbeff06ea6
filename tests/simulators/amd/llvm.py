"""Disassembles AMD's machine code by LLVM's library. It runs as a program, with the library's path:

    python tests/simulators/amd/llvm.py libLLVM.so PROCESSOR

It reads a line with a number of bytes, and so many bytes of code. It writes a line for each instruction, the
offset and the text, and an empty one. Then it reads again.
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
    text = ctypes.create_string_buffer(1024)
    for line in sys.stdin.buffer:
        length, at = int(line), 0
        given = ctypes.create_string_buffer(sys.stdin.buffer.read(length), length)
        start = ctypes.addressof(given)
        while at < length:
            size = llvm.LLVMDisasmInstruction(
                context, ctypes.c_void_p(start + at), ctypes.c_uint64(length - at), ctypes.c_uint64(at), text,
                ctypes.c_size_t(len(text)),
            )  # fmt: skip
            print(at, text.value.decode().strip() if size else "no instruction", sep="\t")
            at += size or 4
        print(flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
