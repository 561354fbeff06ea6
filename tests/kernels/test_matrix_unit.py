"""Each fact of a matrix unit stands in MATRIX_UNITS alone, and every reader has it from there."""

from dataclasses import replace
from pathlib import Path

import pytest

import pyclmm
from pyclmm.kernels import kernel_named
from pyclmm.kernels.device import AmxSupport, DeviceInfo
from pyclmm.kernels.matrix_unit import DPAS_EXTENSION, MATRIX_UNITS, MatrixUnit
from pyclmm.kernels.rates import MATRIX_RATES
from pyclmm.tools.plots import KERNEL_STYLES
from pyclmm.tools.road import KERNELS_OF_THE_ROAD
from tests.support.made_up import ARC, EPYC_POCL, H200, MI250

_512 = replace(EPYC_POCL.target, vector_bits=512)
HAVING = {
    "mma": replace(H200, name="made up", compute_capability=(8, 9)),
    "mma_double": replace(H200, name="made up"),
    "wgmma": replace(H200, name="made up"),
    "mfma": MI250,
    "wmma": replace(MI250, name="gfx1100"),
    "dpas": replace(ARC, extensions=frozenset({DPAS_EXTENSION}), sub_group_size=8),
    "amx": replace(EPYC_POCL, target=_512, amx=AmxSupport(("int8", "bfloat16"))),
}
LACKING = {
    "mma": replace(H200, compute_capability=(7, 5)), "mma_double": HAVING["mma"], "wgmma": HAVING["mma"],
    "mfma": HAVING["wmma"], "wmma": MI250, "dpas": replace(ARC, extensions=frozenset()), "amx": EPYC_POCL,
}  # fmt: skip


@pytest.mark.parametrize("unit", MATRIX_UNITS.values(), ids=lambda unit: unit.name)
def test_every_reader_has_a_unit_from_the_table(unit: MatrixUnit):
    having, lacking = HAVING[unit.name], LACKING[unit.name]
    figures = unit.figures(having.vendor, having.marks)
    cycles = 1e6 * having.max_clock_mhz * having.units
    for elements, figure in figures.items():
        assert having.rates.matrix(elements) == pytest.approx(figure * cycles)
        assert getattr(having.rates, MATRIX_RATES[elements]) > 0
    assert figures
    assert kernel_named(unit.name).unsuited(having) is None
    assert not unit.figures(lacking.vendor, lacking.marks)
    assert kernel_named(unit.name).unsuited(lacking)
    assert KERNEL_STYLES[unit.name] == unit.style
    assert set(unit.road) <= set(KERNELS_OF_THE_ROAD)


@pytest.mark.parametrize(
    "device", [LACKING["dpas"], EPYC_POCL, LACKING["mma"]], ids=lambda device: device.name
)
def test_a_device_without_matrix_units_has_no_rate_of_them(device: DeviceInfo):
    rates = replace(device, name="made up").rates
    assert not any(getattr(rates, name) for name in MATRIX_RATES.values())


def test_no_fact_of_a_unit_stands_in_a_second_place():
    facts = [unit.style[0] for unit in MATRIX_UNITS.values()] + [f'"{DPAS_EXTENSION}"']
    # NVIDIA's copy engine and asynchronous copies need a capability too, and say so.
    facts += [unit.needs for unit in MATRIX_UNITS.values() if unit.vendor != "nvidia"]
    twice = [
        (str(path), fact)
        for path in Path(pyclmm.__file__).parent.rglob("*.py")
        if path.name != "matrix_unit.py"
        for fact in facts
        if fact in path.read_text(encoding="utf-8")
    ]
    assert not twice
