"""Kernels for any GPU, in plain OpenCL C with optional asynchronous copies.

Others import: register, thin.
"""
