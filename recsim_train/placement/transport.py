"""How requests travel, and what readers make at a time, as far as both worlds must agree on it.

A request is one message, its head and its payload, and an answer another one.
"""

from __future__ import annotations

from recsim_train.config.experiment import Experiment
from recsim_train.config.formats import GENERATED, source_of
from recsim_train.placement.plan import Instance, Plan
from recsim_train.workload.reading import together
from recsim_train.workload.scope import Scope
from recsim_train.workload.shape import mean_ids, value_bytes

BUFFER_BYTES = 4 << 20
"""Wanted of the system for each direction of a TCP connection, at each end."""
SHARED_BYTES = 64 << 20
"""Of each ring between two processes of one host: for answers, for requests, for requests that are
made where they are sent from. Pages that are never used take no memory."""
SHARED_LEAST = 8 << 10
"""Bytes of the smallest payload that goes through shared memory."""
ACKNOWLEDGEMENT_BYTES = 8
"""Of an answer that says only that the request is done; not payload."""
BATCH_MESSAGES = 2 + 1.6
"""What a batch of a reader process takes at either end, in messages over gloo: its size and its
content are one each, and packing a batch, or taking it apart, takes what 1.6 do: 140 to 200
microseconds where a message took 85 to 105, by clocks in runs of 9 and of 26 tables."""
_NUMBERS = 5
"""Of the longest header, 8 bytes each, beside one count for each slice of the shard."""
ANSWER_HEAD = 8
"""Bytes before an answer's payload: its size."""
_SHARD_BYTES = 8


def shareable(size: int) -> bool:
    """Whether a payload of so many bytes goes through memory that is shared."""
    return SHARED_LEAST <= size <= SHARED_BYTES


def number_bytes(experiment: Experiment) -> int:
    """Bytes of a real number in requests that may be rounded (`executor.wire.Request.kind`)."""
    return value_bytes(experiment.model) if experiment.execution.wire == "full" else 2


def header_bytes(plan: Plan) -> int:
    """Room for the header of any request: its kind and fields."""
    shards = plan.embedding.shards if plan.embedding else ()
    return 8 * (_NUMBERS + max([len(shard.slices) for shard in shards], default=0))


def request_head(plan: Plan) -> int:
    """Bytes before a request's payload: its size, which shard is asked, and the header."""
    return ANSWER_HEAD + _SHARD_BYTES + header_bytes(plan)


def positions_of(plan: Plan, reader: Instance | None) -> list[int]:
    """The places in the stream that a reader process makes batches for; None: the first reader
    thread."""
    loops = [loop for loop in plan.feeding if plan.reader_of(loop) == reader]
    return sorted({plan.positions[loop] for loop in (loops if reader else loops[:1])})


def reading_of(plan: Plan, reader: Instance | None) -> Scope:
    """What a reader process makes at a time; None: a reader thread beside its loop."""
    spec = plan.experiment
    source = source_of(spec.data)
    batches = 1 if source != GENERATED and reader is not None else together(plan.examples)
    rows = batches * plan.examples
    ids = [rows * mean_ids(spec.model, table) for table in range(len(spec.model.tables))]
    return Scope(
        spec.model,
        spec.training,
        batch=plan.examples,
        ids=sum(ids),
        texts=sum(count for count, own in zip(ids, spec.data.texts, strict=False) if own),
        batches=batches,
        source=source,
    )
