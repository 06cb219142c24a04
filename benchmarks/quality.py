"""Held-out AUC of every strategy against synchronous training by one process, at equal examples.

    python benchmarks/quality.py [--seeds 1 2 3] [--groups strategy ...] [--only TEXT]
                                 [--out DIR] [--figure FILE.svg]

Model, data and learning rates are those of experiments/quality.yaml. Every case trains on the same
examples; a case and its control share the seed, so the same initial weights, and are compared seed
by seed. Runs that DIR/quality.json already holds with the same settings are not repeated: a stopped
benchmark goes on where it was, and --fresh forgets them.
"""

from __future__ import annotations

import itertools
import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from script import options, spread, table

from recsim_train import load, measure
from recsim_train.config.dump import comparison_key

EXPERIMENT = Path("experiments/quality.yaml")
RESULTS = Path("benchmarks/results")
FIGURE = Path("docs/images/quality-dct.svg")
ALONE = ("roles.trainers=1", "roles.embedding_servers=0", "roles.dense_servers=0")
WHOLE = (*ALONE, "training.batch_size=256")
CONTROL = "one process, batch 256"
NEAR, NEAR_DCT = 0.005, 0.01
DENSITIES = (0.1, 0.3, 1, 3, 10, 30, 100)
MASKS = {"table": (6.25, 12.5, 25, 50, 100), "sample": (5.625, 11.25, 22.5, 45, 90)}
"""Pairs of equal bytes: of 16 values of each of 26 tables k travel, at 5 + 4 bytes forward and
backward; a place among all 416 values takes two bytes, so 0.9 times as many cost the same."""
SAME_TABLES = "model.tables=[" + ", ".join(["{rows: 1000}"] * 26) + "]"
"""Tables of one size, so that initial embeddings have one size too; fed by the generator."""


@dataclass(frozen=True)
class Case:
    name: str
    sets: tuple[str, ...]
    against: str = CONTROL
    group: str = "strategy"
    share: float = 0.0
    """Of a curve: per cent of the entries that are asked for."""


def strategy(name: str, choice: str, **more: Any) -> Case:
    return Case(name, (f"strategy={{{choice}}}",), **more)


def dct(base: tuple[str, str], *modes: str) -> tuple[Case, ...]:
    title, choice = base
    named = {"dp": "dp 1 %", "mp": "mp 5 %", "both": "both"}
    return tuple(
        strategy(
            f"{title}, DCT {named[mode]}",
            f"{choice}, compression: {{kind: dct, mode: {mode}}}",
            group="dct",
        )
        for mode in modes
    )


def shadow(algorithm: str, sync: str) -> tuple[str, str]:
    name = f"S-{algorithm.upper()}" if sync == "shadow" else f"FR-{algorithm.upper()}-5"
    return f"shadowsync, {name}", f"kind: shadowsync, algorithm: {algorithm}, sync: {sync}"


def hierarchical(outer: str, sync: str) -> Case:
    """Two groups of two hosts with half the batch each, so that examples of a step stay the same;
    the widest layer at one host."""
    options = f"kind: hierarchical, hosts: 2, outer: {outer}, sync: {sync}, tags: top.0=0"
    sets = (f"strategy={{{options}}}", "roles.trainers=4", "training.batch_size=64")
    return Case(f"hierarchical, 2 groups of 2, cut, {outer} {sync}", sets)


def curve(title: str, options: str, share: float) -> Case:
    return strategy(
        f"allreduce, DCT {title} at {share:g} %",
        f"kind: allreduce, compression: {{kind: dct, {options}: {share:g} %}}",
        group=f"curve {title}",
        share=share,
    )


def paired(name: str, change: tuple[str, ...]) -> tuple[Case, ...]:
    """The mask over all tables at 5 % and its own control in a changed model."""
    masked = "strategy={kind: allreduce, compression: {kind: dct, mode: mp, mask: sample}}"
    alone, title = f"one process, {name}", f"allreduce, DCT mp by sample 5 %, {name}"
    return (
        Case(alone, (*WHOLE, *change), group="why control"),
        Case(title, (masked, *change), against=alone, group="why"),
    )


def hogwild(against: str, steps: int, *sets: str) -> Case:
    """Two threads that share a replica, for one: as many steps of the same batch in all."""
    twice = ("training.threads=2", f"training.steps={steps}")
    return Case(f"{against}, 2 Hogwild threads", (*sets, *twice), against, "hogwild")


ALL_REDUCE = ("allreduce", "kind: allreduce")
HIERARCHICAL = (
    "hierarchical, 2 hosts, cut by hand",
    "kind: hierarchical, hosts: 2, tags: 'bottom.1=1, top.0=0'",
)
DOWNPOUR = ("flat_ps, Downpour", "kind: flat_ps")
EASGD = ("flat_ps, EASGD every 5", "kind: flat_ps, mode: easgd, every: 5")
SHADOWS = tuple(
    shadow(algorithm, sync)
    for sync in ("shadow", "foreground")
    for algorithm in ("easgd", "ma", "bmuf")
)
SMALL = "one process, batch 128"
CASES = (
    Case(CONTROL, WHOLE, group="control"),
    Case("one process, half the examples", (*WHOLE, "training.steps=615"), group="control"),
    Case(SMALL, (*ALONE, "training.batch_size=128", "training.steps=2490"), group="control"),
    strategy(*ALL_REDUCE),
    strategy("localsgd, every 5", "kind: localsgd, every: 5"),
    strategy("des", "kind: des"),
    strategy("hierarchical, 2 hosts, not cut", "kind: hierarchical, hosts: 2"),
    strategy(*HIERARCHICAL),
    hierarchical("easgd", "shadow"),
    hierarchical("ma", "foreground"),
    hierarchical("bmuf", "foreground"),
    strategy("scalefreectr", "kind: scalefreectr"),
    strategy(*DOWNPOUR),
    strategy(*EASGD),
    *(strategy(*each) for each in SHADOWS),
    hogwild(SMALL, 1240, *ALONE, "strategy=flat_ps", "training.batch_size=128"),
    *(
        hogwild(title, 615, f"strategy={{{choice}}}")
        for title, choice in (DOWNPOUR, EASGD, SHADOWS[0])
    ),
    *(
        case
        for base in (ALL_REDUCE, DOWNPOUR, EASGD, *SHADOWS[::3])  # gradients or differences travel
        for case in dct(base, "dp", "mp", "both")
    ),
    *(case for base in (*SHADOWS[1:3], *SHADOWS[4:], HIERARCHICAL) for case in dct(base, "mp")),
    *(curve("dp", "density", share) for share in DENSITIES),
    *(
        curve(f"mp by {over}", f"mode: mp, mask: {over}, mp_density", share)
        for over, shares in MASKS.items()
        for share in shares
    ),
    *paired("tables of 1,000 rows", ("data.path=null", SAME_TABLES)),
    *paired("embeddings of 64", ("model.embedding_dim=64", "model.bottom_mlp=[64, 64]")),
)


def train(case: Case, seed: int, known: dict[str, Any]) -> dict[str, Any]:
    study = load(EXPERIMENT, overrides=case.sets, seed=seed)
    spec = study.experiment
    key = f"{comparison_key(spec, spec.strategies[0])}/{seed}"
    if key in known:
        return {**known[key], "case": case.name}
    (run,) = measure(study)
    found, facts = run.record.summary, run.record.facts
    iterations = spec.training.warmup_steps + spec.training.steps
    return {
        "key": key,
        "case": case.name,
        "seed": seed,
        "auc": found.auc,
        "loss": found.loss,
        "normalized_entropy": found.normalized_entropy,
        "examples": iterations * study.plans[0].streams * study.plans[0].examples,
        "held_out": spec.data.eval_rows,
        "travels": {
            what: {
                "values": round(tally.density or 0.0, 5),
                "bytes": round(tally.sent_bytes / tally.dense_bytes, 5),
            }
            for what, tally in facts.compression.items()
        },
        "seconds": round(facts.wall_seconds or 0.0, 1),
    }


class Results:
    def __init__(self, path: Path, fresh: bool) -> None:
        self.path = path
        kept = path.exists() and not fresh
        self.runs = json.loads(path.read_text(encoding="utf-8"))["runs"] if kept else []

    @property
    def known(self) -> dict[str, Any]:
        return {run["key"]: run for run in self.runs}

    def add(self, run: dict[str, Any]) -> None:
        place = (run["case"], run["seed"])
        self.runs = [old for old in self.runs if (old["case"], old["seed"]) != place] + [run]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps({"runs": self.runs}, indent=1) + "\n", encoding="utf-8")

    def auc(self, name: str) -> dict[int, float]:
        return {run["seed"]: run["auc"] for run in self.runs if run["case"] == name}

    def differences(self, case: Case) -> list[float]:
        control, own = self.auc(case.against), self.auc(case.name)
        return [own[seed] - control[seed] for seed in sorted(own.keys() & control.keys())]


def shown(results: Results, *groups: str) -> str:
    # what other cases are compared with, on its own data or none
    unpaired = [case for case in CASES if case.name == CONTROL or case.group == "why control"]
    rows = []
    for case in CASES:
        own, apart = results.auc(case.name).values(), results.differences(case)
        if case.group not in groups or not own:
            continue
        difference, allowed, verdict = "", "", ""
        if apart and case not in unpaired:
            difference = spread(apart, "+.4f")
            limit = {"strategy": NEAR, "hogwild": NEAR, "dct": NEAR_DCT}.get(case.group)
            if limit is not None:
                near = abs(statistics.median(apart)) <= limit
                allowed, verdict = f"{limit}", "within" if near else "**missed**"
        rows.append([case.name, len(own), spread(own, ".4f"), difference, allowed, verdict])
    heads = ("run", "seeds", "AUC, median (range)", "paired difference, median (range)", "allowed")
    return "\n".join(table([*heads, ""], rows))


def travelled(results: Results, name: str) -> float:
    """Per cent of the bytes of pooled embeddings and their gradients, places included."""
    (found, *_) = (run["travels"] for run in results.runs if run["case"] == name)
    kinds = found["activations"], found["activation_gradients"]
    return 100 * statistics.mean(kind["bytes"] for kind in kinds)


def draw(results: Results, path: Path) -> None:
    """AUC against what travels, both modes, masks of both kinds; a dot is a seed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 3.6), layout="constrained")
    plots = figure.subplots(1, 2, sharey=True)
    shown = {seed for case in CASES if case.share for seed in results.auc(case.name)}
    control = results.auc(CONTROL)
    whole = statistics.median([control[seed] for seed in shown & control.keys()])
    panels = (
        ("dense gradients (dp)", "entries asked for", {"dp": ""}),
        (
            "pooled embeddings (mp)",
            "bytes that travel, both ways, with places",
            {"mp by table": "mask by table", "mp by sample": "mask by sample"},
        ),
    )
    for axes, (title, label, curves) in zip(plots, panels, strict=True):
        axes.axhline(whole, color="0.6", linewidth=1, label=CONTROL)
        axes.axhspan(whole - NEAR_DCT, whole, color="0.92")
        ticks: list[float] = []
        for curve_name, colour in zip(curves, ("#0b6e99", "#c2571a"), strict=False):
            found = sorted(
                (travelled(results, case.name) if len(curves) > 1 else case.share, list(y.values()))
                for case in CASES
                if case.group == f"curve {curve_name}" and (y := results.auc(case.name))
            )
            middle = [statistics.median(y) for _, y in found]
            named = curves[curve_name] or None
            axes.plot([x for x, _ in found], middle, color=colour, label=named)
            dots = [(x, value) for x, y in found for value in y]
            axes.plot(*zip(*dots, strict=True), "o", color=colour, markersize=4)
            ticks = ticks or [x for x, _ in found]
        axes.set(xscale="log", xlabel=label)
        axes.set_xticks(ticks, [f"{x:.3g} %" for x in ticks], minor=False)
        axes.minorticks_off()
        axes.set_title(title, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="lower right", fontsize=9)
    plots[0].set_ylabel("held-out AUC")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110)


def main() -> None:
    groups = list(dict.fromkeys(case.group for case in CASES))
    about = {
        "--seeds": {"type": int, "nargs": "+", "default": [1, 2, 3]},
        "--only": ("", "cases whose name contains this"),
        "--groups": {"nargs": "+", "choices": groups, "default": groups},
        "--out": (RESULTS, ""),
        "--figure": (FIGURE, ""),
        "--fresh": (False, "repeat runs that are known already"),
    }
    asked = options(__doc__, about)
    results = Results(asked.out / "quality.json", asked.fresh)
    chosen = [case for case in CASES if asked.only in case.name and case.group in asked.groups]
    for seed, case in itertools.product(asked.seeds, chosen):
        run = train(case, seed, results.known)
        results.add(run)
        print(f"seed {seed}  AUC {run['auc']:.4f}  {run['seconds']:5.1f} s  {case.name}")
    blocks = [
        shown(results, "control", "strategy", "dct"),
        shown(results, "hogwild"),
        shown(results, "curve dp", "curve mp by table", "curve mp by sample"),
        shown(results, "why control", "why"),
    ]
    text = "\n\n".join(blocks)
    print(f"\n{text}")
    (asked.out / "quality.md").write_text(text + "\n", encoding="utf-8")
    if all(results.differences(case) for case in CASES if case.share):  # of some, there is no curve
        draw(results, asked.figure)


if __name__ == "__main__":
    main()
