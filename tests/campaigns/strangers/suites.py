"""The suites: what is installed for each, which of its tests are run, and where they are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from configparser import ConfigParser
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
HOME = ROOT / ".strangers"
OURS = ("pyopencl==2026.1.4", "pocl-binary-distribution==3.0", "ml_dtypes==0.6.0", "pytest==9.2.0")


class MissingError(Exception):
    """Something could not be fetched. The message says what would do."""


@dataclass(frozen=True)
class Suite:
    """*tests* are pytest's arguments, in the folder of the sources.

    The sources are in ``sdist``, a requirement of PyPI, or in a checkout that the command line names; without
    both, in the packages.
    """

    name: str
    packages: tuple[str, ...]
    tests: tuple[str, ...]
    sdist: str = ""
    checkout: str = ""  # how to get one
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return ", ".join([self.sdist or self.name, *self.packages[:1]])


def _ours(name: str) -> tuple[str, ...]:
    """A module of this folder, without the settings of this project's tests."""
    return ("--noconftest", "--pyargs", f"tests.campaigns.strangers.{name}")


_ARRAY_API_PACKAGES = ("numpy==2.4.6", "hypothesis==6.170.15", "pytest-json-report==1.5.0", "ndindex==1.10.1")
_ARRAY_API_CHECKOUT = (
    "array-api-tests is not on PyPI. git clone --recurse-submodules -b 2026.02.26 "
    "https://github.com/data-apis/array-api-tests, then: make strangers ARRAY_API_TESTS=<that folder>"
)
SUITES = (
    Suite(
        "numpy",
        ("numpy==2.4.6", "hypothesis==6.170.15"),
        (
            *(
                "--pyargs",
                "numpy._core.tests.test_multiarray",
                "numpy._core.tests.test_ufunc",
                "numpy._core.tests.test_einsum",
                "numpy._core.tests.test_numeric",
                "numpy.linalg",
            ),
            *(
                "-k",
                "matmul or dot or vec or axes_argument or power or pinv or qr or svd "
                "or einsum or inner or outer or tensordot",
            ),
        ),
        env={"NPY_AVAILABLE_MEM": "1GB"},  # tests that need more are skipped
    ),
    Suite(
        "cupy",
        ("numpy==2.4.6",),
        (
            "tests/cupy_tests/math_tests/test_matmul.py",
            *(f"tests/cupy_tests/linalg_tests/{name}.py" for name in ("test_product", "test_einsum")),
            # Left out: whose view a result is, as as_cupy.py wraps each array; and dtype= for one operand,
            # which numpy.einsum forgets where the result is a view (docs/semantics.md).
            "-k",
            "(matmul or dot or inner or outer or power or EinSum) "
            "and not unary_views and not unary_dtype and not UnaryOperationWithScalar",
        ),
        sdist="cupy==14.2.0",
        # its set-up, which pip runs to learn the name of the package, then asks for no CUDA
        env={"CUPY_INSTALL_USE_STUB": "1"},
    ),
    Suite(
        "array-api-tests",
        _ARRAY_API_PACKAGES,
        (
            *("array_api_tests/test_linalg.py", "-k", "matmul or tensordot or power or pinv"),
            *("--disable-deadline", "--derandomize", "--max-examples", "1000"),
        ),
        checkout=_ARRAY_API_CHECKOUT,
        env={"ARRAY_API_TESTS_MODULE": "numpy"},
    ),
    Suite(
        "array-api",
        _ARRAY_API_PACKAGES,
        (
            *(
                *(f"array_api_tests/test_{name}.py" for name in ("linalg", "sorting_functions")),
                *(f"array_api_tests/test_{name}_functions.py" for name in ("set", "searching")),
                "-k",
                "matmul or tensordot or power or vecdot or transpose or outer "
                "or sort or unique or search or nonzero or argm or where or isin",
            ),
            *("--disable-deadline", "--derandomize", "--max-examples", "300"),
        ),
        checkout=_ARRAY_API_CHECKOUT,
        env={"ARRAY_API_TESTS_MODULE": "pyclmm.array_api"},
    ),
    Suite(
        "scikit-learn",
        ("scikit-learn==1.9.1", "scipy==1.17.1", "numpy==2.4.6"),
        ("--pyargs", "sklearn", "-k", "array_api"),
        env={"SCIPY_ARRAY_API": "1"},
    ),
    Suite(
        "dask",
        ("dask[array]==2026.8.0", "distributed==2026.8.0", "numpy==2.4.6"),
        ("--pyargs", "dask.array.tests.test_routines", "dask.array.tests.test_linalg"),
    ),
    Suite("opinfo", ("torch==2.13.0", "numpy==2.4.6", "expecttest==0.3.0"), _ours("opinfo")),
    Suite("netlib", ("numpy==2.4.6",), _ours("netlib")),
)


def prepare(suite: Suite, checkout: Path | None) -> tuple[Path, Path]:
    """The Python and the sources of *suite*; quick if they are complete. Raises MissingError."""
    if suite.checkout and not checkout:
        raise MissingError(suite.checkout)
    home = HOME / suite.name
    home.mkdir(parents=True, exist_ok=True)
    python = _environment(suite, home / "venv")
    sources = checkout or (_sources(suite, home / "sources") if suite.sdist else _empty(home / "sources"))
    return python, sources


def _environment(suite: Suite, venv: Path) -> Path:
    python = venv / ("Scripts" if os.name == "nt" else "bin") / "python"
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    wanted = "\n".join([*OURS, *suite.packages, settings["options"]["install_requires"]])
    stamp = venv / "stamp"
    if not (stamp.exists() and stamp.read_text() == wanted):
        shutil.rmtree(venv, ignore_errors=True)
        _run([sys.executable, "-m", "venv", venv])
        _run([python, "-m", "pip", "install", "-q", "-e", ROOT, "--config-settings", "editable_mode=compat",
              *OURS, *suite.packages])  # fmt: skip
        _run([python, ROOT / "tests/install/pocl_wheel.py"])
        stamp.write_text(wanted)
    return python


def _sources(suite: Suite, folder: Path) -> Path:
    """*suite*'s source distribution, unpacked and not built."""
    name = suite.sdist.partition("==")[0]
    unpacked = folder / suite.sdist.replace("==", "-")
    if not unpacked.exists():
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", name, "-d", folder]
        _run([*pip, suite.sdist], suite.env)
        shutil.unpack_archive(f"{unpacked}.tar.gz", folder, filter="data")
    return unpacked


def _empty(folder: Path) -> Path:
    """A folder for pytest to start in, with settings of its own."""
    folder.mkdir(exist_ok=True)
    (folder / "pytest.ini").touch()
    return folder


def _run(command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, check=False, text=True, env=os.environ | dict(env or {})
    )
    if done.returncode:
        said = done.stderr.strip()[-1500:]
        raise MissingError(
            f"{' '.join(map(str, command[:4]))} ... failed:\n{said}\nIt needs PyPI and Python 3.11 or later."
        )
