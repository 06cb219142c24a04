"""Which value a setting should have, by predictions and their intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recsim_train.sweep.page import report_on_sweep, swept
from tests.sweep.made import scaling, sweep


def point(values: dict[str, Any], eps: float, half: float = 0.01, **more: Any) -> Any:
    """Of so many examples/s, with 90 % to ``half`` on each side, a share of it."""
    wide = half * 1.96 / 1.645
    ends = {"eps_low": eps * (1 - wide), "eps_high": eps * (1 + wide)}
    return values, {"examples_per_second": eps, **ends, **more}


def rates(*speeds: float, half: float = 0.01, **more: Any) -> list[Any]:
    named = ("5 Gbit/s", "10 Gbit/s", "25 Gbit/s")
    return [
        point({"cluster.hosts.default.nic": rate}, eps, half, **more)
        for rate, eps in zip(named, speeds, strict=True)
    ]


@pytest.mark.parametrize(
    ("speeds", "half", "short", "why"),
    [
        ((100.0, 100.5, 101.0), 0.02, "keep 5 Gbit/s: no difference",
         "10 Gbit/s gives +0.5 % and 25 Gbit/s gives +1.0 %"),
        ((100.0, 110.0, 120.0), 0.2, "keep 5 Gbit/s: no sure gain",
         "10 Gbit/s gives +10.0 % and 25 Gbit/s gives +20.0 %, within the intervals"),
        ((50.0, 100.0, 101.0), 0.02, "10 Gbit/s is enough",
         "25 Gbit/s gives +1.0 % and 5 Gbit/s gives −50.0 %"),
        ((50.0, 80.0, 100.0), 0.02, "take 25 Gbit/s",
         "5 Gbit/s gives −50.0 % and 10 Gbit/s gives −20.0 %"),
    ],
)  # fmt: skip
def test_a_dearer_value_needs_evidence(
    tmp_path: Path, speeds: tuple[float, ...], half: float, short: str, why: str
) -> None:
    (found,) = sweep(tmp_path, rates(*speeds, half=half)).answers
    assert (found.setting, found.short, found.why) == ("nic", short, why)


def test_the_slowest_network_of_those_that_tie_is_the_cheapest(tmp_path: Path) -> None:
    cheap = {"trainers": 1, "threads": 1, "cores": 4.0}
    found = sweep(tmp_path, rates(50.0, 100.0, 101.0, half=0.02, **cheap))
    assert "nic 10 Gbit/s is the cheapest of them (1 process, slower network cards)" in (
        found.headline
    )


def test_what_has_no_price_is_taken_for_its_speed(tmp_path: Path) -> None:
    points = [point({"training.batch_size": b}, eps) for b, eps in ((1, 9.0), (2, 10.0))]
    (found,) = sweep(tmp_path, points).answers
    assert (found.setting, found.short) == ("batch size", "take 2")
    alike = [point({"strategy.mode": m}, eps, 0.1) for m, eps in (("a", 9.9), ("b", 10.0))]
    (found,) = sweep(tmp_path / "b", alike).answers
    assert (found.short, found.why) == ("no difference", "a gives −1.0 %")


def test_another_model_is_no_advice(tmp_path: Path) -> None:
    points = [point({"model.preset": m}, eps) for m, eps in (("dlrm", 9.0), ("dcn", 10.0))]
    (found,) = sweep(tmp_path, points).answers
    assert (found.short, found.why) == ("dcn is the fastest", "dlrm gives −10.0 %")


def test_where_a_step_is_more_work_the_answer_is_how_it_grows(tmp_path: Path) -> None:
    points = [
        point({"roles.trainers": n}, eps, examples_per_step=100 * n)
        for n, eps in ((1, 100.0), (2, 180.0), (4, 300.0), (8, 301.0))
    ]
    found = sweep(tmp_path, points)
    (grows,) = found.answers
    assert grows.short == "3 times as fast with 8 as with 1"
    assert grows.why == "37.6 % of linear; beyond 4 no growth that the intervals tell"
    assert found.document()["answers"] == [
        {"setting": "trainers", "answer": grows.short, "why": grows.why}
    ]


def test_strategies_are_compared_where_they_do_the_same_work(tmp_path: Path) -> None:
    def both(size: int, nic: str, one: float, other: float) -> list[Any]:
        values = {"cluster.hosts.default.nic": nic}
        return [
            point(values, one, strategy="flat_ps", examples_per_step=2 * size),
            point(values, other, strategy="allreduce", examples_per_step=size),
        ]

    apart = [*both(100, "5 Gbit/s", 9.0, 5.0), *both(100, "25 Gbit/s", 9.0, 5.0)]
    assert [a.setting for a in sweep(tmp_path, apart).answers] == ["nic"]
    same = [
        (values, figures | {"examples_per_step": 100})
        for values, figures in [*both(1, "5 Gbit/s", 9.0, 5.0), *both(1, "25 Gbit/s", 9.0, 11.0)]
    ]
    _, found = sweep(tmp_path / "b", same).answers
    assert (found.setting, found.short) == ("strategy", "it depends")
    assert found.why == (
        "best, or as good as the best: flat_ps in 1 of 2 cases (nic 5 Gbit/s) and allreduce in 1 "
        "of 2 cases (nic 25 Gbit/s)"
    )


def test_repeats_are_one_point(tmp_path: Path) -> None:
    points = [
        point({"cluster.hosts.default.nic": rate, "seed": seed}, eps + seed, seed=seed)
        for rate, eps in (("5 Gbit/s", 100.0), ("10 Gbit/s", 200.0)) for seed in (1, 2, 3)
    ]  # fmt: skip
    (found,) = sweep(tmp_path, points).answers
    assert (found.short, found.why) == ("take 10 Gbit/s", "5 Gbit/s gives −49.5 %")


def test_the_page_begins_with_the_answers(tmp_path: Path) -> None:
    found = scaling(tmp_path)
    made = report_on_sweep(found.record.path, tmp_path / "report")
    said = "; ".join(f"{a.setting}: {a.short}" for a in found.answers)
    assert made.report.headlines[0] == said
    assert made.page is not None
    page = made.page.read_text(encoding="utf-8").replace("\u00a0", " ")
    assert f"<h1>{said}.</h1>" in page
    cards = page.split('<div class="tiles">')[1].split("</header>")[0]
    for answer in found.answers:
        assert answer.short in cards
        assert answer.why in cards
    assert "points with a throughput" not in page


def test_a_best_point_has_cards_of_its_own(tmp_path: Path) -> None:
    lock = {"binding": {"what": "interpreter", "resource": "trainer[0].interpreter"}}
    found = sweep(tmp_path, rates(50.0, 80.0, 100.0, **lock))
    tiles = {tile.title: tile for tile in swept(found).tiles}
    assert tiles["fastest point"].figure.text == "100 examples/s"
    assert tiles["fastest point"].said == "99.0 to 101 (90 % interval)"
    assert tiles["what binds"].figure.text == "interpreter lock of trainer"
    assert tiles["what binds"].said == "More processes with fewer threads each relieve it."
    assert tiles["memory"].figure.text == "50.0 %"
    tie = {tile.title for tile in swept(sweep(tmp_path / "b", rates(99.0, 99.5, 100.0))).tiles}
    assert "cheapest of those that tie" in tie


def test_a_caveat_of_many_points_is_said_once(tmp_path: Path) -> None:
    points = [
        point({"roles.trainers": n}, 10.0 * n, notes=[f"With 0 % it is {n},001 examples/s."])
        for n in (1, 2, 4)
    ]
    assert sweep(tmp_path, points).notes == [
        "With 0 % it is 1,001 examples/s. (3 of 3 points, each with figures of its own)"
    ]
