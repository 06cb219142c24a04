"""The parts of an iteration, resources over time, servers needed: against what must come out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recsim_train.config.cluster import Cluster
from recsim_train.placement.plan import Plan
from recsim_train.results.statistics import throughput, throughput_within
from recsim_train.sim.fluid.solver import Fluid
from recsim_train.sim.pricing import Pricing
from recsim_train.sim.records import COMPUTE, QUEUEING, TRANSFER, WAITING, Account, Chain
from recsim_train.sim.why.usage import by_class, over_time
from recsim_train.trace.binding import class_of
from recsim_train.trace.facts import Busiest, CriticalPath
from recsim_train.trace.record import Iteration, Outcome
from recsim_train.workload.shape import dense_parameters
from tests.simulated import simulate

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]


def path_of(outcome: Outcome) -> CriticalPath:
    found = outcome.facts.critical_path
    assert found is not None
    return found


def share(parts: dict[str, float], part: str) -> float:
    return parts[part] / sum(parts.values())


def test_parts_add_up_to_the_effects(plans: Plans, clusters: Clusters) -> None:
    plan = plans("shadowsync", roles={"trainers": 3, "embedding_servers": 2, "dense_servers": 1})
    outcome = simulate(plan, clusters(jitter=0.2, nic="1 Gbit/s"))
    path = path_of(outcome)
    counted = [i for i in outcome.iterations if i.iteration >= 3]
    mean = sum(i.end - i.start for i in counted) / len(counted)
    assert path.seconds == pytest.approx(mean)
    training = {loop.name for loop in plan.training}
    for effect, parts in path.effects.items():
        exact = sum(
            total.seconds
            for key, total in outcome.totals.items()
            if key.effect == effect and f"{key.instance}.{key.loop}" in training
        )
        assert sum(parts.values()) == pytest.approx(exact / len(counted)), effect
        assert min(parts.values()) >= 0.0
    assert sum(sum(parts.values()) for parts in path.effects.values()) == pytest.approx(mean)
    assert set(path.hidden) == {"exchange"}  # the shadow's, beside training
    assert path.hidden["exchange"] > 0.0


@pytest.mark.usefixtures("equal_shares")
def test_one_trainer_alone_queues_behind_itself_at_most(plans: Plans, clusters: Clusters) -> None:
    """Nobody waits until a push has arrived, so that the next pull stands in line behind
    it: until its bytes have moved, and the server has received and applied it, less what the
    trainer does meanwhile."""
    roles = {"trainers": 1, "embedding_servers": 1, "dense_servers": 1}
    plan = plans(roles=roles)
    # reading goes on beside training: it must not take its interpreter lock
    prices = {"synthesize_row": "0 ns", "interpreter": "0 ns", "handover": "0 ns"}
    prices["asking"] = "0 ns"  # the trainer comes back while its push is applied
    cluster = clusters(jitter=0.0, prices=prices)
    effects = path_of(simulate(plan, cluster)).effects
    assert {"compute", "lookup", "update", "pull", "push"} <= set(effects)
    elements = dense_parameters(plan.experiment.model)
    apply = Pricing(plan.experiment, cluster, 64).operation("dense_apply", elements=elements)
    behind = 4 * elements / (10e9 / 8) + 10e-6 + 20e-6 + apply[0]  # message, request
    meanwhile = 10e-6 + 10e-6 + 10e-6  # NextBatch, Pull, message
    assert effects["pull"]["queueing"] == pytest.approx(behind - meanwhile, rel=1e-3)
    effects["pull"]["queueing"] = 0.0
    for effect in ("compute", "lookup", "pull"):
        parts = effects[effect]
        assert share(parts, "queueing") < 0.02, effect
        assert share(parts, "waiting") < 0.02, effect
    assert share(effects["compute"], "compute") > 0.98
    assert effects["pull"]["transfer"] > 0.0


def test_who_is_fast_waits_for_who_is_slow(plans: Plans, clusters: Clusters) -> None:
    mixed = {"trainer": ({"count": 1, "speed": 0.5}, {})}
    model = {"top_mlp": (2048, 1)}
    plan = plans("allreduce", model=model, roles={"trainers": 2, "embedding_servers": 1})
    outcome = simulate(plan, clusters(jitter=0.0, mixed=mixed))
    path = path_of(outcome).effects
    spent = {
        trainer: sum(
            t.seconds
            for k, t in outcome.totals.items()
            if k.instance == f"trainer[{trainer}]" and k.effect == "compute"
        )
        for trainer in (0, 1)
    }
    behind = (spent[0] - spent[1]) / 20  # per iteration; the fast one waits for it, in one effect
    waited = sum(parts["waiting"] for parts in path.values()) * 2  # the mean is over both
    assert spent[0] == pytest.approx(2 * spent[1], rel=1e-6)
    assert waited > 0.9 * behind


def test_a_full_server_makes_queues(plans: Plans, clusters: Clusters) -> None:
    roles = {"trainers": 8, "embedding_servers": 1, "dense_servers": 1}
    hosts = {"dense_server": {"cores": 8, "memory": "64 GiB", "nic": "50 Mbit/s"}}
    plan = plans(roles=roles, model={"top_mlp": (256, 1)})
    outcome = simulate(plan, clusters(jitter=0.1, hosts=hosts))
    effects = path_of(outcome).effects
    assert share(effects["pull"], "queueing") > 0.5
    needed = outcome.facts.servers_needed
    assert needed is not None
    assert needed["dense_server"].hosts_left is None
    assert needed["dense_server"].needed > 1
    assert outcome.binding is not None
    assert outcome.binding.resource.startswith("dense_server")


def test_enough_servers_are_enough(plans: Plans, clusters: Clusters) -> None:
    hosts = {"dense_server": {"cores": 8, "memory": "64 GiB", "nic": "50 Mbit/s"}}
    cluster = clusters(jitter=0.1, hosts=hosts)

    def with_servers(count: int) -> Outcome:
        roles = {"trainers": 4, "embedding_servers": 1, "dense_servers": count}
        return simulate(plans(roles=roles, model={"top_mlp": (256, 1)}), cluster)

    first = with_servers(1)
    assert first.facts.servers_needed is not None
    needed = first.facts.servers_needed["dense_server"].needed
    enough, less = with_servers(needed), with_servers(needed - 1)

    def bound(outcome: Outcome) -> float:
        classes = outcome.facts.class_bounds.items()
        return min(b for name, b in classes if name.startswith("dense server"))

    allowed = first.facts.servers_needed["dense_server"].others_allow
    assert bound(enough) >= 0.97 * allowed
    assert bound(less) < allowed


def test_busy_shares_over_time_are_the_utilisation(plans: Plans, clusters: Clusters) -> None:
    plan = plans(roles={"trainers": 3, "embedding_servers": 2, "dense_servers": 1})
    outcome = simulate(plan, clusters(jitter=0.2))
    curve = outcome.facts.over_time
    assert curve is not None
    edges = [curve.start, *curve.seconds]
    assert edges == sorted(edges)
    for shares in curve.busy.values():
        assert len(shares) == len(edges) - 1
        assert all(0.0 <= s <= 1.0 for s in shares)
    busy = outcome.utilisation
    counted = [(a, b) for a, b in zip(edges, edges[1:], strict=False) if a > 0.2 * edges[-1]]
    named = curve.busiest["dense server: NIC receive"]
    mean = sum(s * (b - a) for s, (a, b) in zip(named.busy[-len(counted) :], counted, strict=True))
    mean /= sum(b - a for a, b in counted)
    assert mean == pytest.approx(busy["dense_server[0].nic.rx"], rel=0.15)


def test_curves_of_two_resources() -> None:
    fluid = Fluid()
    made = [fluid.resource(f"trainer[{n}].cores", 2.0) for n in range(2)]
    curve: Any = over_time(made, [(0.0, [0.0, 0.0]), (1.0, [1.0, 2.0]), (3.0, [1.0, 4.0])])
    assert curve.seconds == (1.0, 3.0)
    assert curve.busy == {"trainer: cores": (0.75, 0.25)}
    assert curve.busiest == {"trainer: cores": Busiest("trainer[1].cores", busy=(1.0, 0.5))}
    assert over_time(made, [(0.0, [0.0, 0.0])]) is None


def test_classes_of_resources() -> None:
    assert class_of("embedding_server[3].nic.tx") == "embedding server: NIC send"
    assert class_of("machine.cores") == "machine: cores"
    assert class_of("rack[0].up") == "rack: uplink"
    bounds = {"trainer[0].cores": 5.0, "trainer[1].cores": 3.0, "loops": 4.0}
    assert list(by_class(bounds).items()) == [("trainer: cores", 3.0), ("loops", 4.0)]


def test_a_chain_is_shared_out_over_the_wait() -> None:
    account = Account(first=1)
    account.now[COMPUTE] = 1.0
    account.blame(2.0, Chain(compute=1.0, transfer=1.0, waiting=1.0, total=4.0))  # half of it
    account.close("pull", 1, 4.0)
    expected = {COMPUTE: 1.5, TRANSFER: 0.5, WAITING: 0.5, QUEUEING: 1.5}
    assert account.effects["pull"] == [expected[part] for part in range(4)]
    account.close("pull", 0, 7.0)  # not counted
    assert sum(account.effects["pull"]) == 4.0


def test_of_a_chain_only_what_nothing_hid_is_certain() -> None:
    account = Account(first=1)
    account.take(COMPUTE, 1.0)
    account.blame(2.0, Chain(compute=1.0, transfer=2.0, waiting=0.5, total=4.0))  # 2 s were hidden
    account.close("lookup", 1, 5.0)
    account.blame(1.0, Chain(compute=1.0, transfer=1.0, waiting=2.0, total=4.0))  # all of it hid
    account.close("update", 1, 1.0)
    account.take(TRANSFER, 0.25)
    account.close("all_reduce", 2, 1.0)
    account.close("now", 0, 1.0)  # not counted
    assert account.least == {1: 2.0, 2: 0.25}


def test_loops_that_are_ahead_do_not_lower_a_steady_rate() -> None:
    """Two loops of one iteration a second; one is two iterations ahead when it is looked at."""
    ahead = [Iteration("a", k, float(k), k + 1.0) for k in range(12)]
    behind = [Iteration("b", k, 2.0 + k, k + 3.0) for k in range(10)]
    everything = ahead + behind
    whole = throughput(everything, warmup=0, steps=10, batch_size=5)
    assert whole.examples / whole.seconds == pytest.approx(100 / 12)
    assert whole.examples_per_second == pytest.approx(10.0)
    steady = throughput_within(everything, 2.0, 12.0, steps=10, batch_size=5)
    assert steady.examples_per_second == pytest.approx(10.0)
    inside = throughput_within(everything, 2.5, 11.25, steps=8, batch_size=5)
    assert inside.examples_per_second == pytest.approx(10.0)  # parts of iterations count
    assert inside.ci95 is not None
    assert inside.ci95[1] - inside.ci95[0] == pytest.approx(0.0, abs=1e-9)
