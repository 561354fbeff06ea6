"""A multilayer perceptron that learns digits, trained on any OpenCL device by pyclmm: `python -m examples.mlp`."""
