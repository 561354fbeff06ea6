"""Work in many threads at once."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest


def in_threads(count, work):
    """Run ``work(number)`` in *count* threads that begin together. Errors are raised."""
    start = threading.Barrier(count)

    def begin(number):
        start.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


@contextmanager
def few_threads(most=0):
    """Inside the block the system starts *most* threads and refuses further ones."""
    left, real = iter(range(most)), threading.Thread.start

    def start(thread):
        if next(left, None) is None:
            raise RuntimeError("can't start new thread")
        real(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        yield
