"""benchmarks/pictures.py draws the numbers of the result files."""

import pytest

from pyclmm.tools.plots import KERNEL_STYLES
from tests.support.scripts import script

pytest.importorskip("matplotlib")

ABOUT = {"device": "some device", "driver": "1.0", "date": "2026-01-01", "float32_limit": 10e12}


@pytest.fixture(scope="module")
def pictures():
    return script("benchmarks/pictures.py")


def lines(axes):
    """The y values of every labelled line, by its label."""
    return {line.get_label(): list(line.get_ydata()) for line in axes.lines if line.get_label()[0] != "_"}


def row(n, seconds, layout="NN"):
    return {"shape": [1, n, n, n], "layout": layout, "flops": 2 * n**3, "seconds": seconds}


def test_float32_is_drawn_by_layout_and_size(pictures):
    rows = [
        row(200, {"auto": 2e-6, "cublas": 4e-6}),
        row(100, {"auto": 1e-6, "cublas": 1e-6}),
        row(100, {"auto": 2e-6, "cublas": 1e-6}, "NT"),
        {"shape": [1, 1, 100, 100], "layout": "NN", "flops": 1, "seconds": {"auto": 1.0}},
    ]
    nn, nt = pictures.float32(ABOUT | {"rows": rows}).axes
    assert lines(nn)["pyclmm"] == pytest.approx([2.0, 8.0])
    assert lines(nn)["cuBLAS"] == pytest.approx([2.0, 4.0])
    assert lines(nn)["float32 units at full clock"] == pytest.approx([10.0, 10.0])
    assert [label.get_text() for label in nn.get_xticklabels()] == ["100", "200"]
    assert lines(nt)["pyclmm"] == pytest.approx([1.0])


def test_each_peer_has_a_picture_of_matrix_units(pictures):
    common = {"kernel": "wgmma", "layout": "NN", "precision": "highest", "cublas_seconds": 1e-6}
    common |= {"shape": [100, 100, 100], "seconds": 2e-6}
    rows = [{**common, "peer": peer, "dtype": peer} for peer in ("float16", "int8")]
    rows.append({**common, "peer": "float32", "dtype": "complex64", "precision": "high"})
    axes = pictures.matrix_units(ABOUT | {"rows": rows}).axes
    assert [one.get_title() for one in axes] == ["float16", "int8", 'complex64 "high", beside cuBLAS']
    assert lines(axes[0]) == {"wgmma NN": pytest.approx([1.0]), "cuBLAS": pytest.approx([2.0])}
    assert lines(axes[2]) == {"wgmma NN": pytest.approx([4.0]), "cuBLAS": pytest.approx([8.0])}


def test_cublas_is_drawn_at_its_best(pictures):
    common = {"kernel": "wgmma", "precision": "highest", "peer": "float16", "dtype": "float16"}
    times = {"NN": 4e-6, "NT": 1e-6, "TN": 2e-6}
    rows = [
        {**common, "shape": [100, 100, 100], "seconds": 2e-6, "layout": layout, "cublas_seconds": seconds}
        for layout, seconds in times.items()
    ]
    (axes,) = pictures.matrix_units(ABOUT | {"rows": rows}).axes
    assert lines(axes)["cuBLAS"] == pytest.approx([2.0])


def test_products_by_parts_have_a_third_of_the_limit(pictures):
    about = {"peer": "float32", "precision": "high"}
    device = "NVIDIA H200"
    whole = pictures.limit(device, {"peer": "float16", "precision": "highest"})
    assert pictures.limit(device, about) == pytest.approx(whole / 3)
    assert pictures.limit("some device", about) is None
    row = {"kernel": "split", "layout": "NN", "dtype": "float32", "shape": [100, 100, 100], **about}
    rows = [{**row, "seconds": 2e-6, "cublas_seconds": 1e-6}]
    (axes,) = pictures.matrix_units(ABOUT | {"device": device, "rows": rows}).axes
    assert lines(axes)["units at full clock"] == pytest.approx([whole / 3e12] * 2)
    assert axes.get_ylim()[1] > whole / 3e12


def test_each_step_of_the_ladder_has_a_bar(pictures):
    content = {
        "n": 100,
        "flops": 2e6,
        "steps": [{"label": "naive", "kernel": "register"}],
        "seconds": {"naive": 1e-6, "cuBLAS": 1e-7},
    }
    axes = pictures.ladder(ABOUT | content).axes[0]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([2.0, 20.0])
    assert axes.patches[0].get_facecolor() != axes.patches[1].get_facecolor()


def test_memory_has_a_line_for_each_run(pictures):
    def run(code, *values):
        readings = [
            {"calls": 100 * number, "megabytes": value, "programs": number}
            for number, value in enumerate(values, 1)
        ]
        return {
            "driver": "PoCL 1.0",
            "processor": "some",
            "date": "2026-01-01",
            "code": code,
            "readings": readings,
        }

    growing = run("", 250) | {"growing": True, "released": 120}
    sizes = {"operands": 10, "peak": 30, "after": 12}
    large = run("") | {"large": True, "released": 11}
    large["readings"] = [{"what": what, "megabytes": size} for what, size in sizes.items()]
    refused = run("before") | {"large": True, "released": 11}
    refused["readings"] = [{"what": "operands", "megabytes": 10}, {"what": "refused", "megabytes": 0.0}]
    contents = [run("", 200.5, 300), run("before", 400), growing, large, refused]
    resident, programs, below, _, bars = pictures.memory(contents).axes
    assert [bar.get_height() for bar in bars.patches] == [10, 30, 12, 11, 10, 0, 0, 11]
    assert [text.get_text() for text in bars.texts] == ["refused"]
    assert [list(line.get_ydata()) for line in below.lines] == [[250], [120]]
    assert lines(resident) == {"PoCL 1.0": [200.5, 300], "PoCL 1.0, before": [400]}
    assert lines(programs) == {"PoCL 1.0": [1, 2], "PoCL 1.0, before": [1]}


def test_each_result_file_has_its_picture(pictures):
    drawn = [file for pattern in pictures.DRAWN for file in pictures.RESULTS.glob(pattern)]
    assert drawn
    for file in drawn:
        assert file.with_suffix(".png").exists(), f"run benchmarks/pictures.py: {file.name} has no picture"
    assert len(list(pictures.RESULTS.glob(pictures.MEMORY))) >= 3
    assert (pictures.RESULTS / "memory.png").exists()


def test_sizes_about_a_power_of_two_are_not_joined(pictures):
    axes = pytest.importorskip("matplotlib.figure").Figure().add_subplot()
    pictures.against_size(axes, {"pyclmm": {1024: 1.0, 4095: 2.0, 4096: 3.0, 4097: 4.0, 8192: 5.0}})
    joined = [list(line.get_ydata()) for line in axes.lines if line.get_linestyle() == "-"]
    apart = [list(line.get_ydata()) for line in axes.lines if line.get_linestyle() == "None"]
    assert joined == [[1, 3, 5]]
    assert apart == [[2, 4]]


def test_a_kernel_has_its_colour_in_every_layout(pictures):
    for name, (colour, _) in KERNEL_STYLES.items():
        assert {pictures.style(f"{name} {layout}")["color"] for layout in ("NN", "NT", "TN")} == {colour}


def test_flipped_bits_are_drawn_as_shares(pictures):
    shares = [
        {"power": -6, "flipped": 50, "noticed": 0},
        {"power": 0, "flipped": 4, "noticed": 3},
        {"power": 12, "flipped": 0, "noticed": 0},
    ]
    rows = [{"dtype": "float32", "where": where, "shares": shares} for where in ("out", "sum")]
    out, tile, total = pictures.flips(ABOUT | {"low": -6, "high": 12, "rows": rows}).axes
    for axes in (out, total):
        assert lines(axes)["float32"] == [0, 75]
        assert list(axes.lines[0].get_xdata()) == [-6, 0]
    assert "float32" not in lines(tile)


def test_weights_are_drawn_by_format_and_device(pictures):
    def content(name, *rows):
        device = {"name": name, "driver_version": "1"}
        return {
            "device": device,
            "rows": [
                {"format": form, "m": m, "n": n, "k": 64, "dtype": "float32", "of memory": part}
                for form, m, n, part in rows
            ],
        }

    others = ("q4_0", 16, 64, 0.9), ("q4_0", 1, 32, 0.8)  # of more rows, of another shape
    one = content("one", ("q8_0", 1, 64, 0.5), ("q4_0", 1, 64, 0.25), *others)
    (axes,) = pictures.weights([one, content("two", ("q8_0", 1, 64, 0.75))]).axes
    first, second = axes.containers
    assert [bar.get_height() for bar in first] == [0.5, 0.25]
    assert [bar.get_height() for bar in second] == [0.75]
    labels = [text.get_text().split("\n")[0] for text in axes.get_xticklabels()]
    assert labels == ["q4_0", "q8_0"]  # by their size
    assert [round(bar.get_center()[0]) for bar in (*first, *second)] == [1, 0, 1]
