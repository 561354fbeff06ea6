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


STACKS = """
import numpy as np, pyclmm
rng = np.random.default_rng(1)
x = rng.integers(-9, 9, (2, 2, 256)).astype(np.float16)
w = rng.integers(0, 16, (143, 256)).astype(np.float16)
for group in (32, 64, 128):
    q = pyclmm.quantize(w, bits=4, group_size=group)
    want = x.astype("f8") @ q.dequantize("f2").astype("f8").T
    got = pyclmm.matmul(x, q.T, kernel="quantized")
    assert (abs(got - want) <= 1e-3 * (1 + abs(want))).all(), group
assert pyclmm.default_queue().device.platform.name == "Intel(R) OpenCL"
"""


def run(code, home, **variables):
    """What *code* prints in a process that knows Intel's runtime as pip does."""
    outside = ("OCL_ICD", "OPENCL_", "PYOPENCL_", "LD_LIBRARY_PATH", "PYCLMM_", "XDG_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(outside)} | variables
    env |= {"HOME": str(home), "PYTHONPATH": os.pathsep.join((str(SITE[0]), str(ROOT)))}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(
        command, env=env, cwd=home, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_intels_runtime_is_found_where_pip_installed_it(tmp_path):
    assert "Intel(R) OpenCL" in run(CODE, tmp_path)


def test_stacks_by_weights_of_4_bits_compile(tmp_path):
    """Without a trial, so that the compiler's crash is this process's."""
    run(STACKS, tmp_path, PYCLMM_TRIAL="off", PYOPENCL_NO_CACHE="1")
