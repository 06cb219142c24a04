"""What is known of a prediction before it is simulated."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from recsim_train import calls
from recsim_train.config.errors import UserError
from recsim_train.data.replay import Replay
from recsim_train.evaluate import asymptotic
from recsim_train.evaluate.asymptotic import AsymptoticBounds, asymptotic_bounds
from recsim_train.evaluate.levels import BOUND
from recsim_train.session.job import Job
from recsim_train.sim.fluid import core
from recsim_train.sim.fluid.resources import Unshared
from recsim_train.sim.simulated_run import SimulatedRun
from tests.simulated import folding_of, simulate

ROOT = Path(__file__).parents[2]
QUICK = ["model=tiny", "data.path=null", "training.steps=40", "training.warmup_steps=4"]


def job(*sets: str, profile: str = "tests/frozen-2core.yaml", what_if: bool = False) -> Job:
    file = ROOT / "experiments" / "quickstart.yaml"
    (only,) = calls.load(file, ROOT / profile, [*QUICK, *sets]).jobs(what_if=what_if)
    return only


def known(*sets: str) -> AsymptoticBounds:
    return asymptotic_bounds(job(*sets).case)


APART = ["cluster.colocate=false", "roles.trainers=3"]


@pytest.mark.parametrize(
    "sets",
    [
        [], ["strategy=allreduce"], ["strategy=shadowsync"], ["strategy=scalefreectr"],
        APART, [*APART, "cluster.hosts.default.nic=100 Mbit/s"],
        [*APART, "training.threads=16", "cluster.hosts.default.cores=16"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_the_bound_is_nearly_that_of_the_prediction(sets: list[str]) -> None:
    asked = job(*sets)
    found = asymptotic_bounds(asked.case)
    outcome = simulate(asked.plan, asked.profile)
    near = 0.1 if "strategy=scalefreectr" in sets else 0.05  # whole rows, where few are missed
    assert found.bound == pytest.approx(outcome.bound_eps, rel=near)
    bounds = outcome.facts.class_bounds
    assert bounds[next(iter(found.bounds))] < 1.2 * min(bounds.values())


@pytest.mark.parametrize(
    "sets",
    [
        ["training.threads=4"],
        ["training.threads=2", "training.batch_size=32", "data.queue_batches=7"],
        ["roles.readers=1"],
    ],
    ids=" ".join,
)
def test_it_does_not_matter_when_a_reader_works(
    sets: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = job(*APART, *sets, "cluster.hosts.default.cores=16")
    found = []
    for warmup, steps in ((2, 4), (3, 4), (2, 5), (3, 9)):
        longer = BOUND.steps._replace(warmup=warmup, least=steps)
        monkeypatch.setattr(asymptotic, "BOUND", replace(BOUND, steps=longer))
        found.append(asymptotic_bounds(asked.case).bounds)
    whose = "reader: interpreter lock" if sets == ["roles.readers=1"] else "trainer: cores"
    for bounds in found[1:]:
        assert bounds[whose] == pytest.approx(found[0][whose], rel=0.02)
        assert bounds.keys() == found[0].keys()


@pytest.mark.parametrize("strategy", ["flat_ps", "shadowsync", "{kind: flat_ps, mode: easgd}"])
def test_bounds_are_of_trainers_that_stand_evenly_for_all(strategy: str) -> None:
    """Six trainers in pairs on hosts: where two pairs stood for the three, bounds were a third off,
    since of few steps those of two paces are cut at different places."""
    asked = job(
        f"strategy={strategy}", *APART, "cluster.hosts.default.nic=50 Mbit/s",
        "cluster.hosts.default.cores=8", "cluster.per_host={trainer: 2, embedding_server: 2}",
        "roles.trainers=6", "roles.embedding_servers=6", "roles.dense_servers=2",
        "cluster.stragglers=null", "cluster.jitter=0", "simulation.fold_above=0",
        "cluster.network.queue_length=1 s",  # which loses nothing
    )  # fmt: skip
    found = asymptotic_bounds(asked.case).bounds
    really = simulate(asked.plan, asked.profile).facts.class_bounds
    near = {name: bound for name, bound in really.items() if bound < 2 * min(really.values())}
    assert len(near) == 4
    for name, bound in near.items():
        assert found[name] == pytest.approx(bound, rel=0.03), name


@pytest.mark.parametrize("strategy", ["flat_ps", "shadowsync"])
def test_one_loop_stands_for_all_of_a_trainer(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the prices of as many: the interpreter's lock is handed over, cores are busy."""
    asked = job(f"strategy={strategy}", *APART, "training.threads=4",
                "cluster.hosts.default.cores=4", "training.steps=60",
                "cluster.network.latency=50 us", "cluster.network.connection_cap=null",
                "cluster.hosts.default.nic=1 Gbit/s",
                profile="cluster_profiles/reference-2core.yaml")  # fmt: skip
    one = asymptotic_bounds(asked.case).bounds
    four = BOUND.few._replace(each=4)
    monkeypatch.setattr(asymptotic, "BOUND", replace(BOUND, few=four))
    every = asymptotic_bounds(asked.case).bounds
    assert one.keys() == every.keys()
    for name, bound in every.items():
        assert one[name] == pytest.approx(bound, rel=0.01), name


CACHES = [
    "cluster.colocate=false", "cluster.hosts.default.nic=50 Mbit/s", "roles.embedding_servers=4",
    "strategy={kind: scalefreectr, cache_rows: 3000}", "model.tables=[{rows: 1000000, ids: 4}]",
    "data.synthetic.rows=10000000",
]  # fmt: skip


@pytest.mark.parametrize("trainers", [4, 24, pytest.param(48, marks=pytest.mark.thorough)])
def test_servers_bounds_are_of_what_all_caches_miss(trainers: int) -> None:
    """Each of the first trainers owns rows of the first server's only."""
    asked = job(*CACHES, f"roles.trainers={trainers}", "training.batch_size=16",
                "simulation.precision=0 %", "training.steps=24")  # fmt: skip
    found = asymptotic_bounds(asked.case).bounds
    really = simulate(asked.plan, asked.profile).facts.class_bounds
    for part in ("NIC receive", "NIC send", "cores"):
        name = f"embedding server: {part}"
        assert found[name] == pytest.approx(really[name], rel=0.1), name


@pytest.mark.parametrize("trainers", [4, pytest.param(8, marks=pytest.mark.thorough)])
def test_what_runs_ahead_counts_once_for_each_step(trainers: int) -> None:
    """Loops that prepare batches for the next steps do so for several in each of the first ones."""
    asked = job(*CACHES, "strategy=scalefreectr", f"roles.trainers={trainers}",
                "roles.embedding_servers=0", "model.tables=[{rows: 100000, ids: 30, count: 20}]",
                "model.top_mlp=[1024, 512, 1]", "data.synthetic.rows=1000000",
                "training.batch_size=256", "training.threads=4", "training.steps=24",
                "cluster.hosts.default.nic=10 Gbit/s", "cluster.hosts.default.cores=8",
                "simulation.precision=0 %")  # fmt: skip
    found = asymptotic_bounds(asked.case).bounds
    really = simulate(asked.plan, asked.profile).facts.class_bounds
    for part in ("NIC receive", "NIC send"):
        name = f"trainer: {part}"
        assert found[name] == pytest.approx(really[name], rel=0.1), name


def test_what_a_files_ids_need_is_read_from_it(tmp_path: Path) -> None:
    """Of few different ids a small cache holds two steps; by the generator's law it would not."""
    file = tmp_path / "few.txt"
    file.write_text("\n".join("\t".join(["0"] + ["1"] * 13 + ["a"] * 26) for _ in range(2000)))
    small = [*APART, "strategy={kind: scalefreectr, cache_rows: 90}", "training.batch_size=64"]
    assert known(*small, f"data.path={file}", "data.eval_rows=10").bound is not None
    with pytest.raises(UserError, match="cannot hold two steps"):
        known(*small)


def test_asking_takes_as_long_as_there_are_runs() -> None:
    sets = ["simulation.precision=0 %", "roles.dense_servers=2"]
    asked = job(*sets, what_if=True)
    found = asymptotic_bounds(asked.case)
    runs = simulate(asked.plan, asked.profile).facts.what_if
    assert runs is not None
    # of a warm-up of 2 and 5 steps, beside one of 4 and 40
    assert found.asking / found.seconds[1] == pytest.approx(runs.runs * (2 + 5) / (4 + 40))
    assert known(*sets).asking == 0.0


def test_nothing_is_solved_or_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def solved(*_: object) -> None:
        raise AssertionError("a solver was asked")

    for name in ("apply", "run", "cancel", "used"):
        monkeypatch.setattr(core, name, solved)
    assert known().bound is not None


def test_more_steps_take_longer_up_to_where_the_estimate_may_settle() -> None:
    short, long = known("training.steps=200"), known("training.steps=20000")
    assert short.seconds[1] < long.seconds[1]
    assert long.seconds[0] < long.seconds[1] / 10
    every = known("training.steps=200", "simulation.precision=0 %")
    assert every.seconds[0] == every.seconds[1]


@pytest.fixture
def fluid() -> Unshared:
    return Unshared()


def test_two_on_one_resource_are_as_fast_as_one(fluid: Unshared) -> None:
    kind = fluid.kind([(fluid.resource("cores", 2.0), 0.5)])
    fluid.start(kind, 4.0, "first")
    fluid.start(kind, 4.0, "second")
    assert fluid.due == 1.0
    assert fluid.run(0.5) == []
    assert fluid.run(inf) == ["first", "second"]
    assert (fluid.now, fluid.used(), fluid.idle, fluid.due) == (1.0, [4.0], True, inf)
    assert fluid.run(inf) == []


def test_what_has_run_for_a_while_has_used_as_much(fluid: Unshared) -> None:
    kind = fluid.kind([(fluid.resource("cores", 1.0), 1.0)], cap=0.5)
    fluid.start(kind, 1.0)
    fluid.now = 1.5
    assert fluid.used() == [0.75]


def test_what_begins_later_uses_nothing_before(fluid: Unshared) -> None:
    kind = fluid.kind([(fluid.resource("link", 2.0), 1.0)])
    fluid.start(kind, 4.0, "late", 1.0)
    assert fluid.due == 3.0
    fluid.now = 0.5
    assert fluid.used() == [0.0]
    fluid.now = 2.0
    assert fluid.used() == [2.0]
    assert (fluid.run(inf), fluid.now, fluid.used()) == (["late"], 3.0, [4.0])


def test_a_slow_host_is_slow(fluid: Unshared) -> None:
    cores = fluid.resource("cores", 4.0, pace=0.5)
    fluid.start(fluid.kind([(cores, 1.0)], paced=1.0), 1.0)
    assert fluid.due == 2.0


def test_resources_that_are_not_listed_count_for_none(fluid: Unshared) -> None:
    own = fluid.resource("own", 1.0, listed=False)
    listed = fluid.resource("all", 2.0)
    fluid.start(fluid.kind([(own, 1.0), (listed, 1.0)]), 1.0)
    fluid.run(inf)
    assert fluid.used() == [1.0]


@pytest.mark.parametrize("trainers", [24, pytest.param(48, marks=pytest.mark.thorough)])
def test_folded_caches_are_those_of_trainers_spread_over_all(trainers: int) -> None:
    found = []
    for fold in (0, 12):
        asked = job(*CACHES, f"roles.trainers={trainers}", "training.batch_size=16",
                    "training.steps=24", "simulation.precision=0 %",
                    f"simulation.fold_above={fold}")  # fmt: skip
        outcome = simulate(asked.plan, asked.profile)
        assert (outcome.facts.folding is None) == (fold == 0)
        found.append(outcome.facts.class_bounds)
    # half as many, which say what folding changes, are some of them
    few = folding_of(asked.plan, asked.profile, most=6)
    replay = Replay(asked.plan, simulated=12)
    half = SimulatedRun(asked.plan, asked.profile, few, None, replay).replay
    assert half is not None
    assert half.step(0).trainers == replay.step(0).trainers[::2]
    for part in ("NIC receive", "NIC send", "cores"):
        name = f"embedding server: {part}"
        assert found[1][name] == pytest.approx(found[0][name], rel=0.1), name


@pytest.mark.parametrize(
    "strategy",
    [
        "shadowsync", "{kind: shadowsync, gap: 0}", "{kind: shadowsync, algorithm: ma}",
        "{kind: shadowsync, sync: foreground, every: 3}",
        "{kind: shadowsync, algorithm: ma, sync: foreground, every: 1}",
        "{kind: shadowsync, algorithm: ma, sync: foreground, every: 2}",
        "{kind: shadowsync, algorithm: ma, sync: foreground, every: 3}",
        *(f"{{kind: localsgd, every: {every}}}" for every in (2, 3, 5)),
        *(f"{{kind: flat_ps, mode: easgd, every: {every}}}" for every in (2, 3, 4)),
        "{kind: hierarchical, hosts: 1, outer: easgd, sync: foreground, every: 3}",
        "{kind: hierarchical, hosts: 1, outer: ma}",
    ],
)  # fmt: skip
def test_nothing_is_predicted_beyond_its_bound(strategy: str) -> None:
    """Synchronisations take most here, and take what they get, or come every few steps."""
    dense = int("easgd" in strategy or ("algorithm" not in strategy and "shadow" in strategy))
    asked = job(f"strategy={strategy}", "cluster.colocate=false", "roles.trainers=4",
                "roles.embedding_servers=2", f"roles.dense_servers={dense}",
                "training.batch_size=32", "training.threads=4", "training.steps=60",
                "cluster.hosts.default.cores=8", "cluster.hosts.default.nic=20 Mbit/s",
                "model.top_mlp=[512, 256, 1]", "simulation.precision=0 %")  # fmt: skip
    found = asymptotic_bounds(asked.case)
    outcome = simulate(asked.plan, asked.profile)
    assert found.bound is not None
    assert outcome.speed is not None
    assert outcome.speed.examples_per_second is not None
    assert found.bound > 0.97 * outcome.speed.examples_per_second


@pytest.mark.parametrize("at_once", ["null", "2896 B"])
@pytest.mark.parametrize("nic", ["10 Mbit/s", "100 Mbit/s", "1 Gbit/s"])
@pytest.mark.parametrize("strategy", ["allreduce", "flat_ps", "localsgd"])
def test_no_short_message_passes_a_bound(strategy: str, nic: str, at_once: str) -> None:
    """Messages of a frame or two, which pass at once or do not: up to twice the bound. Of one
    trainer and one server, who wait for nothing but these, so that the bound is near."""
    asked = job(f"strategy={strategy}", "cluster.colocate=false", "roles.trainers=1",
                "roles.embedding_servers=1", "roles.dense_servers=1", "training.batch_size=8",
                "model.embedding_dim=4", "model.bottom_mlp=[16, 4]",
                "training.threads=1", "training.steps=30", "cluster.hosts.default.cores=8",
                f"cluster.hosts.default.nic={nic}", f"cluster.network.passes_at_once={at_once}",
                "model.top_mlp=[16, 1]", "simulation.precision=0 %")  # fmt: skip
    found = asymptotic_bounds(asked.case)
    outcome = simulate(asked.plan, asked.profile)
    assert outcome.speed is not None
    assert outcome.speed.examples_per_second is not None
    for bounds in (found.bounds, outcome.facts.class_bounds):
        assert min(bounds.values()) > 0.997 * outcome.speed.examples_per_second
