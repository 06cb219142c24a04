"""The real thing on a few settings: processes are started, measured, ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recsim_train.calibration.child import MeasuringProcess
from recsim_train.calibration.measuring import OWN, Stages, measure_keeping, seconds_of
from recsim_train.calibration.profile import UNSEEN, calibrate_machine
from recsim_train.config.cluster import THREAD_CLASSES, CheckpointPrices, Costs
from recsim_train.config.dump import dump_cluster
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.profiles import load_cluster
from tests.clock import LIMIT, by_the_clock, tried_anew


@pytest.mark.slow
def test_a_short_calibration_gives_a_whole_profile(tmp_path: Path) -> None:
    told: list[tuple[float, float, str]] = []
    seconds = seconds_of(quick=True)
    cluster = calibrate_machine(
        name="here",
        command=["recsim-train", "calibrate"],
        stages=Stages(
            seconds, lambda done, total, stage="", _="": told.append((done, total, stage))
        ),
        quick=True,
    )
    target = tmp_path / "here.yaml"
    target.write_text(dump_cluster(cluster), encoding="utf-8")
    loaded = load_cluster(str(target))
    assert loaded.colocate
    loopback, network = loaded.network.loopback, loaded.network
    assert loopback is not None
    assert (loopback.latency, loopback.connection_cap) == (network.latency, network.connection_cap)
    assert loopback.nic == loaded.hosts["default"].nic
    with pytest.raises(UserError, match=r"network.latency, .*hosts.default.nic are still what"):
        load_cluster(str(target), None, ["cluster.colocate=false"])
    assert loaded.hosts["default"].cores == len(os.sched_getaffinity(0))
    assert loaded.hosts["default"].memory > 1e8
    assert 1e7 < loaded.hosts["default"].nic < 1e12
    assert 0.05 <= loaded.contention <= 1.0
    assert loaded.threads.measured == loaded.hosts["default"].cores
    for name in THREAD_CLASSES:
        law = loaded.threads.of(name)
        assert 0.0 <= law.overhead <= law.serial <= 1.0, name
        assert 0.0 < law.uncertainty <= 1.0, name
    for name in Costs.model_fields:
        price = getattr(loaded.costs, name)
        assert 0.0 <= price.value < 1e-2, name
        assert 0.0 < price.uncertainty <= 1.0, name
    kept = loaded.checkpoints
    assert kept is not None
    for name in CheckpointPrices.model_fields:
        assert 0.0 < getattr(kept, name).uncertainty <= 1.0, name
    assert 0.1 < kept.start.value < 100.0
    # what no machine of today does: a flop per femtosecond, a message in a microsecond
    assert 1e-13 < loaded.costs.gemm_flop.value < 1e-8
    assert loaded.costs.message.value > 1e-6
    assert loaded.costs.read_text.value > 1e-9
    calibration = loaded.calibration
    assert calibration is not None
    assert calibration.command == "recsim-train calibrate"
    assert calibration.versions["torch"]
    assert calibration.seconds > 1.0
    speeds = calibration.machine_speed
    assert speeds is not None
    assert speeds.before is not None
    assert speeds.after is not None
    assert speeds.before != speeds.after
    assert 0.01 < (speeds.idle or 0.0) < 100
    assert "held out" in calibration.residuals
    assert calibration.valid_range["training.batch_size"] == (32, 384)
    assert calibration.unseen == UNSEEN
    # nobody was asked what its own runs miss; all else that there is to do was counted
    assert list(dict.fromkeys(stage for *_, stage in told)) == [s for s in seconds if s != OWN]
    assert told[-1][:2] == pytest.approx((sum(seconds.values()) - seconds[OWN], told[0][1]))
    assert {"reading", "collectives in runs"} <= set(calibration.residuals)
    assert [done for done, *_ in told] == sorted(done for done, *_ in told)


@tried_anew()
def test_what_a_checkpoint_takes_is_plausible(tmp_path: Path) -> None:
    seen = measure_keeping(tmp_path, quick=True)
    assert {*seen, "start"} == set(CheckpointPrices.model_fields)
    # from 100 GB in a second to 10 MB; a disk may have taken what it is given in no time
    for name, values in seen.items():
        least = 0.0 if name == "disk_byte" else 1e-11
        assert all(least <= value < 1e-7 for value in values), name
    assert len(list(tmp_path.glob("process.*.safetensors"))) > 0


def test_what_goes_wrong_in_a_measuring_process_is_one_sentence() -> None:
    with (
        MeasuringProcess("operations", {"folder": "/dev/null/place"}, 60.0) as child,
        pytest.raises(RunFailed, match="calibration: measuring operations failed"),
    ):
        child.hear()


@tried_anew()
def test_a_part_that_takes_too_long_is_given_up() -> None:
    begin = time.monotonic()
    with (
        MeasuringProcess("busy", {}, 0.3) as child,
        pytest.raises(RunFailed, match="did not end within 0 s"),
    ):
        child.hear()
    with by_the_clock():
        assert time.monotonic() - begin < 10


def test_calling_it_needs_no_torch() -> None:
    script = "import sys; import recsim_train.calibration.profile; sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", script], timeout=LIMIT, check=False).returncode == 0
    )
