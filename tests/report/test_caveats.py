from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recsim_train.calibration.grid import GRID, ranges
from recsim_train.config.experiment import Table
from recsim_train.report.caveats import caveats, doubts_of, elsewhere, noisy, of_prediction
from recsim_train.report.write import report_on
from recsim_train.results.environment import same_machine
from recsim_train.trace.facts import Emulated, Facts, Slept
from recsim_train.trace.ledger import Ledger, MachineUse


def pair(factory: Any, out: Path, **changes: Any) -> tuple[Any, Any]:
    plan = changes.get("plan") or factory.plan()
    real_plan = changes.get("real_plan") or plan
    outcome = factory.outcome(real_plan, world="real")
    outcome.facts = Facts(**changes.get("facts", {}))
    simulated = factory.write(out, plan, "simulated", profile=changes.get("profile"))
    real = factory.write(
        out, real_plan, "real", found=outcome, surroundings=changes.get("surroundings")
    )
    return simulated, real


def doubts(simulated: Any, real: Any) -> list[str]:
    return caveats(simulated, [real])


def test_several_busy_measurements_are_one_sentence(tmp_path: Path, factory: Any) -> None:
    runs = []
    for number, load in enumerate((0.1, 2.5, 3.5)):
        surroundings = factory.environment(load=load)
        runs.append(pair(factory, tmp_path / str(number), surroundings=surroundings))
    (found,) = caveats(runs[0][0], [real for _, real in runs])
    assert "busy when 2 of 3 measurements began: load up to 3.5 on 4 cores" in found


def test_a_clean_pair_has_no_caveat(tmp_path: Path, factory: Any) -> None:
    assert doubts(*pair(factory, tmp_path)) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("seed", "The seeds differ: 1 predicted, 2 measured."),
        ("machine", "describes another machine (Testium 9000, 4 cores) than the one measured (X 1"),
        ("uncalibrated", "was not calibrated: its prices are assumptions"),
        ("range", "training.batch_size = 4096 lies outside the calibrated range 32 to 1024"),
        ("load", "The machine was busy when quickstart-flat_ps-real"),
        ("epochs", "went through its data more than once (epoch 3)"),
        ("torch", "calibrated with torch 2.13.0, the run used torch 2.6.0"),
        (
            "malformed",
            "Malformed rows of the data were replaced by others of their batch (12 bad label).",
        ),
        ("stated", "the queue overflowed"),
        ("placed", "The embedding shards were placed differently"),
    ],
)
def test_each_reason_to_doubt_is_said(
    tmp_path: Path, factory: Any, name: str, expected: str
) -> None:
    changes: dict[str, Any] = {
        "seed": {"real_plan": factory.plan(seed=2)},
        "machine": {"surroundings": factory.environment(machine="X 1, 4 cores", cpu="X 1")},
        "uncalibrated": {"profile": factory.cluster(calibration=None)},
        "range": {"plan": factory.plan(training={"batch_size": 4096})},
        "load": {"surroundings": factory.environment(load=2.5)},
        "epochs": {"facts": {"epochs": 2.5}},
        "torch": {"surroundings": factory.environment(versions={"torch": "2.6.0"})},
        "malformed": {"facts": {"malformed_rows": {"bad label": 12, "too short": 0}}},
        "stated": {"facts": {"warnings": ("the queue overflowed",)}},
        "placed": {"real_plan": factory.plan(roles={"embedding_servers": 1})},
    }[name]
    found = doubts(*pair(factory, tmp_path, **changes))
    assert [w for w in found if expected in w], found
    assert len(found) == 1 or name == "placed"


def test_that_the_machine_disturbed_emulated_hosts_is_said(tmp_path: Path, factory: Any) -> None:
    quiet = {
        "emulated": Emulated({"trainer[0]": 1e6}, "fifo", {"trainer[0]": 5}, {"trainer[0]": 9}, 0),
        "ledger": Ledger.of(10.0, 6.0, {}, MachineUse(2, 0.5, 0.1, 0.0)),
        "wall_seconds": 12.0,
    }
    loud = quiet | {"ledger": Ledger.of(10.0, 6.0, {}, MachineUse(2, 0.2, 0.2, 0.8))}
    assert doubts(*pair(factory, tmp_path / "quiet", facts=quiet)) == []
    simulated, real = pair(factory, tmp_path / "loud", facts=loud)
    (said,) = (one for one in doubts(simulated, real) if "emulated hosts" in one)
    assert said.startswith(f"This machine disturbed the emulated hosts of {real.run_id}, whose")
    assert said.endswith("(others: 50% of the cores were taken from it).")
    assert said in doubts_of(real)
    # with compute that slept as it was to, other invariants are asked
    late = quiet | {"slept": {"trainer[0]": Slept(8.0, 8.0, 100, 10)}}
    (said,) = doubts(*pair(factory, tmp_path / "late", facts=late))
    assert "(wake-ups: 10.0% of them came more than a millisecond late)" in said


UNVALIDATED = "measured on emulated hosts only, not on a real cluster"


def test_a_prediction_for_hosts_of_their_own_says_what_was_validated(
    tmp_path: Path, factory: Any
) -> None:
    hosts = factory.cluster(colocate=False)
    (said,) = doubts(*pair(factory, tmp_path / "pair", profile=hosts))
    assert UNVALIDATED in said
    assert "equal fluid shares" in said
    # it needs no measurement beside it: the terminal and the report of predictions alone say so
    record = factory.write(tmp_path / "alone", factory.plan(), "simulated", profile=hosts)
    assert sum(UNVALIDATED in said for said in of_prediction(record)) == 1
    made = report_on([tmp_path / "alone"], tmp_path / "report", None)
    assert made.findings.comparisons == ()
    for name in ("report.html", "summary.md"):
        assert UNVALIDATED in (tmp_path / "report" / name).read_text()
    # a measurement is of the machines as they are, and one shared machine was validated
    for name, world, profile in (("real", "real", hosts), ("one", "simulated", None)):
        given = {} if profile is None else {"profile": profile}
        record = factory.write(tmp_path / name, factory.plan(), world, **given)
        assert not any(UNVALIDATED in said for said in doubts_of(record))


@pytest.mark.parametrize(
    ("model", "key", "value"),
    [
        ({"tables": tuple(Table(rows=9, ids=n) for n in (1, 30, 2, 1))}, "model.ids", 30),
        ({"tables": (Table(rows=9),) * 41}, "model.tables", 41),
        ({"top_mlp": (2048, 1)}, "model.layer_width", 2048),
        ({"bottom_mlp": (8, 8)}, "model.layer_width", 8),
        ({"embedding_dim": 128, "bottom_mlp": (16, 128)}, "model.embedding_dim", 128),
    ],
)
def test_each_range_of_calibration_is_looked_at(
    tmp_path: Path, factory: Any, model: dict[str, Any], key: str, value: int
) -> None:
    given = factory.experiment().model
    inside = given.model_copy(update={"tables": (Table(rows=9),) * 4})
    spans = {key: tuple(map(float, limits)) for key, limits in ranges(GRID).items()}
    known = factory.cluster().calibration.model_copy(update={"valid_range": spans})
    profile = factory.cluster(calibration=known)

    def said(name: str, **changes: Any) -> list[str]:
        plan = factory.plan(model=inside.model_copy(update=changes))
        out = tmp_path / name
        return of_prediction(factory.write(out, plan, "simulated", profile=profile))

    assert said("inside") == []
    (found,) = said("outside", **model)
    assert f"{key} = {value} lies outside the calibrated range" in found


def test_a_profile_of_elsewhere_is_said_to_whoever_predicts(factory: Any) -> None:
    cluster = factory.cluster().model_dump(mode="json")
    here = factory.environment()
    assert list(elsewhere(cluster, here)) == []
    other = factory.environment(machine="X 1, 4 cores", cpu="X 1", versions={"torch": "2.6.0"})
    machine, torch = elsewhere(cluster, other)
    assert "another machine (Testium 9000, 4 cores) than this one (X 1, 4 cores)" in machine
    assert "calibrated with torch 2.13.0, here torch 2.6.0 is installed" in torch
    assert list(elsewhere({**cluster, "calibration": None}, other)) == []


def test_machines_are_told_apart_by_processor_and_cores(factory: Any) -> None:
    here = factory.environment()
    assert same_machine("Testium 9000, 4 cores", here)
    assert same_machine("testium 9000, 4 cores (node3)", here)
    assert not same_machine("Testium 9000, 8 cores", here)
    assert not same_machine("Other, 4 cores", here)
    assert not same_machine("", here)


def test_a_noisy_measurement_asks_for_repeats() -> None:
    assert list(noisy(0.05, 1)) == []
    assert list(noisy(None, 1)) == []
    assert list(noisy(0.2, 1)) == ["The measurement spreads by ± 20.0 %: repeat the run."]
