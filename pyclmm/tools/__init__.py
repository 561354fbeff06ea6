"""What a person runs: the command line, benchmarks, the tuner, the self-test.

Others import: cli, tuner.
"""
