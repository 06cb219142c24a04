"""Do the tests notice wrong arithmetic? Each mutant of benchmarks/mutants.yaml against its tests.

    python benchmarks/mutants.py [--jobs 2] [--only ID ...] [--resume] [--list]
                                 [--out benchmarks/results/mutants.md]

A mutant is one small error, chosen by reading the code and not by looking at what tests catch. The
tracked files are copied to temporary folders, one for each job; there the error is made, the
mutant's tests run until the first failure, and the error is taken back. A mutant has died when a
test fails or the time limit passes. Every set of tests is first run without any error and must be
green. A text that is not found exactly once is a stale mutant: nothing is run then (exit code 2).
A survivor that the list does not explain makes the exit code 1.

Results are kept beside the table, in a JSON file. --resume keeps those that were found with the
same files; --only runs the named ones again and keeps all others. Ctrl-C leaves a valid table.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import yaml
from script import options, table

ROOT = Path(__file__).resolve().parent.parent
MUTANTS = Path(__file__).with_suffix(".yaml")
OUT = ROOT / "benchmarks/results/mutants.md"
LIMIT, TIMES = 60.0, 5.0
"""Seconds that a mutant's tests may take, besides this many times those of the right code."""
BASELINE_LIMIT = 900.0
GREEN = 0  # exit code of pytest where all passed; others are of several kinds


class Mutant(NamedTuple):
    """``breaks``: what is wrong then, in one sentence; ``survives``: why no test can tell it from
    the right code, so that it is expected to live."""

    id: str
    file: str
    old: str
    new: str
    breaks: str
    tests: tuple[str, ...]
    survives: str = ""


class Result(NamedTuple):
    """``by``: the first test that failed, or the time limit; ``tree``: a digest of the files and of
    the mutant."""

    id: str
    died: bool
    by: str
    seconds: float
    tree: str


class MutantsError(Exception):
    """The list does not fit the code."""


def read_mutants() -> list[Mutant]:
    """The list, each with its tests by name of a set or as they are."""
    content = yaml.safe_load(MUTANTS.read_text(encoding="utf-8"))
    sets = content["tests"]
    found = []
    for entry in content["mutants"]:
        tests = entry.pop("tests")
        named = sets[tests] if isinstance(tests, str) else tests
        found.append(Mutant(tests=tuple(named), **entry))
    if twice := [name for name, times in Counter(m.id for m in found).items() if times > 1]:
        raise MutantsError(f"two mutants have one id: {', '.join(sorted(twice))}")
    return found


def check(mutants: Sequence[Mutant]) -> None:
    """Raises MutantsError where an old text is not in its file exactly once, or changes nothing."""
    wrong = []
    for m in mutants:
        path = ROOT / m.file
        count = path.read_text(encoding="utf-8").count(m.old) if path.is_file() else 0
        if count != 1:
            wrong.append(f"{m.id}: stale, its old text is {count} times in {m.file}")
        elif m.old == m.new:
            wrong.append(f"{m.id}: changes nothing")
    if wrong:
        raise MutantsError("\n".join(wrong))


def tracked() -> list[str]:
    """Files under version control, as they are in the working folder."""
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    return [name for name in listed.stdout.decode().split("\0") if (ROOT / name).is_file()]


def digest(names: Sequence[str]) -> str:
    """Of all code and tests: results hold for these only."""
    seen = hashlib.sha256()
    for name in sorted(names):
        if name.startswith(("recsim_train/", "tests/")):
            seen.update(name.encode() + (ROOT / name).read_bytes())
    return seen.hexdigest()


class Copy:
    """One copy of the tree, in which one mutant after the other is tried."""

    def __init__(self, folder: Path, names: Sequence[str], stopped: threading.Event) -> None:
        self.folder, self.stopped = folder, stopped
        for name in names:
            target = folder / "tree" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
        self.running: subprocess.Popen[str] | None = None

    def run(self, tests: Sequence[str], limit: float) -> tuple[int | None, str]:
        """(exit code of pytest or None after the limit, what failed)."""
        tree = self.folder / "tree"
        command = [sys.executable, "-m", "pytest", "-x", "-q", *tests, "-p", "no:cacheprovider"]
        with subprocess.Popen(
            [*command, "--basetemp", str(self.folder / "tmp"), "--tb=no"],
            cwd=tree,
            env={"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": str(tree)},
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as running:
            self.running = running
            try:
                if self.stopped.is_set():  # since nobody has seen these tests run
                    self.end()
                output, _ = running.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                return None, f"time limit of {limit:.0f} s"
            finally:
                self.end()
        failed = re.search(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", output, re.MULTILINE)
        why = "" if running.returncode == GREEN else "no test could run"
        return running.returncode, failed[1] if failed else why

    def end(self) -> None:
        """End the tests and every process that they started."""
        if self.running is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.running.pid, signal.SIGKILL)
            self.running = None

    @contextlib.contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """Make the error in the copy, and take it back at the end."""
        path = self.folder / "tree" / mutant.file
        text = path.read_text(encoding="utf-8")
        write(path, text.replace(mutant.old, mutant.new))
        try:
            yield
        finally:
            write(path, text)


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    # compiled code is known by time and size of its source, which may both be the same
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
        compiled.unlink(missing_ok=True)


class Bench:
    """The copies, the results so far, and the table."""

    def __init__(self, jobs: int, out: Path, mutants: list[Mutant]):
        self.out, self.mutants = out, mutants
        kept = out.with_suffix(".json")
        rows = json.loads(kept.read_text("utf-8")) if kept.is_file() else []
        known = {row["id"]: Result(**row) for row in rows}
        self.results = {m.id: known[m.id] for m in mutants if m.id in known}
        names = tracked()
        self.files = digest(names)
        self.lock, self.stopped = threading.Lock(), threading.Event()
        self.folder = Path(tempfile.mkdtemp(prefix="mutants-"))
        self.copies = [Copy(self.folder / str(job), names, self.stopped) for job in range(jobs)]
        self.free = list(self.copies)
        self.seconds: dict[str, float] = {}
        """Of each test target without an error."""

    def tree_of(self, mutant: Mutant) -> str:
        return hashlib.sha256(f"{self.files} {mutant!r}".encode()).hexdigest()[:16]

    def tried(
        self, tests: Sequence[str], limit: float, mutant: Mutant | None = None
    ) -> tuple[int | None, str, float]:
        """(exit code of pytest or None after the limit, what failed, seconds)."""
        copy = self.free.pop()
        begin = time.monotonic()
        try:
            with copy.mutated(mutant) if mutant else contextlib.nullcontext():
                return *copy.run(tests, limit), time.monotonic() - begin
        finally:
            self.free.append(copy)

    def baseline(self, target: str) -> str:
        """Run tests on the right code; what is wrong, or nothing."""
        code, failed, self.seconds[target] = self.tried([target], BASELINE_LIMIT)
        if self.stopped.is_set():
            return ""
        if code == GREEN:
            print(f"green {self.seconds[target]:6.1f} s  {target}", flush=True)
            return ""
        return f"{target} failed without any mutant: {failed} (exit code {code})"

    def attempt(self, mutant: Mutant) -> None:
        """Try one mutant and write the table."""
        limit = LIMIT + TIMES * sum(self.seconds[target] for target in mutant.tests)
        code, by, seconds = self.tried(mutant.tests, limit, mutant)
        if self.stopped.is_set():
            return
        died = code != GREEN
        with self.lock:
            tree = self.tree_of(mutant)
            self.results[mutant.id] = Result(mutant.id, died, by, round(seconds, 1), tree)
            self.save()
            done = f"{len(self.results):3d}/{len(self.mutants)} {seconds:6.1f} s"
        print(f"{done}  {mutant.id}: {f'died, {by}' if died else 'SURVIVED'}", flush=True)

    def run(self, chosen: Sequence[Mutant]) -> None:
        """All baselines, then all chosen mutants. Raises MutantsError for red tests."""
        targets = list(dict.fromkeys(target for m in chosen for target in m.tests))
        with ThreadPoolExecutor(len(self.copies)) as pool:
            try:
                if red := [why for why in pool.map(self.baseline, targets) if why]:
                    raise MutantsError("\n".join(red))
                list(pool.map(self.attempt, chosen))
            except BaseException:
                self.stopped.set()
                pool.shutdown(wait=False, cancel_futures=True)
                for copy in self.copies:
                    copy.end()
                raise

    def save(self) -> None:
        rows = [self.results[m.id]._asdict() for m in self.mutants if m.id in self.results]
        kept = json.dumps(rows, indent=1) + "\n"
        for path, text in ((self.out.with_suffix(".json"), kept), (self.out, self.page())):
            part = path.with_name(f".{path.name}.part")
            part.write_text(text, "utf-8")
            part.replace(path)

    def page(self) -> str:
        """The total, the survivors, every mutant."""
        found = [(m, self.results[m.id]) for m in self.mutants if m.id in self.results]
        lived = [m for m, r in found if not r.died]
        died, missing = len(found) - len(lived), len(self.mutants) - len(found)
        share = f" ({100 * died / len(found):.0f} %)" if found else ""
        stale = {m.id for m, r in found if r.tree != self.tree_of(m)}
        rows = (
            (
                m.id,
                m.file.removeprefix("recsim_train/"),
                m.breaks,
                ("died" if r.died else "**survived**") + " (other files)" * (m.id in stale),
                r.by.removeprefix("tests/").replace("|", "\\|"),
                f"{r.seconds:.1f}",
            )
            for m, r in found
        )
        lines = [
            "# Mutants of the arithmetic",
            "",
            "`python benchmarks/mutants.py` makes one small error at a time in a copy of the code "
            "and runs the tests of its area. The list (`benchmarks/mutants.yaml`) was chosen by "
            "reading the code, before any of them was tried.",
            "",
            f"**{died} of {len(found)} died{share}.**"
            + (f" {missing} have not been tried yet." if missing else ""),
            "",
            "## Survivors",
            "",
            *(f"- {m.id}: {m.breaks} {m.survives or 'Not explained yet.'}" for m in lived),
            *(["None."] if not lived else []),
            "",
            "## All",
            "",
            *table(["mutant", "file", "what it breaks", "outcome", "by", "s"], rows),
        ]
        if stale:
            lines += ["", "Other files: found before the code, the tests or the mutant changed."]
        return "\n".join(lines) + "\n"

    def choose(self, only: Sequence[str] | None, *, resume: bool) -> list[Mutant]:
        """Which mutants to run; what is known of the others is kept or forgotten."""
        if only:
            if unknown := set(only) - {m.id for m in self.mutants}:
                raise MutantsError(f"no mutant is named {', '.join(sorted(unknown))}")
            return [m for m in self.mutants if m.id in only]
        if not resume:
            self.results.clear()
        known = {each.tree for each in self.results.values()}
        return [m for m in self.mutants if self.tree_of(m) not in known]


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    about = {
        "--jobs": {"type": int, "default": 2, "choices": range(1, 65), "metavar": "COPIES"},
        "--only": {"nargs": "+", "metavar": "ID", "help": "these mutants, again"},
        "--resume": (False, "only what is not known yet"),
        "--list": (False, "check the list and show it"),
        "--out": (OUT, "the table; JSON goes beside it"),
    }
    asked = options(__doc__, about)
    bench = None
    try:
        mutants = read_mutants()
        check(mutants)
        if asked.list:
            print("\n".join(f"{m.id:24s} {m.file}: {m.breaks}" for m in mutants))
            print(f"{len(mutants)} mutants")
            return 0
        signal.signal(signal.SIGTERM, interrupt)
        bench = Bench(asked.jobs, asked.out, mutants)
        bench.run(bench.choose(asked.only, resume=asked.resume))
        bench.save()
    except MutantsError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        if bench:
            bench.save()
        print(f"stopped; {asked.out} holds what was found, --resume goes on", file=sys.stderr)
        return 130
    finally:
        if bench:
            shutil.rmtree(bench.folder, ignore_errors=True)
    lived = [m for m in mutants if m.id in bench.results and not bench.results[m.id].died]
    print(f"{len(bench.results) - len(lived)} of {len(bench.results)} died; {bench.out}")
    return int(any(not m.survives for m in lived))


if __name__ == "__main__":
    sys.exit(main())
