"""Claims in words and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recsim_train.report import text
from recsim_train.report.claims import MARKS, Checked, Judged
from recsim_train.report.document import Cell, Finding, Lines, Section, Table, Where

HEAD = ("claim", "mark", "expected", "predicted", "verdict")
_VERDICTS: dict[str, str] = {"reproduced": "good", "partly": "off", "not reproduced": "fault"}


def amount(checked: Checked, value: float | None) -> str:
    """A figure of a check, as its form is read."""
    form, measure = checked.check.form, checked.check.measure
    if value is None:
        return text.NONE
    if form == "saved":
        return text.percent(value)
    if form == "ratio" or measure.endswith("compression"):
        return f"{value:.3g}×"
    if form == "value" and measure == "eps":
        return f"{text.rate(value)}/s"
    return f"{value:.3g}".replace("-", "−")


def expectation(checked: Checked) -> str:
    """What the check expects, in short."""
    check = checked.check
    if checked.expected is None:
        return text.NONE
    what = amount(checked, checked.expected)
    if check.at_least is not None:
        return f"≥ {what}"
    if check.at_most is not None:
        return f"≤ {what}"
    if check.up_to is not None:
        return f"up to {what}"
    law = ", by the law" if check.law != "none" else ""
    return f"{what} ± {text.percent(check.tolerance or 0.0)}{law}"


def rows(judged: Judged) -> Iterator[tuple[str, str, str, str, str]]:
    """One for each check, as `HEAD` says."""
    for checked in judged.checks:
        figure = amount(checked, checked.figure)
        if checked.why:
            figure = f"{figure} ({checked.why})"
        yield (
            checked.check.says,
            checked.check.mark,
            expectation(checked),
            figure,
            with_quality(checked.verdict, checked),
        )


def with_quality(verdict: str, *checks: Checked) -> str:
    """A verdict, and in the same line what its setting costs in quality."""
    costs = dict.fromkeys(_sentence(c.check.quality)[:-1] for c in checks if c.check.quality)
    return "; ".join((verdict, *costs))


def conclusion(judged: Judged) -> str:
    """The verdict on the claim, why, and what it costs: one sentence without its full stop."""
    said: str = judged.verdict
    if judged.claim.fitted and said in ("reproduced", "partly"):
        said += " with fitted inputs"
    return with_quality(f"{said}: {_reason(judged)}", *judged.checks)


def _reason(judged: Judged) -> str:
    first = judged.checks[0]
    figure = amount(first, first.figure)
    if judged.verdict == "no figure":
        return first.why
    if judged.verdict == "not comparable":
        return f"{figure} says nothing while {first.why}"
    if judged.verdict == "for context":
        return "nothing is expected"
    if judged.verdict == "follows from the input":
        chosen = [c for c in judged.checks if c.verdict == judged.verdict]
        return ", and ".join(
            f"{amount(c, c.figure)} is set by {c.check.follows_from}, which was chosen for it"
            for c in chosen
        )
    said = f"{figure} where {expectation(first)} is expected"
    if first.points:
        reached = sum(value >= (first.expected or 0.0) for _, value in first.points)
        lowest = amount(first, min(value for _, value in first.points))
        said = (
            f"{reached} of {len(first.points)} settings stated beforehand reach "
            f"{amount(first, first.expected)}; they range from {lowest} to {figure}"
        )
    missed = [c for c in judged.checks[1:] if c.verdict not in ("reproduced", "for context")]
    if first.verdict == "reproduced" and missed:
        number, verb = ("one", "is") if len(missed) == 1 else (str(len(missed)), "are")
        said += f", but {number} of the further expectations {verb} not met"
    return said


def _grid(checked: Checked) -> str:
    """How often "up to" is reached, by each axis of the grid, and where it is highest."""
    least = checked.expected or 0.0
    at, best = max(checked.points, key=lambda point: point[1])
    counts = []
    for axis in at:
        there: dict[str, list[bool]] = {}
        for point, figure in checked.points:
            there.setdefault(point[axis], []).append(figure >= least)
        each = ", ".join(f"{v}: {sum(reached)} of {len(reached)}" for v, reached in there.items())
        counts.append(f"by {axis}: {each}")
    where = ", ".join(f"{axis} {value}" for axis, value in at.items())
    return (
        f"{_sentence(checked.check.says)[:-1]}: settings that reach {amount(checked, least)}, "
        f"{'; '.join(counts)}; the highest is {amount(checked, best)}, at {where}."
    )


def sentences(judged: Judged) -> list[str]:
    """What a reader must know about a claim's answer."""
    claim = judged.claim
    fitted = "; ".join(f"{name} ({_sentence(how)[:-1]})" for name, how in claim.fitted.items())
    bands = (c.check for c in judged.checks if c.check.tolerance is not None)
    tolerances = (
        f"Tolerance of {text.percent(b.tolerance or 0.0)}: {_sentence(b.tolerance_from)}"
        for b in bands
    )
    said = [
        f"Source: {claim.source} ({MARKS[claim.mark]}).",
        f"Setting: {_sentence(claim.setting)}",
        *(f"Profile {name}: {_sentence(about)}" for name, about in judged.clusters if about),
        f"Fitted inputs: {fitted}." if fitted else "No input was fitted.",
        *dict.fromkeys(tolerances),
        *(_grid(checked) for checked in judged.checks if checked.points),
        f"It hinges on {_sentence(claim.hinges_on)}",
    ]
    if judged.varied:
        check = judged.checks[0]
        changes = "; ".join(
            f"{v.input} {v.change}: {amount(check, v.figure)} ({v.verdict})" for v in judged.varied
        )
        said.append(f"First figure {amount(check, check.figure)}; with {changes}.")
    if judged.most_sensitive is not None:
        said.append(f"Of these, {judged.most_sensitive} moves it most.")
    return [*said, *map(_sentence, judged.notes)]


def _sentence(words: str) -> str:
    return " ".join(words.split()).rstrip(".") + "."


def published(claims: Sequence[Judged], title: str = "") -> Section:
    """Claims beside predictions: an overview, and a part for each with what it leans on."""
    heads = ("claim", "source", "mark", "verdict")
    overview: list[Sequence[str]] = []
    together: list[Sequence[str | Cell]] = []
    marks: dict[int, str] = {}
    parts = []
    for c in claims:
        statement, mark, concluded = _sentence(c.claim.statement), c.claim.mark, conclusion(c)
        overview.append((statement, c.claim.source, mark, concluded))
        marks[len(together)] = _VERDICTS.get(c.verdict, "")
        together.append((Cell(statement, "strong"), mark, "", "", Cell(concluded, "strong")))
        together += ((f"  {says}", *cells) for says, *cells in rows(c))
        verdict, why = concluded.split(": ", 1)
        checks = Table.of(HEAD, rows(c), HEAD, where=Where.WRITTEN)
        shown = [Finding(statement, verdict.capitalize(), why), checks, Lines(sentences(c))]
        parts.append(Section(c.made.name, shown))
    table = Table.of(heads, overview, heads, where=Where.MARKDOWN)
    brief = Table.of(HEAD, together, HEAD, where=Where.TERMINAL, marks=marks)
    return Section(title, [table, brief, *parts], name="claims")
