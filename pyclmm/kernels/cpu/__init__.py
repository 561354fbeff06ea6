"""Kernels for CPU devices.

Others import: matvec, packed.
"""
