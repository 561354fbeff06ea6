"""Queues of new contexts, in which nothing is built yet."""

import pyopencl as cl

from pyclmm.opencl.devices import default_device


def new_queue(device=None, **how):
    """A queue of a new context that lives as long as the queue. *device*: the default one if none is named.

    On Intel's CPU runtime a queue does not keep its context alive. PyOpenCL's queue keeps what it has told.
    """
    context = cl.Context([device or default_device()])
    queue = cl.CommandQueue(context, **how)
    assert queue.context == context
    return queue
