"""Whether quick calibrations say truly how unsure they are.

python benchmarks/quick.py FOLDER [--quick 20] [--full 5] [--for experiments/quickstart.yaml]

Calibrates so often, a full one after every few quick ones, on a machine that does nothing else; the
profiles lie in FOLDER, and a second call goes on where the first one ended. Each profile predicts
the experiment. Of each quick one the 90 % interval is to hold the median of what the full ones
predict, which nine in ten do if it is true, and at least 16 of 20 do by chance in 96 % of cases.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from script import options, table

from recsim_train.results.row import interval


def recsim_train(*words: str | Path) -> str:
    command = [sys.executable, "-m", "recsim_train", *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def order(quick: int, full: int) -> list[str]:
    """Names of the profiles, full ones evenly among quick ones."""
    places = [(n / max(1, quick), f"quick-{n:02}") for n in range(quick)]
    places += [((n + 0.5) / max(1, full), f"full-{n:02}") for n in range(full)]
    return [name for _, name in sorted(places)]


def made(folder: Path, name: str, experiment: str) -> dict[str, Any]:
    """One calibration with its prediction, unless both are there."""
    profile, figures = folder / f"{name}.yaml", folder / f"{name}.json"
    if figures.exists():
        known: dict[str, Any] = json.loads(figures.read_text(encoding="utf-8"))
        return known
    begin = time.perf_counter()
    how = ["--quick"] if name.startswith("quick") else []
    recsim_train("calibrate", *how, "--for", experiment, "-o", profile)
    seconds = time.perf_counter() - begin
    runs = folder / "runs"
    said = recsim_train("simulate", experiment, "--cluster", profile, "--out", runs, "--json")
    (run,) = json.loads(said)["runs"]
    facts = run["facts"]
    eps = run["examples_per_second"]
    found = {
        "name": name,
        "seconds": round(seconds, 1),
        "examples_per_second": eps,
        "interval": interval(eps, run["ci95"], facts["calibration_ci95"]),
        "errors": facts["calibration_errors"],
    }
    figures.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """What all of them come to."""
    full, quick = (
        [run for run in runs if run["name"].startswith(kind)] for kind in ("full", "quick")
    )
    middle = median(run["examples_per_second"] for run in full)
    held = [low <= middle <= high for low, high in (run["interval"] for run in quick)]
    times = {
        kind: median(run["seconds"] for run in some)
        for kind, some in (("full", full), ("quick", quick))
    }
    return {
        "median_of_full": middle,
        "held": sum(held),
        "of": len(held),
        "median_seconds": times,
        "share_of_time": times["quick"] / times["full"],
        "off": [run["examples_per_second"] / middle - 1.0 for run in quick],
    }


def main() -> None:
    arguments = options(
        __doc__,
        {
            "folder": {"type": Path},
            "--quick": (20, ""), "--full": (5, ""), "--for": ("experiments/quickstart.yaml", ""),
        },
    )  # fmt: skip
    arguments.folder.mkdir(parents=True, exist_ok=True)
    runs = []
    for name in order(arguments.quick, arguments.full):
        runs.append(made(arguments.folder, name, getattr(arguments, "for")))
        print(f"{name}: {runs[-1]['seconds']} s", file=sys.stderr, flush=True)
    rows = (
        [
            run["name"], f"{run['seconds']:.0f} s", f"{run['examples_per_second']:.0f}",
            "{:.0f} to {:.0f}".format(*run["interval"]),
            ", ".join(f"{cause} {error:.1%}" for cause, error in run["errors"].items()),
        ]
        for run in runs
    )  # fmt: skip
    print("\n".join(table(["profile", "took", "examples/s", "90 %", "standard errors"], rows)))
    found = summary(runs)
    (arguments.folder / "summary.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
