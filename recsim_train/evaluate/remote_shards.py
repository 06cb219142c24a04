"""Remote shards in place of those in trainers, for bounds: as if servers on hosts like theirs had
all but a few of them.

Trainers that ask each other do not stand for each other (`recsim_train.evaluate.simulations`), so
that T of them send T times T requests. Where servers have the shards n trainers, those of one
group of hosts, stand for all. They have shards of their own, as all do, and are charged afterwards
with what the busiest server does for the T - n others.

The trainer with that shard asks others for less than they do. So of network cards is taken off what
a server receives from the trainers of a host (or sends them), of the busiest one more than of the
idlest one. Cores and interpreter locks are spared less than they do more for the other trainers of
the group; where there are none the same is taken off of them. What is left is a bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from recsim_train.data.counts import IdCounts, expected_counts
from recsim_train.data.replay import spread
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.levels import BOUND
from recsim_train.evaluate.simulations import representatives
from recsim_train.placement.plan import SERVERS, Plan, ServerRole
from recsim_train.sim.folding import Folding
from recsim_train.sim.why.usage import by_class, tightest_first
from recsim_train.trace.binding import class_of

_OTHER_END = {"NIC send": "NIC receive", "NIC receive": "NIC send"}
"""What a server receives its clients send."""


@dataclass(frozen=True, slots=True)
class RemoteShards:
    """A plan whose simulated trainers have a shard each, and servers the others."""

    case: Case
    folding: Folding
    moved: tuple[ServerRole, ...]
    """Who has what trainers had."""
    counts: IdCounts
    """By shard, wherever these are."""

    def together_again(self, bounds: Mapping[str, float]) -> dict[str, float]:
        """Of bounds by resource those by class, with the shards in trainers."""
        trainers, simulated = self.folding.trainers, self.folding.simulated
        names = {role.replace("_", " ") for role in self.moved}
        served: dict[str, list[float]] = {}
        for resource, bound in bounds.items():
            name = resource if resource == "loops" else class_of(resource)
            if name.partition(": ")[0] in names:
                served.setdefault(name, []).append(1.0 / bound)
        known = by_class(bounds)
        demand = {name: 1.0 / bound for name, bound in known.items() if name not in served}
        for name, each in served.items():
            owner, _, part = name.partition(": ")
            spared = served.get(f"{owner}: {_OTHER_END.get(part, part)}", [0.0])
            if part in _OTHER_END:
                sparing = self.case.cluster.together("trainer")
            else:
                sparing = int(simulated == 1)
            here = (trainers - simulated) * max(each) - sparing * (max(spared) - min(spared))
            mine = f"trainer: {part}"
            demand[mine] = demand.get(mine, 0.0) + here / trainers
        return tightest_first({name: 1.0 / each for name, each in demand.items() if each > 0.0})


def with_remote_shards(case: Case) -> RemoteShards | None:
    """A case of few representatives with as many servers as trainers for what all trainers ask each
    other for, and few of these that stand for all, or one group of hosts; None: they do not, are
    few, or their hosts differ."""
    plan, cluster = case.plan, case.cluster
    trainers, together = plan.experiment.roles.trainers, cluster.together("trainer")
    alike = not (cluster.colocate or cluster.mixed or cluster.topology or trainers % together)
    if not plan.trainers_serve or not alike:
        return None
    shared = plan.embedding if plan.embedding and plan.embedding.service.access == "all" else None
    services = zip(SERVERS, (shared, plan.dense), strict=True)
    moved = [role for role, service in services if service and not plan.of_role(role)]
    changes: dict[str, object] = {}
    for role in moved:
        changes |= {
            f"roles.{role}s": trainers,
            f"cluster.hosts.{role}": cluster.host("trainer"),
            f"cluster.per_host.{role}": together,
        }
    apart = case.with_(changes)
    if apart.plan.followed != plan.followed or apart.plan.topology != plan.topology:
        return None
    folding = representatives(apart)
    if trainers % folding.simulated:
        folding = representatives(apart.with_({"simulation.fold_above": BOUND.few.trainers}))
    if trainers <= 3 * folding.simulated or trainers % folding.simulated:
        return None
    counts = expected_counts(apart.plan)
    home = Case.of(_at_home(apart.plan, moved, counts, folding.simulated), apart.cluster)
    return RemoteShards(home, folding, tuple(moved), counts)


def _at_home(plan: Plan, moved: list[ServerRole], counts: IdCounts, count: int) -> Plan:
    """The simulated trainers have shards of their own."""
    embedding, dense = plan.embedding, plan.dense
    homes = dict(zip(_homes(plan, moved, counts, count), plan.of_role("trainer"), strict=False))
    if embedding is not None and "embedding_server" in moved:
        shards = (replace(s, host=homes.get(s.index, s.host)) for s in embedding.shards)
        embedding = replace(embedding, shards=tuple(shards))
    if dense is not None and "dense_server" in moved:
        parts = (replace(s, host=homes.get(s.index, s.host)) for s in dense.shards)
        dense = replace(dense, shards=tuple(parts))
    return replace(plan, embedding=embedding, dense=dense)


def _homes(plan: Plan, moved: list[ServerRole], counts: IdCounts, count: int) -> Sequence[int]:
    """Which shards: those of a group of so many that is neither large nor small; of trainers that
    own rows those of the ones that are simulated."""
    if "embedding_server" not in moved:
        return range(count)
    shards = range(plan.experiment.roles.trainers)
    if plan.topology.cache is not None:
        return spread(count, len(shards))
    ids = [shard.ids for shard in counts.shard_counts(0, 0)]
    groups = sorted(shards[::count], key=lambda n: sum(ids[n : n + count]))
    first = groups[len(groups) // 2]
    return shards[first : first + count]
