"""The written form of experiments and profiles: their YAML, and the identity of an experiment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import yaml

from recsim_train.config.cluster import Cluster
from recsim_train.config.experiment import Experiment, StrategyChoice
from recsim_train.config.validate import plain
from recsim_train.config.yaml_source import Dumper

DIGITS = 6
"""Significant digits of quantities."""
_WIDTH = 100


def dump_yaml(data: Mapping[str, Any]) -> str:
    """Plain data as YAML, in the order given, innermost lists and mappings on one line."""
    return yaml.dump(
        dict(data),
        Dumper=Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=_WIDTH,
    )


def dump_cluster(cluster: Cluster, header_comment: str = "") -> str:
    """The profile as YAML that `config.profiles.load_cluster` reads back.

    Quantities keep six significant digits. Each line of ``header_comment`` becomes a comment.
    """
    return "".join(f"# {line}".rstrip() + "\n" for line in header_comment.splitlines()) + dump_yaml(
        plain(cluster, digits=DIGITS)
    )


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


_LATER = {"columns": [], "eval_from": "start", "shuffle": True}
"""Settings of data that came later, as keys of runs without them have it."""


def of_any_machine(model: dict[str, Any]) -> dict[str, Any]:
    """A model as plain data, without what differs between machines that train the same: where a
    module's file lies, and what each version of torch counts of its passes."""
    left = {key: value for key, value in model.items() if key != "module"}
    if (described := left.get("described")) is not None:
        counted = ("forward", "backward", "kept_bytes", "not_counted")
        left["described"] = {key: v for key, v in described.items() if key not in counted}
    return left


def comparison_key(experiment: Experiment, choice: StrategyChoice) -> str:
    """Twelve hexadecimal digits over model, data, roles, training, strategy, placement, requests.

    The same for a prediction and a measurement of one experiment and strategy, on whatever
    profile, seed and run settings. Names do not count, nor does the folder of a data file; the
    generator's settings count where the generator feeds directly, since otherwise the file decides.
    """
    settings = plain(experiment, digits=None)
    own = of_any_machine(settings["model"])
    model = {key: value for key, value in own.items() if key != "name"}
    data = {
        key: value
        for key, value in settings["data"].items()
        if key not in ("generate", "malformed_limit", "converted")
        and (key not in _LATER or value != _LATER[key])
    }
    if experiment.data.path is not None:
        del data["synthetic"]
    for key in ("path", "eval_path"):
        if key in data:
            names = [PurePath(name).name for name in data[key]]
            data[key] = names[0] if len(names) == 1 else names
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
        ("shared_memory", True),
        ("wire", "full"),
    ):
        if (chosen := getattr(experiment.execution, name)) != usual:
            content[name] = chosen
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
