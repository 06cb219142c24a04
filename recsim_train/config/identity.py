"""The identity of an experiment: what a prediction and a measurement of it must share."""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePath
from typing import Any

from recsim_train.config.dump import plain
from recsim_train.config.experiment import Experiment, StrategyChoice

_KEY_DIGITS = 12


def resolved(experiment: Experiment) -> dict[str, Any]:
    """The experiment with every default written out, as JSON-able data in the YAML's own form.

    Written as YAML it is an experiment file that loads to an equal experiment.
    """
    data = plain(experiment, digits=None)
    # A strategy's options stand beside its kind.
    strategies = [{"kind": s.kind, **s.options} for s in experiment.strategies]
    return {
        ("strategy" if key == "strategies" else key): (strategies if key == "strategies" else value)
        for key, value in data.items()
    }


def comparison_key(experiment: Experiment, choice: StrategyChoice) -> str:
    """Twelve hexadecimal digits over model, data, roles, training, strategy, placement, requests.

    The same for a prediction and a measurement of one experiment and strategy, on whatever
    profile, seed and run settings. Names do not count, nor does the folder of a data file; the
    generator's settings count where the generator feeds directly, since otherwise the file decides.
    """
    settings = plain(experiment, digits=None)
    model = {key: value for key, value in settings["model"].items() if key != "name"}
    beside = ("generate", "malformed_limit")
    data = {key: value for key, value in settings["data"].items() if key not in beside}
    if experiment.data.path is not None:
        del data["synthetic"]
    for key in ("path", "eval_path"):
        if key in data:
            data[key] = PurePath(data[key]).name
    content = {
        "model": model,
        "data": data,
        "roles": settings["roles"],
        "training": settings["training"],
        "placement": settings["placement"],
        "strategy": {"kind": choice.kind, "options": choice.options},
    }
    # as they came: keys of runs without them stay what they are
    for name, usual in (
        ("transport", "tcp"),
        ("shared_memory", True),
        ("wire", "full"),
    ):
        if (chosen := getattr(experiment.execution, name)) != usual:
            content[name] = chosen
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]
