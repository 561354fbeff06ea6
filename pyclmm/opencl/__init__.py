"""All calls of the OpenCL driver: devices, queues, programs, memory, launches.

Others import: array_fields, arrays, binding, clock, compiler, crash_marks, devices, forks, host_memory,
last_call, late_events, launcher, mappings, pocl, program, queues, single_flight, staging, status, steps,
user_rates, watch, workspace.
"""
