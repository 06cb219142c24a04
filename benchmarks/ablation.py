"""Which causes of the simulated machine pay? A stored validation predicted anew, each cause off.

    python benchmarks/ablation.py benchmarks/results/NAME [...] [--only CAUSE ...] [--jobs 2]

Of every setting that was measured the prediction is made anew, from the experiment and the profile
that the validation keeps, as the code is now and with one cause changed at a time; no what-ifs, to
3 % precision. A row of the table per cause: how far predictions move (median), the raw errors'
median, signed median, nine in ten and scatter (the standard deviation of their logarithms about
the mean, which a common level does not change), and the lines of code that are there for it alone.
What other seeds of the simulator change (first rows) is noise.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from script import options, row, table

from recsim_train import load
from recsim_train.config.cluster import FORMAT
from recsim_train.config.units import Times
from recsim_train.evaluate.prediction import predict
from recsim_train.sim.host import cores, machines, process
from recsim_train.sim.messages import gloo_group
from recsim_train.validation.fidelity import errors_of

ROOT = Path(__file__).resolve().parent.parent / "recsim_train"
SETS = (
    "simulation.precision=3 %",
    "simulation.minimum_steps=24",
    "simulation.minimum_iterations=48",
    "simulation.what_if_steps=0",
)
"""How long a prediction is simulated here: the comparison is of many, not of one."""


TWO_FRAMES = "2896 B"
"""What emulated links of up to 727 Mbit/s let pass at once, for validations that do not say."""


class Cause(NamedTuple):
    """What is changed: settings of the experiment and, as ``cluster.KEY=VALUE``, of the profile;
    ``constants``, (module or class, name, value); how many times as long is a ``turn``. ``code``:
    what is there for a cause alone, "file:name" of functions, methods, classes and constants."""

    sets: tuple[str, ...] = ()
    constants: tuple[tuple[Any, str, Any], ...] = ()
    code: tuple[str, ...] = ()
    turn: float = 1.0


def free(*prices: str) -> tuple[str, ...]:
    """The profile without these prices."""
    return tuple(f"cluster.costs.{name}.value=0 us" for name in prices)


def unwaked(run: Callable[..., Any]) -> Callable[..., Any]:
    """`Cores.run` that knows of no waker."""
    return lambda *given, **_: run(*given)


def places(*names: str) -> tuple[str, ...]:
    """What is there for a cause alone, of the simulated cores."""
    return tuple(f"sim/host/cores.py:{name}" for name in names)


UNWAKED = (cores.Cores, "run", unwaked(cores.Cores.run))
TAKES, PULLS = (cores, "_TAKES", (0.0, 0.0)), (cores, "_PULLS", (0.0, 0.0))
ALWAYS, WARM = (cores, "_nearly_full", lambda _: 2.0), (cores, "_WARM", 0.0)
CAUSES: dict[str, Cause] = {
    "as it is": Cause(),
    "seed 2": Cause(("seed=2",)),
    "seed 3": Cause(("seed=3",)),
    "cores shared equally": Cause(
        constants=((process, "Cores", lambda *_: None),), code=("sim/host/cores.py:",)
    ),
    "takes 0": Cause(constants=(TAKES,), code=places("_takes", "_TAKES")),
    "takes 1": Cause(constants=((cores, "_TAKES", (1.0, 1.0)),)),
    "pulls 0": Cause(constants=(PULLS,), code=places("_pull", "_PULLS")),
    "takes, pulls 0": Cause(constants=(TAKES, PULLS)),
    "waker rule off": Cause(constants=(UNWAKED,)),
    "these three off": Cause(constants=(TAKES, PULLS, UNWAKED)),
    "three off, always looks": Cause(constants=(TAKES, PULLS, ALWAYS, UNWAKED)),
    "three off, always, warm move": Cause(constants=(TAKES, PULLS, ALWAYS, WARM, UNWAKED)),
    "turn x2": Cause(turn=2.0),
    "turn /2": Cause(turn=0.5),
    "slice x2": Cause(constants=((cores, "_SLICE", 2 * cores._SLICE),)),
    "own shapes off": Cause(("cluster.operations=null",)),
    "cooling off": Cause(("cluster.cooling=null",)),
    "in runs as in a row": Cause(("cluster.in_runs=null",)),
    "contention 1": Cause(("cluster.contention=1",)),
    "handover 0": Cause(free("handover")),
    "jitter 0": Cause(("cluster.jitter=0",)),
    "messages as one activity each": Cause(
        constants=((machines, "Links", lambda *_: None),),
        code=(
            "sim/cluster/links.py:",
            *(f"sim/network/{file}.py:" for file in ("core", "layout", "network", "ports", "tcp")),
        ),
    ),
    "nothing at once": Cause(("cluster.network.passes_at_once=0 B",)),
    "acknowledgements 0": Cause(constants=((gloo_group, "ANSWERED", 0.0),)),
    "collective waits 0": Cause(free("collective_step", "reduced_wait", "exchanged_wait")),
    "collective_message 0": Cause(free("collective_message")),
}


class Setting(NamedTuple):
    """One that was measured."""

    profile: Path
    experiment: dict[str, Any]
    measured: float


def profile_of(folder: str, scratch: Path) -> Path:
    """A stored validation's profile, as this version of the program reads it; on emulated clusters
    that of the first setting, from which the others' are told."""
    validation = json.loads((Path(folder) / "validation.json").read_text(encoding="utf-8"))
    kept = yaml.safe_load((Path(folder) / "profile.yaml").read_text(encoding="utf-8"))
    if validation["validation"].get("tier") == "emulated":
        kept = validation["profile"]
        kept["network"] = {"passes_at_once": TWO_FRAMES} | kept["network"]
    kept["format"] = FORMAT
    kept["threads"].pop("sorting", None)  # nothing divides sorting
    in_runs = kept.get("in_runs") or {}
    if "crowded" in in_runs:  # made at three loads, of which the first two are measured today
        times = math.sqrt(in_runs["alone"] * in_runs["busy"])
        kept["in_runs"] = {"times": times, "uncertainty": in_runs["uncertainty"]}
    kept.pop("wander", None)
    kept["costs"].pop("switch", None)
    scratch.mkdir()
    file = scratch / "profile.yaml"
    file.write_text(yaml.safe_dump(kept), encoding="utf-8")
    return file


def settings_of(folder: str, scratch: Path) -> list[Setting]:
    """Those of a stored validation. ``scratch``: of its own, where its profile is kept."""
    profile = profile_of(folder, scratch)
    kept = json.loads((Path(folder) / "validation.json").read_text(encoding="utf-8"))
    measured = {row["key"]: row.get("measured") for row in kept["rows"]}
    return [
        Setting(own_profile(profile, made, scratch), made["experiment"], measured[made["key"]])
        for made in kept["predictions"]
        if measured[made["key"]] is not None
    ]


def own_profile(profile: Path, made: dict[str, Any], scratch: Path) -> Path:
    """The validation's profile; on emulated clusters with what this setting has otherwise."""
    if not (changes := made.get("cluster")):
        return profile
    whole = yaml.safe_load(profile.read_text(encoding="utf-8")) | changes
    file = scratch / f"{made['key']}.yaml"
    own = {name: value for name, value in whole.items() if value is not None}
    own["network"] = {"passes_at_once": TWO_FRAMES} | own["network"]
    file.write_text(yaml.safe_dump(own), encoding="utf-8")
    return file


def predicted(name: str, setting: Setting) -> float:
    """Examples per second, predicted with the cause of this name changed."""
    cause = CAUSES[name]
    for owner, constant, value in cause.constants:
        setattr(owner, constant, value)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "experiment.yaml"
        file.write_text(yaml.safe_dump(setting.experiment), encoding="utf-8")
        (job,) = load(file, setting.profile, [*SETS, *cause.sets]).jobs(dry=True)
    outcome = predict(job.case.with_({"cluster.turn": Times(cause.turn)}))
    return outcome.speed.examples_per_second


def lines_of(places: Sequence[str]) -> int:
    """Lines of "file:name"; of the whole file where no name is given."""
    total = 0
    for place in places:
        file, _, name = place.partition(":")
        text = (ROOT / file).read_text(encoding="utf-8")
        if not name:
            total += len(text.splitlines())
            continue
        for node in ast.walk(ast.parse(text)):
            own = getattr(node, "name", None)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                own = node.targets[0].id
            if own == name and isinstance(node, ast.stmt):
                total += (node.end_lineno or node.lineno) - node.lineno + 1
    return total


def moved(name: str, found: Sequence[float], base: Sequence[float], true: Sequence[float]) -> str:
    """A line of the table."""
    errors = [p / m - 1.0 for p, m in zip(found, true, strict=True)]
    moves = statistics.median(abs(p / b - 1.0) for p, b in zip(found, base, strict=True))
    whole, scatter = errors_of(errors), statistics.stdev(map(math.log1p, errors))
    shares = (
        f"{moves:.1%}",
        f"{whole.median:.1%}",
        f"{whole.median_signed:+.1%}",
        f"{whole.p90:.1%}",
    )
    return row([name, *shares, f"{scatter:.2%}", lines_of(CAUSES[name].code) or ""])


def main() -> None:
    """Predict and say."""
    about = {
        "folder": {"nargs": "+"},
        "--only": {"nargs": "*", "default": list(CAUSES), "choices": list(CAUSES)},
        "--jobs": {"type": int, "default": os.cpu_count()},
    }
    asked = options(__doc__, about)
    with tempfile.TemporaryDirectory() as scratch:
        every = [
            setting
            for number, folder in enumerate(asked.folder)
            for setting in settings_of(folder, Path(scratch) / str(number))
        ]
        compare(every, asked)


def compare(every: Sequence[Setting], asked: argparse.Namespace) -> None:
    """Predict them, each cause off in turn."""
    true = [setting.measured for setting in every]
    print(f"{len(every)} settings of {', '.join(asked.folder)}\n")
    heads = ["changed", "moves", "median", "signed", "nine in ten", "scatter", "lines"]
    print("\n".join(table(heads, [])))
    base: list[float] = []
    for name in ["as it is", *(name for name in asked.only if name != "as it is")]:
        # processes of its own: what a cause changes in a module ends with them
        with ProcessPoolExecutor(asked.jobs) as pool:
            found = list(pool.map(partial(predicted, name), every))
        base = base or found
        print(moved(name, found, base, true), flush=True)


if __name__ == "__main__":
    main()
