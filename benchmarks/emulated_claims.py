"""Published claims, measured on emulated clusters.

    python benchmarks/emulated_claims.py > experiments/claims-emulated.yaml
    recsim-train validate experiments/claims-emulated.yaml
    python benchmarks/emulated_claims.py --judge claims-emulated-validation --picture FILE

The first command writes the settings (`--only CLAIM`: of one claim): each is a point of a claim's
curve, predicted, then run, with modelled compute and links of 10 to 80 Mbit/s. The last one prints
a table of verdicts and draws the curves; of validations named `ONE,OTHER` a claim's last one
counts. What is compared is how one curve goes beside another: the papers' clusters were larger and
faster, and their full texts were not at hand.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import draw_clusters as drawn
import yaml
from script import exponent, options, table

PERIOD = 20
"""Steps: whole periods of all strategies here."""
HALF = 0.5
"""Share of the expected effect from which on a claim is met partly, as in claims.py."""


class Curve(NamedTuple):
    """One strategy's figures over what varies."""

    at: tuple[float, ...]
    speed: tuple[float, ...]
    """Examples per second."""
    sent: tuple[float, ...]
    """Bytes of one example, by all links."""


Curves = Mapping[str, Curve]


class Published(NamedTuple):
    """What a paper says, and which figure of our curves says so. The figure is the best of the
    settings, which are stated here before any run."""

    says: str
    along: str
    figure: Callable[[Curves], float]
    bar: float
    neutral: float
    """The figure where there is no effect."""
    form: str

    def verdict(self, figure: float) -> str:
        """In the words of claims.py."""
        if figure >= self.bar:
            return "reproduced"
        share = (figure - self.neutral) / (self.bar - self.neutral)
        return "partly" if share >= HALF else "not reproduced"


def faster(one: str, other: str) -> Callable[[Curves], float]:
    """How many times as fast, where it is most."""
    return lambda curves: max(
        a / b for a, b in zip(curves[one].speed, curves[other].speed, strict=True)
    )


def saved(one: str, other: str) -> Callable[[Curves], float]:
    """Share of the time that is saved, where it is most."""
    return lambda curves: 1.0 - 1.0 / faster(one, other)(curves)


def less_sent(one: str, other: str) -> Callable[[Curves], float]:
    """Share of the bytes that is saved, where it is most."""
    return lambda curves: max(
        1.0 - a / b for a, b in zip(curves[one].sent, curves[other].sent, strict=True)
    )


def scales(one: str) -> Callable[[Curves], float]:
    """Slope of log(examples/s) over log(what varies): 1 is linear."""
    return lambda curves: exponent(curves[one].at, curves[one].speed)


TIMES, PERCENT, PLAIN = "{:.2f} times", "{:.1%}", "{:.2f}"
CLAIMS = {
    "shadowsync": Published(
        "ShadowSync's throughput is linear in the number of trainers (exponent 1), with two sync "
        "servers",
        "trainers", scales("ShadowSync EASGD"), 0.95, 0.0, PLAIN,
    ),
    "shadowsync-plateau": Published(
        "Foreground EASGD, every 4 iterations, does not stay linear with as many: its exponent is "
        "at least 0.05 lower",
        "trainers",
        lambda curves: scales("ShadowSync EASGD")(curves) - scales("EASGD every 4")(curves),
        0.05, 0.0, PLAIN,
    ),
    "des": Published(
        "DES saves up to 68.7 % of the bytes of a parameter server that moves rows",
        "trainers", less_sent("DES", "flat PS that moves rows"), 0.687, 0.0, PERCENT,
    ),
    "dct": Published(
        "With DCT training takes 37 % less time (at one of four rates of the links)",
        "Mbit/s", saved("flat PS with DCT", "flat PS"), 0.365, 0.0, PERCENT,
    ),
    "hierarchical": Published(
        "Hierarchical Training is 1.9 times faster than flat",
        "trainers", faster("hierarchical", "flat PS"), 1.85, 1.0, TIMES,
    ),
    "scalefreectr": Published(
        "ScaleFreeCTR's cache makes training faster (1.1 times at least), the links at 20 Mbit/s",
        "exponent of the ids' skew", faster("cache, 20 Mbit/s", "no cache, 20 Mbit/s"), 1.1, 1.0,
        TIMES,
    ),
    "scalefreectr-fast": Published(
        "The same with links of 40 Mbit/s",
        "exponent of the ids' skew", faster("cache, 40 Mbit/s", "no cache, 40 Mbit/s"), 1.1, 1.0,
        TIMES,
    ),
}  # fmt: skip
OF_ANOTHER = {"shadowsync-plateau": "shadowsync", "scalefreectr-fast": "scalefreectr"}
"""Claims that are of the same settings as another one."""


class Place(NamedTuple):
    """One setting: a point of a claim's curve."""

    claim: str
    curve: str
    at: float
    made: dict[str, Any]


def model(name: str, tables: int, dim: int, top: list[int], ids: int = 1) -> dict[str, Any]:
    return {
        "preset": "criteo-kaggle",
        "name": name,
        "embedding_dim": dim,
        "tables": {"count": tables, "rows": 20_000, "ids": ids},
        "bottom_mlp": [dim],
        "top_mlp": top,
    }


def cluster(mbit: int) -> dict[str, Any]:
    host = {"cores": drawn.CORES, "memory": "8 GiB", "nic": f"{mbit} Mbit/s"}
    return drawn.hosts_of({"default": host}, "fifo")


def point(
    strategy: dict[str, Any],
    net: dict[str, Any],
    roles: tuple[int, int, int],
    mbit: int,
    batch: int = 128,
    steps: int = 2 * PERIOD,
) -> dict[str, Any]:
    """``roles``: trainers, embedding servers, dense servers."""
    names = ("trainers", "embedding_servers", "dense_servers")
    return {
        "strategy": strategy,
        "model": net,
        "roles": dict(zip(names, roles, strict=True)),
        "training": {
            "batch_size": batch, "threads": 1, "steps": steps, **drawn.LEARNING,
        },
        "cluster": cluster(mbit),
        "execution.compute": "modelled",
    }  # fmt: skip


def places() -> Iterator[Place]:
    """All settings, claim by claim."""
    # the tables are in the trainers, so that nothing but the sync servers is few; a small net on
    # slow links, since 18 hosts share this machine (at 20 Mbit/s wake-ups came late)
    for trainers in (2, 4, 8, 16):
        net = model("shadowsync", 26, 16, [512, 256, 1])
        roles = (trainers, 0, 2)
        shadow = {"kind": "shadowsync", "algorithm": "easgd"}
        yield Place("shadowsync", "ShadowSync EASGD", trainers, point(shadow, net, roles, 10, 256))
        fixed = {"kind": "flat_ps", "mode": "easgd", "every": 4}
        yield Place("shadowsync", "EASGD every 4", trainers, point(fixed, net, roles, 10, 256))
    for trainers in (2, 4, 8, 12):
        net = model("des", 26, 16, [16, 1], ids=4)
        yield Place("des", "DES", trainers, point({"kind": "des"}, net, (trainers, 0, 0), 25))
        moved = {"kind": "flat_ps", "pooling": "worker"}
        yield Place(
            "des", "flat PS that moves rows", trainers, point(moved, net, (trainers, 1, 1), 25)
        )
    for mbit in (20, 40, 60, 80):
        net = model("dct", 26, 16, [512, 256, 1])
        yield Place("dct", "flat PS", mbit, point({"kind": "flat_ps"}, net, (3, 1, 1), mbit))
        dct = {"kind": "flat_ps", "compression": {"kind": "dct", "refresh": 10}}
        yield Place("dct", "flat PS with DCT", mbit, point(dct, net, (3, 1, 1), mbit))
    for trainers in (4, 8, 12):
        net, roles = model("hierarchical", 26, 16, [512, 256, 1]), (trainers, 1, 1)
        flat = point({"kind": "flat_ps"}, net, roles, 25, steps=PERIOD)
        yield Place("hierarchical", "flat PS", trainers, flat)
        grouped: dict[str, Any] = {"kind": "hierarchical", "hosts": 4}
        if trainers == 4:
            grouped["outer"] = "none"
        made = point(grouped, net, roles, 25, steps=PERIOD)
        yield Place("hierarchical", "hierarchical", trainers, made)
    for mbit in (20, 40):
        for zipf in (0.8, 1.05, 1.4):
            for name, cache in (("cache", True), ("no cache", False)):
                net = model("scalefreectr", 26, 16, [16, 1])
                made = point({"kind": "scalefreectr", "cache": cache}, net, (3, 3, 0), mbit)
                skewed = made | {"data.synthetic.zipf": zipf}
                yield Place("scalefreectr", f"{name}, {mbit} Mbit/s", zipf, skewed)


def experiment(only: str) -> dict[str, Any]:
    """All of it, or one claim's settings."""
    whole = drawn.experiment(0, 0)
    return whole | {
        "name": "claims-emulated",
        "training": whole["training"] | {"warmup_steps": 10},
        "simulation": {"precision": "0 %", "what_if_steps": 0},
        "sweep": {"points": [p.made for p in places() if only in ("", p.claim)]},
    }


def curves_of(validation: Mapping[str, Any], world: str) -> dict[str, dict[str, Curve]]:
    """By claim and name. ``world``: "predicted" or "measured". A setting that does not count is
    left out, and with it those that it is compared with."""
    rows = {row["key"]: row for row in validation["rows"]}
    sent = defaultdict(list)
    for run in validation["runs"]:
        if run.get("frame_bytes"):
            sent[run["key"]].append(run["frame_bytes"])
    found: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    there = {row["model"] for row in validation["rows"]}
    its = [place for place in places() if place.claim in there]
    every = list(zip(its, validation["predictions"], strict=True))
    uncounted = {_compared(p) for p, made in every if rows[made["key"]].get("measured") is None}
    for place, made in every:
        row = rows[made["key"]]
        if _compared(place) in uncounted:
            continue
        assert row["model"] == place.claim
        assert row["trainers"] == place.made["roles"]["trainers"]
        examples = place.made["training"]["batch_size"] * row["trainers"]
        each = statistics.median(sent[made["key"]]) / examples
        curve = found.setdefault(place.claim, {}).setdefault(place.curve, [])
        curve.append((place.at, row[world], each))
    return {
        claim: {name: Curve(*zip(*dots, strict=True)) for name, dots in curves.items()}
        for claim, curves in found.items()
    }


def _compared(place: Place) -> tuple[str, float, str]:
    """What a place has in common with those that it is compared with."""
    return place.claim, place.at, place.curve.partition(", ")[2]


def all_curves(validations: Sequence[Mapping[str, Any]], world: str) -> dict[str, Curves]:
    """Of each claim by the last validation that has it."""
    found: dict[str, Curves] = {}
    for validation in validations:
        found |= curves_of(validation, world)
    return found


def verdicts(validations: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[str]]:
    """Rows of the table."""
    predicted, measured = (all_curves(validations, world) for world in ("predicted", "measured"))
    for name, claim in CLAIMS.items():
        of = OF_ANOTHER.get(name, name)
        bar = claim.form.format(claim.bar)
        try:
            ours, theirs = claim.figure(predicted[of]), claim.figure(measured[of])
        except KeyError:
            ours = theirs = math.nan
        if math.isnan(theirs):
            yield claim.says, bar, "", "", "not measured"
        else:
            said = claim.form.format(ours), claim.form.format(theirs)
            yield claim.says, bar, *said, claim.verdict(theirs)


def draw(validations: Sequence[Mapping[str, Any]], out: Path) -> None:
    """Each claim's curves: lines as predicted, dots as measured."""
    import matplotlib.pyplot as plt

    predicted, measured = (all_curves(validations, world) for world in ("predicted", "measured"))
    figure, panels = plt.subplots(2, 3, figsize=(11, 6.4), layout="constrained")
    for panel, (claim, curves) in zip(panels.flat, measured.items(), strict=False):
        for number, (name, curve) in enumerate(curves.items()):
            colour, was = f"C{number}", predicted[claim][name]
            panel.plot(was.at, [eps / 1e3 for eps in was.speed], color=colour)
            panel.plot(curve.at, [eps / 1e3 for eps in curve.speed], "o", color=colour, label=name)
        panel.set_title(claim, fontsize=10)
        panel.set_xlabel(CLAIMS[claim].along)
        panel.set_ylabel("thousand examples/s")
        panel.set_ylim(bottom=0)
        panel.legend(fontsize=7)
    for panel in list(panels.flat)[len(measured) :]:
        panel.axis("off")
    figure.savefig(out, metadata={"Date": None})


def main() -> None:
    """Write the experiment, or the verdicts."""
    about = {
        "--only": ("", "one claim"),
        "--judge": ("", "finished validations: print the verdicts on them"),
        "--picture": ("", "an SVG file of the curves"),
    }
    given = options(__doc__, about)
    if not given.judge:
        print("# Made by `python benchmarks/emulated_claims.py`, before any run.")
        made = experiment(given.only)
        text = yaml.safe_dump(made, sort_keys=False, default_flow_style=None, width=120)
        print(text, end="")
        return
    files = [Path(folder) / "validation.json" for folder in given.judge.split(",")]
    validations = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    heads = ("claim", "expected", "predicted", "measured", "verdict of the measurement")
    print("\n".join(table(heads, verdicts(validations))))
    if given.picture:
        draw(validations, Path(given.picture))


if __name__ == "__main__":
    main()
