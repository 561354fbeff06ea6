"""Runs a planned product on arrays of each kind: NumPy's, PyOpenCL's, and those of CUDA devices.

Others import: array_likes, casts, cuda_path, device_path, execute, keywords, kinds, operands, options,
placement, prepared, torch_tensors, verdicts, weights, xla_path.
"""
