"""Pictures of speed against size: what is joined by a line, and one colour a kernel."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from pyclmm.kernels import KERNELS
from pyclmm.tools.plots import KERNEL_STYLES


@pytest.fixture(scope="module")
def pictures():
    file = Path(__file__).parents[2] / "benchmarks/pictures.py"
    spec = importlib.util.spec_from_file_location("pictures", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_sizes_about_a_power_of_two_are_not_joined(pictures):
    axes = Figure().add_subplot()
    pictures.against_size(axes, {"pyclmm": {1024: 1.0, 4095: 2.0, 4096: 3.0, 4097: 4.0, 8192: 5.0}})
    joined = [list(line.get_ydata()) for line in axes.lines if line.get_linestyle() == "-"]
    apart = [list(line.get_ydata()) for line in axes.lines if line.get_linestyle() == "None"]
    assert joined == [[1, 3, 5]]
    assert apart == [[2, 4]]


def test_a_kernel_has_its_colour_in_every_layout(pictures):
    assert {kernel.name for kernel in KERNELS} <= set(KERNEL_STYLES)
    for name, (colour, _) in KERNEL_STYLES.items():
        assert {pictures.style(f"{name} {layout}")["color"] for layout in ("NN", "NT", "TN")} == {colour}
    assert len({colour for colour, _ in KERNEL_STYLES.values()}) == len(KERNEL_STYLES)
