"""What a simulation assumes of values and ids that it does not see, in words."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from recsim_train.sim.runtime import Runtime
from recsim_train.trace.record import Outcome
from recsim_train.workload.compression import GRADIENTS
from recsim_train.workload.shape import dense_tensors

_COMMON_IDS = (
    "How many ids trainers' batches have in common is not counted in {path}: an update of all "
    "trainers' gradients is taken to touch {share:.0%} of the rows that they touch apart, by the "
    "generator's law with exponent {exponent:g} (data.synthetic.zipf). Set that to the exponent of "
    "the file's ids."
)
_FILLING = (
    "A threshold is taken to let {share:.3g} % of the entries pass at every exchange. That holds "
    "once what is not sent has piled up, after about {needed:,} exchanges, and this run has "
    "{exchanges:,}: until then, and between two thresholds, the values decide how much {effect} "
    "sends."
)


def assumed(runtime: Runtime, outcome: Outcome) -> Iterator[str]:
    """A sentence for each assumption that this run rests on."""
    data = runtime.plan.experiment.data
    shares = [share for service in runtime.embedding.values() for share in service.joint_shares]
    if shares and data.path is not None and not data.generate:
        yield _COMMON_IDS.format(
            path=data.path, share=sum(shares) / len(shares), exponent=data.synthetic.zipf
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
        yield _FILLING.format(
            share=100 * share,
            needed=needed,
            exchanges=exchanges,
            effect=runtime.plan.topology.thresholded,
        )
