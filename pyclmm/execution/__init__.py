"""One planned product, carried out on host arrays or on device arrays.

Others import: device_path, host_path, operands, options.
"""
