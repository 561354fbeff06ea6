"""What each instruction does: AMD's pseudocode, from the files of PyPI's tinygrad, and what replaces it.

tinygrad takes the text from AMD's manuals: CDNA 3 and 4, RDNA 3, RDNA 3.5, RDNA 4. Only these files are read,
as data: nothing of tinygrad is imported.
"""

from __future__ import annotations

import ast
import hashlib
import re
from functools import cache

from tests.conformance.implementations import TINYGRAD

_DIGESTS = {  # of tinygrad 0.14.0
    "cdna": "e67649d19bb728278d97065a843518535a87126358710aa85f5a5cd61760fb1a",
    "rdna3": "a96d00d1b3d4d2037ad62297f18948ac39f63acc6764ed1cdb1844279ef7c8c3",
    "rdna4": "18e336dc1f03e27c81860d1bd34bbff2fde7f8c861ae0e59341539d5e0151c71",
}
# Which manual describes a processor. gfx90a and gfx1030 are older; what differs stands below.
MANUALS = {"gfx90a": "cdna", "gfx942": "cdna", "gfx1030": "rdna3", "gfx1100": "rdna3", "gfx1201": "rdna4"}

# In place of the manual's text, or where a processor's instruction has none there.
_INSTEAD = {
    # rounded to the nearest even: floor(x + 0.5) is wrong where x + 0.5 is rounded itself
    **{f"{x}_RNDNE_F{w}": f"D0.f{w} = rint(S0.f{w})" for x in "SV" for w in (16, 32, 64)},
    # the number stands among the operands, as in V_FMAMK_F32
    **dict.fromkeys(("S_FMAMK_F32", "S_FMAAK_F32"), "D0.f32 = fma(S0.f32, S1.f32, S2.f32)"),
    # 2 to the power of S1 overflows where the product does not
    **{f"V_LDEXP_F{w}": f"D0.f{w} = ldexp(S0.f{w}, S1.i32)" for w in (32, 64)},
    # "x == DENORM" means that x is subnormal
    **{
        f"V_DIV_SCALE_F{w}": f"""VCC = 0x0LL; D0.f{w} = S0.f{w};
        if ((S2.f{w} == 0.0) || (S1.f{w} == 0.0)) then D0.f{w} = NAN.f{w}
        elsif exponent(S2.f{w}) - exponent(S1.f{w}) >= {far} then VCC = 0x1LL;
          if S0.f{w} == S1.f{w} then D0.f{w} = ldexp(S0.f{w}, {by}) endif
        elsif subnormal(S1.f{w}) then D0.f{w} = ldexp(S0.f{w}, {by})
        elsif (subnormal(reciprocal(S1.f{w})) && subnormal(S2.f{w} / S1.f{w})) then VCC = 0x1LL;
          if S0.f{w} == S1.f{w} then D0.f{w} = ldexp(S0.f{w}, {by}) endif
        elsif subnormal(reciprocal(S1.f{w})) then D0.f{w} = ldexp(S0.f{w}, -{by})
        elsif subnormal(S2.f{w} / S1.f{w}) then VCC = 0x1LL;
          if S0.f{w} == S2.f{w} then D0.f{w} = ldexp(S0.f{w}, {by}) endif
        elsif exponent(S2.f{w}) <= {tiny} then D0.f{w} = ldexp(S0.f{w}, {by}) endif"""
        for w, far, by, tiny in ((32, 96, 64, 23), (64, 768, 128, 53))
    },
    # a loop with a break
    **{f"{x}_U32": "D0.i32 = first_one(S0.u32)" for x in ("V_FFBH", "V_CLZ_I32", "S_CLZ_I32")},
    **{f"{x}_B32": "D0.i32 = last_one(S0.u32)" for x in ("V_FFBL", "V_CTZ_I32", "S_FF1_I32", "S_CTZ_I32")},
    "S_FLBIT_I32_B32": "D0.i32 = first_one(S0.u32)",
    # sums of 65 bits: the last is the carry
    **{
        f"V_MAD_{x}U64_U32": """D0.u64 = 64'U(S0.u32) * 64'U(S1.u32) + S2.u64;
        VCC.u64[laneId] = D0.u64 < S2.u64"""
        for x in ("", "CO_")
    },
    **{
        f"V_MAD_{x}I64_I32": """tmp = 64'I(S0.i32) * 64'I(S1.i32); D0.i64 = tmp + S2.i64;
        VCC.u64[laneId] = (D0.i64 < 0) != (((tmp ^ D0.i64) & (S2.i64 ^ D0.i64)) < 0)"""
        for x in ("", "CO_")
    },
    # the same, shorter
    "V_PERM_B32": "D0.u32 = byte_permute(S0.u32, S1.u32, S2.u32)",
    # with "clamp": sums stay at the end of the type's range, as the manuals say in words
    **dict.fromkeys(
        ("V_ADD_U32_CLAMP", "V_ADD_NC_U32_CLAMP"),
        """tmp = 64'U(S0.u32) + 64'U(S1.u32); D0.u32 = tmp > 0xffffffffULL ? 0xffffffffU : tmp.u32""",
    ),
    # before CDNA 3
    "V_MAC_F32": "D0.f32 = S0.f32 * S1.f32 + D0.f32",
    **dict.fromkeys(("V_MADMK_F32", "V_MADAK_F32"), "D0.f32 = S0.f32 * S1.f32 + S2.f32"),
    # the literal stands among the operands
    **{f"V_FMA{x}K_F{w}": f"D0.f{w} = fma(S0.f{w}, S1.f{w}, S2.f{w})" for x in "MA" for w in (16, 32)},
    # across lanes, and registers that M0 moves
    "V_READFIRSTLANE_B32": "D0.u32 = lane_of(S0.u32, first_lane())",
    "V_READLANE_B32": "D0.u32 = lane_of(S0.u32, S1.u32)",
    "V_WRITELANE_B32": "D0.u32 = with_lane(D0.u32, S0.u32, S1.u32)",
    "V_MOVRELS_B32": "D0.u32 = moved(S0)",
    "S_SET_GPR_IDX_ON": "M0.u32 = M0.u32 & 0xffffff00U | S0.u32[7 : 0]",
    **{f"V_ACCVGPR_{x}_B32": "D0.b32 = S0.b32" for x in ("READ", "WRITE", "MOV")},
}

# Older names.
_RENAMED = (("_ANDN2_", "_AND_NOT1_"), ("_ORN2_", "_OR_NOT1_"))


@cache
def _manual(name: str) -> dict[str, str]:
    """The pseudocode of a manual, by instruction."""
    (path,) = TINYGRAD.glob(f"lib/python3*/site-packages/tinygrad/runtime/autogen/amd/{name}/str_pcode.py")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != _DIGESTS[name]:
        raise ValueError(f"{path} is not that of tinygrad 0.14.0")
    found = {}
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Attribute) and isinstance(value, ast.Constant):
                    found.setdefault(key.attr, str(value.value))
    return found


def plain(mnemonic: str) -> str:
    """The instruction's name without its encoding: V_ADD_F32 for v_dual_add_f32 and v_add_f32_e64."""
    return re.sub(r"_(e32|e64|sdwa)(?=_clamp|$)", "", mnemonic).replace("v_dual_", "v_").upper()


@cache
def pseudocode(processor: str, mnemonic: str) -> str:
    """Raises NotImplementedError where no manual has the instruction."""
    name = plain(mnemonic)
    if name in _INSTEAD:
        return _INSTEAD[name]
    own = MANUALS[processor]
    newer = name
    for old, new in _RENAMED:
        newer = newer.replace(old, new)
    for manual in dict.fromkeys((own, "rdna3", "cdna", "rdna4")):
        for candidate in (name, newer):
            for encoding in ("", "_E32", "_E64"):
                if text := _manual(manual).get(candidate + encoding):
                    return text
    raise NotImplementedError(f"no manual has {mnemonic}")
