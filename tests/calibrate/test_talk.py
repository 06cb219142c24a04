"""Calibration's own program: what it counts is what the two worlds do."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsim_train.calibration import talk
from recsim_train.config.experiment import Synthetic
from recsim_train.config.load import load_cluster
from recsim_train.data.synthetic import write_criteo
from recsim_train.executor.launch import execute
from recsim_train.placement.build import build_plan
from recsim_train.sim.run import simulate
from recsim_train.strategy.registry import strategies
from recsim_train.trace.record import Outcome
from tests.conformance.test_worlds_agree import PROFILE

STEPS = 6


def of_one_iteration(outcome: Outcome) -> tuple[int, int, list[int]]:
    """(effects, requests, bytes of all messages) of a loop's iteration and of its servers."""
    spans = [s for s in outcome.spans if s.iteration == 4 and "talker" in s.loop]
    mine = [s for s in spans if s.instance == "trainer[0]"]
    theirs = [s for s in spans if "server" in s.instance and s.loop.startswith("trainer[0]")]
    return len(mine), len(theirs), sorted(s.bytes for s in [*mine, *theirs] if s.bytes)


@pytest.mark.parametrize(("asks", "setting", "batch", "steps"), talk._RUNS[:2])
@pytest.mark.parametrize("execution", talk._WAYS, ids=["shared", "tcp", "gloo"])
def test_it_counts_what_both_worlds_do(
    asks: str, setting: object, batch: int, steps: int, execution: object, tmp_path: Path
) -> None:
    path = tmp_path / "rows.tsv"
    write_criteo(path, setting.model(), Synthetic(rows=4000, seed=1), 4000)
    run = talk.experiment(asks, setting, batch, 2, STEPS, path, execution)
    run = run.model_copy(
        update={"training": run.training.model_copy(update={"warmup_steps": 1, "batch_size": 32})}
    )
    with talk.known(talk.Talk):
        plan = build_plan(run, run.strategies[0])
        real = execute(plan, staging=tmp_path)
        predicted = simulate(plan, load_cluster(PROFILE, None))
    asking = talk._ASKING[asks]
    requests, answers = talk._sizes(run, asks)
    sizes = sorted(size for size in (*requests, *answers) if size)
    # an update's and a push's bytes are all in one request
    for outcome in (real, predicted):
        effects, served, moved = of_one_iteration(outcome)
        assert effects == asking.effects
        assert served == talk._REQUESTS
        assert sum(moved) == sum(sizes)
    assert "talk" not in strategies()


def test_bytes_are_counted_at_both_ends_or_by_copies() -> None:
    requests, answers = [100, 1 << 20], [1 << 20]
    apart = talk._bytes(requests, answers, shares=False)
    assert apart == {"wire_byte": 2 * (100 + (2 << 20)), "shared_byte": 0}
    shared = talk._bytes(requests, answers, shares=True)
    assert shared == {"wire_byte": 200, "shared_byte": 3 << 20}
