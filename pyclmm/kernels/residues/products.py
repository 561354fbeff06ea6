"""The products of residues: the forms in which another family multiplies them for `residues`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import GATE, Arg, Kernel, Launch, round_up
from .moduli import COMPLEX, MOST, REAL, Moduli

PITCH = 128  # elements; lines of residues are multiples
_LARGEST = 1 << 14  # product of two residues
MOST_BLOCKS = 22  # whose digits cl/residues/combine.cl adds


@dataclass(frozen=True)
class Form:
    """How residues are multiplied: as an *element* of the operands, which holds *residues* of them along K,
    and with sums of the accumulator type *sums*. Sums over *most* of K are exact.
    """

    element: str
    sums: str
    most: int
    residues: int = 1


# Sums of the first and the last stay below 2^31, those of the second do not pass 2^24 (cl/include/moduli.h).
BYTES = Form("int8", "uint32", (1 << 17) - PITCH)
FLOATS = Form("int8", "float32", (1 << 24) // _LARGEST)
WORDS = Form("uint32", "uint32", (1 << 17) - PITCH, 4)
FORMS = (BYTES, FLOATS, WORDS)
FORM = "form"  # the option of a configuration: a place in FORMS


def form_of(config: TileConfig) -> Form:
    """The form that *config* of `residues` names."""
    return FORMS[config.option(FORM)]


def forms_for(family: Kernel, problem: GemmProblem, device: DeviceInfo) -> Iterator[tuple[int, Form]]:
    """The forms in which *family* can multiply the residues of *problem*, by their places in FORMS. Matrix
    units take bytes. Words are for devices that have an instruction for them.
    """
    for number, form in enumerate(FORMS):
        fits = form == BYTES or not family.matrix_units
        if fits and not refusal(form, problem, device) and not family.refuses(inner(problem, form), device):
            yield number, form


def refusal(form: Form, problem: GemmProblem, device: DeviceInfo) -> str | None:
    """Why residues of *problem* are not multiplied in *form* on *device*, or None."""
    if len(blocks(problem, form)) > MOST_BLOCKS:
        return f"sums of {form.sums} take K up to {MOST_BLOCKS * form.most}, those of form 0 all K"
    if form == WORDS and not device.rates.dot8:
        return f"device {device.name!r} has no dot products of bytes"
    return None


def moduli_of(problem: GemmProblem) -> Moduli:
    """The moduli for the element type of *problem*."""
    return COMPLEX if problem.acc_type == "complex128" else REAL


def blocks(problem: GemmProblem, form: Form) -> range:
    """The blocks of K by their first elements."""
    count = ceil(problem.k / form.most)
    return range(0, problem.k, round_up(ceil(problem.k / count), PITCH))


def inner(problem: GemmProblem, form: Form) -> GemmProblem:
    """The products of residues: for each product of the stack, block of K and modulus."""
    m, n, parts, own = problem.m, problem.n, blocks(problem, form), moduli_of(problem)
    pitch, ldo = parts.step * len(parts) // form.residues, round_up(n, 64)
    k, count = problem.k if len(parts) == 1 else parts.step, MOST * problem.sums.planes
    k = ceil(k / form.residues)
    return GemmProblem(
        m=m, n=n, k=k, a_type=form.element, b_type=form.element, out_type="uint8", acc_type=form.sums,
        trans_b=True, lda=pitch, ldb=pitch, ldo=ldo, batch_shape=(problem.batch, len(parts), count),
        batch_strides=(
            (m * pitch * count, k, m * pitch), (n * pitch * count, k, n * pitch), (0, 0, 0),
            (m * ldo * count * len(parts), m * ldo * count, m * ldo),
        ),
        c_type="uint8", bias_type="uint8", moduli=own.of_products, dot_bytes=form == WORDS,
    )  # fmt: skip


def seconds(
    family: Kernel, problem: GemmProblem, form: Form, config: TileConfig, device: DeviceInfo, count: int
) -> float:
    """What *family* takes for the first *count* products of each block of K."""
    one = inner(problem, form)
    parts = problem.batch * len(blocks(problem, form))
    computed = replace(
        one, batch_shape=(parts * count,), batch_strides=((0,),) * 4, moduli=one.moduli[:count]
    )
    if form == WORDS:  # where 32-bit integers are multiplied, words are
        words = {"int32": device.rates.dot8 / form.residues}
        device = replace(device, user_rates=device.rates.with_measured(words, device.rates.source))
    return family.estimate(computed, config, device)


_OPERANDS: dict[str, Arg] = {
    "a": "workspace:residues_a",
    "b": "workspace:residues_b",
    "out": "workspace:digits",
    "c": "workspace:digits",  # never read, as bias
    "bias": "workspace:digits",
    **dict.fromkeys(("a_offset", "b_offset", "out_offset", "c_offset", "bias_offset"), np.int64(0)),
    "batch_offsets": "residue_offsets",
    GATE: GATE,
}


def of_residues(launch: Launch, form: Form) -> Launch:
    """A launch of the products of residues, with the buffers and scalars of these."""
    scalar = np.float32 if form.sums == "float32" else np.uint32
    operands = {**_OPERANDS, "alpha": scalar(1), "beta": scalar(0)}

    def own(arg: Arg) -> Arg:
        if not isinstance(arg, str):
            return arg
        if arg in operands:
            return operands[arg]
        return arg.replace("workspace:", "workspace:product_")

    return replace(launch, args=tuple(own(arg) for arg in launch.args), packs="")
