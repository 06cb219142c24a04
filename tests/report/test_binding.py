"""What binds, in words: of each kind, whole and in few, and as earlier versions said it."""

from __future__ import annotations

import pytest

from recsim_train.report import naming
from recsim_train.report.what_if import relief
from recsim_train.trace.binding import CLASSES, NAMES, Binding, class_of, name_of

SATURATED = [
    ("machine.cores", "cores of the machine", "cores of the machine"),
    ("rack[0].up", "uplink out of rack[0]", "uplink out of rack[0]"),
    ("rack[1].down", "uplink into rack[1]", "uplink into rack[1]"),
    ("reader[2].thread", "parsing thread of reader[2]", "parsing thread of reader 2"),
    (
        "embedding_server[1].interpreter",
        "interpreter lock of embedding_server[1]",
        "interpreter lock of embedding server 1",
    ),
    (
        "dense_server[0].nic.rx",
        "NIC receive of dense_server[0]",
        "the network card of dense server 0, receiving",
    ),
    (
        "trainer[4-7].nic.tx",
        "NIC send of trainer[4-7]",
        "the network card of trainers 4-7, sending",
    ),
    (
        "trainer[0].loopback.tx",
        "loopback of trainer[0], sending",
        "loopback of trainer 0, sending",
    ),
    (
        "trainer[0].loopback.rx",
        "loopback of trainer[0], receiving",
        "loopback of trainer 0, receiving",
    ),
]
SERIAL = {
    "own_compute": ("computation in each training loop", "More trainers"),
    "compute": ("computation in loops and servers", "More trainers"),
    "readers": ("waiting for readers", "More readers"),
    "queueing": ("queueing for what others use", "More of what they queue for"),
    "transfer": ("bytes on their way", "A faster network"),
    "waiting": ("waiting for other loops", "Less frequent synchronisation"),
    "latency": ("latency", "Larger batches"),
}


@pytest.mark.parametrize(("resource", "said", "shown"), SATURATED)
def test_a_saturated_resource_is_named(resource: str, said: str, shown: str) -> None:
    binding = Binding(resource.partition(".")[2], resource, 0.97)
    assert naming.bottleneck(binding) == said
    assert naming.binds(binding) == shown


def test_every_part_of_a_resource_has_words_and_a_class() -> None:
    assert {resource.partition(".")[2] for resource, _, _ in SATURATED} == set(NAMES)
    for resource, said, _ in SATURATED:
        owner, _, part = resource.partition(".")
        assert name_of(resource) == said
        assert CLASSES[class_of(resource)] == (owner.partition("[")[0], part)


@pytest.mark.parametrize("what", SERIAL)
def test_where_nothing_is_saturated_the_busiest_stands_behind(what: str) -> None:
    words, do = SERIAL[what]
    binding = Binding(what, "trainer[1].interpreter", 0.5, 0.626)
    assert naming.binds(binding) == words
    assert naming.bottleneck(binding) == (
        f"{words} (63% of an iteration): no resource is saturated; the busiest, interpreter lock "
        "of trainer[1], is 50% busy"
    )
    assert relief(binding).startswith(do)
    beside = Binding(what, "machine.cores", 0.5, 0.626, others_busier=True)
    assert naming.bottleneck(beside) == (
        f"{words} (63% of an iteration): no resource is saturated; of those that training waits "
        "for, the busiest, cores of the machine, is 50% busy"
    )


def test_a_recommendation_speaks_of_the_busiest_resource_where_that_is_of_more_use() -> None:
    waiting = Binding("waiting", "trainer[0].nic.tx", 0.7, 0.5)
    assert relief(waiting).startswith("Less frequent synchronisation")
    assert relief(waiting, busiest=True).startswith("A faster network")
    readers = Binding("readers", "trainer[0].nic.tx", 0.7, 0.5)
    assert relief(readers, busiest=True) == relief(readers)
    assert relief(Binding("loopback.tx", "trainer[0].loopback.tx", 1.0)) == ""


def test_nothing_is_known_where_nothing_is_counted() -> None:
    unknown = Binding("unknown", "machine.cores", 0.5)
    assert naming.binds(unknown) == naming.binds(None) == "nothing known"
    assert naming.bottleneck(unknown) == (
        "nothing known: no resource is saturated; the busiest, cores of the machine, is 50% busy"
    )
    assert naming.bottleneck(None) is None
    assert relief(unknown) == relief(None) == ""


KINDS = [Binding(r.partition(".")[2], r, 0.97) for r, _, _ in SATURATED] + [
    Binding(what, "embedding_server[3].nic.tx", 0.5, 0.626) for what in SERIAL
]


@pytest.mark.parametrize("binding", KINDS, ids=lambda b: b.what)
def test_what_an_earlier_version_said_is_understood(binding: Binding) -> None:
    said = naming.bottleneck(binding)
    assert said is not None
    older = Binding(said=said)
    assert naming.bottleneck(older) == said
    for numbered in (True, False):
        assert naming.binds(older, numbered=numbered) == naming.binds(binding, numbered=numbered)
    assert relief(older) == relief(binding)


def test_what_no_version_says_is_shown_as_it_stands() -> None:
    older = Binding(said="something {new}")
    assert naming.bottleneck(older) == naming.binds(older) == "something {new}"
    assert relief(older) == ""
