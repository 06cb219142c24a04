"""Runs whose hosts fail at drawn times and that begin again at checkpoints: goodput predicted
before, measured after.

    python benchmarks/goodput.py [--seed 1] [--settings 6] [--minutes 10] [--out FILE]

Six settings from `random.Random(seed)`, on emulated hosts with modelled compute, each with a
checkpoint a minute by the profile `local`, which has to have prices of checkpoints. Failures: gaps
between them are 25 s and an exponential time of mean 75 s, the first one at half of a run at the
latest; which host, too, is drawn. At each time the processes of that host are killed; it works
again as soon as that is seen. What is predicted is settled, and printed, before the first run:
goodput, and the share of time in which all loops stand still.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import psutil
import yaml
from draw_clusters import hosts_of
from script import options, table

import recsim_train
from recsim_train.calls.answers import Run
from recsim_train.results.rundir import read_run
from recsim_train.session.job import Caller
from recsim_train.trace.facts import Reliability
from recsim_train.trace.progress import Meter

LEAST_GAP, MEAN_GAP = 25.0, 75.0
"""Seconds."""
AGAIN = "300 ms"
"""From a death until processes are asked for again: 0.24 and 0.32 s by a clock, in runs of the
smallest model."""
STRATEGIES: tuple[dict[str, Any], ...] = (
    {"kind": "flat_ps"},
    {"kind": "allreduce"},
    {"kind": "localsgd", "every": 5},
    {"kind": "shadowsync", "algorithm": "easgd"},
    {"kind": "scalefreectr"},
    {"kind": "hierarchical"},
)


def drawn(draw: Random, number: int, seconds: float) -> dict[str, Any]:
    """One setting, its steps left open."""
    strategy = STRATEGIES[number % len(STRATEGIES)]
    dense = int(strategy["kind"] in ("flat_ps", "shadowsync"))
    roles = {"trainers": 2, "embedding_servers": draw.choice((1, 2)), "dense_servers": dense}
    rate = draw.choice((20, 40, 80))
    kinds = {"default": {"cores": 16, "memory": "8 GiB", "nic": f"{rate} Mbit/s"}}
    names = [f"{role[:-1]}[{index}]" for role, count in roles.items() for index in range(count)]
    failures: list[dict[str, str]] = []
    at = min(LEAST_GAP + draw.expovariate(1.0 / MEAN_GAP), seconds / 2)
    while at < seconds - LEAST_GAP:
        failures.append({"at": f"{at:.1f} s", "host": draw.choice(names)})
        at += LEAST_GAP + draw.expovariate(1.0 / MEAN_GAP)
    return {
        "name": f"goodput-{number}",
        "strategy": strategy,
        "model": {
            "preset": "criteo-kaggle",
            "name": f"goodput-{number}",
            "embedding_dim": 16,
            "tables": {"count": 16, "rows": draw.choice((50_000, 200_000, 400_000)), "ids": 1},
            "bottom_mlp": [16],
            "top_mlp": [64, 1],
        },
        "data": {"synthetic": {"rows": 50_000}, "eval_rows": 0},
        "roles": roles,
        "training": {"batch_size": draw.choice((64, 128, 256)), "threads": 1, "warmup_steps": 10},
        "execution": {"compute": "modelled", "timeout": "20 s"},
        "checkpoint": {"every": "1 min"},
        "recovery": {"policy": "restart"},
        "cluster": {
            **hosts_of(kinds, draw.choice(("fifo", "fair"))),
            "failures": {"restart": AGAIN, "schedule": failures},
        },
    }


def predicted(setting: dict[str, Any], steps: int, folder: Path) -> Run:
    """With so many steps, of which some are lost; the setting is left in the folder."""
    whole = {**setting, "training": {**setting["training"], "steps": steps}}
    file = folder / f"{setting['name']}.yaml"
    file.write_text(yaml.safe_dump(whole))
    study = recsim_train.load(file)
    (run,) = recsim_train.predict(study, out=folder / "predicted", what_if=False)
    return run


def settled(setting: dict[str, Any], seconds: float, folder: Path) -> tuple[int, Run]:
    """The steps that are done in so many seconds without those that are lost, and the prediction of
    a job that does all of them."""
    calm = {**setting, "cluster": {**setting["cluster"], "failures": None}, "recovery": {}}
    rate = predicted(calm, 200, folder).examples_per_second
    assert rate is not None
    size = setting["training"]["batch_size"] * setting["roles"]["trainers"]
    done = int(rate * seconds / size)
    run = predicted(setting, done, folder)
    useful = int(done * share_kept(run))
    return useful, run


def share_kept(run: Run) -> float:
    found = told(run)
    assert run.examples_per_second is not None
    assert found.goodput is not None
    return found.goodput / run.examples_per_second


def told(run: Run) -> Reliability:
    found = read_run(run.folder).facts.reliability
    assert found is not None
    return found


class Failures(threading.Thread):
    """Kills processes of this one at the drawn times, counted from when loops begin."""

    def __init__(self, schedule: list[dict[str, str]]) -> None:
        super().__init__(daemon=True)
        self.due = [(float(one["at"].split()[0]), one["host"]) for one in schedule]
        self.begun, self.over = threading.Event(), threading.Event()

    def run(self) -> None:
        self.begun.wait()
        start = time.monotonic()
        for at, host in self.due:
            if self.over.wait(max(0.0, at - (time.monotonic() - start))):
                return
            while not self.over.is_set() and not killed(host):
                time.sleep(0.1)

    @contextmanager
    def seen(self, _: str) -> Iterator[Meter]:
        """A meter, which sees when loops begin."""

        def meter(done: int, total: int, stage: str = "", words: str = "") -> None:
            if stage == "training":
                self.begun.set()

        yield meter


def killed(role: str) -> bool:
    """Whether there was such a process among those of this one, which is killed."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if role in process.cmdline():
                process.kill()
                return True
    return False


def measured(setting: dict[str, Any], steps: int, folder: Path) -> Run:
    """The same run for real, until so many steps are done."""
    file = folder / f"{setting['name']}.yaml"
    study = recsim_train.load(file, overrides=[f"training.steps={steps}", "cluster.failures=null"])
    failures = Failures(setting["cluster"]["failures"]["schedule"])
    failures.start()
    caller = Caller(lambda sentence: print(sentence, file=sys.stderr), failures.seen)
    try:
        (run,) = recsim_train.measure(study, out=folder / "measured", emulate=True, caller=caller)
    finally:
        failures.over.set()
        failures.begun.set()
    return run


def main() -> None:
    """All predictions, then all runs."""
    asked = options(
        __doc__,
        {
            "--seed": (1, "of what is drawn"),
            "--settings": (6, "how many"),
            "--minutes": (10.0, "of each run"),
            "--out": ("benchmarks/results/goodput.json", "where figures go"),
        },
    )
    draw, seconds = Random(asked.seed), asked.minutes * 60.0
    folder = Path(tempfile.mkdtemp(prefix="recsim-goodput-"))
    settings = [drawn(draw, number, seconds) for number in range(asked.settings)]
    before = [settled(setting, seconds, folder) for setting in settings]
    found = []
    for setting, (steps, run) in zip(settings, before, strict=True):
        print(f"{setting['name']}: {told(run).goodput:,.0f} examples/s predicted", flush=True)
        found.append({"setting": setting, "steps": steps, "predicted": figures(run, steps)})
    for one, (steps, _) in zip(found, before, strict=True):
        run = measured(one["setting"], steps, folder)
        one["measured"] = figures(run, steps)
        Path(asked.out).write_text(json.dumps(found, indent=1) + "\n")
        print(one["setting"]["name"], one["measured"], flush=True)
    errors = [one["predicted"]["goodput"] / one["measured"]["goodput"] - 1.0 for one in found]
    rows = [
        (
            one["setting"]["strategy"]["kind"],
            one["measured"]["failures"],
            f"{one['predicted']['goodput']:,.0f}",
            f"{one['measured']['goodput']:,.0f}",
            f"{error:+.1%}",
            f"{one['predicted']['still']:.1%}",
            f"{one['measured']['still']:.1%}",
        )
        for one, error in zip(found, errors, strict=True)
    ]
    head = "strategy", "failures", "predicted", "measured", "error", "still, predicted", "measured"
    print("\n".join(table(head, rows)))
    print(f"median of errors {statistics.median(map(abs, errors)):.1%}, {len(errors)} runs")


def figures(run: Run, steps: int) -> dict[str, float]:
    """What is compared. ``still``: of the time of all lives together, what loops stood still."""
    known = told(run)
    assert known.goodput is not None
    assert run.batch_size is not None
    assert run.trainers is not None
    seconds = steps * run.batch_size * run.trainers / known.goodput
    return {
        "goodput": known.goodput,
        "failures": known.failures,
        "lost": known.lost_examples,
        "checkpoints": known.checkpoints,
        "still": known.standstill_seconds / seconds,
    }


if __name__ == "__main__":
    main()
