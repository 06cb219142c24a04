"""One experiment under torchrun on several hosts, each with an agent, a network and a clock of its
own: as the tool starts it itself on the same hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recsim_train import load
from recsim_train.executor.emulation.cluster import EmulatedCluster
from recsim_train.executor.emulation.layout import EmulatedHost, layout_of
from tests.clock import LIMIT, by_the_clock, tried_anew
from tests.commands import answer, codes_of
from tests.executor.test_emulation import refused

CLOCKS = 1_000, 5_000
"""Seconds by which the hosts' clocks are ahead of this machine's."""
BASE = (Path(__file__).parents[1] / "frozen-2core.yaml").resolve()
EXPERIMENT = f"""
name: several
model: {{embedding_dim: 16, bottom_mlp: [16], top_mlp: [16, 1], tables: {{count: 26, rows: 500}}}}
data: {{path: null, eval_rows: 0}}
roles: {{trainers: 2, embedding_servers: 1, dense_servers: 0}}
training: {{batch_size: 64, steps: 20, warmup_steps: 2}}
strategy: allreduce
cluster:
  extends: {BASE}
  name: hosts
  colocate: false
  per_host: {{trainer: 2}}
  hosts: {{default: {{nic: 50 Mbit/s}}}}
  network: {{latency: 30 us, efficiency: 0.9564, connection_cap: null}}
"""


def clocks_refused() -> str:
    """Why no host can have a clock of its own here; nothing where they can."""
    words = ["unshare", "-T", "--monotonic", "1", "--fork", "true"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    except FileNotFoundError:
        return "there is no program unshare"
    return done.stderr.strip() if done.returncode else ""


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(why := refused() or clocks_refused()), reason=why),
]


def agent(cluster: EmulatedCluster, host: EmulatedHost, head: str, clock: int,
          folder: Path) -> subprocess.Popen[str]:  # fmt: skip
    """torchrun on one host, as docs/tasks/several-machines.md has it."""
    rank = cluster.layout.hosts.index(host)
    words = [
        "unshare", "-T", "--monotonic", str(clock), "--fork", sys.executable, "-m",
        "torch.distributed.run", f"--nnodes={len(cluster.layout.hosts)}",
        f"--nproc-per-node={len(host.processes)}", f"--node-rank={rank}", f"--master-addr={head}",
        "--master-port=29500", "-m", "recsim_train", "run", "several.yaml", "--json",
        "--out", f"runs of {host.name}",
    ]  # fmt: skip
    said = (folder / f"{host.name}.txt").open("w")
    with said:
        return cluster.namespace(host.name).do(
            lambda: subprocess.Popen(
                words, cwd=folder, stdout=said, stderr=subprocess.STDOUT, text=True,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"},
            )
        )  # fmt: skip


def summary_in(folder: Path) -> dict[str, Any]:
    (found,) = folder.glob("*-real-*")
    summary: dict[str, Any] = json.loads((found / "summary.json").read_text())
    return summary


@tried_anew()
def test_an_agent_a_host_trains_as_the_tool_s_own_start(tmp_path: Path) -> None:
    (tmp_path / "several.yaml").write_text(EXPERIMENT)
    study = load(tmp_path / "several.yaml")
    (job,) = study.jobs()
    assert job.cluster is not None
    layout = layout_of(job.plan, job.cluster)
    assert [len(host.processes) for host in layout.hosts] == [2, 1]
    with EmulatedCluster(layout) as cluster:
        head = str(layout.hosts[0].address)
        agents = [
            agent(cluster, host, head, clock, tmp_path)
            for host, clock in zip(layout.hosts, CLOCKS, strict=True)
        ]
        codes = codes_of(agents, LIMIT)
    said = "\n".join((tmp_path / f"{host.name}.txt").read_text() for host in layout.hosts)
    assert codes == [0, 0], said
    # the head has the run, and only the head
    assert not (tmp_path / f"runs of {layout.hosts[1].name}").exists()
    spread = summary_in(tmp_path / f"runs of {layout.hosts[0].name}")
    (own,) = answer("run", "several.yaml", "--emulate", cwd=tmp_path)["runs"]
    alone = json.loads((tmp_path / own["run_dir"] / "summary.json").read_text())
    assert spread["facts"]["launched_by"] == "torchrun"
    assert spread["train_loss_last"] == alone["train_loss_last"]
    assert spread["bytes_by_effect"] == alone["bytes_by_effect"]
    assert spread["facts"]["header_bytes"] == alone["facts"]["header_bytes"]
    assert not alone["facts"].get("clocks")
    # the server's host has another clock
    (name, clocks), = spread["facts"]["clocks"].items()  # fmt: skip
    assert name == "embedding_server[0]"
    for reading in clocks["before"], clocks["after"]:
        assert reading["error"] > 0.0
        with by_the_clock():
            assert reading["error"] < 0.05
            assert abs(reading["ahead"] - (CLOCKS[1] - CLOCKS[0])) <= reading["error"] + 1e-3
    check_spans(tmp_path / f"runs of {layout.hosts[0].name}", clocks["before"]["error"])


def check_spans(runs: Path, error: float) -> None:
    """What a server did for a request lies within the request, on one time axis."""
    import pandas as pd

    (found,) = runs.glob("*-real-*")
    (file,) = found.glob("spans*")
    spans = pd.read_parquet(file) if file.suffix == ".parquet" else pd.read_csv(file)
    asked = spans[(spans.effect == "lookup") & (spans.instance == "trainer[0]")]
    served = spans[(spans.effect == "serve_lookup") & spans.loop.str.startswith("trainer[0].")]
    times = [
        lane.set_index("iteration")[["start", "end"]].add_suffix(suffix)
        for lane, suffix in ((asked, "_asked"), (served, "_served"))
    ]
    both = times[0].join(times[1], how="inner")
    assert len(both) >= 20
    allowed = error + 2e-3  # threads are woken late where others are at work
    assert (both.start_served >= both.start_asked - allowed).all()
    with by_the_clock():  # a server notes the end after it has sent, when it has a core again
        assert (both.end_served <= both.end_asked + allowed).all()
