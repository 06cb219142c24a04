"""CPU time per example in both worlds, line by line, and the throughput's error as its two factors.

Throughput = cores busy / CPU seconds per example.
"""

from __future__ import annotations

from recsim_train.report import text
from recsim_train.report.compare import Comparison
from recsim_train.report.document import Item, Lines, Table, Where, stopped
from recsim_train.results.environment import counted_cores

_WORTH_A_ROW = 0.02
"""Share of all CPU time that a line needs for a row on the terminal."""


def cpu(c: Comparison) -> list[Item]:
    """Where the CPU time of an example goes; nothing where a world has no ledger."""
    predicted, measured = (r.summary.cpu_per_example for r in (c.simulated, c.real))
    if predicted is None or measured is None:
        return []
    return [
        Lines(stopped(sentences(c)), title=f"Where CPU time goes: {c.label}"),
        _table(predicted, measured, _WORTH_A_ROW, Where.TERMINAL),
        _table(predicted, measured, 0.0, Where.WRITTEN),
    ]


def sentences(c: Comparison) -> list[str]:
    """Both factors, and who kept the machine busy; without full stops."""
    ledgers = c.simulated.facts.ledger, c.real.facts.ledger
    lines = [record.summary.cpu_per_example for record in (c.simulated, c.real)]
    if lines[0] is None or lines[1] is None or ledgers[0] is None or ledgers[1] is None:
        return []
    whole = sum(lines[0].values()), sum(lines[1].values())
    cores = ledgers[0].cores_busy, ledgers[1].cores_busy
    slower, idler = whole[1] / whole[0], cores[0] / cores[1]
    said = [
        f"An example takes {text.seconds(whole[0])} of CPU time predicted, "
        f"{text.seconds(whole[1])} measured; {cores[0]:.2f} cores are busy predicted, "
        f"{cores[1]:.2f} measured",
        f"Predicted throughput / measured = {slower * idler:.2f} = {slower:.2f} (CPU time per "
        f"example, measured / predicted) x {idler:.2f} (cores busy, predicted / measured)",
    ]
    if (use := ledgers[1].machine) is not None:
        said.append(
            f"Of the machine's {counted_cores(use.cores)} the run kept {use.own:.2f} busy, other "
            f"programs {use.others:.2f}, and {use.steal:.2f} were taken by the machine's own host"
        )
    return said


def _table(
    predicted: dict[tuple[str, str], float],
    measured: dict[tuple[str, str], float],
    least: float,
    where: Where,
) -> Table:
    """By role and what, most measured first; rows of a smaller share than ``least`` left out."""
    sums = sum(predicted.values()), sum(measured.values())

    def row(role: str, what: str, p: float, m: float) -> tuple[str, ...]:
        ratio = text.number(p / m, 2) if p and m else text.NONE
        times = (_micro(t) for t in (p, m))
        return what.replace("_", " "), role.replace("_", " "), *times, ratio

    keys = sorted(predicted.keys() | measured.keys(), key=lambda k: -measured.get(k, 0.0))
    pairs = [(key, predicted.get(key, 0.0), measured.get(key, 0.0)) for key in keys]
    shown = [row(*key, p, m) for key, p, m in pairs if max(p / sums[0], m / sums[1]) >= least]
    heads = ("CPU time per example", "role", "predicted µs", "measured µs", "ratio")
    return Table.of(heads, shown, heads[:2], where=where, foot=row("", "all", *sums))


def _micro(seconds: float) -> str:
    return text.number(seconds * 1e6, 2)
