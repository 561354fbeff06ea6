"""`--share N`: every Nth test, for CI. The others are told as deselected."""

import zlib

import pytest


def pytest_addoption(parser):
    parser.addoption("--share", type=int, default=1, metavar="N", help="run one of N tests")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Chosen by name, as tests that follow each other in steps of N may have a parameter in common."""
    left_out = [item for item in items if zlib.crc32(item.nodeid.encode()) % config.getoption("share", 1)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
