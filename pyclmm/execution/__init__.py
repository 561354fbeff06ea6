"""Runs a planned product on NumPy arrays or on pyopencl Arrays.

Others import: device_path, host_path, keywords, operands, options.
"""
