"""All calls of the OpenCL driver: devices, queues, programs, memory, launches.

Others import: arrays, binding, devices, disk_caches, doubts, forks, host_memory, launches, program, queues,
silent, single_flight, status, user_rates.
"""
