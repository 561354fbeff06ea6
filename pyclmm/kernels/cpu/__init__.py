"""Kernels for CPU devices. Only ``KERNELS`` imports the families."""
