"""The designs that there are to choose among."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from recsim_train import calls
from recsim_train.config.errors import UserError
from recsim_train.designs.making import space
from recsim_train.placement.hosts import hosts_of
from recsim_train.session.job import NOBODY
from recsim_train.strategy.registry import strategies
from tests.recommend.conftest import CORES, QUICK, RENT, ROOT, Spaces

FEW: dict[str, Any] = {
    "embedding_hosts": [1], "dense_hosts": [1], "trainers_per_host": [1], "servers_per_host": [1],
    "hosts": [4],
}  # fmt: skip


def test_every_division_that_is_asked_for_and_no_other(spaces: Spaces) -> None:
    found = spaces(
        "strategy=flat_ps",
        most=6,
        strategies="false",
        embedding_hosts=[1, 2],
        dense_hosts=[1],
        trainers_per_host=[1, 2],
        servers_per_host=[1],
    )
    # 6 and 3 hosts, less those of servers
    wanted = {(t, e, p) for n in (6, 3) for e in (1, 2) for p in (1, 2)
              if (t := n - e - 1) > 0}  # fmt: skip
    assert len(found.candidates) == len(wanted)
    for candidate in found.candidates:
        roles = candidate.job.plan.experiment.roles
        each = candidate.job.profile.together("trainer")
        assert (roles.trainers // each, roles.embedding_servers, each) in wanted
        assert candidate.hosts == len(hosts_of(candidate.job.plan.instances, candidate.job.profile))
        # cores of a host are divided among the trainers there
        assert candidate.job.plan.experiment.training.threads == CORES // each
    assert found.most_hosts == 6


def test_one_strategy_that_is_named_is_tried_beside_all_others(spaces: Spaces) -> None:
    kinds = Counter(c.job.plan.strategy.kind for c in spaces("strategy=flat_ps", **FEW).candidates)
    assert kinds.keys() == strategies().keys()
    # several that are named are meant
    several = spaces("strategy=[flat_ps, {kind: flat_ps, every: 4}]", **FEW)
    assert [c.job.plan.strategy.options for c in several.candidates] == [{}, {"every": 4}]
    alone = spaces("strategy=flat_ps", strategies="false", **FEW)
    assert len(alone.candidates) == 1


def test_further_settings_are_combined_with_everything(spaces: Spaces) -> None:
    settings = "{execution.wire: [full, bfloat16], cluster.hosts.default.nic: [1 Gbit/s, 2 Gbit/s]}"
    found = spaces("strategy=flat_ps", strategies="false", settings=settings, **FEW)
    assert len(found.candidates) == 4
    wires = {c.job.plan.experiment.execution.wire for c in found.candidates}
    rates = {c.job.profile.host("trainer").nic for c in found.candidates}
    assert wires == {"full", "bfloat16"}
    assert rates == {1e9 / 8, 2e9 / 8}


def loops(kind: str, trainers: int, threads: int) -> int:
    """Hogwild workers take a batch each, trainers in lock-step one."""
    lock_step = ("allreduce", "localsgd", "scalefreectr", "des", "hierarchical")
    return trainers * (1 if kind in lock_step else threads)


def test_every_design_does_the_work_of_the_experiment_in_a_step(spaces: Spaces) -> None:
    few = {**FEW, "hosts": [4, 7], "trainers_per_host": [1, 2]}
    found = spaces("strategy=flat_ps", "roles.trainers=3", "training.batch_size=100", **few)
    assert found.axes["examples_per_step"] == ("600",)
    assert found.other_step == 0
    assert {c.job.plan.strategy.kind for c in found.candidates} == strategies().keys()
    for candidate in found.candidates:
        plan = candidate.job.plan
        spec = plan.experiment
        many = loops(plan.strategy.kind, spec.roles.trainers, spec.training.threads)
        assert spec.training.batch_size == round(600 / many)
        assert abs(many * spec.training.batch_size - 600) <= 0.02 * 600
        assert candidate.examples_per_step == many * spec.training.batch_size


def test_what_cannot_have_as_many_examples_in_a_step_is_left_out_and_counted(
    spaces: Spaces,
) -> None:
    few = {**FEW, "hosts": [3, 4, 5, 6, 7, 8], "threads": [1, 2], "strategies": "false"}
    sets = ("strategy=flat_ps", "roles.trainers=2", "training.batch_size=6")
    found, every = spaces(*sets, **few), spaces(*sets, **few, any_step="true")
    many = {(c.split.hosts, c.split.threads): c for c in every.candidates}
    assert len(many) == 12
    assert every.other_step == 0
    assert {c.split.hosts - 2 for c in found.candidates} == {1, 2, 3, 4, 6}  # of 24 examples
    assert [c for c in found.candidates if c.split.hosts == 6] != []
    assert found.other_step == 12 - len(found.candidates) == 2
    for (hosts, threads), candidate in many.items():
        batch = candidate.job.plan.experiment.training.batch_size
        assert batch == round(24 / ((hosts - 2) * threads))
    with pytest.raises(UserError, match=r"5 loops makes a step of about 24 .* search\.any_step"):
        spaces(*sets, **{**few, "hosts": [7], "threads": [1]})


def test_batches_among_the_settings_give_a_step_each(spaces: Spaces) -> None:
    settings = "{training.batch_size: [50, 200], strategy: [flat_ps, allreduce]}"
    few = {**FEW, "hosts": [4], "strategies": "false"}
    found = spaces("strategy=flat_ps", "roles.trainers=1", settings=settings, **few)
    assert found.axes["examples_per_step"] == (
        "100",
        "400",
    )  # of two Hogwild workers, as the experiment is written
    assert Counter(
        (c.job.plan.strategy.kind, c.origin.examples_per_step) for c in found.candidates
    ) == {(kind, step): 1 for kind in ("flat_ps", "allreduce") for step in (100, 400)}


def test_types_of_hosts_are_settings_too(spaces: Spaces) -> None:
    small = "{cores: 2, memory: 8 GiB, nic: 1 Gbit/s}"
    large = (
        "{cores: 4, memory: 16 GiB, nic: 2 Gbit/s, "
        "rent: {per_hour: 3, currency: EUR, source: a contract, date: 2026-11-27}}"
    )
    settings = f"{{cluster.hosts.trainer: [{small}, {large}]}}"
    few = {**FEW, "hosts": [2]}
    found = spaces("strategy=allreduce", RENT, strategies="false", settings=settings, **few)
    types = {c.job.profile.host("trainer").cores: c.per_hour for c in found.candidates}
    assert types.keys() == {2, 4}
    assert types[2] is None
    assert types[4] is not None


def test_values_of_settings_arrive_as_they_are(spaces: Spaces) -> None:
    """Texts with commas, colons and quotes, empty text, text that looks like a number; lists."""
    sources = ["price list, on demand, Linux", "AWS: on demand", "a #1", "'q'", "[x]"]
    rent = "cluster.hosts.default.rent={per_hour: 2, currency: EUR, source: a, date: 2026-11-27}"
    few = {**FEW, "strategies": "false", "hosts": [2]}
    for key, values, found in (
        ("cluster.hosts.default.rent.source", sources,
         lambda c: c.job.profile.hosts["default"].rent.source),
        ("cluster.hosts.default.rent.currency", ["007", "1e3"], lambda c: c.rented.currency),
        ("model.top_mlp", [[64, 1], [8, 1]], lambda c: list(c.job.plan.experiment.model.top_mlp)),
        ("strategy.tags", ["", "bottom.0=dp"],
         lambda c: c.job.plan.strategy.options.get("tags", "")),
    ):  # fmt: skip
        kind = "hierarchical" if key.startswith("strategy") else "allreduce"
        settings = f"{{{key}: {json.dumps(values)}}}"
        designs = spaces(f"strategy={kind}", rent, settings=settings, **few).candidates
        assert sorted(map(found, designs), key=str) == sorted(values, key=str), key  # type: ignore[no-untyped-call]
        assert [c.job.settings[key] for c in designs] == values


def test_a_wrong_value_of_a_setting_is_shown_where_it_stands(tmp_path: Path) -> None:
    text = (ROOT / "experiments/quickstart.yaml").read_text()
    text = text.replace("\nsearch:", "\nold_search:")
    file = tmp_path / "mine.yaml"
    file.write_text(f"{text}\nsearch:\n  settings:\n    roles.readers:\n    - 0\n    - many\n")
    number = len(file.read_text().splitlines())
    study = calls.load(file, ROOT / "tests/frozen-2core.yaml", QUICK)
    with pytest.raises(UserError, match=rf"mine\.yaml:{number}:7: roles\.readers: expected an int"):
        space(study, 3, NOBODY)


def test_settings_of_a_mapping_keep_its_own_profile(tmp_path: Path) -> None:
    """What an experiment that is no file changes of the profile holds in each combination."""
    file = ROOT / "experiments" / "quickstart.yaml"
    given = yaml.safe_load(file.read_text()) | {
        "cluster": {"extends": str(ROOT / "tests/frozen-2core.yaml"), "name": "mine"},
        "search": {"settings": {"execution.wire": ["full", "bfloat16"]}, "strategies": False} | FEW,
    }
    study = calls.load(given, overrides=[*QUICK, "strategy=allreduce"])
    found = space(study, None, NOBODY).candidates
    assert [c.job.profile.name for c in found] == ["mine", "mine"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("{execution.wire: []}", "search.settings.execution.wire: expected at least one value"),
        ("{search.hosts: [2]}", "search cannot be swept"),
        ("{sweep.keep_runs: [true]}", "sweep cannot be swept"),
        ("{roles.trainers: [[1, 2]]}", "roles.trainers: expected an integer"),
    ],
)
def test_settings_that_cannot_be(spaces: Spaces, settings: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        spaces("strategy=allreduce", settings=settings, **FEW)
    assert said in str(error.value)


def test_trainers_hold_the_tables_where_there_are_no_servers(spaces: Spaces) -> None:
    found = spaces("strategy=flat_ps", strategies="false", most=4)
    apart = {
        (r.embedding_servers > 0, r.dense_servers > 0)
        for r in (c.job.plan.experiment.roles for c in found.candidates)
    }
    assert apart == {(True, True), (False, False)}
    # a strategy without such servers has none
    own = spaces("strategy=allreduce", strategies="false", most=4)
    assert not any(c.job.plan.of_role("dense_server") for c in own.candidates)


def test_hosts_come_from_the_racks_or_the_roles(spaces: Spaces) -> None:
    few = {key: value for key, value in FEW.items() if key != "hosts"} | {"strategies": "false"}
    racks = "cluster.topology={racks: 2, hosts_per_rack: 3, oversubscription: 2}"
    assert spaces("strategy=allreduce", racks, **few).most_hosts == 6
    roles = ["roles.trainers=3", "roles.embedding_servers=1", "roles.dense_servers=0"]
    assert spaces("strategy=allreduce", *roles, **few).most_hosts == 4
    for most, found in ((None, 6), (9, 6), (5, 5)):
        space = spaces("strategy=allreduce", racks, most=most, **few)
        assert space.most_hosts == max(c.hosts for c in space.candidates) == found
    unequal = "cluster.topology={racks: 3, hosts_per_rack: [3, 1, 1], oversubscription: 2}"
    assert spaces("strategy=allreduce", unequal, most=9, **few).most_hosts == 5
    there = "cluster.most_hosts=7"
    for sets in ([there], [there, racks], [there, "search.hosts=[4, 30]"], [there, *roles]):
        space = spaces("strategy=allreduce", *sets, **few)
        most = 6 if racks in sets else 7
        assert space.most_hosts == most
        assert max(c.hosts for c in space.candidates) <= most


def test_processes_that_share_a_host_count_once(spaces: Spaces) -> None:
    """Also where they do not fill the last one."""
    few = {key: value for key, value in FEW.items() if key != "hosts"} | {"strategies": "false"}
    shared = "cluster.per_host={trainer: 2, embedding_server: 4}"
    roles = ["roles.trainers=5", "roles.embedding_servers=3", "roles.dense_servers=1"]
    assert spaces("strategy=allreduce", shared, *roles, **few).most_hosts == 3 + 1 + 1


def test_prices_are_of_all_hosts(spaces: Spaces) -> None:
    few = {**FEW, "strategies": "false"}
    (candidate,) = spaces("strategy=allreduce", RENT, **few).candidates
    assert candidate.per_hour == 8.0
    (free,) = spaces("strategy=allreduce", **few).candidates
    assert free.per_hour is None


@pytest.mark.parametrize(
    ("sets", "search", "said"),
    [
        (["cluster.colocate=true"], {}, "divides hosts among roles"),
        (["roles.trainers=[1, 2]"], {}, "takes no `sweep`"),
        ([], {"hosts": [50], "trainers_per_host": [1]}, "no combination of its values"),
        (["cluster.topology={racks: 1, hosts_per_rack: 2, uplink: 1 Gbit/s}"],
         {"hosts": [3], "trainers_per_host": [1]}, "no combination"),
    ],
    ids=["one machine", "a sweep", "empty", "racks"],
)  # fmt: skip
def test_where_there_is_no_design_it_is_said(
    spaces: Spaces, sets: list[str], search: dict[str, object], said: str
) -> None:
    most = None if not search else 2
    with pytest.raises(UserError, match=said):
        spaces("strategy=allreduce", *sets, most=most, strategies="false", **search)
