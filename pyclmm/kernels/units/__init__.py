"""Kernels for the matrix instructions of AMD's and Intel's GPUs, behind one interface.

Only ``KERNELS`` imports the families.
"""
