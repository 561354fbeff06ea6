"""Kernels for the matrix units of NVIDIA GPUs."""
