"""Each page of the road has its parts, true lines of its kernel, and the drawing that its script draws."""

import importlib
import itertools
import json
import platform
import re
import sys
import warnings
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

from pyclmm.kernels import KERNELS, textbook
from tests.simulators import interleaved
from tests.support.pages import blocks
from tests.support.scripts import script

ROAD = Path(__file__).parents[2] / "docs/road"
PAGES = sorted(ROAD.glob("[0-9][0-9]_*.md"))
PARTS = ["The idea", "The tiles", "The lines that matter", "Its arithmetic", "The step it took"]
PARTS += ["What to try next", "Exercises"]

sys.path.insert(0, str(ROAD))  # docs/ is no package, and its scripts import what lies beside them
SCRIPTS = [importlib.import_module(path.stem) for path in sorted(ROAD.glob("drawing_*.py"))]
sys.path.remove(str(ROAD))
DRAWINGS = [(module.__name__, name) for module in SCRIPTS for name in module.DRAWINGS]


def read(page):
    return page.read_text(encoding="utf-8")


@pytest.mark.parametrize(("module", "name"), DRAWINGS)
def test_a_drawing_is_what_its_script_draws(module, name):
    drawn = sys.modules[module].DRAWINGS[name]()
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert read(ROAD / name) == drawn, f"run docs/road/{module}.py"


STEPS = json.loads(read(ROAD / "steps.json"))


@pytest.mark.parametrize("name", STEPS)
def test_the_steps_are_those_of_the_kernel(name):
    if name[:2] >= "10" and (interleaved.CLANG is None or platform.machine() != "x86_64"):
        pytest.skip("needs clang on x86-64")
    found = json.loads(json.dumps(script("docs/road/steps.py").steps(name)))
    assert found == STEPS[name], "run docs/road/steps.py"


def test_a_page_shows_its_steps_and_none_is_missing():
    frames = {"01_sequential": 3 * 3 * 4, "02_single_group": 8, "03_naive": 8, "04_flat": 8}
    frames |= dict.fromkeys(("05_tiled", "06_strip", "07_block", "08_vector"), 2 + 8)
    frames |= {"09_double_buffer": 1 + 4, "10_register": 1 + 8, "11_packed": 2 + 2 * 4}
    frames |= {"12_split_k": 4 + 1, "13_pipelining": 1 + 5, "14_matrix_units": 8, "15_hopper": 4 + 4 + 1}
    assert {name: len(kept["frames"]) for name, kept in STEPS.items()} == {
        f"{page}_steps": count for page, count in frames.items()
    }
    for page in frames:
        assert f"]({page}_steps.svg)" in read(ROAD / f"{page}.md")


@pytest.mark.parametrize("name", [name for name in STEPS if name[:2] <= "10"])
def test_the_followed_work_item_reads_what_its_elements_need(name):
    for frame in STEPS[name]["frames"]:
        cells = [*STEPS[name]["out"], *frame["cells"]]
        if "loads" in frame["words"][0] or frame["words"][0].startswith("Before"):
            continue
        hot = [cell for cell in cells if cell[3] == "hot" and (name[:2] < "09" or not cell[4])]
        rows = {row for matrix, row, *_ in hot if matrix == "out"}
        columns = {column for matrix, _, column, *_ in hot if matrix == "out"}
        assert rows == {row for matrix, row, *_ in hot if matrix == "A"} != set()
        assert columns == {column for matrix, _, column, *_ in hot if matrix == "B"} != set()
        depths = [{cell[axis] for cell in hot if cell[0] == matrix} for matrix, axis in (("A", 2), ("B", 1))]
        assert depths[0] == depths[1], "the same k"


def test_a_pair_is_loaded_while_the_other_one_is_multiplied():
    said = [frame["words"][0].partition(": ")[2] for frame in STEPS["09_double_buffer_steps"]["frames"]]
    both = ["pair 0 is multiplied, pair 1 is loaded.", "pair 1 is multiplied, pair 0 is loaded."]
    assert said == ["pair 0 is loaded.", *both, both[0], "pair 1 is multiplied."]
    for frame in STEPS["09_double_buffer_steps"]["frames"][1:-1]:
        places = {(matrix, row, column) for matrix, row, column, *_ in frame["cells"]}
        assert len(places) == len(frame["cells"]) == 2 * 2 * (8 * 2), "no element is in both pairs"


def test_the_numbers_of_registers_are_those_of_nvidias_manual():
    """Work-item 4 g + t: A(g + 8 h, 8 q + 2 t) in a[h + 2 q], B(8 q + 2 t, g) in b[q], D(g + 8 h, 2 t)."""
    frames = STEPS["14_matrix_units_steps"]["frames"]
    for at, frame in enumerate(frames):
        owners = {(matrix, row, column): int(label) for matrix, row, column, _, label in frame["cells"]}
        q, h = (at // 2 if at < 4 else at - 4, at % 2)
        wanted = {}
        for item, half in itertools.product(range(32), range(2)):
            g, t = item // 4, item % 4
            if at < 4:
                place = "A", g + 8 * h, 8 * q + 2 * t + half
            elif at < 6:
                place = "B", 8 * q + 2 * t + half, g
            else:
                place = "out", g + 8 * h, 2 * t + half
            wanted[place] = item
        assert owners == wanted, frame["words"]


def test_a_stage_is_filled_while_another_one_is_multiplied():
    frames = STEPS["13_pipelining_steps"]["frames"][1:]
    stages = [tuple(map(int, re.findall(r"stage (\d)", frame["words"][0]))) for frame in frames]
    assert stages == [(0, 2), (1, 0), (2, 1), (0,), (1,)]
    for step, frame in enumerate(frames):
        kinds = {kind: set() for kind in ("now", "on the way", "copied")}
        for matrix, row, column, kind, label in frame["cells"]:
            when = "copied" if label else "on the way" if kind.endswith("pale") else "now"
            kinds[when].add(column if matrix == "A" else row)
        tiles = [{2 * tile, 2 * tile + 1} if tile < 5 else set() for tile in range(step, step + 3)]
        assert list(kinds.values()) == tiles


def test_two_ranges_share_k_and_a_panel_has_each_place_once():
    for step, frame in enumerate(STEPS["12_split_k_steps"]["frames"][:-1]):
        columns = {(column, label) for matrix, _, column, _, label in frame["cells"] if matrix == "A"}
        assert columns == {(step, "0"), (step + 4, "1")}
    for panel, frame in enumerate(STEPS["11_packed_steps"]["frames"][:2]):
        places = {(row, column): int(label) for _, row, column, _, label in frame["cells"]}
        assert places == {(k, 4 * panel + j): 4 * k + j for k in range(4) for j in range(4)}


def test_one_instruction_reads_16_of_k():
    cells = [frame["cells"] for frame in STEPS["15_hopper_steps"]["frames"][4:8]]
    assert [[(*cell[:3], *cell[5:]) for cell in each] for each in cells] == [
        [("A", 0, k, 64, 16), ("B", k, 0, 16, 64)] for k in (0, 16, 32, 48)
    ]


@pytest.mark.parametrize("name", [name for name in STEPS if name[:2] >= "10"])
def test_a_file_whose_lines_changed_has_no_steps(name):
    numbers = script("docs/road/steps_numbers.py")
    for file in numbers.WALKS[name].said:
        with pytest.raises(ValueError, match="no single line"):
            numbers.instrumented(file, "", numbers.WALKS[name].said)


@pytest.mark.parametrize("kernel", [name[3:].removesuffix("_steps") for name in STEPS if name[:2] < "10"])
def test_a_kernel_whose_lines_changed_has_no_steps(kernel):
    with pytest.raises(ValueError, match="no single line"):
        script("docs/road/steps.py").instrumented(f"__kernel void matmul_{kernel}() {{}}", kernel)


def test_a_script_draws_each_drawing():
    assert sorted(name for _, name in DRAWINGS) == sorted(path.name for path in ROAD.glob("*.svg"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_the_parts_of_the_road(page):
    text = read(page)
    assert text.startswith(f"# {int(page.stem[:2])}. ")
    assert re.findall(r"^## (.*)$", text, re.M) == PARTS
    assert f"]({page.stem}.svg)" in text
    assert page.with_suffix(".svg").is_file()
    assert re.findall(r"^(\d+)\. ", text.partition("## Exercises")[2], re.M) == ["1", "2", "3"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_lines_of_a_kernel_stand_in_its_source(page):
    text = read(page)
    shown = re.findall(r"^<!-- (cl/\S+) -->\n```\w+\n(.*?)^```", text, re.M | re.S)
    assert len(shown) == text.count("\n```") // 2 - len(blocks(page, "python")) > 0
    for source, lines in shown:
        assert lines in read(ROAD.parents[1] / source), f"{source} has other lines"


@pytest.fixture
def talking_compiler(monkeypatch):
    """A compiler that says what went well, as Intel's does. PyOpenCL makes it a warning."""
    build = cl.Program.build

    def talking(*given, **more):
        warnings.warn("compiler output", cl.CompilerWarning, stacklevel=2)
        return build(*given, **more)

    monkeypatch.setattr(cl.Program, "build", talking)


@pytest.mark.filterwarnings("error::pyopencl.CompilerWarning")
@pytest.mark.usefixtures("talking_compiler")
@pytest.mark.parametrize("sizes", [None, (1, 1, 1), (9, 13, 7), (131, 67, 33), (128, 128, 64)])
@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.stem)
def test_a_whole_program_can_be_copied_and_prints_true(page, sizes, capsys, monkeypatch):
    """Other sizes too, which its tiles divide or do not. Memory of an earlier result would hide a fault."""
    monkeypatch.setattr(
        cla, "empty", lambda queue, shape, dtype: cla.to_device(queue, np.full(shape, np.nan, dtype))
    )
    (program,) = blocks(page, "python")
    if sizes is not None:
        if page.stem == "02_single_group" and sizes[0] * sizes[1] > 256:
            sizes = (sizes[0] % 16 + 1, sizes[1] % 16 + 1, sizes[2])  # in one work-group
        program, found = re.subn(r"^M, N, K = .*$", f"M, N, K = {sizes}", program, flags=re.M)
        assert found == 1
    exec(compile(program, page.name, "exec"), {})
    assert capsys.readouterr().out == "True\n"


def test_cudas_word_stands_beside_the_first_use_of_opencls():
    opencl, cuda = re.findall(r"^\| (?:OpenCL|CUDA) \| (.*) \|$", read(ROAD / "index.md"), re.M)
    words = dict(zip(opencl.split(" | "), cuda.split(" | "), strict=True))
    assert len(words) == 6
    texts = [
        re.sub(r"^```.*?^```|^#.*?$", "", read(page).partition("## Exercises")[0], flags=re.M | re.S)
        for page in PAGES
    ]
    for word, other in words.items():
        first = next(text for text in texts if word in text)
        beside = first[first.index(word) :]
        assert re.match(rf"{word}\*?\s\(CUDA: {other.partition(' (')[0]}\)", beside), beside[:60]


@pytest.mark.filterwarnings("error::pyopencl.CompilerWarning")
@pytest.mark.usefixtures("talking_compiler")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_solutions_of_a_page_are_there_and_print_what_they_show(page, capsys):
    text = read(page)
    (solutions,) = re.findall(r"\bSolutions: `(examples/road/\w+\.py)`", text, re.M)
    assert (ROAD.parents[1] / solutions).is_file()
    importlib.import_module(f"examples.road.{Path(solutions).stem}").main()
    said = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert [number for number, _ in groupby(line[:3] for line in said)] == ["1. ", "2. ", "3. "]
    kernels = re.findall(r"`pyclmm road (\S+)`", said[-1])
    assert [name for name in kernels if f"`{name}`" in text] == kernels
    assert all((ROAD.parents[1] / name).is_file() for name in kernels)


# Every branch of the road adds pages: no number may be missing or stand twice.


def test_the_list_of_steps_has_every_page_in_order():
    steps = re.findall(r"^(\d+)\. \[.*?\]\((\w+)\.md\)", read(ROAD / "index.md"), re.M)
    assert [page for _, page in steps] == [page.stem for page in PAGES]
    assert [int(number) for number, _ in steps] == list(range(1, len(PAGES) + 1))
    assert [int(page[:2]) for _, page in steps] == list(range(1, len(PAGES) + 1))


def test_every_textbook_kernel_has_a_page():
    names = {kernel.name for kernel in KERNELS if type(kernel).__module__.startswith(textbook.__name__)}
    assert names
    assert names <= {page.stem[3:] for page in PAGES}


MEASURED = [
    point["kernel"]
    for name in ("road-h200", "road-pocl-3.0-zen4")
    for point in json.loads(read(ROAD.parents[1] / f"benchmarks/results/{name}.json"))["points"]
]


def test_the_table_at_the_head_has_every_step_and_every_kernel_that_was_measured():
    table = read(ROAD / "index.md").partition("<!-- road -->\n")[2].partition("\n\n")[0]
    rows = [line.split(" | ") for line in table.splitlines()[2:]]
    assert {re.search(r"\((\w+)\.md\)", row[0])[1] for row in rows} == {page.stem for page in PAGES}
    assert {re.search(r"\[(.+?)\]", row[0])[1].strip("`") for row in rows} >= set(MEASURED)
    assert all(len(row[1].split()) <= 5 for row in rows), "the idea in five words"
    assert sum(any(cell.strip(" |") for cell in row[2:]) for row in rows) == len(set(MEASURED))


def test_the_table_at_the_head_has_the_speeds_of_the_pages():
    head = read(ROAD / "index.md").partition("<!-- end road -->")[0]
    speeds = dict(re.findall(r"^\| \d+\. \[`(\w+)`\]\S+ \| [^|]+ \| ([\d.]+)", head, re.M))
    shown = set()
    for page in PAGES:
        for small, table in re.findall(r"road-steps-(small-)?pocl\S+`[^|]*\n\n((?:\|.*\n)+)", read(page)):
            for kernel, rate in re.findall(r"^\| `(\w+)`.*\| ([\d.]+) \|$", table, re.M):
                if not small or kernel == "single_group":
                    assert float(speeds[kernel]) == float(rate), (page.stem, kernel)
                    shown.add(kernel)
    assert len(shown) == 10
    assert float(speeds["naive"]) > float(speeds["sequential"]), "as page 3 says"


def test_no_page_says_that_a_measured_kernel_never_ran():
    for page in PAGES:
        assert not [kernel for kernel in MEASURED if f"`{kernel}` has never run" in read(page)], page.stem
