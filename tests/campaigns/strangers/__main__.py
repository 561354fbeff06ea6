"""`make strangers`: runs the suites, prints a table and what failed.

    python -m tests.campaigns.strangers [--suites NAME ...] [--driver NAME]
                                        [--cupy PATH] [--array-api-tests PATH]

Exit codes: 0 success, 1 an unexpected failure or a listed difference that passes, 2 a suite could not be set
up. Without --suites all run, except those whose checkout is not named.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ...conformance.implementations import IMPLEMENTATIONS
from ...conformance.packages import SetupError
from .differences import DIFFERENCES
from .run import Run, driver_environment, run
from .suites import HOME, SUITES, MissingError, Suite, prepare

HEAD = ("suite", "driver", "passed", "products", "expected differences", "failed", "other")


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    names = [suite.name for suite in SUITES]
    drivers = [implementation.name for implementation in IMPLEMENTATIONS]
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.strangers")
    parser.add_argument(
        "--suites", nargs="+", choices=names, metavar="NAME", help=f"{', '.join(names)}; default: all"
    )
    parser.add_argument(
        "--driver", choices=drivers, help="one of make conformance; default: the default device"
    )
    parser.add_argument("--cupy", type=Path, metavar="PATH", help="a checkout; default: the sources on PyPI")
    parser.add_argument("--array-api-tests", type=Path, metavar="PATH", help="a checkout, with its submodule")
    return parser.parse_args(words)


def row(suite: Suite, done: Run) -> tuple[str, ...]:
    counts = (
        done.count("passed"),
        done.products,
        done.count("difference"),
        len(done.failures),
        done.count("other"),
    )
    return (suite.title, done.driver, *map(str, counts))


def markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *others = rows
    return "\n".join("| " + " | ".join(each) + " |" for each in (head, ["---"] * len(head), *others))


def main(words: Sequence[str] | None = None) -> int:
    options = arguments(words)
    rows, failures, missing = [HEAD], [], []
    try:
        env = driver_environment(options.driver)
    except SetupError as error:
        print(error, file=sys.stderr)
        return 2
    for suite in (each for each in SUITES if not options.suites or each.name in options.suites):
        checkout = options.cupy if suite.sdist else options.array_api_tests if suite.checkout else None
        try:
            python, sources = prepare(suite, checkout and checkout.resolve())
        except MissingError as error:
            print(f"{suite.name} is not run: {error}")
            if options.suites or not suite.checkout:
                missing.append(suite.name)
            continue
        log = HOME / f"{suite.name}-{options.driver or 'default'}.json"
        done = run(suite.name, python, sources, suite.tests, {**env, **suite.env}, DIFFERENCES, log)
        rows.append(row(suite, done))
        failures += [f"{suite.name}: {failure}" for failure in done.failures]
    print(markdown(rows))
    print("\n".join(failures))
    return 1 if failures else 2 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
