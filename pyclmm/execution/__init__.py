"""One planned product, carried out on host arrays or on device arrays."""
