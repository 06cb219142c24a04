"""`recommend` judged by measurement: in small spaces every design is run on emulated hosts.

    python benchmarks/measured_designs.py --draw > FOLDER/spaces.yaml
    python benchmarks/measured_designs.py --run FOLDER

The first command draws spaces (nets, rates, strategies, hosts) and keeps the first six of at least
twelve designs of which three at least are predicted within 15 % of the best. The second one asks
`recommend` for the most throughput in each, then runs all designs with modelled compute, as root,
and writes FOLDER/designs.json; what that has of other spaces stays. A run that this machine
disturbed is made once more, and counts if that one is left alone. Emulated hosts' prices are those
of the profile "local" (`recsim-train calibrate`).
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import draw_clusters as drawn
import yaml
from script import options, table

import recsim_train
from recsim_train.designs import searching
from recsim_train.designs.making import space
from recsim_train.designs.measured import measure
from recsim_train.designs.searching import Design
from recsim_train.evaluate.evaluator import evaluate
from recsim_train.evaluate.levels import INTERVAL
from recsim_train.session.job import NOBODY

SPACES, LEAST, MOST = 6, 12, 18
"""How many spaces; designs of each."""
NEAR, NEAR_ENOUGH = 0.15, 3
"""Of its best predicted, and how many designs have to be so near."""
TURNS = ("server", "trainer", "collective", "mixed")
HOSTS = (4, 5, 6, 8)
KINDS = 4
"""Strategies of a space."""
MOST_DRAWN = 40
FASTEST = 40
"""Mbit/s of a link: of faster ones messages of eight hosts take too much of two cores."""


def drawn_space(draw: Random, number: int) -> dict[str, Any]:
    """An experiment with a search."""
    turn = TURNS[number % len(TURNS)]
    hosts = draw.choice(HOSTS)
    model = drawn.drawn_model(draw, number, turn) | {"name": f"designs-{number}"}
    kinds = [dict(kind) for kind in draw.sample(drawn.ROWS, KINDS)]
    fits = [rate for rate in drawn.RATES if rate <= FASTEST]
    roles = {"trainers": 2, "embedding_servers": 1, "dense_servers": 1}
    cluster = drawn.drawn_cluster(draw, turn, roles)
    nic = f"{draw.choice(fits)} Mbit/s"
    cluster["hosts"] = {"default": cluster["hosts"]["default"] | {"nic": nic}}
    batch = draw.choice(drawn.BATCHES)
    wanted = drawn.SECONDS / drawn.seconds_of(model, batch, roles, cluster)
    whole = drawn.experiment(0, 0)
    return {
        **{key: whole[key] for key in ("data", "seed", "model")},
        "name": f"designs-{number}",
        "model": model,
        "roles": roles,
        "training": {
            "batch_size": batch,
            "threads": 1,
            "steps": drawn.steps_of(wanted, 60),  # whole periods of all strategies
            "warmup_steps": 4,
            **drawn.LEARNING,
        },
        "strategy": kinds,
        "cluster": cluster,
        "search": {
            "strategies": False,
            "hosts": [hosts],
            "embedding_hosts": [1, 2, 3],
            "dense_hosts": [1],
            "trainers_per_host": [1],
            "servers_per_host": [1],
            "threads": [1],
        },
    }


def study_of(made: dict[str, Any]) -> Any:
    """Loaded."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / f"{made['name']}.yaml"
        file.write_text(yaml.safe_dump(made))
        return recsim_train.load(file)


def designs_of(made: dict[str, Any]) -> list[Design]:
    """All designs, each simulated as any prediction is."""
    found = [Design(n, c) for n, c in enumerate(space(study_of(made), None, NOBODY).candidates)]
    cases = [design.candidate.job.case for design in found]
    for number, row in evaluate(cases, INTERVAL, processes=2):
        if row.examples_per_second:
            found[number].row, found[number].rounds = row, searching.STAGES
    return found


def near(designs: Sequence[Design]) -> int:
    """How many are predicted near the best."""
    rates = [design.eps for design in designs if design.eps]
    return sum(rate >= (1.0 - NEAR) * max(rates) for rate in rates)


def chosen(seed: int) -> Iterator[dict[str, Any]]:
    """The spaces that are kept."""
    draw, found = Random(seed), 0
    for number in range(MOST_DRAWN):
        made = drawn_space(draw, number)
        designs = designs_of(made)
        keep = LEAST <= len(designs) <= MOST and near(designs) >= NEAR_ENOUGH
        print(f"{made['name']}: {len(designs)} designs, {near(designs)} near", file=sys.stderr)
        if keep:
            found += 1
            yield made
        if found == SPACES:
            return


def measured(made: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One space: what is picked, and how fast each design is."""
    study = study_of(made)
    pick = recsim_train.recommend(study, processes=2).answer.chosen.candidate.job.identity
    designs = designs_of(made)
    runs = measure(designs, folder / made["name"], NOBODY)
    again = [n for n, run in enumerate(runs) if run.broken or not run.eps]
    others = measure([designs[n] for n in again], folder / f"{made['name']}-again", NOBODY)
    for n, other in zip(again, others, strict=True):
        runs[n] = other
    rows = [
        {
            "strategy": run.design.kind,
            **run.design.candidate.job.settings,
            "predicted": run.design.eps,
            "measured": run.eps,
            "why": "; ".join((run.why, *run.broken)).strip("; "),
            "picked": run.design.candidate.job.identity == pick,
        }
        for run in runs
    ]
    there = [row for row in rows if not row["why"]]
    best = max(row["measured"] for row in there)
    taken = next((row["measured"] for row in there if row["picked"]), None)
    return {
        "space": made["name"],
        "designs": len(rows),
        "counted": len(there),
        "within 15 % of the best": sum(row["measured"] >= (1.0 - NEAR) * best for row in there),
        "pick is short by": None if taken is None else round(1.0 - taken / best, 4),
        "rows": rows,
    }


def main() -> None:
    """Draw, or run."""
    about = {
        "--draw": (False, "draw the spaces, and write them to standard output"),
        "--run": ("", "the folder of spaces.yaml"),
        "--seed": (44, "of the draws"),
    }
    asked = options(__doc__, about)
    if asked.draw:
        print(f"# Drawn by `python benchmarks/measured_designs.py --draw --seed {asked.seed}`.")
        print(yaml.safe_dump(list(chosen(asked.seed)), sort_keys=False, width=120), end="")
        return
    folder = Path(asked.run)
    out = folder / "designs.json"
    found = json.loads(out.read_text()) if out.exists() else []
    for made in yaml.safe_load((folder / "spaces.yaml").read_text()):
        if made["name"] in {one["space"] for one in found}:
            continue
        found.append(measured(made, folder / "runs"))
        out.write_text(json.dumps(found, indent=1) + "\n")
    heads = ("space", "designs", "counted", "within 15 % of the best", "pick is short by")
    print("\n".join(table(heads, ([one[head] for head in heads] for one in found))))


if __name__ == "__main__":
    main()
