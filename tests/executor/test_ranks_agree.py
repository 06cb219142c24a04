"""Ranks that differ end before they begin, each with the same sentence; jobs stay apart."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
from torch._C._distributed_c10d import TCPStore

from recsim_train.config.errors import UserError
from recsim_train.executor.link.rendezvous import Rank
from recsim_train.executor.process import agreement
from recsim_train.executor.process.agreement import differences
from tests.executor.one_rank import BEGUN, codes, prepared, ranks, until_said

DIFFER = {
    "training.steps=31": "training.steps: 30 at rank 0 (trainer[0]) and rank 2 "
    "(embedding_server[0]), 31 at rank 1 (trainer[1])",
    "training.batch_size=33": "training.batch_size: 32 at rank 0",
    "seed=2": "seed: 1 at rank 0 (trainer[0]) and rank 2 (embedding_server[0]), 2 at rank 1",
    "training.dense_lr=0.5": "training.dense_lr: ",
    "training.sparse_lr=0.5": "training.sparse_lr: ",
    "name=another": "name: by-hand at rank 0",
    "execution.wire=float16": "execution.wire: full at rank 0",
    "strategy={kind: localsgd}": "strategy.kind: allreduce at rank 0",
    "data.eval_rows=65": "data.eval_rows: 64 at rank 0",
    "data.synthetic.rows=5000": "data.synthetic.rows: 4000 at rank 0",
    "model.bottom_mlp=[24, 8]": "model.bottom_mlp: ",
    "data.path=one.tsv": "data.path: not set at rank 0 (trainer[0]) and rank 2 "
    "(embedding_server[0]), a file at rank 1 (trainer[1])",
}


def rows(count: int, label: int = 0) -> str:
    row = "\t".join([str(label), *["3"] * 13, *["0a1b2c3d"] * 26])
    return f"{row}\n" * count


@pytest.mark.parametrize("setting", DIFFER)
def test_a_rank_that_differs_is_named_by_all_with_both_values(setting: str, tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    (folder / "one.tsv").write_text(rows(500))
    with ranks() as start:
        started = [
            start(folder, rank, 3, *(("--set", setting) if rank == 1 else ())) for rank in range(3)
        ]
        assert codes(started) == [2, 2, 2]
    assert not (folder / "runs").exists() or not [*(folder / "runs").iterdir()]
    for one in started:
        assert "the ranks do not agree on the run: " in one.said
        assert DIFFER[setting] in one.said
        assert "rank 1 (trainer[1])" in one.said
        assert "Traceback" not in one.said


@pytest.mark.parametrize("other", ["longer", "same size, other rows", "equal, elsewhere"])
def test_the_data_file_counts_by_its_size_and_first_rows(other: str, tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    (folder / "there").mkdir()
    (folder / "one.tsv").write_text(rows(500))
    texts = {"longer": rows(501), "same size, other rows": rows(500, 1)}
    (folder / "there" / "two.tsv").write_text(texts.get(other, rows(500)))
    with ranks() as start:
        files = ["one.tsv", "there/two.tsv", "no/such.tsv"]  # a server reads none
        started = [start(folder, r, 3, "--set", f"data.path={f}") for r, f in enumerate(files)]
        ended = codes(started)
    if other == "equal, elsewhere":
        assert ended == [0, 0, 0], started[0].said
        return
    assert ended == [2, 2, 2]
    for one in started:
        assert "the file of data.path: " in one.said
        assert "rank 0 (trainer[0])" in one.said
        assert "rank 1 (trainer[1])" in one.said


def test_another_number_of_processes_is_named_by_all(tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    with ranks() as start:
        started = [start(folder, 0, 3), start(folder, 1, 3, "--set", "roles.trainers=3")]
        started.append(start(folder, 2, 3))
        assert codes(started) == [2, 2, 2]
    for one in started:
        assert "roles.trainers: 2 at rank 0" in one.said
        assert ", 3 at rank 1" in one.said


def test_a_refusal_of_one_rank_is_told_to_all(tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    (folder / "one.tsv").write_text(rows(500))
    with ranks() as start:
        files = ["one.tsv", "no/such.tsv", "one.tsv"]
        started = [start(folder, r, 3, "--set", f"data.path={f}") for r, f in enumerate(files)]
        assert codes(started) == [2, 2, 2]
    assert "no/such.tsv: no such" in started[1].said
    for one in (started[0], started[2]):
        assert "trainer[1] (rank 1) refuses to begin: no/such.tsv: no such" in one.said


def test_a_rank_of_another_job_is_told_so_and_harms_none(tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    with ranks() as start:
        a, b = {"TORCHELASTIC_RUN_ID": "a"}, {"TORCHELASTIC_RUN_ID": "b"}
        ours = [start(folder, 0, 3, **a)]
        theirs = [start(folder, 1, 3, "--set", "seed=2", **b)]
        assert codes(theirs) == [2]
        assert "are of another job, a; this one is of b (TORCHELASTIC_RUN_ID)" in theirs[0].said
        ours += [start(folder, rank, 3, **a) for rank in (1, 2)]
        assert codes(ours) == [0, 0, 0], ours[0].said


@pytest.mark.parametrize("other_id", [{}, {"TORCHELASTIC_RUN_ID": "b"}], ids=["none", "another"])
def test_a_refusal_of_another_job_s_rank_ends_nobody_else_s_run(
    other_id: dict[str, str], tmp_path: Path
) -> None:
    folder = prepared(tmp_path)
    with ranks() as start:
        ours = start.all(folder, 3, "--set", "training.steps=1000000")
        until_said(ours[0], BEGUN)
        other = start(folder, 1, 3, "--set", "data.path=no/such.tsv", **other_id)
        assert codes([other]) == [2]
        assert "no/such.tsv: no such file" in other.said
        time.sleep(2.0)  # they look four times a second
        assert [one.code for one in ours] == [None, None, None], ours[0].said


def test_two_jobs_without_an_id_on_one_port_do_not_join(tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    with ranks() as start:
        ours = start.all(folder, 3, "--set", "training.steps=1000000")
        until_said(ours[0], BEGUN)
        master, other = start(folder, 0, 3), start(folder, 2, 3)
        assert codes([master, other]) == [2, 2]
        assert f"MASTER_PORT={start.port} is taken on this machine" in master.said
        assert f"RANK=2 of the run at 127.0.0.1:{start.port} (MASTER_ADDR" in other.said
        assert "is taken by process " in other.said
        assert [one.code for one in ours] == [None, None, None]


def test_a_rank_given_twice_is_told_so(tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    with ranks() as start:
        ours = [start(folder, 0, 3), start(folder, 1, 3), start(folder, 1, 3)]
        ended = [one for one in ours[1:] if codes([one], 20) == [2]]
        assert len(ended) == 1
        assert "give each rank a number of its own" in ended[0].said
        ours.append(start(folder, 2, 3))
        assert sorted(map(str, codes(ours))) == ["0", "0", "0", "2"]


@pytest.fixture
def store() -> TCPStore:
    return TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=5), wait_for_workers=False)


def rank_of_three(rank: int) -> Rank:
    return Rank(rank, 3, "127.0.0.1", 29500, job="", restart=0, keeps_store=rank == 0)


def test_a_rank_given_twice_is_told_so_whatever_the_processes_numbers_are(store: TCPStore) -> None:
    """Here both have one number and one host name, as in containers they may."""
    agreement.claim(store, store, rank_of_three(0), lambda: None, 5.0)
    agreement.claim(store, store, rank_of_three(1), lambda: None, 5.0)
    words = rf"^RANK=1 of the run at .* is taken by process {os.getpid()} on .* another, process"
    with pytest.raises(UserError, match=words):
        agreement.claim(store, store, rank_of_three(1), lambda: None, 5.0)


@pytest.mark.parametrize("counted", [2, 3], ids=["as they come", "one too many"])
def test_who_has_not_come_is_named_by_its_role_however_many_have_been_counted(
    store: TCPStore, counted: int
) -> None:
    labels = ["trainer[0] (rank 0)", "trainer[1] (rank 1)", "dense_server[0] (rank 2)"]
    store.add("word/count", counted - 1)
    store.set("word/1", "{}")
    mine = agreement.Word("trainer[0]", "here", "127.0.0.1", 0, {})
    words = r"^dense_server\[0\] \(rank 2\) did not come within execution.start_timeout = 9 s$"
    with pytest.raises(TimeoutError, match=words):
        agreement.exchange(store, rank_of_three(0), labels, mine, lambda: None, 9.0, 0.2)


def test_who_differs_stands_beside_what_is_common() -> None:
    terms = {f"rank {r}": {"a": "1", "the file": "x"} for r in range(8)}
    assert differences(terms) is None
    terms["rank 5"] = {"a": "2"}  # who does not read a file does not name it
    sentence = differences(terms)
    assert sentence is not None
    assert "a: 1 at rank 0, rank 1, rank 2, rank 3 and 3 more, 2 at rank 5 (" in sentence
    assert "the file" not in sentence
    terms["rank 5"] = {"a": "1", "b": "3", "the file": "y"}
    sentence = differences(terms)
    assert sentence is not None
    assert "; the file: x at rank 0" in sentence or "the file: x at rank 0" in sentence
    assert "b: not set at rank 0" in sentence
    assert "3 at rank 5" in sentence
