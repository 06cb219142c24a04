"""What benchmarks/executor.py says of its results: bars and their verdicts, tables in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from executor_pieces import Measured, Piece
from paired import Median, median_of, ratios, verdict

SPEED, GAP = "examples_per_second", "sync_gap"


@dataclass(frozen=True, slots=True)
class Bar:
    """What a paired ratio must reach."""

    of: str
    over: str
    least: Mapping[int, float]
    """By batch; none: stated only."""
    aim: float | None = None
    figure: str = SPEED


def _bars() -> tuple[Bar, ...]:
    two = {2048: 1.05, 256: 1.2}
    peers = ("dlrm-2p", "torchrec-2p")
    kinds = ("flat_ps-2p", "allreduce-2p")
    return (
        Bar("flat_ps-1", "plain-1", {2048: 1.0, 256: 1.0}),
        Bar("flat_ps-2", "plain-2", {2048: 1.0, 256: 0.9}, aim=1.0),
        # at least so much of the faster one is at least so much of each
        *(Bar(kind, peer, two, aim=1.3) for kind in kinds for peer in peers),
        Bar("shadowsync-2p", "flat_ps-2p", {2048: 0.9, 256: 0.9}),
        Bar("fr-easgd-5-2p", "shadowsync-2p", {2048: 1.0, 256: 1.0}, figure=GAP),
        *(Bar(f"{kind}-servers", peer, {}) for kind in kinds for peer in peers),
    )


class Result(NamedTuple):
    """One piece in one round; ``figures`` is None where it failed."""

    round: int
    batch: int
    piece: str
    steps: int
    busy_before: float
    """Cores that were busy in the half second before it: others' work."""
    wall: float
    """Seconds that the whole piece took, start and end of its processes included."""
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
    for bar in _bars():
        for batch in batches:
            if not {bar.of, bar.over} <= names:
                continue
            of, over = (of_rounds(results, name, batch, bar.figure) for name in (bar.of, bar.over))
            paired = ratios(of, over)
            ratio = median_of(list(paired.values()))
            rows.append(
                {
                    "of": bar.of,
                    "over": bar.over,
                    "figure": bar.figure,
                    "batch": batch,
                    "least": bar.least.get(batch),
                    "aim": bar.aim,
                    "ratio": ratio,
                    "verdict": verdict(ratio, bar.least.get(batch)),
                    "by_round": {number: round(value, 4) for number, value in paired.items()},
                }
            )
    return rows


def bar_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [
        "| ratio of | over | batch | paired ratio: median (95 % interval) | rounds | bar | aim | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratio: Median | None = row["ratio"]
        cells = [
            row["of"] + (" (mean sync gap)" if row["figure"] == GAP else ""),
            row["over"],
            str(row["batch"]),
            str(ratio or ""),
            str(ratio.count if ratio else 0),
            *("" if row[key] is None else f"{row[key]:g}" for key in ("least", "aim")),
            row["verdict"],
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def spread(values: Mapping[int, float], digits: str) -> str:
    found = list(values.values())
    if not found:
        return ""
    low, high = min(found), max(found)
    return f"{statistics.median(found):{digits}} ({low:{digits}} .. {high:{digits}})"


def speed_table(
    results: Sequence[Result], pieces: Sequence[Piece], batches: Sequence[int]
) -> list[str]:
    heads = [
        "name",
        "trainer",
        *(f"batch {batch}: examples/s, median (range)" for batch in batches),
    ]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for piece in pieces:
        speeds = [spread(of_rounds(results, piece.name, batch), ",.0f") for batch in batches]
        lines.append("| " + " | ".join([piece.name, piece.title, *speeds]) + " |")
    return lines


def own_table(
    results: Sequence[Result], pieces: Sequence[Piece], batches: Sequence[int]
) -> list[str]:
    """What only our runs say: CPU, the part that reading has of it, the sync gap."""
    lines = [
        "| ours | batch | CPU us per example | of it reading | mean sync gap, iterations |",
        "|---|---|---|---|---|",
    ]
    for piece in pieces:
        for batch in batches:
            cpu = of_rounds(results, piece.name, batch, "cpu_us_per_example")
            reading = of_rounds(results, piece.name, batch, "reading_share")
            gap = of_rounds(results, piece.name, batch, GAP)
            if cpu:
                cells = [piece.name, str(batch), spread(cpu, ".1f"), spread(reading, ".1%")]
                lines.append("| " + " | ".join([*cells, spread(gap, ".2f")]) + " |")
    return lines


def round_table(results: Sequence[Result], pieces: Sequence[Piece], batch: int) -> list[str]:
    numbers = sorted({result.round for result in results if result.round})
    lines = [
        f"| batch {batch}, examples/s by round | " + " | ".join(map(str, numbers)) + " |",
        "|---" * (len(numbers) + 1) + "|",
    ]
    for piece in pieces:
        speeds = of_rounds(results, piece.name, batch)
        cells = [f"{speeds[n]:,.0f}" if n in speeds else "" for n in numbers]
        lines.append("| " + " | ".join([piece.name, *cells]) + " |")
    return lines


def circumstances(about: Mapping[str, Any], results: Sequence[Result]) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    busy = [result.busy_before for result in results if result.round] or [0.0]
    peers = [
        f"{name}: " + ", ".join(f"{package} {version}" for package, version in found.items())
        for name, found in peer_versions(results).items()
    ]
    return [
        f"{about['date']}, {about['machine']}, {about['system']}, revision "
        f"{about.get('revision', 'unknown')}; {versions}.",
        "",
        *(f"- {line}" for line in peers),
        f"- `{about['command']}`",
        f"- busy cores between pieces, others' work: median {statistics.median(busy):.2f}, "
        f"largest {max(busy):.2f} of {about['cores']}",
    ]


def peer_versions(results: Sequence[Result]) -> dict[str, Any]:
    """What the peers say of themselves, by their first piece."""
    found: dict[str, Any] = {}
    for result in results:
        if result.figures and (said := result.figures.get("versions")) not in [
            None,
            *found.values(),
        ]:
            found[result.piece] = said
    return found
