"""What a prediction says of small plans, against arithmetic by hand: times, payloads, bytes."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

import pytest

from recsim_train.config.cluster import Cluster, Costs
from recsim_train.placement.plan import Plan
from recsim_train.sim.runtime import Runtime
from recsim_train.trace.ledger import COLLECTIVES, TRANSPORT
from recsim_train.trace.record import Outcome
from recsim_train.workload import operations, shape
from recsim_train.workload.scope import Scope
from tests.sim.priced import priced
from tests.simulated import simulate

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]
OutcomeOf = Callable[[Plan, Cluster], Outcome]
Eps = Callable[[Plan, Cluster], float]

NO_WHAT_IF = {"what_if_steps": 0}
FAST_DATA = {"path": ("file.tsv",), "generate": True}
"""Parsing makes fewer calls out of Python, which hold the interpreter lock, than synthesising."""
SERVERS = {"trainers": 2, "embedding_servers": 2, "dense_servers": 1}


@pytest.mark.usefixtures("equal_shares")
@pytest.mark.parametrize("shared", [False, True])
def test_one_trainer_one_server_by_hand(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf, shared: bool
) -> None:
    """Each request and answer is one message with a head, whose bytes move as soon as it is sent;
    an update's fit into the buffers, so that the trainer goes on. On one machine vectors are copied
    by who sends them, and used where they are."""
    # a reader process: in the trainer, reading would compete for the interpreter lock
    plan = plans(
        roles={"embedding_servers": 1, "readers": 1},
        data=FAST_DATA,
        training={"steps": 5, "warmup_steps": 2},
    )
    # a slow update, too
    prices = {"message": "10 us", "hashed_id": "800 ns"}
    cluster = clusters(prices=prices | {"shared_byte": "3 ns"}, colocate=shared)
    outcome = outcome_of(plan, cluster)
    model, b = plan.experiment.model, 64
    price = {name: getattr(cluster.costs, name).value for name in Costs.model_fields}
    effect, request = price["effect"], price["request"]
    ask = effect + price["asking"]
    latency, rate = 20e-6, 10e9 / 8
    ids, vectors = 6 * b, 6 * b * 8 * 4
    header = 8 * (5 + 6)  # five numbers, and one for each table
    # the CPU of a request and of an answer at each end, their heads on the wire
    asked, answered, head, answer_head = 10e-6, 10e-6, 8 + 8 + header, 8

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
    pull = ask + work("dense_read")
    load = effect + work("load")
    sent = latency + (head + 8 * ids) / rate
    lookup = (
        ask + work("route_ids") + asked
        + sent
        + asked + request + work("lookup_pooled") + answered
        + latency + (vectors * 3e-9 if shared else (answer_head + vectors) / rate)
        + answered + work("assemble_rows")
    )  # fmt: skip
    learn = effect + work("forward_backward")
    update = ask + work("route_gradient") + asked
    brought = latency + (vectors * 3e-9 if shared else (head + vectors) / rate)
    push = ask + work("dense_apply")
    # the server's thread may still apply the last update when the next lookup reaches it
    applying = asked + request + work("update_pooled")
    meanwhile = push + next_batch + pull + load + ask + work("route_ids") + asked
    late = brought + applying - (meanwhile + sent)
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
    assert parts["serve_update", "embedding"] == pytest.approx(applying, rel=1e-9)
    # seven lookups and updates, and batches with their size and shape
    heads = 7 * (2 * head + answer_head) + 7 * (8 + 4 * 8)
    assert outcome.facts.header_bytes == heads


@pytest.mark.parametrize(("servers", "wire"), [(1, "full"), (2, "full"), (2, "float16")])
def test_parts_of_a_vector_that_is_pulled_are_copied_to_their_places_one_alone_is_not(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf, servers: int, wire: str
) -> None:
    """What is widened is read where it lies, too. A gradient is made where it can be sent from to
    one shard."""

    def pulling(byte: str) -> float:
        plan = plans(
            roles={"dense_servers": servers, "readers": 1},
            data=FAST_DATA,
            model={"top_mlp": (300, 300, 1)},
            training={"steps": 3, "warmup_steps": 1},
            execution={"wire": wire},
        )
        prices = {"shared_byte": byte, "message": "1 us"}
        outcome = outcome_of(plan, clusters(prices=prices, colocate=True))
        (found,) = [t for k, t in outcome.totals.items() if k.effect == "pull"]
        assert found.bytes == 0
        numbers = shape.dense_parameters(plan.experiment.model)
        payload = (4 if wire == "full" else 2) * numbers
        return found.seconds / found.count / payload

    # shards of the same size send at the same time, and first each takes the push before the pull
    copies = {(1, "full"): 1, (2, "full"): 3, (2, "float16"): 2}[servers, wire]
    assert pulling("30 ns") - pulling("10 ns") == pytest.approx(20e-9 * copies / servers, rel=0.02)


@pytest.mark.parametrize(
    ("every", "wire", "copies"), [(1, "full", 1), (1, "float16", 2), (2, "full", 2)]
)
def test_a_push_of_what_has_been_worked_on_is_copied(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf, every: int, wire: str, copies: int
) -> None:
    """Seconds of the transport for each pull and push."""

    def spent(byte: str) -> float:
        plan = plans(
            options={"every": every},
            roles={"dense_servers": 1, "readers": 1},
            data=FAST_DATA,
            training={"batch_size": 8, "steps": 4, "warmup_steps": 0},  # its rows are not shared
            execution={"wire": wire},
            model={"top_mlp": (300, 300, 1)},
        )
        outcome = outcome_of(plan, clusters(prices={"shared_byte": byte}, colocate=True))
        ledger = outcome.facts.ledger
        assert ledger is not None
        numbers = shape.dense_parameters(plan.experiment.model)
        return ledger.spent(TRANSPORT) / ((4 if wire == "full" else 2) * numbers * 4 / every)

    assert spent("30 ns") - spent("10 ns") == pytest.approx(20e-9 * copies, rel=0.02)


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
    # an effect, one that asks, a message, the latency, and frames
    wire = head + beyond + 66 * ceil((head + beyond) / 1448)
    # at the second link once more the time of a frame
    seconds = 10e-6 + 15e-6 + 10e-6 + 20e-6 + (wire + 1514) * 1448 / 1514 / (10e9 / 8)
    pushed = [t.seconds / t.count for k, t in outcome.totals.items() if k.effect == "push"]
    assert pushed == [pytest.approx(seconds, rel=1e-9)]


def test_a_process_serves_a_loop_with_one_thread(
    plans: Plans, clusters: Clusters, fake_counts: Any
) -> None:
    plan = plans(roles={"trainers": 2})
    runtime = Runtime(plan, clusters(), fake_counts(plan), iterations=1)
    runtime.run()
    for loop in runtime.loops:
        assert len(loop.serving) == 2  # an embedding and a dense shard of the other trainer
        assert len({id(thread) for thread in loop.serving.values()}) == 1


@pytest.mark.usefixtures("equal_shares")
def test_all_reduce_by_hand(plans: Plans, clusters: Clusters, outcome_of: OutcomeOf) -> None:
    plan = plans("allreduce", roles={"trainers": 4}, data=FAST_DATA)
    outcome = outcome_of(plan, clusters(prices={"collective_message": "35 us"}))
    dense = 4 * shape.dense_parameters(plan.experiment.model)
    steps = 2 * 3  # in each a notice and a message travel one after the other
    seconds = 10e-6 + steps * 35e-6 + steps * (20e-6 + 2 * 20e-6) + steps / 4 * dense / (10e9 / 8)
    # but in the first of each way around half of a message's bytes travel with the other's notice
    seconds -= (steps - 2) * dense / 8 / (10e9 / 8)
    seconds += steps * 1448 / (10e9 / 8)  # a frame is whole before it goes on
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
    busy = outcome.utilisation
    assert busy["trainer[0].nic.tx"] == busy["trainer[0].nic.rx"] == 0.0
    assert busy["trainer[0].cores"] > 0.0


def test_what_is_sent_is_received_and_is_what_the_spans_say(
    plans: Plans, clusters: Clusters, fake_counts: Any
) -> None:
    plan = plans(roles={**SERVERS, "readers": 1}, training={"threads": 2})
    cluster = clusters(nic="1 Gbit/s")
    runtime = Runtime(plan, cluster, fake_counts(plan), iterations=8)
    runtime.run()
    used = dict(zip(runtime.engine.fluid.resources, runtime.engine.fluid.used(), strict=True))
    sent = {r.name: u for r, u in used.items() if r.name.endswith("nic.tx")}
    received = {r.name: u for r, u in used.items() if r.name.endswith("nic.rx")}
    payload = sum(span.bytes for span in runtime.records.spans)
    assert sum(sent.values()) == pytest.approx(sum(received.values()), rel=1e-9)
    wire = payload + runtime.machines.header_bytes
    assert wire < sum(sent.values()) < 1.08 * wire  # frames' heads, and acknowledgements
    by_instance: dict[str, int] = {}
    for span in runtime.records.spans:
        by_instance[span.instance] = by_instance.get(span.instance, 0) + span.bytes
    server = sent["embedding_server[0].nic.tx"]
    heads = 8 * (4 * 8)  # of answers to four loops' lookups
    answers = by_instance["embedding_server[0]"] + heads
    assert answers < server < 1.2 * answers
    for resource, units in used.items():
        assert units <= resource.capacity * runtime.engine.now * (1 + 1e-9)
    assert runtime.settled() == 8


def test_bytes_cost_cpu_at_both_ends(plans: Plans, clusters: Clusters, fake_counts: Any) -> None:
    plan = plans(roles=SERVERS)

    def cores(wire_byte: str) -> tuple[dict[str, float], dict[str, float], float]:
        cluster = clusters(prices={"wire_byte": wire_byte})
        runtime = Runtime(plan, cluster, fake_counts(plan), iterations=8)
        runtime.run()
        names = [r.name for r in runtime.engine.fluid.resources]
        used = dict(zip(names, runtime.engine.fluid.used(), strict=True))
        wire = {i.name: used[f"{i.name}.nic.tx"] + used[f"{i.name}.nic.rx"] for i in plan.instances}
        bytes_sent = sum(s.bytes for s in runtime.records.spans) + runtime.machines.header_bytes
        return {i.name: used[f"{i.name}.cores"] for i in plan.instances}, wire, bytes_sent

    free, *_ = cores("0 ps")
    paid, wire, sent = cores("100 ps")
    priced = {name: (paid[name] - free[name]) / 1e-10 for name in free}
    for name, own in priced.items():
        assert 0.9 * wire[name] < own < wire[name]  # of frames, whose heads cost nothing
    assert sum(priced.values()) == pytest.approx(2 * sent, rel=1e-6)


@pytest.mark.parametrize("shared", [True, False])
def test_a_meeting_by_hand(plans: Plans, clusters: Clusters, shared: bool) -> None:
    """Two members take two steps, each with one message and its latency. On one host gloo's threads
    handle a message in turn with the loop, and wait for bytes; on hosts of their own the loop does,
    a notice goes before each message, and bytes are the network's."""
    named = {"collective_message": 1e-3, "collective_step": 1e-4, "reduced_wait": 1e-7}
    cluster = priced(clusters(colocate=shared, cores=4, jitter=0.0), latency=2e-5, **named)
    plan = plans("allreduce", roles={"trainers": 2}, data=FAST_DATA)
    outcome = simulate(plan, cluster)
    took = {s.end - s.start for s in outcome.spans if s.effect == "all_reduce" and s.iteration > 1}
    assert took
    meeting = 2 * 1e-3 + 2 * (1e-4 + (1 if shared else 2) * 2e-5)
    moving = 0.005 * meeting  # of bytes, over a network that is not free
    if shared:  # of two members each sends half of the vector twice
        waited = 1e-7 * 4 * shape.dense_parameters(plan.experiment.model)
        assert waited > 2 * moving
        meeting += waited
    assert all(meeting * (1 - 1e-9) <= seconds <= meeting + moving for seconds in took)
    ledger = outcome.facts.ledger
    assert ledger is not None
    spent = ledger.spent(COLLECTIVES)
    assert spent == pytest.approx(2 * 2e-3 * plan.experiment.training.steps)


@pytest.mark.parametrize("members", [2, 3, 4])
def test_members_on_one_host_wait_for_what_they_reduce(
    plans: Plans, clusters: Clusters, members: int
) -> None:
    """In each of 2 (n - 1) steps a member sends one of n parts of the vector."""
    cluster = priced(clusters(colocate=True, cores=4, jitter=0.0), reduced_wait=1e-7)
    plan = plans("allreduce", roles={"trainers": members}, data=FAST_DATA)
    spans = [s for s in simulate(plan, cluster).spans if s.effect == "all_reduce"]
    assert spans
    sent = 2 * (members - 1) / members * 4 * shape.dense_parameters(plan.experiment.model)
    for span in spans:
        assert 1e-7 * sent * (1 - 1e-9) <= span.end - span.start <= 1.1e-7 * sent


def test_members_on_one_host_wait_for_what_they_exchange(plans: Plans, clusters: Clusters) -> None:
    """Nothing has a price but a byte's wait: a member waits for what it sends or for what it
    receives, whichever is more."""
    cluster = priced(clusters(colocate=True, cores=4, jitter=0.0), exchanged_wait=1e-6)
    plan = plans("des", {"top": "split", "partition": "hash"}, roles={"trainers": 2})
    outcome = simulate(plan, cluster)
    spans = [s for s in outcome.spans if s.effect == "all_gather" and s.iteration > 1]
    assert spans
    for span in spans:
        others = [s for s in spans if (s.iteration, s.name) == (span.iteration, span.name)]
        most = 1e-6 * max(s.bytes for s in others)
        assert most * (1 - 1e-9) <= span.end - span.start <= 1.05 * most
