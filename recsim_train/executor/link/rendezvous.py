"""How the processes of a run reach each other: the variables that make one a rank, as torchrun sets
them or a user does, addresses and network interfaces, the store in which ranks meet, and the
process group that they make there."""

from __future__ import annotations

import ipaddress
import os
import platform
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.executor.process.attend import attend

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


if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store, TCPStore


VARIABLE = "GLOO_SOCKET_IFNAME"
"""Names interfaces for gloo, separated by commas; our own connections use the first."""


def interfaces() -> dict[str, list[str]]:
    """The IP addresses of each interface, IPv4 first."""
    families = socket.AF_INET, socket.AF_INET6
    return {
        name: [a.address for family in families for a in addresses if a.family == family]
        for name, addresses in psutil.net_if_addrs().items()
    }


def interface_address() -> str:
    """The address of the first interface that is named to gloo; where none is, the loopback's.

    Raises UserError where a name is no interface's, or has no address.
    """
    given = os.environ.get(VARIABLE, "")
    if not given:
        return "127.0.0.1"
    known = interfaces()
    for name in given.split(","):
        if not known.get(name):
            there = ", ".join(sorted(n for n, addresses in known.items() if addresses))
            what = "has no IP address" if name in known else "is no network interface"
            hint = "; gloo takes names only, and none to leave out" if name.startswith("^") else ""
            raise UserError(f"{VARIABLE}={given}: {name!r} {what}{hint}; there are {there}")
    return known[given.split(",")[0]][0]


def address_towards(host: str, port: int = 9) -> str | None:
    """This machine's address on the way to another; None where there is no way, or no such name."""
    with suppress(OSError):
        for family, kind, _, _, target in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind) as asking:
                asking.connect(target)  # sends nothing
                return str(asking.getsockname()[0])
    return None


def is_loopback(address: str) -> bool:
    """Whether only processes of the same machine reach it."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def choose_interface(own: str, others: Sequence[str]) -> None:
    """Name to gloo the interface by which ranks on other machines reach this one, unless it is
    named already.

    ``own``: this machine's address on the way to the store; ``others``: those of ranks on other
    machines. Raises UserError where the others would be given an address that they cannot reach.
    """
    if os.environ.get(VARIABLE):
        own = interface_address()
        if others and is_loopback(own):
            raise UserError(
                f"{VARIABLE}={os.environ[VARIABLE]} names the loopback interface, which the run's "
                "ranks on other machines cannot reach: name one of the network that joins them"
            )
        return
    if others and is_loopback(own):
        # its own name may stand for 127.0.1.1 here, so that it meets itself by the loopback
        ways = (address_towards(other) for other in others if not is_loopback(other))
        found = next((way for way in ways if way is not None and not is_loopback(way)), None)
        if found is None:
            raise UserError(
                f"MASTER_ADDR={os.environ.get('MASTER_ADDR')} leads to {own} here, which the run's "
                f"ranks on other machines cannot reach: name rank 0's machine by an address of the "
                f"network that joins them, or the interface in {VARIABLE}"
            )
        own = found
    for name, addresses in interfaces().items():
        if own in (address.partition("%")[0] for address in addresses):
            os.environ[VARIABLE] = name
            return
    if is_loopback(own):  # one of 127.0.0.0/8, none of which but the first is listed
        os.environ[VARIABLE] = next(n for n, a in interfaces().items() if "127.0.0.1" in a)
        return
    raise UserError(f"no network interface here has the address {own}: name one in {VARIABLE}")


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
