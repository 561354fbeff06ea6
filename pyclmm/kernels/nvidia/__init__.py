"""Kernels for the matrix units of NVIDIA GPUs.

Others import: mma, mma_double, mma_double_bulk, mma_split, split, wgmma.
"""
