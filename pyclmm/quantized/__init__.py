"""Quantised weights: made here, read from files, or from parts that others made. Products take them as b.

Others import: nothing, and what is in ``__all__``.
"""

from __future__ import annotations

from .array import QuantizedArray
from .gguf_files import from_gguf
from .making import quantize

__all__ = ["QuantizedArray", "from_gguf", "quantize"]
