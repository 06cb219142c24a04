"""Prices of collectives: what is counted, and that runs of the program give it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from recsim_train.calibration import runs
from recsim_train.calibration.fit import Observation, fit
from recsim_train.calibration.prices import MEETING_PRIORS
from recsim_train.calibration.programs import Meet, known, meeting_work
from recsim_train.placement.build import build_plan
from recsim_train.strategy import registry
from recsim_train.workload.shape import dense_parameters


@pytest.mark.parametrize(("does", "members"), [("reduce", 2), ("gather", 3)])
def test_counted_bytes_are_those_that_members_hand_over(
    does: Literal["reduce", "gather"], members: int, tmp_path: Path
) -> None:
    """Against a run's own count of what left each member; a member receives as much."""
    from recsim_train.executor.process.launch import execute

    run = runs.MEETINGS[1]._replace(asks=does, steps=3)
    with known():
        spec = runs.experiment(run, members, tmp_path)
        spec = spec.model_copy(
            update={"training": spec.training.model_copy(update={"warmup_steps": 0})}
        )
        plan = build_plan(spec, spec.strategies[0])
        outcome = execute(plan, staging=tmp_path)
    effect = {"reduce": "all_reduce", "gather": "all_gather"}[does]
    sent = [t.bytes / t.count for k, t in outcome.totals.items() if k.effect == effect]
    assert len(sent) == members
    size = 4 * dense_parameters(spec.model)
    work = meeting_work(does, size, members)
    (moved,) = (units for name, units in work.items() if name.endswith("_byte"))
    if does == "gather":
        assert sent == [(members - 1) * size] * members
        assert moved == 2 * sent[0]
    else:  # the payload is the vector; a ring moves it nearly twice, either way
        assert sent == [size] * members
        assert moved == pytest.approx(4 * (members - 1) / members * size)
    assert work["collective_message"] == 2 * (members - 1)
    assert Meet.kind not in registry.strategies()


def test_the_fit_finds_planted_prices() -> None:
    prices = {"collective_message": 3.1e-4, "reduced_byte": 2.2e-10, "exchanged_byte": 9e-10}
    seen = []
    for members in (2, 4):
        for does in ("reduce", "gather"):
            for size in (2e4, 5e5, 4e6):
                work = meeting_work(does, int(size), members)
                seconds = sum(units * prices[name] for name, units in work.items())
                seen.append(Observation("collectives in runs", work, seconds))
    found = fit(seen, MEETING_PRIORS).prices
    for name, price in prices.items():
        assert found[name].value == pytest.approx(price, rel=0.05), name
