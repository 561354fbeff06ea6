"""Launches pyclmm's programs on CUDA streams, by NVIDIA's driver alone: no toolkit, no compiler of its own.

OpenCL C stays the only source and NVIDIA's OpenCL the only compiler: it gives PTX, which the CUDA driver
loads (ptx.py). So a product runs where other libraries hold their arrays, in their streams and graphs,
without a copy.

Others import: arrays, device_array, dlpack, driver, launcher, rewritten, streams, xla.
"""
