"""Calibration of emulated links: what crosses them, how fast, and what that costs the cores."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot
from pathlib import Path
from statistics import median
from typing import Any

from recsim_train.calibration.child import both_ends
from recsim_train.calibration.fit import MOST_UNCERTAIN
from recsim_train.calibration.prices import fit_wire, latency_of, wire_observations
from recsim_train.calibration.wire_probe import small_plan
from recsim_train.config.cluster import Cluster, Price
from recsim_train.config.topology import RoleName
from recsim_train.executor.emulation.cluster import EmulatedCluster, check_here
from recsim_train.executor.emulation.layout import layout_of
from recsim_train.executor.process.forkserver import HERE, NetworkPlace
from recsim_train.placement.hosts import kinds_of

PRICES = ("message", "wire_byte")
"""What messages cost the cores at each of their ends."""
_ENDS: tuple[RoleName, ...] = ("trainer", "embedding_server")
"""The first of each."""
_LIMIT = 150.0
"""Seconds for both ends."""
_ONE = 0.97
"""One connection that carries this share of what two carry is limited by the link alone."""


@dataclass(frozen=True, slots=True)
class LinkFigures:
    """Of the link between two emulated hosts."""

    latency: float
    """Seconds one way, beyond the messages' own CPU time."""
    efficiency: float
    """Payload's share of the profile's rate."""
    connection_cap: float | None
    """Bytes per second of one connection; None: one carries what the link does."""
    dearer: dict[str, float]
    """By price: how many times what it is over loopback."""

    def on(self, profile: Cluster) -> Cluster:
        """The profile with these figures in place of its own."""
        network = {
            "network.latency": self.latency,
            "network.efficiency": min(1.0, self.efficiency),
            "network.connection_cap": self.connection_cap,
        }
        prices = {}
        for name, factor in self.dearer.items():
            was = getattr(profile.costs, name)
            unsure = min(MOST_UNCERTAIN, hypot(was.uncertainty, abs(factor - 1.0) / 2))
            prices[f"costs.{name}"] = Price.model_construct(
                value=was.value * factor, uncertainty=unsure, basis=was.basis
            )
        return profile.with_({**network, **prices})


def measure_links(profile: Cluster) -> LinkFigures:
    """Between a trainer and an embedding server of this profile, without racks, on idle cores.

    A price is compared between namespaces and loopback, both bare round trips of the same sizes: in
    a run it is dearer, by what calibration found there. Raises UserError where hosts cannot be
    emulated, RunFailed where a part fails.
    """
    check_here()
    alone = profile.model_copy(update={"topology": None})
    rate = min(kind.nic for kind in kinds_of(small_plan().instances, alone).values())
    with EmulatedCluster(layout_of(small_plan(), alone)) as hosts:
        across = _ends([hosts.place(f"{role}[0]") for role in _ENDS], rate)
    here = fit_wire(wire_observations(_ends([HERE, HERE], rate)))
    there = fit_wire(wire_observations(across))
    dearer = {
        name: there.prices[name].value / here.prices[name].value
        for name in PRICES
        if here.prices[name].value > 0.0
    }
    one, two = (min(end["streams"][n] for end in across) for n in range(2))
    smallest = median(end["talks"][0]["wall"] for end in across)
    return LinkFigures(
        latency=latency_of(smallest, there.prices["message"].value),
        efficiency=max(one, two) / rate,
        connection_cap=None if one >= _ONE * two else one,
        dearer=dearer,
    )


def _ends(places: Sequence[NetworkPlace], rate: float) -> list[Any]:
    with tempfile.TemporaryDirectory(prefix="recsim-calibrate-") as path:
        return both_ends("link", Path(path) / "store", {"rate": rate}, _LIMIT, places)
