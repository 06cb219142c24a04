"""Ranks that are lost, late, stopped or asked to end: named by all, and what was measured kept."""

from __future__ import annotations

import json
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.clock import by_the_clock, tried_anew
from tests.executor.one_rank import (
    BEGUN,
    SMALL,
    UNPICKLED,
    OneRank,
    codes,
    prepared,
    ranks,
    until_said,
)

FREE = SMALL.replace("{kind: allreduce}", "{kind: flat_ps}").replace(
    "dense_servers: 0", "dense_servers: 1, readers: 1"
)
NAMES = ["trainer[0]", "trainer[1]", "embedding_server[0]", "dense_server[0]", "reader[0]"]
LONG = "training.steps=1000000"


def kept(folder: Path) -> dict[str, object]:
    """The summary of the only run directory."""
    (run,) = (folder / "runs").iterdir()
    found: dict[str, object] = json.loads((run / "summary.json").read_text())
    return found


def begun(started: list[OneRank]) -> None:
    for one in started:
        until_said(one, BEGUN)
    time.sleep(1.0)


@pytest.mark.parametrize(
    "victim",
    [pytest.param(n, marks=[pytest.mark.thorough] if n in (1, 3, 4) else []) for n in range(5)],
    ids=NAMES,
)
@tried_anew()
def test_a_killed_rank_is_named_by_all_and_the_lowest_keeps_the_result(
    victim: int, tmp_path: Path
) -> None:
    folder = prepared(tmp_path, FREE)
    with ranks() as start:
        started = start.all(folder, 5, "--set", LONG)
        begun(started)
        killed = time.monotonic()
        started[victim].kill()
        others = [one for one in started if one.rank != victim]
        assert codes(others) == [1] * 4, others[0].said
        took = time.monotonic() - killed
    for one in others:
        assert f"failed: {NAMES[victim]} (rank {victim}) was lost without a word" in one.said
        assert "Traceback" not in one.said
    assert not any("is kept in" in one.said for one in others[1:])
    if not NAMES[victim].startswith("trainer"):  # whose own steps nobody else knows
        assert "what was measured until then is kept in " in others[0].said
        assert kept(folder)["status"] == "partial"
    with by_the_clock():
        assert took < 30


def test_a_stopped_rank_is_named_after_the_time_out(tmp_path: Path) -> None:
    folder = prepared(tmp_path, FREE)
    with ranks() as start:
        started = start.all(folder, 5, "--set", LONG, "--set", "execution.timeout=4s")
        begun(started)
        started[2].kill(signal.SIGSTOP)
        others = [one for one in started if one.rank != 2]
        assert codes(others, 60) == [1] * 4
    assert all("embedding_server[0] (rank 2) was lost without a word" in o.said for o in others)
    assert kept(folder)["status"] == "partial"


@pytest.mark.parametrize(
    "way", [pytest.param("killed later", marks=pytest.mark.thorough), "stopped"]
)
def test_trainer_0_does_not_wait_for_ever_for_one_that_is_lost(way: str, tmp_path: Path) -> None:
    """It has done its own steps by then, and asks nobody anything."""
    folder = prepared(tmp_path, FREE)
    settings = ["--set", "training.steps=300", "--set", "execution.timeout=6s"]
    with ranks() as start:
        started = start.all(folder, 5, *settings)
        for one in started:
            until_said(one, BEGUN)
        started[1].kill(signal.SIGSTOP)
        if way == "killed later":
            time.sleep(4)  # trainer 0 has done its steps
            started[1].kill()
        others = [one for one in started if one.rank != 1]
        assert codes(others, 60) == [1] * 4, started[0].said
    assert "trainer[1] (rank 1) was lost without a word" in started[0].said


@tried_anew()
def test_a_rank_that_does_not_come_is_named_after_the_start_limit(tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    begin = time.monotonic()
    with ranks() as start:
        words = ("--set", "execution.start_timeout=4s")
        started = [start(folder, rank, 3, *words) for rank in (0, 2)]
        assert codes(started, 60) == [1, 1]
    took = time.monotonic() - begin
    for one in started:
        who = "trainer[1] (rank 1)"
        assert f"failed: {who} did not come within execution.start_timeout = 4 s" in one.said
    with by_the_clock():
        assert took < 40


def test_no_rank_0_is_named_by_the_address_after_the_start_limit(tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    with ranks() as start:
        one = start(folder, 1, 3, "--set", "execution.start_timeout=3s")
        assert codes([one], 40) == [1]
        assert f"no rank 0 at 127.0.0.1:{start.port} (MASTER_ADDR, MASTER_PORT) within" in one.said
        assert "Connection refused" in one.said


@pytest.mark.parametrize(
    ("where", "number"),
    [
        ("rank 0 waits", signal.SIGTERM),
        ("no rank 0", signal.SIGINT),
        ("a stranger listens", signal.SIGTERM),
        pytest.param("rank 0 waits", signal.SIGINT, marks=pytest.mark.thorough),
        pytest.param("no rank 0", signal.SIGTERM, marks=pytest.mark.thorough),
        pytest.param("a stranger listens", signal.SIGINT, marks=pytest.mark.thorough),
    ],
)
@tried_anew()
def test_signals_are_heard_while_ranks_are_waited_for(
    number: signal.Signals, where: str, tmp_path: Path
) -> None:
    folder = prepared(tmp_path)
    with ranks() as start, socket.socket() as stranger:
        if where == "a stranger listens":
            stranger.bind(("127.0.0.1", start.port))
            stranger.listen(8)
        one = start(folder, 0 if where == "rank 0 waits" else 1, 3)
        time.sleep(4)  # it waits by now
        assert one.code is None, one.said
        begin = time.monotonic()
        one.kill(number)
        assert codes([one], 20) == [128 + number]
        took = time.monotonic() - begin
        assert "Traceback" not in one.said
    with by_the_clock():
        assert took < 2 + 2


def test_a_stranger_that_listens_at_the_port_is_told_from_a_rank_0(tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    with ranks() as start, socket.socket() as stranger:
        stranger.bind(("127.0.0.1", start.port))
        stranger.listen(8)
        words = ("--set", "execution.start_timeout=5s")
        zero, one = (start(folder, rank, 3, *words) for rank in (0, 1))
        assert codes([zero, one], 40) == [2, 1]
        assert f"MASTER_PORT={start.port} is taken on this machine" in zero.said
        assert f"what listens at 127.0.0.1:{start.port} (MASTER_ADDR, MASTER_PORT) is" in one.said
        assert "no answer" in one.said


def test_ranks_that_are_asked_to_end_keep_what_was_measured(tmp_path: Path) -> None:
    folder = prepared(tmp_path, FREE)
    with ranks() as start:
        started = start.all(folder, 5, "--set", LONG)
        begun(started)
        for one in started:
            one.kill(signal.SIGTERM)
        assert codes(started, 60) == [143] * 5
    assert kept(folder)["status"] == "interrupted"
    assert "what was measured until then is kept in " in started[0].said


def test_data_are_made_by_one_rank_while_the_others_wait(tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    words = [f"data.{k}" for k in ("path=made/rows.tsv", "generate=true", "synthetic.rows=60000")]
    with ranks() as start:
        started = start.all(folder, 3, *(w for word in words for w in ("--set", word)))
        assert codes(started) == [0, 0, 0], started[0].said
    makers = [one for one in started if "does not exist yet: writing" in one.said]
    assert len(makers) == 1
    assert makers[0].rank in (0, 1)  # the server reads none
    (other,) = (one for one in started[:2] if one not in makers)
    assert "another process is making made/rows.tsv: waiting for it" in other.said or not other.said
    made = sorted(path.name for path in (folder / "made").iterdir())
    assert made == [".recsim-train", "rows.tsv"]
    assert [path.name for path in (folder / "made" / made[0]).iterdir()] == ["rows.tsv.parquet"]
    assert len((folder / "made" / "rows.tsv").read_text().splitlines()) == 60000


def test_memory_and_data_are_checked_by_ranks_as_by_the_launcher(tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    (folder / "binary.tsv").write_bytes(bytes(range(256)) * 40)
    with ranks() as start:
        started = start.all(folder, 3, "--set", "data.path=binary.tsv")
        assert codes(started) == [2, 2, 2]
        assert all("binary.tsv: a binary file; expected Criteo text" in o.said for o in started)
    huge = "model={preset: tiny, tables: [{rows: 900000000000}]}"
    with ranks() as start:
        started = start.all(folder, 3, "--set", huge)
        assert codes(started) == [2, 2, 2]
        assert all("GiB too much" in one.said for one in started), started[0].said


@pytest.mark.parametrize("ends", ["as it should", "early"])
def test_no_rank_unpickles_what_others_have_said(ends: str, tmp_path: Path) -> None:
    """Whoever reaches the store or a rank could have it run anything."""
    folder = prepared(tmp_path, FREE)
    words = ["--set", LONG] if ends == "early" else []
    with ranks() as start:
        started = start.all(folder, 5, *words, TELL_OF_PICKLES="1")
        if ends == "early":
            begun(started)
            started[4].kill()
        others = started[:4]
        assert codes(others) == [int(ends == "early")] * 4
    assert kept(folder)["status"] == ("partial" if ends == "early" else "complete")
    whose = [line for one in others for line in one.said.splitlines() if UNPICKLED in line]
    # compiled code that this machine has kept in a file
    assert {line.split()[-1] for line in whose} <= {"recsim_train.compiled"}
