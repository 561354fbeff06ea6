"""What tests of commands share: children whose answers a test gives, and the laws that are tried."""

import json

import pytest

from pyclmm.checks import fixed_products, worker
from pyclmm.tools import laws, multiply_command, probes, selftest
from tests.support.probes import Probes


class Children:
    """The children that a command starts: none, but what a test says in their place.

    ``requests``: what each was asked; ``limits``: its seconds. ``scripts``: what each answers, and its
    failure or None. ``answers``: a function of a request that yields answers, where there are no scripts.
    """

    def __init__(self):
        self.requests, self.limits, self.scripts, self.answers = [], [], [], None

    def ask(self, module, request, limit, hear, environment=None):
        self.requests.append(request)
        self.limits.append(limit)
        said, failure = self.scripts.pop(0) if self.answers is None else (self.answers(request), None)
        for answer in said:
            hear(json.loads(json.dumps(answer)))
        return failure


@pytest.fixture
def children(monkeypatch):
    made = Children()
    monkeypatch.setattr(worker, "ask", made.ask)
    return made


@pytest.fixture
def measured(monkeypatch):
    """The probes, which measure nothing."""
    made = Probes()
    monkeypatch.setattr(probes, "measure", made.measure)
    return made


@pytest.fixture
def use_laws(monkeypatch):
    """A function: these laws are tried in this process, and of the fixed products these."""

    def use(tried, products=fixed_products.PRODUCTS):
        monkeypatch.setattr(selftest, "_LAWS", len(tried) + 2)
        for name, value in {"LAWS": tuple(tried), "PRODUCTS": tuple(products)}.items():
            monkeypatch.setattr(laws, name, value)

    return use


@pytest.fixture
def at_tile(monkeypatch):
    """A function: *hook* is called with the progress of `pyclmm multiply` after each tile."""
    hooks, real = [], multiply_command._listener

    def listener(on_stage, seen):
        tell = real(on_stage, seen)

        def told(at):
            tell(at)
            for hook in hooks[-1:]:
                hook(at)

        return told

    monkeypatch.setattr(multiply_command, "_listener", listener)
    return hooks.append


@pytest.fixture
def interrupted(at_tile):
    """Ctrl-C comes after the first tile. Call it for no more of that."""

    def press(at):
        raise KeyboardInterrupt

    at_tile(press)
    return lambda: at_tile(lambda at: None)
