"""NumPy models of the layouts in local memory and registers that matrix units need. No device is needed.

Each model follows the layout drawn in a header of cl/ and uses the header's names. Together the models must
give a right product.
"""

from __future__ import annotations

import numpy as np
import pytest

LANES = np.arange(32)
G, T = LANES // 4, LANES % 4  # g and t of each work-item 4 g + t of a sub-group


def box(matrix):
    """ptx_map.h: rows of 128 bytes, 16-byte chunk c of row r at chunk c ^ (r % 8), as flat bytes."""
    rows = np.ascontiguousarray(matrix).view(np.uint8).reshape(len(matrix), 8, 16)
    placed = np.empty_like(rows)
    for r, row in enumerate(rows):
        placed[r, np.arange(8) ^ r % 8] = row
    return placed.reshape(-1)


def across(matrix):
    """A tile of an operand stored across K: boxes of 64 columns, one after the other."""
    columns = 128 // matrix.itemsize
    return np.concatenate([box(matrix[:, i : i + columns]) for i in range(0, matrix.shape[1], columns)])


def load_matrices(memory, address):
    """ldmatrix: work-item l addresses 16 bytes, row l % 8 of matrix l / 8. Words: [matrix, work-item]."""
    rows = memory[address[:, None] + np.arange(16)].reshape(4, 8, 16)
    return rows.view(np.uint32)[:, G, T]


def load_matrices_transposed(memory, address):
    """ldmatrix.trans: the same, with each 8 x 8 matrix of 16-bit elements transposed."""
    rows = memory[address[:, None] + np.arange(16)].reshape(4, 8, 16).view(np.uint16)
    return np.ascontiguousarray(rows.transpose(0, 2, 1)).view(np.uint32)[:, G, T]


def a_words(lines):
    """ptx_mma.h: a[h + 2 q] of a 16-row, 32-byte fragment: row g + 8 h, bytes 4 t .. of half q."""
    words = np.ascontiguousarray(lines).view(np.uint32)
    return np.array([words[G + 8 * h, T + 4 * q] for q in (0, 1) for h in (0, 1)])


def b_words(lines):
    """b[q] of an 8-column fragment: column g, bytes 4 t .. of half q."""
    words = np.ascontiguousarray(lines).view(np.uint32)
    return np.array([words[G, T + 4 * q] for q in (0, 1)])


def mma(a, b, dtype):
    """mma.sync: the product of two fragments, as d[2 h + c] of each work-item."""
    per_word = 4 // np.dtype(dtype).itemsize
    left, right = np.empty((16, 8 * per_word), dtype), np.empty((8, 8 * per_word), dtype)
    for q in (0, 1):
        k = (T + 4 * q)[:, None] * per_word + np.arange(per_word)
        right[G[:, None], k] = np.ascontiguousarray(b[q]).view(dtype).reshape(32, per_word)
        for h in (0, 1):
            left[(G + 8 * h)[:, None], k] = np.ascontiguousarray(a[h + 2 * q]).view(dtype).reshape(32, -1)
    product = left.astype(np.float64) @ right.astype(np.float64).T
    return np.array([product[G + 8 * h, 2 * T + c] for h in (0, 1) for c in (0, 1)])


def small(shape, dtype, seed=0):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def test_a_box_keeps_rows_and_columns_off_the_same_banks():
    placed = box(np.arange(8 * 128, dtype=np.uint8).reshape(8, 128) // 16 % 8).reshape(8, 8, 16)[:, :, 0]
    assert all(sorted(row) == list(range(8)) for row in placed)
    assert all(sorted(column) == list(range(8)) for column in placed.T)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8])
@pytest.mark.parametrize("step", range(4))
def test_fragments_along_k_are_loaded_as_mma_takes_them(dtype, step):
    """cl/nvidia/mma_fragments.h: load_a and load_b of an operand stored along K."""
    per_step = 32 // np.dtype(dtype).itemsize
    lines = small((32, 4 * per_step), dtype)
    memory = box(lines)
    wanted = slice(step * per_step, (step + 1) * per_step)
    for row in (0, 16):
        m = row + LANES % 16
        a = load_matrices(memory, m * 128 + ((step * 2 + LANES // 16) ^ LANES % 8) * 16)
        assert np.array_equal(a, a_words(lines[row : row + 16, wanted]))
        n = row + LANES // 16 * 8 + LANES % 8
        b = load_matrices(memory, n * 128 + ((step * 2 + LANES // 8 % 2) ^ LANES % 8) * 16)
        assert np.array_equal(b[:2], b_words(lines[row : row + 8, wanted]))
        assert np.array_equal(b[2:], b_words(lines[row + 8 : row + 16, wanted]))


@pytest.mark.parametrize("step", range(4))
@pytest.mark.parametrize("row", [0, 48, 64, 112])
def test_fragments_across_k_are_loaded_as_mma_takes_them(step, row):
    """The same for 16-bit elements of an operand stored across K, in boxes of 64 columns."""
    stored = small((64, 128), np.float16)  # (k, m)
    memory, wanted = across(stored), slice(step * 16, step * 16 + 16)
    k = step * 16 + LANES // 16 * 8 + LANES % 8
    m = row + LANES // 8 % 2 * 8
    a = load_matrices_transposed(memory, m // 64 * 64 * 128 + k * 128 + ((m // 8 % 8) ^ LANES % 8) * 16)
    assert np.array_equal(a, a_words(stored[wanted, row : row + 16].T))
    k = step * 16 + LANES // 8 % 2 * 8 + LANES % 8
    n = row + LANES // 16 * 8
    b = load_matrices_transposed(memory, n // 64 * 64 * 128 + k * 128 + ((n // 8 % 8) ^ LANES % 8) * 16)
    assert np.array_equal(b[:2], b_words(stored[wanted, row : row + 8].T))
    assert np.array_equal(b[2:], b_words(stored[wanted, row + 8 : row + 16].T))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8])
def test_products_of_fragments_make_the_product(dtype):
    per_step = 32 // np.dtype(dtype).itemsize
    a, b = small((16, 4 * per_step), dtype), small((8, 4 * per_step), dtype, seed=1)
    d = sum(
        mma(a_words(a[:, k : k + per_step]), b_words(b[:, k : k + per_step]), dtype)
        for k in range(0, 4 * per_step, per_step)
    )
    product = a.astype(np.float64) @ b.astype(np.float64).T
    for h in (0, 1):
        for c in (0, 1):
            assert np.array_equal(d[2 * h + c], product[G + 8 * h, 2 * T + c])


@pytest.mark.parametrize("n", [32, 64, 128, 192, 256])
def test_the_accumulators_of_a_quartet_cover_its_tile_once(n):
    """ptx_wgmma.h: acc[4 j + 2 h + c] = D(16 s + g + 8 h, 8 j + 2 t + c)."""
    times = np.zeros((64, n), int)
    for s in range(4):
        for j in range(n // 8):
            for h in (0, 1):
                for c in (0, 1):
                    times[16 * s + G + 8 * h, 8 * j + 2 * T + c] += 1
    assert (times == 1).all()


@pytest.mark.parametrize("lines_across", [False, True])
@pytest.mark.parametrize("step", range(4))
def test_a_step_of_a_tile_is_found_where_its_descriptor_points(lines_across, step):
    """wgmma_tile and WGMMA_STEP: an atom of eight rows has 1,024 bytes, a chunk of 64 columns 8,192.

    The swizzle depends on the address only, so that a step of 32 bytes along K stays inside an atom."""
    columns = 128
    stored = small((64, columns) if lines_across else (columns, 64), np.float16)
    memory = across(stored) if lines_across else box(stored)
    start = step * (16 * 128 if lines_across else 32)
    for n in (0, 7, 8, 63, 64, 127):
        for k in (0, 1, 7, 8, 15):
            if lines_across:
                address = start + n // 64 * 8192 + k // 8 * 1024 + k % 8 * 128 + n % 64 * 2
            else:
                address = start + n // 8 * 1024 + n % 8 * 128 + k * 2
            address ^= (address >> 7 & 7) << 4
            wanted = stored[step * 16 + k, n] if lines_across else stored[n, step * 16 + k]
            assert memory[address : address + 2].view(np.float16)[0] == wanted


@pytest.mark.parametrize("step", range(4))
def test_a_step_of_32_columns_across_k_is_found_where_its_descriptor_points(step):
    """wgmma_right: boxes of 64 bytes, atoms of eight rows in 512, chunk c of row r at c ^ (r / 2 % 4)."""
    stored = small((64, 32), np.float16)  # (k, column)
    memory = np.empty((64, 4, 8), np.float16)
    for r, row in enumerate(stored.reshape(64, 4, 8)):
        memory[r, np.arange(4) ^ r // 2 % 4] = row
    memory = memory.reshape(-1)
    for n in (0, 7, 8, 15, 31):
        for k in (0, 1, 7, 8, 15):
            address = step * 16 * 64 + k // 8 * 512 + k % 8 * 64 + n * 2
            address ^= (address >> 7 & 3) << 4
            assert memory[address // 2] == stored[step * 16 + k, n]


W = np.arange(128)


def left_row(w):
    """fragment_row of cl/nvidia/fragment_rows.h with LEFT_REGISTERS 1. Row h is the next one."""
    return (w >> 6) * 32 + (w >> 3 & 1) * 16 + (w >> 5 & 1) * 8 + (w >> 4 & 1) * 4 + (w >> 2 & 1) * 2


def left_places(step):
    """wgmma_multiply.h, load_left: the address of each work-item's pairs, [q, work-item]."""
    row, t = left_row(W), W % 4
    place = row // 32 * 4096 + t * 128 + (row % 32 // 4 ^ t) * 16 + row % 4 * 4
    return np.array([place, place ^ 64]) + step * 1024 + np.array([[0], [512]])


@pytest.mark.parametrize("step", range(4))
def test_tf32_across_k_goes_through_registers(step):
    """ptx_wgmma.h: row 16 s + g + 8 h of the instruction's A is (t + 4 q) of a[h + 2 q].

    That row may hold any row of the tile: it only decides where results go."""
    stored = small((32, 64), np.float32)  # (k, row): two boxes
    memory = across(stored).view(np.float32)
    instruction = np.empty((64, 8), np.float32)
    stands_for = np.empty(64, int)
    for q in (0, 1):
        for h in (0, 1):
            line = W // 32 * 16 + W % 32 // 4 + 8 * h
            instruction[line, W % 4 + 4 * q] = memory[left_places(step)[q] // 4 + h]
            stands_for[line] = left_row(W) + h
    assert sorted(stands_for) == list(range(64))
    assert np.array_equal(instruction, stored[8 * step : 8 * step + 8].T[stands_for])


def test_sixteen_work_items_read_their_pairs_from_different_banks():
    for address in left_places(0).reshape(-1, 16):
        assert (address % 8 == 0).all()
        assert len(set(address // 8 % 16)) == 16


def test_four_work_items_store_a_sector_of_a_swapped_result():
    """cl/nvidia/wgmma_store.h: pairs h = 0 and 1 of 4 bytes in a column of a sub-group's fragments."""
    for s in range(4):
        sectors = left_row(32 * s + 4 * np.arange(8)) // 8
        assert np.unique(sectors, return_counts=True)[1].tolist() == [4, 4]


def test_four_work_items_exchange_their_words():
    """fragment.h: transposed_quad, by exchanges with the neighbours at distance 1 and 2."""
    words = np.arange(16).reshape(4, 4)  # [work-item t, word b]
    w = words.copy()
    odd, high = (np.arange(4) & 1).astype(bool), (np.arange(4) & 2).astype(bool)
    p = np.where(odd, w[:, 0], w[:, 1])[np.arange(4) ^ 1]
    q = np.where(odd, w[:, 2], w[:, 3])[np.arange(4) ^ 1]
    w = np.where(odd[:, None], np.stack([p, w[:, 1], q, w[:, 3]], 1), np.stack([w[:, 0], p, w[:, 2], q], 1))
    r = np.where(high, w[:, 0], w[:, 2])[np.arange(4) ^ 2]
    s = np.where(high, w[:, 1], w[:, 3])[np.arange(4) ^ 2]
    w = np.where(high[:, None], np.stack([r, s, w[:, 2], w[:, 3]], 1), np.stack([w[:, 0], w[:, 1], r, s], 1))
    assert np.array_equal(w, words.T)


@pytest.mark.parametrize("mma_k", [4, 8, 16])
def test_float64_fragments_make_the_product(mma_k):
    """ptx_mma_double.h: a[h + 2 q] = A[g + 8 h][t + 4 q], b[q] = B[t + 4 q][g]."""
    a, b = small((16, mma_k), np.float64), small((mma_k, 8), np.float64, seed=1)
    left, right = np.empty_like(a), np.empty_like(b)
    for q in range(mma_k // 4):
        right[T + 4 * q, G] = b[T + 4 * q, G]
        for h in (0, 1):
            left[G + 8 * h, T + 4 * q] = a[G + 8 * h, T + 4 * q]
    assert np.array_equal(left @ right, a @ b)


@pytest.mark.parametrize("length", [16, 32, 64, 128])
def test_padded_lines_of_float64_meet_sixteen_banks(length):
    """16 work-items read 4 rows x 4 elements of K at once, or, stored across K, 4 values of K x 4 rows."""
    for half in (0, 16):
        lanes = slice(half, half + 16)
        for line, element in ((G, T), (T, G)):
            banks = (line[lanes] * (length + 4) + element[lanes]) % 16
            assert len(set(banks)) == 16


# --- AMD's and Intel's matrix units: unit_tile.h, mfma.h, wmma.h and dpas.h of cl/units/ ----


def place(width, word, x, swizzle):
    """PLACE of unit_tile.h: where a word lies in a tile."""
    return word * width + (x ^ (word * swizzle % 16))


@pytest.mark.parametrize("width", [16, 32, 128])
@pytest.mark.parametrize("swizzle", [1, 2, 4, 8, 16])
def test_every_word_of_a_tile_has_a_place_of_its_own(width, swizzle):
    word, x = np.meshgrid(np.arange(16), np.arange(width), indexing="ij")
    assert sorted(place(width, word, x, swizzle).reshape(-1)) == list(range(16 * width))


@pytest.mark.parametrize(("lanes", "words", "nbytes"), [(64, 8, 8), (64, 16, 4), (64, 8, 4), (32, 4, 16)])
def test_words_of_a_sub_group_meet_different_banks(lanes, words, nbytes):
    """A sub-group that fills a tile along K or reads a fragment uses all 32 banks of 4 bytes equally often.

    When filling, words of 4 bytes may meet a bank twice as often, as only 16 places are distinguished."""
    lane, swizzle = np.arange(lanes), lanes // words
    fills = place(128, lane % words, lane // words, swizzle)
    reads = place(128, 2 + lane // 32, lane % 32, swizzle)
    for places, times in ((fills, 2 if nbytes == 4 else 1), (reads, 1)):
        banks = (places[:, None] * (nbytes // 4) + np.arange(nbytes // 4)) % 32
        assert np.bincount(banks.reshape(-1), minlength=32).max() <= times * lanes * nbytes // 4 // 32


def fragments(a, b, lanes, row, column, k_of_a, k_of_b):
    """The registers [l, e] of work-item l for A and B: a(row(l, e), k) and b(k, column(l, e))."""
    lane = np.arange(lanes)[:, None]
    return a[row(lane), k_of_a(lane)], b[k_of_b(lane), column(lane)]


def told(a, b, m, n, k, where_a, where_b, where_d, elements):
    """The product by the vendor's tables: each function gives the (lane, element) that holds an element."""
    lanes = len(a)
    d = np.zeros((lanes, elements))
    left = np.array([[a[where_a(i, q)] for q in range(k)] for i in range(m)])
    right = np.array([[b[where_b(q, j)] for j in range(n)] for q in range(k)])
    for i in range(m):
        for j in range(n):
            d[where_d(i, j)] = left[i] @ right[:, j]
    return d


@pytest.mark.parametrize(
    ("rows", "word_k", "double"),
    [(16, 1, True), *((rows, word_k, False) for rows in (16, 32) for word_k in (1, 2, 4, 8))],
)
def test_mfma_fragments_make_the_product(rows, word_k, double):
    """mfma.h agrees with AMD's matrix instruction calculator (element -> register)."""
    k, e = 64 // rows * word_k, np.arange(word_k)
    a, b = small((rows, k), np.float64), small((k, rows), np.float64, seed=1)

    def line(lane):
        return lane % rows + 0 * e

    def ks(lane):
        return word_k * (lane // rows) + e

    held_a, held_b = fragments(a, b, 64, line, line, ks, ks)

    def where(i, q):
        return rows * (q // word_k) + i, q % word_k

    def where_d(i, j):
        if double:
            return 16 * (i % 4) + j, i // 4
        if rows == 16:
            return 16 * (i // 4) + j, i % 4
        return 32 * (i // 4) % 64 + j, 4 * (i // 8) + i % 4

    elements = rows * rows // 64
    d = told(held_a, held_b, rows, rows, k, where, lambda q, j: where(j, q), where_d, elements)
    lane, n = np.arange(64)[:, None], np.arange(elements)
    d_row = 4 * n + lane // rows if double else 256 // rows * (n // 4) + 4 * (lane // rows) + n % 4
    assert np.array_equal(d, (a @ b)[d_row, lane % rows + 0 * n])


def test_wmma_fragments_make_the_product():
    """wmma.h agrees with the same tables: both halves of a sub-group hold all of A and B."""
    e = np.arange(16)
    a, b = small((16, 16), np.float64), small((16, 16), np.float64, seed=1)
    held_a, held_b = fragments(
        a, b, 32, lambda x: x % 16 + 0 * e, lambda x: x % 16 + 0 * e, lambda x: 0 * x + e, lambda x: 0 * x + e
    )
    for half in (0, 16):
        d = told(
            *(held_a, held_b, 16, 16, 16, lambda i, q, h=half: (i + h, q), lambda q, j, h=half: (j + h, q)),
            *(lambda i, j: (16 * i % 32 + j, i // 2), 8),
        )
        lane, n = np.arange(32)[:, None], np.arange(8)
        assert np.array_equal(d, (a @ b)[2 * n + lane // 16, lane % 16 + 0 * n])


@pytest.mark.parametrize("each", [4, 8])
def test_wmma_fragments_of_rdna_4_make_the_product(each):
    """wmma.h agrees with the same tables: *each* elements of 8 bytes in turn. It numbers k otherwise."""
    e, half = np.arange(8), np.arange(32)[:, None] // 16
    a, b = small((16, 16), np.float64), small((16, 16), np.float64, seed=1)
    held_a, held_b = fragments(
        *(a, b, 32, lambda x: x % 16 + 0 * e, lambda x: x % 16 + 0 * e),
        *(lambda _: 8 * half + e, lambda _: 8 * half + e),
    )

    def where(i, q):
        return 16 * (q // each % 2) + i, q // each // 2 * each + q % each

    d = told(
        *(held_a, held_b, 16, 16, 16, where, lambda q, j: where(j, q)),
        *(lambda i, j: (16 * (i // 8) + j, i % 8), 8),
    )
    assert np.array_equal(d, (a @ b)[8 * half + e, np.arange(32)[:, None] % 16 + 0 * e])


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("word_k", [2, 4])
def test_dpas_fragments_make_the_product(lanes, word_k):
    """dpas.h agrees with the extension's text.

    A work-item holds the same range of K of every row of A, and a column of B and of D."""
    k, per_lane = 8 * word_k, 8 * word_k // lanes
    a, b = small((8, k), np.float64), small((k, lanes), np.float64, seed=1)
    e = np.arange(8 * per_lane)  # a work-item's elements are numbered row by row
    held_a = a[e // per_lane, per_lane * np.arange(lanes)[:, None] + e % per_lane]
    held_b = b.T
    d = told(
        *(held_a, held_b, 8, lanes, k),
        *(lambda i, q: (q // per_lane, i * per_lane + q % per_lane), lambda q, j: (j, q)),
        *(lambda i, j: (j, i), 8),
    )
    assert np.array_equal(d, (a @ b).T)


# --- strips of float64: cl/nvidia/strips.h -----------------------------------------------------------

STEPS = np.arange(2)


def weighed(w0, w1, w2):
    """The sum of bits 0, 1 and 2 of g with these weights."""
    return (G & 1) * w0 + (G >> 1 & 1) * w1 + (G >> 2) * w2


STANDS_FOR = {
    "along": (weighed(4, 2, 8), 1),
    "across_a": (weighed(8, 4, 2), 1),
    "across_b": (weighed(1, 8, 2), 4),
}


def reads(lie, step):
    """The byte addresses in a strip from which f[h + 2 q] is read: [q, h, work-item]."""
    g, _ = STANDS_FOR[lie]
    h, q = np.arange(2)[None, :, None], np.arange(2)[:, None, None]
    if lie == "along":
        place = g * 128 + (T // 2 ^ g % 8) * 16 + T % 2 * 8
        return h * 128 + (place ^ (h * 16 + q * 32 + step * 64))
    place = T * 128 + (g // 2 ^ T) * 16 + g % 2 * 8
    if lie == "across_a":  # one read has both h
        return step * 1024 + q * 512 + (place ^ q * 64) + h * 8
    return step * 1024 + q * 512 + (place ^ (h * 32 + q * 64))


def stands_for(lie):
    """The rows of A, or columns of B, of the strip for g and h: [h, work-item]."""
    g, h_weight = STANDS_FOR[lie]
    return np.array([g, g + h_weight])


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("lie", ["along", "across_a", "across_b"])
def test_strips_are_read_as_they_lie(lie, step):
    rows = small((16, 16), np.float64)  # 16 rows of A or columns of B, 16 of K
    memory = box(rows if lie == "along" else rows.T).view(np.float64)
    for q in (0, 1):
        for h in (0, 1):
            got = memory[reads(lie, step)[q, h] // 8]
            assert np.array_equal(got, rows[stands_for(lie)[h], 8 * step + T + 4 * q])


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("lie", ["along", "across_a", "across_b"])
def test_no_two_reads_of_strips_meet_a_bank(lie, step):
    """Either 16 work-items read 8 bytes at once or 8 read 16 bytes: across K, A's h = 0 and 1 together."""
    at_once, nbytes = (8, 16) if lie == "across_a" else (16, 8)
    for address in reads(lie, step)[:, : 1 if lie == "across_a" else 2].reshape(-1, 32):
        assert (address % nbytes == 0).all()
        for part in address.reshape(-1, at_once):
            assert len(set(part // nbytes % (128 // nbytes))) == at_once


@pytest.mark.parametrize("across_a", [False, True])
@pytest.mark.parametrize("across_b", [False, True])
def test_strips_make_the_product_and_results_lie_in_pairs(across_a, across_b):
    rows, columns = small((16, 8), np.float64), small((16, 8), np.float64, seed=1)
    row = stands_for("across_a" if across_a else "along")
    column = stands_for("across_b" if across_b else "along")
    left = np.zeros((16, 8))
    for h in (0, 1):
        left[G + 8 * h] = rows[row[h]]
    out = np.full((16, 16), np.nan)
    d = []  # [fragment][2 h + e] of each work-item
    for fragment in (0, 1):
        right = np.zeros((8, 8))
        right[G] = columns[column[fragment]]
        product = left @ right.T
        d.append([product[G + 8 * h, 2 * T + e] for h in (0, 1) for e in (0, 1)])
    for h in (0, 1):
        for e in (0, 1):
            pair = 4 * e + (T & 1) * (8 if across_b else 2) + T // 2 * (2 if across_b else 8)
            for c in (0, 1):
                out[row[h], pair + c] = d[e if across_b else c][2 * h + (c if across_b else e)]
            sectors = pair.reshape(8, 4) // 4  # of 32 bytes, filled by two work-items
            assert all(sorted(s) == [s.min(), s.min(), s.max(), s.max()] for s in sectors)
    assert np.array_equal(out, rows @ columns.T)
