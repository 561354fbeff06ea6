"""The demo that `make demo` runs: matrices that mean something, by every kernel."""
