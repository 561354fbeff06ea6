"""Conformance: the same kernels on five OpenCL implementations, and compiled for devices we do not have."""
