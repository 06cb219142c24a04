"""What a reader must know before trusting a comparison, one sentence each; and what machine
measurements and predictions are of, as cards.

Of the machine: what others took of it, and how its speed moved, by CPU seconds, so that what others
took does not count as slowness.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recsim_train.config.measured import MachineSpeeds
from recsim_train.report import naming, text
from recsim_train.report.strategies import cautions, reconstructions
from recsim_train.results.environment import counted_cores, same_machine
from recsim_train.results.row import flat_settings
from recsim_train.results.rundir import RunRecord
from recsim_train.results.undisturbed import MOVED, Moved, broken, drift_of, moved

BUSY_SHARE = 0.25
"""Background load above this share of the cores is worth a warning."""
_CHANGED = 0.10
"""Relative change of the machine's speed during a run that is worth a sentence: a single reading
scatters, too."""
Pairs = Sequence[tuple[RunRecord, RunRecord]]
"""(prediction, measurement)."""


def beside(pairs: Pairs) -> dict[str, str]:
    """At most one sentence of each kind, whatever the number of measurements."""
    reals = list({real.path: real for _, real in pairs}.values())
    found = {
        "others": _others(reals),
        "load": _load(reals),
        "since": _since(pairs, len(reals)),
        "during": _during(reals),
    }
    return {kind: sentence for kind, sentence in found.items() if sentence}


def _others(reals: Sequence[RunRecord]) -> str:
    """By the ledger of the counted window."""
    busy = []
    for real in reals:
        use = real.facts.ledger and real.facts.ledger.machine
        if use and (other := use.others + use.steal) > BUSY_SHARE * use.cores:
            busy.append((other, use.cores, real.run_id))
    if not busy:
        return ""
    other, cores, name = max(busy)
    taken = f"{other:.1f} of {counted_cores(cores)}"
    if len(busy) == 1:
        return (
            f"While {name} was measured, other work took {taken}, so the measurement may be too "
            "slow."
        )
    return (
        f"While {len(busy)} of {len(reals)} measurements ran, other work took up to {taken}, so "
        "they may be too slow."
    )


def _load(reals: Sequence[RunRecord]) -> str:
    """By the load average, of runs without a ledger of the machine."""
    busy = []
    for real in reals:
        if real.facts.ledger is not None and real.facts.ledger.machine is not None:
            continue
        load = real.environment.get("load")
        cores = real.environment.get("cores")
        if isinstance(load, int | float) and isinstance(cores, int) and load > BUSY_SHARE * cores:
            busy.append((load, cores, real.run_id))
    if not busy:
        return ""
    load, cores, name = max(busy)
    if len(busy) == 1:
        what = f"when {name} began: load {load:.1f}"
    else:
        what = f"when {len(busy)} of {len(reals)} measurements began: load up to {load:.1f}"
    where = counted_cores(cores)
    return f"The machine was busy {what} on {where}, so the measurement may be too slow."


def _since(pairs: Pairs, measurements: int) -> str:
    """Of the machine that the profile names."""
    far = {}
    for simulated, real in pairs:
        drift = drift_of(simulated, real)
        if drift.named and drift.since is not None and drift.since.far:
            far[real.run_id] = drift.since.change
    if not far:
        return ""
    if len(far) == 1:
        ((name, change),) = far.items()
        return (
            f"Before and after {name} the idle machine's reference work ran {_way(change)} than at "
            "its calibration: the error contains that."
        )
    return (
        f"Before and after {len(far)} of {measurements} measurements the idle machine's "
        f"reference work ran at another speed than at its calibration ({_span(far.values())}): "
        "the errors contain that."
    )


def since_calibration(pairs: Pairs) -> list[str]:
    """The machine's speed idle before and after all of them, a sentence for each calibration."""
    speeds: dict[MachineSpeeds, dict[Path, MachineSpeeds]] = {}
    for simulated, real in pairs:
        drift = drift_of(simulated, real)
        if drift.calibration is not None and drift.run is not None:
            speeds.setdefault(drift.calibration, {})[real.path] = drift.run
    found = (moved(there, list(here.values())) for there, here in speeds.items())
    return [speed_sentence(one) for one in found if one is not None]


def speed_sentence(one: Moved) -> str:
    """How fast the machine was, relative to its calibration."""
    runs = "the run" if one.runs == 1 else f"the {one.runs} runs"
    error = "" if one.error is None else f" ± {text.percent(one.error)}"
    each = f"; more than {text.percent(MOVED)} off beside {one.off} of them" if one.runs > 1 else ""
    return (
        f"The machine's speed, idle before and after {runs}, against that at its calibration: "
        f"{text.percent(one.change, signed=True)}{error}{each}."
    )


def _during(reals: Sequence[RunRecord]) -> str:
    moved = {}
    for real in reals:
        change = real.facts.machine_speed and real.facts.machine_speed.change
        if change and abs(change) > _CHANGED:
            moved[real.run_id] = change
    if not moved:
        return ""
    if len(moved) == 1:
        ((name, change),) = moved.items()
        what = f"ran {_way(change)} after {name} than before it"
    else:
        what = (
            f"changed its speed during {len(moved)} of {len(reals)} measurements "
            f"({_span(moved.values())})"
        )
    return f"The idle machine's reference work {what}: its speed changed meanwhile."


def _way(change: float) -> str:
    return f"{text.percent(abs(change))} {'faster' if change > 0 else 'slower'}"


def _span(changes: Collection[float]) -> str:
    low, high = (text.percent(edge(changes), signed=True) for edge in (min, max))
    return f"{low} to {high}"


Card = tuple[str, list[tuple[str, str]]]
"""Title, and (term, meaning) pairs."""


def environments(records: Iterable[RunRecord]) -> list[Card]:
    """One card per profile and per machine."""
    cards = (
        _profile_card(record) if record.world == "simulated" else _machine_card(record)
        for record in records
    )
    return list({repr(card): card for card in cards}.values())


def _profile_card(record: RunRecord) -> Card:
    cluster = record.manifest.get("cluster") or {}
    calibration = cluster.get("calibration") or {}
    told = calibration.get("machine_speed")
    host = (cluster.get("hosts") or {}).get("default") or {}
    rows = {
        "profile": cluster.get("name"),
        "calibrated": calibration.get("date") or "no: prices are assumed",
        "on": calibration.get("machine"),
        "cores per host": host.get("cores"),
        "memory per host": text.size(host.get("memory")) if host.get("memory") else None,
        "network": f"{host['nic'] * 8 / 1e9:.3g} Gbit/s" if host.get("nic") else None,
        "types of hosts": "; ".join(record.facts.host_types),
        "latency": text.seconds((cluster.get("network") or {}).get("latency")),
        "load while calibrating": calibration.get("background_load"),
        "idle speed at calibration": _speeds(told and MachineSpeeds.model_validate(told)),
        "calibrated with": _versions(calibration.get("versions")),
        "simulated with": _versions(record.environment.get("versions")),
    }
    return "Prediction", [(k, str(v)) for k, v in rows.items() if v not in (None, "")]


def _machine_card(record: RunRecord) -> Card:
    e = record.environment
    memory = e.get("memory_bytes")
    ledger = record.facts.ledger
    use = None if ledger is None else ledger.machine
    load = e.get("load") if use is None else None
    rows = {
        "machine": e.get("machine"),
        "host": e.get("host"),
        "system": e.get("system"),
        "memory": text.size(memory) if memory else None,
        "date": e.get("date"),
        "load before": None if load is None else f"{load:.2f} on {counted_cores(e.get('cores'))}",
        "others' load": use and f"{use.others + use.steal:.2f} of {counted_cores(use.cores)}",
        "idle speed": _speeds(record.facts.machine_speed),
        "revision": e.get("revision"),
        "versions": _versions(e.get("versions")),
    }
    return "Measurement", [(k, str(v)) for k, v in rows.items() if v not in (None, "")]


def _speeds(speeds: MachineSpeeds | None) -> str:
    """Of the reference work on idle cores, before and after."""
    if speeds is None:
        return ""
    before, after = (end and end.overall for end in (speeds.before, speeds.after))
    each = (("before", before), ("after", after))
    return ", ".join(f"{speed:.3f} {when}" for when, speed in each if speed is not None)


def _versions(versions: Any) -> str:
    if not isinstance(versions, dict):
        return ""
    return ", ".join(f"{name} {version}" for name, version in versions.items())


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
