"""Speed and exactness of the simulator's engine on a star network of trainers and servers.

    python benchmarks/network.py --trainers 100 --servers 20 --iterations 50 --seed 1 --json

Every trainer, ``--iterations`` times: pulls from all servers at once, computes, pushes to all
servers at once. See `main` for the settings and benchmarks/results/network.md for results. Only the
network is simulated: a prediction has servers' threads, processors and locks besides. Each flow is
an activity of `recsim_train.sim.engine`, as in predictions what goes within a host is; between
hosts these have frames (`recsim_train.sim.network`). Compiling (once, then cached) and imports are
reported apart.

    python benchmarks/network.py --compare [--cases ABCDEF] [--repeats 5] [--against simgrid]

runs the cases, by turns in SimGrid (benchmarks/simgrid/network.cpp), too.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

from script import options, table

from recsim_train.sim.engine import Engine, Event, Steps
from recsim_train.sim.fluid.solver import Kind, Resource
from recsim_train.sim.queues import Countdown, LoopBarrier


@dataclass(frozen=True)
class Settings:
    trainers: int = 100
    servers: int = 20
    iterations: int = 50
    bytes: float = 40e6  # all of a pull, and of a push
    bandwidth: float = 3.125e9  # bytes/s of a NIC, in each direction
    latency: float = 25e-6  # seconds of one of the two hops
    compute: float = 0.1  # seconds
    jitter: float = 0.0
    skew: float = 0.0
    barrier: bool = False
    seed: int = 1

    def sizes(self) -> list[int]:
        """Bytes of the flow from or to each server."""
        last = max(1, self.servers - 1)
        weights = [1.0 + self.skew * p / last for p in range(self.servers)]
        return [round(self.bytes * w / sum(weights)) for w in weights]

    def factor(self, trainer: int, iteration: int) -> float:
        """What the compute time of a trainer in an iteration is multiplied by."""
        if self.jitter == 0.0:
            return 1.0
        stream = random.Random((self.seed << 40) ^ (trainer << 20) ^ iteration)
        return 1.0 + stream.uniform(-self.jitter, self.jitter)


Link = tuple[Resource, float]
Start = Callable[[], Event]
"""Starts the flows of one pull or push; the event fires when all of them are done."""


class Star:
    """The network and what runs on it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.engine = engine = Engine()
        self.barrier = LoopBarrier(engine, settings.trainers)
        outgoing, incoming = (self._nics(f"server.{way}", settings.servers) for way in ("tx", "rx"))
        down, up = (self._nics(f"trainer.{way}", settings.trainers) for way in ("rx", "tx"))
        pulls, pushes = self._flows(outgoing, down), self._flows(incoming, up)
        for trainer in range(settings.trainers):
            core = engine.fluid.kind([(engine.fluid.resource(f"core{trainer}", 1.0), 1.0)])
            engine.process(self.train(trainer, pulls[trainer], core, pushes[trainer]))

    def _nics(self, name: str, count: int) -> list[Link]:
        make, rate = self.engine.fluid.resource, self.settings.bandwidth
        return [(make(f"{name}{index}", rate), 1.0) for index in range(count)]

    def _flows(self, far: list[Link], near: list[Link]) -> list[Start]:
        """Each flow an activity of its own, as `sim/host/machines.py` starts transfers."""
        engine, sizes = self.engine, self.settings.sizes()

        def start(kinds: list[Kind]) -> Event:
            left = Countdown(engine, len(kinds))
            for kind, size in zip(kinds, sizes, strict=True):
                engine.activity(kind, size).callbacks.append(left.arrive)
            return left.done

        kinds = [[engine.fluid.kind([server, mine]) for server in far] for mine in near]
        return [lambda kinds=mine: start(kinds) for mine in kinds]

    def train(self, trainer: int, pull: Start, core: Kind, push: Start) -> Steps:
        engine, settings = self.engine, self.settings
        latency = 2 * settings.latency
        for iteration in range(settings.iterations):
            yield engine.timeout(latency)
            yield pull()
            yield engine.activity(core, settings.compute * settings.factor(trainer, iteration))
            yield engine.timeout(latency)
            yield push()
            if settings.barrier:
                yield self.barrier.arrive()


def simulate(settings: Settings) -> dict[str, float]:
    """Build and run; the clocks cover both."""
    wall, cpu = time.perf_counter(), time.process_time()
    star = Star(settings)
    star.engine.run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    flows = 2 * settings.trainers * settings.servers * settings.iterations
    return {
        "simulated_seconds": star.engine.now,
        "wall_seconds": wall,
        "cpu_seconds": cpu,
        "flows": flows,
        "flows_started": star.engine.fluid.added - settings.trainers * settings.iterations,
        "flows_per_second": flows / wall,
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "solves": star.engine.fluid.solves,
        "events": star.engine.events,
    }


CASES = {
    "A": Settings(100, 20, 50),
    "B": Settings(100, 20, 50, jitter=0.1),
    "C": Settings(100, 20, 50, jitter=0.1, barrier=True),
    "D": Settings(100, 20, 50, jitter=0.1, skew=1.0),
    "E": Settings(1000, 100, 10),
    "F": Settings(1000, 100, 10, jitter=0.1),
}


def build_simgrid(folder: Path) -> Path:
    """Compile benchmarks/simgrid/network.cpp; ends the program where that is not possible."""
    source, program = Path(__file__).parent / "simgrid" / "network.cpp", folder / "network"
    words = ["g++", "-O2", "-std=c++17", str(source), "-lsimgrid", "-o", str(program)]
    wanted = "SimGrid and g++ are needed: apt-get install -y libsimgrid-dev g++"
    if shutil.which("g++") is None:
        raise SystemExit(f"no g++ was found. {wanted}")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stderr[-2000:]}\n{wanted}")
    return program


def run_simgrid(program: Path, settings: Settings) -> dict[str, float]:
    """The same experiment in SimGrid."""
    s, factors = settings, program.with_name("factors.txt")
    rows = ((i, k) for i in range(s.trainers) for k in range(s.iterations))
    factors.write_text("".join(f"{s.factor(i, k)!r}\n" for i, k in rows))
    words = [s.trainers, s.servers, s.iterations, s.bytes, s.bandwidth, s.latency, s.compute]
    words += [int(s.barrier), s.skew, factors]
    done = subprocess.run(
        [str(program), *map(str, words)], capture_output=True, text=True, check=True
    )
    names = ("simulated_seconds", "wall_seconds", "cpu_seconds")
    return dict(zip(names, map(float, done.stdout.split()), strict=True))


def compared(names: str, repeats: int, *, simgrid: bool) -> list[dict[str, object]]:
    """Ours and SimGrid by turns, so that the machine's moods fall on both."""
    ways: dict[str, Callable[[Settings], dict[str, float]]] = {"predictions": simulate}
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        if simgrid:
            program = build_simgrid(Path(folder))
            ways["simgrid"] = lambda settings: run_simgrid(program, settings)
        for name in names:
            turns = [{w: run(CASES[name]) for w, run in ways.items()} for _ in range(repeats)]
            row: dict[str, object] = {"case": name, "repeats": repeats}
            for way in ways:
                row[f"{way}_simulated_seconds"] = turns[0][way]["simulated_seconds"]
                for clock in ("wall_seconds", "cpu_seconds"):
                    times = [turn[way][clock] for turn in turns]
                    ratios = [turn[way][clock] / turn["predictions"][clock] for turn in turns]
                    row |= {
                        f"{way}_{clock}": statistics.median(times),
                        f"{way}_{clock}_range": [min(times), max(times)],
                        f"{way}_{clock}_over_predictions": statistics.median(ratios),
                    }
            rows.append(row)
            print(json.dumps(row), file=sys.stderr)
    return rows


def markdown(rows: list[dict[str, object]]) -> str:
    """CPU seconds of each way, median (lowest .. highest)."""
    ways = [w for w in ("predictions", "simgrid") if f"{w}_cpu_seconds" in rows[0]]
    figures = [
        [(row[f"{way}_cpu_seconds"], *row[f"{way}_cpu_seconds_range"]) for way in ways]
        for row in rows
    ]
    cells = [["{:.3g} ({:.3g} .. {:.3g})".format(*figure) for figure in row] for row in figures]
    named = [[row["case"], *each] for row, each in zip(rows, cells, strict=True)]
    return "\n".join(table(["Case", *ways], named))


def main() -> None:
    about = {
        "--trainers": (100, ""),
        "--servers": (20, ""),
        "--iterations": (50, ""),
        "--bytes": (40e6, "of a pull, and of a push"),
        "--bandwidth": (3.125e9, "bytes/s each way"),
        "--latency": (25e-6, "seconds of each of two hops"),
        "--compute": (0.1, "seconds between pull and push"),
        "--jitter": (0.0, "compute varies by this share"),
        "--skew": (0.0, "of sizes over servers"),
        "--barrier": (False, "trainers meet after each push"),
        "--seed": (1, ""),
        "--json": (False, ""),
        "--compare": (False, "all of --cases, by turns"),
        "--against": {"choices": ["simgrid"], "help": "--compare with this one, too"},
        "--cases": ("ABCD", "of benchmarks/results/network.md"),
        "--repeats": (5, ""),
    }
    asked = options(__doc__, about)
    importing, begin = time.process_time(), time.perf_counter()
    simulate(Settings(2, 2, 2, jitter=0.1, skew=1.0))  # compiles, or loads what is compiled
    compiling = time.perf_counter() - begin
    if asked.compare or asked.against:
        rows = compared(asked.cases, asked.repeats, simgrid=bool(asked.against))
        print(json.dumps(rows, indent=2) if asked.json else markdown(rows))
        return
    found = simulate(
        Settings(**{each.name: getattr(asked, each.name) for each in fields(Settings)})
    )
    found |= {"startup_seconds": importing, "compile_seconds": compiling}
    lines = [f"{name:20s} {value:.6f}" for name, value in found.items()]
    print(json.dumps(found, indent=2) if asked.json else "\n".join(lines))


if __name__ == "__main__":
    main()
