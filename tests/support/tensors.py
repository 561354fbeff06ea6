"""Tensors for tests of PyTorch's functions, and what those are compared with."""


def drawn(torch, device, *shape, dtype="float64", grad=True):
    x = torch.randn(shape, dtype=getattr(torch, dtype), device=device)
    return x.requires_grad_(grad)


def applied(torch, name, z):
    """The activation *name* of *z*, by PyTorch."""
    if name == "none":
        return z
    if name == "gelu_tanh":
        return torch.nn.functional.gelu(z, approximate="tanh")
    return getattr(torch.nn.functional, name)(z)


def same_with_gradients(torch, got, want, xs):
    """The values, and the gradients of *xs* for drawn ones of the result, are PyTorch's."""
    torch.testing.assert_close(got, want)
    weights = torch.randn_like(want)
    torch.testing.assert_close(*(torch.autograd.grad(y, xs, weights) for y in (got, want)))
