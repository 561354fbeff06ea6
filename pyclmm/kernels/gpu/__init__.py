"""Kernels for any GPU, in plain OpenCL C with optional asynchronous copies.

Only ``KERNELS`` imports the families.
"""
