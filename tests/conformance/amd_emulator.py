"""The emulator of AMD's instructions itself: small programs whose results are known, what it must report, and
faults put into the kernels of matrix units.

    pytest tests/conformance/amd_emulator.py        (`make emulator`)
"""

import numpy as np
import pytest
from click.testing import CliRunner

from pyclmm.checks import fma_reference
from pyclmm.checks.drawn import Drawn
from pyclmm.checks.layouts import Decks
from pyclmm.formats import format_named
from pyclmm.kernels import kernel_named
from pyclmm.kernels.interface import Launch, Program, Work, Workspace
from pyclmm.opencl import compiler
from tests.kernels.units.test_units import unit_case
from tests.simulators.amd import follow
from tests.simulators.amd.arithmetic import arithmetic
from tests.simulators.amd.emulator import Emulator, Fault
from tests.simulators.amd.matrix import MATRIX, multiply
from tests.simulators.amd.program import Line
from tests.simulators.amd.waves import SCALARS, Waves

from .amd_products import AMDS, DEVICES, SEED, by_weights, run

every_processor = pytest.mark.parametrize("name", DEVICES)


@pytest.fixture
def emulator(name, tmp_path):
    return Emulator(name, tmp_path)


def played(emulator, text, out, *, a=None, size=(64,), local=(64,), workspace=()):
    """What the kernel `k(a, out)` of *text* leaves in *out*; it has *workspace* behind these."""
    emulator.edit = lambda _: text
    a = np.zeros(4, np.uint32) if a is None else a
    args = ("a", "out", *(space.symbol for space in workspace))
    launch = Launch(Program("probes.cl", ()), "k", size, local, args)
    memory = {"a": a.view(np.uint8).ravel(), "out": out.view(np.uint8).ravel()}
    emulator.compute(emulator, None, Work((launch,), tuple(workspace)), memory, (1, 0, {}))
    return out


KERNEL = "__kernel void k(__global const {kind} *a, __global {to} *out{more})\n{{\n  {body}\n}}"


def kernel(body, kind="uint", to="uint", more=""):
    return KERNEL.format(body=body, kind=kind, to=to, more=more)


# ---- what a dispatch gives ---------------------------------------------------------------------


@every_processor
def test_places_and_sizes_of_work_items(emulator):
    """Three dimensions, work-groups that no wavefront fills."""
    body = """
    const int i = (get_global_id(2) * get_global_size(1) + get_global_id(1)) * get_global_size(0)
      + get_global_id(0);
    out[i] = get_local_id(0) + 10 * get_local_id(1) + 100 * get_local_id(2) + 1000 * get_group_id(0)
      + 10000 * get_group_id(1) + 100000 * get_group_id(2) + 1000000 * get_num_groups(1)
      + 10000000 * get_local_size(0) + 100000000 * get_work_dim();"""
    got = played(emulator, kernel(body), np.zeros((6, 4, 10), np.uint32), size=(10, 4, 6), local=(5, 2, 3))
    z, y, x = np.mgrid[:6, :4, :10]
    want = x % 5 + 10 * (y % 2) + 100 * (z % 3) + 1000 * (x // 5) + 10000 * (y // 2) + 100000 * (z // 3)
    assert np.array_equal(got, want + 2_000_000 + 50_000_000 + 300_000_000)


@every_processor
def test_lanes_and_wavefronts_go_their_own_ways(emulator):
    """Loops of other lengths in every lane, branches that divide lanes, and that divide wavefronts."""
    body = """
    const uint i = get_global_id(0);
    uint sum = 0;
    for (uint j = 0; j < a[i]; ++j) sum += j % 3 ? j : i;
    if (i / 64 % 2) sum += 1000; else if (i % 5 == 0) sum *= 2;
    out[i] = sum;"""
    a = (np.arange(320, dtype=np.uint32) * 7919) % 23
    got = played(emulator, kernel(body), np.zeros(320, np.uint32), a=a, size=(320,))
    want = [sum(j if j % 3 else i for j in range(n)) for i, n in enumerate(a.tolist())]
    want = [x + 1000 if i // 64 % 2 else 2 * x if i % 5 == 0 else x for i, x in enumerate(want)]
    assert got.tolist() == want


@every_processor
def test_private_arrays_that_are_indexed_by_what_is_read(emulator):
    """In registers that another register names, or in private memory."""
    body = """
    const uint i = get_global_id(0);
    uint own[24];
    for (uint j = 0; j < 24; ++j) own[j] = a[j] * i;
    own[a[i] % 24] += 5;
    out[i] = own[a[i + 1] % 24];"""
    a = (np.arange(65, dtype=np.uint32) * 7919) % 101
    got = played(emulator, kernel(body), np.zeros(64, np.uint32), a=a)
    i = np.arange(64)
    chosen = a[i + 1] % 24
    assert np.array_equal(got, a[chosen] * i + 5 * (chosen == a[i] % 24))


# ---- arithmetic against NumPy ------------------------------------------------------------------


@every_processor
def test_integers_are_those_of_c(emulator, rng):
    body = """
    const uint i = get_global_id(0);
    const ulong x = a[2 * i], y = a[2 * i + 1];
    out[8 * i] = x * y; out[8 * i + 1] = x / (y | 1); out[8 * i + 2] = x % (y | 1);
    out[8 * i + 3] = (ulong)((long)x / (long)(y >> 40 | 1)); out[8 * i + 4] = mul_hi(x, y);
    out[8 * i + 5] = (ulong)((long)x >> (y & 63)) ^ rotate((uint)x, (uint)y);
    out[8 * i + 6] = clz(x) + 100 * popcount(y) + 10000 * clz((uint)y);
    out[8 * i + 7] = (ulong)(long)mad24((int)x << 8 >> 8, (int)y << 8 >> 8, (int)x);
    out[8 * i + 7] += abs_diff((uint)x, (uint)y);"""
    a = rng.integers(0, 2**64, 128, np.uint64)
    got = played(emulator, kernel(body, "ulong", "ulong"), np.zeros((64, 8), np.uint64), a=a)
    for (x, y), row in zip(a.reshape(-1, 2).tolist(), got.tolist(), strict=True):
        assert row == _of_c(x, y)


def _of_c(x, y):
    """The row of the kernel above."""
    whole, half = 2**64, 2**32

    def signed(value, size):
        return (value + size // 2) % size - size // 2

    divided = abs(signed(x, whole)) // (y >> 40 | 1) * (1 if signed(x, whole) >= 0 else -1)
    low, by = x % half, y % 32
    rotated = (low << by | low >> (32 - by)) % half
    short = [signed(value % 2**24, 2**24) for value in (x, y)]
    return [
        x * y % whole, x // (y | 1), x % (y | 1), divided % whole, x * y // whole,
        (signed(x, whole) >> y % 64) % whole ^ rotated,
        64 - x.bit_length() + 100 * y.bit_count() + 10000 * (32 - (y % half).bit_length()),
        (signed(short[0] * short[1] + x, half) + abs(low - y % half)) % whole,
    ]  # fmt: skip


@every_processor
def test_floats_are_rounded_as_ieee_says(emulator, rng):
    """Subnormal numbers, infinities and NaN among them."""
    body = """
    const uint i = get_global_id(0);
    const float x = a[3 * i], y = a[3 * i + 1], z = a[3 * i + 2];
    out[8 * i] = fma(x, y, z); out[8 * i + 1] = x + y; out[8 * i + 2] = x * z; out[8 * i + 3] = rint(x);
    out[8 * i + 4] = floor(y); out[8 * i + 5] = fmax(x, y); out[8 * i + 6] = ldexp(x, (int)i - 32);
    __global half *halves = (__global half *)(out + 8 * i + 7);
    vstore_half_rte(x, 0, halves); vstore_half_rte(y, 1, halves);"""
    a = rng.integers(0, 2**32, 192, np.uint32).view(np.float32)
    a[:60] = rng.standard_normal(60)
    a[60:66] = 0.5, 1.5, 2.0**23 + 1, 65519, 65520, -(2.0**-149)
    got = played(emulator, kernel(body, "float", "float"), np.zeros((64, 8), np.float32), a=a)
    x, y, z = a.reshape(-1, 3).T
    with np.errstate(all="ignore"):
        want = [fma_reference.fma(x, y, z), x + y, x * z, np.rint(x), np.floor(y), np.fmax(x, y)]
        want.append(np.ldexp(x, np.arange(64) - 32))
        for place, column in enumerate(want):
            assert np.array_equal(got[:, place], column, equal_nan=True), place
        halves = np.stack([x, y], axis=1).astype(np.float16)
    assert np.array_equal(got[:, 7].copy().view(np.float16).reshape(64, 2), halves, equal_nan=True)


def test_a_permutation_of_bytes_is_that_of_the_manual(rng):
    """V_PERM_B32: bytes of two words, signs of four of them, 0 and 255."""
    vector = rng.integers(0, 2**32, (4, 16, 32), np.uint32)
    vector[3, :8] &= 0x0F0F0F0F
    g = Waves(None, np.arange(16), vector, np.full((SCALARS, 16, 1), 0xFFFFFFFF, np.uint32), 0)
    arithmetic("gfx1100", Line(0, "v_perm_b32 v0, v1, v2, v3"))(g)
    for got, one, two, chosen in g.vector.reshape(4, -1).T.tolist():
        given = [*two.to_bytes(4, "little"), *one.to_bytes(4, "little")]
        given += [255 * (given[i] >> 7) for i in (1, 3, 5, 7)] + [0]
        want = [given[i] if i < 13 else 255 for i in chosen.to_bytes(4, "little")]
        assert got.to_bytes(4, "little") == bytes(want)


# ---- what must be reported ---------------------------------------------------------------------

BODY = """
    __local uint shared[128];
    const uint i = get_local_id(0);
    shared[i] = {value};
    {barrier}
    out[get_global_id(0)] = shared[127 - i];"""


@every_processor
def test_a_race_between_wavefronts(emulator):
    barrier = "barrier(CLK_LOCAL_MEM_FENCE);"
    text, size = BODY.format(value="a[i]", barrier=barrier), {"size": (256,), "local": (128,)}
    a = np.arange(128, dtype=np.uint32)
    got = played(emulator, kernel(text), np.zeros(256, np.uint32), a=a, **size)
    assert np.array_equal(got, np.tile(a[::-1], 2))
    with pytest.raises(Fault, match="race: wavefront"):
        played(emulator, kernel(text.replace(barrier, "")), np.zeros(256, np.uint32), a=a, **size)


@pytest.mark.parametrize("name", ["gfx90a", "gfx1201"])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("out[get_global_id(0)] = a[get_global_id(0) + 1];", "are read, in no buffer"),
        ("out[get_global_id(0) + 1] = 1;", "are written, in no buffer"),
        ("((__global uint *)a)[get_global_id(0)] = 1;", "are written, constant"),
        ("out[get_global_id(0)] = w[get_global_id(0)];", "are read, not written before"),
        ("__local uint x[64]; if (a[0]) x[get_local_id(0)] = 1; out[0] = x[5];", "not written before"),
        ("__local uint x[64]; x[get_local_id(0)] = a[0]; out[0] = x[a[0]];", "outside"),
        ("if (get_local_id(0) < 64) barrier(CLK_LOCAL_MEM_FENCE); out[0] = 1;", "different barriers"),
    ],
)  # fmt: skip
def test_a_wrong_access(emulator, body, message):
    a, size = np.zeros(128, np.uint32), {"size": (128,), "local": (128,)}
    space = Workspace("w", 512)
    text = kernel(body, more=", __global uint *w")
    with pytest.raises(Fault, match=message) as raised:
        played(emulator, text, np.zeros(128, np.uint32), a=a, workspace=[space], **size)
    assert "barriers" in message or "_" in str(raised.value).split(" at ")[0], "it names the instruction"


@pytest.mark.parametrize(
    ("text", "lanes", "exec_lo", "message"),
    [
        ("v_mfma_f32_32x32x2f32 a[0:15], v0, v1, a[0:15]", 64, 1, "not active"),
        ("v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]", 32, 2**32 - 1, "different operands"),
    ],
)
def test_a_wrong_matrix_instruction(rng, text, lanes, exec_lo, message):
    vector = rng.integers(0, 2**10, (512, 1, lanes), np.uint32)
    g = Waves(None, np.arange(1), vector, np.full((SCALARS, 1, 1), exec_lo, np.uint32), 0)
    line = Line(0, text)
    with pytest.raises(Fault, match=message):
        multiply(line, MATRIX.match(line.name))(g)


# ---- faults in the kernels of matrix units -----------------------------------------------------

BARRIER = """    land(tiles + now + WORDS * BM, held_b, &walk_b, BN, ACROSS_B, WIDE_B);
    barrier(CLK_LOCAL_MEM_FENCE);
"""
MFMA_B = """READ_B(to, tile, width, word, x, lane) \\
  ((to) = (tile)[PLACE(width, (word) + 1 - (lane) / UNIT_M, (x) + (lane) % UNIT_M)])"""
RDNA4_B = """READ_B(to, tile, width, word, x, lane) \\
  ((to) = (tile)[PLACE(width, (word) + 1 - (lane) / 16, (x) + (lane) % 16)])"""
SEEDED = [
    ("mfma", "a lane's row of D", "4 * ((lane) / UNIT_M) + (e) % 4", "4 * (1 - (lane) / UNIT_M) + (e) % 4"),
    ("mfma", "a lane's row of A", "(x) + (lane) % UNIT_M)]", "(x) + ((lane) ^ 1) % UNIT_M)]"),
    ("mfma", "the halves of B", "READ_B READ_A", MFMA_B),
    ("wmma", "a lane's row of D", "2 * (e) + (lane) / 16", "(e) + 8 * ((lane) / 16)"),
    ("wmma", "the halves of A", "(lane) % 16)]", "((lane) ^ 8) % 16)]"),
    ("rdna4", "a lane's row of D", "8 * ((lane) / 16) + (e)", "2 * (e) + (lane) / 16"),
    ("rdna4", "a lane's row of A", "(lane) / 16, (x) + (lane) % 16", "(lane) / 16, (x) + ((lane) ^ 1) % 16"),
    ("rdna4", "the halves of B", "READ_B READ_A", RDNA4_B),
    *((unit, "no barrier", BARRIER, BARRIER.splitlines()[0]) for unit in ("mfma", "wmma", "rdna4")),
    *((unit, "no edge of K", "inside && k < k_left", "inside") for unit in ("mfma", "wmma")),
    *((unit, "the first tile is not stored", "land(tiles, held_a", "if (K < 0) land(tiles, held_a")
      for unit in ("mfma", "wmma")),
]  # fmt: skip


@pytest.mark.parametrize(("unit", "what", "old", "new"), SEEDED, ids=lambda x: x.replace(" ", "_")[:20])
def test_a_seeded_fault_is_found(tmp_path, unit, what, old, new):
    """The same product is right without it."""
    wanted = {
        "mfma": ("gfx90a", "bfloat16", "TN", 32),
        "wmma": ("gfx1100", "float16", "NT", 16),
        "rdna4": ("gfx1201", "float16", "NT", 16),
    }[unit]
    case = next(c for c in AMDS if (c[0].gfx, c[1], c[3], c[2][5]) == wanted)
    if what == "no edge of K":
        case = (*case[:4], (37, 45, 51), {})
    emulated, (family, given, config) = Emulator(wanted[0], tmp_path), unit_case(*case)
    reasons = []
    for emulated.edit in (str, lambda text: text.replace(old, new)):
        decks = Decks(np.random.default_rng(SEED))
        try:
            reason = run(emulated, case[0], family, config, given, Drawn.INTEGERS, decks)
        except Fault as fault:
            reason = str(fault)
        reasons.append(reason)
    assert reasons[0] is None
    assert reasons[1] is not None
    assert ("race" in reasons[1]) == (what == "no barrier")


OF_WEIGHTS = [
    ("quantized", "a number of a format", "- 32.0f", "- 31.0f"),
    ("quantized", "no barrier", "barrier(CLK_LOCAL_MEM_FENCE);\n  UNROLL for (int c", "UNROLL for (int c"),
    (
        "dequantized",
        "no barrier",
        "barrier(CLK_LOCAL_MEM_FENCE);\n  __global uint *row",
        "__global uint *row",
    ),
]


@pytest.mark.parametrize(("kernel", "what", "old", "new"), OF_WEIGHTS, ids=lambda x: x.replace(" ", "_")[:20])
def test_a_seeded_fault_of_weights_is_found(tmp_path, kernel, what, old, new):
    emulated, form = Emulator("gfx1100", tmp_path), format_named("q6_k")
    product = (kernel_named(kernel), "gfx1100", form, "float32", 512)
    assert by_weights(emulated, *product) is None
    emulated.edit = lambda text: text.replace(old, new)
    if what == "no barrier":
        with pytest.raises(Fault, match="race"):
            by_weights(emulated, *product)
    else:
        assert by_weights(emulated, *product) is not None


# ---- from machine code to OpenCL C --------------------------------------------------------------


@pytest.mark.parametrize("name", ["gfx942", "gfx1201"])
def test_registers_at_a_line_of_a_kernel(name, tmp_path):
    """Before each matrix instruction, found by the line of MULTIPLY, exec has all lanes."""
    unit = {"gfx942": "mfma", "gfx1201": "wmma"}[name]
    source = compiler.read_source("units/unit.cl").splitlines()
    at = next(n for n, line in enumerate(source, 1) if "MULTIPLY(acc" in line)
    asked = [name, unit, "bfloat16", "--at", f"unit.cl:{at}", "--registers", "exec_lo"]
    done = CliRunner().invoke(follow.main, asked)
    assert done.exit_code == 0, done.output
    told = done.output.splitlines()
    assert any(f"v_{unit}" in line and line.endswith(f"unit.cl:{at}") for line in told[0::2])
    assert {line.split()[-1] for line in told[1:-1:2]} == {"ffffffff"}
    assert told[-1] == "the product is right"
