"""Hosts that fail and come back: what each recovery costs, by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recsim_train.config.cluster import CheckpointPrices, Cluster, Price
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import Checkpoint, Recovery
from recsim_train.config.topology import Failures
from recsim_train.placement.plan import Plan
from recsim_train.sim.engine import Engine, Steps
from recsim_train.sim.host.machines import Machines
from recsim_train.sim.host.memory import checkpoint_bytes
from recsim_train.sim.host.process import Thread
from recsim_train.sim.jitter import Jitter
from recsim_train.sim.pricing import Priced
from recsim_train.trace.facts import Reliability
from recsim_train.trace.record import Iteration, Outcome
from tests.simulated import simulate

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]
OutcomeOf = Callable[[Plan, Cluster], Outcome]
Eps = Callable[[Plan, Cluster], float]

HEAVY = {"gemm_flop": "50 ns"}
"""Computations are all that counts: an iteration takes some 46 ms."""
ROLES = {"trainers": 4, "embedding_servers": 2, "dense_servers": 1}
NEAR = 2e-3
"""Of the last iterations, beside which nothing is read any more."""
WARMUP, STEPS, BATCH = 3, 20, 64


def failures(*schedule: tuple[float, str], restart: float = 1.0, **changes: Any) -> Failures:
    planned = [{"at": f"{at!r} s", "host": host} for at, host in schedule]
    return Failures.model_validate({"restart": f"{restart} s", "schedule": planned, **changes})


def recovery(policy: str, every: float | None = None) -> dict[str, Any]:
    """Settings of an experiment."""
    often = None if every is None else f"{every!r} s"
    known = Recovery.model_validate({"policy": policy})
    return {"recovery": known, "checkpoint": Checkpoint(every=often)}


def restart_all(every: float) -> dict[str, Any]:
    return recovery("restart", every)


def priced(**prices: float) -> CheckpointPrices:
    """Seconds a unit; nothing costs anything else."""
    known = dict.fromkeys(CheckpointPrices.model_fields, 0.0) | prices
    return CheckpointPrices(**{name: Price(value=f"{value!r} s") for name, value in known.items()})


def standing(plan: Plan, seconds: float) -> CheckpointPrices:
    """With which the largest copy of a process takes so long."""
    return priced(copied_byte=seconds / max(checkpoint_bytes(plan).values()))


CONTINUE = recovery("continue_without")


def facts(outcome: Outcome) -> Reliability:
    found = outcome.facts.reliability
    assert found is not None
    return found


def ends(outcome: Outcome) -> dict[str, float]:
    """When each loop ends."""
    return {i.loop: i.end for i in outcome.iterations}


@pytest.fixture
def even(clusters: Clusters, plans: Plans, outcome_of: OutcomeOf) -> tuple[float, float]:
    """(start of the first counted iteration, its length) of one process: all are equal but for
    the first, which waits for its batch, and the last, beside which nothing is read."""
    outcome = outcome_of(plans(), clusters(prices=HEAVY))
    lengths = [i.end - i.start for i in outcome.iterations]
    assert lengths[1:] == pytest.approx([lengths[1]] * (len(lengths) - 1), rel=1e-3)
    return outcome.iterations[WARMUP].start, lengths[1]


# ------------------------------------------------------------------ restart all from a checkpoint


def test_lost_work_and_stops_by_hand(
    even: tuple[float, float], plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    start, length = even
    # checkpoints at working times 6, 12, 18, of 0.3 s each; a failure 4.5 iterations after the
    # second one, of 2 s; the next checkpoint comes 6 iterations after that
    every, write, restart = 6 * length, 0.3, 2.0
    at = 16.5 * length + 2 * write
    plan = plans(**restart_all(every))
    cluster = clusters(
        prices=HEAVY,
        failures=failures((at, "trainer[0]"), restart=restart),
        checkpoints=standing(plan, write),
    )
    outcome = outcome_of(plan, cluster)
    found = facts(outcome)
    assert found.failures == 1
    (failure,) = found.first_failures
    assert failure.host == "trainer[0]"
    assert (failure.at, failure.back) == (pytest.approx(at), pytest.approx(at + restart))
    assert found.checkpoints == 3  # the third 22.5 iterations after the start
    end = start + STEPS * length + 3 * write + restart
    assert outcome.iterations[-1].end == pytest.approx(end, rel=NEAR)
    assert found.standstill_seconds == pytest.approx(3 * write + restart)
    lost = 4.5
    assert found.lost_examples == pytest.approx(lost * BATCH, rel=NEAR)
    seconds = STEPS * length + 3 * write + restart
    assert found.goodput == pytest.approx((STEPS - lost) * BATCH / seconds, rel=NEAR)


def test_work_before_the_counted_window_is_not_counted_as_lost(
    even: tuple[float, float], plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    start, length = even
    plan = plans(**restart_all(100.0))
    at = start + 2.25 * length
    outcome = outcome_of(plan, clusters(prices=HEAVY, failures=failures((at, "trainer[0]"))))
    # everything since the beginning is lost, but of the counted iterations 2.25
    assert facts(outcome).lost_examples == pytest.approx(2.25 * BATCH, rel=NEAR)
    # nor is a standstill that is over before
    early = failures((0.5 * start, "trainer[0]"), restart=0.1 * length)
    before = facts(outcome_of(plan, clusters(prices=HEAVY, failures=early)))
    assert before.failures == 1
    assert before.standstill_seconds == 0.0


def test_failures_that_overlap_lose_once_and_wait_for_the_last(
    even: tuple[float, float], plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    start, length = even
    plan = plans(**restart_all(100.0), roles={"readers": 1})
    at = start + 4 * length
    twice = failures((at, "trainer[0]"), (at + 0.6, "reader[0]"))
    base = outcome_of(plan, clusters(prices=HEAVY))
    outcome = outcome_of(plan, clusters(prices=HEAVY, failures=twice))
    found = facts(outcome)
    assert found.failures == 2
    assert found.standstill_seconds == pytest.approx(1.6)
    late = outcome.iterations[-1].end - base.iterations[-1].end
    assert late == pytest.approx(1.6, rel=1e-3)  # latencies pass while all stand still
    assert found.lost_examples == pytest.approx(4 * BATCH, rel=0.02)


def test_a_checkpoint_under_way_is_void_when_a_host_fails(
    even: tuple[float, float], plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    start, length = even
    every, write = 10 * length, 1.0
    plan = plans(**restart_all(every))
    at = every + 0.5  # in the middle of the first one
    cluster = clusters(
        prices=HEAVY,
        failures=failures((at, "trainer[0]"), restart=3.0),
        checkpoints=standing(plan, write),
    )
    found = facts(outcome_of(plan, cluster))
    lost = (every - start) / length
    assert found.lost_examples == pytest.approx(lost * BATCH, rel=NEAR)
    assert found.checkpoints == 1  # another ten iterations later
    assert found.standstill_seconds == pytest.approx(0.5 + 3.0 + 1.0)


def test_everybody_stops(plans: Plans, clusters: Clusters, outcome_of: OutcomeOf) -> None:
    plan = plans(roles=ROLES, **restart_all(100.0))
    calm = outcome_of(plan, clusters(prices=HEAVY))
    cluster = clusters(prices=HEAVY, failures=failures((0.5, "embedding_server[1]"), restart=4.0))
    outcome = outcome_of(plan, cluster)
    for loop, end in ends(calm).items():
        assert ends(outcome)[loop] == pytest.approx(end + 4.0, rel=1e-3)


def test_frequent_checkpoints_lose_less_and_cost_more(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    often, seldom = (plans(training={"steps": 200}, **restart_all(c)) for c in (0.05, 0.4))
    costs = {"prices": HEAVY, "checkpoints": standing(often, 0.01)}
    unstable = clusters(**costs, failures=failures(restart=0.1, mtbf="400 ms"))
    found = [facts(outcome_of(plan, unstable)) for plan in (often, seldom)]
    assert found[0].lost_examples < found[1].lost_examples
    assert found[0].checkpoints > 2 * found[1].checkpoints
    free = clusters(**costs)
    none = plans(**recovery("stop"))
    often, seldom = (plans(**restart_all(c)) for c in (0.05, 0.4))
    speeds = [facts(outcome_of(p, free)).goodput for p in (often, seldom)]
    whole = outcome_of(none, free)
    assert whole.facts.reliability is None
    assert speeds[0] < speeds[1]


times = st.sampled_from([1.0, 2.5, 4.0, 10.0]) | st.floats(0.0, 40.0)


@given(
    st.lists(times, max_size=6),
    st.floats(0.1, 5.0),
    st.sampled_from([1.0, 2.5]) | st.floats(0.5, 20.0),
    st.sampled_from([0.0, 0.5]) | st.floats(0.0, 3.0),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_standstills_and_losses_add_up(
    plans: Plans, clusters: Clusters, at: list[float], restart: float, every: float, write: float
) -> None:
    plan = plans(**restart_all(every))
    schedule = failures(*((t, "trainer[0]") for t in at), restart=restart, mtbf="1000 h")
    cluster = clusters(failures=schedule, checkpoints=standing(plan, write))
    engine = Engine()
    machines = Machines(plan, cluster, engine, Jitter(1))
    work = 30.0
    end: list[float] = []

    def train() -> Steps:
        thread = Thread(machines.processes[plan.instances[0]], "loop", "a")
        yield machines.compute(thread, Priced(work, 0.0, ()), "work").done
        end.append(engine.now)

    engine.process(train())
    engine.run()
    faults = machines.there.faults
    assert faults is not None
    # all work is done between the standstills, whatever overlaps
    still = sum(b - a for a, b in faults.standstills)
    assert end[0] == pytest.approx(work + still, rel=1e-9)
    assert all(a <= b for a, b in faults.standstills)
    assert all(b <= c for (_, b), (c, _) in itertools.pairwise(faults.standstills))
    # no failure loses more than what a checkpoint has not saved yet, nor anything twice
    single = [Iteration("worker", 0, 0.0, end[0])]
    lost = faults.lost_examples(single, 1) * work
    assert 0.0 <= lost <= work * (1 + 1e-9)
    assert lost <= len(faults.failures) * every * (1 + 1e-9)
    assert len(faults.failures) <= len(at)


# ------------------------------------------------------------------ continue without


def test_free_trainers_go_on_and_the_lost_one_comes_back(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    plan = plans(roles=ROLES, **CONTINUE)
    calm = outcome_of(plan, clusters(prices=HEAVY))
    cluster = clusters(prices=HEAVY, failures=failures((0.5, "trainer[2]"), restart=4.0))
    outcome = outcome_of(plan, cluster)
    for loop, end in ends(calm).items():
        late = 4.0 if loop.startswith("trainer[2]") else 0.0
        assert ends(outcome)[loop] == pytest.approx(end + late, rel=0.01)
    assert facts(outcome).lost_examples == 0.0
    # until the first three have ended, three of four train, and a quarter did until 0.5 s
    assert outcome.speed is not None
    all_four = calm.facts.bounds["loops"]
    assert 0.75 * all_four < (outcome.speed.examples_per_second or 0.0) < 0.9 * all_four


def test_lock_step_waits_for_the_lost_one(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    plan = plans("allreduce", roles=ROLES, **CONTINUE)
    calm = outcome_of(plan, clusters(prices=HEAVY))
    cluster = clusters(prices=HEAVY, failures=failures((0.5, "trainer[2]"), restart=4.0))
    outcome = outcome_of(plan, cluster)
    for loop, end in ends(calm).items():
        assert ends(outcome)[loop] == pytest.approx(end + 4.0, rel=0.01)


def test_a_server_that_is_down_holds_up_all_that_ask_it(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    plan = plans(roles=ROLES, **CONTINUE)
    calm = outcome_of(plan, clusters(prices=HEAVY))
    down = failures((0.5, "embedding_server[0]"), restart=4.0)
    outcome = outcome_of(plan, clusters(prices=HEAVY, failures=down))
    for loop, end in ends(calm).items():
        # what was computed meanwhile does not need it
        assert end + 3.9 < ends(outcome)[loop] <= end + 4.0 + 1e-9


@pytest.mark.usefixtures("equal_shares")
def test_a_host_that_is_down_neither_computes_nor_sends(plans: Plans, clusters: Clusters) -> None:
    plan = plans(roles={"trainers": 3}, **CONTINUE)
    down = failures((1.0, "trainer[0]"), (1.5, "trainer[0]"), restart=2.0)
    engine = Engine()
    machines = Machines(
        plan, clusters(failures=down, prices={"wire_byte": "0 ps"}), engine, Jitter(1)
    )
    zero, one, two = machines.processes.values()
    found: dict[str, float] = {}

    def watch(name: str, event: Any) -> Steps:
        yield event
        found[name] = engine.now

    size = 2 * 10e9 / 8
    work = Priced(2.0, 0.0, ())
    for name, started in {
        "its work": machines.compute(Thread(zero, "loop", "a"), work, "a"),
        "other work": machines.compute(Thread(one, "loop", "a"), work, "a"),
        "from it": machines.transfer(zero, one, size),
        "beside it": machines.transfer(two, one, size),
    }.items():
        engine.process(watch(name, started.done))
    engine.run()
    # down from 1.0 s to 3.5 s: the second failure comes while it restarts, and starts that anew
    assert found["its work"] == pytest.approx(4.5)
    assert found["other work"] == pytest.approx(2.0)
    # two share trainer[1]'s NIC for a second; then the other has it for itself
    assert found["beside it"] == pytest.approx(1.0 + 1.5)
    assert found["from it"] == pytest.approx(3.5 + 1.5)


# ------------------------------------------------------------------ stop


def test_stopping_ends_the_run(
    even: tuple[float, float], plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    start, length = even
    at = start + 7.5 * length
    cluster = clusters(prices=HEAVY, failures=failures((at, "trainer[0]")))
    outcome = outcome_of(plans(), cluster)
    assert outcome.steps == 7
    assert str(outcome.facts.stopped).startswith("trainer[0] failed after ")
    (warning,) = outcome.facts.warnings
    assert warning == f"{outcome.facts.stopped}: recovery.policy is stop, so the run ends there"
    assert facts(outcome).goodput == pytest.approx(0.0, abs=1e-9)  # nothing was kept
    kept = outcome_of(plans(**recovery("stop", 5 * length)), cluster)
    # the last checkpoint was two of them after the start
    lost = 7.0 - (10 * length - start) / length
    assert facts(kept).lost_examples == pytest.approx(lost * BATCH, rel=NEAR)


@pytest.mark.parametrize("at", [0.9, 1.6, 3.1])
def test_what_is_known_by_stopping_beats_no_bound(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf, at: float
) -> None:
    plan = plans("flat_ps", roles=ROLES, training={"steps": 60}, **recovery("stop"))
    cluster = clusters(prices=HEAVY, jitter=0.4, failures=failures((at, "trainer[2]")))
    outcome = outcome_of(plan, cluster)
    assert outcome.speed is not None
    assert 0 < outcome.steps < 60
    assert (outcome.speed.examples_per_second or inf) <= (outcome.bound_eps or 0.0) * (1 + 1e-9)


def test_stopping_before_anything_counts_is_a_failed_run(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    cluster = clusters(prices=HEAVY, failures=failures((0.05, "trainer[0]")))
    with pytest.raises(RunFailed, match=r"trainer\[0\] failed after 0\.05 s of simulated time, be"):
        outcome_of(plans(), cluster)


# ------------------------------------------------------------------ random failures


def test_too_many_failures_end_the_run(
    plans: Plans, clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plans(roles=ROLES, **CONTINUE)
    cluster = clusters(prices=HEAVY, failures=failures(mtbf="20 ms", restart=0.01))
    monkeypatch.setattr("recsim_train.sim.cluster.faults._MOST", 30)
    with pytest.raises(RunFailed, match=r"30 failures within .* hosts fail too often"):
        simulate(plan, cluster)


def test_all_strategies_meet_the_same_failures(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    cluster = clusters(prices=HEAVY, failures=failures(mtbf="3 s", restart=0.2))

    def met(kind: str, policy: Recovery, seed: int = 1) -> list[tuple[str, float]]:
        plan = plans(kind, roles=ROLES, **policy, seed=seed)
        return [(f.host, f.at) for f in facts(outcome_of(plan, cluster)).first_failures]

    one = met("flat_ps", CONTINUE)
    assert len(one) >= 2
    for other in (met("allreduce", CONTINUE), met("flat_ps", restart_all(1.0))):
        both = min(len(one), len(other))
        assert both >= 2
        assert one[:both] == other[:both]
    assert met("flat_ps", CONTINUE, seed=2) != one


def test_failures_are_as_frequent_as_they_are_said_to_be(plans: Plans, clusters: Clusters) -> None:
    plan = plans(roles={"trainers": 20}, **CONTINUE)
    engine = Engine()
    cluster = clusters(failures=failures(mtbf="90 s", restart=10.0))
    machines = Machines(plan, cluster, engine, Jitter(1))

    def wait() -> Steps:
        yield engine.timeout(10_000.0)

    engine.process(wait())
    engine.run()
    assert machines.there.faults is not None
    # 20 hosts, each down for 10 of 100 seconds
    assert len(machines.there.faults.failures) == pytest.approx(20 * 10_000 / 100, rel=0.05)
    up = [
        p.cores.mean_capacity(0.0, engine.now) / p.cores.capacity
        for p in machines.processes.values()
    ]
    assert sum(up) / len(up) == pytest.approx(0.9, rel=0.01)


def test_failures_of_one_role_come_to_its_hosts_only(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    unsure = failures(mtbf="0.8 s", restart=0.05, role="trainer")
    cluster = clusters(prices=HEAVY, failures=unsure)
    plan = plans(roles=ROLES, training={"steps": 200}, **CONTINUE)
    found = facts(outcome_of(plan, cluster))
    listed = found.first_failures
    assert found.failures > 2 * len(listed) == 40
    assert listed[0].at < 0.8 < listed[-1].at  # those that come first: of four hosts one in 0.2 s
    assert {failure.host.partition("[")[0] for failure in found.first_failures} == {"trainer"}


def test_what_can_not_be(plans: Plans, clusters: Clusters, outcome_of: OutcomeOf) -> None:
    cluster = clusters(failures=failures((1.0, "trainer[1]")))
    with pytest.raises(UserError, match=r"schedule\[0\]\.host: there is no trainer\[1\]: roles\.t"):
        outcome_of(plans(), cluster)
    # a role that this strategy does not need has no host that could fail
    idle = clusters(failures=failures((0.01, "dense_server[0]")))
    outcome = outcome_of(plans("allreduce", roles={"dense_servers": 1}), idle)
    assert facts(outcome).failures == 0


def test_few_failures_are_said_to_be_few(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    cluster = clusters(prices=HEAVY, failures=failures(mtbf="100 h"))
    (warning,) = outcome_of(plans(), cluster).facts.warnings
    assert warning.startswith("hosts failed 0 times in ")


def test_every_recovery_costs_something(plans: Plans, clusters: Clusters, eps: Eps) -> None:
    calm = clusters(prices=HEAVY)
    unstable = clusters(prices=HEAVY, failures=failures(mtbf="1 s", restart=0.2))
    for kind in ("flat_ps", "allreduce"):
        for policy in (CONTINUE, restart_all(0.5)):
            plan = plans(kind, roles=ROLES, **policy)
            assert eps(plan, unstable) < 0.9 * eps(plans(kind, roles=ROLES), calm)
    slower = clusters(prices=HEAVY, failures=failures(mtbf="1 s", restart=0.4))
    plan = plans("allreduce", roles=ROLES, **CONTINUE)
    assert eps(plan, slower) < eps(plan, unstable)
