"""TileConfig: the values it accepts, and its reasons against others."""

import json
import pickle
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

import pyclmm
from pyclmm import ArgumentError, TileConfig
from pyclmm.kernels.config import PlainConfig
from pyclmm.selection import schema
from tests.support.made_up import DEVICE


@pytest.mark.parametrize("field", ["bm", "bn", "bk", "sgm", "sgn", "tm", "tn", "vec", "stages"])
@pytest.mark.parametrize("value", [-1, 0, 1.5, "8", None, True])
def test_sizes_are_integers_of_1_or_more(field, value):
    words = f"TileConfig.{field} must be an integer of 1 or more, not {value!r}"
    with pytest.raises(ArgumentError, match=words):
        TileConfig(**{field: value})


@pytest.mark.parametrize("value", [-1, 1.5, False])
def test_the_number_of_ranges_may_be_0(value):
    assert TileConfig(split_k=0).split_k == 0
    words = f"TileConfig.split_k must be an integer of 0 or more, not {value!r}"
    with pytest.raises(ArgumentError, match=words):
        TileConfig(split_k=value)


def test_options_are_integers_too():
    assert TileConfig(options=(("held", 1),)).option("held") == 1
    assert TileConfig().option("held", 3) == 3
    assert TileConfig().option("held") == 0
    for value in (-1, True, "words"):
        words = r"TileConfig\.options\['held'\] must be an integer of 0 or more"
        with pytest.raises(ArgumentError, match=words):
            TileConfig(options=(("held", value),))


def test_options_are_given_as_a_mapping_or_as_pairs():
    config = TileConfig(bm=4, options={"slices": 2, "held": 1})
    assert config == TileConfig(bm=4, options=(("held", 1), ("slices", 2)))
    assert hash(config) == hash(TileConfig(bm=4, options=[("slices", 2), ("held", 1)]))
    assert config.option("slices") == 2
    assert replace(config, options={"held": 3}).as_dict() == {"bm": 4, "held": 3}


def test_tables_keep_options_as_sorted_pairs():
    config = TileConfig(options={"slices": 2, "held": 1})
    content = json.loads(json.dumps(schema.config_json(config)))
    assert content["options"] == [["held", 1], ["slices", 2]]
    assert schema.config_from(content) == config


WITH_PLAIN = TileConfig(
    bm=4, options={"form": 1}, plain=PlainConfig(2, TileConfig(bn=8, options={"held": 1}))
)


def test_the_configuration_of_another_family_is_a_field():
    content = json.loads(json.dumps(schema.config_json(WITH_PLAIN)))
    assert content["plain"]["config"]["options"] == [["held", 1]]
    assert schema.config_from(content) == WITH_PLAIN
    assert eval(repr(WITH_PLAIN)) == WITH_PLAIN
    assert str(WITH_PLAIN) == "bm=4 form=1 plain=2(bn=8 held=1)"
    assert hash(WITH_PLAIN) != hash(replace(WITH_PLAIN, plain=None))


@pytest.mark.parametrize(
    "wrong",
    [None, 3, {}, {"family": 0}, {"family": -1, "config": schema.config_json(TileConfig())},
     {"family": 0, "config": schema.config_json(WITH_PLAIN)}],
)  # fmt: skip
def test_what_is_no_configuration_of_another_family_is_refused(wrong):
    with pytest.raises(ArgumentError, match="plain"):
        schema.config_from({**schema.config_json(TileConfig()), "plain": wrong})


def test_a_kernel_that_leaves_the_product_to_no_other_takes_no_such_field():
    a = np.ones((4, 4), np.float32)
    with pytest.raises(ArgumentError, match="'naive' has no option 'plain'"):
        pyclmm.Matmul(a, a, kernel=("naive", replace(WITH_PLAIN, options={})))


@pytest.mark.parametrize("given", [3, "held", {3: 1}, [("held",)], None])
def test_options_that_are_no_mapping_are_refused(given):
    words = r"TileConfig\.options is .*; pass a mapping of names to integers"
    with pytest.raises(ArgumentError, match=words):
        TileConfig(options=given)


def test_a_configuration_is_frozen_and_hashable():
    assert hash(TileConfig(bm=4)) == hash(TileConfig(bm=4))
    with pytest.raises(FrozenInstanceError):
        TileConfig().bm = 3


def test_a_copy_for_another_process_has_the_hash_of_that():
    config = TileConfig(bm=4, options={"depth": 2})
    hash(config)  # of a text, which differs between processes
    taken = pickle.loads(pickle.dumps(config))
    assert taken == config
    assert vars(taken).keys() == vars(TileConfig()).keys()


def test_text_shows_only_what_differs_from_the_default():
    assert str(TileConfig()) == "-"
    assert str(TileConfig(bm=8, split_k=0, options=(("held", 1),))) == "bm=8 split_k=0 held=1"
    assert TileConfig.square(4).as_dict() == {"bm": 4, "bn": 4, "bk": 4}


@pytest.mark.parametrize(
    ("local_size", "local_bytes", "reason"),
    [
        ((300,), 0, "300 work-items a work-group, the device allows 256"),
        ((16, 17), 0, "272 work-items a work-group, the device allows 256"),
        ((1, 1, 65), 0, "65 work-items in dimension 2, the device allows 64"),
        ((0, 4), 0, "0 work-items in dimension 0, at least 1 is needed"),
        ((16, 16), 32769, "32769 bytes of local memory, the device has 32768"),
    ],
)
def test_each_violation_names_size_and_limit(local_size, local_bytes, reason):
    device = replace(DEVICE, max_work_group_size=256, max_work_item_sizes=(1024, 1024, 64))
    device = replace(device, local_mem_size=32768)
    assert TileConfig().violations(device, local_size, local_bytes) == [reason]


def test_limits_themselves_are_allowed():
    device = replace(DEVICE, max_work_group_size=256, local_mem_size=1024)
    assert TileConfig().violations(device, (16, 16), 1024) == []
