"""Speed and exactness of the simulator's engine on a star network of trainers and servers.

    python benchmarks/network.py --trainers 100 --servers 20 --iterations 50 --seed 1 --json

Every trainer, ``--iterations`` times: pulls from all servers at once, computes, pushes to all
servers at once. See `main` for the settings and benchmarks/results/network.md for results. The
simulation is made of the engine that `recsim-train simulate` uses, `recsim_train.sim.kernel`: one
SimPy process for each trainer, transfers and computations on fluid resources. Compiling (once, then
cached) and imports are reported apart.

    python benchmarks/network.py --against simgrid [--cases ABCD] [--repeats 5]

compares with the same experiment in SimGrid (benchmarks/simgrid/network.cpp), run by turns.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from recsim_train.sim.fans import Ends, Flows
from recsim_train.sim.fluid.solver import Kind, Resource
from recsim_train.sim.kernel import Barrier, Kernel, Steps


@dataclass(frozen=True)
class Settings:
    trainers: int
    servers: int
    iterations: int
    bytes: float = 40e6
    """All bytes of a pull, and of a push."""
    bandwidth: float = 3.125e9
    """Bytes per second of a NIC, in each direction."""
    latency: float = 25e-6
    """Seconds of one of the two hops."""
    compute: float = 0.1
    """Seconds."""
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


class Star:
    """The network and what runs on it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.kernel = kernel = Kernel()
        fluid = kernel.fluid

        def nics(name: str, count: int) -> list[tuple[tuple[Resource, float]]]:
            return [
                ((fluid.resource(f"{name}{index}", settings.bandwidth), 1.0),)
                for index in range(count)
            ]

        sizes = settings.sizes()
        outgoing = Ends(fluid, nics("server.tx", settings.servers))
        incoming = Ends(fluid, nics("server.rx", settings.servers))
        self.barrier = Barrier(kernel, settings.trainers, lambda _: iter(()))
        down, up = nics("trainer.rx", settings.trainers), nics("trainer.tx", settings.trainers)
        for trainer in range(settings.trainers):
            core = fluid.resource(f"core{trainer}", 1.0)
            pull = outgoing.flows(down[trainer], sizes)
            push = incoming.flows(up[trainer], sizes)
            kernel.process(self.train(trainer, pull, fluid.kind([(core, 1.0)]), push))

    def train(self, trainer: int, pull: Flows, core: Kind, push: Flows) -> Steps:
        kernel, settings = self.kernel, self.settings
        latency = 2 * settings.latency
        for iteration in range(settings.iterations):
            yield kernel.timeout(latency)
            yield kernel.transfers(pull)
            yield kernel.activity(core, settings.compute * settings.factor(trainer, iteration))
            yield kernel.timeout(latency)
            yield kernel.transfers(push)
            if settings.barrier:
                yield self.barrier.arrive(None)


def simulate(settings: Settings) -> dict[str, float]:
    """Build and run; the clocks cover both."""
    wall, cpu = time.perf_counter(), time.process_time()
    star = Star(settings)
    star.kernel.run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    flows = 2 * settings.trainers * settings.servers * settings.iterations
    return {
        "simulated_seconds": star.kernel.now,
        "wall_seconds": wall,
        "cpu_seconds": cpu,
        "flows": flows,
        "flows_started": star.kernel.fluid.added - settings.trainers * settings.iterations,
        "flows_per_second": flows / wall,
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "solves": star.kernel.fluid.solves,
        "events": star.kernel.events,
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
    source = Path(__file__).parent / "simgrid" / "network.cpp"
    program = folder / "network"
    words = ["g++", "-O2", "-std=c++17", str(source), "-lsimgrid", "-o", str(program)]
    wanted = "SimGrid and g++ are needed: apt-get install -y libsimgrid-dev g++"
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise SystemExit(f"no g++ was found. {wanted}") from None
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


def against_simgrid(names: str, repeats: int) -> list[dict[str, object]]:
    """Both simulators by turns, so that the machine's moods fall on both."""
    table: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        program = build_simgrid(Path(folder))
        for name in names:
            both = [
                (simulate(CASES[name]), run_simgrid(program, CASES[name])) for _ in range(repeats)
            ]
            row: dict[str, object] = {"case": name, "repeats": repeats}
            row["simulated_seconds"] = both[0][0]["simulated_seconds"]
            row["simgrid_simulated_seconds"] = both[0][1]["simulated_seconds"]
            for clock in ("wall_seconds", "cpu_seconds"):
                pairs = [(ours[clock], theirs[clock]) for ours, theirs in both]
                row[clock] = statistics.median(ours for ours, _ in pairs)
                row[f"simgrid_{clock}"] = statistics.median(theirs for _, theirs in pairs)
                ratios = [theirs / ours for ours, theirs in pairs]
                row[f"{clock}_ratio"] = statistics.median(ratios)
                row[f"{clock}_ratio_range"] = [min(ratios), max(ratios)]
            table.append(row)
            print(json.dumps(row), file=sys.stderr)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--trainers", type=int, default=100)
    parser.add_argument("--servers", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--bytes", type=float, default=40e6, help="of a pull, and of a push")
    parser.add_argument("--bandwidth", type=float, default=3.125e9, help="bytes/s each way")
    parser.add_argument("--latency", type=float, default=25e-6, help="seconds of each of two hops")
    parser.add_argument("--compute", type=float, default=0.1, help="seconds between pull and push")
    parser.add_argument("--jitter", type=float, default=0.0, help="compute varies by this share")
    parser.add_argument("--skew", type=float, default=0.0, help="of sizes over servers")
    parser.add_argument("--barrier", action="store_true", help="trainers meet after each push")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--against", choices=["simgrid"], help="compare on --cases instead")
    parser.add_argument("--cases", default="ABCD", help="of benchmarks/results/network.md")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = vars(parser.parse_args())
    as_json, against = arguments.pop("json"), arguments.pop("against")
    cases, repeats = arguments.pop("cases"), arguments.pop("repeats")
    importing, begin = time.process_time(), time.perf_counter()
    simulate(Settings(2, 2, 2, jitter=0.1, skew=1.0))  # compiles, or loads what is compiled
    compiling = time.perf_counter() - begin
    if against:
        print(json.dumps(against_simgrid(cases, repeats), indent=2))
        return
    found = simulate(Settings(**arguments))
    found |= {"startup_seconds": importing, "compile_seconds": compiling}
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(f"{name:20s} {value:.6f}" for name, value in found.items()))


if __name__ == "__main__":
    main()
