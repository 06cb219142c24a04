from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.results import rundir
from recsim_train.results.rundir import find_complete, read_run, run_document
from recsim_train.trace.facts import (
    Busiest,
    Compressed,
    Emulated,
    Facts,
    HostFailure,
    OverTime,
    PayloadSpread,
    ProcessMemory,
    Reliability,
)
from recsim_train.trace.record import Total, TotalKey
from tests.at_work import rate_of_run


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_what_is_written_is_read_back(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    outcome = factory.outcome(plan, world="real", jitter=0.1)
    record = factory.write(tmp_path, plan, "real", found=outcome)
    again = read_run(record.path)
    assert again.manifest == record.manifest
    assert again.totals() == outcome.totals
    assert sorted(again.spans()) == sorted(outcome.spans)
    key = lambda i: (i.loop, i.iteration)  # noqa: E731
    assert again.iterations() == sorted(outcome.iterations, key=key)
    assert again.manifest["configuration"]["training"]["batch_size"] == 128
    assert again.environment["host"] == "node7"


def test_names_say_experiment_strategy_and_world(tmp_path: Path, factory: Any) -> None:
    record = factory.write(tmp_path, factory.plan(name="my test/é"), "simulated")
    assert record.run_id.startswith("my-test-flat_ps-simulated-")
    assert len(record.run_id.rsplit("-", 1)[1]) == 6
    assert record.path == tmp_path / record.run_id


def test_a_simulated_run_is_replaced_by_the_same_bytes(tmp_path: Path, factory: Any) -> None:
    one = factory.write(tmp_path / "a", factory.plan(), "simulated")
    other = factory.write(
        tmp_path / "b", factory.plan(), "simulated", surroundings=factory.environment(host="x")
    )
    assert one.run_id == other.run_id
    assert files(one.path) == files(other.path)
    (one.path / "summary.json").write_text("{}")
    again = factory.write(tmp_path / "a", factory.plan(), "simulated")
    assert files(again.path) == files(other.path)
    assert [p.name for p in (tmp_path / "a").iterdir()] == [one.run_id]


def test_a_simulated_run_holds_no_place_or_time(tmp_path: Path, factory: Any) -> None:
    record = factory.write(tmp_path, factory.plan(), "simulated")
    everything = b"".join(files(record.path).values())
    for word in (str(tmp_path).encode(), b"node7", b"2026-11-21"):
        assert word not in everything
    assert record.environment["command"] == [
        "recsim-train",
        "simulate",
        "experiments/quickstart.yaml",
    ]


def test_a_measurement_is_never_overwritten(tmp_path: Path, factory: Any) -> None:
    runs = [factory.write(tmp_path, factory.plan(), "real") for _ in range(3)]
    base = runs[0].run_id
    assert [r.run_id for r in runs] == [base, f"{base}-2", f"{base}-3"]
    assert [run_document(r)["run_id"] for r in runs] == [r.path.name for r in runs]


def test_settings_seed_and_profile_change_the_name(tmp_path: Path, factory: Any) -> None:
    ids = {
        factory.write(tmp_path, factory.plan(), "simulated").run_id,
        factory.write(tmp_path, factory.plan(seed=2), "simulated").run_id,
        factory.write(tmp_path, factory.plan(training={"batch_size": 64}), "simulated").run_id,
        factory.write(tmp_path, factory.plan(options={"every": 4}), "simulated").run_id,
        factory.write(
            tmp_path, factory.plan(), "simulated", profile=factory.cluster(jitter=0.1)
        ).run_id,
    }
    assert len(ids) == 5


def test_the_document_has_the_fields_of_the_contract(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    simulated = run_document(factory.write(tmp_path, plan, "simulated"))
    real = run_document(factory.write(tmp_path, plan, "real"))
    fields = [
        "run_id",
        "run_dir",
        "world",
        "strategy",
        "examples_per_second",
        "ci95",
        "steps",
        "seconds",
        "bytes_sent",
        "binding",
        "loss",
        "auc",
        "normalized_entropy",
        "status",
        "batch_size",
        "trainers",
        "threads",
        "train_loss_first",
        "train_loss_last",
        "bytes_by_effect",
        "bound_eps",
        "time_by_effect",
        "utilisation",
        "facts",
    ]
    for document in (simulated, real):
        assert set(fields) <= set(document)
        json.dumps(document, allow_nan=False)
    assert simulated["loss"] is simulated["auc"] is simulated["train_loss_first"] is None
    assert real["binding"] is real["bound_eps"] is None
    assert real["train_loss_first"] > real["train_loss_last"]
    assert Path(real["run_dir"]).is_dir()
    assert simulated["world"] == "simulated"
    assert simulated["ci95"][0] <= simulated["examples_per_second"] <= simulated["ci95"][1]
    training = plan.experiment.training
    by_hand = rate_of_run(Path(simulated["run_dir"]), training.warmup_steps, training.batch_size)
    assert simulated["examples_per_second"] == pytest.approx(by_hand)


def test_bytes_fold_the_servers_side_into_the_effect(tmp_path: Path, factory: Any) -> None:
    document = run_document(factory.write(tmp_path, factory.plan(), "simulated"))
    loops = 4
    assert document["bytes_by_effect"] == {
        "lookup": loops * (2048 + 8192),
        "pull": loops * 4000,
        "push": loops * 4000,
        "update": loops * 8192,
    }
    assert document["bytes_sent"] == 60 * sum(document["bytes_by_effect"].values())


def test_times_of_effects_sum_to_the_iteration(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    outcome = factory.outcome(plan, world="real", jitter=0.3)
    document = run_document(factory.write(tmp_path, plan, "real", found=outcome))
    counted = [i for i in outcome.iterations if i.iteration >= 5]
    mean = sum(i.end - i.start for i in counted) / len(counted)
    assert math.fsum(document["time_by_effect"].values()) == pytest.approx(mean, rel=1e-12)
    assert document["time_by_effect"]["other"] == pytest.approx(5e-5, rel=1e-6)
    assert math.fsum(document["time_by_operation"].values()) == pytest.approx(mean, rel=1e-12)
    assert "compute forward_backward" in document["time_by_operation"]


def test_times_leave_out_servers_and_background_loops(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    outcome = factory.outcome(plan)
    outcome.totals[TotalKey("trainer[0]", "shadow[0]", "all_reduce", "x")] = Total(9, 100.0, 7)
    document = run_document(factory.write(tmp_path, plan, "simulated", found=outcome))
    assert "all_reduce" not in document["time_by_effect"]
    assert document["time_by_effect"]["lookup"] == pytest.approx(3.1e-3)
    assert document["bytes_by_effect"]["all_reduce"] == pytest.approx(7 / 60)


def test_nan_becomes_null(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    outcome = factory.outcome(plan, world="real")
    outcome.auc = float("nan")
    outcome.facts = Facts(
        wall_seconds=float("inf"),
        payload_spread=PayloadSpread(float("nan"), True, {}),  # type: ignore[arg-type]
    )
    record = factory.write(tmp_path, plan, "real", found=outcome)
    assert record.summary.auc is None
    assert record.facts == Facts(payload_spread=PayloadSpread(None, True, {}))
    facts = run_document(record)["facts"]
    assert facts == {"payload_spread": {"steps": None, "exact": True, "effects": {}}}
    assert json.loads((record.path / "summary.json").read_text())["facts"]["wall_seconds"] is None
    assert "NaN" not in (record.path / "summary.json").read_text()


def test_an_interrupted_run_is_kept_and_not_resumed_from(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    outcome = factory.outcome(plan, world="real", steps=20)
    record = factory.write(
        tmp_path, plan, "real", found=outcome, status="partial", message="trainer[1] was killed"
    )
    assert (record.status, record.summary.steps) == ("partial", 20)
    assert run_document(record)["message"] == "trainer[1] was killed"
    assert find_complete(tmp_path, plan, "real", factory.cluster()) is None


def test_a_run_without_any_iteration_can_be_written(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    outcome = factory.outcome(plan, world="real", steps=0)
    outcome.iterations.clear()
    record = factory.write(tmp_path, plan, "real", found=outcome, status="partial")
    assert record.summary.examples_per_second is None
    assert record.summary.time_by_effect == {}
    assert record.iterations() == []


def test_find_complete_takes_the_newest_of_the_same_settings(tmp_path: Path, factory: Any) -> None:
    plan, cluster = factory.plan(), factory.cluster()
    assert find_complete(tmp_path / "absent", plan, "real", cluster) is None
    factory.write(tmp_path, plan, "real")
    second = factory.write(tmp_path, plan, "real")
    factory.write(tmp_path, factory.plan(seed=9), "real")
    found = find_complete(tmp_path, plan, "real", cluster)
    assert found is not None
    assert found.run_id == second.run_id
    (second.path / "summary.json").write_text("half")
    found = find_complete(tmp_path, plan, "real", cluster)
    assert found is not None
    assert found.run_id == second.run_id.removesuffix("-2")
    assert find_complete(tmp_path, plan, "simulated", cluster) is None
    assert find_complete(tmp_path, factory.plan(options={"every": 2}), "real", cluster) is None


def test_find_complete_takes_no_run_of_other_code_and_says_so(
    tmp_path: Path, factory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, cluster = factory.plan(), factory.cluster()
    said: list[str] = []

    def found() -> str | None:
        said.clear()
        record = find_complete(tmp_path, plan, "real", cluster, say=said.append)
        return None if record is None else record.run_id

    ours = factory.write(tmp_path, plan, "real").run_id
    monkeypatch.setattr(rundir, "code_of", lambda _: "fedcba987654")
    assert found() is None
    (sentence,) = said
    assert str(tmp_path / ours) in sentence
    assert "fedcba987654" in sentence
    assert "made anew" in sentence
    theirs = factory.write(tmp_path, plan, "real").run_id
    assert (found(), said) == (theirs, [])
    monkeypatch.undo()
    assert (found(), said) == (ours, [])  # the newest is other code's
    # an older version did not say which code it was
    path = tmp_path / ours / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["code"]
    path.write_text(json.dumps(manifest))
    assert found() is None
    assert said[0].startswith(f"note: {tmp_path / theirs}: made by other code (fedcba987654; now")


def put_nan(path: Path, number: str) -> None:
    """As another program, or a disk, may leave it: a figure that is none."""
    text = path.read_text(encoding="utf-8")
    key = '"seconds_per_iteration": '
    before, after = text.split(key)
    path.write_text(before + key + number + after[after.index(",") :], encoding="utf-8")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (shutil.rmtree, "there is no such run directory"),
        (lambda d: (shutil.rmtree(d), d.write_text("x")), "is a file"),
        (lambda d: (d / "manifest.json").unlink(), "is not a run directory: it has no manifest"),
        (lambda d: (d / "manifest.json").write_text("{"), "manifest.json cannot be read"),
        (lambda d: (d / "manifest.json").write_text("[]"), "manifest.json is not a mapping"),
        (lambda d: (d / "manifest.json").write_text('{"name": "web app"}'), "another's"),
        (lambda d: (d / "summary.json").unlink(), "summary.json is missing"),
        (lambda d: (d / "summary.json").write_text("{}"), "summary.json lacks"),
        (lambda d: (d / "summary.json").write_bytes(b"\xff\xfe"), "summary.json cannot be read"),
        (lambda d: put_nan(d / "summary.json", "NaN"), "summary.json holds NaN, which is no num"),
        (lambda d: put_nan(d / "summary.json", "1e999"), "summary.json holds 1e999, which is no"),
        (lambda d: put_nan(d / "summary.json", "-Infinity"), "summary.json holds -Infinity, whi"),
        (lambda d: (d / "environment.json").unlink(), "environment.json is missing"),
        (lambda d: (d / "spans.parquet").unlink(), "spans.parquet is absent or damaged"),
        (lambda d: (d / "totals.parquet").write_bytes(b"PAR1"), "totals.parquet is absent or dam"),
        (
            lambda d: shutil.copy(d / "spans.parquet", d / "totals.parquet"),
            "totals.parquet does not hold the columns",
        ),
    ],
)
def test_damage_is_said_in_one_sentence(
    tmp_path: Path, factory: Any, damage: Any, sentence: str
) -> None:
    path = factory.write(tmp_path, factory.plan(), "real").path
    damage(path)
    with pytest.raises(UserError, match=sentence) as error:
        read_run(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def changed(path: Path, **facts: Any) -> Path:
    """A run directory whose facts are not as they were written."""
    file = path / "summary.json"
    summary = json.loads(file.read_text())
    file.write_text(json.dumps({**summary, "facts": {**summary["facts"], **facts}}))
    return path


def test_facts_are_written_and_read_as_they_are(tmp_path: Path, factory: Any) -> None:
    outcome = factory.outcome(factory.plan())
    outcome.facts = facts = Facts(
        warnings=("a sentence",),
        servers_needed={},
        reliability=Reliability("stop", 1, (HostFailure("trainer[0]", 0.5, 2.0),), 0, 1.5, 64.0,
                                None),
        memory={"trainer[0]": ProcessMemory(3.0, available=9.0, process=2.0, dense=1.0)},
        over_time=OverTime(0.0, (1.0,), {"cores": (0.5,)}, {"cores": Busiest("a.cores", (0.5,))}),
        calibration_ci95=(90.0, 110.0),
    )  # fmt: skip
    record = factory.write(tmp_path, factory.plan(), "simulated", found=outcome)
    assert record.facts == facts
    # what a world does not say is absent, what it knows to be nothing is null or empty
    failures = {"failures": 1, "first_failures": [{"host": "trainer[0]", "at": 0.5, "back": 2.0}]}
    assert json.loads((record.path / "summary.json").read_text())["facts"] == {
        "warnings": ["a sentence"],
        "servers_needed": {},
        "reliability": {
            "policy": "stop", **failures, "checkpoints": 0, "standstill_seconds": 1.5,
            "lost_examples": 64.0, "goodput": None,
        },
        "memory": {"trainer[0]": {"bytes": 3.0, "available": 9.0, "process": 2.0, "dense": 1.0}},
        "over_time": {
            "start": 0.0, "seconds": [1.0], "busy": {"cores": [0.5]},
            "busiest": {"cores": {"resource": "a.cores", "busy": [0.5]}},
        },
        "calibration_ci95": [90.0, 110.0],
    }  # fmt: skip


def test_facts_of_an_older_or_newer_version_are_read_where_they_can_be(
    tmp_path: Path, factory: Any
) -> None:
    path = factory.write(tmp_path, factory.plan(), "real").path
    sizes = {"values": 10, "kept": 5, "dense_bytes": 40, "sent_bytes": 40}
    ratios = {"value_compression": 2.0, "wire_compression": 1.0}
    # older runs have no density, and nothing is known of what a later one may add
    found = read_run(changed(path, compression={"gradients": sizes | ratios}, mood="good"))
    assert found.facts.compression == {"gradients": Compressed(**sizes, **ratios)}


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"cache": {"slots": [5], "probed": 9}}, "summary.json lacks 'facts.cache.missed'"),
        ({"events": "many"}, "summary.json holds no usable 'facts.events': input should be a v"),
        ({"memory": [1]}, "summary.json holds no usable 'facts.memory'"),
    ],
)
def test_facts_that_cannot_be_read_are_refused(
    tmp_path: Path, factory: Any, facts: dict[str, Any], sentence: str
) -> None:
    path = changed(factory.write(tmp_path, factory.plan(), "real").path, **facts)
    with pytest.raises(UserError, match="damaged run directory, or another version's") as error:
        read_run(path)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_another_format_is_refused(tmp_path: Path, factory: Any) -> None:
    path = factory.write(tmp_path, factory.plan(), "real").path
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | {"format": 99}))
    with pytest.raises(UserError, match="format 99, this version reads 1"):
        read_run(path)


@pytest.mark.parametrize("world", ["simulated", "real"])
def test_a_full_disk_leaves_nothing_half_written(
    tmp_path: Path, factory: Any, monkeypatch: pytest.MonkeyPatch, world: str
) -> None:
    before = factory.write(tmp_path, factory.plan(), "simulated")
    kept = files(before.path)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rundir.tables, "write_tables", full)
    with pytest.raises(RunFailed, match="could not be written: No space left on device"):
        factory.write(tmp_path, factory.plan(), world)
    assert [p.name for p in tmp_path.iterdir()] == [before.run_id]
    assert files(before.path) == kept


def test_effects_whose_bytes_depend_on_the_data(factory: Any) -> None:
    from recsim_train.config.experiment import Model, Table
    from recsim_train.results.summary import data_dependent

    assert data_dependent(factory.plan()) == []
    assert data_dependent(factory.plan(options={"pooling": "worker"})) == ["lookup", "update"]
    base = factory.experiment().model
    variable = Model(**base.model_dump() | {"tables": (Table(rows=500, ids=4, variable=True),) * 3})
    assert data_dependent(factory.plan(model=variable)) == ["lookup"]
    assert data_dependent(factory.plan(model=variable, roles={"readers": 1})) == [
        "lookup",
        "next_batch",
    ]


def test_commands_are_kept_without_folders(monkeypatch: Any, tmp_path: Path) -> None:
    from recsim_train.results.environment import repeatable

    monkeypatch.chdir(tmp_path)
    command = ["recsim-train", "run", str(tmp_path / "e.yaml"), "--out", "x", "--out=y", "--json"]
    assert repeatable(command) == ["recsim-train", "run", "e.yaml"]
    assert repeatable(["--set", "data.path=/far/away/train.txt", "--seed", "3"]) == [
        "--set",
        "data.path=train.txt",
        "--seed",
        "3",
    ]


def test_the_environment_names_machine_versions_and_load() -> None:
    from recsim_train.results.environment import machine

    found = machine()
    for key in ("date", "machine", "cpu", "cores", "memory_bytes", "load", "versions"):
        assert found[key] not in (None, "", {})
    assert set(found["versions"]) >= {"python", "torch", "recsim-train"}  # type: ignore[call-overload]


def test_a_run_on_emulated_hosts_is_no_other_one(tmp_path: Path, factory: Any) -> None:
    plan, cluster = factory.plan(), factory.cluster()
    outcome = factory.outcome(plan, world="real")
    outcome.facts.emulated = Emulated({}, "fifo", {}, {}, 0)
    emulated = factory.write(tmp_path, plan, "real", found=outcome)
    assert find_complete(tmp_path, plan, "real", cluster) is None
    plain = factory.write(tmp_path, plan, "real")
    for wanted, on_hosts in ((plain, False), (emulated, True)):
        found = find_complete(tmp_path, plan, "real", cluster, emulated=on_hosts)
        assert found is not None
        assert found.run_id == wanted.run_id
