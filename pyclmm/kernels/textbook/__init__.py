"""The textbook kernels: one technique each.

Others import: flat, naive, sequential, single_group, tiled.
"""
