"""How much longer passes take in runs: what is made of runs beside windows."""

from __future__ import annotations

from math import log, sqrt
from pathlib import Path
from statistics import fmean, stdev

import pytest

from recsim_train.calibration.profile import UNSEEN
from recsim_train.calibration.runs import TALKS
from recsim_train.config.cluster import Cluster
from recsim_train.config.dump import dump_cluster
from recsim_train.config.experiment import Experiment
from recsim_train.config.measured import MachineSpeed, MeasuredOperation
from recsim_train.config.profiles import load_cluster
from recsim_train.session import own_runs
from recsim_train.session.own_runs import Taken, mean_of, with_in_runs

NETS = (
    (Taken(1.0, 1.0), Taken(1.44, 1.0)),
    (Taken(1.1, 1.3), Taken(1.1, 1.3)),
)


def test_a_net_weighs_the_same_however_often_it_was_measured() -> None:
    law = mean_of(NETS)
    means = [log(1.2), 0.0, log(1.1), log(1.3)]
    assert log(law.times) == pytest.approx(fmean(means))
    assert law.uncertainty == pytest.approx(stdev(means) / 2.0)
    thrice = mean_of([NETS[0] * 3, NETS[1]])
    assert thrice.model_dump() == pytest.approx(law.model_dump())


@pytest.mark.parametrize(("found", "times"), [(0.1, 0.5), (99.0, 4.0)])
def test_a_disturbed_machine_still_makes_a_profile_that_can_be_read(
    tmp_path: Path, profile: Cluster, found: float, times: float
) -> None:
    law = mean_of([[Taken(found, found)], [Taken(found, found / 99.0)]])
    assert law.times == times
    assert law.uncertainty == 1.0
    file = tmp_path / "profile.yaml"
    file.write_text(dump_cluster(profile.model_copy(update={"in_runs": law}), ""))
    read = load_cluster(str(file)).in_runs
    assert read is not None
    assert read.model_dump() == pytest.approx(law.model_dump())


def speed(overall: float) -> MachineSpeed:
    return MachineSpeed(**dict.fromkeys(MachineSpeed.model_fields, overall))


@pytest.mark.parametrize(
    ("readings", "shorter"),
    [((1.0, 2.0), sqrt(2.0)), ((1.5, None), 1.0), ((None, 1.5), 1.0), ((None, None), 1.0)],
)
@pytest.mark.parametrize(("cores", "loops"), [(2, [1, 2]), (1, [1, 1]), (12, [1, 8])])
def test_runs_are_held_against_windows_of_their_load(
    profile: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    cores: int,
    loops: list[int],
    readings: tuple[float | None, float | None],
    shorter: float,
) -> None:
    """A run of one loop against windows beside idle cores, others against windows of busy ones; and
    a machine that is twice as fast after the runs as before the windows has changed nothing. Nor
    has a reading that failed."""
    made: list[int] = []
    fast = iter([None if overall is None else speed(overall) for overall in readings])

    def taken(run: Experiment) -> float:
        made.append(run.roles.trainers)
        assert run.training.batch_size == TALKS[own_runs._QUICK[0]].batch
        return {1: 1.5, 2: 4.0, 8: 8.0}[run.roles.trainers] / shorter

    entry = MeasuredOperation.model_construct(seconds=2.0, alone=1.0)
    monkeypatch.setattr(own_runs, "_pass_seconds", taken)
    monkeypatch.setattr(own_runs, "_in_a_row", lambda *_, **__: entry)
    monkeypatch.setattr(own_runs, "short_reading", lambda: next(fast))
    host = profile.hosts["default"].model_copy(update={"cores": cores})
    cluster = profile.model_copy(update={"hosts": {"default": host}})
    law = with_in_runs(cluster, lambda: None, quick=True).in_runs
    assert law is not None
    assert made == loops
    busy = {1: 0.75, 2: 2.0, 8: 4.0}[loops[1]]
    assert law.times == pytest.approx(sqrt(1.5 * busy))
    assert law.uncertainty > UNSEEN  # what it sees, and what it is too short to see
