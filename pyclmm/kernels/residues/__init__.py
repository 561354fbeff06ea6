"""Products by residues: float64 from 8-bit integer products (the Ozaki scheme II)."""
