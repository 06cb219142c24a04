"""Predictions beside measurements that were made elsewhere (`report --measured FILE.csv`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recsim_train.report import text
from recsim_train.report.document import Column, Lines, Section, Table, Where
from recsim_train.report.runs import labels
from recsim_train.results.folder import clean
from recsim_train.results.interval import of_summary
from recsim_train.results.measured import MeasuredLine
from recsim_train.results.rundir import RunRecord


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """One measurement from elsewhere with a prediction of the same configuration."""

    line: MeasuredLine
    label: str
    """Of the prediction."""
    simulated: RunRecord

    @property
    def predicted_eps(self) -> float:
        """Examples per second."""
        eps = self.simulated.summary.examples_per_second
        assert eps is not None  # `beside` leaves the others out
        return eps

    @property
    def signed_error(self) -> float:
        """Predicted / measured - 1."""
        return self.predicted_eps / self.line.examples_per_second - 1

    @property
    def headline(self) -> str:
        """The finding in one sentence, without a full stop."""
        spread = f" ± {text.percent(self.line.spread)}" if self.line.spread else ""
        return (
            f"{self.label}: predicted {text.rate(self.predicted_eps)} examples/s, measured "
            f"elsewhere {text.rate(self.line.examples_per_second)}{spread}: "
            f"{text.percent(self.signed_error, signed=True)}"
        )

    def document(self) -> dict[str, Any]:
        """The entry of ``measured_elsewhere`` in the report's JSON."""
        found: dict[str, Any] = clean(
            {
                "where": self.line.where,
                "key": self.simulated.manifest["comparison_key"],
                "label": self.label,
                "cluster": (self.simulated.manifest.get("cluster") or {}).get("name"),
                "predicted_eps": self.predicted_eps,
                "predicted_interval": of_summary(self.simulated.summary),
                "measured_eps": self.line.examples_per_second,
                "measured_spread": self.line.spread,
                "signed_error": self.signed_error,
                "simulated_run": self.simulated.run_id,
            }
        )
        return found


def beside(
    lines: Sequence[MeasuredLine], records: Sequence[RunRecord]
) -> tuple[list[Elsewhere], list[str]]:
    """Each line with the predictions of its configuration, one for each profile; and a sentence for
    each line that has none, or may mean several."""
    predictions: dict[tuple[str, str], RunRecord] = {}
    for record in records:
        if record.world == "simulated" and record.summary.examples_per_second:
            profile = json.dumps(record.manifest.get("cluster"), sort_keys=True)
            predictions.setdefault((record.manifest["comparison_key"], profile), record)
    chosen = list(predictions.values())
    named = list(zip(labels(chosen), chosen, strict=True))
    pairs, unmatched = [], []
    for line in lines:
        fitting = [(label, record) for label, record in named if _fits(line, label, record)]
        keys = list(dict.fromkeys(record.manifest["comparison_key"] for _, record in fitting))
        if len(keys) == 1:
            pairs += [Elsewhere(line, label, record) for label, record in fitting]
        elif keys:
            several = ", ".join(f"{r.manifest['comparison_key']} ({label})" for label, r in fitting)
            unmatched.append(
                f"{line.title}: {len(keys)} predictions are of such settings; name one by its key: "
                f"{several}."
            )
        else:
            unmatched.append(f"{line.title}: no prediction of these settings was given.")
    return pairs, unmatched


def _fits(line: MeasuredLine, label: str, record: RunRecord) -> bool:
    summary = record.summary
    counts: Mapping[str, int] = {
        "trainers": summary.trainers,
        "threads": summary.computing_threads,
        "batch": summary.batch_size,
    }
    return (
        line.key in (None, record.manifest["comparison_key"])
        and line.strategy in (None, record.strategy, label)
        and all(counts[name] == value for name, value in line.counts.items())
    )


def section(pairs: Sequence[Elsewhere], unmatched: Sequence[str]) -> Section:
    """The table, and lines of the file that are in no row of it."""
    columns = {
        "configuration": [pair.label for pair in pairs],
        "predicted examples/s": [
            text.rated(pair.predicted_eps, of_summary(pair.simulated.summary)) for pair in pairs
        ],
        "measured": [text.rate(pair.line.examples_per_second) for pair in pairs],
        "spread": [
            text.NONE if p.line.spread is None else f"± {text.percent(p.line.spread)}"
            for p in pairs
        ],
        "signed error": [text.percent(pair.signed_error, signed=True) for pair in pairs],
        "from": [pair.line.where for pair in pairs],
    }
    words = ("configuration", "from")
    table = Table([Column(name, cells, name in words) for name, cells in columns.items()])
    title = "Measurements without a prediction"
    left = Lines(unmatched, Where.ALL, title, "unmatched", "off")
    return Section("Measured elsewhere", [table, left], name="elsewhere")
