"""What a reader must know before trusting a comparison: one sentence each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recsim_train.report import naming, text
from recsim_train.report.machine import beside
from recsim_train.report.strategies import cautions, reconstructions
from recsim_train.results.environment import same_machine
from recsim_train.results.row import flat_settings
from recsim_train.results.rundir import RunRecord
from recsim_train.results.undisturbed import broken

NOISY = 0.10
"""Spread of a measurement above which repeats are advised."""


def caveats(simulated: RunRecord, repeats: Sequence[RunRecord]) -> list[str]:
    """Every reason to doubt a prediction and its measurements, in a fixed order, each once."""
    found: list[str] = []
    profile = simulated.manifest.get("cluster") or {}
    for real in repeats:
        found += _unfinished(simulated, real)
        found += _settings(simulated, real)
        found += elsewhere(profile, real.environment, measured=True)
    found += of_prediction(simulated)
    found += beside([(simulated, real) for real in repeats]).values()
    for real in repeats:
        found += disturbed(real)
        found += real.facts.warnings
        found += _data(simulated, real)
    return list(dict.fromkeys(found))


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
    plans = [record.manifest.get("plan") or {} for record in (simulated, real)]
    for shards in ("embedding_shards", "dense_shards"):
        if plans[0].get(shards) != plans[1].get(shards):
            yield (
                f"The {shards.replace('_', ' ')} were placed differently in the two worlds, "
                "so they did not do quite the same work."
            )
    ours = [r.environment["versions"].get("recsim-train") for r in (simulated, real)]
    if ours[0] != ours[1]:
        yield f"The prediction was made by version {ours[0]}, the measurement by {ours[1]}."


def doubts_of(record: RunRecord) -> list[str]:
    """What must be known of a run that nothing stands beside."""
    if record.world == "simulated":
        return of_prediction(record)
    return [*_unfinished(record), *disturbed(record), *record.facts.warnings, *cautions(record)]


def disturbed(record: RunRecord) -> Iterator[str]:
    """That this machine did not leave a measurement's emulated hosts alone."""
    facts = record.facts
    if facts.emulated is None or facts.ledger is None or not record.whole:
        return
    if why := "; ".join(broken(record.summary, modelled=bool(facts.slept))):
        yield (
            f"This machine disturbed the emulated hosts of {record.run_id}, whose figures may say "
            f"nothing of them ({why})."
        )


def of_prediction(simulated: RunRecord) -> list[str]:
    """What must be known of a prediction wherever it is shown, each sentence once: what its profile
    rests on, where it extrapolates, what the simulator left out, and what its strategy is."""
    cluster = simulated.manifest.get("cluster") or {}
    said = [
        *_unsure(cluster),
        *_range(cluster, simulated.manifest["configuration"]),
        *map(naming.phrase, simulated.facts.warnings),
        *cautions(simulated),
        *reconstructions(simulated),
    ]
    return list(dict.fromkeys(said))


def elsewhere(
    cluster: Mapping[str, Any], environment: Mapping[str, Any], *, measured: bool = False
) -> Iterator[str]:
    """Where a profile is of another machine or torch than there are. ``cluster``: the profile;
    ``environment``: as
    `recsim_train.results.environment.machine` has it; ``measured``: it is that of a measurement,
    else of whoever asks for a prediction."""
    calibration = cluster.get("calibration")
    if not calibration:
        return
    name = cluster.get("name", "?")
    here = str(environment.get("machine") or "") or "not named"
    measured_on = str(calibration.get("machine") or "")
    if not same_machine(measured_on, environment):
        other = f"describes another machine ({measured_on or 'not named'}) than"
        if measured:
            yield f"The profile {name!r} {other} the one measured ({here})."
        else:
            yield f"The profile {name!r} {other} this one ({here}): so do the predictions."
    theirs = (calibration.get("versions") or {}).get("torch")
    torch = environment["versions"].get("torch")
    if theirs and torch and theirs != torch:
        uses = f"the run used torch {torch}" if measured else f"here torch {torch} is installed"
        yield f"The profile was calibrated with torch {theirs}, {uses}."


def _unsure(cluster: Mapping[str, Any]) -> Iterator[str]:
    """Of a profile that was not calibrated; and of a prediction for a cluster: its model of cores
    and network was held to emulated hosts only."""
    if cluster and not cluster.get("calibration"):
        yield (
            f"The profile {cluster.get('name', '?')!r} was not calibrated: its prices are "
            "assumptions."
        )

    if cluster and not cluster.get("colocate"):
        yield (
            f"The profile {cluster.get('name', '?')!r} gives processes hosts of their own: "
            "how these share links was measured on emulated hosts only, not on a real cluster, and "
            "their cores are predicted by equal fluid shares (docs/explain/how-true.md)."
        )


def _settings_of(configuration: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Every numeric setting by its dotted name, from the least to the largest of its values; of the
    model what calibration spans, too."""
    found = {
        name: (float(value), float(value))
        for name, value in flat_settings(configuration).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    model = configuration.get("model") or {}
    tables = model.get("tables") or ()
    ids = [float(table.get("ids") or 1) for table in tables]
    widths = [float(w) for key in ("bottom_mlp", "top_mlp") for w in (model.get(key) or ())[:-1]]
    for name, values in (("model.ids", ids), ("model.layer_width", widths)):
        if values:
            found[name] = min(values), max(values)
    if tables:
        found["model.tables"] = (float(len(tables)),) * 2
    return found


def _range(cluster: Mapping[str, Any], configuration: Mapping[str, Any]) -> Iterator[str]:
    calibration = cluster.get("calibration") or {}
    settings = _settings_of(configuration)
    for key, limits in sorted((calibration.get("valid_range") or {}).items()):
        named = [s for s in settings if s == key or s.rsplit(".", 1)[-1] == key]
        if len(named) != 1 or len(limits or ()) != 2:
            continue  # a range of something that is not one setting, such as bytes
        (least, most), (low, high) = settings[named[0]], limits
        for value in dict.fromkeys((least, most)):
            if not low <= value <= high:
                yield (
                    f"{named[0]} = {value:g} lies outside the calibrated range {low:g} to "
                    f"{high:g}: the prediction extrapolates."
                )


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
