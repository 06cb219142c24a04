"""The addresses and network interfaces by which the processes of a run reach each other."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Sequence
from contextlib import suppress

import psutil

from recsim_train.config.errors import UserError

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
