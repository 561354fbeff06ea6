"""Each seeded fault can be put in: its file, its text and, but for the self-check's, its tests exist."""

import shutil

import pytest

from tests.campaigns.check_faults import CHECK_FAULTS
from tests.campaigns.faults import FAULTS
from tests.campaigns.seeded_faults import ROOT


@pytest.mark.parametrize("fault", [*FAULTS, *CHECK_FAULTS], ids=lambda fault: fault.name)
def test_the_fault_can_be_seeded(fault, tmp_path):
    (tmp_path / fault.file).parent.mkdir(parents=True)
    shutil.copy(ROOT / fault.file, tmp_path / fault.file)
    fault.apply(tmp_path)
    assert (tmp_path / fault.file).read_text() != (ROOT / fault.file).read_text()
    files = [name for name in fault.tests if name.startswith("tests/")]
    assert files or fault in CHECK_FAULTS
    assert all((ROOT / name.partition("::")[0]).exists() for name in files)
