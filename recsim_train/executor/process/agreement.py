"""What the ranks of one run must agree on, and who differs: settings, placement, code, data."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from recsim_train.config.dump import resolved
from recsim_train.placement.plan import Instance, Plan
from recsim_train.results.environment import versions

Terms = dict[str, str]
"""A value for each thing that must be the same, by its name."""

_LOOK = 1 << 16
"""Bytes at a file's beginning that are compared."""
_DIGITS = 12
_MOST = 5
"""Differences, and ranks beside each, that a sentence names."""
_PACKAGES = "recsim-train", "torch", "numpy"
NOT_SET = "not set"


def terms_of(plan: Plan, instance: Instance, world: int) -> Terms:
    """What this process takes for granted of the run. Raises OSError for a file that is not there.

    A data file may lie elsewhere on each machine: its size and its first rows count, among those
    who read it.
    """
    experiment = plan.experiment
    settings = resolved(experiment)
    settings["strategy"] = {"kind": plan.strategy.kind, **plan.options}
    data = settings["data"]
    terms = {"WORLD_SIZE": str(world)}
    paths = {key: data.pop(key, None) for key in ("path", "eval_path")}
    terms |= dict(_flat(settings))
    for key, path in paths.items():
        terms[f"data.{key}"] = NOT_SET if path is None else "a file"
        if path is not None and reads(plan, instance):
            terms[f"the file of data.{key}"] = _file(Path(path))
    terms["the placement, which the cluster profile decides"] = _digest(_placement(plan).encode())
    known = versions()
    terms |= {f"the version of {name}": known[name] for name in _PACKAGES if name in known}
    terms["recsim_train's source files"] = _source()
    return terms


def reads(plan: Plan, instance: Instance) -> bool:
    """Whether a process reads the data: readers, trainers without them, who evaluates."""
    if instance.role == "trainer":
        return instance.index == 0 or not plan.of_role("reader")
    return instance.role == "reader"


def differences(terms: Mapping[str, Mapping[str, str]]) -> str | None:
    """Who differs in what, in one sentence; None: nobody does.

    ``terms``: of each rank, by its name, in rank order. What a rank does not name because it has
    no use for it, such as a file, is no difference.
    """
    names = dict.fromkeys(name for one in terms.values() for name in one)
    found = []
    for name in names:
        values: dict[str, list[str]] = {}
        for rank, one in terms.items():
            if name in one or not name.startswith("the "):
                values.setdefault(one.get(name, NOT_SET), []).append(rank)
        if len(values) > 1:
            common_first = sorted(values.items(), key=lambda item: -len(item[1]))
            found.append(f"{name}: " + ", ".join(f"{v} at {_some(r)}" for v, r in common_first))
    if not found:
        return None
    more = f"; and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return (
        f"the ranks do not agree on the run: {'; '.join(found[:_MOST])}{more} (start all of them "
        "with the same experiment, options, data and version)"
    )


def _some(ranks: list[str]) -> str:
    if len(ranks) <= _MOST:
        return " and ".join(ranks)
    return f"{', '.join(ranks[: _MOST - 1])} and {len(ranks) - _MOST + 1} more"


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        for place, item in enumerate(value):
            yield from _flat(item, f"{name}[{place}]")
    else:
        yield name, str(value)


def _placement(plan: Plan) -> str:
    embedding, dense = plan.embedding, plan.dense
    shards = () if embedding is None else (embedding.shards, sorted(embedding.split_tables))
    return repr((plan.instances, shards, () if dense is None else dense.shards, plan.groups))


def _file(path: Path) -> str:
    with path.open("rb") as stream:
        begin = _digest(stream.read(_LOOK))
    return f"{path.stat().st_size:,} bytes beginning {begin}"


@functools.cache
def _source() -> str:
    package = Path(__file__).parents[1]
    whole = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        whole.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    return whole.hexdigest()[:_DIGITS]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]
