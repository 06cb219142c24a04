"""Claims in words and tables: terminal and Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from recsim_train.report import text
from recsim_train.report.claims import MARKS, Checked, Judged, Varied

if TYPE_CHECKING:
    from rich.console import Console

HEAD = ("claim", "mark", "expected", "predicted", "verdict")


def amount(checked: Checked, value: float | None) -> str:
    """A figure of a check, with what it is a figure of."""
    return shown(checked.check.form, checked.check.measure, value)


def shown(form: str, measure: str, value: float | None) -> str:
    """A figure as its form is read."""
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
    law = ", by the law" if check.law != "none" else ""
    return f"{what} ± {text.percent(check.tolerance)}{law}"


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
            checked.verdict,
        )


def sentences(judged: Judged) -> list[str]:
    """What a reader must know about a claim's answer."""
    claim = judged.claim
    found = [f"Source: {claim.source} ({MARKS[claim.mark]})."]
    found.append(f"Setting: {_sentence(claim.setting)}")
    found += [f"Profile {name}: {_sentence(about)}" for name, about in judged.clusters if about]
    fitted = ", ".join(claim.fitted)
    found.append(f"Fitted inputs: {fitted}." if fitted else "No input was fitted.")
    found.append(f"It hinges on {_sentence(claim.hinges_on)}")
    if judged.varied:
        check = judged.checks[0]
        changes = "; ".join(_varied(check, v) for v in judged.varied)
        found.append(f"First figure {amount(check, check.figure)}; with {changes}.")
    if judged.most_sensitive is not None:
        found.append(f"Of these, {judged.most_sensitive} moves it most.")
    found += [_sentence(note) for note in judged.notes]
    return found


def _varied(check: Checked, varied: Varied) -> str:
    return f"{varied.input} {varied.change}: {amount(check, varied.figure)} ({varied.verdict})"


def _sentence(words: str) -> str:
    return " ".join(words.split()).rstrip(".") + "."


def headline(judged: Judged) -> str:
    """The claim and its verdict in one line."""
    return f"{_sentence(judged.claim.statement)[:-1]}: {judged.verdict}"


def print_claims(claims: Sequence[Judged], console: Console | None = None) -> None:
    """A table of all claims and their checks, and under it what each leans on."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    out = console or Console(highlight=False)
    if console is None and not out.is_terminal:
        out = Console(highlight=False, width=160)
    style = {"reproduced": "green", "partly": "yellow", "not reproduced": "red"}
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in HEAD:
        table.add_column(name, overflow="fold")
    for judged in claims:
        table.add_row(
            f"[bold]{escape(_sentence(judged.claim.statement))}[/bold]",
            judged.claim.mark,
            "",
            "",
            f"[bold]{judged.verdict}[/bold]",
            style=style.get(judged.verdict),
        )
        for says, *cells in rows(judged):
            table.add_row(escape(f"  {says}"), *map(escape, cells))
    out.print(table)
    for judged in claims:
        out.print()
        out.print(judged.made.name, style="bold", markup=False)
        for sentence in sentences(judged):
            for line in textwrap.wrap(sentence, 156):
                out.print(f"  {line}", markup=False, soft_wrap=True)


def claim_lines(claims: Sequence[Judged], level: str = "##") -> list[str]:
    """Markdown: a summary table, and a section for each claim."""
    lines = ["| claim | source | mark | verdict |", "|---|---|---|---|"]
    for c in claims:
        cells = (_sentence(c.claim.statement), c.claim.source, c.claim.mark, f"{c.verdict}")
        lines.append("| " + " | ".join(plain(cell) for cell in cells) + " |")
    for c in claims:
        lines += ["", f"{level} {plain(c.made.name)}", ""]
        lines += [f"{plain(_sentence(c.claim.statement))} **{c.verdict.capitalize()}.**", ""]
        lines += ["| " + " | ".join(HEAD) + " |", "|---|---|---:|---:|---|"]
        for row in rows(c):
            lines.append("| " + " | ".join(plain(cell) for cell in row) + " |")
        lines += ["", *(f"- {plain(sentence)}" for sentence in sentences(c))]
    return lines


def plain(value: str) -> str:
    """Text that Markdown takes as text: no markup, no new cell."""
    for mark in ("\\", "|", "<", "*", "`", "[", "]"):
        value = value.replace(mark, f"\\{mark}")
    return value.replace("\n", " ")
