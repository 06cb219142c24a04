"""Folders that another version wrote: read, with nothing where a figure did not exist, or refused
in a sentence. Never a Python error."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsim_train import calls
from recsim_train.config.errors import UserError
from recsim_train.report import naming
from recsim_train.results.rundir import ENVIRONMENT, MANIFEST, SUMMARY
from recsim_train.sweep.findings import SweepFindings
from recsim_train.sweep.folder import find_started, read_sweep
from tests.sweep.made import scaling

Place = tuple[str | int, ...]


def places(document: Any, at: Place = ()) -> Iterator[Place]:
    """Of every key; of lists in their first entry."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield (*at, key)
            yield from places(value, (*at, key))
    elif isinstance(document, list) and document:
        yield from places(document[0], (*at, 0))


def without(document: Any, place: Place) -> Any:
    whole = inner = copy.deepcopy(document)
    for key in place[:-1]:
        inner = inner[key]
    del inner[place[-1]]
    return whole


def empty(document: Any, place: Place) -> Any:
    """With null there."""
    whole = inner = copy.deepcopy(document)
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = None
    return whole


def refused(path: Path, out: Path | None = None) -> str:
    """Why; nothing where there is a report, which JSON can hold."""
    try:
        json.dumps(calls.compare(path, out=out).document, allow_nan=False)
    except UserError as error:
        why = str(error)
    else:
        return ""
    assert "\n" not in why
    assert "Error" not in why
    return why


@pytest.mark.slow
@pytest.mark.parametrize("world", ["simulated", "real"])
@pytest.mark.parametrize("name", [MANIFEST, ENVIRONMENT, SUMMARY])
@pytest.mark.parametrize("change", [without, empty])
def test_no_key_of_a_run_is_needed_without_a_word(
    tmp_path: Path, factory: Any, world: str, name: str, change: Any
) -> None:
    plan = factory.plan()
    runs = {w: factory.write(tmp_path, plan, w).path for w in ("simulated", "real")}
    file = runs[world] / name
    document = json.loads(file.read_text())
    assert not refused(tmp_path)
    kept = 0
    for place in places(document):
        file.write_text(json.dumps(change(document, place)))
        why = refused(tmp_path)
        kept += not why
        if why and place not in (("tool",), ("format",)):
            assert str(runs[world]) in why, place
            assert "damaged run directory" in why, place
    assert kept


def test_the_sentence_names_the_version_and_the_code(tmp_path: Path, factory: Any) -> None:
    path = factory.write(tmp_path, factory.plan(), "simulated").path
    for name, change in (
        (ENVIRONMENT, {"versions": {"recsim-train": "0.0.7"}}),
        (MANIFEST, {"code": "0123456789ab"}),
        (SUMMARY, {"steps": None}),
    ):
        file = path / name
        file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    assert "(recsim-train 0.0.7, code 0123456789ab): summary.json holds no usable" in refused(path)


@pytest.mark.parametrize("steps", ["steps", "warmup_steps"])
def test_what_figures_are_drawn_with_is_there_or_is_named(
    tmp_path: Path, factory: Any, steps: str
) -> None:
    for world in ("simulated", "real"):
        path = factory.write(tmp_path / "runs", factory.plan(), world).path
    file = path / MANIFEST
    manifest = json.loads(file.read_text())
    file.write_text(json.dumps(without(manifest, ("configuration", "training", steps))))
    why = refused(tmp_path / "runs", tmp_path / "report")
    assert f"manifest.json lacks 'configuration.training.{steps}'" in why


def test_no_key_of_a_sweep_is_needed_without_a_word(tmp_path: Path) -> None:
    path = scaling(tmp_path).record.path
    file = path / "sweep.json"
    header = json.loads(file.read_text())
    for place in places(header):
        file.write_text(json.dumps(without(header, place)))
        why = refused(path)
        assert not why or str(path) in why, place
        with suppress(UserError):  # as --resume does
            find_started(path, header, lambda _: None)


LOCK = "interpreter lock of embedding_server[1]"


def test_what_binds_was_said_in_words(tmp_path: Path, factory: Any) -> None:
    path = factory.write(tmp_path / "run", factory.plan(), "simulated").path
    summary = json.loads((path / SUMMARY).read_text())
    del summary["binding"]
    said = "waiting for readers (63% of an iteration): no resource is saturated; the busiest, ..."
    for words, few, do in (
        (LOCK, "interpreter lock of embedding server 1", "More servers: each is one process"),
        (said, "waiting for readers", "More readers, or examples that are cheaper to read"),
    ):
        (path / SUMMARY).write_text(json.dumps({**summary, "bottleneck": words}))
        made = calls.compare(tmp_path / "run").report
        (tile,) = (t for t in made.tiles if t.title == "what binds")
        assert tile.figure.text == few
        assert tile.figure.hover == naming.phrase(words)
        assert tile.said.startswith(do)


def test_what_binds_was_a_column_of_words(tmp_path: Path) -> None:
    path = scaling(tmp_path).record.path
    table = pq.read_table(path / "sweep.parquet").drop(["binding", "bottleneck"])
    words = pa.array([LOCK] * len(table))
    pq.write_table(table.append_column("bottleneck", words), path / "sweep.parquet")
    sweep = SweepFindings(read_sweep(path))
    assert {row.bottleneck for row in sweep.done} == {LOCK}
    assert sweep.bindings == ["interpreter lock of embedding server"]


def test_a_figure_that_a_sweep_did_not_have_is_an_empty_column(tmp_path: Path) -> None:
    path = scaling(tmp_path).record.path
    table = pq.read_table(path / "sweep.parquet")
    for column in table.column_names:
        pq.write_table(table.drop([column]), path / "sweep.parquet")
        assert bool(refused(path)) == (column == "point"), column
