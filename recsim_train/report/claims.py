"""Verdicts on claims: whether our reconstruction reproduces what was published.

Nothing here is tuned: a check compares a figure of simulated runs with what the claim's file
expects, and says "not reproduced" where it does not meet it, "not comparable" where a run that it
compares leaves cores idle, and "follows from the input" where an input sets the figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from recsim_train.config.claim import COMPRESSION, Check, Claim, Origin, expectations
from recsim_train.config.errors import UserError
from recsim_train.report.measures import NoFigureError, Runs, expected_by_law, figure, idle_cores
from recsim_train.results.claims import ClaimRuns, read_claim_runs
from recsim_train.results.rundir import RunRecord, read_run

Verdict = Literal[
    "reproduced",
    "partly",
    "not reproduced",
    "not comparable",
    "follows from the input",
    "no figure",
    "for context",
]

HALF = 0.5
"""A check is met partly from this share of the expected effect on."""
_NEUTRAL = {"ratio": 1.0, "saved": 0.0}
MARKS: Mapping[Origin, str] = {
    "found": "found in a public text",
    "derived": "derived by algebra",
    "recalled": "recalled, not checked: a reconstruction",
    "ours": "our own choice: a reconstruction",
}


@dataclass(frozen=True, slots=True)
class Checked:
    """One check and what came of it."""

    check: Check
    figure: float | None
    expected: float | None
    """By ``near``, ``up_to``, ``at_least``, ``at_most`` or the law; None: nothing is expected."""
    verdict: Verdict
    why: str = ""
    """Why there is no figure, or none that could be compared."""
    points: tuple[tuple[Mapping[str, str], float], ...] = ()
    """``up_to``: the figure at each point of the grid, by the values there."""


@dataclass(frozen=True, slots=True)
class Varied:
    """The first check's figure with one input changed."""

    input: str
    change: str
    figure: float | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Judged:
    """One claim with all that was found."""

    made: ClaimRuns
    checks: tuple[Checked, ...]
    varied: tuple[Varied, ...]
    clusters: tuple[tuple[str, str], ...]
    """(name, description) of the profiles of the unvaried runs."""
    notes: tuple[str, ...] = ()
    """What these runs say about themselves."""

    @property
    def claim(self) -> Claim:
        """What is claimed."""
        return self.made.claim

    @property
    def verdict(self) -> Verdict:
        """The first check's; reproduced only if no further one fails."""
        first = self.checks[0].verdict
        judged = [c.verdict for c in self.checks if c.verdict != "for context"]
        if first == "reproduced" and any(v != "reproduced" for v in judged):
            return "partly"
        return first

    @property
    def most_sensitive(self) -> str | None:
        """The varied input, of several, that moves the first check's figure most."""
        if len({v.input for v in self.varied}) < 2:
            return None
        base = self.checks[0].figure
        figures = [(v.figure, v.input) for v in self.varied if v.figure is not None]
        moved = [] if base is None else [(abs(figure - base), name) for figure, name in figures]
        most, name = max(moved, default=(0.0, None))
        return name if most > 0 else None

    def document(self) -> dict[str, Any]:
        """The entry of ``claims`` in the report's JSON."""
        claim = self.claim
        return {
            "name": self.made.name,
            "file": self.made.file,
            "statement": claim.statement,
            "source": claim.source,
            "mark": claim.mark,
            "published": claim.published,
            "verdict": self.verdict,
            "setting": claim.setting,
            "hinges_on": claim.hinges_on,
            "most_sensitive_to": self.most_sensitive,
            "fitted": dict(claim.fitted),
            "notes": list(self.notes),
            "clusters": [name for name, _ in self.clusters],
            "checks": [
                {
                    "says": c.check.says,
                    "mark": c.check.mark,
                    "measure": c.check.measure,
                    "form": c.check.form,
                    "law": None if c.check.law == "none" else c.check.law,
                    "figure": c.figure,
                    "expected": c.expected,
                    "verdict": c.verdict,
                    "why": c.why or None,
                    "quality": c.check.quality or None,
                    "grid": [{"at": dict(at), "figure": value} for at, value in c.points],
                }
                for c in self.checks
            ],
            "sensitivity": [
                {"input": v.input, "change": v.change, "figure": v.figure, "verdict": v.verdict}
                for v in self.varied
            ],
            "runs": dict(self.made.runs),
        }


def judge_all(paths: Iterable[Path]) -> list[Judged]:
    """Every claim whose runs lie directly in one of the folders."""
    made = {(m.folder.resolve(), m.name): m for p in paths for m in read_claim_runs(p)}
    return [judge(m) for m in made.values()]


def judge(made: ClaimRuns) -> Judged:
    """Read a claim's runs and judge them. Missing runs give "no figure", never an error."""
    runs = _records(made, made.runs)
    points = [(p.at, _records(made, p.runs)) for p in made.points]
    checks = tuple(
        judge_check(check, runs) if check.up_to is None else judge_grid(check, points)
        for check in made.claim.checks
    )
    first = made.claim.checks[0]
    varied = []
    for change in made.changes:
        again = judge_check(first, _records(made, change.runs))
        varied.append(Varied(change.input, change.change, again.figure, again.verdict))
    profiles = [r.manifest.get("cluster") or {} for r in runs.values()]
    clusters = dict.fromkeys((str(c.get("name")), str(c.get("description"))) for c in profiles)
    notes = dict.fromkeys(note for r in runs.values() for note in r.facts.warnings)
    return Judged(made, checks, tuple(varied), tuple(clusters), tuple(notes))


def _records(made: ClaimRuns, ids: Mapping[str, str]) -> dict[str, RunRecord]:
    records = {}
    for variant, run_id in ids.items():
        with suppress(UserError):  # the check that needs it says so
            records[variant] = read_run(made.folder / run_id)
    return records


def judge_check(check: Check, runs: Runs) -> Checked:
    """One check against its runs."""
    try:
        value = figure(check, runs)
        expected = next(iter(expectations(check).values()), None)
        if check.law != "none":
            expected = expected_by_law(check, runs)
        idle = idle_cores(check, runs)
    except NoFigureError as error:
        return Checked(check, None, None, "no figure", str(error))
    if value is None:
        why = "the ratio does not pass 1 within the simulated settings"
        return Checked(check, None, expected, "not reproduced" if expected else "no figure", why)
    if expected is None or not idle:
        return Checked(check, value, expected, verdict(check, value, expected), idle)
    return Checked(check, value, expected, "not comparable", idle)


def judge_grid(check: Check, points: Sequence[tuple[Mapping[str, str], Runs]]) -> Checked:
    """The largest figure of all points. There is no band: either a point reaches it or none."""
    assert check.up_to is not None
    plain = check.model_copy(update={"up_to": None})
    each = [(at, judge_check(plain, runs)) for at, runs in points]
    why = next((c.why for _, c in each if c.why), "" if each else "no point was simulated")
    figures = tuple((at, c.figure) for at, c in each if c.figure is not None)
    best = max((value for _, value in figures), default=None)
    if best is None or len(figures) < len(each):
        return Checked(check, None, check.up_to, "no figure", why, figures)
    said: Verdict = "reproduced" if best >= check.up_to else "not reproduced"
    if check.follows_from:
        said = "follows from the input"
    elif why:
        said = "not comparable"
    return Checked(check, best, check.up_to, said, why, figures)


def verdict(check: Check, value: float, expected: float | None) -> Verdict:
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
    neutral = 1.0 if check.measure in COMPRESSION else _NEUTRAL.get(check.form)
    if neutral is not None and expected != neutral:
        partly = (value - neutral) / (expected - neutral) >= HALF
    else:
        partly = expected != 0 and HALF <= value / expected <= 1 / HALF
    return "partly" if partly else "not reproduced"


def without_claims(records: Sequence[RunRecord], claims: Sequence[Judged]) -> list[RunRecord]:
    """The runs that no claim has made: those are shown in the claims' own table."""
    theirs = {(c.made.folder.resolve(), run) for c in claims for run in c.made.run_ids}
    return [r for r in records if (r.path.resolve().parent, r.run_id) not in theirs]
