"""Gates: each can hold, fail and lack data."""

from __future__ import annotations

import pytest

from recsim_train.config.validation import Gates
from recsim_train.results.configurations import Measured, Predicted
from recsim_train.results.fidelity import Fidelity, fidelity
from recsim_train.results.gates import Gate, judge


def found(
    errors: list[float], *, width: float = 0.1, speed: float | None = 1.0, missing: int = 0
) -> Fidelity:
    """Configurations with these net errors, each measured twice; half have two trainers."""
    predictions, runs = [], []
    for n, error in enumerate(errors):
        eps = 1000.0 * 2 ** (n // 2)
        interval = (eps * (1 - width), eps * (1 + width)) if width else None
        predictions.append(
            Predicted(
                f"key{n}",
                f"setting{n // 2}",
                f"label {n}",
                "flat_ps",
                "tiny",
                1 + n % 2,
                1,
                128,
                eps,
                interval,
                1.1 * eps,
                3.0 * eps,
                "cores of the machine",
            )
        )
        if n >= missing:
            factor = 1.0 if speed is None else speed
            runs += [Measured(f"key{n}", eps / (1 + error) * factor, None, speed)] * 2
    return fidelity(predictions, runs, speed_at_calibration=1.0)


def one(of: Fidelity, **bars: object) -> Gate:
    (gate,) = judge(of, Gates.model_validate(bars))
    return gate


GOOD = [0.01, -0.02, 0.03, -0.01] * 10


@pytest.mark.parametrize(
    ("bars", "errors", "verdict"),
    [
        ({"configurations": 40}, GOOD, "pass"),
        ({"configurations": 41}, GOOD, "fail"),
        ({"net_median": "2 %"}, GOOD, "pass"),
        ({"net_median": "1 %"}, GOOD, "fail"),
        ({"net_p90": "3.1 %"}, GOOD, "pass"),
        ({"net_p90": "2.9 %"}, GOOD, "fail"),
        ({"net_p90": "3 %"}, [0.5, *[0.01] * 9], "pass"),  # nine in ten
        ({"net_p90": "3 %"}, [0.5, 0.5, *[0.01] * 18, 0.5], "fail"),
        ({"raw_median": "2 %"}, GOOD, "pass"),
        ({"raw_median": "1 %"}, GOOD, "fail"),
        ({"raw_median": "2 %", "raw_min_runs": 80}, GOOD, "pass"),
        ({"raw_median": "2 %", "raw_min_runs": 81}, GOOD, "not enough data"),
        ({"order": "95 %"}, GOOD, "pass"),
        ({"order": "95 %"}, [0.0, 20.0, 0.0, -0.9] * 10, "fail"),
        ({"order": "95 %"}, GOOD[:4], "not enough data"),
        ({"coverage_least": "85 %"}, GOOD, "pass"),
        ({"coverage_least": "85 %"}, [0.2, *GOOD[:4]], "fail"),
        ({"coverage_most": "97 %"}, GOOD, "fail"),
        ({"coverage_most": "97 %"}, [0.2, *GOOD[:9]], "pass"),
        ({"coverage_least": "95 %"}, [0.2, *GOOD[:19]], "pass"),  # to the last digit
        ({"half_width": "10 %"}, GOOD, "pass"),
        ({"half_width": "9 %"}, GOOD, "fail"),
    ],
)
def test_bars(bars: dict[str, object], errors: list[float], verdict: str) -> None:
    gate = one(found(errors), **bars)
    assert gate.verdict == verdict, gate.sentence
    assert gate.name in bars
    assert gate.sentence.endswith(verdict)
    # too few runs at calibration's speed are the only lack of data that is no fault
    assert gate.holds == (verdict == "pass" or (verdict != "fail" and "raw_median" in bars))


def test_both_baselines_are_gates() -> None:
    gates = judge(found(GOOD), Gates(baseline_factor=3.0))
    # pairs of one speed: linear scaling is off by 100 %; the roofline by 200 %
    assert [gate.verdict for gate in gates] == ["pass", "pass"]
    assert "linear scaling" in gates[0].says
    assert "(20 configurations" in gates[0].figure
    hard = judge(found(GOOD), Gates(baseline_factor=80.0))
    assert [gate.verdict for gate in hard] == ["fail", "pass"]
    none = judge(found(GOOD[:1]), Gates(baseline_factor=3.0))
    assert [gate.verdict for gate in none] == ["not enough data", "pass"]


def test_nothing_is_left_out_quietly() -> None:
    drifting = found(GOOD, speed=None)
    for name in ("net_median", "net_p90"):
        assert one(drifting, **{name: "50 %"}).verdict == "not enough data"
    assert one(drifting, raw_median="50 %").holds
    assert one(found(GOOD, width=0.0), coverage_least="1 %").verdict == "not enough data"
    assert one(found(GOOD, width=0.0), half_width="50 %").verdict == "not enough data"
    assert one(found(GOOD, missing=1), configurations=2).verdict == "fail"
    assert one(found([]), net_median="50 %").verdict == "not enough data"


def test_runs_far_from_calibrations_speed_do_not_count_as_raw() -> None:
    gate = one(found(GOOD, speed=1.2), raw_median="50 %")
    assert gate.verdict == "not enough data"
    assert one(found(GOOD, speed=1.2), net_median="2 %").verdict == "pass"


def test_without_bars_there_are_no_gates() -> None:
    assert judge(found(GOOD), Gates()) == []
