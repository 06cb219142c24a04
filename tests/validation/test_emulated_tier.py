"""The tier of emulated clusters: regimes, invariants, what tells its configurations apart."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import recsim_train
from recsim_train.config.experiment import Validation
from recsim_train.executor.emulation import capacity
from recsim_train.results.row import Row
from recsim_train.results.summary import Summary, summarise
from recsim_train.results.undisturbed import broken
from recsim_train.trace.facts import Emulated, Facts, Slept
from recsim_train.trace.ledger import Ledger, MachineUse
from recsim_train.validation.configurations import emulated_regime as regime
from recsim_train.validation.configurations import key_of, label_of
from recsim_train.validation.fidelity import sound
from recsim_train.validation.folder import ValidationFolder
from recsim_train.validation.page import write
from tests.commands import command, started
from tests.executor.test_emulation import refused

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
BASE = (Path(__file__).parents[2] / "tests" / "frozen-2core.yaml").resolve()


@pytest.mark.parametrize(
    ("bounds", "sent", "expected"),
    [
        ({"embedding_server[0].nic.tx": 10.0, "trainer[0].nic.rx": 20.0}, {}, "server NIC"),
        ({"embedding_server[0].nic.tx": 10.0, "trainer[0].nic.rx": 11.0}, {}, "mixed"),
        # of one class the tightest counts, however near the next of the class is
        ({"trainer[0].nic.rx": 10.0, "trainer[1].nic.tx": 10.1}, {}, "trainer NIC"),
        ({"rack[0].up": 5.0, "trainer[0].nic.rx": 20.0}, {}, "uplink"),
        ({"trainer[0].nic.rx": 10.0}, {"all_reduce": 3.0, "lookup": 2.0}, "collective"),
        ({"trainer[0].nic.rx": 10.0}, {"all_reduce": 1.0, "lookup": 2.0}, "trainer NIC"),
        ({"trainer[0].cores": 3.0, "trainer[0].nic.rx": 10.0}, {}, "trainer cores"),
        ({"dense_server[0].interpreter": 3.0, "trainer[0].nic.rx": 9.0}, {}, "server cores"),
        ({"loops": 1.0, "trainer[0].nic.rx": 9.0}, {}, "trainer NIC"),
    ],
)
def test_regimes(bounds: dict[str, float], sent: dict[str, float], expected: str) -> None:
    sizes: dict[str, float | None] = {**sent}
    row = Row(bounds=bounds, bytes_by_effect=sizes, time_by_effect={"lookup": 1.0})
    assert regime(row) == expected


def test_loops_that_mostly_compute_are_bound_by_trainers() -> None:
    times = {"compute": 3.0, "lookup": 2.0}
    row = Row(bounds={"loops": 1.0}, bytes_by_effect={}, time_by_effect=times)
    assert regime(row) == "trainer cores"


SOUND = Facts(
    ledger=Ledger.of(
        10.0, 6.0, {("trainer", "transport", "loop"): 0.8}, MachineUse(2, 0.6, 0.2, 0.0)
    ),
    emulated=Emulated({"trainer[0]": 1000.0}, "fifo", {"trainer[0]": 5}, {"trainer[0]": 9000}, 0),
    slept={"trainer[0]": Slept(8.0, 8.1, 1000, 10), "dense_server[0]": Slept(0.1, 0.5, 9, 0)},
    core_waits={"trainer[0]": 0.3},
    cpu_seconds={"trainer[0]": 1.0},
    wall_seconds=12.0,
)


def with_facts(factory: ModuleType, **changes: Any) -> Summary:
    plan = factory.plan()
    found = summarise(plan, outcome=factory.outcome(plan, world="real"), world="real", status="")
    return replace(found, facts=replace(SOUND, **changes))


def test_a_sound_run_breaks_nothing(factory: ModuleType) -> None:
    assert not list(broken(with_facts(factory), modelled=True))
    assert not list(broken(with_facts(factory), modelled=False))


@pytest.mark.parametrize(
    ("changes", "modelled", "name"),
    [
        ({"slept": {"trainer[0]": Slept(8.0, 8.6, 1000, 10)}}, True, "sleep"),
        ({"slept": {"trainer[0]": Slept(8.0, 7.4, 1000, 10)}}, True, "sleep"),
        ({"slept": {"a": Slept(40.0, 40.6, 90, 0), "b": Slept(0.1, 0.7, 1000, 10)}}, True, "sleep"),
        ({"slept": {"a": Slept(9.0, 9.0, 90, 6), "b": Slept(9.0, 9.0, 10, 0)}}, True, "wake-ups"),
        ({"slept": {}}, True, "sleep"),
        ({"core_waits": {"trainer[0]": 0.6, "dense_server[0]": 0.1}}, False, "waits"),
        ({"emulated": replace(SOUND.emulated, sent={"trainer[0]": 12_500})}, True, "rate"),  # type: ignore[type-var]
        ({"emulated": None}, False, "emulated"),
    ],
)
def test_an_invariant_that_is_broken_is_named(
    factory: ModuleType, changes: dict[str, Any], modelled: bool, name: str
) -> None:
    (said,) = broken(with_facts(factory, **changes), modelled=modelled)
    assert said.startswith(f"{name}: ")


def test_the_process_that_is_most_off_is_named_whichever_way(factory: ModuleType) -> None:
    slept = {"a": Slept(8.0, 8.6, 90, 0), "b": Slept(8.0, 6.8, 90, 0), "c": Slept(8.0, 8.7, 90, 0)}
    (said,) = broken(with_facts(factory, slept=slept), modelled=True)
    assert said == "sleep: b's operations took -12.0% of the time more than asked"


def test_a_link_carries_its_rate_for_the_whole_run(factory: ModuleType) -> None:
    """Not only in the window, which is shorter."""
    busy = replace(SOUND.emulated, sent={"trainer[0]": 12_200})  # type: ignore[type-var]
    assert not list(broken(with_facts(factory, emulated=busy), modelled=True))


@pytest.mark.parametrize("modelled", [True, False])
@pytest.mark.parametrize(("others", "steal"), [(0.6, 0.0), (0.1, 0.5), (0.3, 0.3)])
def test_nobody_else_may_have_the_cores(
    factory: ModuleType, others: float, steal: float, *, modelled: bool
) -> None:
    taken = replace(SOUND.ledger, machine=MachineUse(2, 0.3, others, steal))  # type: ignore[type-var]
    (said,) = broken(with_facts(factory, ledger=taken), modelled=modelled)
    assert said == "others: 30% of the cores were taken from it"


def test_cores_must_be_idle_and_messages_cheap(factory: ModuleType) -> None:
    busy = Ledger.of(10.0, 6.0, {}, MachineUse(2, 1.2, 0.3, 0.1))
    (said,) = broken(with_facts(factory, ledger=busy), modelled=False)
    assert said == "idle: 20% of the cores were"
    lines = {("trainer", what, "loop"): 0.6 for what in ("transport", "asking")}
    dear = Ledger.of(10.0, 6.0, lines, MachineUse(2, 0.6, 0.2, 0.0))
    (said,) = broken(with_facts(factory, ledger=dear), modelled=True)
    assert said == "messages: their CPU time is 12.0% of a process's"
    # of two trainers it is half as much of each
    two = with_facts(factory, ledger=dear, cpu_seconds={"trainer[0]": 1.0, "trainer[1]": 1.0})
    assert not list(broken(two, modelled=True))
    # it counts where it is most, whatever other roles have
    cpu = {"dense_server[0]": 1.0, "trainer[0]": 1.0, "embedding_server[0]": 1.0}
    (said,) = broken(with_facts(factory, ledger=dear, cpu_seconds=cpu), modelled=True)
    assert said == "messages: their CPU time is 12.0% of a process's"


@pytest.mark.parametrize(
    ("name", "figure", "holds"),
    [
        ("clusters-2026-11-28b", "19 of 104", True),
        ("clusters-further-2026-11-28b", "10 of 24", False),
        ("clusters-further-2026-11-28c", "6 of 28", False),
    ],
)
def test_runs_that_were_never_made_are_not_among_those_that_a_fifth_is_of(
    name: str, figure: str, *, holds: bool, tmp_path: Path
) -> None:
    kept = json.loads((RESULTS / name / "validation.json").read_text(encoding="utf-8"))
    folder = ValidationFolder(tmp_path, kept, kept["predictions_sha256"])
    folder.runs = {(run["repeat"], run["number"]): run for run in kept["runs"]}
    made = write(folder, Validation.model_validate({"tier": "emulated"}))
    (gate,) = made.gates
    assert (gate.name, gate.figure, gate.holds) == ("sound", figure, holds)
    # and the result file tells the errors of all that were made
    written = json.loads((tmp_path / "validation.json").read_text(encoding="utf-8"))
    assert written["summary"]["with_dropped"]["count"] == int(figure.rsplit(maxsplit=1)[-1])
    dropped = int(figure.split(maxsplit=1)[0])
    assert written["summary"]["raw"]["count"] == int(figure.rsplit(maxsplit=1)[-1]) - dropped
    assert sum(row["dropped"] for row in written["rows"]) == dropped


def test_more_than_a_fifth_that_break_one_fail_it() -> None:
    assert sound(10, 2).holds
    assert not sound(10, 3).holds
    assert not sound(0, 0).holds


POINTS = f"""
name: links
model: {{embedding_dim: 8, bottom_mlp: [8], top_mlp: [8, 1], tables: {{count: 8, rows: 500}}}}
data: {{eval_rows: 0, synthetic: {{rows: 4000}}}}
roles: {{trainers: 1, embedding_servers: 1, dense_servers: 1}}
training: {{batch_size: 64, steps: 12, warmup_steps: 2}}
strategy: flat_ps
validation: {{tier: emulated, repeats: 1, gates: {{configurations: 2}}}}
sweep:
  points:
    - cluster: &mine
        extends: {BASE}
        colocate: false
        hosts: {{default: {{nic: 20 Mbit/s}}}}
        network: {{latency: 30 us, efficiency: 0.9564, connection_cap: null}}
      execution.compute: modelled
    - cluster: *mine
      execution.compute: modelled
      training.batch_size: 128
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "links.yaml"
    found.write_text(POINTS)
    return found


def test_its_configurations_differ_by_cluster_and_compute(path: Path) -> None:
    (one, _) = recsim_train.load(path).jobs()
    (same, _) = recsim_train.load(path, overrides=["training.warmup_steps=2"]).jobs()
    (slower, _) = recsim_train.load(path, overrides=["cluster.network.queue=fair"]).jobs()
    assert key_of(one) == key_of(slower)
    keys = [key_of(job, "emulated") for job in (one, same, slower)]
    assert keys[0] == keys[1] != keys[2]
    said = label_of(slower, "emulated")
    assert said.endswith("3 hosts at 20 Mbit/s, fair, compute modelled")


@pytest.mark.slow
@pytest.mark.skipif(bool(why := refused()), reason=why)
def test_every_point_is_measured_on_its_own_hosts(path: Path) -> None:
    done = started("validate", "links.yaml", "--json", cwd=path.parent)
    found = json.loads(done.stdout)
    runs = found["runs"]
    # beside other tests a run may break an invariant: then it is in no error, and a gate says so
    unsound = [run["key"] for run in runs if run["broken"]]
    assert done.returncode == (3 if unsound else 0), done.stderr
    assert [r["key"] for r in found["rows"] if r["measured"] is None] == sorted(
        unsound, key=[row["key"] for row in found["rows"]].index
    )
    assert {gate["name"] for gate in found["gates"]} == {"configurations", "sound"}
    assert found["profile"]["colocate"] is False
    for run in runs:
        assert run["payload"]["predicted"] == run["payload"]["counted"]
        frames = run["frames"]
        assert frames["counted"] == pytest.approx(frames["predicted"], rel=0.06)
    kept = path.parent / "runs" / "links-validation" / "predictions.json"
    made = json.loads(kept.read_text())
    assert [entry["compute"] for entry in made["predictions"]] == ["modelled"] * 2


def carries(monkeypatch: pytest.MonkeyPatch, mbit: float) -> None:
    here = capacity.Capacity((mbit * 1e6 / 8,) * len(capacity.PAIRS), False)
    monkeypatch.setattr(capacity, "measured_here", lambda: here)


@pytest.mark.slow
@pytest.mark.skipif(bool(why := refused()), reason=why)
def test_a_cluster_that_this_machine_does_not_carry_costs_its_own_figure_only(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faster = "\n      cluster.hosts.default.nic: 50 Mbit/s\n      training.batch_size: 128"
    path.write_text(POINTS.replace("\n      training.batch_size: 128", faster))
    carries(monkeypatch, 100.0)
    done = command("validate", "links.yaml", "--json", cwd=path.parent)
    assert done.returncode == 3, done.stderr  # the gate wants both
    assert "1 of 2 clusters have faster links than this machine carries" in done.stderr
    one, other = sorted(json.loads(done.stdout)["runs"], key=lambda run: run["number"])
    assert one["status"] == "complete"
    assert other["status"] == "failed"
    assert "3 links together would have 150 Mbit/s" in other["message"]


@pytest.mark.skipif(bool(why := refused()), reason=why)
def test_where_no_cluster_is_carried_nothing_starts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carries(monkeypatch, 50.0)
    done = command("validate", "links.yaml", cwd=path.parent)
    assert done.returncode == 2
    assert "carries none of these clusters" in done.stderr
    assert not list(path.parent.glob("runs/*"))
    run = command(
        "run", "links.yaml", "--emulate", "--set", "sweep=null",
        "--set", "cluster.hosts.default.nic=20 Mbit/s", "--set", "cluster.colocate=false",
        cwd=path.parent,
    )  # fmt: skip
    assert run.returncode == 2
    assert "3 links together would have 60 Mbit/s" in run.stderr


def test_one_profile_is_enough_for_processes_of_one_machine(path: Path) -> None:
    done = command("validate", "links.yaml", "--tier", "machine", "--dry-run", cwd=path.parent)
    assert done.returncode == 2
    assert "execution.compute: modelled" in done.stderr
