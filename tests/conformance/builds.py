"""Builds programs as AMD's and Intel's drivers do, with their own compilers. Runs in the system of newer.py.

    python3.14 builds.py < jobs > results

A job is a line of JSON: vendor, target, the source's file, options, and the file for what a GPU loads. So is
a result, in the same order: "log", what the compiler says, and "failed", the step at which it ended or "".

AMD's driver calls comgr in these steps and with these options (ROCclr, devprogram.cpp); Intel's ocloc has the
same compiler as its driver.
"""

import ctypes
import json
import subprocess
import sys
from pathlib import Path

SOURCE, LOG, EXECUTABLE = 1, 5, 8  # amd_comgr_data_kind_t
NO_LANGUAGE, OPENCL_1_2 = 0, 1  # amd_comgr_language_t
# amd_comgr_action_kind_t
HEADERS, COMPILE, LINK_BITCODE, GENERATE, LINK = (
    ("ADD_PRECOMPILED_HEADERS", 1),
    ("COMPILE_SOURCE_WITH_DEVICE_LIBS_TO_BC", 12),
    ("LINK_BC_TO_BC", 3),
    ("CODEGEN_BC_TO_RELOCATABLE", 4),
    ("LINK_RELOCATABLE_TO_EXECUTABLE", 7),
)
# What the driver says that its devices have; opencl-c.h names the rest.
EXTENSIONS = (
    *("cl_khr_fp64", "cl_khr_fp16", "cl_khr_byte_addressable_store", "cl_khr_global_int32_base_atomics"),
    *("cl_khr_global_int32_extended_atomics", "cl_khr_local_int32_base_atomics"),
    *("cl_khr_local_int32_extended_atomics", "cl_khr_int64_base_atomics"),
    *("cl_khr_int64_extended_atomics", "cl_khr_3d_image_writes", "cl_khr_image2d_from_buffer"),
    *("cl_khr_subgroups", "cl_amd_device_attribute_query", "cl_amd_media_ops", "cl_amd_media_ops2"),
    *("cl_amd_copy_buffer_p2p", "cl_amd_assembly_program"),
)


class Handle(ctypes.Structure):
    _fields_ = [("handle", ctypes.c_uint64)]


class Comgr:
    """AMD's code object manager, by ctypes."""

    def __init__(self):
        self.library = ctypes.CDLL("libamd_comgr.so.3")

    def must(self, name, *arguments):
        if status := self.library[f"amd_comgr_{name}"](*arguments):
            raise RuntimeError(f"amd_comgr_{name} returned {status}")

    def made(self, name, *arguments):
        handle = Handle()
        self.must(f"create_{name}", *arguments, ctypes.byref(handle))
        return handle

    def source(self, text):
        """A set with one source."""
        inputs, data = self.made("data_set"), self.made("data", SOURCE)
        self.must("set_data", data, ctypes.c_size_t(len(text)), text)
        self.must("set_data_name", data, b"CompileSource")
        self.must("data_set_add", inputs, data)
        self.must("release_data", data)
        return inputs

    def content(self, found, kind):
        """The first of this *kind* in a set, or nothing."""
        number = ctypes.c_size_t()
        self.must("action_data_count", found, kind, ctypes.byref(number))
        if not number.value:
            return b""
        data = Handle()
        self.must("action_data_get_data", found, kind, ctypes.c_size_t(0), ctypes.byref(data))
        self.must("get_data", data, ctypes.byref(number), None)
        content = ctypes.create_string_buffer(number.value)
        self.must("get_data", data, ctypes.byref(number), content)
        self.must("release_data", data)
        return content.raw

    def done(self, kind, target, language, options, inputs):
        """(whether it went well, the set of results) of an action."""
        action, results = self.made("action_info"), self.made("data_set")
        if language:
            self.must("action_info_set_language", action, language)
        self.must("action_info_set_isa_name", action, f"amdgcn-amd-amdhsa--{target}".encode())
        given = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        self.must("action_info_set_option_list", action, given, ctypes.c_size_t(len(options)))
        self.must("action_info_set_logging", action, ctypes.c_bool(True))
        status = self.library.amd_comgr_do_action(kind, action, inputs, results)
        self.must("destroy_action_info", action)
        self.must("destroy_data_set", inputs)
        return not status, results


def amd(comgr, target, source, options, output):
    """(log, the step that failed)."""
    wide = not target.startswith("gfx1")
    mode = [*(["-mcumode", "-mwavefrontsize64"] if wide else []), "-mcode-object-version=5"]
    named = [
        "-D__OPENCL_VERSION__=200",
        "-D__IMAGE_SUPPORT__=1",
        "-Xclang",
        "-cl-ext=+" + ",+".join(EXTENSIONS),
    ]
    compiled = ["-O3", *options, *named, "-mllvm", "-amdgpu-prelink", *mode]
    libraries = [*(["wavefrontsize64"] if wide else []), "code_object_v5"]
    generated = ["-O3", *options, "-mllvm", "-amdgpu-internalize-symbols", *mode]
    log, failed, found = "", "", comgr.source(Path(source).read_bytes())
    for (name, kind), language, given in (
        (HEADERS, OPENCL_1_2, compiled),
        (COMPILE, OPENCL_1_2, compiled),
        (LINK_BITCODE, OPENCL_1_2, libraries),
        (GENERATE, NO_LANGUAGE, generated),
        (LINK, NO_LANGUAGE, []),
    ):
        good, found = comgr.done(kind, target, language, given, found)
        log += comgr.content(found, LOG).decode(errors="replace")
        if not good:
            failed = name
            break
    if not failed:
        Path(output).write_bytes(comgr.content(found, EXECUTABLE))
    comgr.must("destroy_data_set", found)
    return log, failed


def intel(target, source, options, output):
    """(log, the step that failed)."""
    (ocloc,) = Path("/usr/bin").glob("ocloc-*")
    given = [ocloc, "compile", "-file", source, "-device", target, "-options", " ".join(options)]
    done = subprocess.run(
        [*given, "-o", output], capture_output=True, text=True, errors="replace", check=False
    )
    return done.stdout + done.stderr, "compile" if done.returncode else ""


def main():
    comgr = None
    for line in sys.stdin:
        job = json.loads(line)
        given = (job["target"], job["source"], job["options"], job["output"])
        if job["vendor"] == "amd":
            comgr = comgr or Comgr()
            log, failed = amd(comgr, *given)
        else:
            log, failed = intel(*given)
        print(json.dumps({"log": log, "failed": failed}), flush=True)


if __name__ == "__main__":
    main()
