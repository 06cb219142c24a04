"""Which checkpoints are whole, which one is taken, and what stays of older ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from recsim_train.checkpoints.going_on import clear_after, keeping_of
from recsim_train.checkpoints.manifest import (
    MANIFEST,
    WholeCheckpoint,
    check,
    check_space,
    folder_name,
    prune,
    read_manifest,
    steps_of,
    usable,
)
from recsim_train.config.errors import UserError
from recsim_train.placement.plan import Plan
from tests.executor.checkpoint_jobs import Job, plan_of


def with_checkpoints(plan: Plan, **rules: object) -> Plan:
    changes = {f"checkpoint.{key}": value for key, value in {"every": "4 steps", **rules}.items()}
    return replace(plan, experiment=plan.experiment.with_(changes))


def files(path: Path) -> list[Path]:
    return sorted(path.glob("*.safetensors"))


def cut_off(path: Path) -> None:
    file = files(path)[0]
    file.write_bytes(file.read_bytes()[:-5])


def change_a_bit(path: Path) -> None:
    file = files(path)[-1]
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)


def change_the_header(path: Path) -> None:
    file = files(path)[0]
    content = bytearray(file.read_bytes())
    content[8] = ord("!")
    file.write_bytes(content)


def lose_a_file(path: Path) -> None:
    files(path)[0].unlink()


def lose_the_manifest(path: Path) -> None:
    (path / MANIFEST).unlink()


def cut_the_manifest(path: Path) -> None:
    content = (path / MANIFEST).read_bytes()
    (path / MANIFEST).write_bytes(content[: len(content) // 2])


def empty_the_manifest(path: Path) -> None:
    (path / MANIFEST).write_text('{"format": 1}')


def come_from_the_future(path: Path) -> None:
    said = json.loads((path / MANIFEST).read_text())
    (path / MANIFEST).write_text(json.dumps(said | {"format": 2}))


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (cut_off, "bytes, not"),
        (change_a_bit, "has other bytes than were written"),
        (change_the_header, "is no file of it"),
        (lose_a_file, "cannot be read: No such file"),
        (lose_the_manifest, "is no complete checkpoint"),
        (cut_the_manifest, "cannot be read"),
        (empty_the_manifest, "checkpoint.json is none"),
        (come_from_the_future, "format 2, this version of recsim-train reads 1"),
    ],
)
def test_a_damaged_one_is_refused_and_the_one_before_is_taken(
    damage: Callable[[Path], None], why: str, tmp_path: Path
) -> None:
    plan = with_checkpoints(plan_of())
    folder = tmp_path / folder_name(plan)
    job = Job(plan, 1)
    job.kept(folder, 4)
    damage(job.kept(folder, 8).path)
    first, second = usable([folder])
    assert isinstance(first, UserError)
    assert why in str(first)
    assert isinstance(second, WholeCheckpoint)
    assert second.manifest.iteration == 4
    heard: list[str] = []
    keeping = keeping_of(plan, tmp_path, resume=True, say=heard.append)
    assert (keeping.first, keeping.begin, keeping.folder) == (4, second.path, folder)
    assert why in heard[0]
    assert heard[1].startswith(f"going on from {second.path}, with iteration 4")
    clear_after(keeping)
    assert steps_of(folder) == [second.path]


def test_every_file_is_looked_at_whole(tmp_path: Path) -> None:
    found = Job(plan_of(), 3).kept(tmp_path)
    check(found.path, read_manifest(found.path))
    assert len(files(found.path)) >= 3
    for file in files(found.path):
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 255]))
        with pytest.raises(UserError, match=file.name):
            check(found.path, found.manifest)
        file.write_bytes(whole)


def test_the_newest_are_kept_and_halves_that_are_older_go(tmp_path: Path) -> None:
    job = Job(plan_of(), 1)
    paths = {number: job.kept(tmp_path, number).path for number in (4, 8, 12, 16, 20)}
    lose_the_manifest(paths[8])
    lose_the_manifest(paths[20])  # which is being written
    prune(tmp_path, 2)
    assert steps_of(tmp_path) == [paths[20], paths[16], paths[12]]
    prune(tmp_path, 2)
    prune(tmp_path, 7)
    assert steps_of(tmp_path) == [paths[20], paths[16], paths[12]]


def test_a_run_that_begins_takes_a_folder_of_its_own(tmp_path: Path) -> None:
    plan = with_checkpoints(plan_of())
    folder = tmp_path / folder_name(plan)
    Job(plan, 1).kept(folder, 4)
    fresh = keeping_of(plan, tmp_path, resume=False)
    assert fresh.folder == folder.with_name(f"{folder.name}-2")
    assert (fresh.begin, fresh.first) == (None, 0)
    Job(plan, 1).kept(folder.with_name(f"{folder.name}-2"), 8)
    # the later run's, although the earlier one's might be further
    Job(plan, 1).kept(folder, 12)
    assert keeping_of(plan, tmp_path, resume=True).first == 8


def test_other_settings_are_not_gone_on_from(tmp_path: Path) -> None:
    plan = with_checkpoints(plan_of())
    Job(plan, 1).kept(tmp_path / folder_name(plan), 4)
    heard: list[str] = []
    other = with_checkpoints(plan_of(dense_lr=0.5))
    assert keeping_of(other, tmp_path, resume=True, say=heard.append).first == 0
    assert heard == ["no checkpoint to go on from: beginning at the beginning"]
    longer = with_checkpoints(plan_of(steps=500, warmup_steps=7))
    assert keeping_of(longer, tmp_path, resume=True).first == 4
    shorter = with_checkpoints(plan_of(steps=1, warmup_steps=2))
    with pytest.raises(UserError, match="goes on with iteration 4, and training ends with 3"):
        keeping_of(shorter, tmp_path, resume=True)


@pytest.mark.parametrize(("trainers", "first"), [(2, 12), (3, 8), (1, 24), (5, 4)])
def test_with_other_loops_as_many_examples_are_done(
    trainers: int, first: int, tmp_path: Path
) -> None:
    plan = with_checkpoints(plan_of(2, steps=40))
    Job(plan, 1).kept(tmp_path / folder_name(plan), 12)
    heard: list[str] = []
    other = with_checkpoints(plan_of(trainers, steps=40))
    assert keeping_of(other, tmp_path, resume=True, say=heard.append).first == first
    assert ("2 trainers made it" in heard[0]) == (trainers != 2)


def test_one_of_the_end_is_not_gone_on_from(tmp_path: Path) -> None:
    plan = with_checkpoints(plan_of())
    folder = tmp_path / folder_name(plan)
    Job(plan, 1).kept(folder, 12)
    Job(plan, 1).kept(folder, 22, ended=True)
    keeping = keeping_of(plan, tmp_path, resume=True)
    assert keeping.first == 12
    clear_after(keeping)
    assert [path.name for path in steps_of(folder)] == ["step-000000012"]


def test_a_run_that_is_over_is_made_longer_and_is_no_beginning_of_others(tmp_path: Path) -> None:
    plan = with_checkpoints(plan_of())
    folder = tmp_path / folder_name(plan)
    Job(plan, 1).kept(folder, 12)
    Job(plan, 1).kept(folder, 22, ended=True)
    assert keeping_of(with_checkpoints(plan_of(steps=90)), tmp_path, resume=True).first == 12
    other = keeping_of(with_checkpoints(plan_of(3, steps=90)), tmp_path, resume=True)
    assert (other.begin, other.folder) == (None, folder.with_name(f"{folder.name}-2"))


def test_points_of_a_sweep_have_folders_of_their_own(tmp_path: Path) -> None:
    plan = with_checkpoints(plan_of())
    Job(plan, 1).kept(tmp_path / folder_name(plan), 12)
    point = keeping_of(plan, tmp_path, resume=True, name="point")
    assert (point.first, point.folder) == (0, tmp_path / "point")


@pytest.mark.parametrize("first", [0, 1, 5, 11])
def test_what_is_left_ends_where_the_whole_would(first: int) -> None:
    rules = plan_of(steps=10, warmup_steps=2).resumed(first).experiment.training
    assert rules.warmup_steps + rules.steps == 12
    assert rules.warmup_steps == (min(first + 2, 11) if first else 2)
    assert rules.steps >= 1


def test_ranks_that_would_go_on_from_different_ones_say_so(tmp_path: Path) -> None:
    plan = with_checkpoints(plan_of())
    folder = tmp_path / folder_name(plan)
    Job(plan, 1).kept(folder, 4)
    one = keeping_of(plan, tmp_path, resume=True).terms()
    assert one == keeping_of(plan, tmp_path, resume=True).terms()
    Job(plan, 1).kept(folder, 8)
    other = keeping_of(plan, tmp_path, resume=True).terms()
    assert {key for key in one if one[key] != other[key]} == {"where the run goes on"}
    assert keeping_of(plan, tmp_path, resume=False).terms() != one


def test_a_disk_without_room_is_said_before(tmp_path: Path) -> None:
    check_space(tmp_path, 1000)
    with pytest.raises(UserError, match="a checkpoint takes 1,000,000,000,000 MB, and"):
        check_space(tmp_path, 10**18)
