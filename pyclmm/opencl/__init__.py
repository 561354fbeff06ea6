"""Everything that talks to a driver: devices, queues, programs, memory, launches."""
