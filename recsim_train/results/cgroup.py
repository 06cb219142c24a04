"""What Linux's control groups leave this process of its machine, in versions 1 and 2.

A limit of any group around the process's own holds for it too: what counts is the tightest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import inf
from pathlib import Path, PurePosixPath
from typing import NamedTuple

ROOT = Path("/")


class GroupMemory(NamedTuple):
    """In bytes; infinity: no group limits it."""

    limit: float
    free: float
    """What is left below the limits; pages of files that can be dropped are not in use."""


def core_quota(root: Path = ROOT) -> float:
    """Cores' worth of CPU time that the process may use; infinity: no group limits it.

    ``root``: where ``proc`` and the groups' folders are looked for.
    """
    quotas = [inf]
    for group in _groups("cpu", root):
        both = _numbers(group / "cpu.max")
        both = both or _numbers(group / "cpu.cfs_quota_us") + _numbers(group / "cpu.cfs_period_us")
        if len(both) == 2 and min(both) > 0:
            quotas.append(both[0] / both[1])
    return min(quotas)


def memory(root: Path = ROOT) -> GroupMemory:
    """What the process may use; ``root`` as for `core_quota`.

    ``memory.high`` counts: who is above it is not ended, but hardly gets on any more.
    """
    limit = free = inf
    for group in _groups("memory", root):
        names = "memory.max", "memory.high", "memory.limit_in_bytes"
        here = min((n for name in names for n in _numbers(group / name) if n > 0), default=inf)
        used = _numbers(group / "memory.current") or _numbers(group / "memory.usage_in_bytes")
        limit = min(limit, here)
        free = min(free, max(0.0, here - max(0.0, sum(used) - _droppable(group))))
    return GroupMemory(limit, free)


def _droppable(group: Path) -> float:
    """Bytes of files' pages in memory that have not been used of late."""
    named = dict(pair for line in _lines(group / "memory.stat") if len(pair := line.split()) == 2)
    found = named.get("total_inactive_file", named.get("inactive_file", "0"))
    return float(found) if found.isdecimal() else 0.0


def _groups(controller: str, root: Path) -> Iterator[Path]:
    """Folders of the process's own group and of all around it, as far as they can be seen."""
    mounts = [found for line in _lines(root / "proc/self/mountinfo") if (found := _mount(line))]
    for line in _lines(root / "proc/self/cgroup"):
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        version = "cgroup" if names else "cgroup2"
        own = PurePosixPath(path)
        places = [
            (top, place)
            for kind, top, place, options in mounts
            if kind == version and (not names or controller in options)
        ]
        inside = [(top, place) for top, place in places if own.is_relative_to(top)]
        if not inside or ".." in own.parts:  # beyond what this container sees: its topmost group
            inside, own = [(PurePosixPath(path), place) for _, place in places], PurePosixPath(path)
        for top, place in inside:
            below = own.relative_to(top)
            for one in (below, *below.parents):
                yield root / place.lstrip("/") / one


def _mount(line: str) -> tuple[str, PurePosixPath, str, list[str]] | None:
    """(file system, its folder that is mounted, where, options) of a line of mountinfo."""
    before, dash, after = line.partition(" - ")
    ours, theirs = before.split(" "), after.split(" ")
    if not dash or theirs[0] not in ("cgroup", "cgroup2") or len(ours) < 5:
        return None
    top, place = (re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), ours[n]) for n in (3, 4))
    return theirs[0], PurePosixPath(top), place, theirs[-1].split(",")


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []


def _numbers(file: Path) -> list[float]:
    """The numbers that a file holds, "max" being infinity; none where it holds anything else."""
    words = " ".join(_lines(file)).split()
    if not all(re.fullmatch(r"max|-?\d+", word) for word in words):
        return []
    return [inf if word == "max" else float(word) for word in words]
