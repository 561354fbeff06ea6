"""benchmarks/cublaslt.py, as far as it needs no GPU: layouts, structures, the row of a product, messages."""

import ctypes

import numpy as np
import pytest

from tests.support.processes import python
from tests.support.scripts import ROOT, script


@pytest.fixture(scope="module")
def cublaslt():
    return script("benchmarks/cublaslt.py")


def column_major(memory, matrix):
    """op(X) of a matrix in *memory* as cuBLASLt reads it."""
    x = np.lib.stride_tricks.as_strided(
        memory, (matrix.rows, matrix.columns), (memory.itemsize, matrix.ld * memory.itemsize)
    )
    return x.T if matrix.trans == "T" else x


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_row_major_matrices_are_described_in_column_major_order(cublaslt, layout):
    m, n, k = 3, 4, 5
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    stored = [
        np.ascontiguousarray(x.T if t == "T" else x).ravel() for x, t in zip((a, b), layout, strict=True)
    ]
    first, second, result = cublaslt.matrices(m, n, k, layout)
    out = np.empty(m * n)
    column_major(out, result)[:] = column_major(stored[1], first) @ column_major(stored[0], second)
    assert np.allclose(out.reshape(m, n), a @ b)


def test_int8_runs_transposed_by_not_transposed(cublaslt):
    """The only layout of cuBLASLt's kernels for int8."""
    first, second, _ = cublaslt.matrices(3, 4, 5, *cublaslt.KINDS["int8"].layouts)
    assert (first.trans, second.trans) == ("T", "N")


def test_structures_have_the_sizes_of_the_header(cublaslt):
    assert ctypes.sizeof(cublaslt.Algorithm) == 64
    assert ctypes.sizeof(cublaslt.Proposal) == 96
    assert cublaslt.Proposal.workspace.offset == 64
    assert cublaslt.Proposal.state.offset == 72


class Failing:
    """A library whose functions return "not supported"."""

    def __getattr__(self, name):
        function = lambda *arguments: 15  # noqa: E731
        setattr(self, name, function)
        return function


def test_a_status_is_an_error_with_the_functions_name(cublaslt):
    with pytest.raises(RuntimeError, match="cublasLtMatmulDescCreate: cublasStatus_t 15"):
        cublaslt.Library(Failing()).new("MatmulDesc", 68, 0)


def test_a_missing_library_says_what_to_install(cublaslt):
    with pytest.raises(SystemExit, match=r"no libcublasLt\.so\.99 beside PyTorch: .*pip install torch"):
        cublaslt.load("99")


def test_the_wheels_library_is_found(cublaslt, monkeypatch, tmp_path):
    path = tmp_path / "nvidia" / "cu13" / "lib" / "libcublasLt.so.13"
    path.parent.mkdir(parents=True)
    path.touch()
    tried = []

    def load(name):
        tried.append(name)
        if "/" not in name:
            raise OSError(name)
        return Failing()

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.syspath_prepend(tmp_path)
    assert isinstance(cublaslt.load("13"), cublaslt.Library)
    assert tried == ["libcublasLt.so.13", str(path)]


class FakeBurst:
    def __init__(self, call, calls):
        self.value = call()

    def seconds(self):
        return self.value


class FakeMultiply:
    """Three algorithms, of which the second does not run and the third is the fastest."""

    def __init__(self, cublaslt, error):
        self.kind, self.shape = cublaslt.KINDS["int8"], (64, 64, 64)
        self.product = cublaslt.Product.of("int8", "NT", self.shape)
        self.proposals = [cublaslt.Proposal(workspace=n << 20) for n in range(3)]
        self.wrong = error

    def run(self, proposal):
        seconds = {0: 3e-6, 2 << 20: 1e-6}
        if proposal.workspace not in seconds:
            raise RuntimeError("not supported")
        return seconds[proposal.workspace]

    def run_torch(self):
        return 4e-6

    def error(self, proposal):
        assert proposal.workspace == 2 << 20
        return self.wrong


def test_the_best_algorithm_makes_the_row(cublaslt, monkeypatch, capsys):
    monkeypatch.setattr(cublaslt, "Graph", FakeBurst)
    row = cublaslt.measured(FakeMultiply(cublaslt, 0.0), rounds=3)
    assert (row["seconds"], row["first_seconds"], row["torch_seconds"]) == (1e-6, 3e-6, 4e-6)
    assert (row["algorithm"], row["algorithms"], row["workspace"]) == (2, 2, 2 << 20)
    assert "an algorithm is left out: not supported" in capsys.readouterr().out
    cells = cublaslt.line(row).split()
    assert cells[:6] == ["int8", "any", "64", "x", "64", "x"]
    assert float(cells[7]) == 1.0
    assert float(cells[8]) == pytest.approx(2 * 64**3 / 1e-6 / 1e12, abs=0.05)


def test_a_wrong_result_stops_the_run(cublaslt, monkeypatch):
    monkeypatch.setattr(cublaslt, "Graph", FakeBurst)
    with pytest.raises(SystemExit, match="wrong result"):
        cublaslt.measured(FakeMultiply(cublaslt, 1e-7), rounds=1)


def test_without_a_gpu_the_message_says_what_it_needs(tmp_path):
    fake = "class cuda:\n    is_available = staticmethod(lambda: False)\n"
    (tmp_path / "torch.py").write_text(fake)
    done = python(ROOT / "benchmarks/cublaslt.py", env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert done.stderr == "cublaslt.py needs an NVIDIA GPU and PyTorch with CUDA (pip install torch)\n"
