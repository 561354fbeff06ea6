"""Measured tables: they decide which configuration runs, and none of their content is trusted."""

import itertools
import json
import subprocess
import sys
import warnings
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import pyclmm
from pyclmm import TileConfig
from pyclmm.errors import CacheWarning
from pyclmm.kernels import KERNELS
from pyclmm.kernels.device import Target
from pyclmm.opencl.devices import default_device, device_info
from pyclmm.selection import select, tables
from pyclmm.selection.tables import Entry
from pyclmm.tools import tuner
from tests.support.made_up import DEVICES, EPYC_INTEL, EPYC_POCL, H200
from tests.test_store import json_values

HERE = device_info(default_device())
SHAPE = (72, 64, 40)
PROBLEM = tuner.product(SHAPE, "float32", "NN")
FAMILY = next(select.candidates(PROBLEM, HERE, "auto", ())).kernel


def entry(config=None, kernel=None, **other):
    """An entry for PROBLEM, by default with the family's second configuration."""
    config = config or FAMILY.configs(PROBLEM, HERE)[1]
    given = {"layout": "NN", "precision": "highest", "aligned": True, "seconds": 1e-3, "date": "2026-11-20"}
    given |= {"a_type": "float32", "b_type": "float32", "out_type": "float32"}
    m, n, k = SHAPE
    shape = {"m": m, "n": n, "k": k}
    return Entry(**(given | shape | other), kernel=kernel or FAMILY.name, config=config)


def as_read(content):
    return json.loads(json.dumps(content))


def first(problem=PROBLEM, found=(), device=HERE):
    return next(select.candidates(problem, device, "auto", [{e.key: e for e in found}]))


def put(content):
    path = tables.own_path(HERE)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    tables.forget()
    return path


def test_an_entry_comes_before_the_model():
    modelled = list(select.candidates(PROBLEM, HERE, "auto", ()))
    found = list(select.candidates(PROBLEM, HERE, "auto", [{entry().key: entry()}]))
    assert found[0].config == entry().config != modelled[0].config
    assert found[1:] == modelled, "the ladder comes after it"


def test_a_choice_is_not_offered_twice():
    same = entry(FAMILY.configs(PROBLEM, HERE)[0])
    assert list(select.candidates(PROBLEM, HERE, "auto", [{same.key: same}])) == list(
        select.candidates(PROBLEM, HERE, "auto", ())
    )


def test_the_users_table_comes_before_the_shipped_one():
    configs = FAMILY.configs(PROBLEM, HERE)
    own, shipped = entry(configs[1]), entry(configs[2])
    tables = [{own.key: own}, {shipped.key: shipped}]
    assert next(select.candidates(PROBLEM, HERE, "auto", tables)).config == configs[1]


@pytest.mark.parametrize(
    "problem",
    [
        tuner.product((80, 64, 80), "float32", "NN"),
        tuner.product(SHAPE, "float32", "NT"),
        tuner.product(SHAPE, "float64", "NN"),
        replace(PROBLEM, precision="high"),
        replace(PROBLEM, a_align=4),
        replace(PROBLEM, batch_shape=(2,), batch_strides=((0,),) * 4),
        replace(PROBLEM, k=0),
    ],
    ids=["shape", "layout", "dtype", "precision", "alignment", "stack", "empty"],
)
def test_an_entry_serves_only_its_class_of_problems(problem):
    """The configuration would work for these problems, but was not measured there."""
    assert tables.key_of(problem) != entry().key
    table = {entry().key: entry()}
    assert list(select.candidates(problem, HERE, "auto", [table])) == list(
        select.candidates(problem, HERE, "auto", ())
    )


def test_near_shapes_are_of_one_class():
    near = [tables.shape_class(size, size, size) for size in (3757, 4095, 4096, 4097, 4466)]
    assert len(set(near)) == 1
    for size in (3756, 4467, 2048, 8192):
        assert tables.shape_class(size, size, size) != near[0]


def test_a_kernel_asked_for_by_name_is_not_overruled():
    assert next(select.candidates(PROBLEM, HERE, "naive", [{entry().key: entry()}])).kernel.name == "naive"


@pytest.mark.parametrize(
    "hostile",
    [
        TileConfig(bm=65536, bn=65536, bk=65536, tm=8, tn=32, vec=16),
        TileConfig(),
        replace(FAMILY.configs(PROBLEM, HERE)[0], split_k=65536),
        replace(FAMILY.configs(PROBLEM, HERE)[0], options=(("pack_a", 65536), ("pack_b", 7))),
    ],
)
def test_only_offered_configurations_are_taken(hostile):
    assert first(found=[entry(hostile)]) == first()


@pytest.mark.parametrize("name", [k.name for k in KERNELS if not k.automatic])
def test_a_table_cannot_bring_in_a_kernel_that_is_not_automatic(name):
    assert first(found=[entry(TileConfig(), name)]) == first()


def test_a_configuration_with_violations_is_not_taken(monkeypatch):
    monkeypatch.setattr(type(FAMILY), "violations", lambda *_: ["too large"])
    monkeypatch.setattr(type(FAMILY), "configs", lambda *_: [TileConfig(bm=2), TileConfig(bm=4)])
    assert first(found=[entry(TileConfig(bm=4))]).config != TileConfig(bm=4)


# files


def test_a_stored_entry_is_read_and_used(own_caches, rng):
    assert next(select.candidates(PROBLEM, HERE, "auto")) == first()
    assert tables.merge(HERE, [entry()])
    assert next(select.candidates(PROBLEM, HERE, "auto")).config == entry().config
    a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((72, 40), (40, 64)))
    np.testing.assert_allclose(pyclmm.matmul(a, b), a @ b, rtol=1e-4, atol=1e-4)
    assert tables.own_path(HERE).stat().st_mode & 0o777 == 0o600


def test_tables_are_read_once(own_caches, monkeypatch):
    tables.merge(HERE, [entry()])
    first_time = tables.tables_for(HERE)
    tables.own_path(HERE).unlink()
    assert tables.tables_for(HERE) is first_time
    monkeypatch.setenv("PYCLMM_TUNED", "off")
    assert tables.tables_for(HERE) == ()


def test_merging_keeps_the_rest_and_replaces_the_same(own_caches):
    other = entry(layout="TN")
    tables.merge(HERE, [entry(), other])
    tables.merge(HERE, [entry(seconds=2e-3)])
    kept = tables.own_table(HERE)
    assert kept == {entry().key: entry(seconds=2e-3), other.key: other}


GOOD = as_read(tables.table_json(HERE, [entry()]))


def changed(**values):
    return GOOD | {"entries": [GOOD["entries"][0] | values]}


BAD = {
    "no JSON": "{",
    "a list": [],
    "another schema": GOOD | {"schema": 2},
    "a boolean schema": GOOD | {"schema": True},
    "another device": GOOD | {"device": GOOD["device"] | {"name": "another"}},
    "another driver": GOOD | {"device": GOOD["device"] | {"driver_version": "0.1"}},
    "no device": GOOD | {"device": []},
    "too many": GOOD | {"entries": GOOD["entries"] * 5000},
    "a key too many": changed(shell="rm"),
    "an unknown kernel": changed(kernel="../../evil"),
    "an unknown option": changed(config=GOOD["entries"][0]["config"] | {"options": [["evil", 1]]}),
    "an empty tile": changed(config=GOOD["entries"][0]["config"] | {"tm": 0}),
    "a huge tile": changed(config=GOOD["entries"][0]["config"] | {"tm": 1 << 40}),
    "a tile in words": changed(config=GOOD["entries"][0]["config"] | {"tm": "8"}),
    "no size": changed(m=0),
    "a size of 2^31": changed(m=1 << 31),
    "no time": changed(seconds=float("nan")),
    "time in words": changed(seconds="1"),
    "no date": changed(date="today\n"),
    "a layout in words": changed(layout=["NN"]),
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_a_bad_file_is_set_aside_with_one_warning(own_caches, content):
    path = put(content)
    with pytest.warns(CacheWarning, match="set aside") as heard:
        choices = [next(select.candidates(PROBLEM, HERE, "auto")) for _ in range(2)]
    assert choices == [first()] * 2
    assert len(heard) == 1
    assert not path.exists()
    assert path.with_suffix(".bad").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [("another driver", r"driver '0\.1'.*pyclmm tune"), ("another device", "for another device")],
)
def test_a_table_of_another_device_or_driver_says_so(own_caches, content, said):
    put(BAD[content])
    with pytest.warns(CacheWarning, match=said):
        tables.tables_for(HERE)


def fault_of(content):
    """Why *content* is no table, or None."""
    try:
        tables.check("table", content)
    except pyclmm.ArgumentError as error:
        return str(error)
    return None


@given(st.sampled_from(sorted(GOOD["entries"][0])), json_values)
@example("config", {})
def test_any_value_in_an_entry_is_refused_or_harmless(name, value):
    content = changed(**{name: value})
    if fault_of(content) is not None:
        return
    found = list(tables._entries(content, HERE))
    choice = first(found=found)
    assert choice.config in choice.kernel.configs(PROBLEM, HERE)


sizes = st.integers(1, 1 << 16)
hostile_configs = st.builds(
    TileConfig, *[sizes] * 10, options=st.sampled_from([(), (("held", 0), ("slices", 0)), (("lanes", 9),)])
)


@given(hostile_configs, st.sampled_from([k.name for k in KERNELS]), st.sampled_from((HERE, *DEVICES)))
def test_any_tile_is_harmless(config, kernel, device):
    """Whatever a table says, the choice is a configuration that the family offers."""
    choice = first(found=[entry(config, kernel)], device=device)
    assert choice.config in choice.kernel.configs(PROBLEM, device)


def test_every_kernel_lists_its_options():
    for device in (HERE, *DEVICES):
        for dtype, precision in itertools.product(
            ("float32", "float64", "float16", "int8", "complex64"), ("highest", "high")
        ):
            for kernel in KERNELS:
                for shape in ((64, 64, 64), (1, 64, 64)):
                    problem = tuner.product(shape, dtype, "NN", precision)
                    if select.refusal(kernel, problem, device) is None:
                        used = {name for c in kernel.configs(problem, device) for name in dict(c.options)}
                        assert used <= set(kernel.options), kernel.name
    assert {"held", "pack_a"} <= {name for kernel in KERNELS for name in kernel.options}


def test_an_option_of_another_kernel_is_refused():
    stranger = entry(TileConfig(bm=8, bn=8, options=(("held", 1),)), "naive")
    content = as_read(tables.table_json(HERE, [stranger]))
    assert "naive has no option held" in (fault_of(content) or "")


def test_shipped_tables_are_sound_and_offered():
    """Each file passes the check and is for a known device, which gets each of its entries."""
    assert tables.shipped()
    for table in tables.shipped():
        found = ((device, list(tables._entries(table, device))) for device in (H200, EPYC_POCL, EPYC_INTEL))
        device, entries = next((device, entries) for device, entries in found if entries)
        for one in entries:
            problem = tuner.product((one.m, one.n, one.k), one.a_type, one.layout)
            assert tables.key_of(problem) == one.key
            assert first(problem, [one], device).config == one.config


def test_a_shipped_table_serves_one_driver_version():
    assert tables.tables_for(H200)[1]
    assert not tables.tables_for(replace(H200, driver_version="1.0"))[1]


def test_a_faulty_shipped_table_is_left_out(monkeypatch, tmp_path):
    (tmp_path / "good.json").write_text(json.dumps(GOOD), encoding="utf-8")
    (tmp_path / "bad.json").write_text("{}", encoding="utf-8")
    (tmp_path / "deep.json").write_text("[" * 100000, encoding="utf-8")
    monkeypatch.setattr(resources, "files", lambda _: tmp_path)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        assert tables.shipped.__wrapped__() == (GOOD,)
    assert sorted(str(w.message).split()[0] for w in heard) == ["bad.json", "deep.json"]


WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.selection.test_tables import HERE, entry, tables
for number in range(40):
    assert tables.merge(HERE, [entry(m=int(sys.argv[2]) << 1, n=1 << (number % 20), k=1 << (number // 20))])
"""


def test_two_processes_that_merge_lose_no_entry(own_caches):
    """Each merges 40 entries. Without the lock some would be lost."""
    folder = str(Path(__file__).parents[2])
    running = [
        subprocess.Popen([sys.executable, "-c", WRITER, folder, str(16 << (3 * who))]) for who in range(2)
    ]
    assert [process.wait(600) for process in running] == [0, 0]
    assert len(tables.own_table(HERE)) == 80


def test_cpus_with_other_units_or_vectors_have_other_tables():
    """CPUs with the same name can differ in these, so their tables are separate."""
    cpu = replace(HERE, kind="cpu", target=Target(256))
    for other in (replace(cpu, compute_units=cpu.compute_units + 1), replace(cpu, target=Target(128))):
        assert other.identity != cpu.identity
        assert tables.own_path(other) != tables.own_path(cpu)
    more = replace(HERE, kind="gpu", compute_units=HERE.compute_units + 1)
    assert more.identity == replace(HERE, kind="gpu").identity
