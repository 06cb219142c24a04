"""A validation from file to files; the runs themselves are made up."""

from __future__ import annotations

import csv
import hashlib
import html
import io
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from math import exp
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from recsim_train import calls
from recsim_train.calibration import speed
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import Gates
from recsim_train.config.measured import MachineSpeed, MachineSpeeds
from recsim_train.config.profiles import load_cluster
from recsim_train.report.runs import left_out
from recsim_train.report.terminal import show
from recsim_train.results.environment import machine_name
from recsim_train.results.folder import newest_first
from recsim_train.results.row import Row
from recsim_train.session.job import Caller, Job
from recsim_train.trace.facts import Diverged
from recsim_train.trace.ledger import share_around
from recsim_train.validation import folder as results
from recsim_train.validation import making as validation
from recsim_train.validation.configurations import row_document, speeds_at_calibration
from recsim_train.validation.fidelity import fidelity, judge
from recsim_train.validation.page import Validated

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "tests" / "frozen-2core.yaml"
EXPERIMENT = """
name: grid
model: tiny
data: {eval_rows: 0, synthetic: {rows: 2000}}
training: {batch_size: 64, threads: 1, steps: 20, warmup_steps: 2}
strategy: flat_ps
sweep:
  grid:
    strategy: [flat_ps, allreduce]
    roles.trainers: [1, 2]
validation:
  repeats: 3
  seed: 5
  gates: {configurations: 4, raw_median: 5 %}
"""


def at(value: float) -> MachineSpeeds:
    speed = MachineSpeed(products=value, gather=value, interpreter=value, loopback=value)
    return MachineSpeeds(before=speed, after=speed)


Fake = Callable[[Job, Path | None, Any], dict[str, Any]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "grid.yaml"
    found.write_text(EXPERIMENT)
    profile = REFERENCE.read_text()
    assert "  machine:" in profile
    (tmp_path / "profile.yaml").write_text(profile)
    return found


class Machine:
    """In place of real runs: as fast as predicted but for ``error``, and counts what is asked."""

    def __init__(self, path: Path, out: Path) -> None:
        self.path, self.out = path, out
        self.made: list[str] = []
        self.error, self.speed = 0.03, 1.0
        self.diverge: set[int] = set()
        """Which of the runs, from 0, do so."""
        self.fail: Callable[[int], BaseException | None] = lambda number: None

    def __call__(self, job: Job, kept: Path | None, keep: Any) -> dict[str, Any]:
        folder = newest_first(self.out / "grid-validation")[0]
        predictions = json.loads((folder / results.PREDICTIONS).read_text())
        (entry,) = [p for p in predictions["predictions"] if p["key"] == validation.key_of(job)]
        # they lie on disk, dated, before the first run begins
        assert datetime.fromisoformat(predictions["made"]) < datetime.fromisoformat(results.now())
        assert job.world == "real"
        if (error := self.fail(len(self.made))) is not None:
            raise error
        self.made.append(entry["key"])
        eps = entry["examples_per_second"] / (1 + self.error)
        lost = len(self.made) - 1 in self.diverge
        return {
            "status": "diverged since iteration 3" if lost else "complete",
            "message": "5 of 9 training losses are not finite" if lost else None,
            "examples_per_second": eps * (9 if lost else 1), "interval": (0.9 * eps, 1.1 * eps),
            "seconds": 1.0, "speeds": at(self.speed).model_dump(), "others_cores": 0.1,
            "run_id": None,
            "cpu": {line: 1.25 * seconds for line, seconds in entry["cpu"].items()},
        }  # fmt: skip

    def validate(self, **more: Any) -> Validated:
        study = calls.load(self.path, self.path.with_name("profile.yaml"), more.pop("sets", ()))
        return validation.validate(study, out=self.out, **more)


@pytest.fixture
def machine(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(path, tmp_path / "out")
    monkeypatch.setattr(validation, "_measured", made)
    monkeypatch.setattr(validation, "speeds_at_calibration", lambda cluster: at(1.0))
    monkeypatch.setattr("recsim_train.executor.process.forkserver.ready", lambda: None)
    monkeypatch.setattr(speed, "until_as_fast", lambda as_then, limit, waiting: 0.0)
    return made


def test_a_validation_leaves_a_result_that_needs_no_other_file(machine: Machine) -> None:
    made = machine.validate()
    assert made.complete
    assert not made.failed
    folder = made.folder.path
    assert folder == machine.out / "grid-validation"
    result = json.loads((folder / results.RESULT).read_text())
    assert result == json.loads(json.dumps(made.document))
    drawn, html = made.plot(), made._repr_html_()
    assert drawn is not None
    assert drawn.name == "scatter"
    assert html.count("<svg") == 1
    assert "median absolute raw error" in html
    assert repr(made).startswith("<Validated: grid: median absolute raw error")
    assert made.to_frame()["raw_error"].tolist() == [row["raw_error"] for row in result["rows"]]
    assert len(result["rows"]) == 4
    assert len(result["runs"]) == 12
    for row in result["rows"]:
        assert row["raw_error"] == pytest.approx(0.03)
        assert row["measured"] == pytest.approx(row["predicted"] / 1.03)
    assert result["summary"]["raw"]["median"] == pytest.approx(0.03)
    assert result["summary"]["raw"]["count"] == 12
    assert result["summary"]["moved"] == {"change": 0.0, "error": 0.0, "runs": 12, "off": 0}
    assert [gate["verdict"] for gate in result["gates"]] == ["pass", "pass"]
    assert result["profile"]["costs"]
    assert result["agreed"]["profile"] == results.profile_hash(
        calls.load(machine.path, machine.path.with_name("profile.yaml")).jobs(dry=True)[0].cluster  # type: ignore[arg-type]
    )
    assert result["predictions"][0]["experiment"]["model"]["name"] == "tiny"
    # linear scaling: made from the run with one trainer
    assert [b["count"] for b in result["summary"]["baselines"]] == [2, 4]
    assert result["summary"]["bound"]["count"] == result["summary"]["with_dropped"]["count"] == 12
    with (folder / results.TABLE).open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["raw_error"]) for row in rows] == pytest.approx([0.03] * 4)
    text = (folder / "validation.md").read_text()
    assert "median absolute raw error 3.0 %, nine in ten within 3.0 %, over 12 runs" in text
    assert "all gates hold" in text
    (passes,) = [
        x for x in result["summary"]["cpu_lines"] if x["name"] == "trainer.forward_backward"
    ]
    assert passes["predicted"] / passes["measured"] == pytest.approx(0.8)
    assert passes["off"] == passes["counts"] == 4
    assert "Where CPU time goes" in text
    assert "| allreduce | trainer: forward and backward pass |" in text
    for name in ("scatter", "errors"):
        assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert f"figures/{name}.svg" in text
    assert "<svg" in (folder / "report.html").read_text()


def test_the_result_says_what_its_intervals_are_made_of(machine: Machine) -> None:
    profile = machine.path.with_name("profile.yaml")
    text = profile.read_text().replace("calibration:", "calibration:\n  own_error: 25 %", 1)
    profile.write_text(text)
    made = machine.validate(sets=["simulation.what_if_steps=2"])
    causes = made.document["interval_made_of"]
    assert causes.keys() == {"prices", "model"}
    told = []
    for prediction in made.document["predictions"]:
        errors = prediction["figures"]["calibration_errors"]
        assert errors.keys() == causes.keys()
        spent = ((line.partition(".")[2], s) for line, s in prediction["cpu"].items())
        # the shares are those of the short runs, which the prediction's own are near
        assert errors["model"] == pytest.approx(0.25 * share_around(spent), rel=0.3)
        low, high = prediction["interval"]
        assert high / low > exp(2 * 1.645 * 0.95 * errors["model"])
        told.append(errors["model"])
    assert causes["model"] == pytest.approx(median(told))
    said = (made.folder.path / "validation.md").read_text()
    words = "by the share of the CPU time that is around operations"
    assert f"{words} ± {causes['model'] * 164.5:.1f} %" in said  # half of a 90 % interval


def test_each_repeat_goes_through_all_in_its_own_settled_order(machine: Machine) -> None:
    made = machine.validate()
    keys = [p.key for p in made.folder.predicted()]
    repeats = [machine.made[n : n + 4] for n in (0, 4, 8)]
    assert all(sorted(one) == sorted(keys) for one in repeats)
    settled = made.folder.predictions["order"]
    assert [[keys[n] for n in one] for one in settled] == repeats
    assert results.order(50, 1, 1) == results.order(50, 1, 1)
    assert len({tuple(results.order(50, seed, r)) for seed in (1, 2) for r in (1, 2)}) == 4


def test_a_gate_that_fails_says_so(machine: Machine) -> None:
    machine.error = 0.2
    made = machine.validate(repeats=1)
    assert [gate.name for gate in made.failed] == ["raw_median"]
    assert "20.0 %" in made.failed[0].figure
    assert "1 of 2 gates do not hold" in (made.folder.path / "validation.md").read_text()


def test_a_failed_run_is_told_and_made_again(machine: Machine) -> None:
    machine.fail = lambda number: RunFailed("trainer[0] failed: no") if number == 2 else None
    made = machine.validate(repeats=1)
    # the third run failed, and so did all after it, as none was made
    assert not made.complete
    assert [gate.name for gate in made.failed] == ["configurations", "raw_median"]
    text = (made.folder.path / "validation.md").read_text()
    assert "2 configurations have no measurement that counts" in text
    assert "trainer\\[0\\] failed: no" in text
    machine.fail = lambda number: None
    again = machine.validate(repeats=1, resume=True)
    assert again.complete
    assert again.folder.path == made.folder.path
    assert len(machine.made) == 4


@pytest.mark.parametrize("after", [0, 1, 5])
def test_an_interrupt_leaves_a_valid_result_and_resume_goes_on(
    machine: Machine, after: int
) -> None:
    machine.fail = lambda number: KeyboardInterrupt() if number == after else None
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        machine.validate(caller=Caller(said.append))
    folder = machine.out / "grid-validation"
    assert f"{after} finished runs are kept in {folder}" in said
    result = json.loads((folder / results.RESULT).read_text())
    assert len(result["runs"]) == after
    assert result["complete"] is False
    predictions = (folder / results.PREDICTIONS).read_bytes()
    machine.fail = lambda number: None
    made = machine.validate(resume=True, caller=Caller(said.append))
    assert made.complete
    assert len(machine.made) == 12
    assert (folder / results.PREDICTIONS).read_bytes() == predictions
    assert made.document["predictions_sha256"] == hashlib.sha256(predictions).hexdigest()
    assert sorted(machine.made[:4]) == sorted(p.key for p in made.folder.predicted())


def test_a_report_of_runs_beside_it_takes_no_offence(machine: Machine, factory: ModuleType) -> None:
    folder = machine.validate(repeats=1).folder.path
    factory.write(machine.out, factory.plan(), "simulated")
    assert left_out([machine.out]) == []
    (machine.out / "strange").mkdir()
    assert folder.name not in " ".join(left_out([machine.out]))
    assert len(left_out([machine.out])) == 1


def test_without_resume_everything_is_made_anew_beside_it(machine: Machine) -> None:
    first, second = machine.validate(repeats=1), machine.validate(repeats=1)
    assert (first.folder.path.name, second.folder.path.name) == (
        "grid-validation", "grid-validation-2",
    )  # fmt: skip


def stopped(machine: Machine) -> Path:
    machine.fail = lambda number: KeyboardInterrupt() if number == 2 else None
    with pytest.raises(KeyboardInterrupt):
        machine.validate()
    machine.fail = lambda number: None
    return machine.out / "grid-validation"


def test_resume_refuses_a_changed_profile(machine: Machine) -> None:
    stopped(machine)
    profile = machine.path.with_name("profile.yaml")
    profile.write_text(profile.read_text().replace("call: {value: 1.9818 us", "call: {value: 2 us"))
    with pytest.raises(UserError, match=r"cannot be resumed: the cluster profile changed"):
        machine.validate(resume=True)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[1, 2]", "[1, 2, 4]", "the configurations"),
        ("raw_median: 5 %", "raw_median: 50 %", "the gates"),
        ("seed: 5", "seed: 6", "the order's seed"),
    ],
)
def test_resume_refuses_what_was_settled_otherwise(
    machine: Machine, old: str, new: str, said: str
) -> None:
    stopped(machine)
    machine.path.write_text(EXPERIMENT.replace(old, new))
    with pytest.raises(UserError, match=f"cannot be resumed: {said} changed"):
        machine.validate(resume=True)


def test_resume_refuses_other_code_and_names_both(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version says nothing: it is the same for months."""
    monkeypatch.setattr(validation, "code_of", lambda _: "0123456789ab")
    stopped(machine)
    monkeypatch.setattr(validation, "code_of", lambda _: "fedcba987654")
    words = r"the code \(from 0123456789ab to fedcba987654\) changed since its predictions"
    with pytest.raises(UserError, match=f"cannot be resumed: {words}"):
        machine.validate(resume=True)
    monkeypatch.setattr(validation, "code_of", lambda _: "0123456789ab")
    assert machine.validate(resume=True).complete


@pytest.mark.parametrize(
    ("speed", "far"), [(1.04, False), (0.96, False), (1.06, True), (0.9, True)]
)
def test_where_the_machine_moved_the_order_alone_counts(
    machine: Machine, speed: float, far: bool
) -> None:
    machine.speed = speed
    made = machine.validate()
    terminal = Console(file=io.StringIO(), width=1000)
    show(made.report, terminal)
    folder = made.folder.path
    off = 12 if abs(speed - 1) > 0.05 else 0
    said = f"{100 * abs(speed - 1):.1f} % ± 0.0 %; more than 5.0 % off beside {off} of them."
    for written in (
        terminal.file.getvalue(),  # type: ignore[attr-defined]
        (folder / "validation.md").read_text(encoding="utf-8"),
        (folder / "report.html").read_text(encoding="utf-8"),
    ):
        plain = " ".join(html.unescape(written).split())
        line = "idle before and after the 12 runs, against that at its calibration"
        assert plain.count(line) == 1 + far
        assert said in plain
        words = "errors contain the machine's drift, and the order alone can be trusted"
        assert (words in plain) is far
        assert "3.0 %" in plain  # raw, as ever
    assert made.document["summary"]["raw"]["median"] == pytest.approx(0.03)


def test_runs_wait_for_the_machine_until_their_patience_ends(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four runs on a machine that never is as it was: each waits for a minute, while there is
    patience left, and is made."""
    asked: list[tuple[float, float]] = []

    def wait(as_then: float, limit: float, waiting: Callable[[], None]) -> float:
        asked.append((as_then, limit))
        waiting()
        return limit

    monkeypatch.setattr(speed, "until_as_fast", wait)
    said: list[str] = []
    made = machine.validate(
        repeats=1, sets=["validation.patience=150 s"], caller=Caller(said.append)
    )
    assert asked == [(1.0, 60.0), (1.0, 60.0), (1.0, 30.0)]
    order = sorted(made.folder.runs.values(), key=lambda run: run["started"])
    assert [run.get("waited") for run in order] == [60.0, 60.0, 30.0, None]
    waits = [sentence for sentence in said if sentence.startswith("waiting")]
    assert waits == [
        f"waiting {seconds} s at most for a machine as fast as at its calibration"
        for seconds in (60, 60, 30)
    ]
    asked.clear()
    machine.validate(repeats=1)  # nobody waits who is not asked to
    assert asked == []


def test_what_was_waited_before_an_interrupt_is_not_waited_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def wait(as_then: float, limit: float, waiting: object) -> float:
        asked.append(limit)
        return limit

    monkeypatch.setattr(speed, "until_as_fast", wait)
    machine.fail = lambda number: KeyboardInterrupt() if number == 2 else None
    sets = ["validation.patience=150 s"]
    with pytest.raises(KeyboardInterrupt):
        machine.validate(repeats=1, sets=sets)
    machine.fail = lambda number: None
    machine.validate(repeats=1, sets=sets, resume=True)
    assert asked == [60.0, 60.0, 30.0, 30.0]  # the third run was interrupted, and waits again


def test_no_run_is_lost_because_a_look_at_the_machine_fails(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(as_then: float, limit: float, waiting: object) -> float:
        raise RunFailed("no process could be started")

    monkeypatch.setattr(speed, "until_as_fast", fail)
    said: list[str] = []
    sets = ["validation.patience=600 s"]
    made = machine.validate(repeats=1, sets=sets, caller=Caller(said.append))
    assert len(made.folder.runs) == 4
    assert sum("no process could be started" in sentence for sentence in said) == 4


def digits(value: Any) -> Any:
    """Floats to their twelfth digit: a unit's factor may change the last."""
    if isinstance(value, dict):
        return {key: digits(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return list(map(digits, value))
    return float(f"{value:.12g}") if isinstance(value, float) else value


def test_a_result_can_be_judged_again_without_any_other_file(machine: Machine) -> None:
    """From validation.json alone: predictions with their intervals, every run's raw figures with
    the speeds before and after and what others took, and the profile."""
    machine.speed = 0.97
    made = machine.validate(sets=["simulation.what_if_steps=2"])
    result = json.loads((made.folder.path / results.RESULT).read_text())
    shutil.rmtree(made.folder.path)
    found = fidelity(
        [results.predicted_of(entry) for entry in result["predictions"]],
        [results.measured_of(run) for run in result["runs"]],
        result["validation"]["repeats"],
        MachineSpeeds.model_validate(result["speeds_at_calibration"]),
    )
    assert found == made.fidelity
    assert all(p["interval"] is not None for p in result["predictions"])
    assert all(run["others_cores"] == 0.1 and run["speeds"]["after"] for run in result["runs"])
    assert [row_document(row) for row in found.rows] == [
        {**row_document(row), **kept} for row, kept in zip(found.rows, result["rows"], strict=True)
    ]
    gates = Gates.model_validate(result["validation"]["gates"])
    assert [gate.document() for gate in judge(found, gates)] == result["gates"]
    target = machine.path.with_name("again.yaml")
    target.write_text(json.dumps(result["profile"]))
    told = load_cluster(str(target)).model_dump(mode="json")
    profile = load_cluster(str(machine.path.with_name("profile.yaml"))).model_dump(mode="json")
    assert digits(told) == digits(profile)


def test_resume_refuses_predictions_that_are_newer_than_a_run(machine: Machine) -> None:
    folder = stopped(machine)
    file = next((folder / results.MEASURED).iterdir())
    run = json.loads(file.read_text())
    file.write_text(json.dumps({**run, "started": "2001-01-01T00:00:00.000000+00:00"}))
    with pytest.raises(UserError, match=rf"newer .* than the run {file.name}"):
        machine.validate(resume=True)


def test_resume_refuses_predictions_that_were_written_again(machine: Machine) -> None:
    folder = stopped(machine)
    file = folder / results.PREDICTIONS
    content = json.loads(file.read_text())
    content["predictions"][0]["examples_per_second"] *= 1.1
    file.write_text(json.dumps(content))
    with pytest.raises(UserError, match="measured under other predictions"):
        machine.validate(resume=True)


def test_resume_refuses_what_is_damaged(machine: Machine) -> None:
    folder = stopped(machine)
    next((folder / results.MEASURED).iterdir()).write_text("{")
    with pytest.raises(UserError, match="damaged validation"):
        machine.validate(resume=True)


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["seed=[1, 2]"], "same configuration but for what a measurement does not see"),
        (["cluster.costs.call.value=[1 us, 2 us]"], "one cluster profile for all"),
    ],
)
def test_points_that_no_measurement_tells_apart_are_refused(
    machine: Machine, sets: list[str], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        machine.validate(sets=sets)
    assert not machine.out.exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("raw_median: 5 %", "raw_median: 0.05", "0.05 has no unit"),
        ("raw_median: 5 %", "raw_medium: 5 %", "raw_median"),
        ("raw_median: 5 %", "net_median: 5 %", "net_median: unknown key"),
        ("raw_median: 5 %", "order: 150 %", "at most 100 %"),
        ("raw_median: 5 %", "coverage_least: 90 %, coverage_most: 80 %", "at most coverage_most"),
        ("repeats: 3", "repeats: 0", "repeats"),
        ("  grid:\n", "  grid:\n    validation.repeats: [1, 2]\n", "cannot be swept"),
    ],
)
def test_bad_settings_are_named(path: Path, old: str, new: str, said: str) -> None:
    path.write_text(EXPERIMENT.replace(old, new))
    with pytest.raises(UserError, match=said):
        calls.load(path, REFERENCE)


def test_a_validation_is_no_part_of_what_is_run(path: Path) -> None:
    with_it = calls.load(path, REFERENCE).jobs(dry=True)
    path.write_text(EXPERIMENT.partition("validation:")[0])
    without = calls.load(path, REFERENCE).jobs(dry=True)
    assert [job.identity for job in with_it] == [job.identity for job in without]


def test_the_90_percent_interval_adds_both_errors_in_quadrature() -> None:
    row = Row(examples_per_second=100.0, eps_low=97.0, eps_high=103.0)
    assert row.interval90() is None
    low, high = replace(row, calibration_low=96.0, calibration_high=104.0).interval90() or (0, 0)
    assert (low, high) == pytest.approx((100 - 5 * 1.645 / 1.96, 100 + 5 * 1.645 / 1.96))
    # two independent normal errors of these sizes stay inside in nine of ten cases
    draw = random.Random(1)
    errors = [draw.gauss(0, 3 / 1.96) + draw.gauss(0, 4 / 1.96) for _ in range(20_000)]
    inside = sum(low <= 100 + error <= high for error in errors)
    assert inside / len(errors) == pytest.approx(0.9, abs=0.01)


def test_speeds_count_on_the_machine_that_the_profile_is_of() -> None:
    cluster = load_cluster(str(REFERENCE))
    assert cluster.calibration is not None

    def there(machine: str, speeds: MachineSpeeds | None) -> MachineSpeeds | None:
        update = {"machine": machine, "machine_speed": speeds}
        own = cluster.calibration.model_copy(update=update)  # type: ignore[union-attr]
        return speeds_at_calibration(cluster.model_copy(update={"calibration": own}))

    here = machine_name()
    assert there(here, at(2.0)) == at(2.0)
    assert there("another one, 64 cores", at(2.0)) is None
    assert there(here, None) is None
    assert speeds_at_calibration(cluster.model_copy(update={"calibration": None})) is None


def test_a_run_tells_the_speeds_before_and_after_it_and_who_else_was_there(
    tmp_path: Path, factory: ModuleType
) -> None:
    plan = factory.plan()
    outcome = factory.outcome(plan, world="real")
    slow, fast = (MachineSpeed(products=v, gather=v, interpreter=v, loopback=v) for v in (1.0, 4.0))
    outcome.facts.machine_speed = MachineSpeeds(before=slow, after=fast)
    figures = validation._figures(
        factory.write(tmp_path, plan, "real", found=outcome), plan.experiment
    )
    assert MachineSpeeds.model_validate(figures["speeds"]) == MachineSpeeds(before=slow, after=fast)
    assert figures["others_cores"] is None  # these records have no ledger
    assert figures["examples_per_second"] > 0
    nothing = factory.outcome(plan, world="real", steps=0)
    with pytest.raises(RunFailed, match="counted no iteration"):
        validation._figures(factory.write(tmp_path, plan, "real", found=nothing), plan.experiment)


def test_a_diverged_run_is_told_kept_and_counted_in_no_error(machine: Machine) -> None:
    machine.diverge = {1, 4}
    said: list[str] = []
    made = machine.validate(caller=Caller(said.append))
    result = json.loads((made.folder.path / results.RESULT).read_text())
    lost = [run for run in result["runs"] if run["status"] != "complete"]
    assert len(result["runs"]) == 12
    assert [run["status"] for run in lost] == ["diverged since iteration 3"] * 2
    assert all(run["examples_per_second"] > 0 for run in lost)
    # what is nine times as fast is in no error
    assert all(row["raw_error"] == pytest.approx(0.03) for row in result["rows"])
    assert sum(row["repeats"] for row in result["rows"]) == 10
    assert not made.complete
    assert made.made
    assert not result["complete"]
    text = (made.folder.path / "validation.md").read_text()
    assert text.count("diverged since iteration 3 (5 of 9 training losses are not finite)") == 2
    assert "counts in no error" in text
    assert "failed" not in text.replace("gate", "")
    assert "--resume" not in text
    assert sum("diverged since iteration 3" in line for line in said) == 2
    # nobody measures until it does not
    machine.diverge = set()
    again = machine.validate(resume=True)
    assert len(machine.made) == 12
    assert len(again.folder.diverged) == 2


def test_a_setting_that_always_diverges_is_not_measured(machine: Machine) -> None:
    machine.diverge = set(range(12))
    made = machine.validate()
    assert made.fidelity.raw is None
    assert [gate.name for gate in made.failed][:1] == ["configurations"]
    assert (
        "4 configurations have no measurement that counts"
        in (made.folder.path / "validation.md").read_text()
    )


def test_the_figures_of_a_diverged_run_say_so(tmp_path: Path, factory: ModuleType) -> None:
    plan = factory.plan()
    outcome = factory.outcome(plan, world="real")
    outcome.facts.diverged = Diverged(2, 5, 9)
    figures = validation._figures(
        factory.write(tmp_path, plan, "real", found=outcome), plan.experiment
    )
    assert figures["status"] == "diverged since iteration 2"
    assert figures["message"] == "5 of 9 training losses are not finite"
    assert figures["examples_per_second"] > 0


def test_a_dry_run_checks_the_data(path: Path) -> None:
    (path.parent / "bad.tsv").write_text("no rows\n")
    sets = ["model.dense_features=13", f"data.path={path.parent / 'bad.tsv'}"]
    study = calls.load(path, REFERENCE, sets)
    with pytest.raises(UserError, match=r"bad\.tsv"):
        validation.checked(study, dry=True)
