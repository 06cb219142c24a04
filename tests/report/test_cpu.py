"""CPU time per example, line by line, and the throughput's error as two factors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from recsim_train.report.caveats import caveats
from recsim_train.report.compare import Comparison
from recsim_train.report.comparison_tables import cpu, sentences
from recsim_train.report.document import TextTable, Where, visible
from recsim_train.report.findings import compare
from recsim_train.report.runs import load_runs
from recsim_train.trace.ledger import Booked, Ledger, MachineUse

PASS, SENT = ("trainer", "forward_backward", "loop"), ("trainer", "transport", "gloo")


def ledger(total: float, booked: Booked, **more: Any) -> Ledger:
    return Ledger.of(2.0, total, booked, **more)


def comparison(factory: Any, out: Path, predicted: Any, measured: Any) -> Comparison:
    plan = factory.plan()
    for world, found in (("simulated", predicted), ("real", measured)):
        outcome = factory.outcome(plan, world=world, speed=1.0 if world == "simulated" else 0.8)
        outcome.facts.ledger = found
        factory.write(out, plan, world, found=outcome)
    (c,) = compare(load_runs([out])).comparisons
    return c


def test_the_factors_make_the_error(tmp_path: Path, factory: Any) -> None:
    use = MachineUse(cores=4, own=1.5, others=0.25, steal=0.0)
    real = ledger(3.0, {PASS: 2.0, SENT: 0.9, ("x", "thousandth", "loop"): 0.003}, machine=use)
    c = comparison(factory, tmp_path, ledger(3.6, {PASS: 3.2, SENT: 0.4}), real)
    said = sentences(c)
    assert "1.80 cores are busy predicted, 1.50 measured" in said[0]
    found = re.search(r"= ([\d.]+) = ([\d.]+) \(CPU.* x ([\d.]+) \(cores", said[1])
    assert found is not None
    whole, slower, idler = map(float, found.groups())
    assert whole == pytest.approx(1 + c.signed_error, abs=0.01)
    assert idler == pytest.approx(1.8 / 1.5)
    assert slower * idler == pytest.approx(whole, abs=0.02)
    assert "Of the machine's 4 cores the run kept 1.50 busy, other programs 0.25" in said[2]


def test_one_core_is_no_cores(tmp_path: Path, factory: Any) -> None:
    use = MachineUse(cores=1, own=0.4, others=0.5, steal=0.0)
    real = ledger(3.0, {PASS: 2.9}, machine=use)
    c = comparison(factory, tmp_path, ledger(3.6, {PASS: 3.2}), real)
    assert "Of the machine's 1 core the run kept 0.40 busy" in sentences(c)[2]
    assert any("other work took 0.5 of 1 core," in w for w in caveats(c.simulated, [c.real]))


def test_the_table_sums_to_the_whole_and_names_what_is_not_booked(
    tmp_path: Path, factory: Any
) -> None:
    real = ledger(3.0, {PASS: 2.0, SENT: 0.9, ("x", "thousandth", "loop"): 0.003})
    c = comparison(factory, tmp_path, ledger(3.6, {PASS: 3.2, SENT: 0.4}), real)
    items = cpu(c)
    (table,) = (i for i in visible(items, Where.MARKDOWN) if isinstance(i, TextTable))
    rows = [[cell.text for cell in cells] for _, cells in table.rows]
    assert [row[:2] for row in rows] == [
        ["forward and backward pass", "trainer"],
        ["sending and receiving", "trainer"],
        ["not accounted for", ""],
        ["thousandth", "x"],
    ]
    assert rows[3][4] == "–"  # the prediction has no such line
    for column in (2, 3):
        summed = sum(float(row[column]) for row in rows)
        assert summed == pytest.approx(float(table.foot[column]), abs=0.02)
    ratio = float(rows[0][4])
    assert ratio == pytest.approx(float(rows[0][2]) / float(rows[0][3]), abs=0.01)
    (short,) = (i for i in visible(items, Where.TERMINAL) if isinstance(i, TextTable))
    assert len(list(short.rows)) == 3


def test_runs_without_a_ledger_show_none(tmp_path: Path, factory: Any) -> None:
    c = comparison(factory, tmp_path, ledger(3.6, {PASS: 3.2}), None)
    assert cpu(c) == []


@pytest.mark.parametrize(("others", "said"), [(0.5, False), (1.5, True)])
def test_other_work_beside_a_measurement_is_a_caveat(
    tmp_path: Path, factory: Any, others: float, said: bool
) -> None:
    """By the run's own counted window; whatever the load was when it began."""
    use = MachineUse(cores=4, own=1.5, others=others, steal=0.0)
    real = ledger(3.0, {PASS: 2.9}, machine=use)
    c = comparison(factory, tmp_path, ledger(3.6, {PASS: 3.2}), real)
    found = [w for w in caveats(c.simulated, [c.real]) if "other work took 1.5 of 4 cores" in w]
    assert bool(found) is said
    # and the figures survive their way through the run directory
    assert c.real.facts.ledger == real
