"""Resources by class: how busy over time, what each class allows, how many servers it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

import numpy as np
from numpy.typing import NDArray

from recsim_train.config.cluster import Cluster
from recsim_train.placement.hosts import hosts_left
from recsim_train.placement.plan import Plan
from recsim_train.sim.fluid.resources import Resource
from recsim_train.trace.binding import class_of
from recsim_train.trace.facts import Busiest, OverTime, ServersNeeded

_BINS = 60
"""Points of a curve at most."""
_SERVERS = ("embedding_server", "dense_server", "reader")

Snapshot = tuple[float, list[float]]
"""(time, units consumed so far of each resource)."""


def over_time(resources: Sequence[Resource], snapshots: Sequence[Snapshot]) -> OverTime | None:
    """Busy share of each class between each two of some snapshots; None below two.

    Capacities are taken as the highest that they ever are.
    """
    chosen = _thinned(snapshots)
    if len(chosen) < 2:
        return None
    classes: dict[str, list[int]] = {}
    for place, resource in enumerate(resources):
        classes.setdefault(class_of(resource.name), []).append(place)
    capacity = np.array([resource.capacity for resource in resources])
    times = np.array([time for time, _ in chosen])
    shares: NDArray[np.float64] = np.diff(np.array([used for _, used in chosen]), axis=0)
    shares /= np.diff(times)[:, None] * capacity
    busy: dict[str, tuple[float, ...]] = {}
    busiest: dict[str, Busiest] = {}
    for name, members in sorted(classes.items()):
        mine = shares[:, members]
        busy[name] = _rounded(mine.mean(axis=1))
        most = int(mine.sum(axis=0).argmax())
        busiest[name] = Busiest(resources[members[most]].name, _rounded(mine[:, most]))
    return OverTime(float(times[0]), tuple(times[1:].tolist()), busy, busiest)


def _rounded(shares: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(round(float(share), 4) for share in np.minimum(shares, 1.0))


def _thinned(snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    """At most `_BINS` intervals of about the same length, none of them empty."""
    if len(snapshots) < 2:
        return list(snapshots)
    start, end = snapshots[0][0], snapshots[-1][0]
    kept = [snapshots[0]]
    for snapshot in snapshots[1:]:
        due = kept[-1][0] + (end - start) / _BINS
        if snapshot[0] > kept[-1][0] and (snapshot[0] >= due or snapshot is snapshots[-1]):
            kept.append(snapshot)
    return kept


def by_class(bounds: Mapping[str, float]) -> dict[str, float]:
    """The tightest bound of each class of resources, examples/s; "loops" stays what it is."""
    found: dict[str, float] = {}
    for resource, bound in bounds.items():
        name = resource if resource == "loops" else class_of(resource)
        found[name] = min(bound, found.get(name, bound))
    return tightest_first(found)


def tightest_first(bounds: Mapping[str, float]) -> dict[str, float]:
    """Bounds in order, equal ones by their names."""
    return dict(sorted(bounds.items(), key=lambda item: (item[1], item[0])))


def servers_needed(
    plan: Plan, cluster: Cluster, bounds: Mapping[str, float]
) -> dict[str, ServersNeeded]:
    """Of each role that serves: how many there are, and how many it takes not to bind.

    The sizing lemma of parameter servers (Zou et al. 2017, arXiv 1709.06622, re-derived) with every
    resource of a server instead of its NIC alone, and for the busiest server instead of the mean:
    n servers allow n / present times what the busiest one allows, if the load still divides as it
    does now, and need not allow more than what binds elsewhere.
    """
    found = {}
    left = hosts_left(plan.instances, cluster)
    for role in _SERVERS:
        present = len(plan.of_role(role))  # type: ignore[arg-type]
        here = [b for name, b in bounds.items() if name.startswith(f"{role}[")]
        elsewhere = [b for name, b in bounds.items() if not name.startswith(f"{role}[")]
        if present and here and elsewhere:
            needed = max(1, ceil(present * min(elsewhere) / min(here) * (1.0 - 1e-9)))
            found[role] = ServersNeeded(present, needed, min(here), min(elsewhere), left)
    return found
