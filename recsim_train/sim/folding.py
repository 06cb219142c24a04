"""Folding: of many trainers that do the same some are simulated, each of which stands for several.

A simulated trainer's transfers and what servers do for it are that many activities at once; its own
host's work is its own. All members of a collective share its bytes as before, with the real size of
the group. Those that one stands for move in step, which makes their requests burstier by
O(1/simulated), and lose packets together: were trainers alike in all, they would do so anyway, but
messages part them (`recsim_train.sim.network`), as chance and the ids of batches do. So it
is an approximation, and the run says how much half as many simulated trainers change the answer.

In racks those stand for each other that are in the same one.

What stragglers do to those that wait for each other is kept: see `Lateness`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import ceil, lcm

import numpy as np

from recsim_train.config.cluster import Cluster
from recsim_train.placement.plan import Plan
from recsim_train.placement.program import TaggedNet
from recsim_train.sim.cluster.hosts import sites_of
from recsim_train.sim.jitter import Draw
from recsim_train.strategy.registry import strategies
from recsim_train.trace.record import Iteration, Outcome, Total, TotalKey

_MOST = 100
"""Of more trainers about so many are simulated, where the experiment does not say."""
_BUSY, _LOOPS, _FEW = 400, 64, 4
"""Where all loops together send more requests in a step, so many loops are simulated then, of so
many trainers at least, if these are half of them or less."""
_LEAST_STEPS = 16
"""Counted iterations of each loop, however many loops there are."""
_WHAT_IF_TRAINERS = 16
"""How many of folded trainers are simulated in short runs, where the experiment does not say."""


@dataclass(frozen=True, slots=True)
class Folding:
    """The first ``simulated`` of ``trainers`` trainers are simulated."""

    trainers: int
    simulated: int

    @property
    def exact(self) -> bool:
        """Whether all are simulated."""
        return self.simulated == self.trainers

    def standing(self, trainer: int) -> int:
        """How many trainers a simulated one stands for, itself included."""
        return len(self.like(trainer))

    def like(self, trainer: int) -> range:
        """All that a simulated trainer stands for."""
        return range(trainer, self.trainers, self.simulated)

    def loops(self, plan: Plan) -> int | None:
        """Of how many loops the batches are needed: the first ones. None: of all."""
        if self.exact or plan.shares_batches:
            return None
        return len(plan.feeding) // self.trainers * self.simulated

    def stand_in(self, trainer: int) -> int:
        """Who stands for a trainer: one with the same place in its group of hosts."""
        return trainer % self.simulated


def folding_of(plan: Plan, cluster: Cluster, *, most: int | None = None) -> Folding:
    """How a plan is folded; ``most``: trainers to simulate at most (None: as configured)."""
    trainers = plan.experiment.roles.trainers
    every = Folding(trainers, trainers)
    settings = plan.experiment.simulation
    if most is None:
        most = settings.fold_above
    if most is None:
        most = _usual(plan)
    if not most or not foldable(plan) or not _alike(cluster):
        return every
    # places in a group differ where the net is cut
    hosts = max([1, *(group.size for group in plan.topology.groups)])
    if plan.embedding is not None:
        hosts = max(hosts, plan.embedding.service.group)
    if isinstance(plan.net, TaggedNet):
        hosts = max(hosts, plan.net.hosts)
    # trainers of one host share it, so that only whole hosts are alike
    together = cluster.together("trainer")
    if trainers % together:
        return every
    hosts = lcm(hosts, together)
    if cluster.topology is not None:
        hosts = lcm(hosts, together * cluster.topology.racks)
    blocks = trainers // hosts
    wanted = max(1, most // hosts)
    if blocks <= wanted:
        return every
    found = Folding(trainers, hosts * _some(blocks, wanted))
    return found if _same_places(plan, cluster, found) else every


def parted(plan: Plan, folding: Folding) -> bool:
    """Whether loops are put out of step in their second iteration, which does not count.

    Many free loops that begin together part by themselves within some dozen steps, and are slower
    until then. Fewer steps are simulated of those that stand for others. (A few may stay in step.)
    """
    free = not strategies()[plan.strategy.kind].lock_step
    many = not folding.exact and requests_of(plan) > _BUSY
    return free and many and plan.experiment.training.warmup_steps > 1


def least_steps(plan: Plan, folding: Folding) -> int:
    """Counted iterations of each loop before a prediction may end early; where loops are parted
    those of one that stands for others are theirs, too."""
    simulation = plan.experiment.simulation
    loops = len(plan.training)
    if not parted(plan, folding):
        loops = loops // folding.trainers * folding.simulated
    together = ceil(simulation.minimum_iterations / loops)
    return min(simulation.minimum_steps, max(_LEAST_STEPS, together))


def compared_steps(plan: Plan, folding: Folding, steps: int) -> int:
    """Of so many counted ones those of a second run that is compared with the first over the same:
    of parted loops half, which differ by as much (over sixteen predictions 3.9 % for 3.5 % where
    half as many trainers are simulated, 2.8 for 2.7 % where another queue is)."""
    return ceil((steps + 1) / 2) if parted(plan, folding) else steps


def _usual(plan: Plan) -> int:
    """From how many trainers on they are folded, where the experiment does not say."""
    trainers = plan.experiment.roles.trainers
    few = trainers_of(plan, _LOOPS, least=_FEW)
    return few if requests_of(plan) > _BUSY and trainers >= 2 * few else _MOST


def trainers_of(plan: Plan, loops: int, *, least: int) -> int:
    """How many trainers have so many loops."""
    return max(least, ceil(loops * plan.experiment.roles.trainers / len(plan.training)))


def requests_of(plan: Plan) -> int:
    """Those to servers, or to each other, in one step of all loops."""
    services = (plan.embedding, plan.dense)
    shards = sum(len(service.shards) for service in services if service is not None)
    return len(plan.training) * max(1, shards)


def of_short_runs(plan: Plan, cluster: Cluster, folding: Folding) -> Folding:
    """How the short runs that ask "what if" are folded, of a prediction that is folded so."""
    most = plan.experiment.simulation.what_if_trainers
    if not folding.exact:
        most = min(most or _WHAT_IF_TRAINERS, folding.simulated)
    return folding_of(plan, cluster, most=most) if most else folding


def _some(blocks: int, most: int) -> int:
    """At most ``most`` of ``blocks``: a divisor where one is not much smaller."""
    even = next(n for n in range(min(most, blocks), 0, -1) if blocks % n == 0)
    return even if 2 * even > most else ceil(blocks / ceil(blocks / most))


def foldable(plan: Plan) -> bool:
    """Whether trainers ask nothing of each other but collectives."""
    own = plan.embedding is None or plan.embedding.service.access == "own"
    asked = [] if plan.dense is None else [shard.host for shard in plan.dense.shards]
    if plan.embedding is not None and not own:
        asked += [shard.host for shard in plan.embedding.shards]
    return all(host.role != "trainer" for host in asked)


def _same_places(plan: Plan, cluster: Cluster, folding: Folding) -> bool:
    """Whether each trainer is in the rack, and on a type of host, of the one that stands for it."""
    if cluster.topology is None and not cluster.mixed:
        return True
    sites = sites_of(plan, cluster)
    hosts = [sites[trainer].host for trainer in plan.of_role("trainer")]
    places = [(host.rack, host.kind) for host in hosts]
    return all(place == places[folding.stand_in(n)] for n, place in enumerate(places))


def _alike(cluster: Cluster) -> bool:
    """Whether all trainers' surroundings are the same but for racks and types of hosts, and stay
    so."""
    stragglers = cluster.stragglers
    differ = stragglers is not None and (stragglers.slow or stragglers.episodes)
    others = cluster.background or cluster.failures
    return not (cluster.colocate or differ or others)


class Lateness:
    """Those that one loop stands for: when the last of them is done.

    They see the network as their stand-in does, but meet stragglers of their own. The loop keeps
    what it computed since all last met; at the next meeting the others' times for the same work
    are drawn, and the slowest one counts.
    """

    __slots__ = ("_draw", "_mine", "_others", "_work")

    def __init__(self, draw: Draw, others: int) -> None:
        self._draw = draw
        self._others = others
        self._work: list[float] = []
        self._mine = 0.0

    def add(self, seconds: float, taken: float) -> None:
        """Work of ``seconds`` took ``taken``."""
        self._work.append(seconds)
        self._mine += taken

    def latest(self) -> float:
        """Seconds by which the last of the others is later; begins anew."""
        work, mine = self._work, self._mine
        self._work, self._mine = [], 0.0
        if not work or self._others <= 0:
            return 0.0
        slowest = max(self._draw(self._others, len(work)) @ np.array(work))
        return max(0.0, float(slowest) - mine)


def everyones(iterations: list[Iteration], folding: Folding) -> list[Iteration]:
    """Those of simulated trainers, for every trainer."""
    if folding.exact:
        return iterations
    copies = _copies(folding)
    return [Iteration(n, i.iteration, i.start, i.end) for i in iterations for n in copies(i.loop)]


def _copies(folding: Folding) -> Callable[[str], tuple[str, ...]]:
    """ "trainer[0].worker[1]" gives that of every trainer that trainer[0] stands for."""

    @cache
    def copies(name: str) -> tuple[str, ...]:
        if not name.startswith("trainer["):
            return (name,)
        index, _, rest = name.removeprefix("trainer[").partition("]")
        return tuple(f"trainer[{number}]{rest}" for number in folding.like(int(index)))

    return copies


def unfold(outcome: Outcome, folding: Folding) -> None:
    """Give every trainer the records of its stand-in; spans stay those of the simulated ones."""
    if folding.exact:
        return
    copies = _copies(folding)
    outcome.iterations = everyones(outcome.iterations, folding)
    outcome.rounds = everyones(outcome.rounds, folding)
    outcome.syncs = [sync._replace(loop=n) for sync in outcome.syncs for n in copies(sync.loop)]
    totals: dict[TotalKey, Total] = {}
    for key, total in outcome.totals.items():
        instances, loops = copies(key.instance), copies(key.loop)
        if len(instances) == 1:
            instances = instances * len(loops)
        elif len(loops) == 1:
            loops = loops * len(instances)
        for instance, loop in zip(instances, loops, strict=True):
            totals[TotalKey(instance, loop, key.effect, key.name)] = Total(
                total.count, total.seconds, total.bytes
            )
    outcome.totals = dict(sorted(totals.items()))
