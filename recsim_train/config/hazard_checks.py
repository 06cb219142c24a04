"""Checks across fields of a profile's racks, stragglers, traffic and failures."""

from __future__ import annotations

from collections.abc import Sequence

from recsim_train.config.cluster import Cluster
from recsim_train.config.hazards import Stragglers
from recsim_train.config.problems import Findings
from recsim_train.config.topology import Topology, Traffic


def check_surroundings(cluster: Cluster, findings: Findings) -> None:
    """What surrounds the hosts fits together, and there are hosts for it."""
    if cluster.colocate:
        for key in ("mixed", "topology", "background", "failures"):
            if getattr(cluster, key):
                message = (
                    "with colocate: true all roles are processes of one machine, so there are no "
                    "hosts to tell apart; leave it out or set colocate: false"
                )
                findings.add((key,), message, at_key=True)
        for key in ("slow", "episodes"):
            if cluster.stragglers is not None and getattr(cluster.stragglers, key):
                message = "with colocate: true all roles are on one machine: no host is slower"
                findings.add(("stragglers", key), message, at_key=True)
    if cluster.topology is not None:
        _check_topology(cluster.topology, findings)
    if cluster.stragglers is not None:
        _check_stragglers(cluster.stragglers, findings)
    if cluster.background:
        _check_traffic(cluster.background, cluster.topology is not None, findings)
    failures = cluster.failures
    if failures is not None:
        if failures.mtbf is not None and failures.mtbf <= 0:
            findings.add(("failures", "mtbf"), "expected a duration above 0")
        if failures.restart <= 0:
            findings.add(("failures", "restart"), "expected a duration above 0")
        if failures.mtbf is not None and 0 < failures.mtbf <= failures.restart:
            message = "expected more than restart: such hosts would be down most of the time"
            findings.add(("failures", "mtbf"), message)
        if failures.mtbf is None and not failures.schedule:
            findings.add(("failures",), "expected mtbf, schedule or both: nothing ever fails")


def _check_topology(topology: Topology, findings: Findings) -> None:
    given = [topology.uplink, topology.oversubscription]
    if (given[0] is None) == (given[1] is None):
        message = "expected either uplink (such as '100 Gbit/s') or oversubscription (such as 4)"
        findings.add(("topology",), message)
    if topology.uplink is not None and topology.uplink <= 0:
        findings.add(("topology", "uplink"), "expected a data rate above 0")


def _check_stragglers(stragglers: Stragglers, findings: Findings) -> None:
    for n, slow in enumerate(stragglers.slow):
        if bool(slow.hosts) == (slow.share is not None):
            message = "expected either hosts (such as ['trainer[2]']) or share (such as 10 %)"
            findings.add(("stragglers", "slow", n), message)
        if slow.share is not None and not 0.0 < slow.share <= 1.0:
            message = "expected a share above 0 % and at most 100 %"
            findings.add(("stragglers", "slow", n, "share"), message)
    for n, episodes in enumerate(stragglers.episodes):
        for key in ("every", "duration"):
            if getattr(episodes, key) <= 0:
                findings.add(("stragglers", "episodes", n, key), "expected a duration above 0")
    hiccups, tail = stragglers.hiccups, stragglers.tail
    if hiccups is not None and hiccups.probability > 1.0:
        findings.add(("stragglers", "hiccups", "probability"), "expected at most 100 %")
    if tail is not None:
        wanted, other = "deviation", "index"
        if tail.distribution == "pareto":
            wanted, other = other, wanted
        if getattr(tail, wanted) is None:
            message = f"missing; a {tail.distribution} tail needs it"
            findings.add(("stragglers", "tail", wanted), message)
        if getattr(tail, other) is not None:
            message = f"a {tail.distribution} tail has none; it has {wanted}"
            findings.add(("stragglers", "tail", other), message, at_key=True)


def _check_traffic(background: Sequence[Traffic], racks: bool, findings: Findings) -> None:
    sums: dict[str, float] = {}
    for n, traffic in enumerate(background):
        path = ("background", n)
        if traffic.link == "uplink" and not racks:
            findings.add((*path, "link"), "there are no uplinks without a topology with racks")
        if traffic.link == "uplink" and traffic.role is not None:
            findings.add((*path, "role"), "uplinks belong to racks; a role has NICs", at_key=True)
        if (traffic.burst is None) != (traffic.pause is None):
            findings.add(path, "expected burst and pause, or neither: then it is always there")
        for key in ("burst", "pause"):
            if getattr(traffic, key) is not None and getattr(traffic, key) <= 0:
                findings.add((*path, key), "expected a duration above 0")
        sums[traffic.link] = sums.get(traffic.link, 0.0) + traffic.share
        if sums[traffic.link] >= 1.0:
            message = (
                f"the shares of all traffic on one {traffic.link} must stay below 100 %, "
                f"and add up to {sums[traffic.link]:.0%}: training would get nothing"
            )
            findings.add((*path, "share"), message)
