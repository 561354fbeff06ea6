"""Products of operands that need not fit a device, by tiles, on one device or several.

Others import: checkpoint, datasets, entry, journal, run, streamed.
"""
