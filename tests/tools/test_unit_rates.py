"""The rates of units are solved from times, on made-up devices with a made-up timer."""

from dataclasses import replace

import pytest

from pyclmm.errors import LaunchError
from pyclmm.kernels import kernel_named
from pyclmm.kernels.rates import as_numbers
from pyclmm.tools import probes, report
from tests.support.made_up import ARC, EPYC_POCL, H200, MI250, PASCAL

HOPPER = replace(H200, name="another of that chip")  # has a datasheet's rates
UNITS = {unit.rate: unit for unit in probes.UNITS}
OTHERS = {name: rate for name, rate in as_numbers(H200.rates).items() if name not in UNITS}
TRUE = {
    "float32": 25e12, "float64": 13e12, "int32": 15e12,
    "matrix16": 380e12, "matrix32": 190e12, "matrix64": 30e12, "matrix8": 700e12,
}  # fmt: skip
START = 50e-6  # seconds that each product of the made-up device takes besides


def truth(device):
    return replace(device, user_rates=device.rates.with_measured({**OTHERS, **TRUE}, "made up"))


def by_estimates(device):
    """A timer of a device whose kernels take what is estimated with its true rates, and a start."""

    def seconds(name, config, problem):
        return START + kernel_named(name).estimate(problem, config, truth(device))

    return lambda name, config, pair: seconds(name, config, pair[1]) - seconds(name, config, pair[0])


def at(rates):
    """A timer of units that multiply at these rates: one for each unit, told apart by the operands' type."""

    def more(name, config, pair):
        short, long = (p.m * p.n * p.k for p in pair)
        matrix = kernel_named(name).matrix_units
        unit = next(
            u for u in probes.UNITS
            if (u.dtype, u.precision, u.matrix) == (pair[0].a_type, pair[0].precision, matrix)
        )  # fmt: skip
        return (long - short) / rates[unit.rate]

    return more


def test_the_true_rates_come_back():
    refused = []
    found = probes.measured(HOPPER, OTHERS, by_estimates(HOPPER), refused.append)
    assert refused == []
    assert found == pytest.approx(TRUE, rel=0.01)


def test_the_rate_is_that_at_which_the_estimate_takes_the_time():
    """Also where the estimate of a product has more in it than multiply-adds."""

    def timer(name, config, pair):
        more = by_estimates(HOPPER)(name, config, pair)
        times.append((kernel_named(name), config, pair, more))
        return more

    times = []
    found = probes.measured(HOPPER, OTHERS, timer, pytest.fail)
    device = replace(HOPPER, user_rates=HOPPER.rates.with_measured({**OTHERS, **found}, "made up"))
    assert len(times) == len(UNITS)
    for family, config, (short, long), more in times:
        estimated = family.estimate(long, config, device) - family.estimate(short, config, device)
        assert estimated == pytest.approx(more, rel=0.001)


@pytest.mark.parametrize("name", UNITS)
def test_more_than_the_units_arithmetic_is_refused(name):
    refused, most = [], HOPPER.most(name)
    rates = {**TRUE, name: 1.3 * most}
    found = probes.measured(HOPPER, OTHERS, at(rates), refused.append)
    assert found[name] == getattr(HOPPER.rates, name), "the rate of before"
    (message,) = refused
    for said in (f"{name}: ", f"do {most:.3g} at most", "clock", "disturbed", f"{found[name]:.3g} stays"):
        assert said in message


def test_the_rate_of_before_is_the_users_own():
    own = replace(HOPPER, user_rates=HOPPER.rates.with_measured({"matrix16": 390e12}, "measured here"))
    refused = []
    found = probes.measured(own, OTHERS, at({**TRUE, "matrix16": 700e12}), refused.append)
    assert found["matrix16"] == 390e12
    assert "3.9e+14 stays" in refused[0]


def test_times_that_do_not_grow_with_the_work_are_refused():
    refused = []
    found = probes.measured(HOPPER, OTHERS, lambda *_: -1e-6, refused.append)
    assert found == {name: getattr(HOPPER.rates, name) for name in UNITS}
    assert [message.partition(":")[0] for message in refused] == list(UNITS)
    assert all("disturbed" in message for message in refused)


def test_where_copies_are_estimated_to_take_longer_the_unit_does_what_it_did():
    """No rate makes such an estimate as short as the time."""
    rate = probes.solved(lambda rate: max(1e12 / rate, 2.0), 1.8)
    assert rate == pytest.approx(1e12 / 1.8)


def test_a_time_that_hardly_depends_on_the_rate_is_no_reason_for_a_high_one():
    def change(rate):
        return max(1e12 / rate, 2.0) + 0.05e12 / rate

    assert probes.solved(change, 2.001) == pytest.approx(1.05e12 / 2.001), "not 5e13, which solves it"


def test_the_limit_is_units_times_clock_times_width():
    cycles = 132 * 1980e6
    assert HOPPER.most("float32") == 128 * cycles
    assert HOPPER.most("float64") == HOPPER.most("int32") == 64 * cycles
    assert HOPPER.most("dot8") == 256 * cycles
    assert HOPPER.most("matrix16") == 2048 * cycles
    assert HOPPER.most("matrix8") == 4096 * cycles
    assert report.unchecked(HOPPER) == []


@pytest.mark.parametrize(
    ("device", "why"),
    [(MI250, "width"), (ARC, "width"), (PASCAL, "width"), (replace(HOPPER, max_clock_mhz=0), "clock"),
     (EPYC_POCL, "CPU's clock")],
)  # fmt: skip
def test_a_limit_that_is_not_known_is_said_and_not_made_up(device, why):
    assert {device.most(name) for name in UNITS} == {None}
    (line,) = report.unchecked(device)
    assert why in line
    assert "unchecked" in line
    refused = []
    probes.measured(device, {}, at(dict.fromkeys(UNITS, 1000000000000000.0)), refused.append)
    assert refused == []


def test_a_unit_that_is_not_there_has_no_rate():
    found = probes.measured(PASCAL, {}, at(TRUE), pytest.fail)
    assert [name for name, rate in found.items() if rate == 0] == [
        "matrix16", "matrix32", "matrix64", "matrix8"
    ]  # fmt: skip
    assert probes.measured(ARC, {}, at(TRUE), pytest.fail)["float64"] == 0, "no cl_khr_fp64"


@pytest.mark.parametrize("device", [HOPPER, PASCAL, MI250, ARC, EPYC_POCL])
def test_products_are_short_and_fit_and_differ_in_k_alone(device):
    device = replace(device, global_mem_size=4 << 30, max_mem_alloc_size=1 << 30)

    def timer(name, config, pair):
        short, long = pair
        assert long == replace(short, k=long.k, lda=long.lda, ldb=long.ldb)
        assert long.k == 4 * short.k
        assert long.nbytes <= 512 << 20
        assert not kernel_named(name).violations(short, config, device)
        assert kernel_named(name).estimate(long, config, device) < 0.2
        names.append(name)
        return 1.0

    names = []
    probes.measured(device, {}, timer, lambda _: None)
    assert len(names) >= 2


def test_a_family_that_cannot_be_built_gives_way_to_the_next():
    def timer(name, config, pair):
        if name in broken:
            raise LaunchError(f"{name} is broken")
        return by_estimates(HOPPER)(name, config, pair)

    broken = {"wgmma"}
    found = probes.measured(HOPPER, OTHERS, timer, pytest.fail)
    assert found["float32"] == pytest.approx(TRUE["float32"], rel=0.01)
    broken |= {"register", "mma", "mma_double", "mma_double_bulk"}
    refused = []
    found = probes.measured(HOPPER, OTHERS, timer, refused.append)
    assert found["matrix16"] == 0, "no unit that this driver runs"
    assert found["float32"] == HOPPER.rates.float32
    assert "register is broken" in refused[0]
