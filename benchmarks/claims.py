"""Verdicts on published claims, by runs that today's code simulates; writes docs/claims.md.

python benchmarks/claims.py [CLAIM ...] [--out RUNS]

A file of benchmarks/claims/ is an experiment with one section more, `Claim`. Claims that are named,
by the stems of their files, are written to standard output, and the page stays. ``--out`` keeps the
runs, and those that it holds are not made again: name another folder for other code.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field

from recsim_train import load, predict
from recsim_train.config.units import Section, Share
from recsim_train.report import text
from recsim_train.report.publish import plain
from recsim_train.results.rundir import RunRecord

FILES = Path(__file__).with_suffix("")
PAGE = Path(__file__).parents[1] / "docs" / "claims.md"

MARKS = {
    "found": "found in a public text",
    "derived": "derived by algebra",
    "recalled": "recalled, not checked: a reconstruction",
    "ours": "our own choice: a reconstruction",
}
Mark = Literal["found", "derived", "recalled", "ours"]
Changes = dict[str, tuple[str, ...]]
"""Overrides as ``--set`` takes them, by what they do."""
COMPRESSION = ("value_compression", "wire_compression")
COUNTED = ("bytes", *COMPRESSION)
"""Worked out by the simulator from sizes and settings alone: no simulated time enters."""
LAWS = {"easgd_knee": ("eps", "knee"), "easgd_sync_gap": ("sync_gap", "value")}
"""The measure and the form that each law is about."""
NEUTRAL = {"ratio": 1.0, "saved": 0.0}
"""What "no effect" gives, by form."""
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
    def expected(self) -> float | None:
        """The stated figure, if one is; a law's is not stated."""
        stated = (self.near, self.up_to, self.at_least, self.at_most)
        return next((figure for figure in stated if figure is not None), None)


class Sensitivity(Section):
    """An input that is changed, to see what the first check makes of it."""

    input: str
    changes: Changes


class Claim(Section):
    """A published claim: what is said and by whom, how it is checked, what the answer leans on.

    ``mark``: how we know the statement. ``fitted``: inputs chosen in view of a result or of the
    claim, and how. ``common``: overrides of all ``variants``. The first of ``checks`` is the claim
    itself, and its variants are simulated again for each change of ``sensitivity``; ``grid``: the
    settings in which ``up_to`` is judged, every combination of them.
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
    sensitivity: tuple[Sensitivity, ...] = ()
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
        stated = (check.near, check.up_to, check.at_least, check.at_most, check.law)
        many = sum(expectation is not None for expectation in stated)
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


Runs = Mapping[str, RunRecord]
"""By the name of the variant."""


def measured(record: RunRecord, check: Check) -> float:
    """What the check measures, of one run."""
    summary = record.summary
    if check.measure in COMPRESSION:
        return float(getattr(summary.facts.compression[check.content], check.measure))
    if check.measure == "bytes":
        return bytes_per_example(record, check.effects)
    if check.measure == "sync_gap":
        assert summary.synchronisation.sync_gap is not None
        return summary.synchronisation.sync_gap.mean
    assert summary.examples_per_second
    return summary.examples_per_second ** (-1 if check.measure == "time" else 1)


def bytes_per_example(record: RunRecord, effects: Sequence[str] = ()) -> float:
    """Bytes sent per counted example, by all processes.

    Payload counts an all-reduce's vector once per member; here it counts as its ring sends it.
    """
    assert not record.summary.round_bytes_by_effect, "bytes of background loops are per round"
    groups = record.manifest["plan"]["groups"].items()
    members = {name.partition("[")[0]: len(group) for name, group in groups}
    sent = 0.0
    for key, total in record.totals().items():
        effect = key.effect.removeprefix("serve_")
        if not effects or effect in effects:
            factor = ring_factor(members[key.name]) if effect == "all_reduce" else 1.0
            sent += total.bytes * factor
    return sent / (record.summary.counted_iterations * record.summary.batch_size)


def idle_cores(check: Check, runs: Runs) -> str:
    """Which run of a comparison of speed leaves cores of its trainers' hosts idle; "": none does.

    How fast that run would be on all of them is not known, so its speed says nothing about a claim.
    """
    if check.measure not in ("eps", "time"):
        return ""
    for name in dict.fromkeys((*check.of, *check.over)):
        profile, summary = runs[name].manifest["cluster"], runs[name].summary
        assert not profile["colocate"]
        assert not profile.get("mixed")
        hosts = profile["hosts"]
        cores = int((hosts.get("trainer") or hosts["default"])["cores"])
        if summary.computing_threads < cores:
            return f"{name!r} computes on {summary.computing_threads} of each host's {cores} cores"
    return ""


def figure(check: Check, runs: Runs) -> float | None:
    """What a check makes of its runs; None where a crossover is not reached."""
    of = [measured(runs[name], check) for name in check.of]
    over = [measured(runs[name], check) for name in check.over]
    if check.form == "value":
        return of[0]
    if check.form == "ratio":
        return of[0] / over[0]
    if check.form == "saved":
        return 1 - of[0] / over[0]
    along = [_setting(runs[name], check.along) for name in check.of]
    if check.form == "exponent":
        return slope(along, of)
    if check.form == "knee":
        return of[-1] / (of[0] / along[0])
    return crossing(along, [a / b for a, b in zip(of, over, strict=True)])


def _setting(record: RunRecord, name: str) -> float:
    at: Any = record.manifest["configuration"]
    for part in name.split("."):
        at = at[part]
    return float(at)


def slope(along: Sequence[float], values: Sequence[float]) -> float:
    """Least-squares slope of log(value) over log(along): 1 is linear, 0 is flat."""
    logarithms = ([math.log(value) for value in column] for column in (along, values))
    return statistics.linear_regression(*logarithms).slope


def crossing(along: Sequence[float], ratios: Sequence[float]) -> float | None:
    """Where a ratio passes 1, interpolated between logarithms; beyond the grid: None."""
    points = sorted(zip(along, ratios, strict=True))
    for (x0, r0), (x1, r1) in itertools.pairwise(points):
        if (r0 - 1) * (r1 - 1) <= 0 and r0 != r1:
            return x0 * (x1 / x0) ** (-math.log(r0) / (math.log(r1) - math.log(r0)))
    return None


def ring_factor(members: int) -> float:
    """How many times its vector each member of a ring all-reduce sends: 2(n-1)/n."""
    return 2 * (members - 1) / members


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
    first = runs[check.of[0]]
    cluster, shards = first.manifest["cluster"], first.manifest["plan"]["dense_shards"]
    host = cluster["hosts"].get("dense_server") or cluster["hosts"]["default"]
    common = {
        "servers": len(shards),
        "nic": host["nic"] * cluster["network"]["efficiency"],
        "iteration": first.summary.seconds_per_iteration,
        "threads": first.summary.threads,
        "weights": float(sum(shard["bytes"] for shard in shards)),
    }
    if check.law == "easgd_knee":
        # t is an iteration's without its share of an exchange
        common["iteration"] -= first.summary.time_by_effect.get("exchange", 0.0)
        return easgd_knee(
            every=int(first.manifest["strategy"]["options"].get("every", 5)), **common
        )
    latency = float(cluster["network"]["latency"])
    return easgd_sync_gap(trainers=first.summary.trainers, latency=latency, **common)


@dataclass(frozen=True, slots=True)
class Checked:
    """One check and what came of it."""

    check: Check
    figure: float | None
    expected: float | None
    verdict: str
    why: str = ""
    """Why there is no figure, or none that could be compared."""
    points: tuple[tuple[Mapping[str, str], float], ...] = ()
    """The figure at each point of the grid, by the values there."""


def judge(check: Check, runs: Runs) -> Checked:
    """One check against its runs."""
    value = figure(check, runs)
    expected = expected_by_law(check, runs) if check.law else check.expected
    if value is None:
        why = "the ratio does not pass 1 within the simulated settings"
        return Checked(check, None, expected, "not reproduced" if expected else "no figure", why)
    idle = idle_cores(check, runs)
    comparable = expected is None or not idle
    said = verdict(check, value, expected) if comparable else "not comparable"
    return Checked(check, value, expected, said, idle)


def judge_grid(check: Check, points: Sequence[tuple[Mapping[str, str], Runs]]) -> Checked:
    """The largest figure of all points. There is no band: either a point reaches it or none."""
    assert check.up_to is not None
    each = [(at, figure(check, runs) or 0.0) for at, runs in points]
    best = max(value for _, value in each)
    idle = next(filter(None, (idle_cores(check, runs) for _, runs in points)), "")
    said = "reproduced" if best >= check.up_to else "not reproduced"
    if check.follows_from or idle:
        said = "follows from the input" if check.follows_from else "not comparable"
    return Checked(check, best, check.up_to, said, idle, tuple(each))


def verdict(check: Check, value: float, expected: float | None) -> str:
    """Reproduced: met. Partly: the right way, and at least half of the expected effect.

    The effect is the distance from what "no effect" would give: 1 for ratios and compressions, 0
    for savings. Other forms have no such point: there half and twice the expected figure are the
    limits.
    """
    if expected is None:
        return "for context"
    if check.follows_from:
        return "follows from the input"
    if check.at_least is not None:
        met = value >= expected
    elif check.at_most is not None:
        met = value <= expected
    else:
        assert check.tolerance is not None
        met = abs(value - expected) <= check.tolerance * abs(expected)
    if met:
        return "reproduced"
    neutral = 1.0 if check.measure in COMPRESSION else NEUTRAL.get(check.form)
    if neutral is not None and expected != neutral:
        partly = (value - neutral) / (expected - neutral) >= HALF
    else:
        partly = expected != 0 and HALF <= value / expected <= 1 / HALF
    return "partly" if partly else "not reproduced"


@dataclass(frozen=True, slots=True)
class Judged:
    """One claim with all that was found."""

    name: str
    claim: Claim
    checks: tuple[Checked, ...]
    varied: tuple[tuple[str, str, Checked], ...]
    """(input, change, the first check with it)."""
    clusters: tuple[tuple[str, str], ...]
    """(name, description) of the profiles of the unvaried runs."""
    notes: tuple[str, ...]
    """What the unvaried runs say about themselves."""

    @property
    def verdict(self) -> str:
        """The first check's; reproduced only if no further one fails."""
        first = self.checks[0].verdict
        judged = {checked.verdict for checked in self.checks} - {"for context"}
        return "partly" if first == "reproduced" and judged != {first} else first


def judged(name: str, claim: Claim, run: Callable[..., RunRecord]) -> Judged:
    """A claim with its verdicts. ``run``: a variant's name and further overrides to its run."""
    runs = {variant: run(variant) for variant in claim.variants}
    first = claim.checks[0]

    def again(check: Check, more: Iterable[str]) -> Runs:
        return {variant: run(variant, *more) for variant in (*check.of, *check.over)}

    varied = [
        (changed.input, change, judge(first, again(first, more)))
        for changed in claim.sensitivity
        for change, more in changed.changes.items()
    ]

    def at_each_point(check: Check) -> Iterator[tuple[Mapping[str, str], Runs]]:
        for values in itertools.product(*claim.grid.values()):
            at = dict(zip(claim.grid, values, strict=True))
            yield at, again(check, [key for axis in at for key in claim.grid[axis][at[axis]]])

    checks = [
        judge(check, runs) if check.up_to is None else judge_grid(check, [*at_each_point(check)])
        for check in claim.checks
    ]
    profiles = (record.manifest["cluster"] for record in runs.values())
    clusters = dict.fromkeys((p["name"], p["description"]) for p in profiles)
    notes = dict.fromkeys(note for r in runs.values() for note in r.facts.warnings)
    return Judged(name, claim, tuple(checks), tuple(varied), tuple(clusters), tuple(notes))


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
            (found,) = predict(study, out=out, resume=True, what_if=False)
            return found.record

        return judged(name, claim, run)


def amount(check: Check, value: float | None) -> str:
    """A figure of a check, as its form is read."""
    if value is None:
        return text.NONE
    if check.form == "saved":
        return text.percent(value)
    if check.form == "ratio" or check.measure in COMPRESSION:
        return f"{value:.3g}×"
    if check.form == "value" and check.measure == "eps":
        return f"{text.rate(value)}/s"
    return f"{value:.3g}".replace("-", "−")


def expectation(checked: Checked) -> str:
    """What the check expects, in short."""
    check, what = checked.check, amount(checked.check, checked.expected)
    if checked.expected is None:
        return what
    for said, stated in (("≥", check.at_least), ("≤", check.at_most), ("up to", check.up_to)):
        if stated is not None:
            return f"{said} {what}"
    law = ", by the law" if check.law else ""
    return f"{what} ± {text.percent(check.tolerance or 0.0)}{law}"


def _words(said: str) -> str:
    """On one line, without the full stop."""
    return " ".join(said.split()).rstrip(".")


def with_quality(said: str, *checks: Checked) -> str:
    """A verdict, and in the same line what its setting costs in quality."""
    costs = dict.fromkeys(_words(c.check.quality) for c in checks if c.check.quality)
    return "; ".join((said, *costs))


def conclusion(judged: Judged) -> tuple[str, str]:
    """The verdict on the claim; why, and what it costs."""
    said = judged.verdict
    if judged.claim.fitted and said in ("reproduced", "partly"):
        said += " with fitted inputs"
    return said, with_quality(_reason(judged), *judged.checks)


def _reason(judged: Judged) -> str:
    first = judged.checks[0]
    shown = amount(first.check, first.figure)
    if judged.verdict == "no figure":
        return first.why
    if judged.verdict == "not comparable":
        return f"{shown} says nothing while {first.why}"
    if judged.verdict == "follows from the input":
        return ", and ".join(
            f"{amount(c.check, c.figure)} is set by {c.check.follows_from}, which was chosen for it"
            for c in judged.checks
            if c.verdict == judged.verdict
        )
    said = f"{shown} where {expectation(first)} is expected"
    if first.points:
        values = [value for _, value in first.points]
        reached = sum(value >= (first.expected or 0.0) for value in values)
        said = (
            f"{reached} of {len(values)} settings stated beforehand reach "
            f"{amount(first.check, first.expected)}; they range from "
            f"{amount(first.check, min(values))} to {shown}"
        )
    missed = sum(c.verdict not in ("reproduced", "for context") for c in judged.checks[1:])
    if first.verdict == "reproduced" and missed:
        number, verb = ("one", "is") if missed == 1 else (str(missed), "are")
        said += f", but {number} of the further expectations {verb} not met"
    return said


def _grid(checked: Checked) -> str:
    """How often "up to" is reached, by each axis of the grid, and where it is highest."""
    check, least = checked.check, checked.expected or 0.0
    at, best = max(checked.points, key=lambda point: point[1])
    counts = []
    for axis in at:
        there: dict[str, list[bool]] = {}
        for point, value in checked.points:
            there.setdefault(point[axis], []).append(value >= least)
        each = ", ".join(f"{v}: {sum(reached)} of {len(reached)}" for v, reached in there.items())
        counts.append(f"by {axis}: {each}")
    where = ", ".join(f"{axis} {value}" for axis, value in at.items())
    return (
        f"{_words(check.says)}: settings that reach {amount(check, least)}, {'; '.join(counts)}; "
        f"the highest is {amount(check, best)}, at {where}."
    )


def _sensitivity(judged: Judged) -> Iterator[str]:
    """What the varied inputs make of the first figure, and which of several moves it most."""
    check, base = judged.checks[0].check, judged.checks[0].figure
    changes = [
        f"{name} {change}: {amount(check, c.figure)} ({c.verdict})"
        for name, change, c in judged.varied
    ]
    if changes:
        yield f"First figure {amount(check, base)}; with {'; '.join(changes)}."
    moved = {abs((c.figure or 0.0) - (base or 0.0)): name for name, _, c in judged.varied}
    if len(set(moved.values())) > 1:
        yield f"Of these, {moved[max(moved)]} moves it most."


def sentences(judged: Judged) -> list[str]:
    """What a reader must know about a claim's answer."""
    claim = judged.claim
    fitted = "; ".join(f"{name} ({_words(how)})" for name, how in claim.fitted.items())
    tolerances = (
        f"Tolerance of {text.percent(c.check.tolerance)}: {_words(c.check.tolerance_from)}."
        for c in judged.checks
        if c.check.tolerance is not None
    )
    return [
        f"Source: {claim.source} ({MARKS[claim.mark]}).",
        f"Setting: {_words(claim.setting)}.",
        *(f"Profile {name}: {_words(about)}." for name, about in judged.clusters if about),
        f"Fitted inputs: {fitted}." if fitted else "No input was fitted.",
        *dict.fromkeys(tolerances),
        *(_grid(checked) for checked in judged.checks if checked.points),
        f"It hinges on {_words(claim.hinges_on)}.",
        *_sensitivity(judged),
        *(f"{_words(note)}." for note in judged.notes),
    ]


def table(*rows: Sequence[str]) -> list[str]:
    """Rows of words in Markdown, the first of which is the head."""
    head, *body = [f"| {' | '.join(map(plain, row))} |" for row in rows]
    return [head, f"|{'---|' * len(rows[0])}", *body, ""]


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
        *table(("claim", "mark", "expected", "predicted", "verdict"), *rows),
        *(f"- {plain(sentence)}" for sentence in sentences(judged)),
        "",
    ]


def page(before: str, claims: Sequence[Judged]) -> str:
    """docs/claims.md with its figures made anew, between the two lines that are comments."""
    overview = (
        (f"{_words(c.claim.statement)}.", c.claim.source, c.claim.mark, ": ".join(conclusion(c)))
        for c in claims
    )
    lines = [
        f"Figures of {date.today():%-d %B %Y}:\n",
        *table(("claim", "source", "mark", "verdict"), *overview),
        *itertools.chain.from_iterable(map(section, claims)),
    ]
    head, begin, _ = before.partition("<!-- figures -->\n")
    _, end, tail = before.partition("<!-- end of figures -->\n")
    assert begin
    assert end
    return "\n".join([head + begin, *lines, end + tail])


def main() -> None:
    """Simulate, judge, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("claims", nargs="*", help="stems of files in benchmarks/claims/")
    parser.add_argument("--out", type=Path, help="where the runs are kept")
    asked = parser.parse_args()
    files = [FILES / f"{stem}.yaml" for stem in asked.claims] or sorted(FILES.glob("*.yaml"))
    with tempfile.TemporaryDirectory() as folder:
        found = [simulated(file, asked.out or Path(folder)) for file in files]
    if asked.claims:
        print("\n".join(line for one in found for line in section(one)))
    else:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")


if __name__ == "__main__":
    main()
