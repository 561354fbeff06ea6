"""Times cuBLASLt with a workspace, at the best of the algorithms that its heuristics propose.

    python benchmarks/cublaslt.py [--dtype int8] [--sizes 1024 4096 8192] [--shapes 64x512x512x512]
                                  [--layouts NN NT TN] [--json FILE]

This is the peer at its best. PyTorch takes what the heuristics put first, and for int8 (``torch._int_mm``)
it allows no workspace. Here each proposal is timed, as matrix_units.py times cuBLAS: a CUDA graph of as many
calls as fill 0.3 ms, behind a kernel that spins. Rounds are interleaved, results are medians, data are
random. The product of the best algorithm is compared with PyTorch's in float64. Results in
benchmarks/results/*-cublaslt.json count in the tables (peers.py).

cuBLASLt is called through ctypes, from the library that PyTorch's wheels bring (libcublasLt.so.13 or 12).
Names and numbers are those of cublasLt.h, cublas_api.h and library_types.h.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import math
import statistics
import sys
from collections.abc import Iterator
from ctypes import byref, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from cuda_graph import Graph
from peers import Product

try:
    import torch
except ImportError:
    torch = None

Shape = tuple[int, ...]  # M, N, K; for a stack, the number of products before them
WORKSPACE = 64 << 20  # bytes that an algorithm may use
PROPOSALS = 16  # algorithms to ask the heuristics for
BURST = 0.3e-3  # seconds of calls in a graph
MOST_CALLS = 60  # in a graph

# cudaDataType_t
R_32F, R_64F, R_16F, R_8I, R_32I, R_16BF = 0, 1, 2, 3, 10, 14
# cublasComputeType_t
COMPUTE_32F, COMPUTE_64F, COMPUTE_32I, COMPUTE_TF32 = 68, 70, 72, 77
# cublasLtMatmulDescAttributes_t, cublasLtMatrixLayoutAttribute_t, cublasLtMatmulPreferenceAttributes_t
DESC_TRANSA, DESC_TRANSB = 3, 4
LAYOUT_BATCH_COUNT, LAYOUT_BATCH_STRIDE = 5, 6
PREFERENCE_WORKSPACE = 1
# cublasOperation_t
OPERATIONS = {"N": 0, "T": 1}


@dataclass(frozen=True)
class Kind:
    """How an operation is asked for. *scalar*: the type of alpha and beta, as *scale* says; *tolerance*: the
    largest relative error by norm of a right product."""

    operation: str
    dtype: str
    data: int
    out: int
    compute: int
    scale: int
    scalar: Any
    tolerance: float
    layouts: tuple[str, ...] = ("NN", "NT", "TN")


KINDS = {
    "int8": Kind("int8", "int8", R_8I, R_32I, COMPUTE_32I, R_32I, c_int32, 0.0, ("NT",)),
    "float16": Kind("float16", "float16", R_16F, R_16F, COMPUTE_32F, R_32F, c_float, 1e-3),
    "bfloat16": Kind("bfloat16", "bfloat16", R_16BF, R_16BF, COMPUTE_32F, R_32F, c_float, 5e-3),
    "tf32": Kind("TF32", "float32", R_32F, R_32F, COMPUTE_TF32, R_32F, c_float, 1e-3),
    "float32": Kind("float32", "float32", R_32F, R_32F, COMPUTE_32F, R_32F, c_float, 1e-5),
    "float64": Kind("float64", "float64", R_64F, R_64F, COMPUTE_64F, R_64F, c_double, 1e-14),
}


class Algorithm(ctypes.Structure):
    """cublasLtMatmulAlgo_t"""

    _fields_ = (("data", c_uint64 * 8),)


class Proposal(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t"""

    _fields_ = (
        ("algorithm", Algorithm),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


# The types of each function's arguments; P: a pointer or a handle.
P = c_void_p
FUNCTIONS = {
    "cublasLtCreate": (P,),
    "cublasLtMatmulDescCreate": (P, c_int, c_int),
    "cublasLtMatmulDescSetAttribute": (P, c_int, P, c_size_t),
    "cublasLtMatrixLayoutCreate": (P, c_int, c_uint64, c_uint64, c_int64),
    "cublasLtMatrixLayoutSetAttribute": (P, c_int, P, c_size_t),
    "cublasLtMatmulPreferenceCreate": (P,),
    "cublasLtMatmulPreferenceSetAttribute": (P, c_int, P, c_size_t),
    "cublasLtMatmulAlgoGetHeuristic": (P, P, P, P, P, P, P, c_int, P, P),
    "cublasLtMatmul": (P, P, P, P, P, P, P, P, P, P, P, P, P, P, c_size_t, P),
}


class Library:
    """cuBLASLt. Objects that it makes live as long as the process."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        for name, types in FUNCTIONS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = types, c_int

    @cached_property
    def handle(self) -> c_void_p:
        """cuBLASLt's context on PyTorch's device."""
        return self.new("")

    def call(self, name: str, *arguments: Any) -> None:
        """Call cublasLt*name*. Raises RuntimeError with the status unless it succeeds."""
        status = getattr(self._library, f"cublasLt{name}")(*arguments)
        if status:
            raise RuntimeError(f"cublasLt{name}: cublasStatus_t {status} (cublas_api.h)")

    def new(self, name: str, *arguments: Any) -> c_void_p:
        """The object that cublasLt*name*Create makes."""
        made = c_void_p()
        self.call(f"{name}Create", byref(made), *arguments)
        return made

    def set(self, name: str, made: c_void_p, attribute: int, value: Any) -> None:
        """Set an attribute of an object; *value* has the attribute's type."""
        self.call(f"{name}SetAttribute", made, attribute, byref(value), ctypes.sizeof(value))


def load(major: str) -> Library:
    """cuBLASLt of that major version of CUDA, which PyTorch has loaded or its wheels bring.

    Exits with what to install if it is nowhere.
    """
    name = f"libcublasLt.so.{major}"
    wheels = [Path(folder) / "nvidia" for folder in sys.path if folder]
    found = (str(path) for wheel in wheels if wheel.is_dir() for path in sorted(wheel.glob(f"*/lib/{name}")))
    for path in (name, *found):
        try:
            return Library(ctypes.CDLL(path))
        except OSError:
            continue
    sys.exit(f"no {name} beside PyTorch: install PyTorch's wheel for CUDA (pip install torch)")


@dataclass(frozen=True)
class Matrix:
    """A matrix as cuBLASLt sees it: column-major, its columns *ld* elements apart."""

    rows: int
    columns: int
    trans: str = "N"

    @property
    def ld(self) -> int:
        return self.rows


def matrices(m: int, n: int, k: int, layout: str) -> tuple[Matrix, Matrix, Matrix]:
    """The operands and the result in cuBLASLt's order, for row-major matrices.

    A row-major matrix is its transpose in column-major order, and (A B)^T = B^T A^T: so the first operand is
    our B, the second our A.
    """
    a = Matrix(m, k, "T") if layout[0] == "T" else Matrix(k, m)
    b = Matrix(k, n, "T") if layout[1] == "T" else Matrix(n, k)
    return b, a, Matrix(n, m)


class Multiply:
    """One product of tensors on the device, with the algorithms that the heuristics propose for it."""

    def __init__(self, library: Library, kind: Kind, layout: str, shape: Shape) -> None:
        *stack, m, n, k = shape
        self.library, self.kind, self.shape = library, kind, shape
        self.product = Product.of(kind.operation, layout, shape)
        self.a = _numbers(kind, (*stack, k, m) if layout[0] == "T" else (*stack, m, k))
        self.b = _numbers(kind, (*stack, n, k) if layout[1] == "T" else (*stack, k, n))
        out_dtype = torch.int32 if kind.out == R_32I else self.a.dtype
        self.out = torch.empty((*stack, m, n), dtype=out_dtype, device="cuda")
        self.views = [x.mT if t == "T" else x for x, t in zip((self.a, self.b), layout, strict=True)]
        self._workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device="cuda")
        self._alpha, self._beta = kind.scalar(1), kind.scalar(0)
        self._operation = library.new("MatmulDesc", kind.compute, kind.scale)
        first, second, result = matrices(m, n, k, layout)
        for attribute, matrix in ((DESC_TRANSA, first), (DESC_TRANSB, second)):
            library.set("MatmulDesc", self._operation, attribute, c_int32(OPERATIONS[matrix.trans]))
        types = ((first, kind.data), (second, kind.data), (result, kind.out))
        self._layouts = [self._layout(matrix, data, math.prod(stack)) for matrix, data in types]
        self.proposals = self._proposals()

    def _layout(self, matrix: Matrix, data: int, batch: int) -> c_void_p:
        made = self.library.new("MatrixLayout", data, matrix.rows, matrix.columns, matrix.ld)
        if batch > 1:
            stride = matrix.rows * matrix.columns
            self.library.set("MatrixLayout", made, LAYOUT_BATCH_COUNT, c_int32(batch))
            self.library.set("MatrixLayout", made, LAYOUT_BATCH_STRIDE, c_int64(stride))
        return made

    def _proposals(self) -> list[Proposal]:
        """The heuristics' algorithms, the one that they think the fastest first."""
        preference = self.library.new("MatmulPreference")
        self.library.set("MatmulPreference", preference, PREFERENCE_WORKSPACE, c_uint64(WORKSPACE))
        first, second, result = self._layouts
        found, count = (Proposal * PROPOSALS)(), c_int(0)
        self.library.call(
            "MatmulAlgoGetHeuristic", self.library.handle, self._operation, first, second, result, result,
            preference, PROPOSALS, byref(found), byref(count),
        )  # fmt: skip
        good = [proposal for proposal in found[: count.value] if proposal.state == 0]
        if not good:
            raise RuntimeError(f"cuBLASLt proposes no algorithm for {self.product}")
        return good

    def run(self, proposal: Proposal) -> None:
        """Enqueue the product on PyTorch's current stream."""
        first, second, result = self._layouts
        out = self.out.data_ptr()
        self.library.call(
            "Matmul", self.library.handle, self._operation, byref(self._alpha), self.b.data_ptr(), first,
            self.a.data_ptr(), second, byref(self._beta), out, result, out, result, byref(proposal.algorithm),
            self._workspace.data_ptr(), WORKSPACE, torch.cuda.current_stream().cuda_stream,
        )  # fmt: skip

    def run_torch(self) -> None:
        """Enqueue the product through PyTorch."""
        torch.backends.cuda.matmul.allow_tf32 = self.kind.operation == "TF32"
        multiply = torch._int_mm if self.kind.dtype == "int8" else torch.matmul
        multiply(*self.views)

    def error(self, proposal: Proposal) -> float:
        """The relative error by norm of the product with that algorithm."""
        self.out.fill_(7)
        self.run(proposal)
        a, b = (x.double() for x in self.views)
        want = a @ b
        return float((self.out.double() - want).norm() / want.norm())


def _numbers(kind: Kind, shape: Shape) -> Any:
    if kind.dtype == "int8":
        return torch.randint(-128, 128, shape, dtype=torch.int8, device="cuda")
    return torch.randn(shape, dtype=getattr(torch, kind.dtype), device="cuda")


def own_graphs(multiply: Multiply, calls: int) -> list[tuple[Proposal, Graph]]:
    """A graph for each algorithm that runs."""
    found = []
    for proposal in multiply.proposals:
        try:
            found.append((proposal, Graph(partial(multiply.run, proposal), calls)))
        except RuntimeError as error:
            print(f"{multiply.product}: an algorithm is left out: {error}")
    if not found:
        raise RuntimeError("none of cuBLASLt's algorithms runs")
    return found


def measured(multiply: Multiply, rounds: int) -> dict[str, Any]:
    """A row: the best algorithm, the first that the heuristics propose, and PyTorch. Medians, without the
    first round. Raises RuntimeError if nothing runs."""
    product = multiply.product
    calls = max(2, min(MOST_CALLS, int(BURST / (product.flops / 500e12))))
    proposals, bursts = zip(*own_graphs(multiply, calls), strict=True)
    every = [*bursts, Graph(multiply.run_torch, calls)]
    times = [[burst.seconds() for burst in every] for _ in range(rounds + 1)][1:]
    *own, by_torch = (statistics.median(column) for column in zip(*times, strict=True))
    best = min(range(len(own)), key=own.__getitem__)
    error = multiply.error(proposals[best])
    if not error <= multiply.kind.tolerance:
        sys.exit(f"{product}: wrong result, error {error:.2e} over {multiply.kind.tolerance:g}")
    return {
        "operation": product.operation, "layout": product.layout, "shape": multiply.shape,
        "seconds": own[best], "first_seconds": own[0], "torch_seconds": by_torch,
        "algorithm": best + 1, "algorithms": len(own), "workspace": proposals[best].workspace, "error": error,
    }  # fmt: skip


COLUMNS = {"product": 32, "us": 9, "TFLOP/s": 7, "algorithm": 9, "MiB": 5, "first us": 9, "PyTorch": 9}
HEAD = " ".join(f"{name:{'<' if name == 'product' else '>'}{width}}" for name, width in COLUMNS.items())


def line(row: dict[str, Any]) -> str:
    """A row as text, under HEAD."""
    product = Product.of(row["operation"], row["layout"], row["shape"])
    best, first, by_torch = (row[key] * 1e6 for key in ("seconds", "first_seconds", "torch_seconds"))
    which = f"{row['algorithm']} of {row['algorithms']}"
    return (
        f"{product!s:32} {best:9.1f} {product.flops / row['seconds'] / 1e12:7.1f} {which:>9}"
        f" {row['workspace'] / 2**20:5.1f} {first:9.1f} {by_torch:9.1f}"
    )


def shape_of(text: str) -> Shape:
    """ "MxNxK" or "COUNTxMxNxK" as numbers."""
    shape = tuple(int(part) for part in text.split("x"))
    if len(shape) not in (3, 4) or min(shape) < 1:
        raise ValueError(text)
    return shape


def rows(library: Library, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each dtype, layout and shape. Prints why one cannot be measured."""
    for kind in (KINDS[name] for name in options.dtype):
        for layout in options.layouts or kind.layouts:
            for shape in [*((n, n, n) for n in options.sizes), *options.shapes]:
                rounds = options.rounds if max(shape) < 8192 else max(3, options.rounds // 3)
                try:
                    yield measured(Multiply(library, kind, layout, shape), rounds)
                except RuntimeError as error:
                    print(f"{Product.of(kind.operation, layout, shape)}: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dtype", nargs="+", choices=KINDS, default=["int8"])
    parser.add_argument("--sizes", nargs="*", type=int, default=[1024, 2048, 4096, 8192], help="M = N = K")
    parser.add_argument("--shapes", nargs="*", type=shape_of, default=[], help="MxNxK, COUNTxMxNxK")
    parser.add_argument("--layouts", nargs="+", choices=("NN", "NT", "TN", "TT"), help="int8: NT only")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if torch is None or not torch.cuda.is_available():
        sys.exit("cublaslt.py needs an NVIDIA GPU and PyTorch with CUDA (pip install torch)")
    library = load(torch.version.cuda.split(".")[0])
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda,
             "date": datetime.date.today().isoformat(), "workspace_limit": WORKSPACE}  # fmt: skip
    print(about)
    print(HEAD, flush=True)
    found = []
    for row in rows(library, options):
        found.append(row)
        print(line(row), flush=True)
        if options.json:
            options.json.write_text(json.dumps({**about, "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
