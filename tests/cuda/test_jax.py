"""JAX's arrays on a CUDA device; without one those on the host stand for them, on the made-up driver."""

import gc
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import pyclmm
from pyclmm import linalg
from pyclmm.cuda import arrays as cuda_arrays
from pyclmm.cuda import dlpack, streams, xla
from pyclmm.errors import ArgumentError, DeviceLostError, DTypeError, LaunchError, UnsupportedError
from tests.support import fake_cuda
from tests.support.habits import drawn
from tests.support.linalg_calls import CALLS, every_call
from tests.support.optional import optional
from tests.support.plans import executable, of_list, path
from tests.support.threads import in_threads

jax = optional("jax")
A = np.arange(12, dtype=np.float32).reshape(3, 4)
STREAM = 0x70  # XLA's, on the made-up driver


@pytest.fixture
def cuda(request, monkeypatch):
    """The made-up driver, or None where JAX has a GPU."""
    if jax.devices()[0].platform == "gpu":
        yield None
        return
    from pyclmm.execution import jax_arrays, xla_path  # noqa: PLC0415 - they need JAX

    cuda, _ = request.getfixturevalue("cuda_and_lib")
    launched = xla_path._launched

    def known(number, stream, operands, results):
        """XLA's memory is the host's, in buffers that the made-up driver must know."""
        for address in {*operands, *results} - cuda.memory.keys():
            cuda.memory[address] = (None, 1 << 20)
        launched(number, stream, operands, results)

    monkeypatch.setattr(xla_path, "_PLATFORM", "cpu")
    monkeypatch.setattr(xla_path, "_launched", known)
    monkeypatch.setattr(jax_arrays, "_platform", lambda _: "cuda")
    monkeypatch.setattr(
        type(array(A)), "__dlpack_device__", lambda x: (dlpack.CUDA, x.device.local_hardware_id)
    )
    monkeypatch.setattr(xla, "stream_of", lambda frame: STREAM)
    xla_path._register.cache_clear()
    yield cuda
    xla_path._register.cache_clear()


@pytest.fixture
def made_up(cuda):
    """The made-up driver, which does what a test tells it."""
    if cuda is None:
        pytest.skip("only the made-up driver does what a test tells it")
    return cuda


def array(x):
    return jax.numpy.asarray(x)


def test_products_are_launched_in_xlas_stream_and_memory(cuda):
    x = array(A)
    y = pyclmm.matmul(x, x.T)
    assert isinstance(y, jax.Array)
    assert np.array_equal(y, A @ A.T)
    if cuda:
        assert {launch[3] for launch in cuda.launches} >= {STREAM}
        count = len(cuda.launches)
        assert np.array_equal(pyclmm.matmul(x, x.T), A @ A.T)
        assert {launch[3] for launch in cuda.launches[count:]} == {STREAM}


def test_xla_lends_workspace_where_a_product_needs_it(made_up, monkeypatch):
    from pyclmm.execution import xla_path  # noqa: PLC0415 - it needs JAX

    given, launched = [], xla_path._launched
    monkeypatch.setattr(xla_path, "_launched", lambda *call: given.append(len(call[-1])) or launched(*call))
    xla_path._register.cache_clear()
    wide = np.tile(A, 64)
    x = array(wide)
    config = pyclmm.Matmul(x, x.T, kernel="register").config
    assert config is not None
    config = replace(config, split_k=2)
    for kernel in ("naive", ("register", config)):
        assert np.array_equal(pyclmm.matmul(x, x.T, kernel=kernel), wide @ wide.T)
    assert given == [1, 2]


def test_again(cuda):
    for factor in range(1, 5):
        x = array(factor * A)
        assert np.array_equal(pyclmm.matmul(x, x.T), factor**2 * A @ A.T)


def test_other_scalars_and_operands(cuda):
    a, b, c = array(A), array(A.T.copy()), array(np.ones((3, 3), np.float32))
    want = A @ A.T
    for alpha, beta in ((1, 0), (2, 0), (2, 3), (3, 3), (3, 4), (1, 0), (0, 1), (0.0, -0.0)):
        got = pyclmm.gemm(a, b, c, alpha=alpha, beta=beta)
        assert np.array_equal(got, alpha * want + beta * np.ones((3, 3)))
    bias = np.arange(3, dtype=np.float32) - 200
    for _ in range(2):
        assert np.array_equal(
            pyclmm.gemm(a, b, bias=array(bias), activation="relu"), np.maximum(want + bias, 0)
        )


def test_stacks_types_and_results_without_elements(cuda):
    stack = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    assert np.array_equal(pyclmm.matmul(array(stack), array(stack[0].T)), stack @ stack[0].T)
    for shapes in (((0, 4), (4, 5)), ((3, 0), (0, 5)), ((2, 0, 4), (4, 0))):
        x, y = (np.zeros(shape, np.float32) for shape in shapes)
        got = pyclmm.matmul(array(x), array(y))
        assert isinstance(got, jax.Array)
        assert got.shape == (x @ y).shape
        assert not np.any(got)
    half = array(A).astype(jax.numpy.bfloat16)
    assert pyclmm.matmul(half, half.T).dtype == jax.numpy.bfloat16


@every_call
def test_functions_of_linalg(name, cuda):
    shapes, call = CALLS[name]
    r = random.Random(name)
    xs = [drawn(r, shape, "float32", "C") for shape in shapes]
    want = np.asarray(call(np, *xs))
    for _ in range(2):
        got = call(linalg, *map(array, xs), kernel="naive")
        assert isinstance(got, jax.Array)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_array_equal(np.asarray(got), want)


def test_float64(cuda):
    """JAX makes arrays of float64 by itself only where jax_enable_x64 is set."""
    x = array(A)
    for _ in range(2):
        y = pyclmm.matmul(x, x.T, dtype="float64")
        assert y.dtype == np.float64
        assert np.array_equal(y, A @ A.T)


def test_lists_of_products(cuda):
    """In few launches in XLA's stream, with results in memory of XLA's."""
    rng = np.random.default_rng(3)
    sizes = [(3, 4, 5), (6, 7, 2), (17, 18, 3), (4, 0, 3), (5, 6, 0)]
    plan = None
    for _ in range(3):
        a, b = ([rng.integers(-9, 9, (s[i], s[j])).astype("f4") for s in sizes] for i, j in ((0, 2), (2, 1)))
        c = [None, rng.integers(-9, 9, (6, 7)).astype("f4"), None, None, None]
        pairs = [(array(x), array(y)) for x, y in zip(a, b, strict=True)]
        keywords = {"c": [x if x is None else array(x) for x in c]}
        plan = plan or pyclmm.ManyMatmul(pairs, **keywords, beta=2)
        if cuda:
            cuda.launches.clear()
        got = plan(pairs, **keywords)
        for x, y, z, its in zip(a, b, c, got, strict=True):
            assert isinstance(its, jax.Array)
            np.testing.assert_array_equal(its, x @ y if z is None else x @ y + 2 * z)
        if cuda:
            assert {launch[3] for launch in cuda.launches} == {STREAM}
            assert len(cuda.launches) < 4
    x = array(A)
    for _ in range(2):  # of which none reads an array, and one in a launch of its own
        none = array(np.zeros((3, 0), np.float32))
        for pairs in ([(none, none.T)] * 2, [(x, x.T), (array(A.astype("i4")), x.T)]):
            for (one, other), its in zip(pairs, pyclmm.matmul_many(pairs), strict=True):
                np.testing.assert_array_equal(its, np.asarray(one) @ np.asarray(other))


def test_lists_refuse(cuda):
    x = array(A)
    with pytest.raises(DTypeError, match=r"pairs\[0\]: out is a JAX array"):
        pyclmm.matmul_many([(x, x.T)], [array(np.zeros((3, 3), np.float32))])
    with pytest.raises(UnsupportedError, match="verify= is not for lists of JAX's arrays"):
        pyclmm.matmul_many([(x, x.T)] * 2, verify=True)
    plan = pyclmm.ManyMatmul([(x, x.T)] * 2)
    plan([(x, x.T)] * 2)
    (launch,) = of_list(plan)._launches.values()
    with pytest.raises(UnsupportedError, match="JAX moved an array"):
        launch.enqueue(0, [2] * 4, [0] * 2)
    if cuda:
        cuda.fail["cuLaunchKernelEx"] = 700
        with pytest.raises(DeviceLostError):
            np.asarray(pyclmm.matmul_many([(x, x.T)] * 2)[0])


def test_arrays_without_elements_to_read(cuda):
    x = array(A)
    with pytest.raises(DTypeError, match=r"a is traced by JAX"):
        jax.jit(lambda x: pyclmm.matmul(x, x.T))(x)
    with pytest.raises(DTypeError, match=r"out is a JAX array"):
        pyclmm.gemm(x, x.T, out=x)
    y = x.T
    pyclmm.matmul(x, y)
    y.delete()
    with pytest.raises(DTypeError, match=r"b was deleted or donated"):
        pyclmm.matmul(x, y)


def test_an_error_of_a_launch_is_pyclmms(made_up):
    x = array(A)
    y = pyclmm.matmul(x, x.T, kernel="naive")
    made_up.fail["cuLaunchKernelEx"] = fake_cuda.INVALID_VALUE
    with pytest.raises(LaunchError, match=r"rejected kernel '\w+'") as caught:
        pyclmm.matmul(x, x.T, kernel="naive")
    assert caught.value.__suppress_context__
    made_up.fail.clear()
    assert np.array_equal(pyclmm.matmul(x, x.T, kernel="naive"), y)
    with made_up.failing(cuLaunchKernelEx=fake_cuda.ILLEGAL_ADDRESS), pytest.raises(DeviceLostError):
        pyclmm.matmul(x, x.T, kernel="naive")
    assert np.array_equal(pyclmm.matmul(x, x.T), y)  # in a new context


def test_an_address_that_the_plan_is_not_for(cuda, monkeypatch):
    if cuda is None:
        pytest.skip("JAX's arrays on a GPU begin at multiples of 256")
    x, moved = array(A), iter([4, 0, 0, 0])  # of operands and results, in each call
    y = pyclmm.matmul(x, x.T)
    addresses = xla._addresses

    def shifted(table, number):
        by = next(moved, 4)
        return [address + by for address in addresses(table, number)]

    monkeypatch.setattr(xla, "_addresses", shifted)
    assert np.array_equal(pyclmm.matmul(x, x.T), y)  # looked at anew
    with pytest.raises(UnsupportedError, match=r"JAX moved an array"):
        pyclmm.matmul(x, x.T)


def test_another_kernel_needs_more_workspace_than_xla_lends(cuda, monkeypatch):
    if cuda is None:
        pytest.skip("the made-up driver: on an H200 the call itself did not raise, which was not looked into")
    x = array(A)
    plan = pyclmm.Matmul(x, x.T, kernel="naive")
    plan(x, x.T)
    product = plan._product.path._last.product
    other = SimpleNamespace(is_busy=False, context=product.context, workspace_nbytes=1)
    monkeypatch.setattr(plan._executable, "latest_binding", lambda: other)
    with pytest.raises(UnsupportedError, match="changed the kernel meanwhile"):
        plan(x, x.T)


def test_a_call_within_a_call(made_up):
    """As a signal handler or a finalizer makes it, between the launches of one product."""
    a, b = np.ones((70_000, 2, 3), np.float32), np.full((70_000, 2, 3), 2, np.float32)
    x, y, z = array(a), array(b), array(a.swapaxes(1, 2).copy())
    plan, inner = pyclmm.Matmul(x, z), []
    plan(x, z)  # JAX refuses a call within the one that it compiles

    def call():
        made_up.after_launch = lambda: None
        inner.append(plan(y, z))

    for _ in range(2):
        made_up.after_launch = call
        assert np.all(plan(x, z) == 3)
        assert np.all(inner[-1] == 6)
    assert len(inner) == 2


def test_a_context_that_another_call_lost(made_up):
    x, y = array(A), array(A.T.copy())
    plan = pyclmm.Matmul(x, y, kernel="naive")
    plan(x, y)
    lost = streams.context_of(0)
    with made_up.failing(cuLaunchKernelEx=fake_cuda.ILLEGAL_ADDRESS), pytest.raises(DeviceLostError):
        pyclmm.matmul(x, y, kernel="naive")
    assert streams.context_of(0) is not lost
    modules = [name for name, _ in made_up.calls].count("cuModuleLoadDataEx")
    assert np.array_equal(plan(x, y), A @ A.T)
    assert [name for name, _ in made_up.calls].count("cuModuleLoadDataEx") > modules  # the old ones are gone


def test_the_last_call_is_compared_with(cuda):
    x, y = array(A), array(A.T.copy())
    plan = pyclmm.Matmul(x, y)
    plan(x, y)
    last, work = path(plan)._last, executable(plan).work
    assert last.fits({"a": x, "b": y}, work)
    assert not last.fits({"a": x, "b": y}, replace(work))  # after a fallback
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("rows",))
    moved = jax.device_put(y, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))
    assert not last.fits({"a": x, "b": moved}, work)
    assert np.array_equal(plan(x, moved), A @ A.T)


def test_results_that_are_not_made_yet_do_not_overlap(cuda):
    from pyclmm.execution.jax_arrays import JAX  # noqa: PLC0415 - it needs JAX

    first, second = (cuda_arrays.new(JAX, (3, 4), np.dtype(np.float32), 0) for _ in range(2))
    assert not cuda_arrays.may_share(first, second)


def test_plans_and_other_threads(cuda):
    x = array(A)
    plan = pyclmm.Matmul(x, x.T)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(plan, [factor * x for factor in range(1, 9)], [x.T] * 8))
    assert all(np.array_equal(result, factor * A @ A.T) for factor, result in enumerate(results, 1))
    del plan
    gc.collect()
    assert np.array_equal(pyclmm.matmul(x, x.T), A @ A.T)


def test_plans_of_many_scalars_and_other_threads(cuda):
    x = array(A)
    plan = pyclmm.Matmul(x, x.T)

    def multiply(number):
        for alpha in range(1 + 20 * number, 40 + 20 * number):
            assert np.array_equal(plan(x, x.T, alpha=alpha), alpha * A @ A.T)
            assert len(path(plan)._products.items()) <= 16

    in_threads(2, multiply)
    assert len(path(plan)._products.items()) > 8


@pytest.mark.parametrize("ordinal", [0, 1])
def test_the_result_is_on_the_arrays_device(cuda, ordinal):
    if ordinal >= len(jax.local_devices()):
        pytest.skip("needs two GPUs")
    device = jax.local_devices()[ordinal]
    x, y = (jax.device_put(each, device) for each in (A, A.T.copy()))
    plan = pyclmm.Matmul(*map(array, (A, A.T.copy())))  # on device 0
    for _ in range(2):
        for product in (pyclmm.matmul, plan, lambda x, y: linalg.einsum("ij,jk->ki", x, y)):
            assert product(x, y).devices() == {device}
        assert np.array_equal(plan(x, y), A @ A.T)
        assert pyclmm.matmul(x[:0], y).devices() == {device}
        identity = linalg.matrix_power(jax.device_put(np.ones((3, 3), np.float32), device), 0)
        assert identity.devices() == {device}
        assert np.array_equal(identity, np.eye(3))


def test_zeros_are_launched_on_their_device(cuda, monkeypatch):
    from pyclmm.execution import xla_path  # noqa: PLC0415 - it needs JAX

    device, where = jax.local_devices()[-1], []
    compile_it = xla_path.XlaLaunch.compile

    def recorded(product, *arguments):
        compile_it(product, *arguments)
        compiled = product._compiled

        def call(*arrays):
            usual = jax.config.jax_default_device or jax.local_devices()[0]
            where.append(arrays[0].device if arrays else usual)
            return compiled(*arrays)

        product._compiled = call

    monkeypatch.setattr(xla_path.XlaLaunch, "compile", recorded)
    linalg.matrix_power(jax.device_put(np.ones((2, 2), np.float32), device), 0)
    assert where == [device, device]  # the zeros, then the ones among them


def test_plans_for_arrays_of_another_library_are_others(request):
    """Of the same layouts: pyclmm has the addresses of the one's arrays, XLA tells those of JAX's."""
    cuda, lib = request.getfixturevalue("cuda"), request.getfixturevalue("lib")
    if cuda is None:
        pytest.skip("the other library is on the made-up driver")
    x, y = lib.array(A), lib.array(A.T.copy())
    plan = pyclmm.Matmul(x, y)
    for _ in range(2):
        for a, b in ((x, y), (array(A), array(A.T.copy()))):
            got = pyclmm.matmul(a, b)
            assert np.array_equal(got if isinstance(got, jax.Array) else got.get(), A @ A.T)
            got = linalg.einsum("ij->i", a)
            assert np.array_equal(got if isinstance(got, jax.Array) else got.get(), A.sum(1))
    words = "a is an array of JAX's on a CUDA device, the plan is for an array"
    with pytest.raises(ArgumentError, match=words):
        plan(array(A), array(A.T.copy()))
    words = "a is an array on a CUDA device, the plan is for an array of JAX's"
    with pytest.raises(ArgumentError, match=words):
        pyclmm.Matmul(array(A), array(A.T.copy()))(x, y)
    lists = [(x, y)] * 2, [(array(A), array(A.T.copy()))] * 2
    for pairs in lists * 2:
        for got in pyclmm.matmul_many(pairs):
            assert np.array_equal(got if isinstance(got, jax.Array) else got.get(), A @ A.T)
    for one, other in (lists, lists[::-1]):
        with pytest.raises(ArgumentError, match="the plan is for arrays of another library"):
            pyclmm.ManyMatmul(one)(other)


def test_operands_on_two_devices(cuda):
    devices = jax.local_devices()
    if len(devices) < 2:
        pytest.skip("needs two GPUs")
    x, y = jax.device_put(A, devices[0]), jax.device_put(A.T.copy(), devices[1])
    with pytest.raises(ArgumentError, match=r"a is committed to device \w+:0 and b to \w+:1; pass jax"):
        pyclmm.matmul(x, y)
    got = pyclmm.matmul(array(A), y)  # JAX moves what is committed to no device
    assert (got.devices(), got.committed) == ({devices[1]}, True)
    assert np.array_equal(got, A @ A.T)


@pytest.mark.parametrize("product", [pyclmm.matmul, lambda x, y: pyclmm.matmul_many([(x, y)] * 2)[1]])
def test_arrays_that_are_committed_to_no_device_are_multiplied_where_they_are(cuda, product):
    """JAX would call on its default device, with that one's stream."""
    device = jax.local_devices()[-1]
    with jax.default_device(device):
        x, y = jax.device_put(A), jax.device_put(A.T.copy())
    for default in (None, jax.local_devices()[0], device):
        for _ in range(2):
            with jax.default_device(default):
                got = product(x, y)
            assert (got.devices(), got.committed) == ({device}, False)
            assert np.array_equal(got, A @ A.T)


@pytest.mark.parametrize(
    "product",
    [
        pyclmm.matmul,
        lambda a, b: pyclmm.matmul_many([(a, b)])[0],
        lambda a, b: linalg.einsum("ij,jk->ki", a, b),
    ],
)
def test_a_traced_function_outlives_the_plan_of_a_product_in_it(cuda, product):
    a, b = array(A), array(A.T.copy())
    c = product(product(a, b), product(a, b))
    traced = jax.jit(lambda x: x + product(product(a, b), product(a, b)))
    for number in (1, 2):
        assert np.array_equal(traced(np.float32(number)), c + number)
        pyclmm.release()
        gc.collect()
