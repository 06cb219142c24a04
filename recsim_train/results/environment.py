"""The circumstances of a measurement: versions, processor, load, time, revision; the code that
decides a result; and the command that made it, as somebody else may repeat it."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from recsim_train.config.experiment import StrategyChoice
from recsim_train.results import cgroup
from recsim_train.results.folder import numbered
from recsim_train.strategy.base import Strategy
from recsim_train.strategy.parts import Part
from recsim_train.strategy.registry import create

_PACKAGE = Path(__file__).resolve().parent.parent
PACKAGES = ("torch", "numpy", "pandas", "pyarrow", "simpy", "pydantic")


def versions() -> dict[str, str]:
    """Versions of Python, this package and the libraries that figures depend on."""
    from recsim_train import __version__

    by_package = {"recsim-train": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            by_package[package] = metadata.version(package)
    return by_package


def cpu_model() -> str:
    """The processor's own name."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in {"model name", "Model"} and value.strip():
                return " ".join(value.split())
    return platform.processor() or platform.machine() or "unknown processor"


def allowed() -> frozenset[int]:
    """The numbers of the cores that the calling thread may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def cores() -> int:
    """Cores that this process may use: those that it may run on, or fewer where a control group
    gives it less CPU time. Whole ones only: of 2.5 cores it is 2, of half a core 1."""
    return max(1, math.floor(min(len(allowed()), cgroup.core_quota())))


def memory() -> int:
    """Bytes of memory that this process and those around it may fill."""
    import psutil

    return int(min(psutil.virtual_memory().total, cgroup.memory().limit))


def free_memory() -> int:
    """Bytes of it that are not in use now."""
    import psutil

    return int(min(psutil.virtual_memory().available, cgroup.memory().free))


def machine_name() -> str:
    """Processor and cores, as profiles and runs name a machine: "Xeon 6140, 8 cores"."""
    return f"{cpu_model()}, {counted_cores(cores())}"


def counted_cores(count: object) -> str:
    """In words: "1 core", "8 cores"."""
    return f"{count} core" if count == 1 else f"{count} cores"


def same_machine(calibrated: str, environment: Mapping[str, Any]) -> bool:
    """Whether a profile's machine is a run's: the same words, or its processor and core count."""
    here = str(environment.get("machine") or "")
    if not calibrated or not here:
        return False
    if calibrated.casefold() == here.casefold():
        return True
    cpu = str(environment.get("cpu") or "").casefold()
    return bool(cpu) and cpu in calibrated.casefold() and _same_cores(calibrated, environment)


def _same_cores(calibrated: str, environment: Mapping[str, Any]) -> bool:
    words = calibrated.replace(",", " ").replace("(", " ").split()
    counts = [a for a, b in itertools.pairwise(words) if b.startswith("core")]
    return not counts or counts[0] == str(environment.get("cores"))


def machine() -> dict[str, object]:
    """Machine, versions, load, time and revision. Call it before a run: afterwards the load is
    the run's own."""
    facts: dict[str, object] = {
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": machine_name(),
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": cpu_model(),
        "cores": cores(),
        "memory_bytes": memory(),
        "load": round(os.getloadavg()[0], 2),
        "versions": versions(),
    }
    revision = git_revision()
    if revision is not None:
        facts["revision"] = revision
    return facts


def git_revision() -> str | None:
    """The commit this package is run from, "-modified" if files differ; None outside a checkout."""
    if _git(_PACKAGE, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit = _git(_PACKAGE, "rev-parse", "--short=12", "HEAD")
    if not commit:
        return None
    return f"{commit}-modified" if _git(_PACKAGE, "status", "--porcelain", "--", ".") else commit


def code_of(choices: Iterable[StrategyChoice] = ()) -> str:
    """Of all that predicts and measures with these strategies: 12 hexadecimal digits. A commit that
    leaves the sources as they are does not count, a change that is not committed does."""
    owners = {o for c in choices for piece in _pieces(create(c)) for o in type(piece).__mro__}
    whole = [_own(), *sorted(set(filter(None, map(_elsewhere, owners))))]
    return hashlib.sha256("\n".join(whole).encode()).hexdigest()[:12]


def made_anew(what: object, was: str | None, now: str) -> str:
    """The sentence for what ``--resume`` does not take: which code it is of, and which runs now."""
    return f"note: {what}: made by other code ({was or 'not known which'}; now {now}), so made anew"


def _pieces(made: Strategy | Part) -> Iterator[Strategy | Part]:
    yield made
    for field in dataclasses.fields(made):  # type: ignore[arg-type]  # every one is a dataclass
        value = getattr(made, field.name)
        if isinstance(value, Part):
            yield from _pieces(value)


@cache
def sources() -> str:
    """A digest of this package's files, as they were when this was first asked; what is no Python
    counts, too: templates, words."""
    return _digest(_PACKAGE, _PACKAGE.rglob("*"))


@cache
def _own() -> str:
    return f"{versions()} {sources()}"


@cache
def _elsewhere(owner: type) -> str:
    """Of a class's package, or of its file where that is in none; empty where it is ours or
    Python's. A class of a notebook has no file: nobody can say that it is the one of before."""
    name = owner.__module__
    top = name.partition(".")[0]
    if top == "recsim_train" or top in sys.stdlib_module_names:
        return ""
    file = Path(getattr(sys.modules.get(name), "__file__", None) or "")
    if not file.is_file():
        return f"{os.getpid()} {id(owner)}"
    if "." not in name and file.name != "__init__.py":
        return _digest(file.parent, [file])
    folder = Path(getattr(sys.modules.get(top), "__file__", None) or file).parent
    return _digest(folder, folder.rglob("*.py"))


def _digest(folder: Path, paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        if path.is_file() and "__pycache__" not in path.parts:
            name, content = path.relative_to(folder).as_posix(), path.read_bytes()
            digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


_CLUSTER = "--cluster"
_MAKING = ("simulate", "run")
_ALONE = ("--json", "--resume", "--dry-run")


def repeatable(command: Sequence[str]) -> list[str]:
    """``command`` without where its output goes, and with paths as seen from here.

    A simulated run's directory must not depend on the folder it was made in, and a reader of a
    report does not share that folder either.
    """
    return [_near(word) for word in _without(command, "--out") if word not in _ALONE]


def reproducing(runs: Iterable[tuple[Sequence[object], object]], result: str = "") -> list[str]:
    """Command lines that make runs and their report anew: measure this machine where a profile was
    its own, predict, run, report.

    They write to a folder that does not exist here yet, so that nothing old is taken for new and
    nothing is overwritten. ``runs``: the `repeatable` commands that made them, each with the
    profile of its experiment, which counts where the command names none. ``result``: what lies
    in the folder afterwards and is reported; the folder itself where it is empty.
    """
    folder, profile = _free("again"), ""
    lines = []
    for command, own_profile in runs:
        words = list(map(str, command))
        if len(words) < 2 or words[1] not in _MAKING:
            continue  # it was made from Python
        if _profile_of(words, own_profile) == "local":
            profile = f"{folder}/local.yaml"
            words = [*_without(words, _CLUSTER), _CLUSTER, profile]
        lines.append(shlex.join([*words, "--out", folder]))
    if profile:
        lines.insert(0, shlex.join(["recsim-train", "calibrate", "--output", profile]))
    reported = f"{folder}/{result}" if result else folder
    lines.append(shlex.join(["recsim-train", "report", reported, "--out", f"{folder}-report"]))
    return list(dict.fromkeys(lines))


def _profile_of(command: Sequence[str], otherwise: object) -> object:
    """What a command predicts with."""
    given = [value for word, value in zip(command, command[1:], strict=False) if word == _CLUSTER]
    given += [word.partition("=")[2] for word in command if word.startswith(f"{_CLUSTER}=")]
    return given[-1] if given else otherwise


def _without(command: Sequence[str], option: str) -> Iterator[str]:
    skip = False
    for word in command:
        if not skip and word != option and not word.startswith(f"{option}="):
            yield word
        skip = not skip and word == option


def _free(name: str) -> str:
    """The first of name, name-2 ... that is not taken in the current folder."""
    return next(
        free
        for free in numbered(name)
        if not Path(free).exists() and not Path(f"{free}-report").exists()
    )


def _near(argument: str) -> str:
    key, equals, value = argument.partition("=")
    text = value if equals else key
    if not os.path.isabs(text):
        return argument
    path = Path(text)
    with_cwd = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else Path(path.name)
    return f"{key}={with_cwd}" if equals else os.fspath(with_cwd)
