"""The figures of one run, typed; their JSON document, and back.

What has a default is left out of the document where it has that value (facts that a world does not
state); everything else is always there, null where there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from recsim_train.results.folder import clean_document
from recsim_train.results.statistics import Distribution
from recsim_train.trace.binding import Binding
from recsim_train.trace.facts import Facts


@dataclass(frozen=True, slots=True)
class Performed:
    """How often an effect was performed, client side."""

    count: int
    """In counted iterations of all loops."""
    loops: int
    """By so many."""


@dataclass(frozen=True, slots=True)
class Synchronisation:
    """How far apart trainers train; see the glossary."""

    elp: int
    """Example-level parallelism, examples."""
    staleness: Distribution | None
    """Iterations of others meanwhile; None in lock-step or without another loop."""
    sync_gap: Distribution | None
    """Iterations of a trainer between two of its syncs; None without them."""
    sync_gap_per_thread: float | None
    """Its mean / the trainer's loops."""
    rounds_per_second: float | None
    """Of one background loop; None without any."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Every figure of one run. Times in seconds, payload in bytes; None where a world has none."""

    world: str
    strategy: str
    status: str
    """complete, partial or interrupted, and whether it diverged, see `rundir.RunRecord.status`."""
    examples_per_second: float | None
    """None where nothing was counted."""
    ci95: tuple[float, float] | None
    """Of the same; None below two windows."""
    steps: int
    """Counted iterations of each training loop."""
    seconds: float
    """The counted window's."""
    examples: int
    bytes_sent: int
    """By all processes in the counted window."""
    binding: Binding | None
    bound_eps: float | None
    """Examples per second that no prediction can exceed."""
    loss: float | None
    """Held-out log loss."""
    auc: float | None
    normalized_entropy: float | None
    train_loss_first: float | None
    """Mean over the first tenth of the counted iterations."""
    train_loss_last: float | None
    batch_size: int
    trainers: int
    threads: int
    """Training loops of each trainer."""
    seconds_per_iteration: float | None
    time_by_effect: dict[str, float]
    """Of a mean iteration, with "other": what effects leave of it."""
    time_by_operation: dict[str, float]
    """The same with computations by name."""
    bytes_by_effect: dict[str, float | None]
    """Of one counted step of every loop, rounds of background loops in proportion."""
    total_bytes_by_effect: dict[str, int]
    """Of the counted steps, without background loops."""
    round_bytes_by_effect: dict[str, float]
    """If every background loop goes round once."""
    counted_iterations: int
    """Of all training loops."""
    count_by_effect: dict[str, Performed]
    synchronisation: Synchronisation
    utilisation: dict[str, float]
    """By resource: busy share of the counted window, 0..1."""
    facts: Facts
    operation_threads: int = 1
    """Threads that each operation of these loops runs on."""

    @property
    def computing_threads(self) -> int:
        """Of each trainer's training loops together."""
        return self.threads * self.operation_threads

    @property
    def cpu_per_example(self) -> dict[tuple[str, str], float] | None:
        """CPU seconds by (role, what), see `recsim_train.trace.ledger`; None without a ledger."""
        ledger, rate = self.facts.ledger, self.examples_per_second
        if ledger is None or not rate or ledger.total <= 0.0:
            return None
        return ledger.per_example(rate)


_SUMMARY = TypeAdapter(Summary)


def document_of(summary: Summary) -> dict[str, Any]:
    """As JSON can hold it."""
    return clean_document(_SUMMARY.dump_python(summary, exclude_defaults=True, warnings=False))


def summary_of(document: dict[str, Any]) -> Summary:
    """Back from `document_of`; what it does not know is left out. An earlier version's says what
    binds in words.

    Raises ValueError, a phrase that names the first key that is missing or not what it should be.
    """
    older = {"binding": (said := document.get("bottleneck")) and {"said": said}}
    try:
        return _SUMMARY.validate_python(older | document)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "missing":
            raise ValueError(f"lacks {key!r}") from None
        raise ValueError(f"holds no usable {key!r}: {first['msg'].lower()}") from None
