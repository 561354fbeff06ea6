"""Proof on five OpenCL implementations, and compilation for devices that are not there."""
