"""What processes that are started here are told: the plan, and what only the launcher knows.

Imports no torch.
"""

from __future__ import annotations

import pickle
import sys
import typing
from pathlib import Path

import cloudpickle

from recsim_train.checkpoints.going_on import NONE_KEPT, Keeping
from recsim_train.config.experiment import StrategyChoice
from recsim_train.executor.part import EmulatedRoles
from recsim_train.placement.plan import Plan
from recsim_train.strategy import parts, registry
from recsim_train.strategy.base import Strategy
from recsim_train.strategy.parts import Part

_NAME = "plan.pickle"


def pack_registered(choice: StrategyChoice) -> bytes | None:
    """The strategies and parts that ``choice`` needs and that were registered in this process, on
    their way to its children; None where installed ones are enough.

    Children are fresh interpreters: they know what is installed, not what a notebook has defined. A
    class that can be imported travels by name, any other (of a notebook, of a function) by value.
    """
    needed: list[type[Strategy] | type[Part]] = [
        *registry.registered(choice),
        *parts.registered(choice.options),
    ]
    if not needed:
        return None
    for made in needed:
        _resolve(made)
    # The child imports from where this process does: a script's own folder is not installed.
    return pickle.dumps((sys.path, cloudpickle.dumps(needed)))


def register_packed(packed: bytes | None) -> None:
    """Register what `pack_registered` has packed, in another process."""
    if packed is None:
        return
    # In two steps: classes that travel by name are imported while they are unpickled.
    path, content = pickle.loads(packed)
    sys.path += [place for place in path if place not in sys.path]
    for made in pickle.loads(content):
        if issubclass(made, Strategy):
            registry.register(made)
        else:
            parts.register_part(made)


def _resolve(made: type[Strategy] | type[Part]) -> None:
    """Turn annotations that are text into types, where the names in them are known.

    Settings are read from annotations, and the module of a class that travels by value does not
    come along.
    """
    for owner in made.__mro__:
        if issubclass(owner, Strategy | Part) and "__annotations__" in vars(owner):
            known = typing.get_type_hints(owner)
            owner.__annotations__ = {name: known[name] for name in owner.__annotations__}


def write_spec(
    staging: Path,
    plan: Plan,
    emulated: EmulatedRoles | None = None,
    keeping: Keeping = NONE_KEPT,
) -> None:
    """The plan, which every process reads, with the classes that only this process knows."""
    told = plan, emulated, pack_registered(plan.strategy), keeping
    (staging / _NAME).write_bytes(pickle.dumps(told))


def read_spec(staging: Path) -> tuple[Plan, EmulatedRoles | None, Keeping]:
    """As it was written; the classes are registered here."""
    plan, emulated, own, keeping = pickle.loads((staging / _NAME).read_bytes())
    register_packed(own)
    return plan, emulated, keeping
