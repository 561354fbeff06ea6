"""A simulator of NVIDIA's PTX: runs kernels that need barriers and the copy engine, without a GPU.

Every work-item is a Python generator, translated from the text instruction by instruction. Sub-groups run in
a random order and copies complete after random delays, both from a seed. The target of a running copy is NaN,
so that data read before its copy completed, or overwritten before it was read, gives a wrong result.
AssertionError is raised for accesses outside of allocated memory, for a sub-group that diverges at a
multiplication and for a deadlock.

It knows the instructions of cl/nvidia/mma_double_bulk.cl (float64 mma.sync, tensor maps, mbarriers). Others
raise LookupError. The semantics are from NVIDIA's PTX manual. Registers hold unsigned integers, which are
masked when written.
"""

from __future__ import annotations

import random
import re
import struct
from dataclasses import dataclass, field

import numpy as np

LANES = 32
_CODECS = {name: struct.Struct(code) for name, code in (("F64", "<d"), ("U64", "<Q"), ("U32", "<I"))}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_SPECIAL = re.compile(r"%(tid|ctaid|nctaid|ntid)\.([xyz])")


def quotient(x, y):
    """The quotient of signed integers, rounded towards zero."""
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


# --- from text to Python ----------------------------------------------------------------------------------


def _name(operand):
    """An operand as a Python expression."""
    if special := _SPECIAL.fullmatch(operand):
        return f'special["{special[1]}"]["xyz".index("{special[2]}")]'
    if operand.startswith("%") or operand == "p":
        return "r_" + operand.lstrip("%")
    if re.fullmatch(r"0d[0-9A-Fa-f]{16}", operand):
        return repr(struct.unpack(">d", bytes.fromhex(operand[2:]))[0])
    return operand if re.fullmatch(r"-?\d+|0x[0-9a-fA-F]+", operand) else f'symbols["{operand}"]'


def _address(operand):
    base, _, offset = operand.strip("[]").partition("+")
    return f"({_name(base)}+{offset or 0})"


def _operands(text):
    """The operands: *text* split at commas outside brackets."""
    return [x.strip() for x in re.findall(r"(?:\[[^\]]*\]|\{[^}]*\}|[^,\[{])+", text) if x.strip()]


def _names(group):
    return [_name(x.strip()) for x in group.strip("{}").split(",")]


def _bits(kind):
    return int(re.findall(r"\d+", kind)[-1])


def _unsigned(expression, n):
    return f"(({expression})&{(1 << n) - 1})"


def _signed(expression, n):
    return f"(({_unsigned(expression, n)}^{1 << (n - 1)})-{1 << (n - 1)})"


def _multiplication(op, ops, place):
    d, *inputs = (_names(x) for x in ops)
    registers = ",".join(x for operand in inputs for x in operand)
    return [f'{",".join(d)}=yield "mma",{place},({registers})']


def _vote(op, ops, place):
    return [f'{_name(ops[0])}=yield "vote",{place},{_name(ops[1])}']


def _group_barrier(op, ops, place):
    count = _name(ops[1]) if len(ops) > 1 else 'special["ntid"][0]'
    return [f'yield "group",{_name(ops[0])},{count}']


def _publication(op, ops, place):
    return [f'yield "warp",{place},None', f"group.publish({_address(ops[0])},{_address(ops[1])})"]


def _replacement(op, ops, place):
    values = ",".join(map(_name, ops[1:]))
    return [f'group.replace({_address(ops[0])},"{op.split(".")[3]}",{values})']


def _copy(op, ops, place):
    at = re.fullmatch(r"\[(\S+), \{(.*)\}\]", ops[1])
    start = ",".join(_signed(_name(x.strip()), 32) for x in at[2].split(","))
    return [f"group.copy({_address(ops[0])},{_name(at[1])},({start}),{_address(ops[2])})"]


def _arrival(op, ops, place):
    announced = _name(ops[2]) if "expect_tx" in op else "0"
    return [f"group.bars[{_address(ops[1])}].arrive({announced})"]


def _wait(op, ops, place):
    ended = _name(ops[0])
    test = f"{ended}=group.bars[{_address(ops[1])}].phase!={_name(ops[2])}&1"
    return [test, f'if not {ended}: yield "again",0,None']


def _argument(op, ops, place):
    return [f'{_name(ops[0])}=arguments["{ops[1].strip("[]")}"]']


def _memory_access(op, ops, place):
    parts = op.split(".")
    memory = "local" if "shared" in parts else "memory"
    codec = "F64" if parts[-1] == "f64" else f"U{_bits(parts[-1])}"
    at, values = (ops[1], ops[0]) if parts[0] == "ld" else (ops[0], ops[1])
    lines = []
    for i, value in enumerate(_names(values) if "v2" in parts else [_name(values)]):
        address = f"{_address(at)}+{8 * i}"
        if memory == "memory":
            lines.append(f"machine.touch({address})")
        if parts[0] == "ld":
            lines.append(f"{value}={codec}.unpack_from({memory},{address})[0]")
        else:
            lines.append(f"{codec}.pack_into({memory},{address},{value})")
    return lines


# Instructions other than arithmetic, by the beginning of their names. The first match counts.
_SPECIAL_FORMS = {
    "mma.sync.aligned.m16n8k8.row.col.f64": _multiplication,
    "bar.warp.sync": lambda op, ops, place: [f'yield "warp",{place},None'],
    "bar.sync": _group_barrier,
    "tensormap.cp_fenceproxy": _publication,
    "tensormap.replace": _replacement,
    "cp.async.bulk.tensor.3d": _copy,
    "mbarrier.init": lambda op, ops, place: [f"group.bars[{_address(ops[0])}]=Bar({_name(ops[1])})"],
    "mbarrier.arrive": _arrival,
    "mbarrier.try_wait": _wait,
    "vote.sync.all.pred": _vote,
    "fence": lambda op, ops, place: ["pass"],
    "ld.param": _argument,
    "ld.": _memory_access,
    "st.": _memory_access,
}
# {a} and {b} are operands read with the operation's sign; {x[1]} and so on are read unchanged.
_FLOAT_FORMS = {
    "mov": "{x[1]}", "neg": "-{x[1]}", "add": "{x[1]}+{x[2]}", "sub": "{x[1]}-{x[2]}", "mul": "{x[1]}*{x[2]}",
    "fma": "{x[1]}*{x[2]}+{x[3]}", "selp": "{x[1]} if {x[3]} else {x[2]}",
}  # fmt: skip
_INTEGER_FORMS = {
    "mov": "{x[1]}", "neg": "-{x[1]}", "not": "~{x[1]}", "add": "{x[1]}+{x[2]}", "sub": "{x[1]}-{x[2]}",
    "and": "{x[1]}&{x[2]}", "or": "{x[1]}|{x[2]}", "xor": "{x[1]}^{x[2]}", "shl": "{x[1]}<<{x[2]}",
    "shr": "{a}>>{x[2]}", "mul": "{a}*{b}", "mad": "{a}*{b}+{x[3]}", "div": "quotient({a},{b})",
    "rem": "{a}-quotient({a},{b})*{b}", "min": "min({a},{b})", "max": "max({a},{b})", "cvt": "{a}",
    "selp": "{x[1]} if {x[3]} else {x[2]}", "bfe": "({x[1]}>>{x[2]})&((1<<{x[3]})-1)",
}  # fmt: skip
_PREDICATE_FORMS = {
    "mov": "bool({x[1]})",
    "and": "{x[1]} and {x[2]}",
    "or": "{x[1]} or {x[2]}",
    "not": "not {x[1]}",
}


def _written_bits(words, n):
    """The width of an integer operation's result."""
    if words[0] == "cvt":
        return _bits(words[-2])
    return 2 * n if words[1] == "wide" else n


def _arithmetic(op, x):
    """The Python text of a float64, integer or predicate operation on *x*. It writes the first of them."""
    words = op.split(".")
    kind, form = words[0], words[-1]
    if form == "pred":
        return [f"{x[0]}=" + _PREDICATE_FORMS[kind].format(x=x)]
    if form == "f64" and kind != "setp":
        return [f"{x[0]}=" + _FLOAT_FORMS[kind].format(x=x)]
    n = _bits(form)
    read = _signed if form[0] == "s" else _unsigned
    a, b = ((v if form == "f64" else read(v, n)) for v in [*x[1:3], "0"][:2])
    if kind == "setp":
        return [f"{x[0]}={a}{_COMPARE[words[1]]}{b}"]
    if kind not in _INTEGER_FORMS:
        raise LookupError(f"{op}: no rule for this instruction")
    return [f"{x[0]}={_unsigned(_INTEGER_FORMS[kind].format(x=x, a=a, b=b), _written_bits(words, n))}"]


def _instruction(op, ops, place):
    """The Python lines for an instruction."""
    for begins, form in _SPECIAL_FORMS.items():
        if op.startswith(begins):
            return form(op, ops, place)
    return _arithmetic(op, [_name(x) for x in ops])


def _blocks(body):
    """(basic blocks, labels). An instruction is (negated, predicate, operation, operands)."""
    blocks, labels = [[]], {}
    for line in body.split("\n"):
        for statement in re.findall(r"[$\w]+:|[^;{}]*(?:\{[^}]*\}[^;{}]*)*;", re.sub(r"//.*", "", line)):
            if statement.endswith(":"):
                labels[statement[:-1]] = len(blocks)
                blocks.append([])
                continue
            bare = statement.strip(" \t;")
            if not bare or bare.startswith("."):
                continue
            found = re.match(r"(?:@(!?)(\S+)\s+)?(\S+)\s*(.*)$", bare)
            blocks[-1].append((found[1], found[2], found[3], _operands(found[4])))
            if found[3].startswith(("bra", "ret")):
                blocks.append([])
    return blocks, labels


def _block_lines(number, block, labels, place):
    lines = []
    for negated, predicate, op, ops in block:
        condition = f"{'not ' if negated else ''}{_name(predicate)}" if predicate else ""
        if op.startswith("bra"):
            target = labels[ops[0]]
            lines.append(
                f"block={target} if {condition} else {number + 1}" if condition else f"block={target}"
            )
            return lines
        if op == "ret":
            return [*lines, f"if {condition}: return" if condition else "return", f"block={number + 1}"]
        python = _instruction(op, ops, next(place))
        lines += [f"if {condition}:", *(" " + x for x in python)] if condition else python
    return [*lines, f"block={number + 1}"]


def _chosen(blocks, low, high, indent):
    """Nested comparisons that select a block."""
    if high - low == 1:
        return [" " * indent + x for x in blocks[low]]
    middle = (low + high) // 2
    return [" " * indent + f"if block<{middle}:", *_chosen(blocks, low, middle, indent + 1),
            " " * indent + "else:", *_chosen(blocks, middle, high, indent + 1)]  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """A translated kernel function: a generator, the names of its parameters, the places of local arrays."""

    body: object
    parameters: list[str]
    symbols: dict[str, int]
    local_bytes: int

    @classmethod
    def of(cls, text, name):
        symbols, end = {}, 1024
        declared = r"\.shared \.align (\d+) \.[bu](\d+) ([\w$]+)(?:\[(\d+)\])?;"
        for align, bits, symbol, count in re.findall(declared, text):
            symbols[symbol] = end = -(-end // int(align)) * int(align)
            end += int(bits) // 8 * int(count or 1)
        text = text[text.index(f".entry {name}") :]
        head, body = text.split("{", 1)
        body = body[: re.search(r"^\}$", body, re.MULTILINE).start()]
        blocks, labels = _blocks(body)
        place = iter(range(10**9))
        lines = [_block_lines(n, block, labels, place) for n, block in enumerate(blocks)]
        source = ["def body(machine, group, memory, local, arguments, symbols, special):", " block=0",
                  " while True:", *_chosen(lines, 0, len(lines), 2)]  # fmt: skip
        space = {"quotient": quotient, "Bar": Bar, **_CODECS}
        exec(compile("\n".join(source), name, "exec"), space)
        return cls(space["body"], re.findall(r"\w+_param_\d+", head), symbols, end)


# --- the machine ------------------------------------------------------------------------------------------


class Bar:
    """An mbarrier. A phase ends when all have arrived and all announced bytes are copied."""

    def __init__(self, arrivals):
        self.arrivals, self.missing, self.bytes, self.phase = arrivals, arrivals, 0, 0

    def arrive(self, announced):
        self.missing -= 1
        assert self.missing >= 0, "more arrivals than the barrier counts"
        self.landed(-announced)

    def landed(self, nbytes):
        self.bytes -= nbytes
        if self.missing == 0 and self.bytes == 0:
            self.missing = self.arrivals
            self.phase ^= 1


@dataclass
class Group:
    """A work-group: its local memory, barriers and drafts of tensor maps."""

    machine: Machine
    local: bytearray
    bars: dict[int, Bar] = field(default_factory=dict)
    drafts: dict[int, dict] = field(default_factory=dict)
    waiting: dict[int, list] = field(default_factory=dict)

    def replace(self, draft, what, *values):
        self.drafts.setdefault(draft, {})[(what, *values[:-1])] = values[-1]

    def publish(self, to, draft):
        self.machine.maps[to] = dict(self.drafts[draft])

    def copy(self, to, at, start, bar):
        """Copy a box of a tensor map in rows of 128 bytes. Chunk c (16 bytes) of row r is at c ^ (r % 8)."""
        of = self.machine.maps[at]
        box, size = ([of[what, i] for i in range(3)] for what in ("box_dim", "global_dim"))
        pitches = 8, of["global_stride", 0], of["global_stride", 1]
        base = of[("global_address",)]
        assert [of[(what,)] for what in ("rank", "elemtype", "swizzle_mode")] == [2, 9, 3]
        assert box[0] == 16
        assert all(1 <= n <= 256 for n in box)
        assert to % 1024 == 0
        assert all(n % 16 == 0 for n in (base, *pitches[1:]))
        lines = []
        for z in range(start[2], start[2] + box[2]):
            for y in range(start[1], start[1] + box[1]):
                line = bytearray(128)
                for i, x in enumerate(range(start[0], start[0] + 16)):
                    if all(0 <= n < limit for n, limit in zip((x, y, z), size, strict=True)):
                        address = base + x * 8 + y * pitches[1] + z * pitches[2]
                        self.machine.touch(address)
                        line[8 * i : 8 * i + 8] = self.machine.memory[address : address + 8]
                lines.append(line)
        self.local[to : to + 128 * len(lines)] = b"\xff" * (128 * len(lines))
        self.machine.flights.append([random.randint(0, self.machine.delay), self, to, lines, bar])

    def land(self, to, lines, bar):
        for r, line in enumerate(lines):
            at = to + 128 * r
            for c in range(8):
                chunk = at + 16 * (c ^ at // 128 % 8)
                self.local[chunk : chunk + 16] = line[16 * c : 16 * c + 16]
        self.bars[bar].landed(128 * len(lines))


class SubGroup:
    """32 work-items. Each runs until it waits for the others."""

    def __init__(self, group, work_items):
        self.group, self.work_items = group, work_items
        self.asked, self.answers = [None] * LANES, [None] * LANES
        self.running = [True] * LANES  # neither waiting nor ended

    def step(self):
        """Run the work-items that can run; returns whether anything happened."""
        happened = False
        for lane in [n for n in range(LANES) if self.running[n]]:
            try:
                request = self.work_items[lane].send(self.answers[lane])
            except StopIteration:
                self.work_items[lane], self.running[lane], happened = None, False, True
                continue
            self.answers[lane] = None
            if request[0] != "again":
                self.asked[lane], self.running[lane], happened = request, False, True
        return happened

    @property
    def ended(self):
        return all(x is None for x in self.work_items)

    def meet(self):
        """Do what all work-items wait for."""
        alive = [n for n in range(LANES) if self.work_items[n] is not None]
        if not alive or any(self.running) or self.asked[alive[0]] is None:
            return
        kind, where, what = self.asked[alive[0]]
        assert all(self.asked[n][:2] == (kind, where) for n in alive), "a sub-group that parted"
        if kind == "group":
            waiting = self.group.waiting.setdefault(where, [])
            if self not in waiting:
                waiting.append(self)
            if len(waiting) * LANES == what:
                self.group.waiting[where] = []
                for other in waiting:
                    other.go_on()
            return
        assert len(alive) == LANES, "a sub-group without some of its work-items"
        if kind == "mma":
            self.answers = multiplied([self.asked[n][2] for n in range(LANES)])
        if kind == "vote":
            self.answers = [all(self.asked[n][2] for n in range(LANES))] * LANES
        self.go_on()

    def go_on(self):
        self.asked = [None] * LANES
        self.running = [x is not None for x in self.work_items]


def multiplied(registers):
    """m16n8k8 of float64: d from a[h + 2 q], b[q] and c[2 h + e] of every work-item 4 g + t."""
    a, b, d = np.zeros((16, 8)), np.zeros((8, 8)), np.zeros((16, 8))
    for lane, r in enumerate(registers):
        g, t = divmod(lane, 4)
        a[[g, g + 8, g, g + 8], [t, t, t + 4, t + 4]] = r[:4]
        b[[t, t + 4], g] = r[4:6]
        d[[g, g, g + 8, g + 8], [2 * t, 2 * t + 1, 2 * t, 2 * t + 1]] = r[6:]
    d += a @ b
    at = [divmod(lane, 4) for lane in range(LANES)]
    return [tuple(float(d[g + 8 * h, 2 * t + e]) for h in (0, 1) for e in (0, 1)) for g, t in at]


class Machine:
    """Global memory, the running copies, and the order in which sub-groups run."""

    def __init__(self, nbytes, delay):
        self.memory, self.delay = bytearray(nbytes), delay
        self.maps, self.flights = {}, []
        self.allocated = np.zeros(nbytes // 8 + 1, bool)
        self.end = 4096

    def allocate(self, array):
        at = -(-self.end // 256) * 256
        self.end = at + array.nbytes
        self.memory[at : self.end] = array.tobytes()
        self.allocated[at // 8 : -(-self.end // 8)] = True
        return at

    def read(self, at, like):
        return np.frombuffer(bytes(self.memory[at : at + like.nbytes]), like.dtype).reshape(like.shape).copy()

    def touch(self, address):
        assert self.allocated[address // 8], f"address {address:#x} was not allocated"

    def launch(self, kernel, arguments, groups, work_items, layers=1):
        named = dict(zip(kernel.parameters, arguments, strict=True))
        running = []
        for z in range(layers):
            for x in range(groups):
                group = Group(self, bytearray(kernel.local_bytes))
                for first in range(0, work_items, LANES):
                    items = [
                        kernel.body(self, group, self.memory, group.local, named, kernel.symbols, {
                            "tid": (n, 0, 0), "ctaid": (x, 0, z), "ntid": (work_items, 1, 1),
                            "nctaid": (groups, 1, layers)})
                        for n in range(first, first + LANES)
                    ]  # fmt: skip
                    running.append(SubGroup(group, items))
        still, rounds, asleep = 0, 0, set()
        while running:
            if rounds % 150 == 0 or still > 20:  # some sub-groups fall far behind, but never all that can run
                asleep = set(random.sample(running, len(running) // 3)) if still <= 20 else set()
            rounds += 1
            self._let_land()
            chosen = [x for x in running if x not in asleep and random.random() < 0.5]
            happened = [sub_group.step() for sub_group in chosen]
            for sub_group in chosen:
                sub_group.meet()
            running = [x for x in running if not x.ended]
            still = 0 if any(happened) or self.flights else still + 1
            assert still < 1000, "a standstill"

    def _let_land(self):
        for flight in self.flights:
            flight[0] -= 1
        landed = [x for x in self.flights if x[0] < 0]
        self.flights = [x for x in self.flights if x[0] >= 0]
        for _, group, to, lines, bar in landed:
            group.land(to, lines, bar)
