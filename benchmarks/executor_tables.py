"""What benchmarks/executor.py says of its results: bars and their verdicts, tables in Markdown."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from executor_pieces import Measured, Piece
from paired import median_of, ratios, verdict
from script import circumstances, spread, table

SPEED, GAP = "examples_per_second", "sync_gap"


class Bar(NamedTuple):
    """What a paired ratio must reach, by batch; without ``least`` it is stated only."""

    of: str
    over: str
    least: Mapping[int, float]
    aim: float | None = None
    figure: str = SPEED


TWO = {2048: 1.05, 256: 1.2}
PEERS = [
    (kind, peer) for kind in ("flat_ps-2p", "allreduce-2p") for peer in ("dlrm-2p", "torchrec-2p")
]
BARS = (
    Bar("flat_ps-1", "plain-1", {2048: 1.0, 256: 1.0}),
    Bar("flat_ps-2", "plain-2", {2048: 1.0, 256: 0.9}, aim=1.0),
    # at least so much of the faster one is at least so much of each
    *(Bar(kind, peer, TWO, aim=1.3) for kind, peer in PEERS),
    Bar("shadowsync-2p", "flat_ps-2p", {2048: 0.9, 256: 0.9}),
    Bar("fr-easgd-5-2p", "shadowsync-2p", {2048: 1.0, 256: 1.0}, figure=GAP),
    *(Bar(f"{kind}-servers", peer, {}) for kind, peer in PEERS),
)


class Result(NamedTuple):
    """One piece in one round; ``figures`` is None where it failed. ``busy_before``: cores that were
    busy in the half second before it, others' work; ``wall``: seconds of the whole piece, start and
    end of its processes included."""

    round: int
    batch: int
    piece: str
    steps: int
    busy_before: float
    wall: float
    figures: Measured | None
    error: str | None = None


def of_rounds(
    results: Sequence[Result], piece: str, batch: int, figure: str = SPEED
) -> dict[int, float]:
    """A figure of a piece by round."""
    return {
        r.round: r.figures[figure]
        for r in results
        if r.round and r.piece == piece and r.batch == batch and r.figures and figure in r.figures
    }


def compared(
    results: Sequence[Result], pieces: Sequence[Piece], batches: Sequence[int]
) -> list[dict[str, Any]]:
    """Every bar and every ratio that is only stated, at every batch, if both pieces are there."""
    rows = []
    names = {piece.name for piece in pieces}
    for bar, batch in itertools.product(BARS, batches):
        if {bar.of, bar.over} <= names:
            of, over = (of_rounds(results, name, batch, bar.figure) for name in (bar.of, bar.over))
            paired = ratios(of, over)
            ratio, least = median_of(list(paired.values())), bar.least.get(batch)
            rows.append(
                {
                    **bar._asdict(),
                    "batch": batch,
                    "least": least,
                    "ratio": ratio,
                    "verdict": verdict(ratio, least),
                    "by_round": {number: round(value, 4) for number, value in paired.items()},
                }
            )
    return rows


def bar_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    cells = (
        (
            row["of"] + (" (mean sync gap)" if row["figure"] == GAP else ""),
            row["over"],
            row["batch"],
            row["ratio"] or "",
            row["ratio"].count if row["ratio"] else 0,
            *("" if row[key] is None else f"{row[key]:g}" for key in ("least", "aim")),
            row["verdict"],
        )
        for row in rows
    )
    ratio = "paired ratio: median (95 % interval)"
    return table(["ratio of", "over", "batch", ratio, "rounds", "bar", "aim", ""], cells)


def speed_table(
    results: Sequence[Result], pieces: Sequence[Piece], batches: Sequence[int]
) -> list[str]:
    speeds = [
        [spread(of_rounds(results, piece.name, batch).values(), ",.0f") for batch in batches]
        for piece in pieces
    ]
    heads = (f"batch {batch}: examples/s, median (range)" for batch in batches)
    rows = ([p.name, p.title, *each] for p, each in zip(pieces, speeds, strict=True))
    return table(["name", "trainer", *heads], rows)


def own_table(
    results: Sequence[Result], pieces: Sequence[Piece], batches: Sequence[int]
) -> list[str]:
    """What only our runs say: CPU, the part that reading has of it, the sync gap."""
    figures = {"cpu_us_per_example": ".1f", "reading_share": ".1%", GAP: ".2f"}
    rows = []
    for piece, batch in itertools.product(pieces, batches):
        found = {name: of_rounds(results, piece.name, batch, name) for name in figures}
        if found["cpu_us_per_example"]:
            said = (spread(found[name].values(), digits) for name, digits in figures.items())
            rows.append([piece.name, batch, *said])
    heads = ["CPU us per example", "of it reading", "mean sync gap, iterations"]
    return table(["ours", "batch", *heads], rows)


def round_table(results: Sequence[Result], pieces: Sequence[Piece], batch: int) -> list[str]:
    numbers = sorted({result.round for result in results if result.round})
    speeds = {piece.name: of_rounds(results, piece.name, batch) for piece in pieces}
    rows = (
        [name, *(f"{each[n]:,.0f}" if n in each else "" for n in numbers)]
        for name, each in speeds.items()
    )
    return table([f"batch {batch}, examples/s by round", *map(str, numbers)], rows)


def about(here: Mapping[str, Any], results: Sequence[Result]) -> list[str]:
    """The machine, others' work, and what the peers say of themselves by their first piece."""
    busy = [result.busy_before for result in results if result.round] or [0.0]
    said = {result.piece: result.figures.get("versions") for result in results if result.figures}
    packages = {
        name: ", ".join(f"{package} {version}" for package, version in found.items())
        for name, found in said.items()
        if found
    }
    first = {packages[name]: name for name in reversed(packages)}
    return [
        circumstances(here),
        "",
        *(f"- {name}: {found}" for name, found in packages.items() if first[found] == name),
        f"- `{here['command']}`",
        f"- busy cores between pieces, others' work: median {statistics.median(busy):.2f}, "
        f"largest {max(busy):.2f} of {here['cores']}",
    ]
