"""Racks, mixed hosts, stragglers, other traffic and failures: what a profile may say of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from recsim_train.config.cluster import ASSUMED_THREADS, FORMAT, Cluster, Costs
from recsim_train.config.dump import dump_cluster, dump_yaml
from recsim_train.config.errors import UserError
from recsim_train.config.load import load_points
from recsim_train.config.problems import ConfigErrors
from recsim_train.config.profiles import load_cluster
from recsim_train.config.schema import cluster_schema
from recsim_train.config.units import every_of
from recsim_train.config.validate import plain
from recsim_train.placement.hosts import host_types
from recsim_train.strategy.registry import schemas

FULL: dict[str, Any] = {
    "mixed": {"trainer": [{"count": 2}, {"cores": 8, "nic": "10 Gbit/s", "speed": 0.8}]},
    "topology": {"racks": 4, "hosts_per_rack": 8, "oversubscription": 4, "latency": "5 us"},
    "stragglers": {
        "slow": [{"hosts": ["trainer[2]"], "factor": 2}, {"share": "10 %", "factor": 1.5}],
        "episodes": [{"every": "60 s", "duration": "5 s", "factor": 3, "role": "trainer"}],
        "hiccups": {"probability": "1 %", "factor": 10},
        "tail": {"distribution": "pareto", "index": 2.5},
    },
    "background": [
        {"link": "nic", "share": "20 %"},
        {"link": "uplink", "share": "50 %", "burst": "1 s", "pause": "4 s"},
    ],
    "failures": {
        "mtbf": "10 h", "restart": "90 s", "schedule": [{"at": "30 s", "host": "reader[1]"}],
    },
}  # fmt: skip


def profile(**changes: object) -> dict[str, Any]:
    data: dict[str, Any] = {
        "format": FORMAT,
        "name": "test",
        "hosts": {"default": {"cores": 4, "memory": "24 GiB", "nic": "25 Gbit/s"}},
        "network": {"latency": "50 us"},
        "costs": {name: {"value": "3 ns", "uncertainty": "1 %"} for name in Costs.model_fields},
        "threads": plain(ASSUMED_THREADS, digits=6),
    }
    return data | changes


def write(folder: Path, text: str) -> str:
    path = folder / "p.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def read(folder: Path, **changes: object) -> Cluster:
    return load_cluster(write(folder, dump_yaml(profile(**changes))))


def test_reads_and_writes_all_of_it(tmp_path: Path) -> None:
    cluster = read(tmp_path, **FULL)
    assert cluster.topology is not None
    assert cluster.topology.arrange == "spread"
    assert cluster.stragglers is not None
    assert [slow.factor for slow in cluster.stragglers.slow] == [2.0, 1.5]
    assert cluster.failures is not None
    assert cluster.failures.schedule[0].host == "reader[1]"
    assert load_cluster(write(tmp_path, dump_cluster(cluster))) == cluster


def test_racks_that_differ_are_written_as_they_are(tmp_path: Path) -> None:
    for each in (7, [7, 6]):
        given = RACKS | {"hosts_per_rack": each}
        cluster = read(tmp_path, topology=given, most_hosts=13)
        assert cluster.topology is not None
        assert cluster.topology.rooms == (7, each if each == 7 else 6)
        assert load_cluster(write(tmp_path, dump_cluster(cluster))) == cluster
        jsonschema.validate(profile(topology=given, most_hosts=13), cluster_schema())


def test_the_hosts_of_a_role(tmp_path: Path) -> None:
    cluster = read(tmp_path, mixed=FULL["mixed"])
    default = cluster.hosts["default"]
    hosts = host_types({"trainer": 18}, cluster)["trainer"]
    assert hosts[:2] == [default] * 2
    for host in hosts[2:]:
        assert (host.cores, host.nic, host.speed, host.memory) == (8, 10e9 / 8, 0.8, default.memory)
    assert host_types({"reader": 6}, cluster)["reader"] == [default] * 6
    few = read(tmp_path, mixed={"trainer": [{"count": 2}, {"count": 1, "speed": 0.5}]})
    assert host_types({"trainer": 3}, few)["trainer"][2].speed == 0.5
    with pytest.raises(UserError, match=r"has 3 hosts for trainers, too few for trainer\[3\]"):
        host_types({"trainer": 4}, few)


def test_types_of_hosts_for_every_role(tmp_path: Path) -> None:
    cluster = read(
        tmp_path, mixed=TYPES, mixed_from_last=["reader"], most_hosts=6,
        topology=RACKS | {"hosts_per_rack": 3},
    )  # fmt: skip
    assert cluster.limits == {"mixed.default": 6, "most_hosts": 6, "topology.hosts_per_rack": 6}
    assert [(host.cores, many) for host, many in cluster.lots("default")] == [(4, 4), (2, 2)]
    assert load_cluster(write(tmp_path, dump_cluster(cluster))) == cluster
    jsonschema.validate(profile(mixed=TYPES, mixed_from_last=["reader"]), cluster_schema())
    # a role with a type of its own has hosts beside these
    own = {**profile()["hosts"], "reader": {"cores": 1, "memory": "1 GiB", "nic": "1 Gbit/s"}}
    beside = {**TYPES, "reader": [{"count": 1}, {"cores": 3}]}
    assert read(tmp_path, mixed=beside, hosts=own, most_hosts=9).limits == {"most_hosts": 9}


def test_settings_reach_into_lists(tmp_path: Path) -> None:
    path = write(tmp_path, dump_yaml(profile(**FULL)))
    sets = ["cluster.mixed.trainer.1.speed=0.5", "cluster.failures.mtbf=5 h"]
    cluster = load_cluster(path, sets=sets)
    assert host_types({"trainer": 3}, cluster)["trainer"][2].speed == 0.5
    assert cluster.failures is not None
    assert cluster.failures.mtbf == 18_000


def test_the_schema_knows_it() -> None:
    schema = cluster_schema()
    jsonschema.validate(profile(**FULL), schema)
    for wrong in (
        {"mixed": {"trainers": [{"count": 1}]}},
        {"hosts": {"defaults": profile()["hosts"]["default"]}},
        {"topology": {"racks": 2, "uplink": 5}},
        {"failures": {"mtbf": "1 h"}},
        {"background": [{"link": "disk", "share": "5 %"}]},
    ):
        assert not jsonschema.Draft202012Validator(schema).is_valid(profile(**wrong))


RACKS = {"racks": 2, "uplink": "10 Gbit/s"}
TYPES = {"default": [{"count": 4}, {"count": 2, "cores": 2}]}
RESTART = {"restart": "5 s"}


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"topology": {"racks": 2}}, "topology: expected either uplink (such as '100 Gbit/s') or"),
        ({"topology": RACKS | {"oversubscription": 4}}, "topology: expected either uplink"),
        ({"topology": RACKS | {"uplink": "0 Gbit/s"}}, "uplink: expected a data rate above 0"),
        ({"topology": RACKS | {"racks": 0}}, "topology.racks: expected an integer of at least 1"),
        *(
            (
                {"topology": RACKS | {"hosts_per_rack": wrong}},
                "hosts_per_rack: expected an integer of at least 1, or a list with one for",
            )
            for wrong in (0, [], [3, 0], [3, True], "seven", 2.5)
        ),
        (
            {"topology": RACKS | {"hosts_per_rack": [1, 2, 3]}},
            "topology.hosts_per_rack: expected one number for each of 2 racks, got 3",
        ),
        ({"topology": RACKS, "most_hosts": 1}, "topology.racks: expected no more racks than hosts"),
        ({"most_hosts": 0}, "most_hosts: expected an integer of at least 1"),
        ({"most_hosts": 3, "colocate": True}, "most_hosts: with colocate: true all roles are"),
        ({"topology": RACKS | {"arrange": "fil"}}, "'spread', 'fill', got 'fil'; did you mean"),
        ({"topology": RACKS | {"uplinks": 3}}, "unknown key in topology; did you mean 'uplink'?"),
        ({"topology": RACKS, "colocate": True}, "topology: with colocate: true all roles are"),
        ({"mixed": FULL["mixed"], "colocate": True}, "mixed: with colocate: true all roles are"),
        (
            {"failures": RESTART | {"mtbf": "1 h"}, "colocate": True},
            "failures: with colocate: true all roles are",
        ),
        (
            {"stragglers": {"slow": [{"share": "5 %", "factor": 2}]}, "colocate": True},
            "stragglers.slow: with colocate: true",
        ),
        (
            {"mixed": {"trainer": [{"cores": 2}, {"cores": 4}]}},
            "mixed.trainer[0].count: missing; only the last entry may leave out",
        ),
        ({"mixed": {"trainers": [{"cores": 2}]}}, "unknown key in mixed; did you mean 'trainer'?"),
        ({"mixed": {"default": [{"count": -1}]}}, "mixed.default[0].count: expected an integer of"),
        ({"mixed": {"default": [{"core": 2}]}}, "unknown key in mixed.default[0]; did you mean"),
        (
            {"mixed": {"default": [{"cores": 2}, {"cores": 4}]}},
            "mixed.default[0].count: missing; only the last entry may leave out",
        ),
        (
            {"mixed": TYPES, "most_hosts": 7},
            "mixed.default: expected 7 hosts, as many as there are (most_hosts), got 6",
        ),
        (
            {"mixed": TYPES, "topology": RACKS | {"hosts_per_rack": 2}},
            "mixed.default: expected 4 hosts, as many as there are (topology.hosts_per_rack), got",
        ),
        (
            {"mixed": TYPES | {"trainer": [{"cores": 2}]}},
            "mixed.trainer: mixed.default says which hosts there are for roles without a type of",
        ),
        ({"mixed_from_last": ["reader"]}, "mixed_from_last: there is no mixed.default from whose"),
        ({"mixed": TYPES, "mixed_from_last": ["server"]}, "mixed_from_last[0]: expected one of"),
        ({"mixed": TYPES, "colocate": True}, "mixed: with colocate: true all roles are"),
        ({"mixed": {"trainer": [{"nic": "0 B/s"}]}}, "mixed.trainer[0].nic: expected a data rate"),
        ({"mixed": {"trainer": [{"speed": 0}]}}, "trainer[0].speed: expected a number above 0"),
        ({"stragglers": {"slow": [{"factor": 2}]}}, "stragglers.slow[0]: expected either hosts"),
        (
            {"stragglers": {"slow": [{"hosts": ["trainers[1]"], "factor": 2}]}},
            "stragglers.slow[0].hosts[0]: expected a host such as 'trainer[2]' (roles: trainer,",
        ),
        (
            {"stragglers": {"slow": [{"share": "5 %", "factor": 0.5}]}},
            "stragglers.slow[0].factor: expected a number of at least 1, got 0.5",
        ),
        (
            {"stragglers": {"episodes": [{"every": "0 s", "duration": "1 s", "factor": 2}]}},
            "stragglers.episodes[0].every: expected a duration above 0",
        ),
        (
            {"stragglers": {"tail": {"distribution": "pareto", "deviation": 0.5}}},
            "stragglers.tail.index: missing; a pareto tail needs it",
        ),
        (
            {"stragglers": {"tail": {"distribution": "pareto", "index": 1.0}}},
            "stragglers.tail.index: expected a number above 1 or null, got 1",
        ),
        (
            {"stragglers": {"hiccups": {"probability": "101 %", "factor": 2}}},
            "stragglers.hiccups.probability: expected a share of at most 100 %",
        ),
        ({"background": [{"link": "uplink", "share": "5 %"}]}, "background[0].link: there are no"),
        (
            {"background": [{"link": "nic", "share": "60 %"}, {"link": "nic", "share": "40 %"}]},
            "background[1].share: the shares of all traffic on one nic must stay below 100 %",
        ),
        (
            {"background": [{"link": "nic", "share": "60 %", "burst": "1 s"}]},
            "background[0]: expected burst and pause, or neither",
        ),
        (
            {"failures": {"mtbf": "1 ms", "restart": "90 s"}},
            "failures.mtbf: expected more than restart: such hosts would be down most of the time",
        ),
        (
            {"failures": RESTART},
            "failures: expected mtbf, schedule or both; else nothing fails",
        ),
        ({"failures": {"mtbf": "1 h"}}, "failures.restart: missing; expected a duration such as"),
        ({"failures": {"mtbf": "1 h", "restart": 5}}, "failures.restart: expected a duration with"),
        (
            {"failures": RESTART | {"schedule": [{"at": "3 s", "host": "gpu[0]"}]}},
            "failures.schedule[0].host: expected a host such as 'trainer[2]'",
        ),
    ],
)
def test_bad_surroundings_are_explained(
    tmp_path: Path, changes: dict[str, object], fragment: str
) -> None:
    with pytest.raises(ConfigErrors) as caught:
        read(tmp_path, **changes)
    message = str(caught.value)
    assert fragment in message
    assert f"{tmp_path}/p.yaml:" in message
    assert "Input should" not in message


RECOVERY = """\
name: e
model: tiny
strategy: flat_ps
recovery: %s
"""


@pytest.mark.parametrize(
    ("recovery", "fragment"),
    [
        ("{policy: again}", "recovery.policy: expected one of 'stop', 'restart'"),
        ("{policy: restart}", "checkpoint.every: missing; recovery.policy restart needs"),
        (
            "{checkpoint_standstill: 3 s}",
            "in recovery; the profile's prices say it (checkpoints)",
        ),
        ("{policy: abort}", "got 'abort'; it is called stop"),
        ("{policy: [stop]}", "recovery.policy: expected one of 'stop'"),
        ("{policy: restart_all_from_checkpoint}", "it is called restart"),
        (
            "{checkpoint_every: 3 s}",
            "in recovery; checkpoint.every says it, of real runs too",
        ),
        (
            "{checkpoint_write: 3 s}",
            "in recovery; the profile's prices say it (checkpoints)",
        ),
        ("{}\ncheckpoint: {every: 0 s}", "checkpoint.every: expected a duration above 0; or a"),
        ("{}\ncheckpoint: {every: 0 steps}", "checkpoint.every: expected at least 1 step"),
        ("{}\ncheckpoint: {every: 1000}", "checkpoint.every: expected a duration such as '10 min'"),
        ("{}\ncheckpoint: {every: 3 moons}", "unknown unit 'moons'"),
        ("{}\ncheckpoint: {every: 3 s, keep: 0}", "checkpoint.keep: expected an integer of"),
    ],
)
def test_bad_recoveries_are_explained(tmp_path: Path, recovery: str, fragment: str) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(RECOVERY % recovery, encoding="utf-8")
    with pytest.raises(ConfigErrors) as caught:
        load_points(path, [], schemas())[0]
    assert fragment in str(caught.value)


@pytest.mark.parametrize("transport", ["tcp", "gloo"])
@pytest.mark.parametrize("how", ["file", "argument"])
def test_that_requests_had_a_choice_of_transport_is_explained(
    tmp_path: Path, how: str, transport: str
) -> None:
    path = tmp_path / "e.yaml"
    more = f"\nexecution: {{transport: {transport}}}" if how == "file" else ""
    path.write_text(RECOVERY % "{}" + more, encoding="utf-8")
    sets = [f"execution.transport={transport}"] if how == "argument" else []
    with pytest.raises(ConfigErrors, match="requests always go over connections"):
        load_points(path, sets, schemas())


@pytest.mark.parametrize(
    ("text", "found"),
    [("1000 steps", 1000), ("1 step", 1), ("1_000 steps", 1000), ("10 min", 600.0)],
)
def test_how_often_is_said_in_time_or_steps(text: str, found: float) -> None:
    assert every_of(text) == found
    assert type(every_of(text)) is type(found)


def test_a_host_without_quotes_inside_braces_is_explained(tmp_path: Path) -> None:
    text = dump_yaml(profile()) + "failures: {restart: 5 s, schedule: [{at: 3 s, host: a[2]}]}\n"
    with pytest.raises(ConfigErrors) as caught:
        load_cluster(write(tmp_path, text))
    assert "p.yaml:" in str(caught.value)
