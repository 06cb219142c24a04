"""What tells one configuration of a report from the others, in words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from recsim_train.results.row import flat_settings
from recsim_train.results.rundir import RunRecord
from recsim_train.strategy.options import flat

MODEL = "model.name"
FREE = ("simulation.", "execution.timeout", "execution.max_spans")
"""Settings that a prediction and its measurement need not share."""
LENGTHS = ("training.steps", "training.warmup_steps", *FREE)
"""Settings that hardly change a throughput: named only where nothing else differs."""


def labels(records: Sequence[RunRecord]) -> list[str]:
    """The strategies' names, with the settings, options and profiles in which they differ."""
    facts = [_facts(record) for record in records]
    names = []
    for fact in facts:
        same = [other for other in facts if other["strategy"] == fact["strategy"]]
        differing = [
            key
            for key in sorted(fact)
            if key not in ("strategy", "parts")
            and any(other.get(key) != fact[key] for other in same)
        ]
        # What a strategy is composed of belongs to its name, whatever else is compared.
        differing = [*(k for k in fact["parts"] if k not in differing), *differing]
        differing = [key for key in differing if not _named_by_model(key, same)]
        telling = [key for key in differing if not key.startswith(LENGTHS)] or differing
        shown = ", ".join(_said(key, fact[key]) for key in telling[:4])
        names.append(f"{fact['strategy']} ({shown})" if shown else str(fact["strategy"]))
    return names


def _named_by_model(key: str, facts: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the model's name alone tells what a setting of the model is, so that it need not be
    listed: models differ in many widths at once."""
    if key == MODEL or not key.startswith("model."):
        return False
    pairs = {(fact.get(MODEL), fact.get(key)) for fact in facts}
    models = {model for model, _ in pairs}
    return 1 < len(models) == len(pairs)


def _said(key: str, value: Any) -> str:
    name = "model" if key == MODEL else key.rsplit(".", 1)[-1]
    return f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"


def _facts(record: RunRecord) -> dict[str, Any]:
    """Flat settings of a run by which a reader tells it from others."""
    facts: dict[str, Any] = {"strategy": record.strategy}
    options = record.manifest["strategy"].get("options", {})
    facts |= {f"strategy.{key}": value for key, value in flat(options).items()}
    facts["parts"] = [
        f"strategy.{key}" for key, value in options.items() if isinstance(value, dict)
    ]
    facts["profile"] = (record.manifest.get("cluster") or {}).get("name")
    elsewhere = ("strategies", "strategy", "seed", "cluster")
    kept = {k: v for k, v in record.manifest["configuration"].items() if k not in elsewhere}
    listed = {
        k: json.dumps(v) if isinstance(v, list) else v for k, v in flat_settings(kept).items()
    }
    return facts | listed


def why_alone(record: RunRecord, records: Sequence[RunRecord]) -> str:
    """Why a run found no partner: the settings that the nearest candidate has otherwise."""
    other = "measurement" if record.world == "simulated" else "prediction"
    nearest: list[str] | None = None
    for candidate in records:
        if candidate.world == record.world or candidate.strategy != record.strategy:
            continue
        a, b = _facts(record), _facts(candidate)
        keys = sorted(
            k
            for k in a.keys() | b.keys()
            if k not in ("profile", "parts") and not k.startswith(FREE) and a.get(k) != b.get(k)
        )
        if nearest is None or len(keys) < len(nearest):
            nearest = [f"{k} is {a.get(k)} here and {b.get(k)} there" for k in keys]
    if nearest:
        more = f" and {len(nearest) - 3} more" if len(nearest) > 3 else ""
        return f"no {other} of the same settings: {', '.join(nearest[:3])}{more}"
    return f"no {other} of this strategy was given"
