"""The table of docs/kernels/emulated.md, from a report of pytest's. `make emulator` runs what it counts."""

from .emulated import document, ran, table

CASE = """<testcase name="{name}" time="1.5"><properties>
<property name="kernel" value="{kernel}"/><property name="processor" value="{processor}"/>
<property name="products" value="{products}"/><property name="instructions" value="3000"/>
</properties>{result}</testcase>"""


def test_only_what_ran_and_passed_counts(tmp_path):
    rows = [("a", "mfma", "gfx90a", 3, ""), ("b", "mfma", "gfx942", 4, ""), ("c", "naive", "gfx942", 5, "")]
    rows += [("d", "naive", "gfx942", 100, "<failure/>"), ("e", "mfma", "gfx90a", 1, "")]
    keys = ("name", "kernel", "processor", "products", "result")
    cases = "".join(CASE.format(**dict(zip(keys, row, strict=True))) for row in rows)
    report = tmp_path / "report.xml"
    report.write_text(f"<testsuites><testsuite>{cases}<testcase name='f'/></testsuite></testsuites>")
    found = ran(report)
    assert table(found) == [
        ["kernel", "gfx90a", "gfx942"],
        ["mfma", "4", "4"],
        ["naive", "", "5"],
        ["all", "4", "9"],
        ["thousands of instructions", "6", "6"],
    ]
    assert "| mfma | 4 | 4 |" in document(found)
