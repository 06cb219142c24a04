from __future__ import annotations

import pytest

from recsim_train.report.gap import divided


def test_the_gap_is_divided_up_completely() -> None:
    predicted = {"lookup": 3.1e-3, "compute forward_backward": 6e-3, "other": 1e-4}
    measured = {"lookup": 4.4e-3, "compute forward_backward": 6.9e-3, "push": 3e-4, "other": 0.0}
    found = divided(predicted, measured)
    assert found is not None
    assert found.whole.difference == pytest.approx(sum(p.difference for p in found.parts))
    assert sum(p.share for p in found.parts if p.share is not None) == pytest.approx(1.0)
    assert found.parts[0].name == "lookup"
    assert found.sentences[0] == "An iteration takes 9.20 ms predicted, 11.6 ms measured."
    assert found.sentences[1] == (
        "Lookup takes 3.10 ms predicted, 4.40 ms measured: that is 54 % of the gap."
    )
    assert found.sentences[2].startswith(
        "Compute (forward and backward pass) takes 6.00 ms predicted"
    )


def test_parts_that_work_against_the_gap_say_so() -> None:
    found = divided({"lookup": 2.0, "pull": 2.0}, {"lookup": 5.0, "pull": 1.0})
    assert found is not None
    assert "that hides 50 % of the gap again" in found.sentences[2]


def test_no_gap_needs_no_explanation_but_cancelling_parts_are_named() -> None:
    found = divided({"lookup": 1.0, "pull": 1.0}, {"lookup": 1.0, "pull": 1.001})
    assert found is not None
    assert found.sentences == (
        "An iteration takes 2.00 s predicted, 2.00 s measured: there is no gap to explain.",
    )
    found = divided({"lookup": 1.0, "pull": 1.0}, {"lookup": 1.5, "pull": 0.5})
    assert found is not None
    assert found.sentences[2] == (
        "Lookup takes 1.00 s predicted, 1.50 s measured: 500 ms longer than predicted."
    )


def test_nothing_recorded_gives_nothing() -> None:
    assert divided({}, {"lookup": 1.0}) is None


def test_many_small_differences_are_said_to_be_spread() -> None:
    names = [f"effect_{k}" for k in range(100)]
    found = divided(dict.fromkeys(names, 1.0), dict.fromkeys(names, 1.1))
    assert found is not None
    assert found.sentences[1].startswith("No single part stands out")
