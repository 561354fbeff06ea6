"""The textbook kernels: one technique each."""
