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

import argparse
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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
MUTANTS = Path(__file__).with_suffix(".yaml")
OUT = ROOT / "benchmarks/results/mutants.md"
LIMIT, TIMES = 60.0, 5.0
"""Seconds that a mutant's tests may take, besides this many times those of the right code."""
BASELINE_LIMIT = 900.0
GREEN = 0
"""Exit code of pytest where all passed; modules that cannot be imported have several others."""


@dataclass(frozen=True)
class Mutant:
    id: str
    file: str
    old: str
    new: str
    breaks: str
    """What is wrong then, in one sentence."""
    tests: tuple[str, ...]
    survives: str = ""
    """Why no test can tell it from the right code; such a mutant is expected to live."""


@dataclass(frozen=True)
class Result:
    id: str
    died: bool
    by: str
    """The first test that failed, or the time limit."""
    seconds: float
    tree: str
    """Digest of the files and of the mutant."""


class StoppedError(Exception):
    """The user wants an end."""


class MutantsError(Exception):
    """The list does not fit the code."""


def read_mutants(path: Path = MUTANTS) -> list[Mutant]:
    """The list, each with its tests by name of a set or as they are."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    sets = content["tests"]
    found = []
    for entry in content["mutants"]:
        tests = entry.pop("tests")
        named = sets[tests] if isinstance(tests, str) else tests
        found.append(Mutant(tests=tuple(named), **entry))
    names = [m.id for m in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise MutantsError(f"two mutants have one id: {', '.join(twice)}")
    return found


def check(mutants: Sequence[Mutant], root: Path) -> None:
    """Raises MutantsError where an old text is not in its file exactly once, or changes nothing."""
    wrong = []
    for m in mutants:
        path = root / m.file
        count = path.read_text(encoding="utf-8").count(m.old) if path.is_file() else 0
        if count != 1:
            wrong.append(f"{m.id}: stale, its old text is {count} times in {m.file}")
        elif m.old == m.new:
            wrong.append(f"{m.id}: changes nothing")
    if wrong:
        raise MutantsError("\n".join(wrong))


def tracked(root: Path) -> list[str]:
    """Files under version control, as they are in the working folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, timeout=60
    )
    names = [name for name in listed.stdout.decode().split("\0") if name]
    return [name for name in names if (root / name).is_file()]


def digest(root: Path, names: Sequence[str]) -> str:
    """Of all code and tests: results hold for these only."""
    seen = hashlib.sha256()
    for name in sorted(names):
        if name.startswith(("recsim_train/", "tests/")):
            seen.update(name.encode())
            seen.update((root / name).read_bytes())
    return seen.hexdigest()


def tree_of(mutant: Mutant, files: str) -> str:
    return hashlib.sha256(f"{files} {mutant!r}".encode()).hexdigest()[:16]


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
        """(exit code of pytest or None after the limit, its output)."""
        tree = self.folder / "tree"
        command = [sys.executable, "-m", "pytest", "-x", "-q", *tests, "-p", "no:cacheprovider"]
        command += ["--basetemp", str(self.folder / "tmp"), "--tb=no"]
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        environment.setdefault("OMP_NUM_THREADS", "1")
        with subprocess.Popen(
            command,
            cwd=tree,
            env=environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as self.running:
            try:
                if self.stopped.is_set():  # since nobody has seen these tests run
                    self.end()
                output, _ = self.running.communicate(timeout=limit)
                code: int | None = self.running.returncode
            except subprocess.TimeoutExpired:
                code, output = None, ""
            finally:
                self.end()
        self.running = None
        return code, output

    def end(self) -> None:
        """End the tests and every process that they started."""
        if self.running is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.running.pid, signal.SIGKILL)

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


def first_failure(output: str) -> str:
    """The test that failed first, from pytest's short summary."""
    for line in output.splitlines():
        if found := re.match(r"(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", line):
            return found[1]
    return "no test could run"


class Bench:
    """The copies, the results so far, and the table."""

    def __init__(self, jobs: int, out: Path, known: dict[str, Result], mutants: list[Mutant]):
        self.out, self.mutants = out, mutants
        self.results = {m.id: known[m.id] for m in mutants if m.id in known}
        self.names = tracked(ROOT)
        self.files = digest(ROOT, self.names)
        self.lock = threading.Lock()
        self.stopped = threading.Event()
        self.folder = Path(tempfile.mkdtemp(prefix="mutants-"))
        self.free = [Copy(self.folder / str(job), self.names, self.stopped) for job in range(jobs)]
        self.copies = tuple(self.free)
        self.seconds: dict[str, float] = {}
        """Of each test target without an error."""

    def baseline(self, target: str) -> str:
        """Run tests on the right code; what is wrong, or nothing."""
        copy = self.take()
        begin = time.monotonic()
        try:
            code, output = copy.run([target], BASELINE_LIMIT)
        finally:
            self.free.append(copy)
        self.seconds[target] = time.monotonic() - begin
        if self.stopped.is_set():
            return ""
        if code == GREEN:
            print(f"green {self.seconds[target]:6.1f} s  {target}", flush=True)
            return ""
        why = "took too long" if code is None else f"failed: {first_failure(output)}"
        return f"{target} {why} without any mutant (exit code {code})"

    def attempt(self, mutant: Mutant) -> None:
        """Try one mutant and write the table."""
        copy = self.take()
        limit = LIMIT + TIMES * sum(self.seconds[target] for target in mutant.tests)
        begin = time.monotonic()
        try:
            with copy.mutated(mutant):
                code, output = copy.run(mutant.tests, limit)
        finally:
            self.free.append(copy)
        if self.stopped.is_set():
            return
        seconds = round(time.monotonic() - begin, 1)
        by = "" if code == GREEN else first_failure(output)
        if code is None:
            by = f"time limit of {limit:.0f} s"
        result = Result(mutant.id, code != GREEN, by, seconds, tree_of(mutant, self.files))
        with self.lock:
            self.results[mutant.id] = result
            self.save()
            done = sum(1 for m in self.mutants if m.id in self.results)
        said = f"died, {by}" if result.died else "SURVIVED"
        print(f"{done:3d}/{len(self.mutants)} {seconds:6.1f} s  {mutant.id}: {said}", flush=True)

    def take(self) -> Copy:
        if self.stopped.is_set():
            raise StoppedError
        return self.free.pop()

    def run(self, chosen: Sequence[Mutant]) -> None:
        """All baselines, then all chosen mutants. Raises MutantsError for red tests."""
        targets = list(dict.fromkeys(target for m in chosen for target in m.tests))
        with ThreadPoolExecutor(len(self.copies)) as pool:
            try:
                red = [why for why in pool.map(self.baseline, targets) if why]
                if red:
                    raise MutantsError("\n".join(red))
                for _ in pool.map(self.attempt, chosen):
                    pass
            except BaseException:
                self.stopped.set()
                for copy in self.copies:
                    copy.end()
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def save(self) -> None:
        rows = [asdict(self.results[m.id]) for m in self.mutants if m.id in self.results]
        kept = json.dumps(rows, indent=1) + "\n"
        for path, text in ((self.out.with_suffix(".json"), kept), (self.out, self.table())):
            part = path.with_name(f".{path.name}.part")
            part.write_text(text, "utf-8")
            part.replace(path)

    def table(self) -> str:
        """The page: the total, the survivors, every mutant."""
        found = [(m, self.results[m.id]) for m in self.mutants if m.id in self.results]
        died = sum(r.died for _, r in found)
        lived = [m for m, r in found if not r.died]
        share = f" ({100 * died / len(found):.0f} %)" if found else ""
        lines = [
            "# Mutants of the arithmetic",
            "",
            "`python benchmarks/mutants.py` makes one small error at a time in a copy of the code "
            "and runs the tests of its area. The list (`benchmarks/mutants.yaml`) was chosen by "
            "reading the code, before any of them was tried.",
            "",
            f"**{died} of {len(found)} died{share}.**",
        ]
        if missing := len(self.mutants) - len(found):
            lines[-1] += f" {missing} have not been tried yet."
        lines += ["", "## Survivors", ""]
        lines += [f"- {m.id}: {m.breaks} {m.survives or 'Not explained yet.'}" for m in lived] or [
            "None."
        ]
        lines += ["", "## All", "", "| mutant | file | what it breaks | outcome | by | s |"]
        lines.append("|---|---|---|---|---|---|")
        for m, r in found:
            outcome = "died" if r.died else "**survived**"
            if r.tree != tree_of(m, self.files):
                outcome += " (other files)"
            by = r.by.removeprefix("tests/").replace("|", "\\|")
            where = m.file.removeprefix("recsim_train/")
            cells = (m.id, where, m.breaks, outcome, by, f"{r.seconds:.1f}")
            lines.append(f"| {' | '.join(cells)} |")
        if any(r.tree != tree_of(m, self.files) for m, r in found):
            lines += ["", "Other files: found before the code, the tests or the mutant changed."]
        return "\n".join(lines) + "\n"

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def read_results(out: Path) -> dict[str, Result]:
    path = out.with_suffix(".json")
    if not path.is_file():
        return {}
    return {row["id"]: Result(**row) for row in json.loads(path.read_text("utf-8"))}


def choose(arguments: argparse.Namespace, bench: Bench) -> list[Mutant]:
    """Which mutants to run; what is known of the others is kept or forgotten."""
    if arguments.only:
        unknown = set(arguments.only) - {m.id for m in bench.mutants}
        if unknown:
            raise MutantsError(f"no mutant is named {', '.join(sorted(unknown))}")
        return [m for m in bench.mutants if m.id in arguments.only]
    if arguments.resume:
        return [
            m
            for m in bench.mutants
            if m.id not in bench.results or bench.results[m.id].tree != tree_of(m, bench.files)
        ]
    bench.results.clear()
    return bench.mutants


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2, help="copies that work at the same time")
    parser.add_argument("--only", nargs="+", metavar="ID", help="these mutants, again")
    parser.add_argument("--resume", action="store_true", help="only what is not known yet")
    parser.add_argument("--list", action="store_true", help="check the list and show it")
    parser.add_argument("--out", type=Path, default=OUT, help="the table; JSON goes beside it")
    arguments = parser.parse_args()
    if arguments.jobs < 1:
        parser.error("--jobs needs 1 or more")
    try:
        mutants = read_mutants()
        check(mutants, ROOT)
    except MutantsError as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.list:
        for m in mutants:
            print(f"{m.id:24s} {m.file}: {m.breaks}")
        print(f"{len(mutants)} mutants")
        return 0
    signal.signal(signal.SIGTERM, interrupt)
    bench = Bench(arguments.jobs, arguments.out, read_results(arguments.out), mutants)
    try:
        bench.run(choose(arguments, bench))
        bench.save()
    except MutantsError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        bench.save()
        print(f"stopped; {bench.out} holds what was found, --resume goes on", file=sys.stderr)
        return 130
    finally:
        bench.close()
    lived = [m for m in mutants if m.id in bench.results and not bench.results[m.id].died]
    print(f"{len(bench.results) - len(lived)} of {len(bench.results)} died; {bench.out}")
    return int(any(not m.survives for m in lived))


if __name__ == "__main__":
    sys.exit(main())
