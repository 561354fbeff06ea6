"""What a prompt and a notebook show of KERNELS, devices, plans, explanations and the tuner's result."""

import re
from html.parser import HTMLParser

import numpy as np
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm import KERNELS, TileConfig, repr_tables
from pyclmm.opencl.devices import Devices
from pyclmm.selection.tables import Entry
from pyclmm.tools import tuner

F32 = np.float32


class Cells(HTMLParser):
    """The cells of a table, row by row; an error for a tag that is not closed."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.open = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def html(x):
    """The cells of what a notebook shows of *x*."""
    return Cells(x._repr_html_()).rows


def split(text):
    """The cells of a table in text, row by row."""
    return [re.split("  +", line.strip()) for line in text.splitlines()]


def test_both_kinds_of_table_have_every_cell():
    head, rows = ("name", "what"), [("a <b>", 1), ("c & d", "x y")]
    expected = [list(head), ["a <b>", "1"], ["c & d", "x y"]]
    assert split(repr_tables.text(head, rows)) == expected
    assert Cells(repr_tables.html(head, rows, "<of what>")).rows == expected
    assert "<b>" not in repr_tables.html(head, rows)
    assert repr_tables.text(head, []) == "name  what"


def test_kernels():
    rows = html(KERNELS)
    assert [row[0] for row in rows[1:]] == [kernel.name for kernel in KERNELS]
    assert {row[0] for row in rows if row[2] == "yes"} == {k.name for k in KERNELS if k.automatic}
    assert all(repr(kernel) == f"<kernel {kernel.name}: {kernel.summary}>" for kernel in KERNELS)


def test_devices():
    found = pyclmm.devices()
    assert isinstance(found, list)
    assert repr(found).splitlines() == [str(device) for device in found]
    assert [row[0] for row in html(found)[1:]] == [device.number for device in found]
    assert repr(found[0]) == f"<device {found[0]}>"
    assert repr(Devices()) == "no device"


def test_a_configuration_shows_what_makes_it_again():
    config = TileConfig(bm=64, split_k=0, options={"depth": 2})
    assert repr(config) == "TileConfig(bm=64, split_k=0, options={'depth': 2})"
    for one in (config, TileConfig()):
        assert eval(repr(one)) == one


def shown(plan):
    """The title of a plan and its rows, by operand; the notebook has the same."""
    title, table = repr(plan).split("\n", 1)
    head, *rows = split(table)
    assert head == ["operand", "shape", "strides, bytes", "dtype", "used"]
    assert html(plan) == [head, *rows]
    return title, {row[0]: row[1:] for row in rows}


def test_a_plan_for_numpy_arrays():
    a, b = np.ones((8, 5), F32), np.ones((5, 3), np.int8)
    plan = pyclmm.Matmul(a, b, kernel="naive")
    title, rows = shown(plan)
    assert title.startswith("<Matmul 8 x 3 x 5 float32 @ float32 NN: naive (")
    assert rows == {
        "a": ["(8, 5)", "(20, 4)", "float32", "in place"],
        "b": ["(5, 3)", str(b.strides), "int8", "converted to float32"],
        "out": ["(8, 3)", "(12, 4)", "float32", "in place"],
    }
    plan.close()
    assert shown(plan)[0].startswith("<closed Matmul ")


def test_a_plan_for_arrays_names_what_is_copied(queue):
    a = cla.to_device(queue, np.ones((8, 10), F32))
    gaps = a[:, ::2]
    out = cla.empty(queue, (8, 8), F32)
    rows = shown(pyclmm.Matmul(gaps, a[:, :5], out=out, trans_b="T", kernel="naive"))[1]
    assert rows["a"] == ["(8, 5)", "(40, 8)", "float32", "copied"]
    assert rows["b"] == ["(8, 5)", "(40, 4)", "float32", "in place"]
    assert rows["out"] == ["(8, 8)", "(32, 4)", "float32", "in place"]


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_swapped_product_names_the_operands_of_the_call(queue, order):
    """A result in columns is computed as its transpose, whose A is b."""
    a, b = cla.to_device(queue, np.ones((6, 4), np.int16)), cla.to_device(queue, np.ones((4, 8), F32))
    out = cla.empty(queue, (6, 8), F32, order=order)
    rows = shown(pyclmm.Matmul(a, b, out=out, kernel="naive"))[1]
    assert rows["a"][2:] == ["int16", "converted to float32"]
    assert rows["b"][2:] == ["float32", "in place"]


def test_an_empty_product():
    title, rows = shown(pyclmm.Matmul(np.ones((0, 5)), np.ones((5, 3))))
    assert "nothing to compute" in title
    assert rows["out"][0] == "(0, 3)"


def test_an_explanation_reads_as_text():
    explanation = pyclmm.Matmul(np.ones((4, 4), F32), np.ones((4, 4), F32)).explain()
    assert repr(explanation) == str(explanation)


def test_a_tuning(device):
    problem = tuner.product((64, 64, 64), "float32", "NN")
    types = ("float32",) * 3
    entry = Entry(*types, "NN", "highest", True, 64, 64, 64, "naive", TileConfig(bm=4), 2e-6, "")
    found = tuner.Search(problem, 9, entry=entry)
    lost = tuner.Search(problem, 9, reason="gone")
    tuning = tuner.Tuning(device, [found, lost], stored=False, interrupted=True, total=3)
    title, table = repr(tuning).split("\n", 1)
    assert title == f"<Tuning 1 of 3 products on {device.name}, interrupted, not stored>"
    head, *rows = split(table)
    assert rows[0][1:] == ["0 of 9", "naive", "bm=4", "0.00200", "262", "1.00"]
    assert rows[1][2:4] == ["-", "gone"]
    assert html(tuning) == [head, *rows]
    assert repr(lost) == f"<Search {problem}: 0 of 9 tried: - gone>"


def test_a_streamed_plan():
    plan = pyclmm.StreamedMatmul(np.ones((70, 30), F32), np.ones((30, 50), F32), memory_limit="1 MiB")
    rows = dict(plan.explain().rows)
    assert repr(plan) == f"<StreamedMatmul (70, 50) float32: tiles {rows['tiles']}; on {rows['devices']}>"
    empty = pyclmm.StreamedMatmul(np.ones((0, 3), F32), np.ones((3, 2), F32))
    assert "tiles none: nothing is multiplied; on" in repr(empty)
