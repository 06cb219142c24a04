"""Gates: each can hold, fail and lack data."""

from __future__ import annotations

import pytest

from recsim_train.config.experiment import Gates
from recsim_train.validation.configurations import Measured, Predicted
from recsim_train.validation.fidelity import Fidelity, Gate, fidelity, judge


def found(
    errors: list[float],
    *,
    width: float = 0.1,
    missing: int = 0,
    lost: int = 0,
    repeats: int = 2,
    without: int = 0,
) -> Fidelity:
    """Configurations with these raw errors, measured so often; half have two trainers.

    ``missing``: so many were never measured; ``lost``: so many have one run less; ``without``: so
    many have no interval, neither of the prediction nor of a single run.
    """
    predictions, runs = [], []
    for n, error in enumerate(errors):
        eps = 1000.0 * 2 ** (n // 2)
        interval = (eps * (1 - width), eps * (1 + width)) if width and n >= without else None
        predictions.append(
            Predicted(
                key=f"key{n}",
                setting=f"setting{n // 2}",
                label=f"label {n}",
                strategy="flat_ps",
                model="tiny",
                trainers=1 + n % 2,
                threads=1,
                batch_size=128,
                examples_per_second=eps,
                interval=interval,
                bound=1.1 * eps,
                roofline=3.0 * eps,
                bottleneck="cores of the machine",
                regime="compute",
            )
        )
        if n >= missing:
            measured = eps / (1 + error)
            own = None if n < without else (0.99 * measured, 1.01 * measured)
            runs += [Measured(f"key{n}", measured, own)] * (repeats - (n < missing + lost))
    return fidelity(predictions, runs, repeats)


def one(of: Fidelity, **bars: object) -> Gate:
    (gate,) = judge(of, Gates.model_validate(bars))
    return gate


GOOD = [0.01, -0.02, 0.03, -0.01] * 10


@pytest.mark.parametrize(
    ("bars", "errors", "verdict"),
    [
        ({"configurations": 40}, GOOD, "pass"),
        ({"configurations": 41}, GOOD, "fail"),
        ({"raw_median": "2 %"}, GOOD, "pass"),
        ({"raw_median": "1 %"}, GOOD, "fail"),
        ({"raw_p90": "3.1 %"}, GOOD, "pass"),
        ({"raw_p90": "2.9 %"}, GOOD, "fail"),
        ({"raw_p90": "3 %"}, [0.5, *[0.01] * 9], "pass"),  # nine in ten
        ({"raw_p90": "3 %"}, [0.5, 0.5, *[0.01] * 18, 0.5], "fail"),
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
    assert gate.holds == (verdict == "pass")


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


LENIENT = {
    "configurations": 2,
    "raw_median": "90 %",
    "raw_p90": "90 %",
    "order": "1 %",
    "order_min_pairs": 1,
    "coverage_least": "1 %",
    "coverage_most": "100 %",
    "half_width": "90 %",
    "baseline_factor": 0.01,
}


def passing(of: Fidelity) -> set[str]:
    return {gate.name for gate in judge(of, Gates.model_validate(LENIENT)) if gate.holds}


def test_nothing_is_left_out_quietly() -> None:
    """Bars that everything clears: a single run or a single configuration that is missing is
    enough, and no gate holds that needs it."""
    every = LENIENT.keys() - {"order_min_pairs"}
    assert passing(found(GOOD)) == every
    assert passing(found(GOOD, missing=1)) == set()
    # each configuration is measured, one of them once instead of twice
    assert passing(found(GOOD, lost=1)) == {"configurations"}
    # one prediction without an interval, one single run of which the noise is not known
    needs = {"coverage_least", "coverage_most", "half_width"}
    assert passing(found(GOOD, without=1)) == every - needs
    assert passing(found(GOOD, without=1, repeats=1)) == every - needs - {"order"}
    assert passing(found(GOOD, repeats=1)) == every
    assert one(found(GOOD, width=0.0), half_width="50 %").verdict == "not enough data"
    assert one(found([]), raw_median="50 %").verdict == "not enough data"


def test_a_gate_on_errors_counts_single_runs() -> None:
    """Ten configurations that are met in one run and missed by half in the other."""
    predictions = found([0.0] * 10).rows
    runs = [
        Measured(row.predicted.key, row.predicted.examples_per_second / (1 + error))
        for row in predictions
        for error in (0.0, 0.5)
    ]
    both = fidelity([row.predicted for row in predictions], runs, 2)
    assert one(both, raw_median="30 %").verdict == "pass"
    assert one(both, raw_p90="30 %").verdict == "fail"
    assert "50.0 % (20 of 20 runs)" in one(both, raw_p90="30 %").figure


def test_without_bars_there_are_no_gates() -> None:
    assert judge(found(GOOD), Gates()) == []
