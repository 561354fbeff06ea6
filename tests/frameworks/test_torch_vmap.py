"""pyclmm.torch's functions within torch.func.vmap, with gradients: against PyTorch's own."""

import pytest

from tests.support.tensors import applied, same_with_gradients

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("mapped", ["x", "weight", "bias", "x and weight"])
def test_activations(torch, door, device, mapped, activation):
    """A mapped tensor says that it requires no gradient, whatever is asked of the stack."""
    names = ("x", "weight", "bias")
    shapes = {"x": (3, 4), "weight": (6, 4), "bias": (6,)}
    for wanted in names:
        xs = [
            torch.randn((5, *its) if name in mapped else its, dtype=torch.float64, device=device)
            for name, its in shapes.items()
        ]
        xs[names.index(wanted)].requires_grad_()

        def ours(x, weight, bias):
            return door.gemm(x, weight, trans_b="T", bias=bias, activation=activation)

        def theirs(x, weight, bias):
            return applied(torch, activation, torch.nn.functional.linear(x, weight, bias))

        in_dims = tuple(0 if name in mapped else None for name in names)
        got, want = (torch.func.vmap(each, in_dims)(*xs) for each in (ours, theirs))
        same_with_gradients(torch, got, want, xs[names.index(wanted)])


def test_an_ensemble_of_models(torch, door, device):
    class Layer(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(6, 4, device=device))

        def forward(self, x):
            return door.gemm(x, self.weight, trans_b="T", activation="gelu")

    layers, x = [Layer() for _ in range(3)], torch.randn(2, 4, device=device)
    weights, _ = torch.func.stack_module_state(layers)
    mapped = torch.func.vmap(lambda its: torch.func.functional_call(layers[0], its, (x,)))(weights)
    mapped.square().sum().backward()
    for layer, found in zip(layers, weights["weight"].grad, strict=True):
        layer(x).square().sum().backward()
        torch.testing.assert_close(found, layer.weight.grad)
