"""The store in which the ranks of a run meet, and the process group that they make there."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.executor.process.attend import attend
from recsim_train.executor.process.rank import Rank

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store, TCPStore

SETTING = "execution.start_timeout"
_ANSWER = 20.0
"""Seconds in which a store answers that has taken a connection."""
_TRY = 1.0
_PAUSE = 0.1
"""Seconds of one try to connect, and between two."""


def quiet() -> None:
    """Have torch keep its own stack traces to itself; before it is imported."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")


_stores: dict[Rank, TCPStore] = {}
"""One serves all runs of this process."""


def store_of(me: Rank, limit: float) -> TCPStore:
    """The store that this rank keeps, or finds at the master's address within ``limit`` seconds.

    Raises UserError where it cannot listen there, RunFailed where nobody or somebody else does.
    """
    if me not in _stores:
        _stores[me] = _keep(me, limit) if me.keeps_store else _find(me, limit)
    return _stores[me]


def _keep(me: Rank, limit: float) -> TCPStore:
    from torch._C._distributed_c10d import TCPStore

    wait = timedelta(seconds=limit)
    try:
        return attend(
            lambda: TCPStore(me.host, me.port, None, True, wait, wait_for_workers=False),
            late=lambda: (
                f"rank 0 does not reach itself at {me.place} within {SETTING} = {limit:g} s"
            ),
            limit=limit,
        )
    except TimeoutError as error:
        raise RunFailed(f"{error}: MASTER_ADDR must name rank 0's own machine") from None
    except RuntimeError as error:
        if "EADDRINUSE" in str(error):
            raise UserError(
                f"MASTER_PORT={me.port} is taken on this machine, so that rank 0 cannot listen "
                "there: another run may use it; choose another port, the same for all ranks"
            ) from None
        why = str(error).strip().splitlines()[0]
        raise UserError(f"rank 0 cannot listen at {me.place}: {why}") from None


def _find(me: Rank, limit: float) -> TCPStore:
    from torch._C._distributed_c10d import TCPStore

    begin = time.monotonic()
    why = [f"no answer from {me.host}"]

    def probe() -> None:
        while time.monotonic() - begin < limit:
            try:
                socket.create_connection((me.host, me.port), _TRY).close()
                return
            except (OSError, UnicodeError) as error:
                why[:] = [getattr(error, "strerror", None) or str(error)]
                time.sleep(_PAUSE)
        raise TimeoutError

    try:
        attend(probe, limit=limit + _TRY)
    except TimeoutError:
        raise RunFailed(
            f"no rank 0 at {me.place} within {SETTING} = {limit:g} s: {why[0]}"
        ) from None
    rest = max(_TRY, min(_ANSWER, limit - (time.monotonic() - begin)))
    wait = timedelta(seconds=rest)
    try:
        return attend(
            lambda: TCPStore(me.host, me.port, None, False, wait, wait_for_workers=False),
            limit=rest + _TRY,
        )
    except (TimeoutError, RuntimeError):
        raise RunFailed(
            f"what listens at {me.place} is no rank 0 that waits for others: it gives no answer "
            f"within {rest:.0f} s; another program may have that port"
        ) from None


def make_group(
    store: Store, rank: int, world: int, limit: float, look: Callable[[], None] = lambda: None
) -> None:
    """torch's process group of all ranks, over gloo. Signals are heard meanwhile, and ``look`` may
    raise what it has seen."""
    import torch.distributed as dist

    wait = timedelta(seconds=limit)
    attend(
        lambda: dist.init_process_group(
            "gloo", store=store, rank=rank, world_size=world, timeout=wait
        ),
        look,
        lambda: f"the processes did not reach each other within {SETTING} = {limit:g} s",
        limit,
    )
