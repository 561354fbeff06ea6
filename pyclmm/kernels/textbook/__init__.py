"""The textbook kernels: one technique each. Only ``KERNELS`` imports the families."""
