"""Parts: pieces of an algorithm that several strategies compose, chosen by name like a strategy.

A part is a dataclass; its fields are its keys in the YAML, below the option that holds it. Parts
that can take each other's place form a family, and a strategy's field names the family's base
class as its type. A third party adds one through the entry-point group ``recsim_train.parts``
(name = family.kind, value = the class).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import ClassVar, TypeVar

ENTRY_POINTS = "recsim_train.parts"
_BUILT_IN = {
    "compression": {
        "none": "recsim_train.strategy.compression:NoCompression",
        "dct": "recsim_train.strategy.compression:DCT",
    },
    "synchroniser": {
        "easgd": "recsim_train.strategy.synchronisers:Easgd",
        "ma": "recsim_train.strategy.synchronisers:ModelAveraging",
        "bmuf": "recsim_train.strategy.synchronisers:Bmuf",
        "none": "recsim_train.strategy.synchronisers:Never",
        "auto": "recsim_train.strategy.synchronisers:Auto",
    },
}


class Part:
    """Base of all parts."""

    family: ClassVar[str]
    kind: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str] = ""


P = TypeVar("P", bound=Part)
_registered: dict[tuple[str, str], type[Part]] = {}


def part(default: type[P], *, help: str, fits: Callable[[type[P]], bool] | None = None) -> P:
    """A strategy's setting that is a part: a dataclass field with a help line.

    ``fits``: which parts of the family may be chosen; None: all.
    """
    return dataclasses.field(default_factory=default, metadata={"help": help, "fits": fits})


def register_part(made: type[P]) -> type[P]:
    """Add a part in this process (a notebook, a test); usable as a decorator.

    Raises ValueError where the name is taken by another class of the family.
    """
    known = parts(made.family).get(made.kind)
    if known is not None and known.__qualname__ != made.__qualname__:
        raise ValueError(f"a {made.family} named {made.kind!r} exists already")
    _registered[made.family, made.kind] = made
    return made


def registered(options: Mapping[str, object]) -> list[type[Part]]:
    """The parts that only `register_part` has made known, as far as options may name them."""
    named: list[object] = []
    for value in options.values():
        named += value.values() if isinstance(value, Mapping) else [value]
    return [made for (_, kind), made in _registered.items() if kind in named]


@functools.cache
def _installed(family: str) -> dict[str, type[Part]]:
    built_in = _BUILT_IN.get(family, {})
    found: dict[str, type[Part]] = {kind: resolve_name(what) for kind, what in built_in.items()}
    for entry in entry_points(group=ENTRY_POINTS):
        owner, _, kind = entry.name.partition(".")
        if owner == family:
            found.setdefault(kind, entry.load())
    return found


def parts(family: str) -> dict[str, type[Part]]:
    """Every known part of a family by its name."""
    return {
        **_installed(family),
        **{kind: made for (owner, kind), made in _registered.items() if owner == family},
    }
