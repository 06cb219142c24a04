"""What readers of a plan make at a time, as the sizes of the operation ``reading``."""

from __future__ import annotations

from recsim_train.config.formats import GENERATED, source_of
from recsim_train.placement.plan import Instance, Plan
from recsim_train.workload.reading import together
from recsim_train.workload.scope import Scope
from recsim_train.workload.shape import mean_ids


def positions_of(plan: Plan, reader: Instance | None) -> list[int]:
    """The places in the stream that a reader process makes batches for; None: the first reader
    thread."""
    loops = [loop for loop in plan.feeding if plan.reader_of(loop) == reader]
    return sorted({plan.positions[loop] for loop in (loops if reader else loops[:1])})


def reading_of(plan: Plan, reader: Instance | None) -> Scope:
    """What a reader process makes at a time; None: a reader thread beside its loop."""
    spec = plan.experiment
    source = source_of(spec.data.path)
    batches = 1 if source != GENERATED and reader is not None else together(plan.examples)
    rows = batches * plan.examples
    between = plan.streams / max(1, len(positions_of(plan, reader))) - 1.0
    return Scope(
        spec.model,
        spec.training,
        batch=plan.examples,
        ids=rows * sum(mean_ids(spec.model, t) for t in range(len(spec.model.tables))),
        batches=batches,
        skipped=rows * between if source != GENERATED else 0.0,
        source=source,
    )
