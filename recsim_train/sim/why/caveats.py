"""What a prediction says beside its throughput: what its CPU seconds rest on, what it assumes of
values and ids that it does not see, and its hosts, racks and failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil, fsum

from recsim_train.results.statistics import counted
from recsim_train.sim.host.machines import Machines
from recsim_train.sim.pricing import Pricing, Rest
from recsim_train.sim.runtime import Runtime
from recsim_train.trace.facts import Resting
from recsim_train.trace.ledger import Booked
from recsim_train.trace.record import Outcome
from recsim_train.workload.compression import GRADIENTS
from recsim_train.workload.shape import dense_tensors

_FEW = 5
"""Below so many random failures their effect is one of chance."""
_APART = 1.05
"""How much faster training is while all loops train than until all are done, for a warning."""


def say_surroundings(outcome: Outcome, runtime: Runtime, steps: int, aborted: str = "") -> None:
    """Note racks, slow hosts, failures, and trainers that differ, where there are any.

    ``aborted``: which failure has ended the run.
    """
    plan, cluster = runtime.plan, runtime.machines.cluster
    there, facts = runtime.machines.there, outcome.facts
    eps = None if outcome.speed is None else outcome.speed.examples_per_second
    if cluster.topology is not None:
        racks = {i.name: site.host.rack for i, site in there.sites.items()}
        facts.racks = {name: rack for name, rack in racks.items() if rack is not None}
    facts.slow_hosts = {i.name: site.slow for i, site in there.sites.items() if site.slow > 1.0}
    chosen = counted(runtime.records.iterations, plan.experiment.training.warmup_steps, steps)
    faults, batch = there.faults, plan.experiment.training.batch_size
    said = [f"{aborted}: recovery.policy is stop, so the run ends there"] if aborted else []
    if faults.any:
        facts.reliability = faults.reliability(chosen, batch=batch, examples_per_second=eps)
        random = cluster.failures is not None and cluster.failures.mtbf is not None
        if random and len(faults.failures) < _FEW:
            said.append(
                f"hosts failed {len(faults.failures)} times in {runtime.engine.now:.3g} s of "
                "simulated time, too few for a mean; raise training.steps"
            )
        if plan.experiment.checkpoint.every is not None and cluster.checkpoints is None:
            said.append(
                f"cluster profile {cluster.name} has no prices of checkpoints (`recsim-train "
                "calibrate` measures them): making one and loading it are taken to cost nothing"
            )
    speed = outcome.speed
    if speed is not None and eps is not None and speed.seconds > 0.0:
        whole = speed.examples / speed.seconds
        if (cluster.mixed or cluster.stragglers or cluster.failures) and eps > _APART * whole:
            said.append(
                f"trainers end at different times: until the slowest has done its steps it is "
                f"{whole:,.0f} examples/s; {eps:,.0f} is while all of them train"
            )
    outcome.warn(said)


def rested(
    booked: Booked, rests: Mapping[str, Mapping[Rest, float]]
) -> Iterator[tuple[str, Rest, float]]:
    """(operation or other work, what it rests on, its CPU seconds).

    Of an operation that was asked for at different shapes, which do not all rest on the same, its
    seconds are shared out as those of one call of each shape are.
    """
    for (_, what, _), seconds in booked.items():
        shapes = rests.get(what, {})
        once = fsum(shapes.values())
        if not once:
            yield what, "unit", seconds
        for rest, share in shapes.items() if once else ():
            yield what, rest, seconds * share / once


def resting(machines: Machines, pricing: Pricing) -> Resting:
    """The shares of all CPU seconds that a simulation has spent."""
    whole = machines.cpu_seconds(machines.engine.fluid.used())
    found: dict[str, list[float]] = {"measured": [], "scaled": [], "unit": []}
    for _, rest, seconds in rested(machines.books.seconds, pricing.rests):
        found[rest].append(seconds)
    shares = {rest: fsum(parts) / whole if whole > 0.0 else 0.0 for rest, parts in found.items()}
    beyond = max(1.0, fsum(shares.values()))  # what goes on at the end is booked, not yet spent
    measured, scaled = (shares[x] / beyond for x in ("measured", "scaled"))
    return Resting(measured, scaled, max(0.0, 1.0 - measured - scaled))


def resting_in_words(found: Resting) -> Iterator[str]:
    """A sentence where operations were measured."""
    if found.measured or found.scaled:
        yield (
            f"Of the predicted CPU seconds {found.measured:.1%} rest on operations measured at "
            f"their own shapes, {found.scaled:.1%} on such that are scaled by the nearest measured "
            f"shape, {found.unit:.1%} on unit prices."
        )


def assumed(runtime: Runtime, outcome: Outcome) -> Iterator[str]:
    """A sentence for each assumption that this run rests on."""
    data = runtime.plan.experiment.data
    shares = [share for service in runtime.embedding.values() for share in service.joint_shares]
    if shares and data.path is not None and not data.generate:
        yield (
            f"How many ids trainers' batches have in common is not counted in "
            f"{data.named(data.path)}: an update of all trainers' gradients is taken to touch "
            f"{sum(shares) / len(shares):.0%} of the rows that they touch apart, by the "
            f"generator's law with exponent {data.synthetic.zipf:g} (data.synthetic.zipf). Set "
            "that to the exponent of the file's ids."
        )
    rests = runtime.pricing.rests.get("forward_backward", {})
    if runtime.plan.experiment.model.module is not None and {*rests} - {"measured"}:
        yield (
            "The passes of the module (model.module) were not timed on this profile's machine: "
            "their time is a guess from what torch's operators do. `recsim-train calibrate --for "
            "EXPERIMENT` times them."
        )
    yield from _filling(runtime, outcome)


def _filling(runtime: Runtime, outcome: Outcome) -> Iterator[str]:
    """Where thresholds are not fresh at each exchange, and exchanges are few."""
    done = {"threshold": 0, "sparsify": 0}
    for key, total in outcome.totals.items():
        if key.name in done:
            done[key.name] += total.count
    loops = [loop for loop in runtime.loops if GRADIENTS in loop.tallies]
    if done["threshold"] >= done["sparsify"] or not loops:
        return
    share = loops[0].share
    exchanges = loops[0].tallies[GRADIENTS].values // sum(
        dense_tensors(runtime.plan.experiment.model)
    )
    needed = ceil(1.0 / share)
    if exchanges < needed:
        yield (
            f"A threshold is taken to let {100 * share:.3g} % of the entries pass at every "
            "exchange. That holds once what is not sent has piled up, after about "
            f"{needed:,} exchanges, and this run has {exchanges:,}: until then, and between two "
            f"thresholds, the values decide how much {runtime.plan.topology.thresholded} sends."
        )
