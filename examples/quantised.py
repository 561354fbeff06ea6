"""A GGUF file with the weights of a layer: each product with them, beside NumPy's with what they stand for.

The file is written here by PyPI's gguf, with random weights in the shapes of Qwen2.5-0.5B.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np

import pyclmm

WIDTH, HIDDEN, TOKENS = 896, 4864, 4
LAYER = {
    "ffn_gate": (HIDDEN, WIDTH, gguf.GGMLQuantizationType.Q4_0),
    "ffn_up": (HIDDEN, WIDTH, gguf.GGMLQuantizationType.Q5_0),
    "ffn_down": (WIDTH, HIDDEN, gguf.GGMLQuantizationType.Q8_0),
}
rng = np.random.default_rng(43)


def write(path: Path) -> None:
    """A file of the layer's weights, and its norm in float32."""
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_tensor("blk.0.ffn_norm.weight", rng.uniform(0.5, 1.5, WIDTH).astype(np.float32))
    for name, (n, k, kind) in LAYER.items():
        w = rng.standard_normal((n, k), np.float32) / np.float32(np.sqrt(k))
        writer.add_tensor(f"blk.0.{name}.weight", gguf.quants.quantize(w, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def seconds(call: Callable[[], Any]) -> float:
    """The median of a few calls."""
    taken = []
    for _ in range(9):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def product(name: str, x: np.ndarray[Any, Any], q: pyclmm.QuantizedArray) -> np.ndarray[Any, Any]:
    """x times the weights *q*, compared with NumPy's product with the float32 that they stand for."""
    weights = q.dequantize(x.dtype).T
    bound = pyclmm.reference.limit(q.shape[1])
    for kernel in ("quantized", "dequantized", "auto"):  # for few rows, for many, and whichever is faster
        result = pyclmm.matmul(x, q.T, kernel=kernel)
        error = pyclmm.reference.error_ratio(result, x, weights)
        assert error <= bound, f"{name} is wrong"
    dense = np.ascontiguousarray(weights.T)
    pyclmm.matmul(x, dense.T)
    share = seconds(lambda: pyclmm.matmul(x, q.T)) / seconds(lambda: pyclmm.matmul(x, dense.T))
    print(f"{name:10} {q.mode:6} {q.nbytes / q.size:14.4g} {error:9.3g} of {bound:<6g} {share:12.2f}")
    return result


def rounded(x: np.ndarray[Any, Any], q: pyclmm.QuantizedArray) -> None:
    """x rounded to 8 bits in groups, as llama.cpp does on CPUs: only when asked for."""
    weights = q.dequantize(x.dtype).T
    for kernel in ("int8_quantized", "int8_tile"):  # for few rows, for many
        try:
            result = pyclmm.matmul(x, q.T, kernel=kernel, quantize_a="int8")
        except pyclmm.UnsupportedError as error:
            print(f"A in 8 bits: {error}")
            return
        own = pyclmm.reference.error_ratio(result, pyclmm.reference.int8_groups(x, q), weights)
        assert own <= pyclmm.reference.limit(q.shape[1])
    worst = abs(result - x @ weights).max() / (abs(x) @ abs(weights)).max()
    print(f"A in 8 bits: at most {worst:.1g} of the largest sum of absolute values from the product of x")


with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
    write(Path(folder, "layer.gguf"))
    tensors: Any = pyclmm.from_gguf(Path(folder, "layer.gguf"))
    print(repr(tensors["blk.0.ffn_down.weight"]))
    print("tensor     format bytes a weight     error of bound  time / float32's")
    x = rng.standard_normal((TOKENS, WIDTH), np.float32) * tensors["blk.0.ffn_norm.weight"]
    gate, up = (product(name, x, tensors[f"blk.0.{name}.weight"]) for name in ("ffn_gate", "ffn_up"))
    rounded(x, tensors["blk.0.ffn_gate.weight"])
    y = product("ffn_down", gate / (1 + np.exp(-gate)) * up, tensors["blk.0.ffn_down.weight"])

    exact = {name: tensors[f"blk.0.{name}.weight"].dequantize().astype(np.float64).T for name in LAYER}
    gate = x @ exact["ffn_gate"]
    wanted = (gate / (1 + np.exp(-gate)) * (x @ exact["ffn_up"])) @ exact["ffn_down"]
    right = np.allclose(y, wanted, atol=1e-5)
    print(right)
    assert right
