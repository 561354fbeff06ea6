"""Rewrites the tables of the README and of the pages in ``PAGES``, from benchmarks/results/.

    python benchmarks/readme.py [--check]

Everything between ``<!-- NAME -->`` and ``<!-- end NAME -->`` is replaced, so no number is typed by hand.
A speed on a GPU is divided by the peer's best time in all files (peers.py). A speed on a CPU is divided by
the peer's in the same run, because other work on the machine slows both sides of one run and not of another.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import first_screen
import framework_tables
import peers
import processor
import ratios
import road_tables
import support
import turn_tables
import verification_tables

import pyclmm

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
CUBES = (1024, 2048, 4096, 8192)
BEST = peers.read()
FLOAT64 = "*-float64-matrix-units.json"
NEARLY = 0.95  # a ratio to the peer's fastest layout is shown if it is under this share of the other


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def kernels() -> str:
    """Every kernel by name, with a mark if "auto" may choose it."""
    rows = [[f"`{k.name}`", k.summary, "yes" if k.automatic else ""] for k in pyclmm.KERNELS]
    return table(["name", "what it is", "auto"], rows)


def supported() -> str:
    """What pyclmm was tested on (support.py)."""
    return table(["device", "state", "which"], support.rows())


def first() -> str:
    """What a reader wants and what was measured of it (first_screen.py)."""
    return table(["you want", "you get", "measured"], first_screen.rows())


def header(content: dict[str, Any]) -> str:
    device = content["device"]
    return (
        f"{device['name']} ({device['platform']}, driver {device['driver_version']}), {content['date'][:10]}"
    )


def bench() -> str:
    """One product by every kernel, from `pyclmm bench --json`."""
    parts = []
    for file in sorted(RESULTS.glob("bench-*.json")):
        content = json.loads(file.read_text())
        for product in content["products"]:
            size = f"{product['m']} x {product['n']} x {product['k']} {product['dtype']}"
            about = f"{size}; {header(content)}; NumPy {content['host']['numpy']}; "
            parts += [f"{about}wall time, {product['wall']}:", ladder(product)]
    return "\n\n".join(parts)


def ladder(product: dict[str, Any]) -> str:
    rows = []
    for row in (row for row in product["rows"] if row["wall_s"] is not None):
        walls = row["wall_samples_s"]
        times = [f"{x * 1e3:.3g}" for x in (min(walls), row["wall_s"], max(walls))]
        device = "-" if row["device_s"] is None else f"{row['device_s'] * 1e3:.3g}"
        rows.append([row["kernel"], *times, f"{row['gflops']:.3g}", f"{row['speedup']:.3g}", device])
    head = ["kernel", "least ms", "median ms", "most ms", "GFLOP/s", "times `sequential`", "device ms"]
    return table(head, rows)


def cpu() -> str:
    """Speed compared with NumPy and CLBlast on CPU devices, from benchmarks/cpu.py: a row for each processor
    and driver, each dtype from its newest run.
    """
    contents = [json.loads(file.read_text()) for file in RESULTS.glob("cpu-*.json")]
    contents = sorted((c for c in contents if "summary" in c), key=lambda content: str(content["date"]))
    newest: dict[tuple[str, str], dict[str, Any]] = {}
    for content in contents:
        device = content["device"]
        driver = f"{_PLATFORMS.get(device['platform'], device['platform'])} {device['driver_version']}"
        row = newest.setdefault((processor.with_facts(content["processor"], device), driver), {})
        row |= content["summary"] | {"date": content["date"][:10]}
    head = ["processor", "driver", *_CPU_DTYPES, "times CLBlast", "of the peak", "date"]
    return table(head, [[*key, *cpu_cells(row)] for key, row in sorted(newest.items())])


_PLATFORMS = {"Portable Computing Language": "PoCL", "Intel(R) OpenCL": "Intel"}
_CPU_DTYPES = ("float32", "float64", "complex64", "float16")


def cpu_cells(row: dict[str, Any]) -> Iterator[str]:
    """NumPy's time over ours for each dtype, mean and least; float32 compared with CLBlast and the peak."""
    for dtype in _CPU_DTYPES:
        found = row.get(f"{dtype} / numpy")
        yield f"{found['mean']:.2f}, {found['least']:.2f}" if found else "-"
    yield f"{row['float32 / clblast']['mean']:.1f}" if "float32 / clblast" in row else "-"
    yield f"{row['float32 / peak']['share']:.0%}" if "float32 / peak" in row else "-"
    yield row["date"]


def gpu() -> str:
    """float32 products on a GPU compared with cuBLAS and CLBlast, from benchmarks/gpu.py."""
    parts = []
    for file in sorted(RESULTS.glob("*-float32.json")):
        content = json.loads(file.read_text())
        parts += [
            f"{content['device']}, driver {content['driver']}, {content['date']}:",
            shapes(content),
        ]
    return "\n\n".join(parts)


def sampled() -> str:
    """Products drawn at random compared with cuBLAS (benchmarks/sampled.py)."""
    # The first run was made when calls had events: its "seconds" are without, as calls are now.
    runs = {"h200-sampled.json": "seconds", "h100-sampled-4246.json": "called_seconds"}
    found = {name: json.loads((RESULTS / name).read_text()) for name in runs}

    def spread(kind: str, run: str) -> str:
        """Geometric mean, tenth percentile and least of cuBLAS's time over ours."""
        mine = [row["cublas_seconds"] / row[runs[run]] for row in found[run]["rows"] if row["kind"] == kind]
        return ", ".join(f"{number:.2f}" for number in ratios.spread(mine))

    first, *_ = found.values()
    kinds = dict.fromkeys(row["kind"] for row in first["rows"])
    worst = sorted(first["rows"], key=lambda row: row["cublas_seconds"] / row["seconds"])[:5]
    listed = (
        f"{named(row)} {row['cublas_seconds'] / row['seconds']:.2f} (`{row['kernel']}`)" for row in worst
    )
    about = (
        f"{run['device']}, driver {run['driver']}, {run['date']}, seed {run['seed']}, "
        f"{len(run['rows'])} products"
        for run in found.values()
    )
    heads = (f"{run['device']}, seed {run['seed']}" for run in found.values())
    return "\n\n".join(
        [
            f"{'; '.join(about)}:",
            table(["", *heads], [[kind, *(spread(kind, run) for run in runs)] for kind in kinds]),
            f"The five worst of the first: {'; '.join(listed)}.",
        ]
    )


def named(row: dict[str, Any]) -> str:
    """The product of a row of sampled.py, in words."""
    *stack, m, n, k = row["shape"]
    several = "".join(f"{z} of " for z in stack)
    return f"{row['kind']} {several}{m} x {n} x {k} {row['layout']}"


def shapes(content: dict[str, Any]) -> str:
    """A row for each shape: TFLOP/s of NN, and the speed divided by the peers' in each layout."""
    by_shape: dict[str, dict[str, dict[str, Any]]] = {}
    for row in content["rows"]:
        batch, m, n, k = row["shape"]
        name = f"{batch} of " * (batch > 1) + f"{m} x {n} x {k}"
        by_shape.setdefault(name, {})[row["layout"]] = row
    rows = []
    for name, layouts in by_shape.items():
        nn = layouts["NN"]
        rate = nn["flops"] / nn["seconds"]["auto"] / 1e12
        ratios = [over_cublas(content, layouts[layout]) for layout in ("NN", "NT", "TN")]
        rows.append([name, nn["kernel"], f"{rate:.1f}", *ratios, over_clblast(nn)])
    head = ["M x N x K", "kernel", "TFLOP/s", "times cuBLAS: NN", "NT", "TN", "times CLBlast: NN"]
    return table(head, rows)


def over_cublas(content: dict[str, Any], row: dict[str, Any]) -> str:
    product, own = peers.of_gpu_row(row, content["dtype"]), row["seconds"]["auto"]
    return times(
        [BEST.seconds(content["device"], product) / own], BEST.fastest(content["device"], product) / own
    )


def times(ratios: list[float], over_fastest: float) -> str:
    """Ratios to cuBLAS in the same layout; after a semicolon to its fastest, where that is much faster."""
    text = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    return text + f"; {over_fastest:.2f}" * (over_fastest < NEARLY * ratios[-1])


def over_clblast(row: dict[str, Any]) -> str:
    seconds = row["seconds"]
    return f"{seconds['clblast'] / seconds['auto']:.2f}" if "clblast" in seconds else "-"


def compared(content: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a run on matrix units, with ``ratios``: the speed divided by cuBLAS's best, with an event
    for each launch and without; and ``over_fastest``: without events, by cuBLAS's in its fastest layout."""
    rows = []
    for row in content["rows"]:
        product, silent = peers.of_units_row(row), row["silent_seconds"]
        theirs, fastest = (find(content["device"], product) for find in (BEST.seconds, BEST.fastest))
        found = {"ratios": [theirs / row["seconds"], theirs / silent], "over_fastest": fastest / silent}
        rows.append(row | found)
    return rows


def cube(shape: Sequence[int]) -> int | None:
    """N of a product of two square matrices that the tables have a column for."""
    return shape[0] if len(shape) == 3 and len(set(shape)) == 1 and shape[0] in CUBES else None


def units(measured: list[dict[str, Any]]) -> str:
    """A row for each kernel and type: TFLOP/s of cubes; in parentheses the speed divided by cuBLAS's."""
    by_name: dict[str, dict[int, str]] = {}
    for row in measured:
        if (n := cube(row["shape"])) is not None:
            rate = peers.of_units_row(row).flops / row["seconds"] / 1e12
            word = row["dtype"] + f' "{row["precision"]}"' * (row["precision"] != "highest")
            cells = by_name.setdefault(f"`{row['kernel']}`, {word}, {row['layout']}", {})
            cells[n] = f"{rate:.0f} ({times(row['ratios'], row['over_fastest'])})"
    return by_cube("product", by_name)


def units_peers(device: str) -> str:
    """A row for each operation and layout: cuBLAS's best TFLOP/s of cubes."""
    by_name: dict[str, dict[int, str]] = {}
    for (where, product), best in BEST.best.items():
        if where == device and (n := cube(product.shape)) is not None:
            rate = product.flops / best.seconds / 1e12
            by_name.setdefault(f"{product.operation}, {product.layout}", {})[n] = f"{rate:.0f}"
    return by_cube("cuBLAS", dict(sorted(by_name.items())))


def by_cube(head: str, by_name: dict[str, dict[int, str]]) -> str:
    rows = [[name, *(cells.get(n, "") for n in CUBES)] for name, cells in by_name.items()]
    return table([head, *map(str, CUBES)], rows)


def type_of(row: dict[str, Any]) -> str:
    """The name of what is multiplied."""
    return "TF32" if row["precision"] == "medium" else str(row["dtype"])


def units_means(measured: list[dict[str, Any]]) -> str:
    """A row for each type: "auto" compared with cuBLAS over all shapes and layouts."""
    by_type: dict[str, list[dict[str, Any]]] = {}
    for row in (r for r in measured if r["asked_for"] == "auto"):
        by_type.setdefault(type_of(row), []).append(row)
    rows = []
    for name, own in by_type.items():
        cells = []
        for found in zip(*([*row["ratios"], row["over_fastest"]] for row in own), strict=True):
            cells += [f"{statistics.geometric_mean(found):.2f}", f"{min(found):.2f}"]
        rows.append([name, str(len(own)), *cells])
    return table(
        [
            "type",
            "products",
            "mean",
            "least",
            "mean without events",
            "least",
            "to the fastest layout",
            "least",
        ],
        rows,
    )


def units_shapes(measured: list[dict[str, Any]]) -> str:
    """A row for each shape: the speed of "auto" divided by cuBLAS's, by type and layout."""
    by_shape: dict[str, dict[str, str]] = {}
    for row in (r for r in measured if r["asked_for"] == "auto"):
        *stack, m, n, k = row["shape"]
        name = "".join(f"{z} of " for z in stack) + f"{m} x {n} x {k}"
        by_shape.setdefault(name, {})[f"{type_of(row)} {row['layout']}"] = times(
            row["ratios"], row["over_fastest"]
        )
    columns = list(dict.fromkeys(column for cells in by_shape.values() for column in cells))
    rows = [[name, *(cells.get(column, "") for column in columns)] for name, cells in by_shape.items()]
    return table(["M x N x K", *columns], rows)


def matrix_units() -> str:
    """Matrix units of GPUs compared with cuBLAS, from benchmarks/matrix_units.py."""
    parts = []
    for file in sorted(set(RESULTS.glob("*-matrix-units.json")) - set(RESULTS.glob(FLOAT64))):
        content = json.loads(file.read_text())
        measured = compared(content)
        parts += [
            f"{content['device']}, driver {content['driver']}, {content['date']}:",
            units(measured),
            "cuBLAS's best TFLOP/s, by layout:",
            units_peers(content["device"]),
            'Geometric means and leasts of `kernel="auto"` over the shapes below, as launches are made by '
            "default, and without events:",
            units_means(measured),
            'What `kernel="auto"` takes of cuBLAS\'s speed:',
            units_shapes(measured),
        ]
    return "\n\n".join(parts)


def float64_high() -> str:
    """float64 and complex128 with "high" beside cuBLAS, from benchmarks/matrix_units.py."""
    parts = []
    for file in sorted(RESULTS.glob(FLOAT64)):
        content = json.loads(file.read_text())
        found: dict[str, dict[int, str]] = {}
        for row in compared(content):
            rate = peers.of_units_row(row).flops / row["seconds"] / 1e12
            cells = found.setdefault(f"{row['dtype']}, {row['layout']}", {})
            own = "" if row["kernel"] == "residues" else f" `{row['kernel']}`"
            cells[row["shape"][0]] = f"{rate:.0f} ({times(row['ratios'], row['over_fastest'])}){own}"
        sizes = sorted({n for cells in found.values() for n in cells})
        rows = [[name, *(cells.get(n, "") for n in sizes)] for name, cells in found.items()]
        parts += [
            f"{content['device']}, driver {content['driver']}, {content['date']}:",
            table(["product", *map(str, sizes)], rows),
        ]
    return "\n\n".join(parts)


def float64_accuracy() -> str:
    """Errors of float64 products by data, from benchmarks/accuracy.py."""
    parts = []
    for file in sorted(RESULTS.glob("*-accuracy.json")):
        content = json.loads(file.read_text())
        unit = 2.0**-53
        rows = [
            [
                row["data"],
                *(f"{row[c][0]:.1e}, {row[c][1] / unit:.1f}" for c in ("cublas", "highest", "high")),
            ]
            for row in content.get("float64", [])
        ]
        parts += [
            f"{content['device']}, driver {content['driver']}, {content['date']}, N = {content['size']}:",
            table(["data", "cuBLAS float64", '"highest"', '"high"'], rows),
        ]
    return "\n\n".join(parts)


def accuracy() -> str:
    """Errors of float32 products by data and precision, from benchmarks/accuracy.py."""
    parts = []
    for file in sorted(RESULTS.glob("*-accuracy.json")):
        content = json.loads(file.read_text())
        columns = {"cuBLAS float32": "cublas", '"highest"': "highest", '"high"': "high", '"medium"': "medium"}
        rows = [
            [row["data"], *(f"{row[c][0]:.1e}" for c in columns.values()), f"{row['high'][1] * 2**20:.2f}"]
            for row in content["rows"]
        ]
        parts += [
            f"{content['device']}, driver {content['driver']}, {content['date']}, N = {content['size']}:",
            table(["data", *columns, '"high", worst element, of 2^-20'], rows),
        ]
    return "\n\n".join(parts)


def frameworks() -> str:
    """Products of PyTorch's, CuPy's and JAX's arrays (framework_tables.py)."""
    head = ["", "the library's own", "pyclmm", "times as fast"]
    return f"{framework_tables.note()}\n\n{table(head, framework_tables.rows())}"


def verification() -> str:
    """What it costs to check each result (verification_tables.py)."""
    head = list(verification_tables.HEAD)
    return "\n\n".join(f"{about}\n\n{table(head, rows)}" for about, rows in verification_tables.parts())


PARTS = {
    "first screen": first,
    "support": supported,
    "kernels": kernels,
    "bench": bench,
    "cpu": cpu,
    "gpu": gpu,
    "sampled": sampled,
    "matrix units": matrix_units,
    "frameworks": frameworks,
    "accuracy": accuracy,
    "float64 high": float64_high,
    "float64 accuracy": float64_accuracy,
    "verification cost": verification,
    "road": road_tables.road,
    "gpu flat": lambda: road_tables.gpu_step("naive", "flat"),
    "gpu strip": lambda: road_tables.gpu_step("tiled", "strip"),
    "gpu block": lambda: road_tables.gpu_step("strip", "block"),
    "gpu vector": lambda: road_tables.gpu_step("block", "vector"),
    "register in vectors": lambda: turn_tables.table("register-vectors-intel-2026.2-xeon"),
    "constant b": lambda: turn_tables.table("constant-b-pocl-3.0-xeon", "constant-b-intel-2026.2-xeon"),
    "gpu double_buffer": lambda: road_tables.gpu_step("block", "double_buffer"),
}
DOCS = ROOT / "docs"
PAGES = (
    ROOT / "README.md",
    DOCS / "measured.md",
    DOCS / "kernels.md",
    DOCS / "kernels" / "matrix_units" / "measured.md",
    DOCS / "precision.md",
    DOCS / "verification.md",
    DOCS / "road" / "index.md",
    *sorted((DOCS / "road").glob("0[46-9]_*.md")),
    DOCS / "road" / "10_register.md",
    DOCS / "howto" / "service.md",
)


def rewritten(text: str) -> str:
    for name, part in PARTS.items():
        start, end = f"<!-- {name} -->\n", f"<!-- end {name} -->"
        before, found, rest = text.partition(start)
        if found:
            text = before + start + part() + "\n" + end + rest.partition(end)[2]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="check only whether the pages are up to date")
    check = parser.parse_args().check
    for page in PAGES:
        old = page.read_text()
        new = rewritten(old)
        if check and new != old:
            sys.exit(f"{page.name} is not what benchmarks/readme.py makes of the results")
        page.write_text(new)


if __name__ == "__main__":
    main()
