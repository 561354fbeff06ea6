"""warm: compiles and checks kernels ahead of the first call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
from pyopencl.array import Array

from .checks import selfcheck, small_problems
from .errors import ArgumentError, DeviceMemoryError, DTypeError, amount, brief, in_short
from .execution.kinds import kind_of
from .execution.operands import collect, queue_of
from .opencl.queues import check_queue, default_queue, queue_on
from .plan import Matmul, programs_of
from .quantized import QuantizedArray
from .untraced import untraced

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .execution.keywords import PlanKeywords

_FORMS = "pass an array, (shape, dtype) or (shape, dtype, order)"
_NAMES = ("a", "b", "c")


@untraced
def warm(
    *products: tuple[Any, ...],
    bias: Any = None,
    out: Any = None,
    on_device: bool = False,
    **keywords: Unpack[PlanKeywords],
) -> list[Matmul[Any]]:
    """Compile, check and run once the kernels of products that will be computed later.

    After that, products of these shapes, dtypes and layouts compile nothing, in :func:`matmul`, :func:`gemm`
    and :class:`Matmul`, for as long as this process keeps the programs: it does while a returned plan lives,
    and it keeps the 64 used last. ::

        # A product by (shape, dtype) of a and of b, and one of arrays
        pyclmm.warm((((4096, 512), "float32"), ((512, 1000), "float32")), (x, weights), device="gpu")

    Parameters
    ----------
    products
        For each product (a, b) or (a, b, c). An operand is an array, of which only the layout is read, or
        what :func:`numpy.empty` takes: (shape, dtype) or (shape, dtype, order). No memory is used for these.
        b may be quantised weights, ``q.T``.
    bias, out
        Operands of all these products, as in :func:`gemm`.
    on_device
        What (shape, dtype) stands for: False, NumPy arrays; True, pyopencl Arrays, whose programs may differ.
    keywords
        Those of :class:`Matmul`, *queue* and *device* too, for all products of the call.

    Returns the plan of each product, in order. They can be called, or dropped. Raises DTypeError for an
    operand in another form, ArgumentError for a product of another number of operands, DeviceMemoryError for
    a shape that no array has here, and as :class:`Matmul` does.
    """
    queue, device = keywords.pop("queue", None), keywords.pop("device", None)
    home = None
    if not isinstance(on_device, bool | np.bool_):
        raise DTypeError(f"on_device is {brief(on_device)}; pass True or False")
    if queue is not None:
        check_queue(queue, device)
    if on_device:
        home = queue if queue is not None else default_queue() if device is None else queue_on(device)
    others = {name: _operand(name, x, home) for name, x in (("bias", bias), ("out", out)) if x is not None}
    make: Any = Matmul  # its overloads are for operands of known types
    plans = []
    for number, product in enumerate(products, 1):
        operands = [_operand(f"{name} of product {number}", x, home) for name, x in _named(number, product)]
        found = dict(zip(_NAMES, operands, strict=False)) | others
        weights = {name for name, x in found.items() if type(x) is QuantizedArray}  # which lie where a does
        own = queue_of(collect({name: x for name, x in found.items() if name not in weights}), queue, device)
        with selfcheck.run_all():
            plan: Matmul[Any] = make(*operands, queue=own, **others, **keywords)
        for program in programs_of(plan):
            small_problems.wrong_copy(own, program)
        plans.append(plan)
    return plans


def _named(number: int, product: Any) -> list[tuple[str, Any]]:
    """The operands of a product by name."""
    if not isinstance(product, tuple | list):
        raise DTypeError(
            f"product {number} is a {type(product).__name__}; pass the operands of each product as a tuple: "
            "warm((a, b), (c, d))"
        )
    if len(product) not in (2, 3):
        raise ArgumentError(
            f"product {number} has {amount(len(product), 'operands')}; pass (a, b) or (a, b, c)"
        )
    return list(zip(_NAMES, product, strict=False))


def _operand(name: str, given: Any, queue: cl.CommandQueue | None) -> Any:
    """The array *given*, or one of the shape, dtype and order given; on the device with *queue*."""
    if not isinstance(given, tuple | list):
        if isinstance(given, np.ndarray | Array | QuantizedArray) or kind_of(given) is not None:
            return given
        raise DTypeError(f"{name} is a {type(given).__name__}; {_FORMS}")
    if len(given) not in (2, 3):
        raise DTypeError(f"{name} is {brief(given)}; {_FORMS}")
    shape, dtype, order = (*given, "C")[:3]
    try:
        like = np.broadcast_to(np.empty((), dtype, order), shape)  # takes no memory
    except (TypeError, ValueError) as error:
        raise DTypeError(f"{name} is {brief(given)} ({in_short(error)}); {_FORMS}") from error
    if queue is None:
        try:
            return np.empty(like.shape, like.dtype, order)  # takes memory only when it is written
        except MemoryError as error:
            raise DeviceMemoryError(f"{name} is {brief(given)}, an array too large here: {error}") from error
    nothing = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 1)  # no kernel reads it
    return Array(queue, like.shape, like.dtype, order=order, data=nothing)
