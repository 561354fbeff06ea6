"""tune: measure kernels on this device for some seconds; the table lands in a folder of this script's own."""

import os
import tempfile
from pathlib import Path

import pyclmm

with tempfile.TemporaryDirectory() as folder:
    os.environ["PYCLMM_CACHE_DIR"] = folder  # leave it out to keep the table for your later programs
    found = pyclmm.tune([(96, 96, 96)], layouts=["NN"], budget=5)
    for search in found.searches:
        best = search.best
        assert best is not None
        timed = [one for one in search.tried if one.seconds]
        print(f"{search.problem}: {len(timed)} candidates timed, the fastest {best.choice.kernel.name}")
        assert timed
    assert any(Path(folder).rglob("*.json"))
