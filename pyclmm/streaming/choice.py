"""The choice of tiles: memory, bytes and predicted seconds of every candidate, and the best of them.

With P rows and Q columns of tiles, strips of r rows, and c chunks of K, one product moves

    A |A| times 1 if the slots of A hold a strip (r c blocks), else up to Q times,
    B |B| times 1 if the slots of B hold all of it (Q c blocks), else about P / r times,

and C once. The seconds are the largest of three times (arithmetic, up, down), which overlap, with the time
until the first product starts and the time after the last one ends. docs/scale.md derives this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..byte_sizes import format_bytes
from ..errors import ArgumentError
from ..problem.gemm import MAX_DIMENSION
from .tiles import (
    Blocking,
    Slots,
    Tile,
    TiledProduct,
    TileTraffic,
    a_key,
    b_key,
    block_bytes,
    chunks,
    tiles,
    traffic,
)

# A chunk that adds to a tile reads and writes all of it. On an H200 float32 products of 4096 to 8192 squared
# took 1 + 150 / k times as long as uncut ones (2026-11-23).
_ADDING = 150
_DELIVERY = 4e-3  # seconds until the host notices a finished tile and has its first part
_STEP = 3e-4  # seconds that the host needs for a product, its blocks and its tile
_EDGES = (512, 1024, 2048, 4096)  # of square tiles whose products are estimated
_LEAST_CHUNK = 512  # a shorter chunk is taken only if memory is short
_STEPS = 256  # products that are simulated one by one; more take too long
_TILE_BYTES = 64 << 20  # of a tile of many small matrices
_TABLE_ROW = 32  # bytes of the table of a stack for each of its products
_FINALISTS = 10
_NEAR = 1.01  # within 1 % of the least time the fewest bytes decide
_TILES_EACH = 8  # of several devices, so that they end together

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DeviceModel:
    """One device and the link to it.

    ``memory``: bytes that all slots may take. ``up``, ``down``: bytes a second to and from the device, 0 if
    nothing is moved there. ``seconds``: estimates a product of m x n x k. ``devices``: how many such devices
    share link and tiles. ``granule``: cuts are at multiples of it where tiles are larger. ``largest``: bytes
    that one slot may have.
    """

    memory: int
    up: float
    down: float
    seconds: Callable[[int, int, int], float]
    devices: int = 1
    granule: int = 256
    largest: int = 1 << 62


@dataclass(frozen=True)
class Prediction:
    """Predicted times in seconds: of the parts, which overlap, and of all together.

    ``fill``: until the first product starts; ``drain``: after the last one ends.
    """

    traffic: TileTraffic
    product_seconds: float
    up_seconds: float
    down_seconds: float
    fill_seconds: float
    drain_seconds: float
    seconds: float

    @property
    def bound_by(self) -> Literal["arithmetic", "up", "down"]:
        """Which of the three takes longest."""
        if self.product_seconds >= max(self.up_seconds, self.down_seconds):
            return "arithmetic"
        return "up" if self.up_seconds >= self.down_seconds else "down"

    @property
    def hidden(self) -> bool:
        """Whether arithmetic hides the transfers."""
        return self.bound_by == "arithmetic"


def predict(product: TiledProduct, machine: DeviceModel, blocking: Blocking) -> Prediction:
    """The times that *blocking* would take. Several devices share the link and divide tiles evenly."""
    parts = chunks(product, blocking)
    count = count_of(product, blocking)
    moved = traffic(product, blocking) if count <= _STEPS else _estimated(product, machine, blocking)
    if not parts:
        return Prediction(moved, 0, 0, 0, 0, 0, 0)
    adding = 1 + _ADDING / blocking.k if len(parts) > 1 else 1.0
    one = machine.seconds(blocking.m, blocking.n, blocking.k) * blocking.batch * adding + _STEP
    volume = product.m * product.n * product.k * product.matrices
    step = blocking.m * blocking.n * blocking.k * blocking.batch
    arithmetic = one * volume / step / machine.devices
    up, down = _over(moved.up, machine.up), _over(moved.down, machine.down)
    fill = _over(sum(_slot_bytes(product, blocking)[:2]), machine.up)
    tile = blocking.batch * blocking.m * blocking.n * product.out_size
    drain = _over(tile, machine.down)
    if count <= _STEPS * machine.devices:
        total = _simulated(product, machine, blocking, one)
    else:
        total = max(arithmetic + fill, up, down) + drain
    return Prediction(moved, arithmetic, up, down, fill, drain, total)


def count_of(product: TiledProduct, blocking: Blocking) -> int:
    """Products that are enqueued."""
    steps = -(-product.m // blocking.m) * -(-product.n // blocking.n) * -(-product.k // max(1, blocking.k))
    return steps * -(-product.matrices // blocking.batch)


def _over(nbytes: float, rate: float) -> float:
    return nbytes / rate if rate else 0.0


def _simulated(product: TiledProduct, machine: DeviceModel, blocking: Blocking, one: float) -> float:
    """Seconds by clocks of the two directions and of the products, with slots that must be free.

    Of several devices one is followed: it gets its part of the strips and of the link.
    """
    share = replace(machine, up=machine.up / machine.devices, down=machine.down / machine.devices)
    held = Slots(blocking.a_slots), Slots(blocking.b_slots)
    ready: tuple[dict[int, float], ...] = ({}, {})  # when a slot's block has arrived
    free: tuple[dict[int, float], ...] = ({}, {})  # when its last product has ended
    tile_free = [0.0] * blocking.out_slots
    up = product_end = down = 0.0
    parts = chunks(product, blocking)
    step = blocking.m * blocking.n * blocking.k * blocking.batch
    for number, tile in enumerate(_of_first(product, blocking, machine.devices)):
        place = number % blocking.out_slots
        for chunk, (start, stop) in enumerate(parts):
            keys = a_key(product, blocking, tile, chunk), b_key(product, blocking, tile, chunk)
            slots = []
            for which, nbytes in enumerate(block_bytes(product, tile, stop - start)):
                slot = held[which].find(keys[which])
                if slot is None:
                    slot = held[which].place(keys[which], ()) or 0
                    up = max(up, free[which].get(slot, 0.0)) + _over(nbytes, share.up)
                    ready[which][slot] = up
                slots.append(slot)
            begin = max(product_end, ready[0][slots[0]], ready[1][slots[1]])
            if not chunk:
                begin = max(begin, tile_free[place])
            product_end = begin + one * tile.elements * (stop - start) / step
            free[0][slots[0]] = free[1][slots[1]] = product_end
        sent = _over(tile.elements * product.out_size, share.down)
        down = max(down + sent, product_end + sent + (_DELIVERY if machine.down else 0.0))
        tile_free[place] = down
    return max(down, product_end)


def _of_first(product: TiledProduct, blocking: Blocking, devices: int) -> list[Tile]:
    """The tiles of the first of several devices that take strips in turn."""
    depth = (blocking.n if blocking.by_columns else blocking.m) * blocking.strip
    every = tiles(product, blocking)
    found = []
    for tile in every:
        start = (tile.columns if blocking.by_columns else tile.rows)[0]
        if (start // depth + tile.z[0]) % devices == 0:
            found.append(tile)
    return found[: -(-len(every) // devices)]


def _slot_bytes(product: TiledProduct, blocking: Blocking) -> tuple[int, int, int]:
    """Bytes of one slot of A, of B, and of a tile."""
    at = blocking.batch
    a = blocking.m * blocking.k * product.a_size * (at if product.a_stack else 1)
    b = blocking.k * blocking.n * product.b_size * (at if product.b_stack else 1)
    return a, b, at * blocking.m * blocking.n * product.tile_size


def memory(product: TiledProduct, blocking: Blocking) -> int:
    """Bytes that all slots take."""
    counts = blocking.a_slots, blocking.b_slots, blocking.out_slots
    sizes = _slot_bytes(product, blocking)
    return sum(count * size for count, size in zip(counts, sizes, strict=True))


def choose(product: TiledProduct, machine: DeviceModel) -> Blocking:
    """The blocking with the least predicted seconds. Raises ArgumentError if none fits the memory."""
    batch = _batch(product, machine)
    if batch > 1:
        return Blocking(batch, product.m, product.n, product.k, 1, 2, 2, 2)
    empty = 0 in (product.m, product.n, product.matrices)
    if empty or product.k == 0:
        return Blocking(1, max(1, product.m), max(1, product.n), product.k, 1, 1, 1, 1)
    for fine in (False, True):  # all small sizes only if memory is short
        found = _finalists(product, machine, fine)
        found += [each.turned for each in _finalists(product.turned, _turned(machine), fine)]
        if found:
            scored = [(predict(product, machine, each), each) for each in found]
            least = min(prediction.seconds for prediction, _ in scored)
            near = [x for x in scored if x[0].seconds <= least * _NEAR]
            return min(near, key=lambda x: (x[0].traffic.up, memory(product, x[1])))[1]
    k = product.k if product.whole_k else 1
    least_bytes = k * product.a_size + k * product.b_size + product.tile_size
    raise ArgumentError(
        f"memory_limit leaves {machine.memory} bytes for blocks; even tiles of one element need "
        f"{least_bytes}: pass more"
    )


def _turned(machine: DeviceModel) -> DeviceModel:
    """The machine for turned products."""
    return replace(machine, seconds=lambda m, n, k: machine.seconds(n, m, k))


def _batch(product: TiledProduct, machine: DeviceModel) -> int:
    """How many small matrices of a stack share a tile; 1 if one is large enough for tiles of its own."""
    if not product.stack or product.stack[-1] < 2 or 0 in (product.m, product.n, product.k):
        return 1
    sizes = (product.m * product.k * product.a_size, product.k * product.n * product.b_size)
    one = sum(sizes) + product.m * product.n * product.tile_size
    room = min(_TILE_BYTES, machine.memory // 2, machine.largest)
    return max(1, min(room // (one + _TABLE_ROW), -(-product.stack[-1] // machine.devices)))


def _finalists(product: TiledProduct, machine: DeviceModel, fine: bool) -> list[Blocking]:
    """The best blockings by closed forms; none if none fits."""
    best: list[tuple[float, Blocking]] = []
    for candidates in _candidates(product, machine, fine):
        best += candidates
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


def _candidates(
    product: TiledProduct, machine: DeviceModel, fine: bool
) -> Iterator[list[tuple[float, Blocking]]]:
    """For each way to use the slots: the best few blockings with their predicted seconds."""
    least = 1 if fine else max(machine.granule, int((machine.memory / (64 * product.tile_size)) ** 0.5) // 8)
    ms, ns = (_sizes(length, machine.granule, least) for length in (product.m, product.n))
    whole = [product.k] if product.k <= MAX_DIMENSION else []
    ks = whole if product.whole_k else _sizes(product.k, 64, 1 if fine else _LEAST_CHUNK)
    strips = [1] if fine else sorted({1, 2, 3, 4, 6, 8, *(-(-product.m // m) for m in ms)})
    grid = np.meshgrid(ms, ns, ks, strips, indexing="ij")
    m, n, k, strip = (each.ravel().astype(np.int64) for each in grid)
    P, Q, c = (-(-length // size) for length, size in ((product.m, m), (product.n, n), (product.k, k)))
    possible = strip <= P
    m, n, k, strip, P, Q, c = (each[possible] for each in (m, n, k, strip, P, Q, c))
    ways = _ways(strip, P, Q, c)
    rates = _rates(product, machine)
    for a_slots, b_slots in ways:
        for out_slots in (3, 2, 1):
            slots = np.minimum(a_slots, P * c), np.minimum(b_slots, Q * c), np.minimum(out_slots, P * Q)
            yield _best(product, machine, (m, n, k, strip, P, Q, c), slots, rates)


def _ways(strip: Ints, P: Ints, Q: Ints, c: Ints) -> list[tuple[Ints, Ints]]:
    """Numbers of slots (of A, of B): what is kept on the device, with room for what comes next."""
    ahead = np.minimum(c, 2)
    kept = [(strip + 1) * c, strip * c + ahead, strip * c]
    return [
        *((a, Q * c) for a in kept),  # a strip of A and all of B
        *((a, 2 * c) for a in kept),  # a strip of A; B streams by panels
        *((a, c + ahead) for a in kept),
        *((a, ahead + 1) for a in kept),
        (ahead + 1, 2 * c),  # a panel of B; A streams
        (ahead + 1, ahead + 1),  # nothing is kept
        (np.ones_like(c), np.ones_like(c)),
    ]


def _best(
    product: TiledProduct,
    machine: DeviceModel,
    at: tuple[Ints, ...],
    slots: tuple[Ints, ...],
    rates: tuple[Floats, Floats],
) -> list[tuple[float, Blocking]]:
    m, n, k, strip = at[:4]
    a_slots, b_slots, out_slots = slots
    a, b, c = m * k * product.a_size, k * n * product.b_size, m * n * product.tile_size
    fits = a * a_slots + b * b_slots + c * out_slots <= machine.memory
    fits &= np.maximum(np.maximum(a, b), m * n * max(product.acc_size, product.out_size)) <= machine.largest
    if not fits.any():
        return []
    seconds, up = _scores(product, machine, at, slots, rates)
    seconds = np.where(fits, seconds, np.inf)
    order = np.lexsort((up, seconds))[:_FINALISTS]
    found = []
    for i in order[np.isfinite(seconds[order])]:
        tile = (int(m[i]), int(n[i]), int(k[i]), int(strip[i]))
        counts = (int(a_slots[i]), int(b_slots[i]), int(out_slots[i]))
        found.append((float(seconds[i]), Blocking(1, *tile, *counts)))
    return found


def _rates(product: TiledProduct, machine: DeviceModel) -> tuple[Floats, Floats]:
    """(elements of a tile, seconds for each of its multiply-adds): small tiles leave compute units idle."""
    k = min(product.k, 4096)
    sizes = [(min(product.m, edge), min(product.n, edge)) for edge in _EDGES]
    elements = [m * n for m, n in sizes]
    each = [machine.seconds(m, n, k) / (m * n * k) for m, n in sizes]
    return np.log(np.array(elements, np.float64)), np.array(each)


def _scores(
    product: TiledProduct,
    machine: DeviceModel,
    at: tuple[Ints, ...],
    slots: tuple[Ints, ...],
    rates: tuple[Floats, Floats],
) -> tuple[Floats, Floats]:
    """(seconds, bytes up) of every candidate, by closed forms."""
    m, n, k, strip, P, Q, c = at
    a_loads, b_loads = loads(strip, P, Q, c, slots[0], slots[1])
    a_bytes = product.m * product.k * product.a_size * (a_loads / (P * c)) * _own_matrices(product, "a")
    b_bytes = product.k * product.n * product.b_size * (b_loads / (Q * c)) * _own_matrices(product, "b")
    b_bytes = np.maximum(b_bytes, product.k * product.n * product.b_size * min(machine.devices, 1 << 20))
    up = a_bytes + b_bytes + product.m * product.n * product.c_size * product.matrices
    rate = np.interp(np.log((m * n).astype(np.float64)), *rates)
    volume = float(product.m) * product.n * product.k * product.matrices
    arithmetic = rate * volume * (1 + _ADDING / k * (c > 1)) / machine.devices
    tile = rate * m * n * product.k
    share = replace(machine, up=machine.up / machine.devices, down=machine.down / machine.devices)
    to_first = _each(m * k * product.a_size + k * n * product.b_size, share.up)
    first_tile = _each((m * product.a_size + n * product.b_size) * float(product.k), share.up)
    ramp = np.maximum(0.0, first_tile - tile)  # the first tile waits for its chunks
    stall = _stalls(at, slots, product, share, rate)
    down = _over(product.m * product.n * product.out_size * product.matrices, machine.down)
    drain = _each(m * n * product.out_size, machine.down) + _STEP * P * Q * c
    seconds = (
        np.maximum(arithmetic + to_first + ramp + stall, np.maximum(_each(up, machine.up), down)) + drain
    )
    if machine.devices > 1:
        few = P * Q * product.matrices < _TILES_EACH * machine.devices
        seconds = seconds + tile + np.where(few, tile, 0.0)
        seconds = seconds * np.where(-(-P // strip) * product.matrices < machine.devices, 1.5, 1.0)
    return seconds, up


def _each(nbytes: Any, rate: float) -> Floats:
    return np.asarray(nbytes / rate if rate else np.zeros_like(nbytes, np.float64), np.float64)


def _stalls(
    at: tuple[Ints, ...], slots: tuple[Ints, ...], product: TiledProduct, machine: DeviceModel, rate: Floats
) -> Floats:
    """Seconds without a product because no slot is free to load the next blocks meanwhile."""
    m, n, k, strip, P, Q, c = at
    a_slots, b_slots, out_slots = slots
    a, b = _each(m * k * product.a_size, machine.up), _each(k * n * product.b_size, machine.up)
    tiles_, strips = P * Q * product.matrices, -(-P // strip) * product.matrices
    no_b = (b_slots < np.minimum(Q * c, np.where(strip > 1, c + 1, 2))) & (Q * c > 1)
    no_a = (a_slots < np.minimum(P * c, strip * c + 1)) & (strip < P)
    stalls = np.where(no_b, b * c * tiles_, 0.0) + np.where(no_a, a * c * strips * strip, 0.0)
    if not machine.down:
        return np.asarray(stalls)
    delivery = _each(m * n * product.out_size, machine.down) + _DELIVERY
    meanwhile = (out_slots - 1) * rate * m * n * product.k  # other tiles are computed
    return np.asarray(stalls + np.maximum(0.0, delivery - meanwhile) * tiles_)


def loads(strip: Any, P: Any, Q: Any, c: Any, a_slots: Any, b_slots: Any) -> tuple[Any, Any]:
    """How many blocks of A and of B are loaded for one matrix of P x Q tiles with c chunks."""
    strips = -(-P // strip)
    a_kept = np.minimum(strip, a_slots // c)  # panels of A that are still there at a turn
    turned = np.where(a_slots >= strip * c, P, P * Q - strips * (Q - 1) * a_kept)
    a_loads = np.where(a_slots >= c, turned, P * Q) * c
    b_kept = np.minimum(Q, b_slots // c)
    b_loads = np.where(b_slots >= c, strips * Q - (strips - 1) * b_kept, P * Q) * c
    return a_loads, b_loads


def _own_matrices(product: TiledProduct, name: str) -> int:
    """How often the matrices of an operand are loaded over the stack, at most."""
    own = product.a_stack if name == "a" else product.b_stack
    return product.matrices if own else 1


def _estimated(product: TiledProduct, machine: DeviceModel, blocking: Blocking) -> TileTraffic:
    """:func:`traffic` by closed forms."""
    if blocking.by_columns:
        turned = _estimated(product.turned, machine, blocking.turned)
        return replace(turned, a_loads=turned.b_loads, b_loads=turned.a_loads)
    P, Q = -(-product.m // blocking.m), -(-product.n // blocking.n)
    c = -(-product.k // blocking.k)
    found = loads(blocking.strip, P, Q, c, blocking.a_slots, blocking.b_slots)
    count = -(-product.matrices // blocking.batch)
    a_loads, b_loads = (int(x) * count for x in found)
    z = product.matrices
    a = product.m * product.k * product.a_size * a_loads * z // (P * c * count)
    b = product.k * product.n * product.b_size * b_loads * z // (Q * c * count)
    elements = product.m * product.n * z
    return TileTraffic(a + b + elements * product.c_size, elements * product.out_size, a_loads, b_loads)


def describe(product: TiledProduct, machine: DeviceModel, blocking: Blocking) -> list[tuple[str, str]]:
    """Rows (what, text) for ``plan.explain()``."""
    if 0 in (product.m, product.n, product.k, product.matrices):
        return [("tiles", "none: nothing is multiplied")]
    found, count = predict(product, machine, blocking), count_of(product, blocking)
    P, Q, c = (
        -(-length // size)
        for length, size in ((product.m, blocking.m), (product.n, blocking.n), (product.k, blocking.k))
    )
    z = -(-product.matrices // blocking.batch)
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
            f"{_some(blocking.a_slots, 'block')} of A, {blocking.b_slots} of B, "
            f"{_some(blocking.out_slots, 'tile')}: {format_bytes(memory(product, blocking))}",
        ),
        ("to the device", _direction(found.traffic.up, found.up_seconds, machine.up)),
        ("back", _direction(found.traffic.down, found.down_seconds, machine.down)),
        (
            "arithmetic",
            f"{found.product_seconds:.4g} s, of which {count} x {_STEP * 1e3:.1g} ms are the host's",
        ),
        ("decides", _verdict(found)),
        ("predicted", f"{found.seconds:.4g} s, of which {found.fill_seconds:.3g} until the first product"),
    ]


def _some(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _direction(nbytes: int, seconds: float, rate: float) -> str:
    if not rate:
        return "nothing: the device uses the host's memory"
    return f"{format_bytes(nbytes)} at {rate / 1e9:.1f} GB/s: {seconds:.4g} s"


def _verdict(found: Prediction) -> str:
    if found.hidden:
        return "arithmetic, which hides the transfers"
    way = "to the device" if found.bound_by == "up" else "back"
    return f"the transfers {way}, which arithmetic does not hide"
