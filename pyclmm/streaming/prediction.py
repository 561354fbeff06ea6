"""What a choice of tiles takes: memory, bytes and predicted seconds.

With P rows and Q columns of tiles, strips of r rows, and c chunks of K, one product moves

    A |A| times 1 if the slots of A hold a strip (r c blocks), else up to Q times,
    B |B| times 1 if the slots of B hold all of it (Q c blocks), else about P / r times,

and C once. The seconds are the largest of three times (arithmetic, up, down), which overlap, with the time
until the first product starts and the time after the last one ends. docs/scale.md derives this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..byte_sizes import format_bytes
from ..errors import amount
from .tiles import Blocking, TiledProduct, batches, counts, tiles, traffic, walk

# A chunk that adds to a tile reads and writes all of it. On an H200 float32 products of 4096 to 8192 squared
# took 1 + 150 / k times as long as uncut ones (2026-11-23).
_ADDING = 150
DELIVERY = 4e-3  # seconds until the host notices a finished tile and has its first part
STEP = 3e-4  # seconds that the host needs for a product, its blocks and its tile
_STEPS = 256  # products that are simulated one by one; more take too long
Seconds = Callable[[int, int, int], float]  # estimates a product of m x n x k


@dataclass(frozen=True)
class DeviceModel:
    """One device and the link to it.

    ``memory``: bytes that all slots may take. ``up``, ``down``: bytes a second to and from the device, 0 if
    nothing is moved there. ``seconds``: estimates a product of m x n x k. ``devices``: how many such devices
    share link and tiles. ``largest``: bytes that one slot may have.
    """

    memory: int
    up: float
    down: float
    seconds: Seconds
    devices: int = 1
    largest: int = 1 << 62


@dataclass(frozen=True)
class Prediction:
    """Bytes ``up`` to the device and ``down``; times in seconds, of the parts, which overlap, and of all.

    ``fill``: until the first product starts.
    """

    up: int
    down: int
    product_seconds: float
    up_seconds: float
    down_seconds: float
    fill_seconds: float
    seconds: float

    @property
    def decides(self) -> str:
        """Which of the three takes longest."""
        if self.product_seconds >= max(self.up_seconds, self.down_seconds):
            return "arithmetic, which hides the transfers"
        way = "to the device" if self.up_seconds >= self.down_seconds else "back"
        return f"the transfers {way}, which arithmetic does not hide"


def adding(product: TiledProduct, k: Any) -> Any:
    """How many times as long chunks of *k* steps take because they add to a tile; *k* may be an array."""
    return 1 + _ADDING / np.maximum(k, 1) * (k < product.k)


def step_seconds(product: TiledProduct, blocking: Blocking, seconds: Seconds) -> float:
    """Predicted seconds of one chunk of a whole tile, on the device of which *seconds* tells."""
    once = seconds(blocking.m, blocking.n, blocking.k) * blocking.batch
    return float(once * adding(product, blocking.k) + STEP)


def predict(product: TiledProduct, device: DeviceModel, blocking: Blocking) -> Prediction:
    """The times that *blocking* would take, where something is multiplied. Several devices share the link and
    divide tiles evenly.
    """
    count = count_of(product, blocking)
    up_bytes, down_bytes = (traffic if count <= _STEPS else _estimated)(product, blocking)
    one = step_seconds(product, blocking, device.seconds)
    volume = product.m * product.n * product.k * product.matrices
    step = blocking.m * blocking.n * blocking.k * blocking.batch
    arithmetic = one * volume / step / device.devices
    up, down = over(up_bytes, device.up), over(down_bytes, device.down)
    fill = over(sum(slot_bytes(product, blocking)[:2]), device.up)
    tile = blocking.batch * blocking.m * blocking.n * product.out_size
    drain = over(tile, device.down)
    if count <= _STEPS * device.devices:
        # the first device may have less to do than the others
        total = max(arithmetic, _simulated(product, device, blocking, one))
    else:
        total = max(arithmetic + fill, up, down) + drain
    return Prediction(up_bytes, down_bytes, arithmetic, up, down, fill, total)


def count_of(product: TiledProduct, blocking: Blocking) -> int:
    """Products that are enqueued."""
    P, Q, c = counts(product, blocking)
    return P * Q * c * batches(product, blocking)


def over(nbytes: Any, rate: float) -> Any:
    """Seconds of a transfer, or of an array of them."""
    return nbytes / rate if rate else 0.0


def _simulated(product: TiledProduct, device: DeviceModel, blocking: Blocking, one: float) -> float:
    """Seconds by clocks of the two directions and of the products, with slots that must be free.

    Of several devices, which take strips in turn, the first is followed: it gets its part of the link.
    """
    share = replace(device, up=device.up / device.devices, down=device.down / device.devices)
    arrived: dict[tuple[int, int], float] = {}  # when the block in a slot of A (0) or B (1) has arrived
    free: dict[tuple[int, int], float] = {}  # when its last product has ended
    tile_free = [0.0] * blocking.out_slots
    up = product_end = down = 0.0
    step = blocking.m * blocking.n * blocking.k * blocking.batch
    every = tiles(product, blocking)
    own = [tile for tile in every if (blocking.strip_of(tile) + tile.z.start) % device.devices == 0]
    own = own[: -(-len(every) // device.devices)]
    place = -1
    for tile, (start, stop), blocks in walk(product, blocking, own):
        begin = product_end
        if not start:
            place = (place + 1) % blocking.out_slots
            begin = max(begin, tile_free[place])
        slots = [(which, slot) for which, (slot, _) in enumerate(blocks)]
        for slot, (_, nbytes) in zip(slots, blocks, strict=True):
            if nbytes is not None:
                up = arrived[slot] = max(up, free.get(slot, 0.0)) + over(nbytes, share.up)
            begin = max(begin, arrived[slot])
        product_end = begin + one * tile.elements * (stop - start) / step
        free.update(dict.fromkeys(slots, product_end))
        if stop == product.k:
            sent = over(tile.elements * product.out_size, share.down)
            down = max(down + sent, product_end + sent + (DELIVERY if device.down else 0.0))
            tile_free[place] = down
    return max(down, product_end)


def slot_bytes(product: TiledProduct, blocking: Blocking) -> tuple[int, int, int]:
    """Bytes of one slot of A, of B, and of a tile."""
    at = blocking.batch
    a = blocking.m * blocking.k * product.a_size * (at if product.a_stack else 1)
    b = blocking.k * blocking.n * product.b_size * (at if product.b_stack else 1)
    return a, b, at * blocking.m * blocking.n * product.tile_size


def memory(product: TiledProduct, blocking: Blocking) -> int:
    """Bytes that all slots take."""
    counts = blocking.a_slots, blocking.b_slots, blocking.out_slots
    sizes = slot_bytes(product, blocking)
    return sum(count * size for count, size in zip(counts, sizes, strict=True))


def loads(strip: Any, P: Any, Q: Any, c: Any, a_slots: Any, b_slots: Any) -> tuple[Any, Any]:
    """How many blocks of A and of B are loaded for one matrix of P x Q tiles with c chunks."""
    strips = -(-P // strip)
    a_kept = np.minimum(strip, a_slots // c)  # panels of A that are still there at a turn
    turned = np.where(a_slots >= strip * c, P, P * Q - strips * (Q - 1) * a_kept)
    a_loads = np.where(a_slots >= c, turned, P * Q) * c
    b_kept = np.minimum(Q, b_slots // c)
    b_loads = np.where(b_slots >= c, strips * Q - (strips - 1) * b_kept, P * Q) * c
    return a_loads, b_loads


def _estimated(product: TiledProduct, blocking: Blocking) -> tuple[int, int]:
    """The bytes of :func:`traffic` by closed forms."""
    if blocking.by_columns:
        return _estimated(product.turned, blocking.turned)
    P, Q, c = counts(product, blocking)
    found = loads(blocking.strip, P, Q, c, blocking.a_slots, blocking.b_slots)
    a_loads, b_loads = map(int, found)
    z = product.matrices
    a = product.m * product.k * product.a_size * a_loads * z // (P * c)
    b = product.k * product.n * product.b_size * b_loads * z // (Q * c)
    elements = product.m * product.n * z
    return a + b + elements * product.c_size, elements * product.out_size


def describe(product: TiledProduct, device: DeviceModel, blocking: Blocking) -> list[tuple[str, str]]:
    """Rows (what, text) for ``plan.explain()``."""
    if 0 in (product.m, product.n, product.k, product.matrices):
        return [("tiles", "none: nothing is multiplied")]
    found, count = predict(product, device, blocking), count_of(product, blocking)
    P, Q, c = counts(product, blocking)
    z = batches(product, blocking)
    many = f", {z} times over the stack" if z > 1 else ""
    batch = f"{blocking.batch} x " if blocking.batch > 1 else ""
    along, across = ("rows", "column") if blocking.by_columns else ("columns", "row")
    cut = f"{c} chunks of {blocking.k}" if c > 1 else f"one chunk of {blocking.k}"
    strip = across if blocking.strip == 1 else f"{blocking.strip} {across}s"
    return [
        ("tiles", f"{P} x {Q} of {batch}{blocking.m} x {blocking.n}{many}, K in {cut}"),
        ("order", f"by {strip} of tiles, back and forth along the {along}"),
        (
            "slots",
            f"{amount(blocking.a_slots, 'blocks')} of A, {blocking.b_slots} of B, "
            f"{amount(blocking.out_slots, 'tiles')}: {format_bytes(memory(product, blocking))}",
        ),
        ("to the device", _direction(found.up, found.up_seconds, device.up)),
        ("back", _direction(found.down, found.down_seconds, device.down)),
        (
            "arithmetic",
            f"{found.product_seconds:.4g} s, of which {count} x {STEP * 1e3:.1g} ms are the host's",
        ),
        ("decides", found.decides),
        ("predicted", f"{found.seconds:.4g} s, of which {found.fill_seconds:.3g} until the first product"),
    ]


def _direction(nbytes: int, seconds: float, rate: float) -> str:
    if not rate:
        return "nothing: the device uses the host's memory"
    return f"{format_bytes(nbytes)} at {rate / 1e9:.1f} GB/s: {seconds:.4g} s"
