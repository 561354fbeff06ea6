"""Limits that a test makes small, so that little work reaches them: what knows where they are."""

_PLACES = {
    "binaries": ["pyclmm.opencl.binaries._MOST_BYTES"],
    "calls": ["pyclmm.linalg.repeated._MOST"],
    "checked": ["pyclmm.tools.timing._CHECK_SLOW"],
    "chunk": ["pyclmm.opencl.staging.CHUNK"],
    "dask": ["pyclmm.dask.block._SMALL"],
    "decisions": ["pyclmm.torch.override._MOST"],
    "digest": ["pyclmm.streaming.fingerprints._MOST"],
    "dimension": [
        f"pyclmm.{name}.MAX_DIMENSION" for name in ("problem.matrices", "streaming.choice", "streaming.entry")
    ],
    "direct": ["pyclmm.opencl.staging.DIRECT"],
    "dropped": ["pyclmm.cuda.device_array._MOST_DROPPED"],
    "hopeless": ["pyclmm.tools.timing._HOPELESS", "pyclmm.tools.timing._OUTCLASSED"],
    "launch": ["pyclmm.opencl.steps._MAX_STACK"],
    "law": ["pyclmm.tools.selftest._GRACE"],
    "own_kernel": ["pyclmm.tools.own_kernel.LIMIT"],
    "panels": ["pyclmm.kernels.cpu.packed_shape._PANELS_BYTES"],
    "part": ["pyclmm.opencl.staging._BYTES_PER_THREAD"],
    "plans_programs": ["pyclmm.plan_cache._PROGRAMS_KEPT"],
    "plans": ["pyclmm.plan_cache._plans._most"],
    "programs": ["pyclmm.opencl.program._PROGRAMS_KEPT"],
    "queues": ["pyclmm.opencl.late_events._QUEUES"],
    "read": ["pyclmm.streaming.storage._WORTH_A_READ"],
    "shown": ["pyclmm.execution.host_path._MOST_TO_SHOW"],
    "table_rows": ["pyclmm.streaming.entry._TABLE_ROWS"],
    "threads": ["pyclmm.opencl.staging._THREADS"],
    "tile": ["pyclmm.streaming.choice._TILE_BYTES"],
    "tiles_from": ["pyclmm.streaming.entry._LEAST_BYTES"],
    "tuned": ["pyclmm.tools.tuner.LIMIT"],
    "vendors": ["pyclmm.opencl.binaries._KEEP_THEIR_OWN"],
    "weights": ["pyclmm.quantized.making._AT_A_TIME"],
}


def limited(patch, **limits):
    """Each limit of that name is so large until *patch* ends."""
    for name, value in limits.items():
        for place in _PLACES[name]:
            patch.setattr(place, value)
