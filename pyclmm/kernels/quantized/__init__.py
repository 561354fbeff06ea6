"""Products with quantised weights (pyclmm/formats)."""
