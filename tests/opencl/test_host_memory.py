"""NumPy arrays as buffers: which a kernel reads in place, and under which flags."""

import numpy as np
import pyopencl as cl
import pytest

import pyclmm
from tests.support.cases import small_integers
from tests.support.faults import replace_driver

N = 16


def read_only(x):
    x.flags.writeable = False
    return x


def mapped(x, path, mode):
    x.tofile(path)
    return np.memmap(path, x.dtype, mode, shape=x.shape)


FIXED = {
    "its own": (lambda x, _: read_only(x.copy()), "READ_WRITE"),
    "a view": (lambda x, _: read_only(x.copy())[:].view(np.ndarray), "READ_WRITE"),
    "with gaps": (lambda x, _: read_only(np.repeat(x, 2, axis=1))[:, ::2], "READ_WRITE"),
    "a map of its own": (lambda x, path: read_only(mapped(x, path, "c")), "READ_WRITE"),
    "a protected map": (lambda x, path: mapped(x, path, "r"), "READ_ONLY"),
    "bytes": (lambda x, _: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape), "READ_ONLY"),
}


@pytest.mark.parametrize("made", FIXED)
def test_read_only_memory_of_the_process_is_no_read_only_buffer(rng, monkeypatch, tmp_path, made):
    """Intel's runtime copies what is under READ_ONLY. Protected memory stays so. A call like an earlier one
    has no buffers, so there is none."""
    pyclmm.release()
    x, y = small_integers(rng, (N, N), "f4"), small_integers(rng, (N, N), "f4")
    make, wanted = FIXED[made]
    fixed, flags, own = make(x, tmp_path / "x"), [], cl.Buffer

    def noted(context, kind, *rest, **named):
        flags.append(kind)
        return own(context, kind, *rest, **named)

    replace_driver(monkeypatch, "opencl", Buffer=noted)
    np.testing.assert_array_equal(pyclmm.matmul(fixed, y, kernel="naive"), x @ y)
    here = [kind for kind in flags if kind & cl.mem_flags.USE_HOST_PTR]
    assert here[0] & getattr(cl.mem_flags, wanted)
    assert not fixed.flags.writeable
    np.testing.assert_array_equal(fixed, x)
