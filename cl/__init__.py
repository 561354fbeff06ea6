"""OpenCL C sources, installed as package data."""
