"""reproducible=True: the digest of products on your device, beside the one in the repository."""

import hashlib

import numpy as np

import pyclmm

DIGESTS = {
    "float32": "111ba611c9d2398edd71d51601f451a980193acb408fe7571975974af7024df4",
    "complex64": "5599e9361c46bcdfc95ec35f61042c927a6f042ffc5d21574b7354b9c83cd052",
}  # of any device; made by pyclmm.reference.chain


def numbers(shape: tuple[int, int], start: int) -> np.ndarray:
    """Numbers from -1 to 1 by integer arithmetic, which no version of NumPy changes (Knuth's multiplier)."""
    count = np.arange(start, start + int(np.prod(shape)), dtype=np.uint32) * np.uint32(2654435761)
    return (count.astype(np.float64) / 2**31 - 1).astype(np.float32).reshape(shape)


for dtype, expected in DIGESTS.items():
    a, b = numbers((40, 300), 1), numbers((300, 50), 99991)
    if dtype == "complex64":
        a, b = a + 1j * a[::-1], b - 1j * b[:, ::-1]
    with pyclmm.default_reproducible():
        whole = pyclmm.matmul(a, b)
        assert np.array_equal(whole[7], pyclmm.matmul(a[7], b))  # a row alone has the same bits
    here = hashlib.sha256(np.ascontiguousarray(whole).tobytes()).hexdigest()
    print(f"{dtype}: {here[:16]} here, {expected[:16]} in the repository")
    assert here == expected
    assert np.array_equal(whole, pyclmm.reference.chain(a, b))  # NumPy computes the same bits, slowly

print("row 7 of A B is A[7] B, bit for bit")
