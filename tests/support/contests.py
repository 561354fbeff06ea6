"""Contests between kernels, in which a test says how long a run takes, what fails and what is wrong.

The one place where tests replace what `bench`, `compare`, `road` and the demo measure.
"""

from functools import partial
from itertools import count, cycle

from pyclmm.tools import bench, timing
from pyclmm.tools.timing import Sample


class Contests:
    """What runs in the contests of a test.

    ``order``: the contestants, as they ran. ``instead``: name -> what is done in place of a run, a function
    of that run which gives a Sample. ``result``: a function of a kernel's result, which gives what is found.
    """

    def __init__(self, patch):
        self.order, self.instead = [], {}
        self.result = lambda found: found
        self._patch, run = patch, timing.Contestant.run

        def one(contestant):
            self.order.append(contestant.name)
            real = partial(run, contestant)
            return self.instead.get(contestant.name, lambda real: real())(real)

        patch.setattr(timing.Contestant, "run", one)
        result = timing.Contestant.result

        def read(contestant):
            found = result(contestant)
            return found if contestant.name == timing.NUMPY else self.result(found)

        patch.setattr(timing.Contestant, "result", read)

    def take(self, **seconds):
        """Each kernel's runs are right, and take these seconds, in turn."""
        for name, each in seconds.items():
            times = cycle(each if isinstance(each, tuple) else (each,))
            self.instead[name] = lambda real, times=times: real() and Sample(next(times))

    def fail(self, name, error, at=1):
        """The run *at* of that kernel raises *error*."""
        runs = count(1)

        def run(real):
            if next(runs) == at:
                raise error
            return real()

        self.instead[name] = run

    def beside(self, others):
        """All contests ran beside *others*, a :class:`bench.Others`."""
        self._patch.setattr(bench.Others, "processors", property(lambda _: others.busy / others.seconds))
