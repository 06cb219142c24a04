"""Verdicts on published claims, by runs that today's code simulates. Writes the table of
docs/explain/claims.md, and benchmarks/results/claims.md, each claim in full.

python benchmarks/claims.py [CLAIM ...] [--out RUNS]

A file of benchmarks/claims/ is an experiment with one section more, `Claim`. Claims that are named,
by the stems of their files, are written to standard output, and the page stays. ``--out`` keeps the
runs, and those that it holds are not made again: name another folder for other code.
"""

from __future__ import annotations

import itertools
import math
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd
import yaml
from pydantic import Field
from script import exponent, options, table

from recsim_train import load, predict
from recsim_train.config.units import Section, Share
from recsim_train.report import text
from recsim_train.report.publish import plain
from recsim_train.results.rundir import RunRecord

FILES = Path(__file__).with_suffix("")
PAGE = Path(__file__).parents[1] / "docs" / "explain" / "claims.md"
DETAILS = Path(__file__).parent / "results" / "claims.md"

MARKS = {
    "found": "found in a public text",
    "derived": "derived by algebra",
    "recalled": "recalled, not checked: a reconstruction",
    "ours": "our own choice: a reconstruction",
}
Mark = Literal["found", "derived", "recalled", "ours"]
Changes = dict[str, tuple[str, ...]]  # overrides as ``--set`` takes them, by what they do
COMPRESSION = ("value_compression", "wire_compression")
COUNTED = ("bytes", *COMPRESSION)  # by the simulator's formulas: no simulated time enters
LAWS = {"easgd_knee": ("eps", "knee"), "easgd_sync_gap": ("sync_gap", "value")}
NEUTRAL = {"ratio": 1.0, "saved": 0.0}  # what "no effect" gives, by form
HALF = 0.5
"""Share of the expected effect from which on a check is met partly."""


class Check(Section):
    """One figure made of the variants' runs, and what it should be.

    ``measure``, of a run: eps, examples/s; time, seconds per example; bytes, sent per example by
    ``effects`` (none: by all), a ring all-reduce at 2(n-1)/n of its vector; compression, the run's
    own counts of ``content``; sync_gap, its mean. ``form``: value, that of ``of``; ratio, of /
    over; saved, 1 - of / over; exponent, the slope of log(measure) over log(along); knee, where a
    line through the first of ``of`` meets the level of the last; crossover, where of / over passes
    1, interpolated. ``near`` and ``law``, a derived formula, hold within ``tolerance``; ``up_to``
    should be reached somewhere in the claim's grid. ``follows_from``: the fitted input that sets
    the figure by construction. ``quality``: what the setting costs in learning quality.
    """

    says: str
    mark: Mark = "ours"
    measure: Literal["eps", "time", "bytes", "value_compression", "wire_compression", "sync_gap"]
    form: Literal["value", "ratio", "saved", "exponent", "knee", "crossover"] = "value"
    of: tuple[str, ...]
    over: tuple[str, ...] = ()
    along: str = ""
    effects: tuple[str, ...] = ()
    content: Literal["gradients", "activations", "activation_gradients"] = "gradients"
    near: float | None = None
    up_to: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    law: Literal["easgd_knee", "easgd_sync_gap"] | None = None
    tolerance: Share | None = None
    tolerance_from: str = ""
    follows_from: str = ""
    quality: str = ""

    @property
    def stated(self) -> list[float]:
        """The figures that are expected: one at most, and none by a law."""
        of = (self.near, self.up_to, self.at_least, self.at_most)
        return [figure for figure in of if figure is not None]


class Claim(Section):
    """A published claim: what is said and by whom, how it is checked, what the answer leans on.

    ``mark``: how we know the statement. ``fitted``: inputs chosen in view of a result or of the
    claim, and how. ``common``: overrides of all ``variants``. The first of ``checks`` is the claim
    itself, and its variants are simulated again for each change of an input of ``sensitivity``;
    ``grid``: the settings in which ``up_to`` is judged, every combination of them.
    """

    statement: str
    source: str
    mark: Mark
    setting: str
    hinges_on: str
    fitted: dict[str, str]
    common: tuple[str, ...] = ()
    variants: Changes
    checks: tuple[Check, ...]
    sensitivity: dict[str, Changes] = Field(default_factory=dict)
    grid: dict[str, Changes] = Field(default_factory=dict)


def problems(claim: Claim) -> list[str]:
    """Why a claim is refused: expectations that cannot be missed, choices that are hidden."""
    in_grid = [check.up_to is not None for check in claim.checks]
    changed = (override.partition("=")[0].strip() for override in claim.common)
    hidden = {key for key in changed if key.startswith("cluster.")} - claim.fitted.keys()
    rules = [
        (hidden, f"the profile is changed: say under 'fitted' why {', '.join(hidden)} is"),
        (bool(claim.grid) != any(in_grid), "'up_to' and 'grid' need each other"),
        (claim.sensitivity and in_grid[0], "the first check is judged in a grid: vary that"),
    ]
    for check in claim.checks:
        many = len(check.stated) + bool(check.law)
        band = check.near is not None or check.law is not None
        whose = check.tolerance is not None and check.tolerance_from.strip()
        unknown = {*check.of, *check.over} - claim.variants.keys()
        rules += [
            (unknown, f"no variant {', '.join(unknown)}"),
            (many > 1, "near, up_to, at_least, at_most and law exclude each other"),
            (many and check.mark == "recalled", "what is recalled cannot be a target"),
            (band and not whose, "near and law need a 'tolerance' and 'tolerance_from'"),
            (not band and check.tolerance is not None, "only near and law have a tolerance"),
            (
                check.measure in COUNTED and (check.law or (many and check.mark == "derived")),
                f"{check.measure} is a formula in the simulator: a derived one could not be missed",
            ),
            (
                check.law and (check.measure, check.form) != LAWS[check.law],
                f"{check.law} is about another measure or form",
            ),
            (
                check.measure in COMPRESSION and many and not check.follows_from,
                "compression is set by an input: name it in 'follows_from'",
            ),
            (
                check.follows_from and check.follows_from not in claim.fitted,
                f"{check.follows_from} is not listed under 'fitted'",
            ),
        ]
    return [said for broken, said in rules if broken]


Runs = Mapping[str, RunRecord]  # by the name of the variant
Point = tuple[Mapping[str, str], Runs]  # by a grid's axes their values, and the runs there


def bytes_per_example(record: RunRecord, effects: Sequence[str] = ()) -> float:
    """Bytes sent per counted example, by all processes.

    Payload counts an all-reduce's vector once per member; here it counts as its ring sends it.
    """
    summary, sent = record.summary, 0.0
    assert not summary.round_bytes_by_effect, "bytes of background loops are per round"
    groups = record.manifest["plan"]["groups"].items()
    members = {name.partition("[")[0]: len(group) for name, group in groups}
    for key, total in record.totals().items():
        if not effects or key.effect.removeprefix("serve_") in effects:
            ring = 2 - 2 / members[key.name] if key.effect == "all_reduce" else 1.0
            sent += total.bytes * ring
    return sent / (summary.counted_iterations * summary.batch_size)


def idle_cores(check: Check, runs: Runs) -> str:
    """Which run of a comparison of speed leaves cores of its trainers' hosts idle; "": none does.

    How fast that run would be on all of them is not known, so its speed says nothing about a claim.
    """
    for name in (*check.of, *check.over) if check.measure in ("eps", "time") else ():
        profile, threads = runs[name].manifest["cluster"], runs[name].summary.computing_threads
        assert not profile["colocate"]
        assert not profile.get("mixed")
        cores = (profile["hosts"].get("trainer") or profile["hosts"]["default"])["cores"]
        if threads < cores:
            return f"{name!r} computes on {threads} of each host's {cores} cores"
    return ""


def crossing(along: Sequence[float], of: Sequence[float], over: Sequence[float]) -> float | None:
    """Where of / over passes 1, interpolated between logarithms; beyond the grid: None."""
    points = sorted((x, a / b) for x, a, b in zip(along, of, over, strict=True))
    for (x0, r0), (x1, r1) in itertools.pairwise(points):
        if (r0 - 1) * (r1 - 1) <= 0 and r0 != r1:
            return x0 * (x1 / x0) ** (-math.log(r0) / (math.log(r1) - math.log(r0)))
    return None


MEASURES: dict[str, Callable[[RunRecord, Check], float]] = {
    "eps": lambda run, _: run.summary.examples_per_second,
    "time": lambda run, _: 1 / run.summary.examples_per_second,
    "bytes": lambda run, check: bytes_per_example(run, check.effects),
    "sync_gap": lambda run, _: run.summary.synchronisation.sync_gap.mean,
    "value_compression": lambda run, c: run.facts.compression[c.content].value_compression,
    "wire_compression": lambda run, c: run.facts.compression[c.content].wire_compression,
}
FORMS: dict[str, Callable[[Sequence[float], Sequence[float], Sequence[float]], float | None]] = {
    "value": lambda of, *_: of[0],
    "ratio": lambda of, over, _: of[0] / over[0],
    "saved": lambda of, over, _: 1 - of[0] / over[0],
    "exponent": lambda of, _, along: exponent(along, of),
    "knee": lambda of, _, along: of[-1] / (of[0] / along[0]),
    "crossover": lambda of, over, along: crossing(along, of, over),
}


def figure(check: Check, runs: Runs) -> float | None:
    """What a check makes of its runs; None where a crossover is not reached."""
    of, over = (
        [MEASURES[check.measure](runs[name], check) for name in names]
        for names in (check.of, check.over)
    )
    settings = [runs[name].manifest["configuration"] for name in check.of if check.along]
    along = [float(reduce(getitem, check.along.split("."), each)) for each in settings]
    return FORMS[check.form](of, over, along)


def easgd_knee(
    servers: int, nic: float, every: int, iteration: float, threads: int, weights: float
) -> float:
    """Trainers n where the linear part of FR-EASGD-k meets its plateau.

    n_max (1 + 2 W / (C k t)) with n_max = S C k t / (m W): S sync servers of C bytes/s, k
    iterations of t seconds between exchanges of W bytes each way, m threads per trainer. The
    bracket is what an exchange adds to k iterations when servers are idle.
    """
    n_max = servers * nic * every * iteration / (threads * weights)
    return n_max * (1 + 2 * weights / (nic * every * iteration))


def easgd_sync_gap(
    trainers: int,
    servers: int,
    nic: float,
    latency: float,
    iteration: float,
    threads: int,
    weights: float,
) -> float:
    """Iterations of a trainer (all threads) between two rounds of an S-EASGD shadow.

    m t_s / t with t_s = 2 (latency + W / min(C, S C / n)): flat while the trainer's own NIC
    limits an exchange, then growing like n/S. Without the shadow's own work, so a lower bound.
    """
    rate = min(nic, servers * nic / trainers)
    return threads * 2 * (latency + weights / rate) / iteration


def expected_by_law(check: Check, runs: Runs) -> float:
    """What the derived law says for the check's own runs."""
    manifest, summary = runs[check.of[0]].manifest, runs[check.of[0]].summary
    hosts, network = manifest["cluster"]["hosts"], manifest["cluster"]["network"]
    shards = manifest["plan"]["dense_shards"]
    common = {
        "servers": len(shards),
        "nic": (hosts.get("dense_server") or hosts["default"])["nic"] * network["efficiency"],
        "threads": summary.threads,
        "weights": sum(shard["bytes"] for shard in shards),
    }
    t = summary.seconds_per_iteration
    if check.law == "easgd_sync_gap":
        return easgd_sync_gap(summary.trainers, latency=network["latency"], iteration=t, **common)
    alone = t - summary.time_by_effect.get("exchange", 0.0)
    every = manifest["strategy"]["options"].get("every", 5)
    return easgd_knee(every=every, iteration=alone, **common)


class Checked(NamedTuple):
    """One check and what came of it.

    ``figure``: in a grid the largest of all ``points``, which are by the values there. ``why``:
    there is no figure, or none that could be compared.
    """

    check: Check
    figure: float | None
    expected: float | None
    verdict: str
    why: str
    points: Sequence[tuple[Mapping[str, str], float]]


def judge(check: Check, points: Sequence[Point]) -> Checked:
    """One check against its runs, at one point or at all points of a grid."""
    each = [(at, figure(check, runs)) for at, runs in points]
    best = max((value for _, value in each if value is not None), default=None)
    laws = [expected_by_law(check, runs) for _, runs in points if check.law]
    expected = next(iter([*check.stated, *laws]), None)
    if best is None:
        why = "the ratio does not pass 1 within the simulated settings"
        said = "not reproduced" if expected else "no figure"
    else:
        why = next(filter(None, (idle_cores(check, runs) for _, runs in points)), "")
        said = "not comparable" if why and expected is not None else verdict(check, best, expected)
    return Checked(check, best, expected, said, why, each)


def verdict(check: Check, value: float, expected: float | None) -> str:
    """Reproduced: met. Partly: the right way, and at least half of the expected effect.

    The effect is the distance from what "no effect" would give: 1 for ratios and compressions, 0
    for savings. Other forms have no such point: there half and twice the expected figure are the
    limits. "Up to" has no band: a point of the grid reaches the figure, or none.
    """
    if expected is None:
        return "for context"
    if check.follows_from:
        return "follows from the input"
    if check.tolerance is not None:
        met = abs(value - expected) <= check.tolerance * abs(expected)
    else:
        met = value <= expected if check.at_most is not None else value >= expected
    neutral = 1.0 if check.measure in COMPRESSION else NEUTRAL.get(check.form)
    if neutral is not None and expected != neutral:
        partly = (value - neutral) / (expected - neutral) >= HALF
    else:
        partly = expected != 0 and HALF <= value / expected <= 1 / HALF
    return "reproduced" if met else "partly" if partly and not check.up_to else "not reproduced"


class Judged(NamedTuple):
    """One claim with all that was found; ``varied``: (input, change, the first check with it)."""

    name: str
    claim: Claim
    checks: Sequence[Checked]
    varied: Sequence[tuple[str, str, Checked]]
    runs: Runs


def judged(name: str, claim: Claim, run: Callable[..., RunRecord]) -> Judged:
    """A claim with its verdicts. ``run``: a variant's name and further overrides to its run."""
    runs = {variant: run(variant) for variant in claim.variants}

    def at(check: Check, values: Mapping[str, str], *more: str) -> Point:
        return values, {name: run(name, *more) for name in (*check.of, *check.over)}

    def in_grid(check: Check) -> list[Point]:
        of = [[(axis, *each) for each in changes.items()] for axis, changes in claim.grid.items()]
        return [
            at(check, {axis: value for axis, value, _ in point}, *(m for p in point for m in p[2]))
            for point in itertools.product(*of)
        ]

    varied = [
        (name, change, judge(claim.checks[0], [at(claim.checks[0], {}, *more)]))
        for name, changes in claim.sensitivity.items()
        for change, more in changes.items()
    ]
    checks = [
        judge(check, [({}, runs)] if check.up_to is None else in_grid(check))
        for check in claim.checks
    ]
    return Judged(name, claim, checks, varied, runs)


def read(file: Path) -> tuple[str, Claim, dict[str, Any]]:
    """The name of a file's experiment, its claim and the experiment. Raises SystemExit."""
    experiment = yaml.safe_load(file.read_text(encoding="utf-8"))
    claim = Claim.model_validate(experiment.pop("claim"))
    if wrong := problems(claim):
        raise SystemExit("\n".join(f"{file}: {problem}" for problem in wrong))
    return experiment["name"], claim, experiment


def simulated(file: Path, out: Path) -> Judged:
    """A claim whose runs are made, or taken from ``out`` where they are there."""
    name, claim, experiment = read(file)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / file.name
        path.write_text(yaml.safe_dump(experiment), encoding="utf-8")

        def run(variant: str, *more: str) -> RunRecord:
            print(f"{name}: {variant} {' '.join(more)}", file=sys.stderr)
            study = load(path, overrides=[*claim.common, *claim.variants[variant], *more])
            return predict(study, out=out, resume=True, what_if=False)[0].record

        return judged(name, claim, run)


def amount(check: Check, value: float | None) -> str:
    """A figure of a check, as its form is read."""
    if value is None:
        return text.NONE
    if check.form == "saved":
        return text.percent(value)
    times = "×" if check.form == "ratio" or check.measure in COMPRESSION else ""
    return f"{value:.3g}{times}".replace("-", "−")


def expectation(checked: Checked) -> str:
    """What the check expects, in short."""
    check, what = checked.check, amount(checked.check, checked.expected)
    if check.tolerance is not None:
        what += f" ± {text.percent(check.tolerance)}" + ", by the law" * bool(check.law)
    limits = {"≥": check.at_least, "≤": check.at_most, "up to": check.up_to}
    return " ".join([*(said for said, stated in limits.items() if stated is not None), what])


def _words(said: str) -> str:
    return " ".join(said.split()).rstrip(".")


def with_quality(said: str, *checks: Checked) -> str:
    """A verdict, and in the same line what its setting costs in quality."""
    costs = dict.fromkeys(_words(c.check.quality) for c in checks if c.check.quality)
    return "; ".join((said, *costs))


def conclusion(judged: Judged) -> tuple[str, str]:
    """The verdict on the claim, which is the first check's, and reproduced only if no further one
    fails; why, and what the setting costs."""
    first, *further = judged.checks
    missed = {c.verdict for c in further} - {"reproduced", "for context"}
    shown, least = amount(first.check, first.figure), amount(first.check, first.expected)
    reasons = {
        "no figure": first.why,
        "not comparable": f"{shown} says nothing while {first.why}",
        "follows from the input": ", and ".join(
            f"{amount(c.check, c.figure)} is set by {c.check.follows_from}, which was chosen for it"
            for c in judged.checks
            if c.verdict == "follows from the input"
        ),
    }
    why = f"{shown} where {expectation(first)} is expected"
    if first.check.up_to:
        values = [value for _, value in first.points]
        reached, lowest = sum(v >= first.check.up_to for v in values), min(values)
        why = (
            f"{reached} of {len(values)} settings stated beforehand reach {least}; they range from "
            f"{amount(first.check, lowest)} to {shown}"
        )
    said = first.verdict
    if said == "reproduced" and missed:
        said, why = "partly", f"{why}, but not every further expectation is met"
    fitted = " with fitted inputs" * (
        bool(judged.claim.fitted) and said in ("reproduced", "partly")
    )
    return said + fitted, with_quality(reasons.get(said, why), *judged.checks)


def _grid(checked: Checked) -> str:
    """How often "up to" is reached, by each axis of the grid, and where it is highest."""
    check = checked.check
    axes = pd.DataFrame([at for at, _ in checked.points])
    reached = pd.Series([value >= check.up_to for _, value in checked.points])
    by_axis = {axis: reached.groupby(axes[axis], sort=False) for axis in axes}
    counts = [
        f"by {axis}: {', '.join(f'{value}: {sum(r)} of {len(r)}' for value, r in groups)}"
        for axis, groups in by_axis.items()
    ]
    at, best = max(checked.points, key=lambda point: point[1])
    return (
        f"{_words(check.says)}: settings that reach {amount(check, check.up_to)}, "
        f"{'; '.join(counts)}; the highest is {amount(check, best)}, at "
        f"{', '.join(f'{axis} {value}' for axis, value in at.items())}."
    )


def sentences(judged: Judged) -> list[str]:
    """What a reader must know about a claim's answer, each sentence once."""
    claim, first = judged.claim, judged.checks[0]
    records = judged.runs.values()
    profiles = [record.manifest["cluster"] for record in records]
    fitted = "; ".join(f"{name} ({_words(how)})" for name, how in claim.fitted.items())
    changes = [
        f"{name} {change}: {amount(first.check, c.figure)} ({c.verdict})"
        for name, change, c in judged.varied
    ]
    moved = {abs((c.figure or 0.0) - (first.figure or 0.0)): name for name, _, c in judged.varied}
    said = [
        f"Source: {claim.source} ({MARKS[claim.mark]}).",
        f"Setting: {_words(claim.setting)}.",
        *(
            f"Profile {p['name']}: {_words(p['description'])}."
            for p in profiles
            if p["description"]
        ),
        f"Fitted inputs: {fitted}." if fitted else "No input was fitted.",
        *(
            f"Tolerance of {text.percent(check.tolerance)}: {_words(check.tolerance_from)}."
            for check in claim.checks
            if check.tolerance is not None
        ),
        *(_grid(checked) for checked in judged.checks if checked.check.up_to),
        f"It hinges on {_words(claim.hinges_on)}.",
        *(
            [f"First figure {amount(first.check, first.figure)}; with {'; '.join(changes)}."]
            * bool(changes)
        ),
        *(
            [f"Of these, {moved[max(moved)]} moves it most."]
            if len(set(moved.values())) > 1
            else []
        ),
        *(f"{_words(note)}." for record in records for note in record.facts.warnings),
    ]
    return list(dict.fromkeys(said))


def section(judged: Judged) -> list[str]:
    """The part of the page on one claim."""
    said, why = conclusion(judged)
    rows = (
        (
            c.check.says,
            c.check.mark,
            expectation(c),
            amount(c.check, c.figure) + (f" ({c.why})" if c.why else ""),
            with_quality(c.verdict, c),
        )
        for c in judged.checks
    )
    return [
        f"## {judged.name}\n",
        f"{plain(_words(judged.claim.statement))}. **{said.capitalize()}**: {plain(why)}.\n",
        *table(
            ("claim", "mark", "expected", "predicted", "verdict"), (map(plain, r) for r in rows)
        ),
        "",
        *(f"- {plain(sentence)}" for sentence in sentences(judged)),
        "",
    ]


def page(before: str, claims: Sequence[Judged]) -> str:
    """docs/explain/claims.md with its table made anew, between the two lines that are comments."""
    begin, end = "<!-- figures -->\n", "<!-- end of figures -->\n"
    head, tail = before.split(begin, maxsplit=1)[0], before.split(end)[1]
    overview = (
        (f"{_words(c.claim.statement)}.", c.claim.source, c.claim.mark, ": ".join(conclusion(c)))
        for c in claims
    )
    lines = [
        f"Figures of {date.today():%-d %B %Y}:\n",
        *table(("claim", "source", "mark", "verdict"), (map(plain, row) for row in overview)),
        "",
    ]
    return "\n".join([head + begin, *lines, end + tail])


def details(claims: Sequence[Judged]) -> str:
    """benchmarks/results/claims.md: each claim with all that there is to know of its answer."""
    lines = [
        "# Published claims, each in full\n",
        "Made by `python benchmarks/claims.py`; what the words mean is in "
        "[claims](../../docs/explain/claims.md).\n",
        f"Figures of {date.today():%-d %B %Y}:\n",
        *itertools.chain.from_iterable(map(section, claims)),
    ]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Simulate, judge, write."""
    about = {
        "claims": {"nargs": "*", "help": "stems of files in benchmarks/claims/"},
        "--out": {"type": Path, "help": "where the runs are kept"},
    }
    asked = options(__doc__, about)
    files = [FILES / f"{stem}.yaml" for stem in asked.claims] or sorted(FILES.glob("*.yaml"))
    with tempfile.TemporaryDirectory() as folder:
        found = [simulated(file, asked.out or Path(folder)) for file in files]
    if asked.claims:
        print("\n".join(line for one in found for line in section(one)))
    else:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
        DETAILS.write_text(details(found), encoding="utf-8")


if __name__ == "__main__":
    main()
