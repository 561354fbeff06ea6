"""A multilayer perceptron trained on digits, on any OpenCL device: `python -m examples.mlp`."""
