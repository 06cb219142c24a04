"""What ``--dry-run`` prints: verdicts first, and what is alike as one line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from recsim_train.placement.hosts import together
from tests.commands import answer, command

ROOT = Path(__file__).parents[2]
PROFILE = f"""
format: 1
extends: {ROOT / "tests" / "frozen-2core.yaml"}
name: twenty
colocate: false
hosts: {{default: {{cores: 32, memory: 128 GiB, nic: 25 Gbit/s}}}}
topology: {{racks: 2, hosts_per_rack: 10, oversubscription: 2}}
network: {{latency: 20 us, connection_cap: null}}
"""
EXPERIMENT = """
name: wide
model:
  embedding_dim: 64
  bottom_mlp: [512, 64]
  top_mlp: [512, 1]
  tables: {count: 40, rows: 100_000, ids: 9, variable: true}
roles: {trainers: 12, embedding_servers: 6, dense_servers: 2}
training: {batch_size: 512, threads: 16, steps: 100, warmup_steps: 5}
strategy: flat_ps
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "twenty.yaml").write_text(PROFILE)
    (tmp_path / "wide.yaml").write_text(EXPERIMENT)
    return tmp_path


DRY = ("simulate", "wide.yaml", "--cluster", "twenty.yaml", "--dry-run")


def test_twenty_hosts_are_some_twenty_lines_with_the_verdicts_first(folder: Path) -> None:
    done = command(*DRY, cwd=folder)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) < 30
    assert lines[0] == "wide: flat_ps"
    assert lines[1].startswith("  memory: fits: ")
    assert re.match(r"  binds: [a-z]+ ?[a-z]*: .*, at about \S+ examples/s; then ", lines[2])
    takes = r"  simulating it takes (about|less) .*, asking what would change it .* more$"
    assert re.match(takes, lines[3])
    place = lines.index("  ranks 0..11  trainer[0..11]")
    assert lines[place + 1] == "      loops worker[0..15], each fed by itself"


def test_what_does_not_fit_is_said_first_and_nothing_is_looked_at(folder: Path) -> None:
    done = command(*DRY, "--set", "cluster.hosts.default.memory=32 MiB", cwd=folder)
    assert done.returncode == 2
    assert done.stdout.splitlines()[1] == "  memory: does not fit"
    assert "binds" not in done.stdout


def test_a_document_has_the_bounds_too(folder: Path) -> None:
    (plan,) = answer(*DRY, cwd=folder)["plans"]
    bounds, (least, most) = (plan["beforehand"][key] for key in ("bounds", "seconds"))
    assert list(bounds.values()) == sorted(bounds.values())
    assert 0.0 < least <= most
    assert plan["beforehand"]["asking"] > 0.0
    assert json.dumps(plan["beforehand"])


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["trainer[0]", "trainer[1]", "trainer[2]"], ["trainer[0..2]"]),
        (["trainer[0].member", "trainer[1].member"], ["trainer[0..1].member"]),
        (["t[0].w[0]", "t[0].w[1]", "t[1].w[0]", "t[1].w[1]"], ["t[0].w[0..1]", "t[1].w[0..1]"]),
        (["0", "2", "3", "4", "9"], ["0", "2..4", "9"]),
        (["3[0:10]", "3[10:20]"], ["3[0:10]", "3[10:20]"]),
        (["a[9]", "a[10]", "b[11]"], ["a[9..10]", "b[11]"]),
        (["worker", "worker"], ["worker", "worker"]),
        ([], []),
    ],
)
def test_names_that_count_up_are_one(names: list[str], said: list[str]) -> None:
    assert together(names) == said
