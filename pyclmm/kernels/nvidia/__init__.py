"""Kernels for the matrix units of NVIDIA GPUs. Only ``KERNELS`` imports the families."""
