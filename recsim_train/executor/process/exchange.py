"""What ranks tell each other before anything is made: who they are, and what they take for granted.

Each leaves a word in the store and reads those of all others, so that every rank knows who differs
and ends with the same sentence.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.executor.link.rendezvous import SETTING
from recsim_train.executor.process.agreement import Terms, differences
from recsim_train.executor.process.attend import until
from recsim_train.executor.process.rank import Rank, here

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store, TCPStore

_JOB = "recsim-train/job"


@dataclass(frozen=True, slots=True)
class Word:
    """What one rank says of itself."""

    name: str
    """Of its process in the plan."""
    machine: str
    """The same of all ranks that reach each other by the loopback."""
    address: str
    """Of its machine, on the way to the store."""
    deputy: int
    """The port of the store that stands in where the first is lost; 0: it keeps none."""
    terms: Terms


def machine_id() -> str:
    """This machine, or where it has several networks of its own, one of them."""
    words = []
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        words = [boot.strip(), str(os.stat("/proc/self/ns/net").st_ino)]
    return " ".join(words)


def deputy(address: str) -> TCPStore | None:
    """A store of this process, on any port; None where it can keep none."""
    from torch._C._distributed_c10d import TCPStore

    try:
        return TCPStore(address, 0, None, True, timedelta(seconds=5), wait_for_workers=False)
    except RuntimeError:
        return None


def claim(store: Store, base: Store, me: Rank, look: Callable[[], None], limit: float) -> None:
    """Take this rank's place in the run. Raises UserError where another job has it."""
    if me.rank == 0:
        base.set(_JOB, f"id {me.job}")
    else:
        late = f"no rank 0 of recsim-train at {me.place} within {SETTING} = {limit:g} s"
        until(lambda: bool(base.check([_JOB])), look, lambda: late, limit)
        job = base.get(_JOB).decode(errors="replace").removeprefix("id ")
        if job != me.job:
            raise UserError(
                f"the ranks that meet at {me.place} are of another job, {job or 'without an id'}; "
                f"this one is of {me.job or 'a job without an id'} (TORCHELASTIC_RUN_ID): give "
                "each job a MASTER_PORT of its own"
            )
    mine = here()
    taken = store.compare_set(f"claim/{me.rank}", "", mine).decode(errors="replace")
    if taken != mine:
        raise UserError(
            f"RANK={me.rank} of the run at {me.place} is taken by {taken}, and this is {mine}: "
            "give each rank a number of its own, and each job a MASTER_PORT"
        )


def exchange(
    store: Store, me: Rank, mine: Word, look: Callable[[], None], limit: float, late_in: float
) -> list[Word]:
    """The words of all ranks.

    Raises TimeoutError, which names the ranks that have not come by then, after ``late_in`` of the
    ``limit`` seconds; UserError where they do not agree.
    """
    store.set(f"word/{me.rank}", json.dumps(asdict(mine)))
    if store.add("words", 1) == me.world:
        store.set("words/all", "1")

    def late() -> str:
        absent = [str(r) for r in range(me.world) if not store.check([f"word/{r}"])]
        ranks = "rank" if len(absent) == 1 else "ranks"
        return f"{ranks} {' and '.join(absent)} did not come within {SETTING} = {limit:g} s"

    until(lambda: bool(store.check(["words/all"])), look, late, late_in)
    said = store.multi_get([f"word/{rank}" for rank in range(me.world)])
    words = [read_word(rank, word) for rank, word in enumerate(said)]
    by_rank = {f"rank {r} ({word.name})": word.terms for r, word in enumerate(words)}
    if (sentence := differences(by_rank)) is not None:
        raise UserError(sentence)
    return words


def read_word(rank: int, said: bytes) -> Word:
    """A rank's word. Raises RunFailed where it is none."""
    try:
        word = Word(**json.loads(said))
        ipaddress.ip_address(word.address.partition("%")[0])
        texts = [word.name, word.machine, *word.terms.keys(), *word.terms.values()]
        if not (all(isinstance(text, str) for text in texts) and 0 <= word.deputy < 1 << 16):
            raise ValueError
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise RunFailed(
            f"rank {rank} said in the store what this version of recsim-train does not "
            "understand: it runs another version, or it is another program"
        ) from None
    return word


def neighbours(words: Sequence[Word], rank: int) -> list[int]:
    """The ranks on this rank's machine."""
    return [r for r, word in enumerate(words) if word.machine == words[rank].machine]
