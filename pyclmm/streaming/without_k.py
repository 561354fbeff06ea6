"""A streamed product that multiplies nothing: alpha is 0, or K is. The result is act(beta C + bias)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyopencl as cl

from .. import plan_cache
from ..execution.operands import signature
from ..opencl.queues import default_queue
from . import blocks
from .job import Job, pieces
from .tiles import Tile

_PIECE = 64 << 20  # bytes of the result at a time


def write_without_k(job: Job, queue: cl.CommandQueue | None) -> None:
    """Write the result of a *job* whose K is 0, by pieces."""
    product = job.product
    options = replace(job.options, trans_a="N", trans_b="N", workspace_limit=None)
    count = int(np.prod(product.stack, dtype=np.int64))
    for z in range(count):
        whole = Tile(0, (z, z + 1), (0, product.m), (0, product.n))
        part = blocks.part(product.stack, product.stack, whole.z, whole.rows, whole.columns)
        for piece, _ in pieces(part, False, job.dtype.itemsize, _PIECE):
            tile = Tile(0, whole.z, _span(piece.rows), _span(piece.columns))
            given = {
                "a": np.empty((piece.shape[0], 0), job.a.dtype),
                "b": np.empty((0, piece.shape[1]), job.b.dtype),
            }
            if job.c is not None:
                its = job.c.part(product.stack, tile.z, tile.rows, tile.columns)
                given["c"] = np.empty(its.shape, job.c.dtype)
                source = job.c.source
                target = given["c"].T.copy() if source.turned else given["c"]
                source.read(target, its.index, its.rows, its.columns)
                given["c"] = target.T if source.turned else target
            bias = job.bias_of(tile)
            if bias is not None and job.bias is not None:
                given["bias"] = job.bias[bias]
            on = queue or default_queue()
            plan = plan_cache.plan_for(given, signature(given), options, on, job.alpha, job.beta)
            block = plan.run(given, on, job.alpha, job.beta, None)
            job.sink.write(block, piece.index, piece.rows, piece.columns)


def _span(x: slice) -> blocks.Span:
    return x.start, x.stop
