"""The variables that make this process one rank of a run, as torchrun sets them or a user does."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from recsim_train.config.errors import UserError

_NAMES = "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"
_ADVICE = (
    "variables of the shell make this process one rank of a run that torchrun, or who sets them, "
    "starts; `unset RANK` has recsim-train start all processes itself"
)


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank of a run, and where its ranks meet."""

    rank: int
    world: int
    """Ranks in all."""
    host: str
    """Where rank 0 is, or the agent of torchrun that keeps the store."""
    port: int
    job: str
    """The job's id that torchrun gives; "": none."""
    restart: int
    """How often torchrun has started the ranks again."""
    keeps_store: bool
    """Whether this process keeps the store in which ranks meet."""

    @property
    def place(self) -> str:
        """Of the store, as sentences name it."""
        return f"{self.host}:{self.port} (MASTER_ADDR, MASTER_PORT)"


def under_torchrun() -> bool:
    """Whether this process is a rank: torchrun's variables are set, by whomever."""
    return "RANK" in os.environ


def this_machine(namespace: str) -> str:
    """This machine, and in which of its namespaces of a kind ("net", "time") this process is: what
    its networks, or its clocks, are told apart by."""
    machine, number = platform.node(), ""
    with suppress(OSError):
        machine = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    with suppress(OSError):
        number = str(os.stat(f"/proc/self/ns/{namespace}").st_ino)
    return f"{machine} {number}"


def read_rank() -> Rank:
    """This process's rank. Raises UserError where a variable is missing or makes no sense."""
    if missing := [name for name in _NAMES if name not in os.environ]:
        raise UserError(f"RANK is set, but {' and '.join(missing)} not: {_ADVICE}")
    world = _number("WORLD_SIZE", 1, 1 << 20)
    rank = _number("RANK", 0, world - 1)
    host = os.environ["MASTER_ADDR"].strip().removeprefix("[").removesuffix("]")
    if not host:
        raise UserError(f"MASTER_ADDR is empty; expected an address of rank 0's machine: {_ADVICE}")
    port = _number("MASTER_PORT", 1, (1 << 16) - 1)
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return Rank(
        rank=rank,
        world=world,
        host=host,
        port=port,
        job=os.environ.get("TORCHELASTIC_RUN_ID", ""),
        restart=int(restarts) if restarts.isdecimal() else 0,
        keeps_store=rank == 0 and not agent,
    )


def _number(name: str, least: int, most: int) -> int:
    said = os.environ[name]
    # int() would take " 1_0 " as well
    if not (said.isascii() and said.removeprefix("-").isdecimal() and least <= int(said) <= most):
        below = f", below WORLD_SIZE = {most + 1}" if name == "RANK" else ""
        expected = f"a whole number from {least} to {most}{below}"
        raise UserError(f"{name}={said!r} is not {expected}: {_ADVICE}")
    return int(said)
