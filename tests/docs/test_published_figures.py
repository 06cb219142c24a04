"""A published figure is that of a file in the repository.

To publish a validation:

1. keep it: copy ``validation.json``, ``validation.csv`` and ``validation.md`` of its folder, and
   its profile as ``profile.yaml``, to ``benchmarks/results/NAME/``;
2. write its figures into a page, each followed by where it comes from::

       the median error was 3.4 %<!-- NAME median -->, of bags 4.7 %<!-- NAME model=bags median -->

   or as a table, one row for each group of its settings (``all``, a strategy, ``batch 512`` ...:
   see `GROUPS`), in which the first cell of the head names the validation::

       | of NAME's | configurations | signed median | median absolute | nine in ten within |

   or as a row of a table of several validations, whose first cell names it. `HEADS` has the columns
   that are known. For ``fidelity-NAME`` plain NAME will do;
3. run this test. It computes each figure anew, from ``validation.json`` where there is one, else
   from ``validation.csv``, and fails where a page says another, or where it says one in per cent
   that no file stands behind.

Figures of earlier versions that have no file stand under a heading that says so (`WITHOUT`).
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = ("README.md", "docs/explain/how-true.md", "docs/log/2026-11.md")
OTHERS = [
    str(page.relative_to(ROOT))
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if str(page.relative_to(ROOT)) not in PAGES
]
WITHOUT = (
    "Measured by earlier versions, no file kept",
    "Tables of scale, of the version of 22 November",  # benchmarks/results/scale.json
)
ALIASES = {"180adb0": "fidelity", "4927add": "fidelity-intel"}
"""Validations that a page calls otherwise than their folder."""

Row = dict[str, Any]


def number(value: object) -> float | None:
    """A cell of the table; None: it is empty."""
    return None if value in ("", None) else float(str(value))


@cache
def runs_of(name: str) -> tuple[Row, ...]:
    """The runs of a validation that were made, with what tells its settings apart and what was
    predicted of them."""
    kept = json.loads((RESULTS / name / "validation.json").read_text(encoding="utf-8"))
    settings = {entry["key"]: entry for entry in kept["predictions"]}
    return tuple(
        {**settings[run["key"]], "run": run["examples_per_second"], "broken": run.get("broken")}
        for run in kept["runs"]
        if run["status"] != "failed"
    )


@cache
def rows_of(name: str) -> tuple[Row, ...]:
    """The settings of a validation that were measured."""
    result = RESULTS / name / "validation.json"
    if result.exists():
        kept = json.loads(result.read_text(encoding="utf-8"))
        speeds: dict[str, list[float]] = {}
        for run in kept["runs"]:
            if run["status"] == "complete" and not run.get("broken"):
                speeds.setdefault(run["key"], []).append(run["examples_per_second"])
        for row in kept["rows"]:
            measured = speeds.get(row["key"])
            assert row["measured"] == (pytest.approx(median(measured)) if measured else None)
        found = kept["rows"]
    else:
        with (RESULTS / name / "validation.csv").open(encoding="utf-8") as file:
            found = list(csv.DictReader(file))
    for row in found:  # before errors were raw alone, that column stood beside a corrected one
        row.setdefault("raw", row["measured"])
    return tuple(row for row in found if number(row["raw"]) is not None)


def column(rows: Sequence[Row], *names: str) -> list[float]:
    """The first of these columns that the file has: before errors were raw alone ``measured`` was
    corrected for the machine's speed, and ``noise`` was that of the same."""
    name = next(name for name in names if name in rows[0])
    return [found for row in rows if (found := number(row[name])) is not None]


def signed(rows: Sequence[Row], against: str = "raw") -> list[float]:
    predicted, measured = column(rows, "predicted"), column(rows, against)
    return [p / m - 1 for p, m in zip(predicted, measured, strict=True)]


def absolute(rows: Sequence[Row], against: str = "raw") -> list[float]:
    return sorted(map(abs, signed(rows, against)))


def nine_in_ten(errors: Sequence[float]) -> float:
    """The least error that at least nine in ten do not exceed."""
    return errors[math.ceil(0.9 * len(errors)) - 1]


def pairs(rows: Sequence[Row]) -> list[bool]:
    """Of every pair whose measured difference is beyond both noises: predicted in that order."""
    measured, noise = column(rows, "measured", "raw"), column(rows, "noise", "spread")
    usual, found = median(noise), []
    known = list(zip(column(rows, "predicted"), measured, noise, strict=True))
    for (p, a, n), (q, b, m) in itertools.combinations(known, 2):
        if abs(a - b) > a * max(n, usual) + b * max(m, usual):
            found.append((p > q) == (a > b))
    return found


def times_ours(rows: Sequence[Row], naive: Callable[[Row], float | None]) -> float:
    """A naive prediction's median absolute error over ours, of the settings that have it."""
    theirs, ours = [], []
    for row in rows:
        (measured,) = column([row], "measured", "raw")
        if (said := naive(row)) is not None:
            theirs.append(abs(said / measured - 1))
            ours.append(abs(column([row], "predicted")[0] / measured - 1))
    return median(theirs) / median(ours)


def linear(rows: Sequence[Row]) -> float:
    """One trainer's measurement times the trainers: of labels that differ in their number alone."""

    def same(row: Row) -> str:
        return re.sub(r", \d+ x ", ", N x ", row["label"])

    one = {same(r): column([r], "measured", "raw")[0] for r in rows if int(r["trainers"]) == 1}
    several = [row for row in rows if int(row["trainers"]) > 1]
    return times_ours(
        several, lambda r: one[same(r)] * int(r["trainers"]) if same(r) in one else None
    )


STATISTICS: dict[str, tuple[Callable[[Sequence[Row]], float], float]] = {
    "configurations": (len, 1),
    "signed": (lambda rows: median(signed(rows)), 100),
    "median": (lambda rows: median(absolute(rows)), 100),
    "p90": (lambda rows: nine_in_ten(absolute(rows)), 100),
    "largest": (lambda rows: absolute(rows)[-1], 100),
    "order": (lambda rows: sum(pairs(rows)) / len(pairs(rows)), 100),
    "pairs": (lambda rows: len(pairs(rows)), 1),
    "held": (lambda rows: sum(str(r["covered"]) == "True" for r in rows) / len(rows), 100),
    "half_width": (lambda rows: median(column(rows, "half_width")), 100),
    "bound_median": (lambda rows: median(by_bound(rows)), 100),
    "bound_p90": (lambda rows: nine_in_ten(by_bound(rows)), 100),
    "linear": (linear, 1),
    "roofline": (lambda rows: times_ours(rows, lambda r: number(r["roofline"])), 1),
    "net_signed": (lambda rows: median(signed(rows, "net")), 100),
    "net_median": (lambda rows: median(absolute(known_net(rows), "net")), 100),
    "net_p90": (lambda rows: nine_in_ten(absolute(known_net(rows), "net")), 100),
}
"""What can be published of a validation, and in what it is told: per cent or plainly. The last
three are corrected for the machine's speed, as earlier versions did."""


def by_run(runs: Sequence[Row]) -> list[float]:
    """Absolute errors of all runs, also of those that break an invariant."""
    return sorted(abs(run["examples_per_second"] / run["run"] - 1) for run in runs)


def by_bound(rows: Sequence[Row]) -> list[float]:
    """Absolute errors of the tightest bound, if that were the prediction."""
    return sorted(abs(number(row["bound"]) / number(row["raw"]) - 1) for row in rows)  # type: ignore[operator]


OF_RUNS: dict[str, tuple[Callable[[Sequence[Row]], float], float]] = {
    "drawn": (lambda runs: len({run["key"] for run in runs}), 1),
    "made": (len, 1),
    "broken": (lambda runs: sum(bool(run["broken"]) for run in runs), 1),
    "broken_share": (lambda runs: sum(bool(run["broken"]) for run in runs) / len(runs), 100),
    "all_median": (lambda runs: median(by_run(runs)), 100),
    "all_p90": (lambda runs: nine_in_ten(by_run(runs)), 100),
}
"""The same of the runs that were made, whether they count or not; ``drawn``: their settings."""


def known_net(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if number(row["net"]) is not None]


HEADS: dict[str, tuple[str, ...]] = {
    "configurations": ("configurations",),
    "signed median": ("signed",),
    "median absolute": ("median",),
    "nine in ten within": ("p90",),
    "signed median, raw": ("signed",),
    "median absolute, raw": ("median",),
    "nine in ten within, raw": ("p90",),
    "raw median, nine in ten": ("median", "p90"),
    "order": ("order",),
    "90 % intervals hold": ("held",),
    "their half width": ("half_width",),
    "linear scaling, times ours": ("linear",),
    "roofline, times ours": ("roofline",),
    "signed median, net": ("net_signed",),
    "median absolute, net": ("net_median",),
    "nine in ten within, net": ("net_p90",),
    "with dropped runs": ("all_median", "all_p90"),
    "tightest bound": ("bound_median", "bound_p90"),
    "net median": ("net_median",),
    "net, nine in ten within": ("net_p90",),
}
"""Columns of tables, without what stands in brackets behind them."""
UNREAD = (
    "raw median near calibration",
    "machine's speed beside the runs, by that at calibration: least, median, most",
)
"""Columns of earlier versions' validations that only their validation.md has."""
GROUPS = (
    (r"(one|two|four) trainers?", "trainers"),
    (r"batch ([\d,]+)", "batch_size"),
    (r'"(\w+)"', "model"),
    (r"regime ([\w ]+)", "regime"),
    (r"queue (\w+)", "queue"),
    (r"compute (\w+)", "compute"),
    (r"(\w+)$", "strategy"),
)
"""Which settings a row is of: pattern of its first cell, column of the file."""
COUNTS = {"one": "1", "two": "2", "four": "4"}


class Published(NamedTuple):
    """One figure on a page."""

    page: str
    line: int
    said: str
    name: str
    """The folder that it is of."""
    group: tuple[tuple[str, str], ...]
    """(column, value): the settings that count."""
    statistic: str

    @property
    def right(self) -> str:
        """What it should say, with as many decimals."""
        every = runs_of(self.name) if self.statistic in OF_RUNS else rows_of(self.name)
        rows = [row for row in every if all(str(row[key]) == v for key, v in self.group)]
        assert rows, f"{self.page}:{self.line}: {self.name} has no settings with {self.group}"
        compute, times = (STATISTICS | OF_RUNS)[self.statistic]
        decimals = len(self.said.partition(".")[2])
        sign = "+" if self.said[0] == "+" else ""
        return f"{times * compute(rows):{sign},.{decimals}f}"


def kept() -> dict[str, str]:
    """Folders of validations by what a page may call them."""
    names = sorted(path.parent.name for path in RESULTS.glob("*/validation.csv"))
    short = {name.removeprefix("fidelity-"): name for name in names if name != "fidelity"}
    return short | {name: name for name in names} | ALIASES


def named(cell: str) -> str | None:
    """The validation that a cell names."""
    words = re.findall(r"[\w-]+", cell.replace("'s", ""))
    return next((folder for word in words if (folder := kept().get(word))), None)


def plain(cell: str) -> str:
    return cell.strip().replace("−", "-")


def lines_of(page: str) -> Iterator[tuple[int, str, bool]]:
    """(number, line, whether a file has to stand behind it)."""
    without = 0
    for n, line in enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), start=1):
        if heading := re.match(r"(#+) (.*)", line):
            depth = len(heading[1])
            without = without if without and depth > without else 0
            without = without or (depth if heading[2] in WITHOUT else 0)
        yield n, line, not without


NUMBER = r"[+-]?\d[\d,]*(?:\.\d+)?"
MARK = re.compile(rf"({NUMBER})(?: %)?<!-- ([\w-]+) ((?:[\w]+=[\w-]+ )*)(\w+) -->")


def marked(page: str) -> list[Published]:
    """Figures that say where they come from."""
    found = []
    for n, line, _ in lines_of(page):
        marks = MARK.findall(plain(line))
        comments = line.count("<!--")
        assert len(marks) == comments, f"{page}:{n}: a mark that is not understood"
        for said, name, group, statistic in marks:
            assert statistic in STATISTICS | OF_RUNS, f"{page}:{n}: {statistic} is no statistic"
            assert name in kept(), f"{page}:{n}: benchmarks/results has no {name}"
            chosen = tuple(tuple(part.split("=")) for part in group.split())
            found.append(Published(page, n, said, kept()[name], chosen, statistic))  # type: ignore[arg-type]
    return found


def group_of(cell: str) -> tuple[tuple[str, str], ...]:
    if plain(cell) == "all":
        return ()
    for pattern, key in GROUPS:
        if matched := re.match(pattern, plain(cell)):
            return ((key, COUNTS.get(matched[1], matched[1].replace(",", ""))),)
    raise AssertionError(f"which settings are of {cell!r}?")


class Table(NamedTuple):
    page: str
    line: int
    heads: list[str]
    rows: list[tuple[int, list[str]]]
    """(line, cells)"""

    @property
    def of_one(self) -> str | None:
        """The validation that the head names."""
        return named(self.heads[0])

    @property
    def figures(self) -> list[Published]:
        """Those that a file stands behind."""
        found = []
        for n, cells in self.rows:
            name = self.of_one or named(cells[0])
            group = group_of(cells[0]) if self.of_one else ()
            if name is None or "line" in self.heads:
                continue
            for head, cell in list(zip(self.heads, cells, strict=True))[1:]:
                if head in UNREAD:
                    continue
                assert head in HEADS, f"{self.page}:{n}: no statistic is called {head!r}"
                said = re.findall(NUMBER, plain(cell).partition("(")[0])
                assert len(said) == len(HEADS[head]), f"{self.page}:{n}: {head}: {cell}"
                found += [
                    Published(self.page, n, figure, name, group, statistic)
                    for figure, statistic in zip(said, HEADS[head], strict=True)
                ]
        return found


def tables(page: str) -> list[Table]:
    """Those that a file has to stand behind: tables with per cents."""
    found: list[Table] = []
    block: list[tuple[int, list[str]]] = []
    for n, line, checked in [*lines_of(page), (0, "", True)]:
        if line.startswith("|") and checked:
            block.append((n, [cell.strip() for cell in line.strip("|").split("|")]))
            continue
        told = [re.sub("`[^`]*`", "", cell) for _, cells in block[2:] for cell in cells]
        if any("%" in cell for cell in told):
            heads = [re.sub(r" \([^)]*\)$", "", plain(head)) for head in block[0][1]]
            found.append(Table(page, block[0][0], heads, block[2:]))
        block = []
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_is_that_of_its_file(page: str) -> None:
    found = marked(page) + [figure for table in tables(page) for figure in table.figures]
    wrong = {f"{f.page}:{f.line} {f.said}, {f.statistic}": f.right for f in found}
    assert not {where: right for where, right in wrong.items() if right != where.split()[1][:-1]}


@pytest.mark.parametrize("page", PAGES)
def test_no_table_with_errors_is_without_a_file(page: str) -> None:
    for table in tables(page):
        for n, cells in table.rows:
            assert table.of_one or named(cells[0]), f"{page}:{n}: {cells[0]} names no validation"


def test_the_readmes_figures_are_all_marked() -> None:
    assert re.findall(r"\d %(?!<!--)", (ROOT / "README.md").read_text(encoding="utf-8")) == []
    said = {figure.statistic for figure in marked("README.md")}
    assert said >= {"median", "p90", "order"}


def test_figures_that_are_told_in_words_are_marked_where_errors_are_told() -> None:
    text = (ROOT / "docs" / "explain" / "how-true.md").read_text(encoding="utf-8")
    told = [line for line in text.splitlines() if not line.startswith("|")]
    assert re.findall(r"\d\.\d+ %(?!<!--)", "\n".join(told)) == []
    assert len(marked("docs/explain/how-true.md")) >= 5


@pytest.mark.parametrize("page", OTHERS)
def test_no_mark_stands_where_nothing_reads_it(page: str) -> None:
    assert not MARK.search((ROOT / page).read_text(encoding="utf-8"))


def test_what_strategies_learn_is_what_the_files_say() -> None:
    """Cell by cell; a run may be named otherwise."""
    known = set()
    for name in ("quality.md", "mask_scope.md"):
        lines = (RESULTS / name).read_text(encoding="utf-8").splitlines()
        known |= {line.split("|", 2)[2] for line in lines if line.startswith("|")}
    page = (ROOT / "docs" / "explain" / "learning.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert len(rows) > 60
    assert [row for row in rows if row.split("|", 2)[2] not in known] == []


@pytest.mark.parametrize("page", PAGES)
def test_ledgers_are_those_of_the_validations_page(page: str) -> None:
    for table in (table for table in tables(page) if "line" in table.heads):
        assert table.of_one is not None
        text = (RESULTS / table.of_one / "validation.md").read_text(encoding="utf-8")
        known = [[plain(c) for c in line.strip("|").split("|")] for line in text.splitlines()]
        for n, cells in table.rows:
            same = [row[: len(cells)] for row in known if row[:2] == cells[:2]]
            same = same or [row for row in known if row[:2] == [f"strategy {cells[0]}", cells[1]]]
            assert [plain(cell) for cell in cells] in same, f"{page}:{n}: {cells}"


def test_a_kept_validation_has_its_profile_where_it_has_its_result() -> None:
    for result in RESULTS.glob("*/validation.json"):
        assert result.with_name("profile.yaml").exists(), result
        assert result.with_name("validation.csv").exists(), result


def wrong_in(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a page of this text says wrongly."""
    (folder / "page.md").write_text(text, encoding="utf-8")
    monkeypatch.setitem(globals(), "ROOT", folder)
    found = marked("page.md") + [f for table in tables("page.md") for f in table.figures]
    return [f"{f.said} for {f.right}" for f in found if f.said != f.right]


TABLE = """
| of 9174f9e's | configurations | signed median | median absolute |
|---|---:|---:|---:|
| all | 80 | +2.2 % | 3.4 % |
| batch 2,048 | 10 | +5.8 % | 5.8 % |
"""


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("it was 3.4 %<!-- 9174f9e median --> there", []),
        ("it was 3.5 %<!-- 9174f9e median --> there", ["3.5 for 3.4"]),
        ("**6.0 %**: 6.0 %<!-- fidelity-9174f9e strategy=des median -->", []),
        ("in 2,848<!-- 9174f9e pairs --> of them", []),
        ("in 2,849<!-- 9174f9e pairs --> of them", ["2,849 for 2,848"]),
        (TABLE, []),
        (TABLE.replace("3.4", "3.3"), ["3.3 for 3.4"]),
        (TABLE.replace("+5.8", "-5.8"), ["-5.8 for 5.8"]),
        (TABLE.replace("| 10 |", "| 11 |"), ["11 for 10"]),
    ],
)
def test_a_figure_that_is_changed_in_one_place_only_is_found(
    text: str, wrong: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wrong_in(text, tmp_path, monkeypatch) == wrong


def test_a_result_is_read_before_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a later validation has it: ``measured`` is raw, no ``noise``."""
    folder = tmp_path / "fidelity-later"
    folder.mkdir()
    rows = [
        {"key": str(n), "predicted": 100.0 + n, "measured": 100.0, "spread": 0.01, "covered": n < 3}
        for n in range(1, 5)
    ]
    runs = [
        {"key": str(n), "status": status, "examples_per_second": eps}
        for n in range(1, 5)
        for status, eps in (("complete", 90.0), ("complete", 110.0), ("diverged", 900.0))
    ]
    (folder / "validation.json").write_text(json.dumps({"rows": rows, "runs": runs}))
    (folder / "validation.csv").write_text("key\n")
    monkeypatch.setitem(globals(), "RESULTS", tmp_path)
    text = "2.5 %<!-- later median -->, 4.0 %<!-- later p90 -->, 50 %<!-- later held -->"
    assert wrong_in(text, tmp_path, monkeypatch) == []
    assert wrong_in(text.replace("2.5", "2.4"), tmp_path, monkeypatch) == ["2.4 for 2.5"]
    rows[0]["measured"] = 101.0  # which no run says
    changed = tmp_path / "fidelity-changed"
    changed.mkdir()
    (changed / "validation.json").write_text(json.dumps({"rows": rows, "runs": runs}))
    with pytest.raises(AssertionError):
        rows_of("fidelity-changed")
