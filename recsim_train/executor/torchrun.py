"""The same run under torchrun: one rank for each role instance, on one machine or on many."""

from __future__ import annotations

import functools
import itertools
import os
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.executor.merge import merge
from recsim_train.executor.part import Part
from recsim_train.executor.process import START_UP, describe
from recsim_train.executor.scheduling import batch_scheduling
from recsim_train.placement.plan import Plan
from recsim_train.trace.record import Outcome

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store


_runs = itertools.count()


@functools.cache
def _rendezvous() -> Store:
    """The key-value store that torchrun's environment variables name."""
    from torch._C._distributed_c10d import Store
    from torch.distributed.rendezvous import rendezvous

    store, _, _ = next(rendezvous("env://", timeout=START_UP))
    assert isinstance(store, Store)
    return store


def under_torchrun() -> bool:
    """Whether torchrun's environment variables are present."""
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))


def execute_rank(plan: Plan) -> Outcome | None:
    """Be one rank of a run. Rank 0 returns the whole outcome, the others None.

    Raises UserError when the number of ranks is not the number of role instances, RunFailed when
    this rank fails.
    """
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if world != len(plan.instances):
        names = ", ".join(i.name for i in plan.instances)
        raise UserError(
            f"{plan.strategy.kind} needs {len(plan.instances)} ranks ({names}), torchrun started "
            f"{world}: use --nproc-per-node times --nnodes = {len(plan.instances)}"
        )
    scheduled = batch_scheduling()
    sys.setswitchinterval(0.0005)
    # as recsim_train.executor.forkserver has it; read when torch is loaded
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    os.environ["OMP_PROC_BIND"] = "false"
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import PrefixStore

    from recsim_train.executor.role import Role

    torch.set_num_threads(1)
    instance = plan.instances[rank]
    try:
        # A prefix for each run: addresses of an earlier one must not be found again.
        store = PrefixStore(f"run{next(_runs)}", _rendezvous())
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=START_UP)
        role = Role(plan, instance, store)
        role.start()
        role.finish(lambda: None)
        parts: list[Part | None] | None = [None] * world if rank == 0 else None
        gathering = dist.new_group(timeout=timedelta(minutes=10))
        dist.gather_object(role.part(), parts, group=gathering)
        dist.barrier()
        dist.destroy_process_group()
    except (RuntimeError, OSError, TimeoutError, RunFailed) as error:
        raise RunFailed(f"{instance.name} (rank {rank}) failed: {describe(error)[1]}") from error
    if parts is None:
        return None
    outcome = merge(
        plan, [part for part in parts if part is not None], complete=True, one_machine=False
    )
    outcome.facts.sched_batch = scheduled
    outcome.facts.launched_by = "torchrun"
    return outcome
