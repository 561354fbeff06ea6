"""JAX's arrays in the host's memory: where results lie, and what is refused."""

import random

import numpy as np
import pytest

import pyclmm
from pyclmm import linalg
from tests.support.habits import drawn
from tests.support.linalg_calls import CALLS, every_call
from tests.support.optional import optional

jax = optional("jax")
A = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(autouse=True)
def by_default_on_the_host():
    with jax.default_device(jax.devices("cpu")[0]):
        yield


@pytest.fixture
def devices():
    """Two of the host's. tests/conftest.py asks XLA for them."""
    found = jax.devices("cpu")
    if len(found) < 2:
        pytest.skip("XLA_FLAGS asks for one device of the host's")
    return found[:2]


def put(x, device, is_committed=True):
    if is_committed:
        return jax.device_put(x, device)
    with jax.default_device(device):
        return jax.device_put(x)


def place(x):
    return (*x.devices(), x.committed)


@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("number", [0, 1])
@every_call
def test_results_of_linalg_are_where_the_operands_are(name, number, is_committed, devices):
    shapes, call = CALLS[name]
    r = random.Random(name)
    xs = [drawn(r, shape, "float32", "C") for shape in shapes]
    got = call(linalg, *(put(x, devices[number], is_committed) for x in xs), kernel="naive")
    assert place(got) == (devices[number], is_committed)
    np.testing.assert_array_equal(np.asarray(got), np.asarray(call(np, *xs)))


CALLED = {
    "matmul": pyclmm.matmul,
    "a plan": lambda a, b: pyclmm.Matmul(A, A.T.copy())(a, b, alpha=1.0),
    "a list": lambda a, b: pyclmm.matmul_many([(a, a.T), (a, b)])[1],
    "tiles": lambda a, b: pyclmm.matmul(a, b, memory_limit="1 MiB"),
    "einsum": lambda a, b: linalg.einsum("ij,jk", a, b),
}
each = pytest.mark.parametrize("call", CALLED.values(), ids=CALLED)


@each
def test_arrays_that_are_committed_to_no_device_go_to_the_others(call, devices):
    for first, second in ((True, False), (False, True)):
        a, b = (put(x, devices[its], its) for x, its in ((A, first), (A.T.copy(), second)))
        for _ in range(2):
            got = call(a, b)
            assert place(got) == (devices[1], True)
            assert np.array_equal(got, A @ A.T)


@each
def test_operands_on_two_devices_are_refused(call, devices):
    a, b = (put(x, device) for x, device in zip((A, A.T.copy()), devices, strict=True))
    with pytest.raises(pyclmm.ArgumentError, match=r"is committed to device cpu:0 and .* to cpu:1; pass jax"):
        call(a, b)


SEVERAL = {
    "matmul": lambda x, y: pyclmm.matmul(y, x),
    "bias": lambda x, y: pyclmm.gemm(y, y, bias=x),
    "einsum": lambda x, y: linalg.einsum("ij,jk", y, x),
    "a list": lambda x, y: pyclmm.matmul_many([(y, x)]),
    "tiles": lambda x, y: pyclmm.matmul(y, x, memory_limit="1 MiB"),
    "a plan": lambda x, y: pyclmm.Matmul(y, x),
    "sizes": lambda x, y: pyclmm.ragged_matmul(y, jax.numpy.ones((4, 4, 4)), x),
}
each_refuses = pytest.mark.parametrize("call", SEVERAL.values(), ids=SEVERAL)


@each_refuses
def test_keys_of_random_numbers_are_refused(call):
    keys = jax.random.split(jax.random.key(3), (4, 4))
    with pytest.raises(pyclmm.DTypeError, match=r"has dtype key<.*pass .* jax\.random\.key_data\("):
        call(keys, jax.numpy.ones((4, 4)))


@each_refuses
@pytest.mark.parametrize("axis", ["x", None])
def test_arrays_on_several_devices_are_refused(call, axis, devices):
    mesh = jax.sharding.Mesh(np.array(devices), ("x",))
    spec = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(axis))
    x = jax.device_put(np.ones((4, 4), np.float32), spec)
    with pytest.raises(pyclmm.DTypeError, match=r"is on several devices; pass jax\.device_put\(.*shards, "):
        call(x, jax.numpy.ones((4, 4)))
    whole = jax.device_put(x, devices[0])
    assert np.array_equal(pyclmm.matmul(whole, whole), 4 * np.ones((4, 4)))


@pytest.mark.parametrize(
    "call", [CALLED["matmul"], CALLED["einsum"], lambda a, b: pyclmm.matmul_many([(a, b)])[0]]
)
def test_within_a_traced_function_arrays_from_outside_are_multiplied_at_once(call, devices):
    a, b = put(A, devices[0], False), put(A.T.copy(), devices[1])
    traced = jax.jit(lambda x: x + call(call(a, b), call(a, b)))
    np.testing.assert_array_equal(traced(np.float32(1)), call(call(a, b), call(a, b)) + 1)
