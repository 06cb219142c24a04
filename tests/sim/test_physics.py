"""The simulated world obeys arithmetic and changes in the direction that physics says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recsim_train.config.cluster import Cluster, Costs, magnitude
from recsim_train.placement.plan import Plan
from recsim_train.placement.reading import reading_of
from recsim_train.sim.run import simulate
from recsim_train.sim.runtime import Runtime
from recsim_train.trace.record import Outcome
from recsim_train.workload import operations, shape
from recsim_train.workload.scope import Scope

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]
OutcomeOf = Callable[[Plan, Cluster], Outcome]
Eps = Callable[[Plan, Cluster], float]

FAST_DATA = {"path": "file.tsv"}
"""Parsing, unlike synthesising, does not hold the interpreter lock."""
SERVERS = {"trainers": 2, "embedding_servers": 2, "dense_servers": 1}


@pytest.mark.parametrize(("transport", "shared"), [("tcp", False), ("gloo", False), ("tcp", True)])
def test_one_trainer_one_server_by_hand(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf, transport: str, shared: bool
) -> None:
    """Over TCP each request and answer is one message with a head, whose bytes move as soon as it
    is sent; an update's fit into the buffers, so that the trainer goes on. Over gloo a request is
    two messages, an answer has no head, and the trainer waits until an update has arrived. On one
    machine vectors are copied: an answer's at both ends, a gradient's by who sends it."""
    # a reader process: in the trainer, reading would compete for the interpreter lock
    plan = plans(
        roles={"embedding_servers": 1, "readers": 1},
        data=FAST_DATA,
        training={"steps": 5, "warmup_steps": 2},
        execution={"transport": transport},
    )
    # a slow update, too
    prices = {"message": "10 us", "gloo_message": "13 us", "hashed_id": "400 ns"}
    cluster = clusters(prices=prices | {"shared_byte": "3 ns"}, colocate=shared)
    outcome = outcome_of(plan, cluster)
    model, b = plan.experiment.model, 64
    price = {name: getattr(cluster.costs, name).value for name in Costs.model_fields}
    effect, request = price["effect"], price["request"]
    latency, rate = 20e-6, 10e9 / 8
    ids, vectors = 6 * b, 6 * b * 8 * 4
    header = 8 * (5 + 6)  # five numbers, and one for each table
    # the CPU of a request and of an answer at each end, their heads on the wire
    if transport == "tcp":
        asked, answered, head, answer_head = 10e-6, 10e-6, 8 + 8 + header, 8
    else:
        asked, answered, head, answer_head = 2 * 13e-6, 13e-6, 8 + header, 0

    def work(name: str) -> float:
        scope = Scope(
            model,
            plan.experiment.training,
            batch=b,
            ids=ids,
            unique=ids,
            tables=6,
            elements=shape.dense_parameters(model),
        )
        return sum(n * price[p] for p, n in operations.cost(name, scope).items())

    next_batch = effect
    pull = effect + work("dense_read")
    load = effect + work("load")
    sent = latency + (head + 8 * ids) / rate
    lookup = (
        effect + work("route_ids") + asked
        + sent
        + asked + request + work("lookup_pooled") + answered
        + latency + (2 * vectors * 3e-9 if shared else (answer_head + vectors) / rate)
        + answered + work("assemble_rows")
    )  # fmt: skip
    learn = effect + work("forward_backward")
    update = effect + work("route_gradient") + asked
    brought = latency + (vectors * 3e-9 if shared else (head + vectors) / rate)
    push = effect + work("dense_apply")
    # the server's thread may still apply the last update when the next lookup reaches it
    applying = asked + request + work("update_pooled")
    meanwhile = push + next_batch + pull + load + effect + work("route_ids") + asked
    if transport == "tcp":
        late = brought + applying - (meanwhile + sent)
    else:  # the lookup's bytes wait for the thread
        update += brought
        late = applying - (meanwhile + latency)
    assert late > 0.0
    lookup += late
    whole = next_batch + pull + load + lookup + learn + update + push
    assert [i.iteration for i in outcome.iterations] == list(range(7))
    for i in outcome.iterations[1:]:
        assert i.end - i.start == pytest.approx(whole, rel=1e-9)
    parts = {(k.effect, k.name): t.seconds / t.count for k, t in outcome.totals.items()}
    assert parts["lookup", "embedding"] == pytest.approx(lookup, rel=1e-9)
    assert parts["update", "embedding"] == pytest.approx(update, rel=1e-9)
    assert parts["pull", "dense"] == pytest.approx(pull, rel=1e-9)
    assert parts["compute", "forward_backward"] == pytest.approx(learn, rel=1e-9)
    served = applying if transport == "tcp" else applying + (head + vectors) / rate
    assert parts["serve_update", "embedding"] == pytest.approx(served, rel=1e-9)
    # seven lookups and updates, and batches with their size and shape
    heads = 7 * (2 * head + answer_head) + 7 * (8 + 4 * 8)
    assert outcome.facts.header_bytes == heads


def test_a_push_above_the_buffers_waits_for_what_they_do_not_hold(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    """Its sender goes on when 4 MiB are left to move."""
    plan = plans(
        roles={"dense_servers": 1, "readers": 1},
        data=FAST_DATA,
        model={"top_mlp": (1100, 1100, 1)},
        training={"steps": 3, "warmup_steps": 1},
    )
    outcome = outcome_of(plan, clusters())
    payload = 4 * shape.dense_parameters(plan.experiment.model)
    beyond = payload - (4 << 20)
    assert 0 < beyond < payload / 2
    head = 8 + 8 + 8 * (5 + 6)
    seconds = 10e-6 + 10e-6 + 20e-6 + (head + beyond) / (10e9 / 8)
    pushed = [t.seconds / t.count for k, t in outcome.totals.items() if k.effect == "push"]
    assert pushed == [pytest.approx(seconds, rel=1e-9)]


@pytest.mark.parametrize(("transport", "threads"), [("tcp", 1), ("gloo", 2)])
def test_a_process_serves_a_loop_with_one_thread_over_tcp(
    plans: Plans, clusters: Clusters, fake_counts: Any, transport: str, threads: int
) -> None:
    plan = plans(roles={"trainers": 2}, execution={"transport": transport})
    runtime = Runtime(plan, clusters(), fake_counts(plan), iterations=1)
    runtime.run()
    for loop in runtime.loops:
        assert len(loop.serving) == 2  # an embedding and a dense shard of the other trainer
        assert len({id(thread) for thread in loop.serving.values()}) == threads


def test_a_profile_that_knows_only_the_messages_of_gloo_says_so(
    plans: Plans, clusters: Clusters
) -> None:
    new = clusters()
    costs = new.costs.model_copy(update={"gloo_message": magnitude(5e-5)})
    old = new.model_copy(update={"costs": costs})
    said = "measured before requests went over TCP"
    for cluster, transport, warned in ((old, "tcp", 1), (new, "tcp", 0), (old, "gloo", 0)):
        plan = plans(execution={"transport": transport}, simulation=NO_WHAT_IF)
        found = [text for text in simulate(plan, cluster).facts.warnings if said in text]
        assert len(found) == warned


def test_all_reduce_by_hand(plans: Plans, clusters: Clusters, outcome_of: OutcomeOf) -> None:
    plan = plans("allreduce", roles={"trainers": 4}, data=FAST_DATA)
    outcome = outcome_of(plan, clusters(prices={"collective_message": "35 us"}))
    dense = 4 * shape.dense_parameters(plan.experiment.model)
    steps = 2 * 3
    seconds = 10e-6 + steps * 35e-6 + steps * (20e-6 + 20e-6) + steps / 4 * dense / (10e9 / 8)
    spans = [t for k, t in outcome.totals.items() if k.effect == "all_reduce"]
    assert len(spans) == 4
    assert sum(t.bytes for t in spans) == 4 * 20 * dense
    assert min(t.seconds / t.count for t in spans) == pytest.approx(seconds, rel=1e-6)
    ends = [s.end for s in outcome.spans if s.effect == "all_reduce" and s.iteration == 5]
    assert len(ends) == 4
    assert max(ends) - min(ends) < 1e-12


@pytest.mark.parametrize("pooling", ["server", "worker"])
@pytest.mark.parametrize("kind", ["flat_ps", "allreduce"])
def test_payload_by_hand(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf, kind: str, pooling: str
) -> None:
    plan = plans(kind, {"pooling": pooling}, roles={**SERVERS, "readers": 1})
    outcome = outcome_of(plan, clusters())
    found: dict[str, float] = {}
    for key, total in outcome.totals.items():
        found[key.effect] = found.get(key.effect, 0) + total.bytes
    iterations, b, ids = 2 * 20, 64, 64 * 6
    dense = 4 * shape.dense_parameters(plan.experiment.model)
    rows = 4 * 8 * ids
    expected = {
        "lookup": 8 * ids,
        "serve_lookup": rows,
        "update": rows if pooling == "server" else rows + 8 * ids,
        "serve_update": 0,
        "next_batch": 0,
        "serve_next_batch": b * (4 * 4 + 4) + 8 * ids,
        "compute": 0,
    }
    if kind == "flat_ps":
        expected |= {"pull": 0, "serve_pull": dense, "push": dense, "serve_push": 0}
    else:
        expected |= {"all_reduce": dense}
    assert found == {effect: size * iterations for effect, size in expected.items()}


@pytest.mark.parametrize("kind", ["flat_ps", "allreduce"])
def test_one_process_sends_nothing(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf, kind: str
) -> None:
    outcome = outcome_of(plans(kind), clusters())
    assert outcome.totals
    assert all(total.bytes == 0 for total in outcome.totals.values())
    assert outcome.facts.header_bytes == 0
    busy = {u.resource: u.busy for u in outcome.utilisation}
    assert busy["trainer[0].nic.tx"] == busy["trainer[0].nic.rx"] == 0.0
    assert busy["trainer[0].cores"] > 0.0


def test_what_is_sent_is_received_and_is_what_the_spans_say(
    plans: Plans, clusters: Clusters, fake_counts: Any
) -> None:
    plan = plans(roles={**SERVERS, "readers": 1}, training={"threads": 2})
    cluster = clusters(nic="1 Gbit/s")
    runtime = Runtime(plan, cluster, fake_counts(plan), iterations=8)
    runtime.run()
    used = dict(zip(runtime.engine.fluid.resources, runtime.engine.used(), strict=True))
    sent = {r.name: u for r, u in used.items() if r.name.endswith("nic.tx")}
    received = {r.name: u for r, u in used.items() if r.name.endswith("nic.rx")}
    payload = sum(span.bytes for span in runtime.ledger.spans)
    assert sum(sent.values()) == pytest.approx(sum(received.values()), rel=1e-9)
    wire = payload + runtime.machines.header_bytes
    assert sum(sent.values()) == pytest.approx(wire, rel=1e-9)
    by_instance: dict[str, int] = {}
    for span in runtime.ledger.spans:
        by_instance[span.instance] = by_instance.get(span.instance, 0) + span.bytes
    server = sent["embedding_server[0].nic.tx"]
    heads = 8 * (4 * 8)  # of answers to four loops' lookups
    assert server == pytest.approx(by_instance["embedding_server[0]"] + heads, rel=1e-9)
    for resource, units in used.items():
        assert units <= resource.capacity * runtime.engine.now * (1 + 1e-9)
    assert runtime.settled() == 8


def test_bytes_cost_cpu_at_both_ends(plans: Plans, clusters: Clusters, fake_counts: Any) -> None:
    plan = plans(roles=SERVERS)

    def cores(wire_byte: str) -> tuple[dict[str, float], dict[str, float]]:
        cluster = clusters(prices={"wire_byte": wire_byte})
        runtime = Runtime(plan, cluster, fake_counts(plan), iterations=8)
        runtime.run()
        names = [r.name for r in runtime.engine.fluid.resources]
        used = dict(zip(names, runtime.engine.used(), strict=True))
        wire = {i.name: used[f"{i.name}.nic.tx"] + used[f"{i.name}.nic.rx"] for i in plan.instances}
        return {i.name: used[f"{i.name}.cores"] for i in plan.instances}, wire

    free, _ = cores("0 ps")
    paid, wire = cores("100 ps")
    for name in free:
        assert wire[name] > 0
        assert paid[name] - free[name] == pytest.approx(1e-10 * wire[name], rel=1e-6)


@pytest.mark.parametrize("nic", ["20 Mbit/s", "10 Gbit/s"])
def test_bounds_are_capacity_over_use(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf, eps: Eps, nic: str
) -> None:
    plan, cluster = plans(roles=SERVERS), clusters(nic=nic)
    outcome, speed = outcome_of(plan, cluster), eps(plan, cluster)
    bounds = outcome.facts.bounds
    used = [u for u in outcome.utilisation if u.busy > 0]
    assert len(used) > 8
    for u in used:
        # busy = speed / bound, but for iterations that the window cuts
        assert speed * (1 - 1e-9) <= u.busy * bounds[u.resource] <= 1.1 * speed
    assert outcome.bound_eps == min(bounds.values())


NO_WHAT_IF = {"what_if_steps": 0}
EVERY_KIND = [
    ("flat_ps", {}, {**SERVERS, "readers": 1}, {"threads": 2}),
    ("flat_ps", {"pooling": "worker"}, SERVERS, {}),
    ("flat_ps", {}, {}, {}),
    ("allreduce", {}, {"trainers": 3, "embedding_servers": 1}, {}),
    ("allreduce", {}, {"trainers": 3}, {}),
    ("shadowsync", {}, SERVERS, {"threads": 2}),
    ("shadowsync", {"algorithm": "ma"}, {"trainers": 2}, {}),
    ("des", {}, {"trainers": 2}, {}),
    ("hierarchical", {"outer": "easgd"}, {"trainers": 4, "dense_servers": 1}, {}),
]


@pytest.mark.parametrize(("kind", "options", "roles", "training"), EVERY_KIND, ids=str)
def test_no_prediction_beats_what_its_loops_can_do(
    plans: Plans,
    clusters: Clusters,
    kind: str,
    options: dict[str, Any],
    roles: dict[str, Any],
    training: dict[str, Any],
) -> None:
    """With the luck and the ids that a run had: chance must not beat the bound either."""
    plan = plans(kind, options, roles=roles, training=training, simulation=NO_WHAT_IF)
    outcome = simulate(plan, clusters(jitter=0.7))
    bounds = outcome.facts.bounds
    assert outcome.speed is not None
    assert outcome.speed.examples_per_second is not None
    assert outcome.speed.examples_per_second <= bounds["loops"] * (1 + 1e-9)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_loops_bound_has_the_luck_that_the_run_had(
    plans: Plans, clusters: Clusters, seed: int
) -> None:
    """One loop that shares nothing does what its bound says, however its computations vary."""
    plan = plans(roles={"readers": 1}, data=FAST_DATA, simulation=NO_WHAT_IF, seed=seed)
    outcome = simulate(plan, clusters(jitter=0.7, prices={"parse_row": "0 ns"}))
    bounds = outcome.facts.bounds
    assert outcome.speed is not None
    assert outcome.speed.examples_per_second == pytest.approx(bounds["loops"], rel=0.02)


def test_the_loops_bound_is_their_own_work_and_no_more(plans: Plans, clusters: Clusters) -> None:
    """Three threads that queue for one core: alone, each would do what they do together."""
    cluster = clusters(cores=1, prices={"gemm_flop": "5 ns", "parse_row": "0 ns"})

    def predict(threads: int) -> Outcome:
        training = {"threads": threads}
        roles = {"readers": 1}  # elsewhere, so that reading takes nothing of the core
        plan = plans(training=training, roles=roles, data=FAST_DATA, simulation=NO_WHAT_IF)
        return simulate(plan, cluster)

    one, three = predict(1), predict(3)
    own = sum(t.seconds for k, t in one.totals.items() if k.loop.startswith("worker")) / 20
    bounds = three.facts.bounds
    assert bounds["loops"] == pytest.approx(3 * 64 / own, rel=0.02)
    assert three.speed is not None
    assert three.speed.examples_per_second == pytest.approx(64 / own, rel=0.05)


# ------------------------------------------------------------------ directions


SLOW_NIC = {"nic": "50 Mbit/s"}


def test_nic_binds_then_doubling_it_nearly_doubles_speed(
    plans: Plans, clusters: Clusters, eps: Eps, outcome_of: OutcomeOf
) -> None:
    plan = plans(roles={**SERVERS, "embedding_servers": 1}, training={"threads": 4}, data=FAST_DATA)
    slow, fast = clusters(nic="50 Mbit/s"), clusters(nic="100 Mbit/s")
    assert "NIC" in str(outcome_of(plan, slow).bottleneck)
    assert eps(plan, fast) == pytest.approx(2 * eps(plan, slow), rel=0.1)


def test_nic_that_does_not_bind_still_matters_a_little(
    plans: Plans, clusters: Clusters, eps: Eps
) -> None:
    plan = plans(roles=SERVERS)
    assert eps(plan, clusters(nic="10 Gbit/s")) < eps(plan, clusters(nic="20 Gbit/s"))


def test_trainers_that_compute_scale(plans: Plans, clusters: Clusters, eps: Eps) -> None:
    slow = clusters(prices={"gemm_flop": "10 ns"})
    speeds = [eps(plans(roles={**SERVERS, "trainers": n}), slow) for n in (1, 2, 4)]
    assert speeds[1] == pytest.approx(2 * speeds[0], rel=0.05)
    assert speeds[2] == pytest.approx(4 * speeds[0], rel=0.05)


def test_servers_that_bind_scale(
    plans: Plans, clusters: Clusters, eps: Eps, outcome_of: OutcomeOf
) -> None:
    server = clusters().hosts["default"].model_copy(update={"cores": 1})
    cluster = clusters(hosts={"embedding_server": server}, prices={"gather_row": "20 us"})
    many = {"trainers": 4, "dense_servers": 1}
    one = plans(roles={**many, "embedding_servers": 1})
    two = plans(roles={**many, "embedding_servers": 2})
    assert outcome_of(one, cluster).bottleneck == "cores of embedding_server[0]"
    assert eps(two, cluster) == pytest.approx(2 * eps(one, cluster), rel=0.1)


def test_larger_batches_amortise_overheads(plans: Plans, clusters: Clusters, eps: Eps) -> None:
    slow = clusters(network={"latency": "2 ms"})
    speeds = [eps(plans(roles=SERVERS, training={"batch_size": b}), slow) for b in (32, 64)]
    assert speeds[1] == pytest.approx(2 * speeds[0], rel=0.1)


def test_processes_of_one_machine_share_its_cores(
    plans: Plans, clusters: Clusters, eps: Eps, outcome_of: OutcomeOf
) -> None:
    plan = plans(roles={**SERVERS, "trainers": 4})
    shared = clusters(colocate=True, cores=2)
    wide = clusters(colocate=True, cores=4)
    assert outcome_of(plan, shared).bottleneck == "cores of the machine"
    assert eps(plan, wide) == pytest.approx(2 * eps(plan, shared), rel=0.15)
    crowded = clusters(colocate=True, cores=2, contention=0.8)
    assert eps(plan, crowded) == pytest.approx(0.8 * eps(plan, shared), rel=0.02)


def test_interpreter_lock_binds_with_many_threads(
    plans: Plans, clusters: Clusters, eps: Eps, outcome_of: OutcomeOf
) -> None:
    cluster = clusters(cores=64, prices={"interpreter": "40 us", "call": "10 us"})
    few, many, most = (plans(training={"threads": n}, data=FAST_DATA) for n in (1, 8, 16))
    assert outcome_of(most, cluster).bottleneck == "interpreter lock of trainer[0]"
    assert eps(most, cluster) == pytest.approx(eps(many, cluster), rel=0.03)
    assert eps(many, cluster) < 4 * eps(few, cluster)


@pytest.mark.parametrize("readers", [0, 1])
def test_slow_readers_bind(
    plans: Plans, clusters: Clusters, eps: Eps, outcome_of: OutcomeOf, readers: int
) -> None:
    # whole bunches of what a reader makes at a time
    training = {"steps": 160, "warmup_steps": 16}
    # and a queue that takes them, so that the next can be begun at once
    data = {**FAST_DATA, "queue_batches": 16}
    plan = plans(roles={"readers": readers}, data=data, training=training)
    cluster = clusters(prices={"parse_row": "200 us"})
    quick = clusters(prices={"parse_row": "100 us"})

    def bound(profile: Cluster) -> float:
        price = {name: getattr(profile.costs, name).value for name in Costs.model_fields}
        scope = reading_of(plan, plan.reader_of(plan.feeding[0]))
        work = operations.cost("reading", scope)
        return 64 * scope.batches / operations.seconds(work, price)[0]

    outcome = outcome_of(plan, cluster)
    # a reader inside the trainer also waits for the interpreter lock now and then
    near = 0.02 if readers else 0.04
    assert eps(plan, cluster) == pytest.approx(bound(cluster), rel=near)
    if readers:
        assert outcome.bottleneck == "parsing thread of reader[0]"
    else:
        # one thread of each loop, which parses without the interpreter's lock
        assert outcome.bottleneck is not None
        assert outcome.bottleneck.startswith("waiting for readers")
    assert eps(plan, quick) == pytest.approx(bound(quick), rel=near)


def test_more_reader_processes_help_when_one_binds(
    plans: Plans, clusters: Clusters, eps: Eps
) -> None:
    cluster = clusters(prices={"parse_row": "200 us"})
    one, two = (plans(roles={"trainers": 2, "readers": n}, data=FAST_DATA) for n in (1, 2))
    assert eps(two, cluster) == pytest.approx(2 * eps(one, cluster), rel=0.05)


def test_latency_binds_and_says_so(
    plans: Plans, clusters: Clusters, eps: Eps, outcome_of: OutcomeOf
) -> None:
    plan = plans("allreduce", roles={"trainers": 2, "embedding_servers": 1})
    slow = clusters(network={"latency": "5 ms"})
    outcome = outcome_of(plan, slow)
    assert str(outcome.bottleneck).startswith("latency (")
    # nothing is shared here, so one loop's own iteration gives the bound
    assert eps(plan, slow) == pytest.approx(outcome.bound_eps, rel=0.05)
    assert eps(plan, clusters(network={"latency": "10 ms"})) == pytest.approx(
        0.5 * eps(plan, slow), rel=0.1
    )


def test_what_an_unsaturated_iteration_is_made_of(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    """The words follow what is made slow; nothing is near saturation in any of them."""
    alone = plans(roles={"trainers": 1, "embedding_servers": 1, "dense_servers": 1})
    slow_calls = clusters(prices={"gemm_flop": "50 ns"})
    assert str(outcome_of(alone, slow_calls).bottleneck).startswith("computation in each training")
    thin = outcome_of(alone, clusters(network={"connection_cap": "1 Mbit/s"}))
    assert str(thin.bottleneck).startswith("bytes on their way (")
    trainers = plans("allreduce", roles={"trainers": 4, "embedding_servers": 1})
    uneven = clusters(jitter=1.5, prices={"gemm_flop": "1 ns"})
    assert str(outcome_of(trainers, uneven).bottleneck).startswith("waiting for other loops (")


def test_fewer_exchanges_are_faster(plans: Plans, clusters: Clusters, eps: Eps) -> None:
    thin = clusters(nic="20 Mbit/s")
    speeds = [eps(plans("flat_ps", {"mode": "easgd", "every": k}, roles=SERVERS), thin)
              for k in (1, 4)]  # fmt: skip
    assert speeds[1] > 1.3 * speeds[0]


def test_connection_cap_binds(plans: Plans, clusters: Clusters, eps: Eps) -> None:
    plan = plans(roles=SERVERS)
    capped = clusters(network={"connection_cap": "20 Mbit/s"})
    assert eps(plan, capped) < 0.8 * eps(plan, clusters())


def test_lock_step_waits_for_the_slowest(plans: Plans, clusters: Clusters, eps: Eps) -> None:
    steady, shaky = (clusters(jitter=j, prices={"gemm_flop": "2 ns"}) for j in (0.0, 0.5))
    lock_step = plans("allreduce", roles={"trainers": 4, "embedding_servers": 1})
    loss = eps(lock_step, shaky) / eps(lock_step, steady)
    free = plans("flat_ps", roles={"trainers": 4, "embedding_servers": 1})
    assert loss < 0.9
    assert loss < eps(free, shaky) / eps(free, steady)
    calm = plans("allreduce", roles=lock_step.experiment.roles.model_dump(),
                 simulation={"stragglers": False})  # fmt: skip
    assert eps(calm, shaky) == eps(calm, steady)


def test_work_per_iteration_stays_small(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    """A proxy of speed that no busy machine disturbs."""
    plan = plans(roles=SERVERS, training={"threads": 2})
    facts = outcome_of(plan, clusters()).facts
    iterations = 4 * 23
    assert facts.activities == pytest.approx(28 * iterations, rel=0.2)
    assert facts.events is not None
    assert facts.events < 130 * iterations
