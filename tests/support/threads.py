"""Work in many threads at once."""

import threading
from concurrent.futures import ThreadPoolExecutor


def in_threads(count, work):
    """Run ``work(number)`` in *count* threads that begin together. Errors are raised."""
    start = threading.Barrier(count)

    def begin(number):
        start.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))
