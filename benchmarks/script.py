"""What scripts of benchmarks/ do alike: options, tables in Markdown, spreads, growth, the machine.

Statistics of interleaved rounds are in paired.py.
"""

from __future__ import annotations

import argparse
import math
import shlex
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def options(
    about: str | None, names: Mapping[str, Any], given: Sequence[str] | None = None
) -> argparse.Namespace:
    """The command line's, by the names that argparse takes: (default, help), whose default is the
    type, or a mapping of what `add_argument` takes."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, settings in names.items():
        if isinstance(settings, tuple):
            default, said = settings
            typed = {"type": type(default), "default": default}
            parser.add_argument(
                name, help=said, **({"action": "store_true"} if default is False else typed)
            )
        else:
            parser.add_argument(name, **settings)
    return parser.parse_args(given)


def row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def table(head: Sequence[str], rows: Iterable[Iterable[object]]) -> list[str]:
    return [row(head), "|" + "---|" * len(head), *map(row, rows)]


def spread(values: Iterable[float], digits: str) -> str:
    """Median and range."""
    found = sorted(values)
    if not found:
        return ""
    middle = format(statistics.median(found), digits)
    return middle + f" ({found[0]:{digits}} .. {found[-1]:{digits}})" * (len(found) > 1)


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Least-squares slope of log(value) over log(size): 1 is linear, 0 is flat."""
    if len(sizes) < 2:
        return math.nan
    logarithms = ([math.log(value) for value in column] for column in (sizes, values))
    return statistics.linear_regression(*logarithms).slope


def circumstances(about: Mapping[str, Any]) -> str:
    """One sentence. ``about``: `recsim_train.results.environment.machine`'s, or more than that."""
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    where = f"{about['date']}, {about['machine']}, {about['system']}"
    return f"{where}, revision {about.get('revision', 'unknown')}; {versions}."


def command() -> str:
    """How this script was started."""
    return shlex.join(["python", *sys.argv])
