"""How far designs are from what predictions were held to (docs/explain/how-true.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from recsim_train.config.units import RATE
from recsim_train.designs.searching import Design
from recsim_train.placement.hosts import kinds_of
from recsim_train.report.winner import listed

MOST_HOSTS: Final = 15
"""Of a setting of `experiments/fidelity-clusters.yaml`, the emulated clusters that predictions of
hosts of their own are held to."""
FASTEST_LINK: Final = 1e9 / 8
"""Of those, bytes per second."""


def distances(designs: Sequence[Design]) -> Iterator[str]:
    """A line for each, from the first on; designs that are equally far share one."""
    alike: dict[str, list[str]] = {}
    for number, design in enumerate(designs, start=1):
        said = listed(list(_beyond(design)))
        alike.setdefault(said, []).append(str(number))
    for said, numbers in alike.items():
        whose = f"design{'s'[: len(numbers) > 1]} {listed(numbers)}"
        beyond = f"beyond what was measured in {said}" if said else "of a size that was measured"
        yield f"{whose}: {beyond}"


def _beyond(design: Design) -> Iterator[str]:
    job = design.candidate.job
    profile, plan = job.profile, job.plan
    kinds = kinds_of(plan.instances, profile).values()
    cores, measured = max(kind.cores for kind in kinds), profile.measured_cores
    if measured is not None and cores > measured:
        yield f"cores of a host ({cores}, prices are of {measured})"
    if plan.operation_threads > profile.threads.measured:
        yield (
            f"threads of an operation ({plan.operation_threads}, prices are of "
            f"{profile.threads.measured})"
        )
    if profile.colocate:
        return
    if design.candidate.hosts > MOST_HOSTS:
        yield f"hosts ({design.candidate.hosts}, emulated were {MOST_HOSTS})"
    fastest = max(kind.nic for kind in kinds)
    if fastest > FASTEST_LINK:
        yield (
            f"network cards ({RATE.format(fastest, 3)}, emulated were "
            f"{RATE.format(FASTEST_LINK, 3)})"
        )
