"""Kernels for CPU devices."""
