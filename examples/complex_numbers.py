"""complex64: a Fourier transform as a matrix product, and its inverse by the conjugated transpose, "C"."""

import numpy as np

import pyclmm

n = 64
k = np.arange(n)
fourier = (np.exp(-2j * np.pi * np.outer(k, k) / n) / np.sqrt(n)).astype(np.complex64)
signals = np.random.default_rng(1).standard_normal((n, 10)).astype(np.complex64)

spectrum = pyclmm.matmul(fourier, signals)
assert np.allclose(spectrum, np.fft.fft(signals, axis=0, norm="ortho"), atol=1e-4)

back = pyclmm.gemm(fourier, spectrum, trans_a="C")
print(f"there and back: {np.abs(back - signals).max():.1e} at most")
assert np.allclose(back, signals, atol=1e-4)
