"""What a sweep's report finds in rows that are made by hand."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from rich.console import Console

from recsim_train.config.errors import UserError
from recsim_train.report.runs import find_sweep
from recsim_train.report.terminal import show
from recsim_train.report.what_if import sentences, telling, what_if_figure
from recsim_train.report.write import by_name
from recsim_train.results.row import Row, row_from
from recsim_train.sweep.figures import draw
from recsim_train.sweep.findings import SweepFindings, binding
from recsim_train.sweep.folder import read_sweep
from recsim_train.sweep.page import notes, report_on_sweep, swept
from recsim_train.trace.facts import Facts, WhatIf
from tests.sweep.made import at, scaling, sweep


def test_lines_run_over_trainers_in_order_of_numbers(tmp_path: Path) -> None:
    found = scaling(tmp_path)
    assert found.x is not None
    assert found.x.values == (1, 2, 8)
    assert {line.label for line in found.lines} == {
        f"{s}, nic {r}" for s in ("flat_ps", "allreduce") for r in ("5 Gbit/s", "100 Gbit/s")
    }
    fast = next(line for line in found.lines if line.label == "flat_ps, nic 100 Gbit/s")
    assert [d.row.examples_per_second for d in fast.dots] == [10.0, 20.0, 80.0]
    (nic,) = found.free
    assert nic.numbers == (5.0, 100.0)
    assert nic.unit == "Gbit/s"
    assert found.best[0][1].examples_per_second == 80.0
    assert "flat_ps is the fastest of 12 points" in found.headline
    assert (
        "flat_ps, nic 5 Gbit/s: cores of trainer up to trainers 2, "
        "the network card of dense server, receiving from 8 on" in found.changes
    )
    assert "allreduce, nic 100 Gbit/s: cores of trainer throughout" in found.changes


def test_axes_that_follow_from_another_have_no_lines(tmp_path: Path) -> None:
    points = [
        ({"roles.trainers": n, "roles.dense_servers": n // 2}, {"examples_per_second": 5.0 * n})
        for n in (2, 4, 8)
    ]
    found = sweep(tmp_path, points)
    assert found.free == []
    (line,) = found.lines
    assert [d.value for d in line.dots] == [2, 4, 8]
    assert set(by_name(draw(found))) == {"scaling", "binding"}


def test_repeats_count_by_their_median(tmp_path: Path) -> None:
    points = [
        ({"roles.trainers": n, "seed": s}, {"examples_per_second": 10.0 * n + s, "seed": s})
        for n in (1, 2)
        for s in (1, 2, 9)
    ]
    found = sweep(tmp_path, points)
    (line,) = found.lines
    assert [d.row.examples_per_second for d in line.dots] == [12.0, 22.0]


def test_more_values_than_lines_leave_the_best(tmp_path: Path) -> None:
    points = [
        ({"roles.trainers": n, "training.batch_size": b}, {"examples_per_second": 1.0 * n * b})
        for n in (1, 2)
        for b in range(10, 20)
    ]
    found = sweep(tmp_path, points)
    assert found.x is not None
    assert found.x.key == "roles.trainers"
    (line,) = found.lines
    assert [d.row.examples_per_second for d in line.dots] == [19.0, 38.0]
    assert [a.key for a in found.best_of] == ["training.batch_size"]
    assert all(s.endswith("(with the best batch size at each place)") for s in found.changes)
    assert found.changes
    assert any("best value of batch size" in note for note in notes(found))


def test_points_without_a_figure(tmp_path: Path) -> None:
    gone = {"status": "does not fit", "message": "trainer[0] needs 9 GiB", "binding": None}
    points: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"roles.trainers": 1}, {"examples_per_second": 4.0}),
        ({"roles.trainers": 2}, gone),
    ]
    found = sweep(tmp_path, points)
    (line,) = found.lines
    assert line.missing == (2,)
    assert "1 points have no figure" in notes(found)[0]
    assert found.document()["not_fitting"][0]["message"] == "trainer[0] needs 9 GiB"
    nothing = sweep(tmp_path / "b", [({"roles.trainers": 1}, gone), ({"roles.trainers": 2}, gone)])
    assert nothing.headline == "No point has a throughput"
    assert by_name(draw(nothing)) == {}
    report_on_sweep(tmp_path / "b" / "made-sweep", tmp_path / "report")


def test_names_only(tmp_path: Path) -> None:
    """Two settings of names: a map, but no line."""
    points = [
        ({"model": m, "strategy.mode": s}, {"examples_per_second": e})
        for m, s, e in (("a", "x", 1.0), ("a", "y", 2.0), ("b", "x", 3.0), ("b", "y", 4.0))
    ]
    found = sweep(tmp_path, points)
    assert found.x is None
    assert found.lines == []
    assert set(by_name(draw(found))) == {"map"}


def test_whiskers_end_where_intervals_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where these reach further up than down; of what has none there are none."""
    drawn: list[Any] = []
    errorbar = Axes.errorbar

    def seen(self: Axes, at: Any, speed: Any, yerr: Any, **how: Any) -> Any:
        drawn.append([(y - low, y + high) for y, low, high in zip(speed, *yerr, strict=True)])
        return errorbar(self, at, speed, yerr=yerr, **how)

    monkeypatch.setattr(Axes, "errorbar", seen)
    wide = {"calibration_low": 80.0, "calibration_high": 190.0}
    bare = {"calibration_low": None, "calibration_high": None}
    found = sweep(
        tmp_path, [at(1, 100.0, 0.01, **wide), at(2, 150.0, 0.02), at(4, 160.0, 0.1, **bare)]
    )
    assert by_name(draw(found))["scaling"]
    ends = [row.interval90() or (160.0, 160.0) for row in found.done]
    assert ends[0][1] - 100.0 > 2 * (100.0 - ends[0][0])
    assert ends[2] == (160.0, 160.0)
    for line in drawn:
        assert line == [pytest.approx(pair) for pair in ends]
    assert drawn


def test_figures_are_the_same_bytes_every_time(tmp_path: Path) -> None:
    first, second = (by_name(draw(scaling(tmp_path / n))) for n in ("a", "b"))
    assert {k: (p.svg, p.png) for k, p in first.items()} == {
        k: (p.svg, p.png) for k, p in second.items()
    }


def test_what_binds_without_its_number() -> None:
    card = {"what": "nic.rx", "resource": "dense_server[12].nic.rx", "busy": 0.95}
    assert binding(row_from({"binding": card})) == "the network card of dense server, receiving"
    assert (
        binding(row_from({"binding": {"what": "latency", "resource": "trainer[3].cores"}}))
        == "latency"
    )
    older = "NIC receive of dense_server[12]"
    assert binding(Row(bottleneck=older)) == "the network card of dense server, receiving"
    assert binding(Row()) == "nothing known"


def test_outside_text_is_escaped(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    found = sweep(tmp_path, [({"data.path": evil}, {"examples_per_second": 1.0, "profile": evil}),
                             ({"data.path": "b"}, {"examples_per_second": 2.0})])  # fmt: skip
    made = report_on_sweep(found.record.path, tmp_path / "report")
    assert "<script>alert" not in made.page.read_text(encoding="utf-8")


def test_damaged_sweeps_are_one_sentence(tmp_path: Path) -> None:
    path = scaling(tmp_path).record.path
    assert find_sweep([path]) == path
    (path / "sweep.parquet").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"damaged sweep.*sweep\.parquet"):
        read_sweep(path)
    (path / "sweep.json").write_text("{")
    with pytest.raises(UserError, match="damaged sweep"):
        read_sweep(path)
    (path / "sweep.json").write_text('{"format": 99}')
    with pytest.raises(UserError, match="format 99"):
        read_sweep(path)


def test_terminal(tmp_path: Path) -> None:
    import io

    from rich.console import Console

    shown = Console(file=io.StringIO(), width=200)
    show(swept(scaling(tmp_path)), shown)
    printed = shown.file.getvalue()  # type: ignore[attr-defined]
    assert "flat_ps is the fastest of 12 points" in printed
    assert printed.count("cores of trainer") >= 9


def test_what_if_says_what_is_surer_than_its_error(factory: Any) -> None:
    facts = Facts(
        elasticities={"cores": 0.09, "nic": 0.02, "costs.call": -0.03, "dense_servers": 0.4},
        elasticity_errors={"cores": 0.01, "nic": 0.015, "costs.call": 0.0, "dense_servers": 0.1},
        calibration_ci95=(90.0, 112.0),
        what_if=WhatIf(step=0.1, runs=20, events=1000, cost=0.5, skipped={}, degrees=10),
    )
    summary = factory.summary(examples_per_second=100.0, facts=facts)
    assert [name for name, _, _ in telling(summary)] == ["cores", "costs.call", "dense_servers"]
    first, second = sentences(summary)
    assert first == (
        "10 % more of one of them changes the throughput by: cores +9.0 %, "
        "price of a call of a tensor operator −3.0 %"
    )
    assert second == "With one more dense server +40.0 %"
    assert what_if_figure(summary, "w", "flat_ps") is not None


def test_near_saturation_it_is_said_what_the_interval_rests_on(factory: Any) -> None:
    facts = Facts(
        elasticities={"nic": 0.14},
        elasticity_errors={"nic": 0.01},
        calibration_errors={"prices": 0.02},
        what_if=WhatIf(step=0.1, runs=20, events=1000, cost=0.5, skipped={}, degrees=10),
    )
    for busy, said in ((0.92, True), (0.6, False)):
        used = {"embedding_server[0].nic.tx": busy, "trainer[0].cores": 0.3}
        summary = factory.summary(examples_per_second=100.0, facts=facts, utilisation=used)
        *_, last = sentences(summary)
        assert ("near saturation queues answer to a small error with a larger one" in last) is said
        assert ("embedding server 0" in last and "92.0 % busy" in last) is said


def test_what_if_that_was_not_asked(factory: Any) -> None:
    nothing = factory.summary(examples_per_second=5.0)
    assert sentences(nothing) == []
    assert what_if_figure(nothing, "w", "x") is None
    (said,) = sentences(
        factory.summary(world="simulated", examples_per_second=5.0, ci95=(4.9, 5.1))
    )
    assert said == (
        "No interval: what errors of the prices add was not asked (simulation.what_if_steps); "
        "where the simulation ended alone leaves ± 1.7 %"
    )
    assert sentences(factory.summary(world="real", examples_per_second=5.0, ci95=(4.9, 5.1))) == []


def everywhere(found: SweepFindings, out: Path) -> list[str]:
    """What the terminal, the page and the Markdown say, each in one line."""
    import io

    from rich.console import Console

    made = report_on_sweep(found.record.path, out)
    shown = Console(file=io.StringIO(), width=400)
    show(swept(found), shown)
    page = made.page.read_text(encoding="utf-8").replace("\u00a0", " ")
    short = (made.out / "summary.md").read_text(encoding="utf-8")
    return [shown.file.getvalue(), page, short.replace("\\", "")]  # type: ignore[attr-defined]


def test_noise_names_no_winner_and_the_cheapest_is_preferred(tmp_path: Path) -> None:
    points = [at(1, 460e3, 0.2), at(2, 473e3, 1.47), at(4, 465e3, 0.1), at(8, 200e3, 0.1)]
    found = sweep(tmp_path, points)
    said = (
        "trainers 1, 2 and 4 cannot be told apart and are the fastest of 4 points; "
        "trainers 1 is the cheapest of them (2 processes) with 460k examples/s (368k to 552k)"
    )
    assert found.headline == f"{said}; cores of 1 binds there"
    for text in everywhere(found, tmp_path / "report"):
        assert said in text
        assert "is the fastest" not in text
    document = found.document()
    assert document["fastest"] == {
        "clear": False, "cheapest": True, "label": "flat_ps", "point": 0,
        "examples_per_second": 460e3, "tied": [0, 1, 2],
    }  # fmt: skip
    assert [b["point"]["point"] for b in document["best"]] == [0]


def test_where_a_simulation_ended_is_no_interval_that_tells_points_apart(tmp_path: Path) -> None:
    """As of ``simulation.what_if_steps: 0``: the ends are near, the prices' errors not known."""
    unasked = {"calibration_low": None, "calibration_high": None}
    points = [at(n, eps, 0.01, **unasked) for n, eps in ((1, 10e3), (2, 21e3), (4, 38.2e3))]
    found = sweep(tmp_path, points)
    assert found.headline == (
        "no interval is known, so that none of 3 points is surely the fastest; the highest is "
        "trainers 4 with 38.2k examples/s; cores of 4 binds at the highest"
    )
    assert [answer.short for answer in found.answers] == ["not known"]
    assert not found.document()["fastest"]["clear"]
    note = "3 of 3 points have no interval, so that nothing tells them apart"
    for text in everywhere(found, tmp_path / "report"):
        assert "90 % interval" not in re.sub("their 90 % intervals|<dt>.*", "", text)
        assert "37.8k to 38.6k" not in text
        assert "within the intervals" not in text
        assert "that the intervals tell" not in text
        assert note in text
    one = [points[0], at(2, 21e3, 0.01)]
    said = everywhere(sweep(tmp_path / "one", one), tmp_path / "other")
    assert all("1 of 2 points have no interval" in text for text in said)
    assert all("20.8k to 21.2k" in text for text in said[:2])


def test_a_winner_beyond_the_intervals_is_named_with_its_own(tmp_path: Path) -> None:
    found = sweep(tmp_path, [at(1, 100.0, 0.04), at(2, 110.0, 0.04), at(4, 111.0, 0.004)])
    assert not found.fastest.clear  # 111 - 0.4 % is below 110 + 4 %
    found = sweep(tmp_path / "b", [at(1, 100.0, 0.04), at(4, 111.0, 0.01)])
    assert found.headline == (
        "flat_ps is the fastest of 2 points with 111 examples/s (110 to 112) at trainers 4; "
        "cores of 4 binds there"
    )
    assert found.document()["fastest"]["clear"] is True
    # what the prices' errors make counts too
    unsure = {"calibration_low": 90.0, "calibration_high": 130.0}
    found = sweep(tmp_path / "c", [at(1, 100.0, 0.04), at(4, 111.0, 0.01, **unsure)])
    assert found.fastest.preferred.item.trainers == 1
    # whatever makes them: there is one interval, here as everywhere
    more = {**unsure, "calibration_errors": {"speed": 0.1}}
    found = sweep(tmp_path / "d", [at(1, 100.0, 0.04), at(4, 111.0, 0.01, **more)])
    assert found.fastest.preferred.item.trainers == 1


def test_strategies_that_tie_are_a_tie(tmp_path: Path) -> None:
    points = [
        ({"roles.trainers": n}, {**at(n, eps * n, 0.05)[1], "strategy": kind, **servers})
        for n in (2, 4)
        for kind, eps, servers in (
            ("flat_ps", 10.2, {"embedding_servers": 2}),
            ("allreduce", 10.0, {"dense_servers": 0}),
        )
    ]
    found = sweep(tmp_path, points)
    assert found.headline.startswith(
        "allreduce at trainers 4 and flat_ps at trainers 4 cannot be told apart and are the "
        "fastest of 4 points; allreduce at trainers 4 is the cheapest of them (4 processes)"
    )
    assert [name for name, _ in found.best] == ["allreduce", "flat_ps"]


def test_equal_cost_and_no_interval(tmp_path: Path) -> None:
    points = [
        ({"training.batch_size": b}, {**at(2, 100.0 + b, 0.1)[1], "batch_size": b})
        for b in (1, 2, 3, 4, 5)
    ]
    found = sweep(tmp_path, points)
    assert found.headline.startswith(
        "5 points cannot be told apart and are the fastest of 5 points with up to "
        "105 examples/s (94.5 to 116); none of them is the cheapest"
    )
    assert found.best[0][1].batch_size == 5  # of equally cheap ones the fastest
    none = {"calibration_low": None, "calibration_high": None}
    found = sweep(tmp_path / "b", [at(1, 1.0, 0.0, **none), at(2, 100.0, 0.01)])
    assert "trainers 1 and 2 cannot be told apart, as some have no interval," in found.headline


def test_repeats_tie_within_their_range(tmp_path: Path) -> None:
    points = []
    for trainers, speeds in ((1, (90.0, 100.0, 112.0)), (2, (100.0, 105.0, 106.0))):
        for seed, eps in enumerate(speeds):
            values, figures = at(trainers, eps, 0.001)
            points.append((values | {"seed": seed}, figures | {"seed": seed}))
    found = sweep(tmp_path, points)
    assert [e.item.trainers for e in found.fastest.tied] == [1, 2]
    assert found.fastest.preferred.item.examples_per_second == 100.0


def sized(folder: Path) -> SweepFindings:
    """Two strategies at two numbers of examples a step; the larger one is faster throughout."""
    points = [
        (
            {"training.batch_size": size},
            {"strategy": kind, "examples_per_second": eps, "examples_per_step": size,
             "calibration_low": 0.7 * eps, "calibration_high": 1.3 * eps,
             "calibration_errors": {"prices": 0.13},
             "notes": ["All of them."] + ["This one."] * (kind == "flat_ps")},
        )
        for size, kind, eps in (
            (100, "flat_ps", 10.0), (100, "allreduce", 30.0),
            (400, "flat_ps", 200.0), (400, "allreduce", 90.0),
        )
    ]  # fmt: skip
    return sweep(folder, points)


def test_no_winner_among_different_examples_a_step(tmp_path: Path) -> None:
    found = sized(tmp_path)
    assert found.fastest is None
    assert "no fastest of 4 points" in found.headline
    assert "100 to 400 examples" in found.headline
    small, large = found.findings
    assert small.startswith("At 100 examples a step allreduce is the fastest of 2 points")
    assert large.startswith("At 400 examples a step flat_ps is the fastest of 2 points")
    assert [(name, row.examples_per_step) for name, row in found.best] == [
        ("allreduce", 100), ("flat_ps", 100), ("flat_ps", 400), ("allreduce", 400)
    ]  # fmt: skip
    told = found.document()
    assert told["fastest"] is None
    assert told["examples_per_step"] == [100, 400]
    assert told["findings"] == [small, large]


def test_at_one_place_the_points_with_most_examples_stand(tmp_path: Path) -> None:
    """The smaller step is faster here, and is not the best of the line for that."""
    points = [
        ({"roles.trainers": n, "training.batch_size": b},
         {"examples_per_second": 10.0 * n + 100.0 / b, "examples_per_step": n * b})
        for n in (1, 2) for b in range(10, 20)
    ]  # fmt: skip
    (line,) = sweep(tmp_path, points).lines
    assert [dot.row.examples_per_step for dot in line.dots] == [19, 38]


def test_calibration_and_caveats_are_in_every_form(tmp_path: Path) -> None:
    found = sized(tmp_path)
    shown = Console(file=io.StringIO(), width=200)
    show(swept(found), shown)
    terminal = shown.file.getvalue()  # type: ignore[attr-defined]
    made = report_on_sweep(tmp_path / "made-sweep", tmp_path / "report")
    assert made.page is not None
    page = made.page.read_text(encoding="utf-8").replace("\u00a0", " ")
    short = (tmp_path / "report/summary.md").read_text(encoding="utf-8")
    for text in (terminal, page, short):
        assert "examples/step" in text
        assert "150 to 250" in text  # 200, and 1.645 of the 1.96 errors in ± 30 %
        assert "All of them." in text
        assert "This one. (2 of 4 points)" in text
    table = (tmp_path / "made-sweep/sweep.csv").read_text(encoding="utf-8")
    head, *rows = csv.reader(io.StringIO(table))
    first = dict(zip(head, rows[0], strict=True))
    assert first["examples_per_step"] == "100"
    assert first["calibration_low"] == "7.0"
    assert json.loads(first["notes"]) == ["All of them.", "This one."]


def test_a_column_of_costs_where_there_are_prices(tmp_path: Path) -> None:
    free = [at(1, 100.0, 0.02), at(2, 190.0, 0.02)]
    priced = [free[0], at(2, 190.0, 0.02, cost_per_billion=8771.93, currency="EUR")]
    for form in everywhere(sweep(tmp_path / "none", free), tmp_path / "a"):
        assert "cost/1e9" not in form
    for form in everywhere(sweep(tmp_path / "some", priced), tmp_path / "b"):
        assert "cost/1e9 examples" in form
        assert "8,770 EUR" in form
