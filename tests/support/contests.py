"""Contests between kernels, in which a test says how long a run takes, what fails and what is wrong.

The one place where tests replace what `bench`, `compare`, `road` and the demo measure.
"""

from itertools import cycle

from pyclmm.tools import bench, timing
from pyclmm.tools.timing import Sample


class Contests:
    """What runs in the contests of a test.

    ``order``: the contestants, as they ran. ``instead``: name -> what is done in place of a run, a function
    that returns its Sample. ``result``: a function of a right result, which returns what is found.
    """

    def __init__(self, patch):
        self.order, self.instead, self.result = [], {}, None
        self._patch, run = patch, timing.Contestant.run

        def one(contestant):
            self.order.append(contestant.name)
            return self.instead.get(contestant.name, lambda: run(contestant))()

        patch.setattr(timing.Contestant, "run", one)
        for kind in (timing.Contestant, timing.OnArrays, timing.OnHost):
            self._read_by(kind, kind.result)

    def _read_by(self, kind, result):
        def read(contestant):
            found = result(contestant)
            return found if self.result is None else self.result(found)

        self._patch.setattr(kind, "result", read)

    def take(self, **seconds):
        """Each kernel's runs take these seconds, in turn."""
        for name, each in seconds.items():
            samples = cycle(map(Sample, each if isinstance(each, tuple) else (each,)))
            self.instead[name] = lambda samples=samples: next(samples)

    def fail(self, name, error, at=1):
        """The run *at* of that kernel raises *error*; those before are as without."""
        runs, before = iter(range(1, at)), self.instead.get(name, lambda: Sample(1e-3))

        def run():
            if next(runs, None) is None:
                raise error
            return before()

        self.instead[name] = run

    def beside(self, others):
        """All contests ran beside *others*, a :class:`bench.Others`."""
        self._patch.setattr(bench.Others, "processors", property(lambda _: others.busy / others.seconds))
