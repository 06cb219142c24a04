"""What a recommendation says of how far its designs are from what was measured."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from recsim_train.designs.searching import Design
from recsim_train.designs.shown import FASTEST_LINK, MOST_HOSTS, distances
from tests.recommend.conftest import Spaces

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
ONE = {
    "embedding_hosts": [1], "dense_hosts": [1], "trainers_per_host": [1], "servers_per_host": [1],
    "threads": [1],
}  # fmt: skip


def design_of(spaces: Spaces, *sets: str, hosts: int = 4) -> Design:
    made = spaces("strategy=flat_ps", *sets, most=hosts, hosts=[hosts], **ONE)
    return Design(0, next(c for c in made.candidates if c.hosts == hosts))


def test_what_was_emulated_is_what_the_published_grid_has() -> None:
    newest = max(RESULTS.glob("clusters-20*/validation.csv"))
    with newest.open(encoding="utf-8") as lines:
        labels = [row["label"] for row in csv.DictReader(lines) if row["measured"]]
    hosts = [int(re.findall(r"(\d+) hosts at", label)[0]) for label in labels]
    rates = [int(r) for label in labels for r in re.findall(r"(\d+)(?: and \d+)? Mbit/s", label)]
    assert max(hosts) == MOST_HOSTS
    assert max(rates) * 1e6 / 8 == FASTEST_LINK


def test_a_design_like_those_is_said_to_be_one(spaces: Spaces) -> None:
    design = design_of(spaces)
    assert list(distances([design])) == ["design 1: of a size that was measured"]


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["cluster.hosts.default.cores=32"], r"cores of a host \(32, prices are of 2\)"),
        (
            ["cluster.hosts.default.nic=25 Gbit/s"],
            r"network cards \(25 Gbit/s, emulated were 1 Gbit/s\)",
        ),
    ],
)
def test_what_is_beyond_is_named(spaces: Spaces, sets: list[str], said: str) -> None:
    (line,) = distances([design_of(spaces, *sets)])
    assert re.search(f"^design 1: beyond what was measured in .*{said}", line)


def test_more_hosts_are_named_and_equal_ones_share_a_line(spaces: Spaces) -> None:
    few, many = design_of(spaces), design_of(spaces, hosts=20)
    assert list(distances([few, many, few])) == [
        "designs 1 and 3: of a size that was measured",
        "design 2: beyond what was measured in hosts (20, emulated were 15)",
    ]
