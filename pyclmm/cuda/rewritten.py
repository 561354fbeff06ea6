"""RewrittenTable: a table in a device's memory that later calls write anew, while the host goes on."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from . import driver
from .streams import Context, own_stream

Table = np.ndarray[Any, np.dtype[np.int64]]


class RewrittenTable:
    """A table for one thread and stream, or for a graph: *template* with other numbers in its first columns.
    It is copied from memory of the host that holds it until then: no call waits for that.
    """

    def __init__(self, context: Context, template: Table) -> None:
        self._context, self._template = context, template
        with driver.current(context.handle), driver.uncaptured():
            self._memory = driver.Memory(template.nbytes, "a table of addresses")
        self.address = self._memory.address
        self._columns: Table | None = None  # what it holds
        self._sources: list[_Source] = []

    def write(self, columns: Table, stream: int) -> None:
        """Let it hold these *columns*, in the order of *stream*; nothing is copied if it does."""
        if self._columns is not None and np.array_equal(columns, self._columns):
            return
        self._columns = None  # until all is copied, as Ctrl-C may come
        source = next((one for one in self._sources if one.has_ended()), None)
        if source is None:
            source = _Source(self._template)
            self._sources.append(source)
        source.rows[:, : columns.shape[1]] = columns
        self._memory.write(source.memory.address, stream)
        source.copied = driver.Event(self._context.handle, stream)
        self._columns = columns

    def keep(self, columns: Table) -> None:
        """Hold these *columns* for a graph that is captured, to the end of the process as the graph may be.

        They are copied beside the capture, and only that is waited for. So no call need come before it, no
        replay copies them, and no memory of the host must stay.
        """
        own = own_stream(self._context).handle
        with driver.uncaptured():
            self.write(columns, own)
            driver.wait(own, "a table of addresses")
        self._context.kept.append(self._memory)


class _Source:
    """Memory of the host from which a table is copied, and what ends with its copy."""

    copied: driver.Event | None = None

    def __init__(self, template: Table) -> None:
        with driver.uncaptured():  # another stream may be being captured
            self.memory = driver.HostMemory(template.nbytes, "a table of addresses")
        whole = (ctypes.c_int64 * template.size).from_address(self.memory.address)
        self.rows = np.ctypeslib.as_array(whole).reshape(template.shape)
        self.rows[...] = template

    def has_ended(self) -> bool:
        return self.copied is not None and self.copied.has_ended()
