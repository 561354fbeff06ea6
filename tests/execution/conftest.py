"""What tests of calls share: an event that holds queues up."""

import pyopencl as cl
import pytest

COMPLETE = cl.command_execution_status.COMPLETE


@pytest.fixture
def held(context):
    """A user event that is not complete. It is completed after the test, so that nothing waits forever."""
    event = cl.UserEvent(context)
    yield event
    if event.command_execution_status != COMPLETE:
        event.set_status(COMPLETE)
