"""Does it fit, and what does the user read when it does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recsim_train.config.cluster import Cluster
from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Checkpoint, Execution, Table
from recsim_train.placement.plan import Plan
from recsim_train.sim.host.memory import PROCESS_BYTES, MemoryUse, memory_uses
from recsim_train.sim.host.memory_check import check_machine, check_memory, memory_check, smallest
from tests.simulated import simulate

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]

LARGE = {"tables": tuple(Table(rows=100_000_000) for _ in range(4)), "embedding_dim": 8}
SERVERS = {"trainers": 2, "embedding_servers": 1, "dense_servers": 1}
TABLES = 4 * 100_000_000 * (8 + 1) * 4


def test_tables_and_optimizer_state_by_hand(plans: Plans, clusters: Clusters) -> None:
    hosts = check_memory(plans(roles=SERVERS, model=LARGE), clusters())
    assert [host.name for host in hosts] == [
        "trainer[0]", "trainer[1]", "embedding_server[0]", "dense_server[0]",
    ]  # fmt: skip
    (server,) = hosts[2].uses
    assert server.parts["tables"] == TABLES
    assert server.parts["process"] == PROCESS_BYTES
    assert TABLES + PROCESS_BYTES < server.needed < TABLES + PROCESS_BYTES + 2**27
    assert "tables" not in hosts[0].uses[0].parts
    sgd = plans(roles=SERVERS, model=LARGE, training={"sparse_optimizer": "sgd"})
    assert check_memory(sgd, clusters())[2].uses[0].parts["tables"] == TABLES * 8 / 9


def test_the_sentence_names_the_role_the_need_and_a_way_out(
    plans: Plans, clusters: Clusters
) -> None:
    with pytest.raises(UserError) as caught:
        check_memory(plans(roles=SERVERS, model=LARGE), clusters(memory="5 GiB"))
    assert str(caught.value) == (
        "embedding_server[0] needs 13.7 GiB (of which tables 13.4 GiB), but its host has 5.0 GiB: "
        "8.7 GiB too much; 4 embedding servers would be enough"
    )
    enough = plans(roles={**SERVERS, "embedding_servers": 4}, model=LARGE)
    check_memory(enough, clusters(memory="5 GiB"))
    fewer = plans(roles={**SERVERS, "embedding_servers": 3}, model=LARGE)
    with pytest.raises(UserError, match="4 embedding servers would be enough"):
        check_memory(fewer, clusters(memory="5 GiB"))


@pytest.mark.parametrize("gigabytes", [1, 2, 3, 8])
@pytest.mark.parametrize("tables", [1, 3, 6])
def test_the_smallest_number_of_servers_is_the_smallest(
    plans: Plans, clusters: Clusters, gigabytes: int, tables: int
) -> None:
    model = {"tables": tuple(Table(rows=60_000_000) for _ in range(tables)), "embedding_dim": 8}
    cluster = clusters(memory=f"{gigabytes} GiB")

    def fits(servers: int) -> bool:
        made = plans(roles={**SERVERS, "embedding_servers": servers}, model=model)
        return all(
            u.needed <= u.available
            for u in memory_uses(made, cluster)
            if u.instance.role == "embedding_server"
        )

    plan = plans(roles=SERVERS, model=model)
    least = smallest(plan, cluster, "embedding_server")
    assert least is not None
    assert least == next(n for n in range(1, 100) if fits(n))


def test_dense_weights_that_spill_ask_for_dense_servers(plans: Plans, clusters: Clusters) -> None:
    wide = {"top_mlp": (20_000, 20_000, 1)}
    plan = plans(roles={**SERVERS, "trainers": 8}, model=wide)
    (server,) = check_memory(plan, clusters(memory="64 GiB"))[-1].uses
    assert server.name == "dense_server[0]"
    need = server.parts["dense"] + server.parts["buffers"] + PROCESS_BYTES
    assert need == server.needed
    memory = f"{server.needed / 2**30 - 1:.3f} GiB"
    with pytest.raises(UserError) as caught:
        check_memory(plan, clusters(memory=memory))
    said = str(caught.value)
    assert said.startswith("dense_server[0] needs")
    assert "GiB: 1.0 GiB too much; 2 dense servers would be enough" in said


@pytest.mark.parametrize("kind", ["flat_ps", "allreduce"])
def test_a_checkpoint_takes_what_a_process_holds_once_more(
    plans: Plans, clusters: Clusters, kind: str
) -> None:
    rules = {"dense_optimizer": "adagrad", "sparse_optimizer": "rowwise_adagrad"}

    def uses(every: str | None) -> dict[str, MemoryUse]:
        plan = plans(
            kind, roles=SERVERS, model=LARGE, training=rules, checkpoint=Checkpoint(every=every)
        )
        return {use.name: use for use in memory_uses(plan, clusters())}

    without, with_ = uses(None), uses("10 min")
    for name, use in with_.items():
        held = use.parts.get("tables", 0.0)
        if name.startswith("dense_server"):
            held += use.parts["dense"]
        if not name.startswith("trainer"):
            assert use.parts.get("snapshot", 0.0) == held
        assert use.needed == without[name].needed + use.parts.get("snapshot", 0.0)
    trainer = with_["trainer[0]"].parts
    assert 0.0 < trainer["snapshot"] < trainer["dense"]


def test_nearly_full_is_a_warning(plans: Plans, clusters: Clusters) -> None:
    plan = plans(roles=SERVERS, model=LARGE)
    assert memory_check(plan, clusters(memory="30 GiB")).warnings == ()
    found = memory_check(plan, clusters(memory="14 GiB"))
    assert found.problem is None
    (warning,) = found.warnings
    assert warning.startswith("embedding_server[0] needs 13.7 of 14.0 GiB")
    assert found.smallest == {"embedding_server": 1, "dense_server": 1}
    assert memory_check(plan, clusters(memory="5 GiB")).smallest["embedding_server"] == 4
    assert "would be enough" in memory_check(plan, clusters(memory="5 GiB")).phrase


def test_tables_in_trainers_that_do_not_fit(plans: Plans, clusters: Clusters) -> None:
    with pytest.raises(
        UserError, match=r"^trainer\[0\] needs .* embedding servers would be enough"
    ):
        check_memory(plans(model=LARGE), clusters(memory="5 GiB"))


def test_no_advice_that_does_not_help(plans: Plans, clusters: Clusters) -> None:
    with pytest.raises(UserError, match="smaller batch"):
        check_memory(plans(training={"batch_size": 10_000_000}), clusters(memory="5 GiB"))


def test_processes_of_one_machine_are_added_up(plans: Plans, clusters: Clusters) -> None:
    plan = plans(roles=SERVERS, model=LARGE)
    cluster = clusters(colocate=True, memory="14 GiB")
    with pytest.raises(UserError) as caught:
        check_memory(plan, cluster)
    text = str(caught.value)
    assert text.startswith("all processes together need 14.4 GiB (of which tables 13.4 GiB)")
    assert "the embedding servers with 13.7 GiB" in text
    assert "the machine has 14.0 GiB" in text
    roomy = cluster.hosts["default"].model_copy(update={"memory": 16.0 * 2**30})
    assert len(check_machine(plan, roomy).uses) == 4


def test_many_small_processes_need_fewer_of_them(plans: Plans, clusters: Clusters) -> None:
    """Most memory is the processes themselves, and those of the trainers together."""
    plan = plans(roles={"trainers": 12, "embedding_servers": 1, "dense_servers": 1})
    with pytest.raises(UserError) as caught:
        check_memory(plan, clusters(colocate=True, memory="1 GiB"))
    text = str(caught.value)
    assert "of which the processes themselves" in text
    assert "most of it the trainers with" in text
    assert text.endswith("use a larger host or fewer processes on it")


def test_simulate_checks_first(plans: Plans, clusters: Clusters) -> None:
    with pytest.raises(UserError, match="needs"):
        simulate(plans(roles=SERVERS, model=LARGE), clusters(memory="5 GiB"))


def test_a_full_topology_does_not_hide_what_is_too_large(plans: Plans, clusters: Clusters) -> None:
    """The search for more servers meets the racks' limit; the question was about memory."""
    topology = {"racks": 2, "hosts_per_rack": 2, "oversubscription": 2.0}
    full = clusters(memory="5 GiB", topology=topology)
    plan = plans(roles=SERVERS, model=LARGE)
    with pytest.raises(UserError) as caught:
        check_memory(plan, full)
    for said in (memory_check(plan, full).problem, str(caught.value)):
        assert said == (
            "embedding_server[0] needs 13.7 GiB (of which tables 13.4 GiB), but its host has "
            "5.0 GiB: 8.7 GiB too much; 4 embedding servers would be enough, but the profile's "
            "racks have no room for so many"
        )
    assert (
        memory_check(plans(roles=SERVERS), full).problem is None
    )  # of four hosts, four are asked for
    with pytest.raises(UserError, match=r"4 hosts \(topology\.hosts_per_rack\) are too few .* 5"):
        check_memory(plans(roles={**SERVERS, "embedding_servers": 2}, model=LARGE), full)


def test_batches_ahead_are_counted(plans: Plans, clusters: Clusters) -> None:
    """Of each batch that is prepared: itself, its ids by shard, the vectors that answer them; at
    the shard the places of its ids. 64 examples of 4 features and 6 tables, vectors of 8."""
    batch = 64 * (4 * 4 + 4 + 8 * 6)
    for workers, options in ((1, {}), (3, {}), (1, {"pooling": "worker"})):
        roles = {"trainers": 2, "embedding_servers": 1, "dense_servers": 1}
        training = {"threads": workers}
        plain, ahead = (
            {
                use.name: use
                for use in memory_uses(
                    plans("flat_ps", {**options, "prefetch": d}, roles=roles, training=training),
                    clusters(),
                )
            }
            for d in (0, 3)
        )

        def more(name: str, part: str, a: dict = plain, b: dict = ahead) -> float:  # type: ignore[type-arg]
            return b[name].parts[part] - a[name].parts.get(part, 0.0)

        looked_up = 64 * 6 * (8 + 8 * 4)
        if options:  # distinct ids, and where each id is among them
            looked_up += 64 * 6 * 2 * 8
        assert more("trainer[0]", "queues") == workers * 3 * batch
        assert more("trainer[0]", "buffers") == workers * 3 * looked_up
        assert more("embedding_server[0]", "buffers") == 2 * workers * 3 * 64 * 6 * 8
        assert ahead["dense_server[0]"] == plain["dense_server[0]"]


def test_bags_that_wait_for_their_update_are_counted(plans: Plans, clusters: Clusters) -> None:
    model = {"tables": tuple(Table(rows=1000, ids=5) for _ in range(6))}
    roles = {"trainers": 1, "embedding_servers": 1, "dense_servers": 1}
    plain, ahead = (
        memory_uses(plans("flat_ps", {"prefetch": d}, roles=roles, model=model), clusters())[1]
        for d in (0, 2)
    )
    # of each id its row and its bag
    assert ahead.parts["buffers"] - plain.parts["buffers"] == 2 * 64 * 30 * 2 * 8


def test_a_loader_ahead_of_a_cache_holds_ids(plans: Plans, clusters: Clusters) -> None:
    roles = {"trainers": 2, "embedding_servers": 1}
    two, five = (
        memory_uses(plans("scalefreectr", {"prefetch": d}, roles=roles), clusters()) for d in (2, 5)
    )
    batch = 64 * (4 * 4 + 4 + 8 * 6)
    assert five[0].parts["queues"] - two[0].parts["queues"] == 3 * batch
    assert five[0].parts["buffers"] - two[0].parts["buffers"] == 3 * 64 * 6 * 8
    assert five[-1] == two[-1]


@pytest.mark.parametrize("wire", ["float16", "bfloat16"])
def test_narrow_buffers_are_counted(plans: Plans, clusters: Clusters, wire: str) -> None:
    """Both ends hold what travels beside what it is rounded from, in two bytes a number: vectors
    and their gradients, dense parameters and their gradients."""
    roles = {"trainers": 2, "embedding_servers": 1, "dense_servers": 1}

    def uses(wire: str, ahead: int = 0) -> dict[str, MemoryUse]:
        plan = plans(
            "flat_ps",
            {"prefetch": ahead},
            roles=roles,
            execution=Execution(wire=wire),  # type: ignore[arg-type]
        )
        return {use.name: use for use in memory_uses(plan, clusters())}

    full, narrow = uses("full"), uses(wire)
    dense = (4 * 32 + 32) + (32 * 8 + 8) + ((8 + 21) * 32 + 32) + (32 + 1)
    vectors = 64 * 6 * 8

    def more(name: str, a: dict[str, MemoryUse] = full, b: dict[str, MemoryUse] = narrow) -> float:
        assert b[name].parts.keys() - a[name].parts.keys() <= {"buffers"}
        return b[name].needed - a[name].needed

    assert more("trainer[0]") == 2 * 2 * (vectors + dense)
    assert more("embedding_server[0]") == 2 * 2 * 2 * vectors
    assert more("dense_server[0]") == 2 * 2 * 2 * dense
    # what is looked up ahead waits as it has travelled
    wide_ahead = more("trainer[0]", full, uses("full", 2))
    narrow_ahead = more("trainer[0]", narrow, uses(wire, 2))
    assert wide_ahead - narrow_ahead == 2 * vectors * 2


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("trainers", [1, 3])
def test_a_trainers_own_loops_need_nothing_narrow_at_its_shards(
    plans: Plans, clusters: Clusters, trainers: int, threads: int
) -> None:
    """Without servers each trainer holds a shard of both kinds: what its own loops ask of them
    does not travel, what all others ask does, and what its loops ask of the others."""

    def plan(wire: str) -> Plan:
        return plans(
            roles={"trainers": trainers},
            training={"threads": threads},
            execution=Execution(wire=wire),  # type: ignore[arg-type]
        )

    whole = plan("full")
    assert whole.dense is not None
    full, narrow = (memory_uses(p, clusters()) for p in (whole, plan("float16")))
    vectors = 64 * 6 * 8
    dense = sum(shard.elements for shard in whole.dense.shards)
    for wide, use in zip(full, narrow, strict=True):
        here = sum(s.elements for s in whole.dense.shards if s.host == use.instance)
        numbers = vectors / trainers + here  # of the shards that it holds
        asked_by_others = (trainers - 1) * threads * numbers
        asked_of_others = threads * (vectors * (trainers - 1) / trainers + dense - here)
        assert use.needed - wide.needed == 2 * 2 * (asked_by_others + asked_of_others)
