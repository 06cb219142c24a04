"""The cards at the top of a page, and what binds in the reader's words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recsim_train.config.cluster import Costs
from recsim_train.report import naming, text
from recsim_train.report.document import Tile
from recsim_train.report.what_if import remedy
from recsim_train.report.write import report_on
from recsim_train.trace.binding import Binding
from recsim_train.trace.facts import Facts, ProcessMemory, ServersNeeded, WhatIf

GIB = 2.0**30


def shown(tiles: Any) -> dict[str, tuple[str, str]]:
    assert all(isinstance(tile, Tile) for tile in tiles)
    return {tile.title: (tile.figure.text, tile.said) for tile in tiles}


def prediction(factory: Any, plan: Any, **more: Any) -> Any:
    found = factory.outcome(plan, **more)
    found.binding = Binding("nic.rx", "dense_server[1].nic.rx", 0.95)
    found.facts = Facts(
        calibration_ci95=(20e3, 40e3),
        servers_needed={"dense_server": ServersNeeded(1, 3, 1e3, 9e3)},
        memory={
            "trainer[0]": ProcessMemory(bytes=GIB, available=16 * GIB, process=GIB),
            "dense_server[0]": ProcessMemory(bytes=3 * GIB, available=16 * GIB, process=GIB),
        },
    )
    return found


def test_a_pair_says_throughputs_error_what_binds_and_memory(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    factory.write(tmp_path, plan, "simulated", found=prediction(factory, plan))
    factory.write(tmp_path, plan, "real", found=factory.outcome(plan, world="real", speed=0.9))
    made = report_on([tmp_path])
    found = shown(made.report.tiles)
    assert list(found) == ["predicted", "measured", "error", "what binds", "memory"]
    (pair,) = made.findings.comparisons
    low, high = pair.predicted_interval or (0.0, 0.0)
    interval = f"{low / 1e3:.1f}k to {high / 1e3:.1f}k (90 % interval)"
    assert found["predicted"] == (f"{pair.predicted_eps / 1e3:.1f}k examples/s", interval)
    assert found["error"] == ("+11.1 %", "within the intervals")
    assert found["what binds"] == (
        "the network card of dense server 1, receiving",
        "3 dense servers instead of 1 would not bind.",
    )
    assert found["memory"] == ("4.00 GiB", "25.0 % of 16.0 GiB; all on one machine")


def test_a_prediction_alone_has_no_error(tmp_path: Path, factory: Any) -> None:
    plan, profile = factory.plan(), factory.cluster(colocate=False)
    factory.write(tmp_path, plan, "simulated", found=prediction(factory, plan), profile=profile)
    found = shown(report_on([tmp_path]).report.tiles)
    assert list(found) == ["predicted", "what binds", "memory"]
    assert found["memory"] == (
        "3.00 GiB",
        "18.8 % of 16.0 GiB; host of dense server 0, the fullest",
    )


def test_what_may_be_another_throughput_stands_on_the_card(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    found = prediction(factory, plan)
    found.facts.met_otherwise = 7_000.0
    first = factory.write(tmp_path / "other", plan, "simulated", found=found)
    _, said = shown(report_on([tmp_path / "other"]).report.tiles)["predicted"]
    assert said.endswith("(90 % interval); 7.00k if loops come to the busiest server at once")
    # which is the same figure
    found.facts.met_otherwise = 1.00001 * first.summary.examples_per_second
    factory.write(tmp_path / "same", plan, "simulated", found=found)
    _, said = shown(report_on([tmp_path / "same"]).report.tiles)["predicted"]
    assert said.endswith("(90 % interval)")


def test_of_several_predictions_the_fastest_counts(tmp_path: Path, factory: Any) -> None:
    for kind, batch, speed in (("flat_ps", 128, 3.0), ("allreduce", 256, 1.0)):
        plan = factory.plan(kind, training={"batch_size": batch})
        found = prediction(factory, plan, speed=speed)
        found.facts.calibration_ci95 = (1e12, 0.0)  # which reaches to neither side
        factory.write(tmp_path, plan, "simulated", found=found)
    made = report_on([tmp_path])
    assert made.report.tiles[0].title == "predicted: flat_ps, the fastest"
    plan = factory.plan("allreduce", training={"batch_size": 128})  # of other work none is
    factory.write(tmp_path, plan, "simulated", found=prediction(factory, plan))
    assert report_on([tmp_path]).report.tiles == []


def test_several_pairs_say_their_errors_first(tmp_path: Path, factory: Any) -> None:
    for kind, batch in (("flat_ps", 128), ("allreduce", 256)):
        plan = factory.plan(kind, training={"batch_size": batch})
        factory.write(tmp_path, plan, "simulated", found=prediction(factory, plan))
        factory.write(tmp_path, plan, "real", found=factory.outcome(plan, world="real", speed=0.8))
    made = report_on([tmp_path])
    found, errors = made.report.tiles, made.findings.absolute_errors
    assert found[0].title == "median error"
    assert found[0].figure.text == text.percent(sum(errors) / 2)
    assert found[0].said == f"largest {text.percent(max(errors))}; 0 of 2 beyond the intervals"
    assert found[1].title == "rank agreement"
    assert found[2].title.startswith("predicted: ")


def test_a_page_of_predictions_opens_with_them(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    factory.write(tmp_path / "runs", plan, "simulated", found=prediction(factory, plan))
    made = report_on([tmp_path / "runs"], tmp_path / "report")
    assert made.page is not None
    page = made.page.read_text(encoding="utf-8")
    titles = [page.index(f">{t}</h2>") for t in ("Predictions", "What limits it", "Environment")]
    assert titles == sorted(titles)
    assert page.index("Runs without a partner") > titles[1]
    assert 'id="unpaired"><summary>' in page  # opened on demand
    assert "Testium 9000, 4 cores" in page  # the profile's machine


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (None, ""),
        (2, ""),
        (1, " (the cluster has 1 further host: in place of trainers)"),
        (0, " (the cluster has no further host: in place of trainers)"),
    ],
)
def test_servers_for_which_there_is_no_host(factory: Any, left: int | None, said: str) -> None:
    facts = Facts(servers_needed={"dense_server": ServersNeeded(1, 3, 1e3, 9e3, left)})
    lock = Binding("interpreter", "dense_server[0].interpreter", 0.95)
    found = remedy(factory.summary(binding=lock, facts=facts))
    assert found == f"3 dense servers instead of 1{said} would not bind"


def test_a_servers_lock_takes_more_servers(factory: Any) -> None:
    for whose, said in (("embedding_server[1]", "More servers"), ("trainer[0]", "More processes")):
        lock = Binding("interpreter", f"{whose}.interpreter", 0.95)
        assert remedy(factory.summary(binding=lock)).startswith(said)


def test_every_price_has_words() -> None:
    for name in Costs.model_fields:
        assert naming.price(name) != name
        assert "_" not in naming.price(name)


ASKED = WhatIf(step=0.1, runs=20, events=1000, cost=0.5, skipped={}, degrees=10)


@pytest.mark.parametrize(
    ("binding", "facts", "do"),
    [
        (
            Binding("cores", "machine.cores", 0.95),
            Facts(
                elasticities={"cores": 0.09, "latency": -0.02, "dense_servers": 0.2, "nic": 0.0},
                elasticity_errors={"cores": 0.001, "latency": 0.001, "dense_servers": 0.001},
                what_if=ASKED,
            ),
            "One more dense server: +20.0 %; 10 % more cores: +9.0 %",
        ),
        (
            Binding("interpreter", "trainer[0].interpreter", 0.95),
            Facts(elasticities={"costs.call": -0.05}, what_if=ASKED),
            "More processes with fewer threads each relieve it",
        ),
        (
            Binding("latency", "machine.cores", 0.5, 0.4),
            Facts(),
            "Larger batches: fewer requests for each example",
        ),
        (Binding("unknown", "machine.cores", 0.5), Facts(), "Nothing that was asked changes it"),
    ],
)
def test_what_binds_comes_with_what_to_do(
    factory: Any, binding: Binding, facts: Facts, do: str
) -> None:
    assert remedy(factory.summary(binding=binding, facts=facts)) == do


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("NIC send of embedding_server[3]", "the network card of embedding server 3, sending"),
        ("dense server: NIC receive", "dense server: network card, receiving"),
        ("the busiest, NIC receive of reader[0], is 74% busy",
         "the busiest, the network card of reader 0, receiving, is 74 % busy"),
        ("model.tables[3] is large", "model.tables[3] is large"),
        ("loops", "loops on their own"),
    ],
)  # fmt: skip
def test_phrases_are_in_the_readers_words(ours: str, theirs: str) -> None:
    assert naming.phrase(ours) == theirs
    assert naming.phrase(theirs) == theirs


def test_resources_and_loops_are_in_the_readers_words() -> None:
    assert naming.resource("trainer[0].interpreter") == "trainer 0: interpreter lock"
    assert naming.resource("machine.cores") == "machine: cores"
    assert naming.resource("what else") == "what else"
    assert naming.loop("trainer[0].worker[1]") == "trainer 0, worker 1"
    assert naming.line("trainer.forward_backward") == "trainer: forward and backward pass"
