"""Where do threads of a run go that are woken, and do they take the core from whoever has it?

    python benchmarks/wakes.py EXPERIMENT [--set KEY=VALUE] [--after 7] [--seconds 3]

Needs root, Linux and tracefs (/sys/kernel/tracing). Starts the run, records the scheduler's events
for some seconds of it, and prints a line of a table: of threads that a message of another process
woke while their last core had another thread of the job, and whoever sent it was on another core,
how many stayed and how many went to the sender's core; and of threads that were woken onto a core
where another thread of the job ran, which share had it within 60 us, by how long that one had run
since it was woken itself (left out: those that slept within 60 us by themselves, and what the
records leave open). And of the times that a core of two became free while a thread of the job
waited for the other one, after how many one of these ran there within 40 us, by whether one of them
had not run for 0.5 ms.
"""

from __future__ import annotations

import argparse
import bisect
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

TRACING = Path("/sys/kernel/tracing")
EVENTS = ("sched_switch", "sched_waking", "sched_wakeup", "sched_stat_runtime")
LINE = re.compile(r"^\s*(.+)-(\d+)\s+\(\s*([\d-]+)\)\s+\[(\d+)\]\s+\S+\s+([\d.]+): (\w+): (.*)$")
AT_ONCE, SETTLED, NEXT, WARM, PULLED = 60.0, 200.0, 15.0, 500.0, 40.0
"""Microseconds; the third is between two threads that follow each other on a core."""

AMONG = 200
"""Waits that began last, among which are all that have not ended: no thread waits for longer."""

Run = tuple[float, float, int]
"""(start, end, thread) on a core, microseconds."""
Spells = dict[int, list[tuple[float, float, int]]]
"""By thread: (start, end, core)."""


class Wait(NamedTuple):
    """A thread that wanted a core, and had one later."""

    since: float
    until: float
    core: int
    """For which it waited."""
    thread: int
    went_to: int
    ran: float
    """When it had run last."""


@dataclass
class Trace:
    """What the scheduler did."""

    runs: dict[int, list[Run]] = field(default_factory=lambda: defaultdict(list))
    """By core."""
    sleeps: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By thread: when it went to sleep."""
    wakes: list[tuple[float, int, int, int, int]] = field(default_factory=list)
    """(when, thread, the core chosen for it, its waker, the waker's core)."""
    name: dict[int, str] = field(default_factory=dict)
    process: dict[int, str] = field(default_factory=dict)

    def of_job(self, thread: int) -> bool:
        return thread in self.process and bool(re.match("python|gloo|pt_", self.name[thread]))

    def running(self, core: int, when: float) -> Run | None:
        place = bisect.bisect_right(self.runs[core], (when, float("inf"), 0)) - 1
        found = self.runs[core][place] if place >= 0 else None
        return found if found and found[1] > when else None


def read(text: str) -> Trace:
    """A guest's trace loses switches from idle: `sched_stat_runtime` says when a thread began."""
    trace, current = Trace(), dict[int, tuple[float, int]]()
    waking: dict[int, tuple[float, int, int]] = {}
    for line in text.splitlines():
        if not (parts := LINE.match(line)):
            continue
        name, thread, process, core_, when_, event, rest = parts.groups()
        core, when, who = int(core_), 1e6 * float(when_), int(thread)
        said = dict(pair.split("=", 1) for pair in re.findall(r"\w+=\S+", rest))
        trace.name[who] = name
        if process.isdigit():
            trace.process[who] = process
        if event == "sched_stat_runtime":
            who, began = int(said["pid"]), when - float(said["runtime"]) / 1e3
            if core not in current or current[core][1] != who:
                if core in current:
                    trace.runs[core].append((current[core][0], began, current[core][1]))
                current[core] = began, who
        elif event == "sched_switch":
            before, after = int(said["prev_pid"]), int(said["next_pid"])
            if before:
                start, known = current.get(core, (when - 1, before))
                trace.runs[core].append((start if known == before else when - 1, when, before))
                if said["prev_state"][0] in "SDI":
                    trace.sleeps[before].append(when)
            current.pop(core, None)
            if after:
                current[core] = when, after
        elif event == "sched_waking":
            waking[int(said["pid"])] = when, who, core
        elif event == "sched_wakeup" and (woken := int(said["pid"])) in waking:
            began, waker, there = waking.pop(woken)
            trace.wakes.append((began, woken, int(said["target_cpu"]), waker, there))
    for runs in trace.runs.values():
        runs.sort()
    return trace


def spells_of(trace: Trace) -> Spells:
    """Where each thread ran."""
    of: Spells = defaultdict(list)
    for core, runs in trace.runs.items():
        for start, end, thread in runs:
            of[thread].append((start, end, core))
    for spells in of.values():
        spells.sort()
    return of


def waits_of(trace: Trace, of: Spells) -> list[Wait]:
    """Of the job's threads, in order."""
    found = []
    for thread, spells in of.items():
        woken = sorted((wake[0], wake[2]) for wake in trace.wakes if wake[1] == thread)
        for (_, ran, last), (start, _, on) in zip(spells, spells[1:], strict=False):
            at = bisect.bisect_right(woken, (start + 1.0, 0)) - 1
            since, core = ran, last  # another one has taken its core
            if at >= 0 and woken[at][0] >= ran - 1.0:
                since, core = woken[at]
            if trace.of_job(thread) and start - since > 2.0:
                found.append(Wait(since, start, core, thread, on, ran))
    return sorted(found)


def freed(trace: Trace, of: Spells) -> dict[bool, list[bool]]:
    """Whether a core that became free took a thread that waited for the other one, by whether one
    of these had not run of late."""
    waits, taken = waits_of(trace, of), {False: [], True: []}
    for core, runs in trace.runs.items():
        for (_, end, _), (start, _, following) in zip(runs, runs[1:], strict=False):
            at = bisect.bisect_right(waits, (end - 1.0,))
            there = [w for w in waits[max(0, at - AMONG) : at] if w.until > end - 1.0]
            others = [w for w in there if w.core != core]
            goes_on = start - end < NEXT and following not in {w.thread for w in others}
            if others and len(others) == len(there) and not goes_on:
                cold = max(end - w.ran for w in others) >= WARM
                pulled = any(w.went_to == core and w.until < end + PULLED for w in others)
                taken[cold].append(pulled)
    return taken


def line(label: str, trace: Trace) -> str:
    """A row of the table."""
    of = spells_of(trace)
    placed: Counter[str] = Counter()
    taken: dict[bool, list[bool]] = {False: [], True: []}
    for when, thread, target, waker, there in trace.wakes:
        spells = of[thread]
        place = bisect.bisect_right(spells, (when, float("inf"), 0))
        if not trace.of_job(thread) or not trace.name[thread].startswith("python"):
            continue
        if not 0 < place < len(spells) or spells[place - 1][1] > when:
            continue
        last, (start, _, on) = spells[place - 1][2], spells[place]
        message = trace.of_job(waker) and trace.process[waker] != trace.process[thread]
        other = trace.running(last, when)
        if message and there != last and other and trace.of_job(other[2]):
            placed["stays" if target == last else "goes" if target == there else "neither"] += 1
        has = trace.running(target, when)
        if not has or has[2] in (waker, thread) or not trace.of_job(has[2]):
            continue
        slept = trace.sleeps[has[2]]
        at = bisect.bisect_left(slept, when)
        if at == 0 or (at < len(slept) and slept[at] - when < AT_ONCE):
            continue
        ran = sum(min(b, when) - a for a, b, _ in of[has[2]] if slept[at - 1] - 1 <= a < when)
        left = at < len(slept) and abs(slept[at] - has[1]) < 1.0
        if on != target or left:  # it went elsewhere, or waited for the other to sleep
            taken[ran >= SETTLED].append(False)
        elif abs(start - has[1]) < NEXT:  # it had the core from the other
            taken[ran >= SETTLED].append(start - when < AT_ONCE)
    busy = {core: sum(b - a for a, b, _ in runs) for core, runs in trace.runs.items()}
    ends = [end for runs in trace.runs.values() for a, b, _ in runs for end in (a, b)]
    share = sum(busy.values()) / len(busy) / (max(ends) - min(ends))
    shares = [
        f"{sum(t) / len(t):.0%} of {len(t)}" if t else "-"
        for t in (*taken.values(), *freed(trace, of).values())
    ]
    cells = [label, f"{share:.0%}", f"{placed['stays']}, {placed['goes']}", *shares]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Run, record, and say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment")
    parser.add_argument("--set", action="append", default=[], dest="sets")
    parser.add_argument("--after", type=float, default=7.0)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--out", default="runs/wakes")
    asked = parser.parse_args()
    for name, value in (("trace_clock", "mono"), ("buffer_size_kb", "65536")):
        (TRACING / name).write_text(value, encoding="ascii")
    for event in EVENTS:
        (TRACING / f"events/sched/{event}/enable").write_text("1", encoding="ascii")
    (TRACING / "options/record-tgid").write_text("1", encoding="ascii")
    sets = [word for one in asked.sets for word in ("--set", one)]
    command = [sys.executable, "-m", "recsim_train", "run", asked.experiment, "--out", asked.out]
    with subprocess.Popen([*command, *sets], stdout=subprocess.DEVNULL) as run:
        try:
            time.sleep(asked.after)
            (TRACING / "trace").write_text("", encoding="ascii")
            (TRACING / "tracing_on").write_text("1", encoding="ascii")
            time.sleep(asked.seconds)
        finally:
            (TRACING / "tracing_on").write_text("0", encoding="ascii")
            for event in EVENTS:
                (TRACING / f"events/sched/{event}/enable").write_text("0", encoding="ascii")
        if code := run.wait(120):
            sys.exit(f"the run failed with exit code {code}")
    print(line(" ".join(asked.sets) or "as it is", read((TRACING / "trace").read_text())))


if __name__ == "__main__":
    main()
