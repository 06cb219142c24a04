"""Start files: what schedulers read of them is the plan."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import recsim_train
from tests.commands import ROOT, command

EXPERIMENT: dict[str, Any] = {
    "name": "mine",
    "model": {"preset": "tiny"},
    "data": {"path": "logs/day_0", "generate": True, "eval_rows": 100},
    "roles": {"trainers": 4, "embedding_servers": 2, "dense_servers": 1},
    "training": {"batch_size": 32, "threads": 2, "steps": 20},
    "checkpoint": {"every": "10 steps"},
    "strategy": "flat_ps",
    "cluster": "mine",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An experiment on hosts of two trainers each."""
    shutil.copytree(ROOT / "cluster_profiles", tmp_path / "cluster_profiles")
    done = command("cluster", "new", "cluster_profiles/mine.yaml", "--hosts", "6", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    profile = tmp_path / "cluster_profiles" / "mine.yaml"
    profile.write_text(profile.read_text() + "per_host: {trainer: 2}\n")
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    return tmp_path


def launched(folder: Path, scheduler: str, *more: str) -> Path:
    done = command("launch", scheduler, "mine.yaml", "-o", "job", *more, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "job"


def shell_is_sound(path: Path) -> None:
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_experiment_is_the_same_from_its_new_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = launched(folder, "slurm")
    monkeypatch.chdir(folder)
    (there,) = recsim_train.load(job / "experiment.yaml").plans
    (here,) = recsim_train.load(folder / "mine.yaml").plans
    assert there.instances == here.instances
    assert there.experiment.data.path == (str(Path("logs/day_0").absolute()),)
    assert there.experiment.with_({"data.path": None, "cluster": ""}) == here.experiment.with_(
        {"data.path": None, "cluster": ""}
    )


def test_slurm_gets_a_task_for_each_rank(folder: Path) -> None:
    script = launched(folder, "slurm", "--minutes", "90") / "run.sbatch"
    shell_is_sound(script)
    shell_is_sound(folder / "job" / "calibrate.sbatch")
    text = script.read_text()
    asked = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)", text, re.MULTILINE))
    assert (asked["nodes"], asked["ntasks-per-node"], asked["cpus-per-task"]) == ("5", "2", "2")
    assert "srun --ntasks=7 --cpus-per-task=2 " in text
    assert (asked["time"], asked["signal"]) == ("90", "TERM@60")
    assert "counts=(2 2 1 1 1)" in text
    assert "# host 1: rank 2 trainer[2], 3 trainer[3]" in text
    assert "--resume" in text


def test_kubernetes_gets_a_pod_for_each_rank(folder: Path) -> None:
    documents = list(yaml.safe_load_all((launched(folder, "kubernetes") / "job.yaml").read_text()))
    settings, service, job, calibration = documents
    assert [one["kind"] for one in documents] == ["ConfigMap", "Service", "Job", "Job"]
    assert (job["spec"]["completions"], job["spec"]["completionMode"]) == (7, "Indexed")
    spec = job["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    told = {one["name"]: one["value"] for one in container["env"]}
    assert told["WORLD_SIZE"] == "7"
    assert told["MASTER_ADDR"] == f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert spec["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None"
    assert spec["terminationGracePeriodSeconds"] > 30
    (shell,) = container["args"]
    assert "recsim-train run /settings/experiment.yaml" in shell
    # what pods read is the experiment, and its profile beside it
    place = folder / "settings"
    place.mkdir()
    for name, text in settings["data"].items():
        (place / name).write_text(text)
    (plan,) = recsim_train.load(place / "experiment.yaml").plans
    assert len(plan.instances) == 7
    assert calibration["spec"]["template"]["spec"]["containers"][0]["command"][1] == "calibrate"


@pytest.mark.parametrize(("scheduler", "file"), [("skypilot", "task.yaml"), ("ssh", "run.sh")])
def test_others_get_a_line_of_torchrun_for_each_host(
    folder: Path, scheduler: str, file: str
) -> None:
    path = launched(folder, scheduler) / file
    text = path.read_text()
    if scheduler == "ssh":
        shell_is_sound(path)
        started = re.findall(r'^start "\$\{(\d)\}" (\d) (\d)', text, re.MULTILINE)
        assert [(int(b), int(c)) for _, b, c in started] == [(0, 2), (1, 2), (2, 1), (3, 1), (4, 1)]
    else:
        task = yaml.safe_load(text)
        assert task["num_nodes"] == 5
        assert task["resources"]["cpus"] == "4+"
        assert "counts=(2 2 1 1 1)" in task["run"]
        (folder / "run.sh").write_text(task["run"])
        shell_is_sound(folder / "run.sh")
    assert "-m recsim_train run experiment.yaml" in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["pbs", "mine.yaml"], "expected one of slurm, kubernetes, skypilot, ssh, got 'pbs'"),
        (["slurm", "mine.yaml", "--set", "roles.trainers=[2, 4]"], "this asks for 2"),
        (["slurm", "mine.yaml", "--set", "roles.trainers=40"], "hosts .* are too few"),
        (["slurm", "none.yaml"], "none.yaml: cannot be read"),
    ],
)
def test_what_cannot_be_started_is_a_sentence(
    folder: Path, words: list[str], sentence: str
) -> None:
    done = command("launch", *words, "-o", "job", cwd=folder)
    assert done.returncode == 2
    assert re.search(sentence, done.stderr), done.stderr
    assert not (folder / "job").exists()


def test_nothing_is_overwritten(folder: Path) -> None:
    launched(folder, "ssh")
    done = command("launch", "slurm", "mine.yaml", "-o", "job", cwd=folder)
    assert done.returncode == 2
    assert "experiment.yaml exists already: nothing was written" in done.stderr
    assert not (folder / "job" / "run.sbatch").exists()


def test_a_host_that_fails_is_told_of(folder: Path, tmp_path: Path) -> None:
    """By the script for ssh, with one that fails at the second host."""
    script = launched(folder, "ssh") / "run.sh"
    place = tmp_path / "bin"
    place.mkdir()
    (place / "ssh").write_text('#!/bin/bash\necho "$1" >> asked; [ "$1" != two ]\n')
    (place / "ssh").chmod(0o755)
    path = {"PATH": f"{place}:/usr/bin:/bin"}
    call = ["bash", str(script), "one", "two", "three", "four", "five"]
    assert subprocess.run(call, env=path, check=False, timeout=60).returncode == 1
    assert sorted((script.parent / "asked").read_text().split()) == sorted(call[2:])
    assert subprocess.run(call[:-1], env=path, check=False, timeout=60).returncode == 2


def test_names_are_no_commands(folder: Path) -> None:
    text = yaml.safe_dump({**EXPERIMENT, "name": "9 lives\n\ntouch here; \u00fc"})
    (folder / "mine.yaml").write_text(text)
    for scheduler in ("slurm", "ssh", "skypilot"):
        job = launched(folder, scheduler)
        for path in job.iterdir():
            if path.name not in ("experiment.yaml", "cluster.yaml"):
                assert "touch here" not in path.read_text()
                assert "lives-touch-here" in path.read_text()
        shutil.rmtree(job)


def test_a_modules_file_is_not_where_pods_are(folder: Path) -> None:
    (folder / "net.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self, n):\n"
        "        super().__init__()\n"
        "        self.top = torch.nn.Linear(n, 1)\n"
        "    def forward(self, dense, embedded):\n"
        "        return self.top(torch.cat([dense, embedded.flatten(1)], 1)).squeeze(1)\n"
        "def build(dense_features, tables, embedding_dim):\n"
        "    return Net(dense_features + len(tables) * embedding_dim)\n"
    )
    model = {"preset": "tiny", "module": "net.py:build"}
    (folder / "mine.yaml").write_text(yaml.safe_dump({**EXPERIMENT, "model": model}))
    done = command("launch", "kubernetes", "mine.yaml", "-o", "job", cwd=folder)
    assert done.returncode == 2
    assert "install it as a package there" in done.stderr
    launched(folder, "slurm")
