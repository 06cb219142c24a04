"""What ranks tell each other before anything is made: who they are, and what they take for granted,
such as settings, placement, code and data.

Each leaves a word in the store and reads those of all others, so that every rank knows who differs
and ends with the same sentence.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, TypeAdapter

from recsim_train.config.dump import of_any_machine, resolved
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.executor.link.rendezvous import SETTING, Rank
from recsim_train.executor.process.attend import until
from recsim_train.executor.process.peers import gather
from recsim_train.placement.plan import Instance, Plan
from recsim_train.results.environment import sources, versions

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store, TCPStore

Terms = dict[str, str]
"""A value for each thing that must be the same, by its name."""

_LOOK = 1 << 16
"""Bytes at a file's beginning that are compared."""
_DIGITS = 12
_MOST = 5
"""Differences, and ranks beside each, that a sentence names."""
_PACKAGES = "recsim-train", "torch", "numpy"
NOT_SET = "not set"
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
    deputy: Annotated[int, Field(ge=0, lt=1 << 16)]
    """The port of the store that stands in where the first is lost; 0: it keeps none."""
    terms: Terms


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
    here = f"process {os.getpid()} on {socket.gethostname()}"
    mine = f"{secrets.token_hex(8)} {here}"  # containers may share names and numbers
    taken = store.compare_set(f"claim/{me.rank}", "", mine).decode(errors="replace")
    if taken != mine:
        raise UserError(
            f"RANK={me.rank} of the run at {me.place} is taken by {taken.partition(' ')[2]}, and "
            f"this is another, {here}: give each rank a number of its own, and each job a "
            "MASTER_PORT"
        )


def exchange(
    store: Store,
    me: Rank,
    labels: Sequence[str],
    mine: Word,
    look: Callable[[], None],
    limit: float,
    late_in: float,
) -> list[Word]:
    """The words of all ranks. ``labels``: of each, as sentences name it.

    Raises TimeoutError, which names the ranks that have not come by then, after ``late_in`` of the
    ``limit`` seconds; UserError where they do not agree.
    """
    keys = gather(
        store,
        "word",
        me.rank,
        labels,
        lambda keys, late: until(lambda: bool(store.check(keys)), look, late, late_in),
        json.dumps(asdict(mine)),
        f"{SETTING} = {limit:g} s",
    )
    said = store.multi_get(keys)
    words = [read_word(label, word) for label, word in zip(labels, said, strict=True)]
    by_rank = {f"rank {r} ({word.name})": word.terms for r, word in enumerate(words)}
    if (sentence := differences(by_rank)) is not None:
        raise UserError(sentence)
    return words


_WORD = TypeAdapter(Word)


def read_word(label: str, said: bytes) -> Word:
    """A rank's word. Raises RunFailed where it is none."""
    try:
        word = _WORD.validate_json(said)
        ipaddress.ip_address(word.address.partition("%")[0])
    except ValueError:
        raise RunFailed(
            f"{label} said in the store what this version of recsim-train does not understand: it "
            "runs another version, or it is another program"
        ) from None
    return word


def terms_of(plan: Plan, instance: Instance, world: int) -> Terms:
    """What this process takes for granted of the run. Raises OSError or UserError for a file that
    is not there.

    Data files may lie elsewhere on each machine, and what is made of them, too: their sizes and
    their first bytes count, in their order, among those who read them. So may a module's file,
    whose description knows its content.
    """
    settings = resolved(plan.experiment)
    settings["strategy"] = {"kind": plan.strategy.kind, **plan.options}
    data = settings["data"]
    terms = {"WORLD_SIZE": str(world)}
    paths = {key: data.pop(key, None) for key in ("path", "eval_path")}
    data.pop("converted", None)
    settings["model"] = of_any_machine(settings["model"])
    terms |= dict(_flat(settings))
    for key, names in paths.items():
        terms[f"data.{key}"] = NOT_SET if names is None else "a file"
        if names is not None and reads(plan, instance):
            terms[f"the file of data.{key}"] = _files(names)
    terms["the placement, which the cluster profile decides"] = _digest(_placement(plan).encode())
    known = versions()
    terms |= {f"the version of {name}": known[name] for name in _PACKAGES if name in known}
    terms["recsim_train's source files"] = sources()[:_DIGITS]
    return terms


def reads(plan: Plan, instance: Instance) -> bool:
    """Whether a process reads the data: readers, trainers without them, who evaluates."""
    if instance.role == "trainer":
        return instance.index == 0 or not plan.of_role("reader")
    return instance.role == "reader"


def differences(terms: Mapping[str, Mapping[str, str]]) -> str | None:
    """Who differs in what, in one sentence; None: nobody does.

    ``terms``: of each rank, by its name, in rank order. What a rank does not name because it has
    no use for it, such as a file, is no difference.
    """
    names = dict.fromkeys(name for one in terms.values() for name in one)
    found = []
    for name in names:
        values: dict[str, list[str]] = {}
        for rank, one in terms.items():
            if name in one or not name.startswith("the "):
                values.setdefault(one.get(name, NOT_SET), []).append(rank)
        if len(values) > 1:
            common_first = sorted(values.items(), key=lambda item: -len(item[1]))
            found.append(f"{name}: " + ", ".join(f"{v} at {_some(r)}" for v, r in common_first))
    if not found:
        return None
    more = f"; and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return (
        f"the ranks do not agree on the run: {'; '.join(found[:_MOST])}{more} (start all of them "
        "with the same experiment, options, data and version)"
    )


def _some(ranks: list[str]) -> str:
    if len(ranks) <= _MOST:
        return " and ".join(ranks)
    return f"{', '.join(ranks[: _MOST - 1])} and {len(ranks) - _MOST + 1} more"


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        for place, item in enumerate(value):
            yield from _flat(item, f"{name}[{place}]")
    else:
        yield name, str(value)


def _placement(plan: Plan) -> str:
    embedding, dense = plan.embedding, plan.dense
    shards = () if embedding is None else (embedding.shards, sorted(embedding.split_tables))
    return repr((plan.instances, shards, () if dense is None else dense.shards, plan.groups))


def _files(names: Sequence[str]) -> str:
    from recsim_train.data.input import files_of  # with it comes pyarrow

    known = [_file(Path(name)) for name in files_of(names)]
    return known[0] if len(known) == 1 else f"{len(known)} files {_digest(repr(known).encode())}"


def _file(path: Path) -> str:
    with path.open("rb") as stream:
        begin = _digest(stream.read(_LOOK))
    return f"{path.stat().st_size:,} bytes beginning {begin}"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]
