"""Runs a planned product on NumPy arrays or on pyopencl Arrays.

Others import: array_likes, device_path, host_path, keywords, operands, options.
"""
