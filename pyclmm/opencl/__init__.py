"""All calls of the OpenCL driver: devices, queues, programs, memory, launches.

Others import: arrays, binding, devices, disk_caches, doubts, forks, host_memory, last_call, launches,
mappings, program, queues, silent, single_flight, staging, status, steps, user_rates,
workspace.
"""
