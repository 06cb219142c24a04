"""Runs whose processes leave what they hold at the end: their shards, and the replica that was
evaluated, else their own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from recsim_train.executor.process import entry, forkserver, launch
from recsim_train.executor.process import role as roles
from recsim_train.executor.process.role import Role
from recsim_train.executor.runtime import LoopContext
from recsim_train.executor.shards.services import EmbeddingServer
from recsim_train.placement.plan import Plan
from recsim_train.trace.record import Outcome


def execute_keeping(plan: Plan, folder: Path, **options: Any) -> Outcome:
    """In the folder each process leaves NAME.pt."""
    start = forkserver.start
    with patch.object(forkserver, "start", lambda _, *rest: start("tests.executor.keeping", *rest)):
        return launch.execute(plan, staging=folder, **options)


def main() -> None:
    """One process of such a run; its command line: FOLDER RANK NAME."""
    evaluated: list[Tensor] = []
    evaluate, finish = roles.evaluate, Role.finish

    def evaluating(plan: Plan, context: LoopContext) -> dict[str, float | None]:
        evaluated.append(context.worker.replica.parameters)
        return evaluate(plan, context)

    def finishing(role: Role, tick: Callable[[], None]) -> None:
        finish(role, tick)
        left = held(role)
        if role.instance.role == "trainer":
            left["replica"] = evaluated[0] if evaluated else role.replica.parameters
        torch.save(left, Path(sys.argv[1]) / f"{role.instance.name}.pt")

    with patch.object(roles, "evaluate", evaluating), patch.object(Role, "finish", finishing):
        entry.main()


def held(role: Role) -> dict[str, object]:
    """By shard, which part it is and its values."""
    found: dict[str, object] = {}
    for (service, index), server in role.servers.items():
        if isinstance(server, EmbeddingServer):
            slices = [
                (s.table, s.start, s.stop, s.step, s.first, s.last)
                for s in server.rules.shard.slices
            ]
            found[f"{service}/{index}"] = slices, server.state.rows
        else:
            shard = server.rules.shard
            found[f"{service}/{index}"] = (shard.start, shard.stop), server.state.values
    return found
