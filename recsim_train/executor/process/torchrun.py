"""The same run under torchrun: one rank for each role instance, on one machine or on many."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from recsim_train.checkpoints.going_on import NONE_KEPT, Keeping
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.executor.link.rendezvous import (
    Rank,
    address_towards,
    choose_interface,
    quiet,
    read_rank,
    store_of,
    this_machine,
    under_torchrun,
)
from recsim_train.executor.part import FINISHED, INTERRUPTED, Ending
from recsim_train.executor.process import agreement, parting
from recsim_train.executor.process.attend import until
from recsim_train.executor.process.board import StoreBoard
from recsim_train.executor.process.launch import Interrupted, PartialRun
from recsim_train.executor.process.life import Life, Meeting, prepare
from recsim_train.executor.process.merge import merge
from recsim_train.executor.process.peers import LEAVING, PeerLeftError, gather, word_of
from recsim_train.placement.plan import Instance, Plan
from recsim_train.signals import held
from recsim_train.trace.record import Outcome

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

__all__ = ["execute_rank", "reads_here", "refusals_told", "under_torchrun"]

_TELLING = 5.0
"""Seconds in which a rank that refuses finds others to tell, and they it."""
_begun: list[str] = []
"""The runs of this process; the store must not show one of them what an earlier one left there."""

Check = Callable[[Plan, Sequence[Instance]], None]


@dataclass(slots=True)
class _Way:
    """A rank's way to the others: the store of one run, and what stands in for it."""

    me: Rank
    prefix: str
    base: Store
    store: Store
    deputy: Store | None = None
    """The store that rank 1 keeps for the case that rank 0 is lost."""
    deputy_at: tuple[str, int] | None = None

    def again(self) -> Store:
        """The store over a connection of its own: who waits for a key keeps others from theirs."""
        from torch._C._distributed_c10d import PrefixStore

        return PrefixStore(self.prefix, self.base.clone())  # type: ignore[attr-defined]

    def left(self) -> Store:
        """The store, or where it is gone the deputy's. Raises RuntimeError where both are."""
        from torch._C._distributed_c10d import PrefixStore, TCPStore

        try:
            self.store.check([LEAVING])
        except RuntimeError:
            if self.deputy is None:
                if self.deputy_at is None:
                    raise
                host, port = self.deputy_at
                wait = timedelta(seconds=_TELLING)
                self.deputy = TCPStore(host, port, None, False, wait, wait_for_workers=False)
            self.store = PrefixStore(self.prefix, self.deputy)
        return self.store

    @property
    def board(self) -> StoreBoard:
        """What ranks leave there."""
        return StoreBoard(self.left)


def _join(me: Rank, run: int, limit: float) -> _Way:
    from torch._C._distributed_c10d import PrefixStore

    base = store_of(me, limit)
    prefix = f"recsim-train/{me.restart}/run{run}"
    return _Way(me, prefix, base, PrefixStore(prefix, base))


def reads_here(plan: Plan) -> bool:
    """Whether this rank reads the data. Raises UserError for a rank that there cannot be."""
    rank = read_rank().rank
    return rank >= len(plan.instances) or agreement.reads(plan, plan.instances[rank])


@contextmanager
def refusals_told() -> Iterator[None]:
    """Inside, a rank's UserError reaches the ranks that wait for it."""
    me = read_rank()
    try:
        yield
    except UserError as error:
        quiet()
        # the others are told best, not necessarily; and those of another job not at all
        with suppress(RunFailed, UserError, RuntimeError, TimeoutError):
            way = _join(me, len(_begun), _TELLING)
            agreement.claim(way.store, way.base, me, lambda: None, _TELLING)
            _refuse(way, str(error))
        raise


def _refuse(way: _Way, sentence: str) -> None:
    parting.leave(way.board, way.me.rank, Ending("", "refused", sentence))
    _wait_for_readers(way)


def _wait_for_readers(way: _Way, *, of_those_here: bool = False) -> None:
    """This rank knows why the run does not begin; if it keeps the store, others get to know it.

    ``of_those_here``: of the ranks that have come, nobody waits for the others.
    """
    me, store = way.me, way.store
    with suppress(RuntimeError):
        store.add("words/read", 1)
        if me.keeps_store:
            come = sum(store.check([f"word/{rank}"]) for rank in range(me.world))
            due = come if of_those_here else me.world
            parting.ask_until(
                _TELLING, lambda: store.add("words/read", 0), lambda count: count >= due
            )


def execute_rank(
    plan: Plan, check: Check, keeping: Keeping = NONE_KEPT, *, there: bool = False
) -> Outcome | None:
    """Be one rank of a run. Rank 0 returns the whole outcome, the others None.

    ``check``: raises UserError where these processes of the plan do not fit into this machine;
    ``there``: whether the run has been made, so that all only agree on it, and return None.

    Raises UserError where the run cannot begin, for instance because ranks differ; RunFailed when a
    rank fails. At the lowest rank that is left this is `PartialRun`, or `Interrupted`.
    """
    begin, run = time.monotonic(), len(_begun)
    me = read_rank()
    _begun.append(plan.strategy.kind)
    settings = plan.experiment.execution
    scheduled = prepare()
    # as recsim_train.executor.process.forkserver has it; read when torch is loaded
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    os.environ["OMP_PROC_BIND"] = "false"
    quiet()
    way = _join(me, run, settings.start_timeout)

    def left() -> float:
        return max(0.0, settings.start_timeout - (time.monotonic() - begin))

    taken = {**keeping.terms(), "whether the run is complete": "yes" if there else "no"}
    words = _agreed(plan, way, check, left, taken)
    if there:
        _parted(way)
        return None
    plan = plan.resumed(keeping.first)
    labels = [f"{word.name} (rank {rank})" for rank, word in enumerate(words)]
    keeper = None if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" else 0
    meeting = Meeting(me.rank, labels, way.store, way.again, way.board, _board_over, keeper)
    life = Life(plan, meeting, keeping, scheduled=scheduled)
    problem: BaseException | None = None
    try:
        peers = life.live(left, lambda _: None)
        parts = []
        for rank in range(me.world if me.rank == 0 else 0):
            peers.wait([f"part-{rank}"])
            if (part := parting.get_part(way.board, rank)) is None:
                raise RunFailed(f"{labels[rank]} left no part of the result that can be read")
            parts.append(part)
        life.end()
    except (Exception, KeyboardInterrupt) as error:
        problem = error
    if problem is not None:  # outside of its handling: a broken connection is no broken output
        raise _end_early(way, life, problem)
    if me.rank > 0:
        return None
    outcome = merge(plan, parts, complete=True, one_machine=False, first=keeping.first)
    outcome.facts.launched_by = "torchrun"
    return outcome


def _board_over(store: Store) -> StoreBoard:
    return StoreBoard(lambda: store)


def _parted(way: _Way) -> None:
    """All agree that there is nothing to do; who keeps the store leaves it last."""
    parting.leave(way.board, way.me.rank, Ending("", FINISHED, ""))
    if way.me.keeps_store:
        everyone = [word_of(rank) for rank in range(way.me.world)]
        parting.ask_until(_TELLING, lambda: way.store.check(everyone), bool)


def _agreed(
    plan: Plan,
    way: _Way,
    check: Check,
    left: Callable[[], float],
    taken: agreement.Terms,
) -> Sequence[agreement.Word]:
    """The words of all ranks, which agree; this rank's interface is chosen by them. ``taken``: for
    granted, beside what follows from the plan."""
    me, store, labels = way.me, way.store, _labels(plan, way.me.world)
    counted = me.world == len(plan.instances)
    instance = plan.instances[min(me.rank, len(plan.instances) - 1)]

    def look() -> None:
        if store.check([LEAVING]):
            raise PeerLeftError

    try:
        agreement.claim(store, way.base, me, look, left())
    except PeerLeftError:
        raise _as_told(way, plan) from None
    except TimeoutError as error:
        raise RunFailed(str(error)) from None
    try:
        own = address_towards(me.host, me.port) or "127.0.0.1"
        if me.rank == 1:
            way.deputy = agreement.deputy(own)
        port = 0 if way.deputy is None else way.deputy.port  # type: ignore[attr-defined]
        terms = agreement.terms_of(plan, instance, me.world) | taken
        mine = agreement.Word(instance.name, this_machine("net"), own, port, terms)
        try:
            limit = plan.experiment.execution.start_timeout
            words = agreement.exchange(
                store, me, labels, mine, look, limit, left() if counted else min(_TELLING, left())
            )
        except TimeoutError:
            if counted:
                raise
        if not counted:
            names = ", ".join(i.name for i in plan.instances)
            raise UserError(
                f"{plan.strategy.kind} needs {len(plan.instances)} ranks ({names}), torchrun "
                f"started {me.world}, or the shell's variables say so (WORLD_SIZE): use "
                f"--nproc-per-node times --nnodes = {len(plan.instances)}, or `unset RANK` to "
                "have recsim-train start all processes itself"
            )
        near = [r for r, word in enumerate(words) if word.machine == words[me.rank].machine]
        check(plan, [plan.instances[rank] for rank in near])
        apart = [word.address for rank, word in enumerate(words) if rank not in near]
        choose_interface(own, apart)
        gather(
            store, "fit", me.rank, labels,
            lambda keys, late: until(lambda: bool(store.check(keys)), look, late, left()),
        )  # fmt: skip
        if me.world > 1 and words[1].deputy:
            way.deputy_at = words[1].address, words[1].deputy
        return words
    except PeerLeftError:
        raise _as_told(way, plan) from None
    except TimeoutError as error:
        # the others find out at the same time, from the store
        _wait_for_readers(way, of_those_here=True)
        raise RunFailed(str(error)) from None
    except UserError as error:
        with suppress(RuntimeError):
            _refuse(way, str(error))
        raise
    except KeyboardInterrupt:
        with suppress(RuntimeError):
            parting.leave(way.board, me.rank, Ending("", INTERRUPTED, "asked to end"))
        raise
    except RuntimeError as error:  # of the store
        raise RunFailed(f"the store at {me.place} is gone: {parting.describe(error)[1]}") from None


def _labels(plan: Plan, world: int) -> list[str]:
    """Of each rank, as sentences name it."""
    if len(plan.instances) == world:
        return [f"{i.name} (rank {rank})" for rank, i in enumerate(plan.instances)]
    return [f"rank {rank}" for rank in range(world)]


def _as_told(way: _Way, plan: Plan) -> Exception:
    """What another rank says of why the run does not begin."""
    labels = _labels(plan, way.me.world)
    ending = next(iter(parting.words_left(way.board, labels).values()))
    _wait_for_readers(way)
    if ending.kind == "refused":
        return UserError(f"{ending.name} refuses to begin: {ending.sentence}")
    return RunFailed(f"{ending.name} failed: {ending.sentence}")


def _end_early(way: _Way, life: Life, error: BaseException) -> BaseException:
    """Tell the other ranks, hear them; what this rank is to raise."""
    rank, labels = way.me.rank, life.meeting.labels
    try:
        kind = life.break_off(error)
        with held():
            seconds = parting.ROLL_CALL if life.measures else 1.0
            hosting = way.me.keeps_store or way.deputy is not None
            end = parting.part_ways(
                way.left(), way.board, labels, rank, hosting=hosting, seconds=seconds
            )
    except RuntimeError:
        told = f"{labels[rank]} failed: {parting.describe(error)[1]}; nobody is left to tell"
        return RunFailed(told)
    except KeyboardInterrupt:
        pass  # asked to end meanwhile, and about to
    outcome = None
    if end.kept_here and end.parts:
        first = life.keeping.first
        outcome = merge(life.plan, end.parts, complete=False, one_machine=False, first=first)
        outcome.facts.launched_by = "torchrun"
    if kind == INTERRUPTED and (end.interrupted or outcome is None):
        return Interrupted(outcome)
    if outcome is not None:
        return PartialRun(end.sentence, outcome)
    return RunFailed(end.sentence)
