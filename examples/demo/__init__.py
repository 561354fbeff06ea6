"""The demo that `make demo` runs: real matrices, multiplied by every kernel."""
