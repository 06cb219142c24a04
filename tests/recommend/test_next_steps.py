"""What lies in a design's folder works as it stands: from any folder, and where it is put."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from recsim_train import load
from recsim_train.designs.measured import write_folders
from recsim_train.designs.searching import Design
from recsim_train.executor.emulation.cluster import EmulatedCluster
from recsim_train.executor.emulation.layout import layout_of
from tests.clock import LIMIT
from tests.commands import codes_of, command
from tests.executor.test_emulation import refused
from tests.recommend.conftest import Spaces

ODD = "my runs; touch BAD"
FEW = {"embedding_hosts": [1], "dense_hosts": [0], "trainers_per_host": [2]}


def made(spaces: Spaces, folder: Path, *sets: str) -> tuple[Path, Design]:
    """The folder of a design of two hosts, the first with two trainers."""
    designs = spaces(*sets, strategies="false", hosts=[2], servers_per_host=[1], **FEW)
    design = Design(0, designs.candidates[0])
    assert design.candidate.hosts == 2
    (place,) = write_folders(folder / ODD, [design])
    return place, design


def bash(text: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", text], cwd=cwd, capture_output=True, text=True, timeout=LIMIT, check=False
    )


@pytest.mark.slow
def test_commands_work_when_they_are_pasted_in_any_folder(
    spaces: Spaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place, _ = made(spaces, Path("."), "strategy=allreduce")
    lines = (place / "commands.txt").read_text().splitlines()
    simulate = next(n for n, line in enumerate(lines) if line.startswith("recsim-train simulate"))
    (tmp_path / "elsewhere").mkdir()
    pasted = "\n".join(lines[: simulate + 1]) + " --dry-run"
    done = bash(pasted, tmp_path / "elsewhere")
    assert done.returncode == 0, done.stderr
    assert "quickstart: allreduce" in done.stdout
    assert not list(tmp_path.rglob("BAD"))


def test_a_folder_works_where_it_is_put(
    spaces: Spaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    row = "\t".join(["1", *["1"] * 13, *["2"] * 26]) + "\n"
    (tmp_path / "data" / "mine.tsv").write_text(row * 12_000)
    monkeypatch.chdir(tmp_path)
    place, design = made(spaces, Path("."), "strategy=allreduce", "data.path=data/mine.tsv")
    there = tmp_path / "far" / "away"
    there.mkdir(parents=True)
    moved = Path(shutil.move(place, there))
    # another profile of that name lies where one stands, and beside the command's own folder
    shutil.copytree(moved, there / "other")
    other = there / "other" / "cluster.yaml"
    other.write_text(other.read_text().replace("cores: 2", "cores: 77"))
    assert "cores: 77" in other.read_text()
    monkeypatch.chdir(other.parent)
    for experiment, named, cores in (
        ("../1-allreduce/experiment.yaml", None, 2),
        ("experiment.yaml", None, 77),
        ("../1-allreduce/experiment.yaml", "cluster.yaml", 77),  # as seen from here
    ):
        done = command("simulate", experiment, "--dry-run", cwd=other.parent)
        assert done.returncode == 0, done.stderr
        (job,) = load(experiment, named).jobs()
        assert job.profile.hosts["default"].cores == cores
    assert design.candidate.job.plan.experiment.data.path == ("data/mine.tsv",)


@pytest.mark.slow
@pytest.mark.skipif(bool(why := refused()), reason=why)
def test_the_lines_of_hosts_run_as_they_stand(spaces: Spaces, tmp_path: Path) -> None:
    """Each in a network of its own; the first knows itself by another address, too."""
    place, design = made(spaces, tmp_path, "strategy=allreduce", "data.eval_rows=50")
    text = (place / "commands.txt").read_text()
    lines = [line for line in text.splitlines() if line.startswith("torchrun")]
    job = design.candidate.job
    layout = layout_of(job.plan, job.profile)
    assert len(lines) == len(layout.hosts) == 2
    with EmulatedCluster(layout) as cluster:
        first = str(layout.hosts[0].address)
        agents = []
        for host, line in zip(layout.hosts, lines, strict=True):
            said = (tmp_path / f"{host.name}.txt").open("w")
            with said:
                words = ["bash", "-c", line]
                agents.append(
                    cluster.namespace(host.name).do(
                        lambda words=words, said=said: subprocess.Popen(  # type: ignore[misc]
                            words, cwd=place, stdout=said, stderr=subprocess.STDOUT,
                            start_new_session=True,
                            env={**os.environ, "FIRST": first, "OMP_NUM_THREADS": "1",
                                 "GLOO_SOCKET_IFNAME": "eth0"},
                        )
                    )
                )  # fmt: skip
        codes = codes_of(agents, LIMIT)
    spoken = "\n".join((tmp_path / f"{host.name}.txt").read_text() for host in layout.hosts)
    assert codes == [0, 0], spoken
    assert len(list((place / "runs").glob("*-real-*"))) == 1


def test_an_unset_address_is_named(spaces: Spaces, tmp_path: Path) -> None:
    place, _ = made(spaces, tmp_path, "strategy=allreduce")
    text = (place / "commands.txt").read_text()
    line = next(line for line in text.splitlines() if line.startswith("torchrun"))
    done = bash(f"unset FIRST; {line}", place)
    assert done.returncode != 0
    assert "FIRST" in done.stderr
