"""The choice of tiles: every candidate scored by closed forms, and the best of them followed step by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..byte_sizes import format_bytes
from ..errors import ArgumentError
from ..problem.gemm import MAX_DIMENSION
from .prediction import DELIVERY, STEP, DeviceModel, adding, loads, memory, over, predict
from .tiles import Blocking, TiledProduct

_EDGES = (512, 1024, 2048, 4096)  # of square tiles whose products are estimated
_GRANULE = 256  # sizes of larger tiles are multiples of it
_LEAST_CHUNK = 512  # a shorter chunk is taken only if memory is short
_TILE_BYTES = 64 << 20  # of a tile of many small matrices
_TABLE_ROW = 32  # bytes of the table of a stack for each of its products
_FINALISTS = 10
_NEAR = 1.01  # within 1 % of the least time the fewest bytes decide
_TILES_EACH = 8  # of several devices, so that they end together

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def choose(product: TiledProduct, device: DeviceModel) -> Blocking:
    """The blocking with the least predicted seconds. Raises ArgumentError if none fits the memory."""
    if product.is_empty:
        return Blocking(1, max(1, product.m), max(1, product.n), product.k, 1, 1, 1, 1)
    if product.k == 0:
        return replace(choose(replace(product, k=1), device), k=0)
    batch = _batch(product, device)
    if batch > 1:
        return Blocking(batch, product.m, product.n, product.k, 1, 2, 2, 2)
    turned = replace(device, seconds=lambda m, n, k: device.seconds(n, m, k))  # as turned products see it
    for fine in (False, True):  # all small sizes only if memory is short
        found = _finalists(product, device, fine)
        found += [each.turned for each in _finalists(product.turned, turned, fine)]
        if found:
            predicted = {each: predict(product, device, each) for each in found}
            least = min(each.seconds for each in predicted.values())
            near = [each for each in predicted if predicted[each].seconds <= least * _NEAR]
            return min(near, key=lambda each: (predicted[each].up, memory(product, each)))
    k = product.k if product.whole_k else 1
    least_bytes = k * product.a_size + k * product.b_size + product.tile_size
    raise ArgumentError(
        f"memory_limit is {format_bytes(device.memory)}; even tiles of one element need "
        f"{format_bytes(least_bytes)}, besides workspace: pass more"
    )


def _batch(product: TiledProduct, device: DeviceModel) -> int:
    """How many small matrices of a stack share a tile; 1 if one is large enough for tiles of its own."""
    if not product.stack or product.stack[-1] < 2:
        return 1
    sizes = (product.m * product.k * product.a_size, product.k * product.n * product.b_size)
    one = sum(sizes) + product.m * product.n * product.tile_size
    room = min(_TILE_BYTES, device.memory // 2, device.largest)
    return max(1, min(room // (one + _TABLE_ROW), -(-product.stack[-1] // device.devices)))


def _finalists(product: TiledProduct, device: DeviceModel, fine: bool) -> list[Blocking]:
    """The best blockings by closed forms; none if none fits."""
    every = _Candidates(product, device, fine)
    best = [scored for slots in every.ways() for scored in every.best(*slots)]
    best.sort(key=lambda x: x[0])
    return [blocking for _, blocking in best[:_FINALISTS]]


def _sizes(length: int, granule: int, least: int) -> list[int]:
    """Sizes of equal parts of *length*, from all of it down to *least*; few if that is 1."""
    found = []
    thirds = {3 * 2**i for i in range(40)} if least > 1 else set()
    for parts in sorted({2**i for i in range(40)} | thirds):
        size = -(-length // parts)
        step = granule if size >= granule else 16 if size >= 16 else 1
        size = min(length, -(-size // step) * step)
        if size not in found and size <= MAX_DIMENSION:
            found.append(size)
        if size <= min(least, length) or parts >= length:
            break
    return found


class _Candidates:
    """Sizes of tiles, chunks and strips in every combination: arrays with an element for each combination.

    ``m``, ``n``, ``k`` and ``strip`` are those of :class:`Blocking`; ``P``, ``Q``, ``c``: rows and columns of
    tiles, and chunks. Times are in seconds.
    """

    def __init__(self, product: TiledProduct, device: DeviceModel, fine: bool) -> None:
        self.product, self.device = product, device
        edge = int((device.memory / (64 * product.tile_size)) ** 0.5)  # of a tile of a 64th of the memory
        least = 1 if fine else max(_GRANULE, edge // 8)
        ms, ns = (_sizes(length, _GRANULE, least) for length in (product.m, product.n))
        whole = [product.k] if product.k <= MAX_DIMENSION else []
        ks = whole if product.whole_k else _sizes(product.k, 64, 1 if fine else _LEAST_CHUNK)
        strips = [1] if fine else sorted({1, 2, 3, 4, 6, 8, *(-(-product.m // m) for m in ms)})
        grid = [each.ravel().astype(np.int64) for each in np.meshgrid(ms, ns, ks, strips, indexing="ij")]
        m, n, k, strip = grid
        possible = strip <= -(-product.m // m)
        self.m, self.n, self.k, self.strip = m, n, k, _ = [each[possible] for each in grid]
        self.P, self.Q, self.c = -(-product.m // m), -(-product.n // n), -(-product.k // k)
        self.a_bytes, self.b_bytes = m * k * product.a_size, k * n * product.b_size  # of a block
        self.out_bytes = m * n * product.out_size
        self.each = self._each()
        self.tile_seconds = self.each * m * n * product.k

    def _each(self) -> Floats:
        """Seconds for each multiply-add: small tiles leave compute units idle."""
        product = self.product
        k = min(product.k, 4096)
        sizes = [(min(product.m, edge), min(product.n, edge)) for edge in _EDGES]
        elements = np.log(np.array([m * n for m, n in sizes], np.float64))
        each = [self.device.seconds(m, n, k) / (m * n * k) for m, n in sizes]
        return np.asarray(np.interp(np.log((self.m * self.n).astype(np.float64)), elements, each))

    def ways(self) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Numbers of slots (of A, of B, of tiles), for what is kept on the device and for what comes next."""
        strip, Q, c = self.strip, self.Q, self.c
        ahead = np.minimum(c, 2)
        kept = [(strip + 1) * c, strip * c + ahead, strip * c]
        found = [
            *((a, Q * c) for a in kept),  # a strip of A and all of B
            *((a, 2 * c) for a in kept),  # a strip of A; B streams by panels
            *((a, c + ahead) for a in kept),
            *((a, ahead + 1) for a in kept),
            (ahead + 1, 2 * c),  # a panel of B; A streams
            (ahead + 1, ahead + 1),  # nothing is kept
            (np.ones_like(c), np.ones_like(c)),
        ]
        for a_slots, b_slots in found:
            for out_slots in (3, 2, 1):
                tiles = np.minimum(out_slots, self.P * Q)
                yield np.minimum(a_slots, self.P * c), np.minimum(b_slots, Q * c), tiles

    def best(self, a_slots: Ints, b_slots: Ints, out_slots: Ints) -> list[tuple[float, Blocking]]:
        """The best few blockings with these slots, with their predicted seconds; none if none fits."""
        product, device = self.product, self.device
        tile = self.m * self.n * product.tile_size
        largest = np.maximum(self.a_bytes, self.b_bytes)
        largest = np.maximum(largest, self.m * self.n * max(product.acc_size, product.out_size))
        fits = self.a_bytes * a_slots + self.b_bytes * b_slots + tile * out_slots <= device.memory
        fits &= largest <= device.largest
        if not fits.any():
            return []
        up = self._bytes_up(a_slots, b_slots)
        seconds = np.where(fits, self._seconds(up, self._stalls(a_slots, b_slots, out_slots)), np.inf)
        order = np.lexsort((up, seconds))[:_FINALISTS]
        columns = (self.m, self.n, self.k, self.strip, a_slots, b_slots, out_slots)
        found = []
        for i in order[np.isfinite(seconds[order])]:
            m, n, k, strip, a, b, out = (int(each[i]) for each in columns)
            found.append((float(seconds[i]), Blocking(1, m, n, k, strip, a, b, out)))
        return found

    def _bytes_up(self, a_slots: Ints, b_slots: Ints) -> Floats:
        """Bytes to the devices."""
        product, P, Q, c = self.product, self.P, self.Q, self.c
        a, b = product.m * product.k * product.a_size, product.k * product.n * product.b_size
        a_loads, b_loads = loads(self.strip, P, Q, c, a_slots, b_slots)
        a_bytes = a * (a_loads / (P * c)) * (product.matrices if product.a_stack else 1)
        b_bytes = b * (b_loads / (Q * c)) * (product.matrices if product.b_stack else 1)
        b_bytes = np.maximum(b_bytes, b * min(self.device.devices, 1 << 20))
        c_bytes = product.m * product.n * product.c_size * product.matrices
        return np.asarray(a_bytes + b_bytes + c_bytes)

    def _seconds(self, up: Floats, stalls: Floats) -> Floats:
        """Arithmetic or transfers, whichever is longer, and what overlaps with neither."""
        product, device = self.product, self.device
        share = device.up / device.devices
        volume = float(product.m) * product.n * product.k * product.matrices
        arithmetic = self.each * volume * adding(product, self.k) / device.devices
        first_step = over(self.a_bytes + self.b_bytes, share)
        first_tile = over((self.m * product.a_size + self.n * product.b_size) * float(product.k), share)
        ramp = np.maximum(0.0, first_tile - self.tile_seconds)  # the first tile waits for its chunks
        down = product.m * product.n * product.out_size * product.matrices
        transfers = np.maximum(over(up, device.up), down / device.down if device.down else 0.0)
        drain = over(self.out_bytes, device.down) + STEP * self.P * self.Q * self.c
        seconds = np.maximum(arithmetic + first_step + ramp + stalls, transfers) + drain
        if device.devices == 1:
            return np.asarray(seconds)
        # Several devices do not end together: one has a tile more, or a strip.
        few = self.P * self.Q * product.matrices < _TILES_EACH * device.devices
        seconds = seconds + self.tile_seconds + np.where(few, self.tile_seconds, 0.0)
        strips = -(-self.P // self.strip) * product.matrices
        return np.asarray(seconds * np.where(strips < device.devices, 1.5, 1.0))

    def _stalls(self, a_slots: Ints, b_slots: Ints, out_slots: Ints) -> Floats:
        """Seconds without a product because no slot is free to load the next blocks meanwhile.

        In use are the blocks of A of a strip, and one of B, or a panel if other tiles of the strip follow.
        """
        strip, P, Q, c, matrices = self.strip, self.P, self.Q, self.c, self.product.matrices
        up, down = (rate / self.device.devices for rate in (self.device.up, self.device.down))
        tiles, strips = P * Q * matrices, -(-P // strip) * matrices
        waits_for_b = (b_slots <= np.where(strip > 1, c, 1)) & (b_slots < Q * c)
        waits_for_a = (a_slots <= strip * c) & (strip < P)
        for_b = np.where(waits_for_b, over(self.b_bytes, up) * c * tiles, 0.0)
        for_a = np.where(waits_for_a, over(self.a_bytes, up) * c * strips * strip, 0.0)
        if not down:
            return np.asarray(for_b + for_a)
        delivery = over(self.out_bytes, down) + DELIVERY
        meanwhile = (out_slots - 1) * self.tile_seconds  # other tiles are computed
        return np.asarray(for_b + for_a + np.maximum(0.0, delivery - meanwhile) * tiles)
