"""Runs a planned product on arrays of each kind: NumPy's, PyOpenCL's, and those of CUDA devices.

Others import: array_likes, bound_call, device_path, keywords, kinds, operands, options, prepared,
verdicts, weights.
"""
