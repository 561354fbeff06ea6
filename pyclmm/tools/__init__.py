"""What a person runs: the command line, benchmarks, the tuner, the self-test."""
