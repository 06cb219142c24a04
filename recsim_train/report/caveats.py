"""What a reader must know before trusting a comparison: one sentence each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from recsim_train.report import text
from recsim_train.report.compression import reconstructions
from recsim_train.report.cuts import cautions
from recsim_train.report.machine import beside
from recsim_train.results.environment import same_machine
from recsim_train.results.rundir import RunRecord
from recsim_train.results.sweep import flat_settings

NOISY = 0.10
"""Spread of a measurement above which repeats are advised."""


def caveats(simulated: RunRecord, repeats: Sequence[RunRecord]) -> list[str]:
    """Every reason to doubt a prediction and its measurements, in a fixed order, each once."""
    found: list[str] = []
    for real in repeats:
        found += _unfinished(simulated, real)
        found += _settings(simulated, real)
        found += _profile(simulated, real)
    found += unvalidated(simulated)
    found += _range(simulated)
    found += beside([(simulated, real) for real in repeats]).values()
    for real in repeats:
        found += stated(real)
        found += _data(simulated, real)
    return list(dict.fromkeys([*found, *cautions(simulated), *reconstructions(simulated)]))


def _unfinished(*records: RunRecord) -> Iterator[str]:
    for record in records:
        if not record.whole:
            message = str(record.manifest.get("message") or "").rstrip(".")
            why = f" ({message})" if message else ""
            yield (
                f"{record.run_id} is {record.status}{why}: its figures cover "
                f"{record.summary.steps} counted steps."
            )


def _settings(simulated: RunRecord, real: RunRecord) -> Iterator[str]:
    seeds = simulated.manifest.get("seed"), real.manifest.get("seed")
    if seeds[0] != seeds[1]:
        yield f"The seeds differ: {seeds[0]} predicted, {seeds[1]} measured."
    for shards in ("embedding_shards", "dense_shards"):
        if _placed(simulated, shards) != _placed(real, shards):
            yield (
                f"The {shards.replace('_', ' ')} were placed differently in the two worlds, "
                "so they did not do quite the same work."
            )
    ours = [r.environment["versions"].get("recsim-train") for r in (simulated, real)]
    if ours[0] != ours[1]:
        yield f"The prediction was made by version {ours[0]}, the measurement by {ours[1]}."


def _placed(record: RunRecord, shards: str) -> Any:
    return record.manifest.get("plan", {}).get(shards)


def _profile(simulated: RunRecord, real: RunRecord) -> Iterator[str]:
    cluster = simulated.manifest.get("cluster") or {}
    name = cluster.get("name", "?")
    calibration = cluster.get("calibration")
    if not calibration:
        yield f"The profile {name!r} was not calibrated: its prices are assumptions."
        return
    here = str(real.environment.get("machine") or "")
    measured_on = str(calibration.get("machine") or "")
    if not same_machine(measured_on, real.environment):
        yield (
            f"The profile {name!r} describes another machine ({measured_on or 'not named'}) than "
            f"the one measured ({here or 'not named'})."
        )
    theirs = calibration.get("versions", {}).get("torch")
    torch = real.environment["versions"].get("torch")
    if theirs and torch and theirs != torch:
        yield f"The profile was calibrated with torch {theirs}, the run used torch {torch}."


def unvalidated(record: RunRecord) -> Iterator[str]:
    """Of a prediction for a cluster: that its model of cores and network was never measured."""
    cluster = record.manifest.get("cluster") or {}
    if record.world == "simulated" and not cluster.get("colocate"):
        yield (
            f"The profile {cluster.get('name', '?')!r} gives every process a host of its own: "
            "their cores and network are predicted by equal fluid shares, which no measurement has "
            "validated; only predictions of one machine that all processes share (colocate: true) "
            "were held to measurements."
        )


def settings_of(record: RunRecord) -> dict[str, float]:
    """Every numeric setting of a run, by its dotted name."""
    return {
        name: float(value)
        for name, value in flat_settings(record.manifest["configuration"]).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _range(simulated: RunRecord) -> Iterator[str]:
    calibration = (simulated.manifest.get("cluster") or {}).get("calibration") or {}
    settings = settings_of(simulated)
    for key, limits in sorted((calibration.get("valid_range") or {}).items()):
        named = [s for s in settings if s == key or s.rsplit(".", 1)[-1] == key]
        if len(named) != 1 or len(limits) != 2:
            continue  # a range of something that is not one setting, such as bytes
        value, (low, high) = settings[named[0]], limits
        if not low <= value <= high:
            yield (
                f"{named[0]} = {value:g} lies outside the calibrated range {low:g} to {high:g}: "
                "the prediction extrapolates."
            )
    yield from stated(simulated)


def stated(record: RunRecord) -> Iterator[str]:
    """Warnings that a world put among its own facts."""
    yield from record.facts.warnings


def _data(simulated: RunRecord, real: RunRecord) -> Iterator[str]:
    epochs = real.facts.epochs
    if epochs is not None and epochs > 1:
        yield (
            f"The run went through its data more than once (epoch {math.ceil(epochs)}): later "
            "training loss is on rows seen before, so judge by the held-out figures."
        )
    malformed = sorted((real.facts.malformed_rows or {}).items())
    if kinds := ", ".join(f"{count:,} {kind}" for kind, count in malformed if count):
        yield f"Malformed rows of the data were replaced by others of their batch ({kinds})."
    for record in (simulated, real):
        dropped = record.manifest.get("dropped_spans", 0)
        if dropped:
            yield (
                f"{record.run_id} kept only its first spans ({dropped:,} were beyond "
                "execution.max_spans): its timeline is incomplete, its totals are exact."
            )


def noisy(spread: float | None, repeats: int) -> Iterator[str]:
    """A measurement too uncertain to judge by."""
    if spread is not None and spread > NOISY:
        advice = "repeat the run" if repeats < 3 else "quieten the machine"
        yield f"The measurement spreads by ± {text.percent(spread)}: {advice}."
