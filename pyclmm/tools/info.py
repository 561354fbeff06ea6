"""What `pyclmm info` tells: platforms, devices, their limits, and the kernels that each can run."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pyopencl as cl

from ..byte_sizes import format_bytes
from ..errors import NoDeviceError
from ..kernels import KERNELS, Kernel
from ..kernels.device import DeviceInfo
from ..opencl.devices import all_devices, default_device, device_info, device_labels
from ..problem.canonical import problem_of
from ..selection.select import refusal
from . import report
from .terminal import Screen

# What kernels are asked about: a product that fits a work-group of any device, one that fits none, a thin one
# and a matrix times a vector, which some kernels are for.
SIZES = ((16, 16, 16), (1024, 1024, 1024), (1024, 4, 1024), (1024, 1, 1024))
DTYPES = ("float32", "float64")


def answers(kernel: Kernel, device: DeviceInfo) -> list[dict[str, Any]]:
    """What *kernel* says to every size and dtype: the reason why it cannot compute that, or its tile."""
    found = []
    for (m, n, k), dtype in product(SIZES, DTYPES):
        problem = problem_of(m, n, k, np.dtype(dtype))
        reason = refusal(kernel, problem, device)
        config = {} if reason else kernel.configs(problem, device)[0].as_dict()
        found.append({"m": m, "n": n, "k": k, "dtype": dtype, "refusal": reason, "config": config})
    return found


def _default() -> tuple[cl.Device | None, str | None]:
    """The default device, or the reason why PYOPENCL_CTX names none."""
    try:
        return default_device(), None
    except NoDeviceError as error:
        return None, str(error)


def as_json() -> dict[str, Any]:
    """Everything, for programs. Raises NoDeviceError."""
    all_devices()
    default, problem = _default()
    platforms = []
    labels = device_labels()
    for index, platform in enumerate(cl.get_platforms()):
        own = {label: d for label, d in labels.items() if label.startswith(f"{index}:")}
        platforms.append(
            {
                "name": platform.name.strip(),
                "vendor": platform.vendor.strip(),
                "version": platform.version.strip(),
                "devices": [_device_json(label, d, d == default) for label, d in own.items()],
            }
        )
    return report.header_json(None) | {"platforms": platforms, "default_problem": problem}


def _device_json(label: str, device: cl.Device, default: bool) -> dict[str, Any]:
    info = device_info(device)
    kernels = [
        {
            "name": kernel.name,
            "summary": kernel.summary,
            "automatic": kernel.automatic,
            "problems": answers(kernel, info),
        }
        for kernel in KERNELS
    ]
    return {"label": label, "default": default} | report.device_json(info) | {"kernels": kernels}


def show(screen: Screen, everything: dict[str, Any], reasons: bool) -> None:
    """*everything* of :func:`as_json`, for people. *reasons*: say why kernels cannot run."""
    for platform in everything["platforms"]:
        screen.line(f"{platform['name']} ({platform['version']})")
        if not platform["devices"]:
            screen.line("  no device")
        for device in platform["devices"]:
            _show_device(screen, device, reasons)
    if everything["default_problem"]:
        screen.line(f"no default device: {everything['default_problem']}")


def _compiled_for(target: dict[str, Any]) -> str:
    """What the compiler says of a CPU."""
    known = target["vector_bits"]
    return f", compiled for {known} bits ({' '.join(target['features'])})" if known else ""


def _caches(caches: dict[str, int]) -> str:
    """A CPU's caches: one compute unit's share of the first two levels."""
    third = f", third level {format_bytes(caches['l3'])}" if caches["l3"] else ""
    levels = f"first level {format_bytes(caches['l1'])}, second {format_bytes(caches['l2'])}{third}"
    tlb = f", TLB of {caches['tlb']} pages" if caches["tlb"] else ""
    return f"{levels}, lines of {caches['line']} bytes{tlb}"


def _show_device(screen: Screen, d: dict[str, Any], reasons: bool) -> None:
    capability = d["compute_capability"]
    lines = {
        "kind": f"{d['kind']}, vendor {d['vendor']}"
        + (f", compute capability {capability[0]}.{capability[1]}" if capability else ""),
        "driver": f"{d['driver_version']}, OpenCL {d['opencl_version'][0]}.{d['opencl_version'][1]}",
        "compute units": f"{d['compute_units']} at {d['max_clock_mhz']} MHz",
        "work-group": f"{d['max_work_group_size']} work-items, "
        + " x ".join(map(str, d["max_work_item_sizes"]))
        + " at most",
        "memory": f"local {format_bytes(d['local_mem_size'])}, global {format_bytes(d['global_mem_size'])}, "
        f"one buffer {format_bytes(d['max_mem_alloc_size'])}"
        + (", shared with the host" if d["unified_memory"] else ""),
        "vector width": f"{d['float_vector_width']} floats" + _compiled_for(d["target"]),
        "types": f"float64 {_yes(d['has_fp64'])}, float16 arithmetic {_yes(d['has_fp16'])}"
        + (f", AMX for {' and '.join(d['amx']['types'])}" if d["amx"]["types"] else ""),
    }
    if d["kind"] == "cpu":
        lines["caches"] = _caches(d["caches"])
    screen.line(f"  {d['label']}  {d['name']}{'  (default)' if d['default'] else ''}", indent=7)
    for name, text in lines.items():
        _show_fact(screen, name, text)
    able = [k for k in d["kernels"] if not all(p["refusal"] for p in k["problems"])]
    unable = [k for k in d["kernels"] if k not in able]
    for kernel in able:
        _show_kernel(screen, kernel, reasons)
    if unable:
        names = ", ".join(kernel["name"] for kernel in unable)
        _show_fact(screen, "cannot run", names + ("" if reasons else " (--reasons says why)"))
    for kernel in unable if reasons else []:
        _show_fact(screen, "", f"{kernel['name']}: {kernel['problems'][0]['refusal']}")
    screen.line()


def _show_fact(screen: Screen, name: str, text: str) -> None:
    screen.line(f"{' ' * 7}{name:14} {text}", indent=22)


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _show_kernel(screen: Screen, kernel: dict[str, Any], reasons: bool) -> None:
    """A line for a kernel that can run, and with *reasons* one for each thing it refuses."""
    refused = [p for p in kernel["problems"] if p["refusal"]]
    some = " (some shapes)" if refused else ""
    _show_fact(screen, "kernel", f"{kernel['name']}{some}: {kernel['summary']}")
    by_reason: dict[str, list[str]] = {}
    for p in refused if reasons else []:
        by_reason.setdefault(p["refusal"], []).append(f"{p['m']} x {p['n']} x {p['k']} {p['dtype']}")
    for reason, which in by_reason.items():
        _show_fact(screen, "", f"not {', '.join(which)}: {reason}")
