"""Intel's own runtime, as pip lays it out, without a variable and with an empty home (`make conformance`)."""

import os
import subprocess
import sys

import pytest

from .implementations import INTEL, ROOT

SITE = sorted(INTEL.glob("lib/python*/site-packages"))
pytestmark = pytest.mark.skipif(not SITE, reason="`make conformance` has not fetched Intel's runtime yet")

CODE = """
import os
before = dict(os.environ)
import numpy as np, pyopencl as cl, pyclmm
records = {d.platform: d for d in pyclmm.devices()}
assert before.keys() == set(os.environ) - {"PYOPENCL_HOME"}
intel = records["Intel(R) OpenCL"]
assert intel.default and intel.kind == "cpu", intel
rng = np.random.default_rng(1)
a, b = rng.integers(-9, 9, (2, 129, 129)).astype(np.float64)
assert (pyclmm.matmul(a, b) == a @ b).all()
assert "Intel(R) OpenCL" in {p.name for p in cl.get_platforms()}
print(sorted(records))
"""


def test_intels_runtime_is_found_where_pip_installed_it(tmp_path):
    outside = ("OCL_ICD", "OPENCL_", "PYOPENCL_", "LD_LIBRARY_PATH", "PYCLMM_", "XDG_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(outside)}
    env |= {"HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join((str(SITE[0]), str(ROOT)))}
    command = [sys.executable, "-W", "error", "-c", CODE]
    done = subprocess.run(
        command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Intel(R) OpenCL" in done.stdout
